"""This process's producers, and the one way in which they are renewed: kafka-python's idempotent producer can die.

One record that the broker refuses for good (too large, a time stamp out of range, no key on a compacted topic) turns
kafka-python 3.0.12's idempotent producer into one that fails every send to every topic (`classify_batch_error` ends in
FATAL). Making another takes some 10 ms. Dead letters, and records suspected of being refused, go through a producer of
their own without idempotence, which outlives a refusal.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError
from kafka.serializer import Serializer

from slotstream.operators.kafka.connection import KafkaConfig, broker_errors, warn_without_crc32c
from slotstream.operators.kafka.sink import SinkConfig

__all__ = ["NULL", "Producers", "close_producers", "producers_for"]

logger = logging.getLogger(__name__)

LIMITS_AGE_S = 60.0

NULL = object()
"""Send it as the value for a null value: kafka-python refuses None when the key is None, too."""


class _NullValues(Serializer):  # type: ignore[misc]
    def serialize(self, topic: str, headers: Any, data: Any) -> bytes | None:  # noqa: ARG002
        return None if data is NULL else data


class Producers:
    """The ordered producer (idempotent) and the careful one (not), and the output topics' limits. Thread-safe.

    `generation` counts renewals: who saw a failure renews the generation that it used, and finds it renewed if another
    thread was quicker.
    """

    def __init__(self, kafka: KafkaConfig, sink: SinkConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._kafka = kafka
        self._sink = sink
        self._clock = clock
        self._lock = threading.RLock()
        self._ordered: Any = None
        self._careful: Any = None
        self._limits: dict[str, int] | None = None
        self._limits_asked_at = 0.0
        self.generation = 0

    @property
    def ordered(self) -> Any:
        """The producer of `decided` and `review`."""
        with self._lock:
            if self._ordered is None:
                self._ordered = self._make("writer", enable_idempotence=True)
            return self._ordered

    @property
    def careful(self) -> Any:
        """The producer of `dead`, and of single records that may be refused."""
        with self._lock:
            if self._careful is None:
                self._careful = self._make("dead-letters", enable_idempotence=False)
            return self._careful

    @property
    def limits(self) -> Mapping[str, int]:
        """max.message.bytes of each output topic, asked once a minute; empty where the broker does not say."""
        with self._lock:
            now = self._clock()
            if self._limits is None or now - self._limits_asked_at > LIMITS_AGE_S:
                self._limits, self._limits_asked_at = self._ask_limits(), now
            return self._limits

    def flush(self, timeout_s: float) -> None:
        """Send what waits for more records, and wait for the answers; what they say is in each record's own future."""
        with self._lock:
            producers = [producer for producer in (self._ordered, self._careful) if producer is not None]
        for producer in producers:
            # It raises when it waited for too long, and when a batch was split: the halves' futures are new ones.
            with suppress(KafkaError):
                producer.flush(timeout=timeout_s)

    def renew(self, generation: int) -> None:
        """Give up the ordered producer of that generation with everything unsent in it; the next use makes another."""
        with self._lock:
            if generation != self.generation:
                return
            self.generation += 1
            producer, self._ordered = self._ordered, None
        _end(producer)

    def close(self, timeout_s: float = 0) -> None:
        """Close both; what is not sent after `timeout_s` is dropped."""
        with self._lock:
            self.generation += 1
            producers, self._ordered, self._careful = (self._ordered, self._careful), None, None
        for producer in producers:
            _end(producer, timeout_s)

    def _make(self, role: str, *, enable_idempotence: bool) -> Any:
        warn_without_crc32c()
        sink = self._sink
        arguments = self._kafka.client_arguments(role)
        within_ms = sink.delivery_timeout_ms - sink.linger_ms - 1  # kafka-python wants one request to fit in
        arguments["request_timeout_ms"] = min(arguments["request_timeout_ms"], within_ms)
        with broker_errors(f"connecting to {self._kafka.bootstrap_servers}"):
            return KafkaProducer(
                enable_idempotence=enable_idempotence,
                acks="all",
                compression_type=None if sink.compression == "none" else sink.compression,
                linger_ms=sink.linger_ms,
                batch_size=min([sink.batch_bytes, *self.limits.values()]),  # a larger one is only split again
                max_request_size=sink.max_request_bytes,
                delivery_timeout_ms=sink.delivery_timeout_ms,
                max_block_ms=sink.delivery_timeout_ms,
                metadata_max_age_ms=30_000,
                allow_auto_create_topics=False,
                value_serializer=_NullValues(),
                metrics_enabled=False,  # nobody reads kafka-python's own, and they cost
                **arguments,
            )

    def _ask_limits(self) -> dict[str, int]:
        topics = [self._sink.decided, self._sink.review, self._sink.dead]
        try:
            admin = KafkaAdminClient(**self._kafka.client_arguments("admin"))
            try:
                asked = [ConfigResource(ConfigResourceType.TOPIC, topic, ["max.message.bytes"]) for topic in topics]
                told = admin.describe_configs(asked, config_filter="all")["topic"]
            finally:
                admin.close()
        except (KafkaError, KeyError) as error:
            logger.warning("max.message.bytes of the output topics is unknown (%s): the broker will say", error)
            return {}
        return {
            topic: int(settings["max.message.bytes"]["value"])
            for topic, settings in told.items()
            if "max.message.bytes" in settings
        }


def _end(producer: Any, timeout_s: float = 0) -> None:
    if producer is None:
        return
    try:
        if timeout_s > 0:
            producer.close(timeout=timeout_s)
            return
    except KafkaError as error:
        logger.warning("a producer did not close in order: %s", error)
    # close(timeout=0) raises when something is unsent, and leaves the thread that sends it alive.
    producer._sender.force_close()
    producer.close(timeout=1)


_producers: dict[tuple[KafkaConfig, SinkConfig], Producers] = {}
_producers_lock = threading.Lock()


def producers_for(kafka: KafkaConfig, sink: SinkConfig) -> Producers:
    """This process's only producers of that configuration: runners make and drop DoFns as they like."""
    with _producers_lock:
        known = _producers.get((kafka, sink))
        if known is None:
            known = _producers[kafka, sink] = Producers(kafka, sink)
        return known


def close_producers() -> None:
    """Close every producer of this process."""
    with _producers_lock:
        for producers in _producers.values():
            producers.close(timeout_s=5)
        _producers.clear()
