"""Share of a read's time that vLLM's own diffusion sampler takes on this machine: prints one JSON object.

The same engine arguments as slotstream's, but with vLLM's scheduler and worker in this process, so that the sampler's
calls can be timed. `python tests/bench/sampler_share.py [CHECKPOINT]`
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from slotstream.operators.card import style_for
from slotstream.operators.engines.capability import model_facts
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.environment import installed_vllm, prepare_environment
from slotstream.operators.engines.slot_read import mark_groups, sampling_arguments
from slotstream.operators.engines.vllm import engine_arguments
from slotstream.operators.plan import compile_plan
from slotstream.operators.tokens import PlanTokenizer
from slotstream.schemas.decision import load_decision_schema

__all__ = ["measure"]

DEMO = Path(__file__).resolve().parents[2] / "deploy" / "demo"
READS = 64


def measure(model: str | None) -> dict[str, Any]:
    """Time reads of the demo's first messages, all in flight at once, after the same reads as a warm-up."""
    config = EngineConfig(model=model)
    facts = model_facts(config)
    _, on_cpu = installed_vllm()
    prepare_environment(on_cpu=on_cpu, offline=facts.local, start_timeout_s=config.start_timeout_s)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM, SamplingParams, TokensPrompt
    from vllm.model_executor.models.diffusion_gemma import DiffusionSampler

    spent = 0.0
    plain = DiffusionSampler.__call__

    def timed(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal spent
        started = time.perf_counter()
        try:
            return plain(self, *args, **kwargs)
        finally:
            spent += time.perf_counter() - started

    DiffusionSampler.__call__ = timed
    llm = LLM(**engine_arguments(config, facts, on_cpu=on_cpu))
    schema = load_decision_schema(DEMO / "tickets.yaml")
    plan = compile_plan(
        schema,
        PlanTokenizer.from_model(config.model_folder),
        style=style_for(schema, config.model_folder),
        max_model_len=facts.max_model_len,
        canvas_length=facts.canvas_length,
        vocab_size=facts.vocab_size,
    )
    lines = (DEMO / "messages.jsonl").read_text(encoding="utf-8").splitlines()[:READS]
    reads = [request for line in lines for request in plan.reads(json.loads(line)["record"]["text"]).requests]
    prompts = [TokensPrompt(prompt_token_ids=list(read.prompt_ids)) for read in reads]
    params = [SamplingParams(**sampling_arguments(read, mark_groups(read)[0])) for read in reads]
    llm.generate(prompts, params, use_tqdm=False)
    spent, started = 0.0, time.perf_counter()
    llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - started
    return {
        "reads": len(reads),
        "reads_per_s": round(len(reads) / seconds, 2),
        "share_in_sampler": round(spent / seconds, 3),
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1] if len(sys.argv) > 1 else None)))
