"""Run in a process of its own: one engine, the read cases in several situations, the answers as JSON.

    python engine_process.py {auto|two_steps|off} CHECKPOINT OUT SITUATION,... [OVERRIDES as JSON]

The engine runs in this process, step by step, so that batches, aborts and preemptions are in the script's hand.
"""

# ruff: noqa: E402 (the path is set first)
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # Python puts the script's own folder there

from slotstream.operators.engines.capability import model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.environment import installed_vllm, prepare_environment
from slotstream.operators.engines.protocol import ReadRequest
from slotstream.operators.engines.slot_path.gate import choose_path
from slotstream.operators.engines.slot_path.request import check_eligible, slot_arguments, slot_result
from slotstream.operators.engines.slot_read import mark_groups, read_result, sampling_arguments
from slotstream.operators.engines.vllm import engine_arguments
from tests.operators.engines.slot_path.read_cases import (
    CANVAS_LENGTH,
    MAX_MODEL_LEN,
    OtherRequest,
    other_requests,
    reads,
)

__all__: list[str] = []

IN_FLIGHT = 16
ASYNCHRONOUS = "asynchronous"  # an override of ours: schedule as on a GPU, one step ahead of the answers


class Driver:
    """One in-process engine; answers by request name."""

    def __init__(self, checkpoint: str, *, slot_path: Any, overrides: dict[str, Any]) -> None:
        config = EngineConfig(
            model=checkpoint,
            slot_path=slot_path,
            max_num_seqs=IN_FLIGHT,
            max_model_len=MAX_MODEL_LEN,
            canvas_length=CANVAS_LENGTH,
            kv_cache_mib=64,
        )
        facts = model_facts(config)
        version, on_cpu = installed_vllm()
        path = choose_path(config.slot_path, version)
        prepare_environment(on_cpu=on_cpu, offline=True, start_timeout_s=300)
        arguments = engine_arguments(config, facts, on_cpu=on_cpu, path=path)
        if overrides.pop(ASYNCHRONOUS, False):
            _schedule_ahead()
        from vllm import EngineArgs
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.engine.llm_engine import LLMEngine

        self.by_slots = path.kind == "slot"
        self.engine = LLMEngine.from_engine_args(EngineArgs(**{**arguments, **overrides}), enable_multiprocessing=False)
        self.scheduler: Any = self.engine.engine_core.engine_core.scheduler
        assert isinstance(self.scheduler, AsyncScheduler) == self.scheduler.scheduler_config.async_scheduling
        self.facts = {"preempted": 0, "prefix_hits": 0, "split_prompts": 0, "deferred": 0, "fused": 0}
        self._count()
        self._names = 0

    def _count(self) -> None:
        preempt, schedule = self.scheduler._preempt_request, self.scheduler.schedule

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.facts["preempted"] += 1
            return preempt(*args, **kwargs)

        def looked_at(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            drafts = output.scheduled_spec_decode_tokens
            self.facts["fused"] += sum(output.num_scheduled_tokens[name] > len(ids) for name, ids in drafts.items())
            return output

        self.scheduler._preempt_request, self.scheduler.schedule = counted, looked_at

    def add(self, prompt_ids: Iterable[int], params: dict[str, Any]) -> str:
        from vllm import SamplingParams
        from vllm.inputs import tokens_input
        from vllm.sampling_params import RequestOutputKind

        self._names += 1
        name = f"r{self._names}"
        sampling = SamplingParams(
            flat_logprobs=True, output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True, **params
        )
        self.engine.add_request(name, tokens_input(list(prompt_ids)), sampling)
        return name

    def step(self, answers: dict[str, Any]) -> None:
        outputs = self.engine.step()
        running = self.scheduler.running
        self.facts["split_prompts"] += sum(r.is_prefill_chunk and r.num_computed_tokens > 0 for r in running)
        self.facts["deferred"] += sum(r.next_decode_eligible_step == self.scheduler.current_step + 1 for r in running)
        for output in outputs:
            if output.finished:
                self.facts["prefix_hits"] += bool(output.num_cached_tokens)
                answers[output.request_id] = output.outputs[0]

    def submit(self, request: ReadRequest) -> list[str]:
        """Names of the engine requests that answer one read."""
        if not self.by_slots:
            groups = [_without(sampling_arguments(request, marks)) for marks in mark_groups(request)]
            return [self.add(request.prompt_ids, params) for params in groups]
        from vllm import SamplingParams

        check_eligible(SamplingParams(**slot_arguments(request)))
        return [self.add(request.prompt_ids, _without(slot_arguments(request)))]

    def result(self, request: ReadRequest, names: list[str], answers: dict[str, Any]) -> Any:
        found = [answers[name].logprobs for name in names]
        return (slot_result(request, found[0]) if self.by_slots else read_result(request, found)).log_probs

    def run(
        self, requests: list[ReadRequest], others: list[OtherRequest], *, abort_every: int = 0
    ) -> tuple[list[Any], list[Any]]:
        """All at once; vLLM takes as many as fit. An aborted read's answer is None."""
        answers: dict[str, Any] = {}
        beside = [self.add(other.prompt_ids, dict(other.params)) for other in others]
        asked = [self.submit(request) for request in requests]
        aborted = set()
        if abort_every:
            self.step(answers)
            aborted = {name for names in asked[::abort_every] for name in names if name not in answers}
            self.engine.abort_request(list(aborted))
        while self.engine.has_unfinished_requests():
            self.step(answers)
        results = [
            None if aborted.intersection(names) else self.result(request, names, answers)
            for request, names in zip(requests, asked, strict=True)
        ]
        return results, [_other_answer(answers[name], other) for name, other in zip(beside, others, strict=True)]


def _schedule_ahead() -> None:
    """vLLM's CPU platform turns asynchronous scheduling off; nothing in the runner needs that."""
    from vllm.platforms.cpu import CpuPlatform

    settle = CpuPlatform.check_and_update_config.__func__

    def settled(cls: Any, vllm_config: Any) -> None:
        settle(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(settled)


def _without(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name != "flat_logprobs"}


def _other_answer(output: Any, other: OtherRequest) -> Any:
    """Number of tokens, and for a settled answer its log-probabilities by position and token id."""
    positions: list[dict[str, float]] = []
    if other.settled:
        flat = output.logprobs
        positions = [
            {str(token): value for token, value in zip(flat.token_ids[a:b], flat.logprobs[a:b], strict=True)}
            for a, b in zip(flat.start_indices, flat.end_indices, strict=True)
        ]
    return {"tokens": len(output.token_ids), "positions": positions}


def main() -> None:
    setting, checkpoint, out, situations = sys.argv[1:5]
    overrides = json.loads(sys.argv[5]) if len(sys.argv) > 5 else {}
    driver = Driver(checkpoint, slot_path=setting, overrides=overrides)
    found: dict[str, Any] = {}
    for situation in situations.split(","):
        others = other_requests() if situation in ("mixed", "stock") else []
        answers, beside = driver.run(reads(), others, abort_every=3 if situation == "aborted" else 0)
        found[situation] = {"reads": answers, "others": beside}
    Path(out).write_text(json.dumps({"answers": found, "facts": driver.facts}), encoding="utf-8")


if __name__ == "__main__":
    main()
