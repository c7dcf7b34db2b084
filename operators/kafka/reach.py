"""Whether the brokers can be talked to: each is looked at for itself, in seconds, and a failure has a named cause."""

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kafka.errors import SaslAuthenticationFailedError

from slotstream.operators.finding import Finding, Level
from slotstream.operators.kafka.connection import KafkaConfig, told
from slotstream.schemas.errors import BrokerError, ConfigError

__all__ = ["reach", "told_once"]


def reach(kafka: KafkaConfig, *, timeout_s: float = 5.0) -> list[Finding]:
    """Connect to every bootstrap server once: name, port and, with TLS, the handshake; no login.

    One that answers is enough for Kafka's clients, so beside it the others are warnings.

    Args:
        timeout_s: how long one server may take.

    Raises:
        ConfigError: a TLS file is missing or unreadable.
    """
    arguments = kafka.client_arguments("check")
    failed = {server: _failure(server, arguments, timeout_s) for server in arguments["bootstrap_servers"]}
    level: Level = "error" if all(failed.values()) else "warning"
    return [
        Finding(level, f"broker {server}", *failure) if failure else Finding("ok", f"broker {server}", "answers")
        for server, failure in failed.items()
    ]


def _failure(server: str, arguments: dict[str, Any], timeout_s: float) -> tuple[str, str] | None:
    """What is wrong with it and what to do; None when it answers."""
    host, _, port = server.rpartition(":")
    host = host.strip("[]")
    setting = "correct kafka.bootstrap_servers"
    try:
        with socket.create_connection((host, int(port)), timeout_s) as connection:
            return _handshake(connection, host, arguments)
    except socket.gaierror:
        return f"the name {host!r} is not resolved", f"{setting}, or this machine's DNS"
    except ConnectionRefusedError:
        return "refused: nothing listens there", f"start the broker, or {setting}"
    except TimeoutError:
        return f"no answer within {timeout_s:g} s", f"{setting}, or open the way there (firewall, VPN)"
    except OSError as error:
        return f"cannot be reached ({error.strerror or error})", setting


def _handshake(connection: socket.socket, host: str, arguments: dict[str, Any]) -> tuple[str, str] | None:
    if not arguments["security_protocol"].endswith("SSL"):
        return None
    try:
        context = ssl.create_default_context(cafile=arguments.get("ssl_cafile"))
        context.check_hostname = arguments["ssl_check_hostname"]
        if "ssl_certfile" in arguments:
            context.load_cert_chain(
                arguments["ssl_certfile"], arguments["ssl_keyfile"], arguments.get("ssl_password") or _no_password
            )
        context.wrap_socket(connection, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        advice = "set kafka.tls_ca_file to its authority's certificate, or correct the host name"
        return f"TLS handshake: its certificate is not trusted ({error.verify_message})", advice
    except ValueError as error:
        return f"TLS files: {error}", "set kafka.tls_key_password_file"
    except (ssl.SSLError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        advice = "does it speak TLS there? Correct kafka.security_protocol, the port, or the tls_* files"
        return f"TLS handshake failed ({reason})", advice
    return None


def _no_password() -> str:
    raise ValueError("the private key is encrypted")  # OpenSSL would ask on the terminal


class _Heard(logging.Filter):
    """Keeps the errors in kafka-python's log lines, and the lines from being printed at every attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        self.errors += [argument for argument in arguments if isinstance(argument, BaseException)]
        return logging.getLogger().isEnabledFor(logging.DEBUG)


@contextmanager
def told_once() -> Iterator[None]:
    """Inside the block, lost connections are not logged at every attempt: the error that ends it names the last cause.

    kafka-python's clients raise a time-out without a cause; the cause is only in their log lines.

    Raises:
        ConfigError: the broker refused the login.
        BrokerError: as it was raised, with the cause.
    """
    heard = _Heard()
    with ExitStack() as undo:
        for name in ("connection", "manager", "transport"):
            logger = logging.getLogger(f"kafka.net.{name}")
            logger.addFilter(heard)
            undo.callback(logger.removeFilter, heard)
        try:
            yield
        except BrokerError as error:
            if not heard.errors:
                raise
            refused = [each for each in heard.errors if isinstance(each, SaslAuthenticationFailedError)]
            if refused:
                raise ConfigError(
                    f"the broker refuses the login ({told(refused[-1])}); check kafka.sasl_username, "
                    "kafka.sasl_password_file and kafka.sasl_mechanism"
                ) from error
            raise BrokerError(f"{error}. The last connection ended with {told(heard.errors[-1])}") from error
