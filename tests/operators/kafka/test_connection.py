"""Connections: settings that belong together, secrets by file only, Kafka's errors told as ours."""

import logging
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, SaslAuthenticationFailedError, TopicAuthorizationFailedError
from pydantic import ValidationError

from slotstream.operators.kafka.connection import KafkaConfig, broker_errors, warn_without_crc32c
from slotstream.schemas.errors import BrokerError, ConfigError

LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_username": "labels",
    "sasl_password_file": "/run/secrets/kafka",
}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"security_protocol": "SASL_SSL"}, "needs sasl_mechanism"),
        (LOGIN | {"sasl_password_file": None}, "needs sasl_mechanism, sasl_username and sasl_password_file"),
        (LOGIN | {"security_protocol": "SSL"}, "takes no sasl"),
        ({"tls_ca_file": "/ca.pem"}, "takes no tls"),
        ({"security_protocol": "SSL", "tls_cert_file": "/c.pem"}, "belong together"),
        ({"bootstrap_servers": ""}, "at least 1 character"),
        ({"sasl_password": "secret"}, "Extra inputs"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        KafkaConfig.model_validate({"bootstrap_servers": "localhost:9092"} | settings)


def test_the_password_is_read_from_its_file_and_shown_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cr3t\n")
    config = KafkaConfig.model_validate(LOGIN | {"bootstrap_servers": "a:1, b:2", "sasl_password_file": secret})
    arguments = config.client_arguments("reader")
    assert arguments["bootstrap_servers"] == ["a:1", "b:2"]
    assert arguments["client_id"] == "slotstream-reader"
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("labels", "s3cr3t")
    assert "s3cr3t" not in repr(config) + str(config) + config.model_dump_json()
    assert str(secret) not in repr(config)


@pytest.mark.parametrize(("content", "says"), [(None, "cannot read"), ("\n", "is empty")])
def test_a_password_file_that_holds_nothing_is_named(tmp_path: Path, content: str | None, says: str) -> None:
    secret = tmp_path / "password"
    if content is not None:
        secret.write_text(content)
    config = KafkaConfig.model_validate(LOGIN | {"bootstrap_servers": "a:1", "sasl_password_file": secret})
    with pytest.raises(ConfigError, match=f"sasl_password_file.*{says}"):
        config.client_arguments("reader")


def test_tls_files_reach_the_client(tmp_path: Path) -> None:
    files = {}
    for name in ("tls_ca_file", "tls_cert_file", "tls_key_file", "tls_key_password_file"):
        files[name] = tmp_path / name
        files[name].write_text("x")
    config = KafkaConfig(bootstrap_servers="a:1", security_protocol="SSL", tls_check_hostname=False, **files)
    arguments = config.client_arguments("reader")
    assert arguments["ssl_cafile"] == str(files["tls_ca_file"])
    assert arguments["ssl_keyfile"] == str(files["tls_key_file"])
    assert (arguments["ssl_password"], arguments["ssl_check_hostname"]) == ("x", False)


@pytest.mark.parametrize(
    ("raised", "becomes"),
    [
        (KafkaTimeoutError("no answer"), BrokerError),
        (TopicAuthorizationFailedError("tickets"), ConfigError),
        (SaslAuthenticationFailedError("who?"), ConfigError),
    ],
)
def test_kafkas_errors_become_ours_and_say_what_was_done(raised: Exception, becomes: type[Exception]) -> None:
    with pytest.raises(becomes, match=f"reading tickets.*{type(raised).__name__}"), broker_errors("reading tickets"):
        raise raised


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), broker_errors("dividing"):
        raise ZeroDivisionError


def test_missing_checksums_in_c_are_announced_loudly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert warn_without_crc32c()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with caplog.at_level(logging.WARNING):
        assert not warn_without_crc32c()
    assert "crc32c IS MISSING" in caplog.text
