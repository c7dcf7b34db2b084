"""A consumer in the group: connected, subscribed, and with the metadata that a sound first join needs."""

import time
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import KafkaTimeoutError

from slotstream.operators.kafka.connection import KafkaConfig, broker_errors, warn_without_crc32c
from slotstream.operators.kafka.header_keys import accept_any_header_key
from slotstream.operators.kafka.rebalance import Rebalance
from slotstream.operators.kafka.source import SourceConfig, describe_topics, seed_group
from slotstream.schemas.errors import ConfigError

__all__ = ["join"]


def join(kafka: KafkaConfig, source: SourceConfig, rebalance: Rebalance) -> tuple[Any, dict[str, str]]:
    """A KafkaConsumer that joins at its first poll, and the UUID of each topic that it reads.

    Raises:
        ConfigError: the topic does not exist, or the group's start cannot be committed.
        BrokerError: the cluster does not answer.
    """
    warn_without_crc32c()
    accept_any_header_key()
    with broker_errors(f"connecting to {kafka.bootstrap_servers}"):
        admin = KafkaAdminClient(**kafka.client_arguments("admin"))
        try:
            topics = describe_topics(admin, [source.topic, source.redrive_topic])
            if source.topic not in topics:
                raise ConfigError(f"input topic {source.topic} does not exist on {kafka.bootstrap_servers}")
            seed_group(admin, source, topics[source.topic])
        finally:
            admin.close()
        consumer = KafkaConsumer(
            group_id=source.group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="none",
            allow_auto_create_topics=False,
            partition_assignment_strategy=[rebalance.assignor],
            session_timeout_ms=source.session_timeout_ms,
            heartbeat_interval_ms=max(200, source.session_timeout_ms // 10),
            max_poll_interval_ms=source.max_poll_interval_ms,
            metadata_max_age_ms=source.metadata_max_age_ms,
            max_partition_fetch_bytes=source.max_partition_fetch_bytes,
            metrics_enabled=False,  # nobody reads kafka-python's own, and they cost
            **kafka.client_arguments("reader"),
        )
        consumer.subscribe(topics=sorted(topics), listener=rebalance)
        # A join before the topics' first metadata would assign nothing, and need another one.
        until = time.monotonic() + kafka.request_timeout_ms / 1000
        while any(consumer._cluster.partitions_for_topic(name) is None for name in topics):
            if time.monotonic() > until:
                consumer.close(autocommit=False, timeout_ms=1_000)
                raise KafkaTimeoutError(f"no metadata of {', '.join(topics)}")
            time.sleep(0.01)
    return consumer, {name: topic.id for name, topic in topics.items()}
