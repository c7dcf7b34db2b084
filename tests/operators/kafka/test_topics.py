"""Topics before the start: each wrong setting is found, and what to do is said."""

import pytest

from slotstream.operators.kafka.sink import SinkConfig
from slotstream.operators.kafka.source import SourceConfig
from slotstream.operators.kafka.topics import TopicSettings, judge

SOURCE = SourceConfig(topic="tickets", group="labels")
SINK = SinkConfig(decided="t.decided", review="t.review", dead="t.dead")
DAY = 86_400_000
NOW = 20_000 * DAY
CONFIGS = {
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
    "retention.ms": str(7 * DAY),
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
    "min.insync.replicas": "1",
}


def settings(name: str, partitions: int = 3, may: frozenset[str] | None = None, **configs: str) -> TopicSettings:
    changed = {key.replace("_", "."): value for key, value in configs.items()}
    return TopicSettings(name, partitions, 1, CONFIGS | changed, may)


SOUND = {name: settings(name) for name in ("tickets", "t.decided", "t.review", "t.dead")}


def found(
    changed: dict[str, TopicSettings | None], sink: SinkConfig = SINK, oldest_ms: int | None = NOW - DAY
) -> list[tuple[str, str, str, str]]:
    topics = {name: topic for name, topic in (SOUND | changed).items() if topic is not None}
    findings = judge(SOURCE, sink, topics, oldest_ms=oldest_ms, now_ms=NOW)
    return [(f.level, f.subject, f.message, f.advice) for f in findings]


def test_sound_topics_give_one_line_each_and_no_advice() -> None:
    lines = found({})
    assert [level for level, *_ in lines] == ["ok"] * 4
    assert not any(advice for *_, advice in lines)


@pytest.mark.parametrize("name", ["tickets", "t.decided", "t.review", "t.dead"])
def test_a_missing_topic_is_an_error_with_the_command_that_makes_it(name: str) -> None:
    errors = [line for line in found({name: None}) if line[0] == "error"]
    assert [subject for _, subject, _, _ in errors] == [f"topic {name}"]
    assert f"--topic {name}" in errors[0][3]


@pytest.mark.parametrize(
    ("topic", "level", "says"),
    [
        (settings("t.decided", partitions=2), "warning", "2 partitions, the input 3: order holds per key only"),
        (settings("t.review", max_message_bytes="1000"), "warning", "larger records go to dead"),
        (settings("t.dead", max_message_bytes="1000"), "warning", "lose their value"),
        (settings("t.decided", cleanup_policy="compact"), "warning", "records without a key are refused"),
        (settings("t.dead", cleanup_policy="compact,delete"), "warning", "letters with equal keys are deleted"),
        (settings("t.decided", retention_ms="3600000"), "warning", "deleted right after writing"),
        (settings("t.decided", message_timestamp_before_max_ms="3600000"), "warning", "refused and go to dead"),
        (settings("t.decided", message_timestamp_after_max_ms="1000"), "warning", "from the future are refused"),
        (settings("t.decided", message_timestamp_type="LogAppendTime"), "warning", "replaces the records' own time"),
        (settings("t.decided", min_insync_replicas="2"), "error", "every write fails"),
        (settings("t.decided", may=frozenset({"READ"})), "error", "may not write"),
        (settings("tickets", may=frozenset({"WRITE"})), "error", "may not read"),
    ],
)
def test_each_wrong_setting_is_found_and_advised_on(topic: TopicSettings, level: str, says: str) -> None:
    wrong = [line for line in found({topic.name: topic}) if line[0] != "ok"]
    assert [(line[0], line[1]) for line in wrong] == [(level, f"topic {topic.name}")]
    assert says in wrong[0][2]
    assert wrong[0][3]


def test_a_dead_topic_may_have_any_number_of_partitions() -> None:
    assert all(level == "ok" for level, *_ in found({"t.dead": settings("t.dead", partitions=1)}))


def test_unlimited_retention_keeps_records_of_any_age() -> None:
    forever = {name: settings(name, retention_ms="-1") for name in ("t.decided", "t.review", "t.dead")}
    assert all(level == "ok" for level, *_ in found(dict(forever), oldest_ms=0))


@pytest.mark.parametrize("name", ["tickets", "tickets.redrive"])
def test_a_topic_used_twice_is_an_error(name: str) -> None:
    sink = SinkConfig(decided=name, review="t.review", dead="t.dead")
    errors = [line[:3] for line in found({name: settings(name)}, sink) if line[0] == "error"]
    assert errors == [("error", f"topic {name}", "is used twice")]


def test_three_routes_need_three_topics() -> None:
    with pytest.raises(ValueError, match="must be three topics"):
        SinkConfig(decided="a", review="b", dead="a")
