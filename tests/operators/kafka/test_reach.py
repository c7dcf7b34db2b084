"""A broker that cannot be reached: found in seconds, told once, with its cause; no real broker is needed for that."""

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError

from slotstream.operators.kafka.connection import KafkaConfig
from slotstream.operators.kafka.reach import reach, told_once
from slotstream.schemas.errors import BrokerError, ConfigError

Server = Callable[[bytes], str]


@pytest.fixture
def server() -> Iterator[Server]:
    """`server(answer)` listens on loopback, sends the answer to whoever connects, hangs up, and returns host:port."""
    with ExitStack() as undo:

        def start(answer: bytes) -> str:
            listening = undo.enter_context(socket.create_server(("127.0.0.1", 0)))

            def serve() -> None:
                with suppress(OSError):  # the test is over before it connects, or hangs up first
                    connection, _ = listening.accept()
                    with connection:
                        connection.sendall(answer)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(4096):
                            pass

            threading.Thread(target=serve, daemon=True).start()
            return f"127.0.0.1:{listening.getsockname()[1]}"

        yield start


def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"127.0.0.1:{listening.getsockname()[1]}"


def found(servers: str, **settings: Any) -> list[str]:
    return [f"{each.level} {each}" for each in reach(KafkaConfig(bootstrap_servers=servers, **settings), timeout_s=3.0)]


def test_a_port_where_nothing_listens_is_refused() -> None:
    at = closed_port()
    (told,) = found(at)
    assert told.startswith(
        f"error broker {at}: refused: nothing listens there; start the broker, or correct kafka.boot"
    )


def test_a_name_that_nobody_knows_is_not_resolved() -> None:
    (told,) = found("no-such-host.invalid:9092")
    assert told.startswith("error broker no-such-host.invalid:9092: the name 'no-such-host.invalid' is not resolved; ")


@pytest.mark.parametrize(
    ("raised", "says"),
    [
        (TimeoutError("timed out"), "no answer within 3 s; correct kafka.bootstrap_servers, or open the way there"),
        (OSError(113, "No route to host"), "cannot be reached (No route to host); correct kafka.bootstrap_servers"),
    ],
)
def test_silence_and_other_faults_of_the_network_are_named(
    monkeypatch: pytest.MonkeyPatch, raised: OSError, says: str
) -> None:
    def refuse(*_: Any) -> None:
        raise raised

    monkeypatch.setattr(socket, "create_connection", refuse)
    (told,) = found("broker:9092")
    assert says in told


def test_one_broker_that_answers_makes_the_others_warnings(server: Server) -> None:
    gone, there = closed_port(), server(b"")
    first, second = found(f"{gone}, {there}")
    assert first.startswith(f"warning broker {gone}: refused")
    assert second == f"ok broker {there}: answers"


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_a_broker_without_tls_is_told_from_one_that_is_not_there(server: Server, answer: bytes) -> None:
    (told,) = found(server(answer), security_protocol="SSL")
    assert "TLS handshake failed (" in told
    assert "does it speak TLS there? Correct kafka.security_protocol, the port, or the tls_* files" in told


@pytest.mark.parametrize("name", ["tls_cert_file", "tls_ca_file"])
def test_a_tls_file_that_is_none_is_told(server: Server, tmp_path: Path, name: str) -> None:
    (tmp_path / "x.pem").write_text("no PEM")
    files = {"tls_cert_file": tmp_path / "x.pem", "tls_key_file": tmp_path / "x.pem"} if "cert" in name else {}
    files |= {"tls_ca_file": tmp_path / "x.pem"} if "ca_" in name else {}
    (told,) = found(server(b""), security_protocol="SSL", **files)
    assert "TLS" in told
    assert "tls_* files" in told


def test_a_trusted_handshake_is_asked_for_with_the_settings(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    seen = []

    def untrusted(self: ssl.SSLContext, _: socket.socket, server_hostname: str) -> None:
        seen.append((self.check_hostname, self.verify_mode, server_hostname))
        error = ssl.SSLCertVerificationError(1, "certificate verify failed")
        error.verify_message = "self-signed certificate"
        raise error

    monkeypatch.setattr(ssl.SSLContext, "wrap_socket", untrusted)
    (told,) = found(server(b""), security_protocol="SSL", tls_check_hostname=False)
    assert seen == [(False, ssl.CERT_REQUIRED, "127.0.0.1")]
    assert "its certificate is not trusted (self-signed certificate); set kafka.tls_ca_file" in told


LOG = logging.getLogger("kafka.net.connection")


def bootstrap(*lost: Exception) -> None:
    """What kafka-python does when it cannot bootstrap: it logs each lost connection, and raises what says nothing."""
    for error in lost:
        LOG.error("%s: Connection lost: %s", "connection", error)
    raise BrokerError("no answer")


def test_lost_connections_are_told_once_with_their_cause(caplog: pytest.LogCaptureFixture) -> None:
    cause = r"^no answer\. The last connection ended with KafkaConnectionError: 111$"
    with pytest.raises(BrokerError, match=cause), told_once():
        bootstrap(*[KafkaConnectionError("111")] * 5)
    assert caplog.messages == []
    LOG.error("afterwards")
    assert caplog.messages == ["afterwards"]


def test_a_refused_login_is_a_fault_of_the_configuration() -> None:
    cause = r"the broker refuses the login \(.*who\?\); check kafka\.sasl_username"
    with pytest.raises(ConfigError, match=cause), told_once():
        bootstrap(SaslAuthenticationFailedError("who?"), KafkaConnectionError("closed"))


def test_an_error_without_a_lost_connection_stays_as_it_is() -> None:
    with pytest.raises(BrokerError, match=r"^no answer$"), told_once():
        bootstrap()


def test_debugging_shows_every_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(BrokerError), told_once():
        bootstrap(KafkaConnectionError("111"))
    assert len(caplog.messages) == 1
