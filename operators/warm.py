"""What a worker has ready before its first record: one warm engine and the read plan compiled for it."""

import logging
import math
import threading
from concurrent.futures import wait
from dataclasses import dataclass

from slotstream.operators.card import style_for
from slotstream.operators.decider import probe_reads
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.host import engine_for
from slotstream.operators.engines.protocol import Engine, ReadResult
from slotstream.operators.plan import ReadPlan, compile_plan
from slotstream.operators.reading import is_finite
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.errors import EngineError, EngineNotCapable

__all__ = ["REPEAT_BOUND", "Warm", "prove", "warm"]

_log = logging.getLogger(__name__)

REPEAT_BOUND = 1e-3
"""How far a probability may differ between two reads of one canvas at start. On a CPU it is equal to the last bit."""


@dataclass(frozen=True, slots=True)
class Warm:
    """A plan and the engine that it was compiled for."""

    plan: ReadPlan
    engine: Engine


_lock = threading.Lock()
_warm: dict[tuple[str, str], Warm] = {}


def warm(schema: DecisionSchema, config: EngineConfig) -> Warm:
    """The process's engine and plan for `schema`; the first call loads, compiles and proves them, later ones are free.

    Raises:
        EngineNotCapable, MarkError: the model cannot answer this schema; the message says what to do.
        EngineError: the engine did not start.
    """
    key = (schema.hash, config.config_hash)
    with _lock:
        known = _warm.get(key)
        if known is not None and known.engine is engine_for(config):
            return known
        model = config.model_folder
        # First: a checkpoint of other questions is refused before a minute of loading.
        style = style_for(schema, model, fake=config.kind == "instant")
        engine = engine_for(config)
        plan = compile_plan(
            schema,
            PlanTokenizer.from_model(model),
            style=style,
            max_model_len=engine.info.max_model_len,
            canvas_length=engine.info.canvas_length,
            vocab_size=engine.info.vocab_size,
        )
        prove(plan, engine, timeout_s=config.read_timeout_s)
        _warm[key] = Warm(plan, engine)
        return _warm[key]


def prove(plan: ReadPlan, engine: Engine, *, timeout_s: float) -> float:
    """Read one fixed text three times: the engine can do the plan's reads, gives numbers, and gives them again.

    The first read fills the prefix cache, so that a GPU computes it otherwise than all that follow: the other two are
    compared.

    Returns:
        The largest difference between them, in probability.

    Raises:
        EngineNotCapable: it cannot.
        EngineError: a read failed or took longer than `timeout_s`.
    """
    reads = [_read(plan, engine, timeout_s) for _ in range(3)]
    if not all(map(is_finite, reads)):
        raise EngineNotCapable(
            f"engine {engine.info.name!r}: the probe read is not finite; the checkpoint's weights or dtype are broken"
        )
    _, first, second = (
        [math.exp(p) for result in results for slot in result.log_probs for p in slot] for results in reads
    )
    gap = max(abs(a - b) for a, b in zip(first, second, strict=True))
    if gap > REPEAT_BOUND:
        raise EngineNotCapable(
            f"engine {engine.info.name!r}: two reads of one canvas differ by {gap:.3g} in a probability "
            f"(at most {REPEAT_BOUND:g}): a replay would not give the same labels"
        )
    _log.info(
        "plan %s ready: %d question(s), %d canvas(es), room for %d tokens of text; two probe reads differ by %.1e",
        plan.hash, len(plan.schema.questions), len(plan.canvases), plan.state_budget, gap,
    )  # fmt: skip
    return gap


def _read(plan: ReadPlan, engine: Engine, timeout_s: float) -> list[ReadResult]:
    requests = probe_reads(plan)
    futures = engine.submit(requests)
    _, late = wait(futures, timeout_s)
    if late:
        for future in late:
            future.cancel()
        raise EngineError(
            f"engine {engine.info.name!r}: the probe read did not finish within {timeout_s:g} s (engine.read_timeout_s)"
        )
    results = [future.result() for future in futures]
    for request, result in zip(requests, results, strict=True):
        asked, read = [len(marks) for marks in request.mark_ids], [len(slot) for slot in result.log_probs]
        if read != asked:
            raise EngineNotCapable(f"engine {engine.info.name!r}: asked for {asked} marks in the slots, it read {read}")
    return results
