"""The graph: read, decode, decide, encode, write, in one fused stage; and the local runner's way to run it.

A shuffle between read and write would break the guarantee: offsets were committed before the records were written.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.worker.statesampler import StateSampler
from apache_beam.transforms.environments import EmbeddedPythonEnvironment

from slotstream.operators.decide import DecideFn
from slotstream.operators.decode import DecodeFn
from slotstream.operators.encode import EncodeFn
from slotstream.operators.kafka.headers import Stamp
from slotstream.operators.kafka.read import ReadTopic
from slotstream.operators.kafka.write import WriteTopic
from slotstream.pipelines.config import PipelineConfig
from slotstream.schemas.decision import DecisionSchema

__all__ = ["bounded_epochs", "build"]

SAMPLING_MS = 5


def build(root: beam.Pipeline, config: PipelineConfig, schema: DecisionSchema, *, max_records: int) -> None:
    """Add one epoch of the pipeline to `root`: at most `max_records` records that the session has ready."""
    source = config.codec_source(schema)
    stamp = Stamp(
        schema_hash=schema.hash,
        group=config.input.group,
        version=version("slotstream"),
        prefix=config.kafka.header_prefix,
        style=config.output.dead_header_style,
    )
    (
        root
        | "Read" >> ReadTopic(config.kafka, config.input, max_records=max_records, max_ms=config.run.epoch_max_ms)
        | "Decode" >> beam.ParDo(DecodeFn(source, tombstones=config.input.tombstones))
        | "Decide" >> beam.ParDo(DecideFn(schema, config.engine))
        | "Encode" >> beam.ParDo(EncodeFn(source, stamp, limit=config.limits.dead_letters))
        | "Write" >> WriteTopic(config.kafka, config.input, config.output, stamp)
    )


def bounded_epochs(config: PipelineConfig, schema: DecisionSchema) -> Callable[[int], Mapping[str, int]]:
    """A function that runs one epoch in this process, of at most so many records, and returns the steps' counters.

    The runner is Beam's FnApiRunner, called directly: bare DirectRunner would download another one first. What an epoch
    costs beside its records was measured: 80 ms to build and translate the pipeline, so that is done once a size; 100
    ms on average until the thread that samples Beam's states wakes up and ends, so it wakes up more often; 30 ms to
    make the steps, which stay.
    """
    StateSampler.__init__.__defaults__ = (SAMPLING_MS,)  # FnApiRunner has no option for it
    options = PipelineOptions([])
    runner = FnApiRunner()
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)  # it logs what it raises, and we log that, too

    @cache
    def translated(max_records: int) -> object:
        pipeline = beam.Pipeline(runner=runner, options=options)
        build(pipeline, config, schema, max_records=max_records)
        return pipeline.to_runner_api(default_environment=EmbeddedPythonEnvironment.default())

    def run_epoch(max_records: int) -> Mapping[str, int]:
        result = runner.run_via_runner_api(translated(max_records), options)
        counted: Counter[str] = Counter()
        for counter in result.metrics().query()["counters"]:
            counted[counter.key.metric.name] += counter.committed
        return counted

    return run_epoch
