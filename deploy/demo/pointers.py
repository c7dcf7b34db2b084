"""What the demo says about where its results are, and what to try next. Pure texts."""

import sys
from pathlib import Path

from deploy.demo.place import CONFIG, ROUTES, Place

__all__ = ["LOOK_AT_TOPICS", "after_stop", "while_up"]

HERE = Path(__file__).parent

LOOK_AT_TOPICS = (
    "from kafka import KafkaConsumer; "
    "[print(m.topic, m.partition, m.offset, m.key, m.value and len(m.value), 'bytes') for m in "
    "KafkaConsumer('decided', 'review', 'dead', bootstrap_servers='{bootstrap}', "
    "auto_offset_reset='earliest', consumer_timeout_ms=3000)]"
)
"""A program for `python -c`: every record of the output topics, one a line; safe within double quotes."""


def after_stop(out: Path) -> str:
    """What is left when Kafka is stopped, and what to try."""
    python, slotstream, schema = _program("python"), _program("slotstream"), _near(HERE / "tickets.yaml")
    files = [str(_near(out / f"{route}.jsonl")) for route in ROUTES]
    return f"""\
Where it is
  The topics were on a Kafka of the demo's own, which is stopped now. What stood on them:
  {", ".join(files)}
    head -1 {files[1]} | {python} -m json.tool

What to try
  Leave Kafka and the registry up and look at the topics:
    make demo KEEP=1
  Raise or lower a threshold in {schema} and see review grow or shrink:
    make demo
  Ask without Kafka, JSON lines in and out:
    echo '{{"text": "The machine swallowed my card"}}' | {slotstream} decide {schema}"""


def while_up(place: Place) -> str:
    """How to look at the topics and use the pipeline while everything is up."""
    python, slotstream, config = _program("python"), _program("slotstream"), _near(place.folder / CONFIG.name)
    read_back, produce = _near(HERE / "read_back.py"), _near(HERE / "produce.py")
    lines = [
        "Everything stays up until Ctrl-C. In another terminal, in this folder:",
        "",
        f"  Kafka     {place.bootstrap}",
        f"  Registry  {place.registry or 'none: it comes through Maven'}",
        "",
        "  The records, decoded, as JSON lines:",
        f"    {python} {read_back} --config {config} review | head -1 | {python} -m json.tool",
        "  The records, as any Kafka client sees them:",
        f'    {python} -c "{LOOK_AT_TOPICS.format(bootstrap=place.bootstrap)}"',
    ]
    if place.registry is not None:
        lines += [
            "  The schema that was derived for the output:",
            f"    curl -s {place.registry}/subjects/decided-value/versions/latest",
        ]
    lines += [
        "  Let the pipeline run on, and send it a ticket of your own from a third terminal:",
        f"    {slotstream} run --config {config}",
        f"    {python} {produce} --config {config} 'The machine swallowed my card'",
    ]
    return "\n".join(lines)


def _program(name: str) -> Path:
    return _near(Path(sys.executable).with_name(name))


def _near(path: Path) -> Path:
    """Relative to the current folder where it is inside: short, and right to paste."""
    here, whole = Path.cwd(), path.absolute()
    return whole.relative_to(here) if whole.is_relative_to(here) else whole
