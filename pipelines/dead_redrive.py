"""`slotstream dead redrive`: what would be put back, and with --yes putting it back."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from slotstream.operators.kafka.dead_topic import letters_of
from slotstream.operators.kafka.letter import Letter, LetterFilter
from slotstream.operators.kafka.redrive import choice_of, redrive
from slotstream.operators.kafka.redrive_choice import LEFT_OUT, Choice
from slotstream.operators.kafka.topics import NEVER, TopicSettings, create_topics
from slotstream.pipelines.config import PipelineConfig
from slotstream.pipelines.dead_config import framed, look_at_topics, open_config
from slotstream.schemas.errors import ConfigError

__all__ = ["choice_lines", "redrive_letters", "topic_faults", "topic_notes"]


def redrive_letters(
    path: Path,
    wanted: LetterFilter,
    *,
    limit: int | None,
    write: bool,
    create_topic: bool,
    again: bool,
    force: bool,
) -> int:
    """Print what is (or would be) put back and what is left out; returns the exit code.

    Raises:
        ConfigError: the redrive topic is missing or cannot be used.
        BrokerError: Kafka fails.
    """
    config, found = open_config(path)
    topic = config.input.redrive_topic
    if write and create_topic and topic not in found:
        found = _create(config, found)
    faults = topic_faults(config, found)
    if write and faults:
        raise ConfigError("\n  ".join(["nothing was written:", *faults]))
    choice = choice_of(
        config.kafka,
        config.input,
        config.output,
        found,
        wanted,
        framed=framed(config),
        again=again,
        force=force,
    )
    chosen = islice(_chosen(config, choice), limit)
    refused = timeless = 0
    if write:
        done = redrive(config.kafka, config.input, config.output, found=found, chosen=chosen)
        count, refused, timeless = done["written"], done["refused"], done["timeless"]
    else:
        count = sum(1 for _ in chosen)
    for line in choice_lines(choice, topic, count, write=write):
        print(line)
    if timeless:
        print(f"{timeless:,} of them have the time of writing: {topic} refuses their own time stamps")
    if refused:
        print(f"{refused:,} were refused by {topic}; the log names them: raise its max.message.bytes")
    for note in [*topic_notes(config, found), *(() if write else faults)]:
        print(f"note: {note}")
    if not write:
        print("This was a dry run: nothing was written. Add --yes to write.")
    return int(bool(refused))


def _chosen(config: PipelineConfig, choice: Choice) -> Iterator[tuple[Letter, int]]:
    for letter in letters_of(config.kafka, config.output.dead, framed=framed(config)):
        attempt = choice.attempt(letter)
        if attempt is not None:
            yield letter, attempt


def choice_lines(choice: Choice, topic: str, count: int, *, write: bool) -> Iterator[str]:
    """What the choice came to. Pure."""
    yield f"{choice.read:,} letters read, {choice.meant:,} of them match the filters"
    yield f"{count:,} {'written' if write else 'would be written'} to {topic}"
    for code, number in choice.codes.most_common():
        yield f"  {number:>8,}  {code}"
    if choice.left_out:
        yield "left out:"
        for reason, told in LEFT_OUT.items():
            if choice.left_out[reason]:
                yield f"  {choice.left_out[reason]:>8,}  {told}"


def topic_faults(config: PipelineConfig, found: dict[str, TopicSettings]) -> list[str]:
    """Why the redrive topic cannot be written. Pure."""
    topic = config.input.redrive_topic
    if topic not in found:
        given = found.get(config.input.topic)
        partitions = given.partitions if given else 1
        return [
            f"topic {topic} does not exist. Add --create-topic, or create it: kafka-topics.sh --create --topic {topic} "
            f"--partitions {partitions} --config retention.ms=-1. A run that is going on must be restarted to read it"
        ]
    if "compact" in found[topic].configs.get("cleanup.policy", ""):
        return [
            f"topic {topic} is compacted: records with equal keys would be deleted before they are read. "
            "Set cleanup.policy=delete on it"
        ]
    return []


def topic_notes(config: PipelineConfig, found: dict[str, TopicSettings]) -> Iterator[str]:
    """What one should know before relying on it. Pure."""
    topic = config.input.redrive_topic
    kept_ms = found[topic].ms("retention.ms") if topic in found else NEVER
    if kept_ms < NEVER:
        yield (
            f"topic {topic} has retention.ms={kept_ms}: Kafka deletes records there whose own time stamps are older, "
            "read or not, and what is deleted counts as not redriven; set retention.ms=-1"
        )
    for name in (config.output.decided, config.output.review):
        if name in found and "compact" in found[name].configs.get("cleanup.policy", ""):
            yield f"topic {name} is compacted: newer records that wait in the input are not seen; let run catch up"


def _create(config: PipelineConfig, found: dict[str, TopicSettings]) -> dict[str, TopicSettings]:
    """The redrive topic beside the input: as many partitions, kept for ever, and room for whatever lies on dead."""
    topic, given, dead = config.input.redrive_topic, found.get(config.input.topic), found.get(config.output.dead)
    if given is None:
        raise ConfigError(f"input topic {config.input.topic} does not exist: {topic} would never be read")
    configs = {"retention.ms": "-1", "cleanup.policy": "delete"}
    if dead is not None and "max.message.bytes" in dead.configs:
        configs["max.message.bytes"] = dead.configs["max.message.bytes"]
    create_topics(config.kafka, {topic: given.partitions}, replicas=given.replicas, configs=configs)
    print(f"created topic {topic} with {given.partitions} partitions; restart a run that is going on: it reads it then")
    return look_at_topics(config)
