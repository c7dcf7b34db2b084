"""What a worker has ready before its first record: one warm engine and the read plan compiled for it."""

import logging
import threading
from dataclasses import dataclass

from slotstream.operators.card import style_for
from slotstream.operators.decider import probe_reads
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.host import engine_for
from slotstream.operators.engines.protocol import Engine
from slotstream.operators.plan import ReadPlan, compile_plan
from slotstream.operators.reading import is_finite
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.errors import EngineNotCapable

__all__ = ["REPEAT_BOUND", "Warm", "prove", "warm"]

_log = logging.getLogger(__name__)

REPEAT_BOUND = 1e-3
"""How far (log-probability) two reads of one canvas may differ at start. On a CPU they are equal to the last bit."""


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
        engine = engine_for(config)
        known = _warm.get(key)
        if known is not None and known.engine is engine:
            return known
        model = config.model_folder
        plan = compile_plan(
            schema,
            PlanTokenizer.from_model(model),
            style=style_for(schema, model),
            max_model_len=engine.info.max_model_len,
            canvas_length=engine.info.canvas_length,
            vocab_size=engine.info.vocab_size,
        )
        prove(plan, engine, timeout_s=config.read_timeout_s)
        _warm[key] = Warm(plan, engine)
        return _warm[key]


def prove(plan: ReadPlan, engine: Engine, *, timeout_s: float) -> float:
    """Read one fixed text twice: the engine can do the plan's reads, gives numbers, and gives them again.

    Returns:
        The largest difference between the two reads, in log-probability.

    Raises:
        EngineNotCapable: it cannot.
    """
    first, second = (
        [future.result(timeout=timeout_s) for future in engine.submit(probe_reads(plan))] for _ in range(2)
    )
    if not is_finite([*first, *second]):
        raise EngineNotCapable(
            f"engine {engine.info.name!r}: the probe read is not finite; the checkpoint's weights or dtype are broken"
        )
    pairs = [
        (a, b)
        for one, two in zip(first, second, strict=True)
        for slots in zip(one.log_probs, two.log_probs, strict=True)
        for a, b in zip(*slots, strict=True)
    ]
    gap = max((abs(a - b) for a, b in pairs if a != b), default=0.0)
    if gap > REPEAT_BOUND:
        raise EngineNotCapable(
            f"engine {engine.info.name!r}: two reads of one canvas differ by {gap:.3g} in log-probability "
            f"(at most {REPEAT_BOUND:g}): a replay would not give the same labels"
        )
    _log.info(
        "plan %s ready: %d question(s), %d canvas(es), room for %d tokens of text; two probe reads differ by %.1e",
        plan.hash, len(plan.schema.questions), len(plan.canvases), plan.state_budget, gap,
    )  # fmt: skip
    return gap
