"""Decode: a message's bytes become a record; bytes that are not what the topic promises become a dead letter."""

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import apache_beam as beam
from apache_beam.metrics import Metrics

from slotstream.operators.codec import Codec, ValueConfig, build_codec
from slotstream.operators.outcome import Dead, Forwarded
from slotstream.operators.registry import RegistryConfig, SchemaRegistry, shared_registry
from slotstream.operators.registry_file import FileRegistry, SchemaFileConfig
from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.errors import EngineCrash, RecordError
from slotstream.schemas.record import Message, Origin, Record

__all__ = ["CodecSource", "DecodeFn", "Decoded", "Tombstones", "condemn_latest", "decode"]

Tombstones = Literal["forward", "drop"]
Decoded = Record | Dead | Forwarded


def decode(message: Message, codec: Codec, tombstones: Tombstones = "forward") -> Decoded | None:
    """What goes on to be decided: a record, a dead letter, or a tombstone; None for a tombstone that is dropped.

    Raises:
        RegistryUnavailable: the value's schema cannot be fetched now; no record is to blame.
    """
    if message.value is None:
        return Forwarded(message) if tombstones == "forward" else None
    try:
        return codec.decode(message)
    except RecordError as error:
        return Dead(message, error)


@dataclass(frozen=True, slots=True)
class CodecSource:
    """Everything that a worker needs to build its codec; small and picklable, the codec itself is neither.

    topics: output topic a route; Avro output schemas are registered under their names.
    source: where input schemas come from.  sink: where output schemas go, when it is another place.
    """

    value: ValueConfig
    schema: DecisionSchema
    topics: Mapping[Literal["decided", "review"], str]
    source: RegistryConfig | SchemaFileConfig | None = None
    sink: RegistryConfig | None = None

    def codec(self) -> Codec:
        """The process's codec; the first call builds it, later ones find it.

        Raises:
            ConfigError: values, registry and decision schema do not fit together.
        """
        key = (self.schema.hash, repr(self))
        with _lock:
            if key not in _codecs:
                _codecs[key] = build_codec(
                    self.value,
                    self.schema,
                    topics=self.topics,
                    source=_registry(self.source),
                    sink=_registry(self.sink),
                )
            return _codecs[key]


def _registry(config: RegistryConfig | SchemaFileConfig | None) -> SchemaRegistry | None:
    if isinstance(config, SchemaFileConfig):
        return FileRegistry(config)
    return None if config is None else shared_registry(config)


# Of the process, never of a DoFn: runners make and keep many of those.
_lock = threading.Lock()
_codecs: dict[tuple[str, str], Codec] = {}
_condemned: set[Origin] = set()
_latest: Origin | None = None


def condemn_latest() -> Origin | None:
    """The record decoded last was alone when the engine died: from now on it is dead without being asked."""
    if _latest is not None:
        _condemned.add(_latest)
    return _latest


class DecodeFn(beam.DoFn):  # type: ignore[misc]
    """`Message` in, `Record`, `Dead` or `Forwarded` out, in the same order.

    RegistryUnavailable fails the bundle: it is retried, and nothing is dead-lettered for it.
    """

    def __init__(self, source: CodecSource, *, tombstones: Tombstones = "forward") -> None:
        self._source = source
        self._tombstones = tombstones
        self._decode: Callable[[Message], Decoded | None]
        self._dropped = Metrics.counter("slotstream", "tombstones_dropped")
        self._forwarded = Metrics.counter("slotstream", "tombstones_forwarded")

    def start_bundle(self) -> None:
        codec, tombstones = self._source.codec(), self._tombstones
        self._decode = lambda message: decode(message, codec, tombstones)

    def process(self, element: Message) -> Iterator[Decoded]:
        global _latest  # noqa: PLW0603 - of the process, as the engine that it is blamed for
        _latest = element.origin
        if _condemned and element.origin in _condemned:
            yield Dead(element, EngineCrash("this record, read alone, ended the engine again"))
            return
        decoded = self._decode(element)
        if decoded is None:
            self._dropped.inc()
            return
        if isinstance(decoded, Forwarded):
            self._forwarded.inc()
        yield decoded
