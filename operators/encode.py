"""Encode: an outcome becomes the record that is written; a decision that cannot be written becomes a dead letter."""

import time
from collections.abc import Callable, Iterator

import apache_beam as beam

from slotstream.operators.codec import Codec, output_headers
from slotstream.operators.dead_letter_limit import DeadLetterLimit, DeadLetterLimitConfig, limit_for
from slotstream.operators.decode import CodecSource
from slotstream.operators.kafka.dead_letter import dead_letter
from slotstream.operators.kafka.headers import Stamp, decision_headers, header_value, review_headers
from slotstream.operators.kafka.sink import Outgoing
from slotstream.operators.outcome import Dead, Decided, Forwarded, Outcome
from slotstream.schemas.errors import RecordError
from slotstream.schemas.record import Origin

__all__ = ["EncodeFn", "encode"]


def encode(outcome: Outcome, codec: Codec, stamp: Stamp, *, time_ms: int) -> Outgoing:
    """What is written for an outcome: the record with its decision, its bytes as they came (dead), or a tombstone.

    Args:
        time_ms: now, Unix milliseconds; stands on dead letters.

    Raises:
        OutputSchemaRefused, RegistryUnavailable: the output schema cannot be registered (now).
        ConfigError: the record has a field that a decision field would be named.
    """
    if isinstance(outcome, Dead):
        return dead_letter(outcome.message, stamp, outcome.error, time_ms=time_ms)
    if isinstance(outcome, Forwarded):
        return Outgoing("decided", outcome.message, None, decision_headers(outcome.message, stamp))
    try:
        return _decided(outcome, codec, stamp)
    except RecordError as error:
        return dead_letter(outcome.message, stamp, error, time_ms=time_ms, schema_id=outcome.record.schema_id)


def _decided(outcome: Decided, codec: Codec, stamp: Stamp) -> Outgoing:
    message, decision = outcome.message, outcome.decision
    value = codec.encode(outcome.record, decision)
    if decision.route == "review":
        headers = review_headers(message, stamp, decision.reasons)
    else:
        headers = decision_headers(message, stamp)
    return Outgoing(decision.route, message, value, output_headers(headers), outcome.record.schema_id)


class EncodeFn(beam.DoFn):  # type: ignore[misc]
    """`Outcome` in, `Outgoing` out, in the same order; watches the share of dead records.

    RegistryUnavailable fails the bundle (it is retried); OutputSchemaRefused and ConfigError end the pipeline.
    """

    def __init__(
        self,
        source: CodecSource,
        stamp: Stamp,
        *,
        limit: DeadLetterLimitConfig | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._stamp = stamp
        self._limit = limit or DeadLetterLimitConfig()
        self._clock = clock
        self._code_header = f"{stamp.prefix}.error.code"
        self._codec: Codec
        self._dead_letters: DeadLetterLimit
        self._counted: list[tuple[str | None, Origin]] = []

    def start_bundle(self) -> None:
        self._dead_letters = limit_for(self._limit)
        self._dead_letters.check()  # on runners without an epoch loop, which looks after each commit
        self._codec = self._source.codec()
        self._counted.clear()

    def process(self, element: Outcome) -> Iterator[Outgoing]:
        outgoing = encode(element, self._codec, self._stamp, time_ms=int(self._clock() * 1000))
        code = header_value(outgoing.headers, self._code_header) if outgoing.route == "dead" else None
        self._counted.append((code, element.message.origin))
        yield outgoing

    def finish_bundle(self) -> None:
        for code, origin in self._counted:
            self._dead_letters.add(code, origin)
        self._counted.clear()
