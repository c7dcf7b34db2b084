"""`slotstream run`: the configured pipeline on the local runner, from start-up to the last commit."""

import logging
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from slotstream.operators.checkpoint import check_checkpoint
from slotstream.operators.dead_letter_limit import limit_for
from slotstream.operators.engines.host import close_all, discard, engine_stats
from slotstream.operators.kafka.producers import close_producers
from slotstream.operators.kafka.reach import told_once
from slotstream.operators.kafka.read import stopping
from slotstream.operators.kafka.session import close_sessions, session_for
from slotstream.operators.kafka.topics import check_topics
from slotstream.operators.warm import warm
from slotstream.pipelines.config import PipelineConfig, load_config
from slotstream.pipelines.epochs import EpochLoop
from slotstream.pipelines.graph import bounded_epochs
from slotstream.pipelines.progress import Progress
from slotstream.pipelines.shutdown import Shutdown
from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.errors import ConfigError

__all__ = ["run"]

_log = logging.getLogger(__name__)


def run(path: str | Path, shutdown: Shutdown, *, until_caught_up: bool = False) -> None:
    """Run until a signal comes, or until the topic's end as seen at start.

    Raises:
        SlotstreamError: its class says what stopped the pipeline; `exit_code` is what the process ends with.
    """
    config = load_config(path)
    schema = config.load_schema()
    check_checkpoint(config.engine)
    _tell(config, schema)
    try:
        _run(config, schema, shutdown, until_caught_up=until_caught_up)
    finally:
        close_sessions()
        close_producers()
        close_all()


def _run(config: PipelineConfig, schema: DecisionSchema, shutdown: Shutdown, *, until_caught_up: bool) -> None:
    config.codec_source(schema).codec()  # what does not fit together is told before anything is started
    _check_topics(config)
    ready = warm(schema, config.engine)
    _log.info("engine ready: %s %s, %s", ready.engine.info.name, ready.engine.info.version, ready.engine.info.path)

    session = session_for(config.kafka, config.input)
    limit = limit_for(config.limits.dead_letters)
    progress = Progress(config.run.progress_s, engine=lambda: engine_stats(config.engine))

    def each_turn(counted: Mapping[str, int]) -> None:
        progress.add(counted, loop.lag)
        limit.check()

    loop = EpochLoop(
        config.run,
        session,
        run_epoch=bounded_epochs(config, schema),
        start_engine=lambda: warm(schema, config.engine),
        each_turn=each_turn,
        in_flight=config.engine.max_in_flight,
        stop=stopping,
    )
    shutdown.started(stopping, timeout_s=config.run.shutdown_timeout_s, abort=lambda: discard(config.engine))
    try:
        loop.run(until_caught_up=until_caught_up)
    finally:
        _log.info("%s", progress.summary())


def _check_topics(config: PipelineConfig) -> None:
    with told_once():
        findings = check_topics(config.kafka, config.input, config.output)
    if wrong := [str(finding) for finding in findings if finding.level == "error"]:
        raise ConfigError("the topics are not ready:\n  " + "\n  ".join(wrong))
    for finding in findings:
        if finding.level == "warning":
            _log.warning("%s", finding)


def _tell(config: PipelineConfig, schema: DecisionSchema) -> None:
    read, output = config.input, config.output
    questions = ", ".join(f"{question.id} ({question.type})" for question in schema.questions)
    name = f"{schema.name} version {schema.version} ({schema.hash})"
    _log.info("slotstream %s, decision schema %s: %s", version("slotstream"), name, questions)
    _log.info("from %s (%s) as group %s, on %s", read.topic, read.format, read.group, config.kafka.bootstrap_servers)
    _log.info("to %s, %s and %s", output.decided, output.review, output.dead)
    _log.info("starting the engine: %s with %s", config.engine.kind, config.engine.model_folder)
