"""The registry client: one suite over the fake and a real registry, then what it keeps, over the fake."""

import itertools
import json
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from slotstream.operators.registry import Registry, RegistryConfig, SchemaRegistry, shared_registry
from slotstream.operators.testing_registry import FakeSchemaRegistry, fake_schema_registry
from slotstream.schemas.avro import parse_writer_schema
from slotstream.schemas.errors import DecodeError, OutputSchemaRefused

NEVER_GIVEN_OUT = 999_999
_numbers = itertools.count(1)


@pytest.fixture
def fake() -> Iterator[FakeSchemaRegistry]:
    with fake_schema_registry() as registry:
        yield registry


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.registry)])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "fake":
        registry: FakeSchemaRegistry = request.getfixturevalue("fake")
        return registry.url
    real: str = request.getfixturevalue("schema_registry")
    return real


@pytest.fixture
def connect() -> Iterator[Callable[..., Registry]]:
    """`connect(url, **config)`: a client that never sleeps, closed at the end."""
    opened: list[Registry] = []

    def make(*urls: str, **config: object) -> Registry:
        settings = RegistryConfig.model_validate({"urls": urls, **config})
        opened.append(Registry(settings, clock=lambda: 0.0, sleep=lambda _: None))
        return opened[-1]

    yield make
    for registry in opened:
        registry.close()


@pytest.fixture
def name() -> str:
    """A name that no other test uses: the real registry is one for the session."""
    return f"Thing{next(_numbers)}"


def record(name: str, *fields: dict[str, object]) -> str:
    return json.dumps({"type": "record", "name": name, "namespace": "registry.test", "fields": fields})


X: dict[str, object] = {"name": "x", "type": "int"}
Y: dict[str, object] = {"name": "y", "type": ["null", "string"], "default": None}
Y_WITHOUT_DEFAULT: dict[str, object] = {"name": "y", "type": "string"}


def test_a_registered_schema_is_found_by_its_id(url: str, connect: Callable[..., Registry], name: str) -> None:
    schema_id = connect(url).register(f"{name}-value", record(name, X))
    found = connect(url).schema(schema_id)
    assert found.id == schema_id
    assert json.loads(found.text) == json.loads(record(name, X))
    assert found.references == ()
    assert isinstance(connect(url), SchemaRegistry)


def test_registering_twice_gives_one_id(url: str, connect: Callable[..., Registry], name: str) -> None:
    text = record(name, X)
    ids = {connect(url).register(f"{name}-value", text) for _ in range(2)}
    assert len(ids) == 1


def test_the_latest_schema_of_a_subject_is_the_last_registered(
    url: str, connect: Callable[..., Registry], name: str
) -> None:
    registry = connect(url)
    assert registry.latest(f"{name}-value") is None
    registry.register(f"{name}-value", record(name, X))
    newer = registry.register(f"{name}-value", record(name, X, Y))
    latest = registry.latest(f"{name}-value")
    assert latest is not None
    assert latest.id == newer


def test_an_unknown_id_is_the_records_fault(url: str, connect: Callable[..., Registry]) -> None:
    with pytest.raises(DecodeError, match=str(NEVER_GIVEN_OUT)) as caught:
        connect(url).schema(NEVER_GIVEN_OUT)
    assert caught.value.code == "schema_not_found"


def test_a_reference_brings_the_schema_it_names(url: str, connect: Callable[..., Registry], name: str) -> None:
    registry = connect(url)
    registry.register(f"{name}-part", record(f"{name}Part", X))
    whole = record(name, {"name": "part", "type": f"registry.test.{name}Part"})
    reference = {"name": f"registry.test.{name}Part", "subject": f"{name}-part", "version": 1}
    answer = httpx.post(f"{url}/subjects/{name}-value/versions", json={"schema": whole, "references": [reference]})
    found = registry.schema(answer.raise_for_status().json()["id"])
    assert [json.loads(text)["name"] for text in found.references] == [f"{name}Part"]
    part = dict(parse_writer_schema(found.text, found.references).root.fields)["part"]
    assert [field for field, _ in part.fields] == ["x"]


def test_a_diamond_of_references_brings_each_schema_once(url: str, connect: Callable[..., Registry], name: str) -> None:
    def reference(part: str) -> dict[str, object]:
        return {"name": f"registry.test.{name}{part}", "subject": f"{name}-{part}", "version": 1}

    def post(subject: str, text: str, *parts: str) -> int:
        body = {"schema": text, "references": [reference(part) for part in parts]}
        answer = httpx.post(f"{url}/subjects/{subject}/versions", json=body).raise_for_status()
        return int(answer.json()["id"])

    def field(part: str) -> dict[str, object]:
        return {"name": part.lower(), "type": f"registry.test.{name}{part}"}

    post(f"{name}-A", record(f"{name}A", X))
    post(f"{name}-B", record(f"{name}B", field("A")), "A")
    post(f"{name}-C", record(f"{name}C", field("A")), "A")
    found = connect(url).schema(post(f"{name}-value", record(name, field("B"), field("C")), "B", "C"))
    assert sorted(json.loads(text)["name"] for text in found.references) == [f"{name}{part}" for part in "ABC"]
    fields = dict(parse_writer_schema(found.text, found.references).root.fields)
    assert fields["b"].fields[0][1] is fields["c"].fields[0][1]


def test_an_incompatible_schema_is_refused_with_the_registrys_words(
    url: str, connect: Callable[..., Registry], name: str
) -> None:
    registry = connect(url)
    subject = f"{name}-value"
    registry.register(subject, record(name, X))
    if "127.0.0.1" in url and "ccompat" in url:
        httpx.put(f"{url}/config/{subject}", json={"compatibility": "BACKWARD"}).raise_for_status()
    refused = record(name, X, Y_WITHOUT_DEFAULT)
    assert registry.incompatibilities(subject, record(name, X, Y)) == []
    assert registry.incompatibilities(subject, refused)
    with pytest.raises(OutputSchemaRefused, match=rf"{subject}.*409.*\w+"):
        registry.register(subject, refused)


def test_a_new_subject_is_compatible_with_everything(url: str, connect: Callable[..., Registry], name: str) -> None:
    assert connect(url).incompatibilities(f"{name}-value", record(name, X)) == []


def test_with_auto_register_off_a_schema_must_be_there(url: str, connect: Callable[..., Registry], name: str) -> None:
    locked = connect(url, auto_register=False)
    with pytest.raises(OutputSchemaRefused, match=f"{name}-value.*auto_register is off"):
        locked.register(f"{name}-value", record(name, X))
    schema_id = connect(url).register(f"{name}-value", record(name, X))
    assert locked.register(f"{name}-value", record(name, X)) == schema_id


def test_a_schema_is_asked_for_once(fake: FakeSchemaRegistry, connect: Callable[..., Registry]) -> None:
    registry = connect(fake.url)
    schema_id = registry.register("s", record("A", X))
    fake.requests.clear()
    threads = [threading.Thread(target=registry.schema, args=(schema_id,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fake.requests == [f"GET /schemas/ids/{schema_id}"]


def test_an_id_that_appears_a_moment_later_is_found(fake: FakeSchemaRegistry, connect: Callable[..., Registry]) -> None:
    schema_id = connect(fake.url).register("s", record("A", X))
    fake.hidden[schema_id] = 1
    assert connect(fake.url).schema(schema_id).id == schema_id


def test_an_unknown_id_is_asked_again_only_after_seconds(fake: FakeSchemaRegistry) -> None:
    now = 100.0
    waits: list[float] = []
    config = RegistryConfig(urls=(fake.url,), not_found_cache_s=10, not_found_wait_ms=500)
    registry = Registry(config, clock=lambda: now, sleep=waits.append)
    for later, asked in ((0.0, 2), (9.9, 2), (10.1, 4)):
        now = 100.0 + later
        with pytest.raises(DecodeError):
            registry.schema(7)
        assert len(fake.requests) == asked
    assert waits == [0.5, 0.5]
    registry.close()


def test_values_of_many_unknown_ids_are_not_waited_for_one_by_one(fake: FakeSchemaRegistry) -> None:
    waits: list[float] = []
    registry = Registry(RegistryConfig(urls=(fake.url,)), clock=lambda: 0.0, sleep=waits.append)
    for schema_id in range(7, 27):
        with pytest.raises(DecodeError):
            registry.schema(schema_id)
    assert len(waits) == 1
    registry.close()


def test_a_schema_that_is_not_avro_is_the_records_fault(
    fake: FakeSchemaRegistry, connect: Callable[..., Registry]
) -> None:
    body = {"schema": "{}", "schemaType": "JSON"}
    schema_id = httpx.post(f"{fake.url}/subjects/j/versions", json=body).json()["id"]
    with pytest.raises(DecodeError, match="JSON") as caught:
        connect(fake.url).schema(schema_id)
    assert caught.value.code == "schema_not_avro"


def test_a_process_has_one_client_of_a_registry() -> None:
    config = RegistryConfig(urls=("http://localhost:1",))
    assert shared_registry(config) is shared_registry(RegistryConfig(urls=("http://localhost:1",)))
