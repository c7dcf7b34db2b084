"""A client of a Confluent-compatible schema registry: what the codec and `check` need of it, and no more.

The address is the API's base: Confluent's own root, or Apicurio's `/apis/ccompat/v7`. A schema never changes under its
id, so what is found is kept for ever; what is not found is asked again after seconds.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable
from urllib.parse import quote

from slotstream.operators.registry_http import RegistryConfig, RegistryConnection
from slotstream.schemas.errors import DecodeError, OutputSchemaRefused

__all__ = ["RegisteredSchema", "Registry", "RegistryConfig", "SchemaRegistry", "shared_registry"]

MOST_MISSING = 10_000
"""Unknown ids that are remembered; a stream of arbitrary bytes has a new one in nearly every value."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry holds it. references: the schemas that it names, each once."""

    id: int
    text: str
    references: tuple[str, ...] = ()


@runtime_checkable
class SchemaRegistry(Protocol):
    """Where input schemas come from and output schemas go; thread-safe."""

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Raises DecodeError `schema_not_found` or `schema_not_avro`, RegistryUnavailable."""
        ...

    def register(self, subject: str, text: str) -> int:
        """The id of `text` under `subject`, new or known. Raises OutputSchemaRefused, RegistryUnavailable."""
        ...


class Registry:
    """The client of one registry. One a process is enough: see `shared_registry`.

    Args:
        clock: seconds, monotonic.  sleep: waits for seconds.

    Raises:
        ConfigError: a TLS file cannot be read.
    """

    def __init__(
        self,
        config: RegistryConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._connection = RegistryConnection(config)
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._schemas: dict[int, RegisteredSchema] = {}
        self._missing: dict[int, tuple[float, DecodeError]] = {}
        self._no_wait_before = -math.inf
        self._registered: dict[tuple[str, str], int] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """The schema of an id, with the schemas it refers to.

        Raises:
            DecodeError: `schema_not_found`, also after a second try; `schema_not_avro`.
            RegistryUnavailable: no address answers.
        """
        found = self._schemas.get(schema_id)
        if found is not None:
            return found
        with self._lock:
            if schema_id not in self._schemas:
                self._schemas[schema_id] = self._fetch(schema_id)
            return self._schemas[schema_id]

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The newest schema of a subject, None when there is none.

        Raises:
            DecodeError: `schema_not_avro`.  RegistryUnavailable: no address answers.
        """
        found = self._connection.call("GET", f"{_path(subject)}/versions/latest", needs="schema")
        return None if found is None else self._whole(int(found["id"]), found)

    def register(self, subject: str, text: str) -> int:
        """The id of `text` under `subject`; with `auto_register` off it is only looked up.

        Raises:
            OutputSchemaRefused: it breaks the subject's compatibility rule, is invalid there, or is not there.
            RegistryUnavailable: no address answers.
        """
        with self._lock:
            if (subject, text) not in self._registered:
                self._registered[subject, text] = self._register(subject, text)
            return self._registered[subject, text]

    def incompatibilities(self, subject: str, text: str) -> list[str]:
        """What the registry has against `text` as the next schema of `subject`; empty when it would be taken.

        Raises:
            OutputSchemaRefused: the registry cannot read the schema.  RegistryUnavailable: no address answers.
        """
        path = f"/compatibility{_path(subject)}/versions/latest?verbose=true"
        found = self._connection.call("POST", path, {"schema": text}, needs="is_compatible", subject=subject)
        if found is None or found["is_compatible"]:  # None: no subject, so nothing to be compatible with
            return []
        return [str(message) for message in found.get("messages") or ["the schema is incompatible"]]

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def _fetch(self, schema_id: int) -> RegisteredSchema:
        until, error = self._missing.get(schema_id, (0.0, None))
        if error is not None and self._clock() < until:
            raise DecodeError(str(error), code=error.code)
        found = self._by_id(schema_id)
        if found is None and self._clock() >= self._no_wait_before:
            # A producer may be ahead of a registry's replica. But where waiting has just not helped, the values are
            # more likely no Avro at all, each with an id of its own, and a wait for each would stop the stream.
            self._sleep(self._config.not_found_wait_ms / 1000)
            found = self._by_id(schema_id)
            if found is None:
                self._no_wait_before = self._clock() + self._config.not_found_cache_s
        if found is None:
            missing = DecodeError(f"the registry knows no schema with id {schema_id}", code="schema_not_found")
            if len(self._missing) >= MOST_MISSING:
                self._missing.clear()
            self._missing[schema_id] = (self._clock() + self._config.not_found_cache_s, missing)
            raise missing
        return self._whole(schema_id, found)

    def _by_id(self, schema_id: int) -> dict[str, Any] | None:
        return self._connection.call("GET", f"/schemas/ids/{schema_id}", needs="schema")

    def _whole(self, schema_id: int, found: dict[str, Any]) -> RegisteredSchema:
        """The schema with what it refers to."""
        if (kind := found.get("schemaType") or "AVRO") != "AVRO":
            raise DecodeError(f"schema {schema_id} is {kind}, not Avro", code="schema_not_avro")
        texts: dict[tuple[str, int], str] = {}
        self._follow(found, texts)
        return RegisteredSchema(schema_id, str(found["schema"]), tuple(texts.values()))

    def _follow(self, found: dict[str, Any], texts: dict[tuple[str, int], str]) -> None:
        """Collect the schemas that one refers to, each once."""
        for reference in found.get("references") or ():
            subject, version = str(reference["subject"]), int(reference["version"])
            if (subject, version) in texts:
                continue
            referred = self._connection.call("GET", f"{_path(subject)}/versions/{version}", needs="schema")
            if referred is None:
                raise DecodeError(f"schema reference {subject} version {version} is not there", code="schema_not_found")
            texts[subject, version] = str(referred["schema"])
            self._follow(referred, texts)

    def _register(self, subject: str, text: str) -> int:
        path = _path(subject) + ("/versions" if self._config.auto_register else "")
        found = self._connection.call("POST", path, {"schema": text}, needs="id", subject=subject)
        if found is None:
            raise OutputSchemaRefused(
                f"subject {subject} does not hold the output schema and auto_register is off; register this: {text}"
            )
        return int(found["id"])


def _path(subject: str) -> str:
    return f"/subjects/{quote(subject, safe='')}"


@lru_cache(maxsize=8)
def shared_registry(config: RegistryConfig) -> Registry:
    """The process's client of one registry."""
    return Registry(config)
