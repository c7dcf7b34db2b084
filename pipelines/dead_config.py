"""The configuration as the commands of `slotstream dead` need it, with the topics looked at once."""

from pathlib import Path

from slotstream.operators.kafka.reach import told_once
from slotstream.operators.kafka.topics import TopicSettings, topic_settings
from slotstream.pipelines.config import PipelineConfig, load_config
from slotstream.schemas.errors import ConfigError

__all__ = ["framed", "look_at_topics", "open_config"]


def open_config(path: Path) -> tuple[PipelineConfig, dict[str, TopicSettings]]:
    """The configuration, and those of its topics that exist.

    Raises:
        ConfigError: the file breaks a rule, or its dead topic does not exist.
        BrokerError: the cluster does not answer; the cause is told with it.
    """
    config = load_config(path)
    found = look_at_topics(config)
    if config.output.dead not in found:
        raise ConfigError(
            f"topic {config.output.dead} (output.dead) does not exist on {config.kafka.bootstrap_servers}: there "
            "are no dead letters. `slotstream check` looks at all topics"
        )
    return config, found


def look_at_topics(config: PipelineConfig) -> dict[str, TopicSettings]:
    """The input, redrive and output topics that exist.

    Raises:
        BrokerError: the cluster does not answer.
    """
    output = config.output
    names = [config.input.topic, config.input.redrive_topic, output.decided, output.review, output.dead]
    with told_once():
        return topic_settings(config.kafka, names)


def framed(config: PipelineConfig) -> bool:
    """Whether a value's first bytes say its schema id."""
    return config.input.format == "avro" and config.input.framing == "confluent"
