"""A registry in trouble, a wrong address, a refused login: each is somebody's fault, and never a record's."""

import base64
import datetime
import ipaddress
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import ValidationError

from slotstream.operators.registry import Registry, RegistryConfig
from slotstream.operators.testing_registry import FakeSchemaRegistry, fake_schema_registry
from slotstream.schemas.errors import ConfigError, RegistryUnavailable

SCHEMA = '{"type": "record", "name": "A", "fields": []}'


@pytest.fixture
def fake() -> Iterator[FakeSchemaRegistry]:
    with fake_schema_registry() as registry:
        yield registry


@pytest.fixture
def connect() -> Iterator[Callable[..., Registry]]:
    """`connect(url, ..., **config)`: a client, closed at the end."""
    opened: list[Registry] = []

    def make(*urls: str, **config: object) -> Registry:
        opened.append(Registry(RegistryConfig.model_validate({"urls": urls, **config}), sleep=lambda _: None))
        return opened[-1]

    yield make
    for registry in opened:
        registry.close()


@pytest.mark.parametrize("fault", [500, 503, 429, 0], ids=["500", "503", "429", "connection dropped"])
def test_a_registry_in_trouble_is_no_records_fault(
    fault: int, fake: FakeSchemaRegistry, connect: Callable[..., Registry]
) -> None:
    registry = connect(fake.url)
    fake.faults[:] = [fault]
    with pytest.raises(RegistryUnavailable, match=fake.url):
        registry.schema(1)
    fake.faults[:] = [fault]
    with pytest.raises(RegistryUnavailable):
        registry.register("s", SCHEMA)
    assert registry.register("s", SCHEMA) == 1
    assert registry.schema(1).id == 1


def test_a_registry_that_is_not_there_is_unavailable(connect: Callable[..., Registry]) -> None:
    with fake_schema_registry() as gone:
        url = gone.url
    with pytest.raises(RegistryUnavailable, match="no schema registry answers"):
        connect(url).schema(1)


def test_the_next_address_is_tried(fake: FakeSchemaRegistry, connect: Callable[..., Registry]) -> None:
    with fake_schema_registry() as gone:
        dead = gone.url
    assert connect(dead, fake.url).register("s", SCHEMA) == 1


def test_a_wrong_address_is_no_records_fault(connect: Callable[..., Registry], fake: FakeSchemaRegistry) -> None:
    elsewhere = connect(f"{fake.url}/elsewhere")
    with pytest.raises(RegistryUnavailable, match="base of its API"):
        elsewhere.schema(1)
    with pytest.raises(RegistryUnavailable, match="base of its API"):
        elsewhere.register("s", SCHEMA)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_the_operators_fault(
    status: int, fake: FakeSchemaRegistry, connect: Callable[..., Registry]
) -> None:
    fake.faults[:] = [status]
    with pytest.raises(ConfigError, match="login"):
        connect(fake.url).schema(1)


def test_secrets_come_from_files_and_may_change(
    fake: FakeSchemaRegistry, connect: Callable[..., Registry], tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    basic = connect(fake.url, username="ann", password_file=secret)
    bearer = connect(fake.url, token_file=secret)
    basic.latest("s")
    bearer.latest("s")
    secret.write_text("second")
    bearer.latest("s")
    assert fake.logins == ["Basic " + base64.b64encode(b"ann:first").decode(), "Bearer first", "Bearer second"]


def test_a_missing_secret_file_is_named(
    fake: FakeSchemaRegistry, connect: Callable[..., Registry], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        connect(fake.url, token_file=tmp_path / "nowhere").latest("s")


def test_a_tls_file_that_cannot_be_read_stops_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TLS"):
        Registry(RegistryConfig(urls=("https://localhost",), ca_file=tmp_path / "nowhere.pem"))


@pytest.mark.parametrize(
    "settings",
    [
        {"urls": []},
        {"urls": ["localhost:8081"]},
        {"urls": ["http://"]},
        {"urls": ["http://ann:secret@r"]},
        {"urls": ["http://r:port"]},
        {"urls": ["http://r"], "username": "ann"},
        {"urls": ["http://r"], "username": "ann", "password_file": "p", "token_file": "t"},
        {"urls": ["http://r"], "tokenfile": "t"},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RegistryConfig.model_validate(settings)


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1, signed by itself, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "registry.test")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=365 * 80))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "registry.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return file


def test_mutual_tls_takes_the_configured_files_and_nothing_less(pem: Path, connect: Callable[..., Registry]) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=pem)
    tls.load_cert_chain(pem)
    tls.verify_mode = ssl.CERT_REQUIRED
    with fake_schema_registry(tls=tls) as registry:
        assert connect(registry.url, ca_file=pem, client_cert_file=pem).register("s", SCHEMA) == 1
        for lacking in ({"client_cert_file": pem}, {"ca_file": pem}):
            with pytest.raises(RegistryUnavailable):
                connect(registry.url, **lacking).schema(1)
        assert registry.requests == ["POST /subjects/s/versions"]
