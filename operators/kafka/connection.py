"""How to reach a Kafka cluster: addresses, TLS, SASL, time-outs; and Kafka's errors told as ours."""

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

from kafka.errors import (
    AuthorizationError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    SaslAuthenticationFailedError,
)
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from slotstream.operators.kafka.headers import PREFIX
from slotstream.schemas.errors import BrokerError, ConfigError

__all__ = ["KafkaConfig", "broker_errors", "told", "warn_without_crc32c"]

logger = logging.getLogger(__name__)


class KafkaConfig(BaseModel):
    """A Kafka cluster. Passwords are read from files when a client is made and kept nowhere."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bootstrap_servers: str = Field(
        min_length=1, description="host:port of one or more brokers, separated by commas.", examples=["localhost:9092"]
    )
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="Transport, as in every Kafka client."
    )
    tls_ca_file: Path | None = Field(
        default=None, description="PEM file of the authorities to trust; default: the system's."
    )
    tls_cert_file: Path | None = Field(default=None, description="PEM file of the client's certificate (mutual TLS).")
    tls_key_file: Path | None = Field(default=None, description="PEM file of the client's private key (mutual TLS).")
    tls_key_password_file: Path | None = Field(
        default=None, repr=False, description="File that holds the private key's password."
    )
    tls_check_hostname: bool = Field(default=True, description="The certificate must name the broker's host.")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        default=None, description="How to log in, with a SASL security protocol."
    )
    sasl_username: str | None = Field(default=None, description="Who logs in.")
    sasl_password_file: Path | None = Field(default=None, repr=False, description="File that holds the password.")
    client_id: str = Field(default="slotstream", min_length=1, description="Name of this program in the broker's logs.")
    request_timeout_ms: int = Field(default=30_000, ge=1_000, description="How long one request may take.")
    connect_timeout_ms: int = Field(default=30_000, ge=1_000, description="How long the first connection may take.")
    reconnect_backoff_max_ms: int = Field(
        default=2_000, ge=100, description="Longest pause between attempts to reach a lost broker."
    )
    header_prefix: str = Field(
        default=PREFIX,
        pattern=r"[a-z][a-z0-9_-]*$",
        description="First word of our header names.",
    )

    @field_validator("bootstrap_servers")
    @classmethod
    def _names_brokers(cls, value: str) -> str:
        for server in map(str.strip, value.split(",")):
            host, _, port = server.rpartition(":")
            if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 65_536:
                raise ValueError(f"a broker is no host:port, got {server!r}")
        return value

    @model_validator(mode="after")
    def _login_is_whole(self) -> Self:
        sasl = self.security_protocol.startswith("SASL_")
        given = [self.sasl_mechanism, self.sasl_username, self.sasl_password_file]
        if sasl and None in given:
            raise ValueError(
                f"security_protocol {self.security_protocol} needs sasl_mechanism, sasl_username and sasl_password_file"
            )
        if not sasl and any(value is not None for value in given):
            raise ValueError(f"security_protocol {self.security_protocol} takes no sasl_* settings; use SASL_SSL")
        tls = [self.tls_ca_file, self.tls_cert_file, self.tls_key_file, self.tls_key_password_file]
        if not self.security_protocol.endswith("SSL") and any(value is not None for value in tls):
            raise ValueError(f"security_protocol {self.security_protocol} takes no tls_* files; use SSL or SASL_SSL")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file belong together: give both or neither")
        return self

    def client_arguments(self, role: str) -> dict[str, Any]:
        """Keyword arguments that every kafka-python client takes.

        Args:
            role: what the client does, such as "reader"; it is appended to the client id.

        Raises:
            ConfigError: a named file is missing or unreadable.
        """
        arguments: dict[str, Any] = {
            "bootstrap_servers": [server.strip() for server in self.bootstrap_servers.split(",")],
            "client_id": f"{self.client_id}-{role}",
            "security_protocol": self.security_protocol,
            "request_timeout_ms": self.request_timeout_ms,
            "bootstrap_timeout_ms": self.connect_timeout_ms,
            "reconnect_backoff_max_ms": self.reconnect_backoff_max_ms,
        }
        if self.security_protocol.endswith("SSL"):
            arguments["ssl_check_hostname"] = self.tls_check_hostname
            for name in ("ca", "cert", "key"):
                if (path := getattr(self, f"tls_{name}_file")) is not None:
                    arguments[f"ssl_{name}file"] = str(_readable(path, f"tls_{name}_file"))
            if self.tls_key_password_file is not None:
                arguments["ssl_password"] = _secret(self.tls_key_password_file, "tls_key_password_file")
        if self.sasl_password_file is not None:
            arguments["sasl_mechanism"] = self.sasl_mechanism
            arguments["sasl_plain_username"] = self.sasl_username
            arguments["sasl_plain_password"] = _secret(self.sasl_password_file, "sasl_password_file")
        return arguments


def _readable(path: Path, setting: str) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ConfigError(f"kafka.{setting}: cannot read {path} ({error.strerror}); name a readable file") from error


def _secret(path: Path, setting: str) -> str:
    secret = _readable(path, setting).read_text(encoding="utf-8").rstrip("\r\n")
    if not secret:
        raise ConfigError(f"kafka.{setting}: {path} is empty; it must hold the password on its first line")
    return secret


@contextmanager
def broker_errors(doing: str) -> Iterator[None]:
    """Kafka's errors inside the block become ours, with what was being done in front.

    Raises:
        ConfigError: the broker refuses who we are or what we may do, or the client its settings.
        BrokerError: anything else that Kafka's client raises.
    """
    try:
        yield
    except (AuthorizationError, SaslAuthenticationFailedError) as error:
        raise ConfigError(f"{doing}: the broker refuses it ({told(error)}); check the login and its ACLs") from error
    except KafkaConfigurationError as error:
        raise ConfigError(f"{doing}: kafka-python refuses these settings: {error}") from error
    except KafkaError as error:
        raise BrokerError(f"{doing}: {told(error)}") from error


def told(error: BaseException) -> str:
    """What an error of kafka-python says, its class named once."""
    name, words = type(error).__name__, str(error)
    words = words if words.startswith(name) else f"{name}: {words}"
    if isinstance(error, KafkaTimeoutError) and "bootstrap" in words:  # kafka-python tells no more than that
        words += ". Is a broker there? It also hangs up when security_protocol, TLS files or login are wrong"
    return words


def warn_without_crc32c() -> bool:
    """Warn, loudly and once a client, when checksums run in pure Python. Returns whether crc32c is there."""
    if importlib.util.find_spec("crc32c") is not None:
        return True
    logger.warning(
        "THE PACKAGE crc32c IS MISSING: every kilobyte from or to Kafka costs about 120 us of pure-Python checksum. "
        "Install it: pip install 'kafka-python[crc32c]'"
    )
    return False
