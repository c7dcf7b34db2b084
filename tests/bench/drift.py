"""How far one engine's answers are from another's, on records of yours. Prints one JSON object.

    python tests/bench/drift.py SCHEMA.yaml RECORDS.jsonl --model DIR

decides every record (one JSON object a line, as `slotstream decide` takes them) twice, by engines that are loaded one
after the other, and compares. By default it asks what quantization does: fp8_per_channel against none. Any two engines
can be compared by what they differ in:

    python tests/bench/drift.py SCHEMA.yaml RECORDS.jsonl --engine '{"slot_path": "off"}' --against '{}'

For each question: in how many records the most probable option is the same, and how far probabilities moved, over all
options of all records. Whether that is good enough, only your own labels say.
"""

import argparse
import json
import logging
import math
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    # Python puts this script's own folder first: a module here would then hide an installed package of its name.
    sys.path[0] = str(ROOT)

from slotstream.operators.engines.config import EngineConfig  # noqa: E402 (after the path is set)
from slotstream.pipelines.decide_lines import decide_files  # noqa: E402

__all__ = ["arguments", "compare", "main"]

_SHOWN = 20  # lines whose answer flipped


def compare(answers: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Two engines' answers to the same lines, as `slotstream decide` writes them.

    Raises:
        ValueError: there are not as many of one as of the other.
    """
    pairs = list(zip(answers, others, strict=True))
    both = [(one, other) for one, other in pairs if one["labels"] and other["labels"]]
    questions = both[0][0]["labels"] if both else {}
    return {
        "records": len(pairs),
        "dead_in_one": sum(bool(one["labels"]) != bool(other["labels"]) for one, other in pairs),
        "route_agreement": _share(one["route"] == other["route"] for one, other in pairs),
        "questions": {name: _question(name, pairs) for name in questions},
    }


def _question(name: str, pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> dict[str, Any]:
    moved: list[float] = []
    masses: list[float] = []
    flipped: list[int] = []
    compared = 0
    for line, (one, other) in enumerate(pairs, 1):
        if name not in one["labels"] or name not in other["labels"]:
            continue
        compared += 1
        a, b = one["labels"][name], other["labels"][name]
        p, q = a["probabilities"], b["probabilities"]
        moved += [abs(p[option] - q[option]) for option in p]
        masses.append(abs(a["mass"] - b["mass"]))
        if max(p, key=p.__getitem__) != max(q, key=q.__getitem__):
            flipped.append(line)
    moved.sort()
    return {
        "records": compared,
        "arg_max_agreement": round(1 - len(flipped) / compared, 6),
        "flipped": len(flipped),
        "flipped_lines": flipped[:_SHOWN],
        "probability_moved_mean": round(math.fsum(moved) / len(moved), 6),
        "probability_moved_p99": round(moved[min(len(moved) - 1, int(0.99 * len(moved)))], 6),
        "probability_moved_max": round(moved[-1], 6),
        "mass_moved_max": round(max(masses), 6),
    }


def _share(same: Any) -> float | None:
    found = list(same)
    return round(sum(found) / len(found), 6) if found else None


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schema", type=Path, help="decision schema")
    parser.add_argument("records", type=Path, help="one JSON object a line")
    parser.add_argument("--model", help="checkpoint folder or hub id; unset: the one that ships")
    parser.add_argument("--engine", default='{"quantization": "fp8_per_channel"}', help="fields of EngineConfig, JSON")
    parser.add_argument("--against", default="{}", help="fields of EngineConfig, JSON")
    return parser


def main() -> int:
    options = arguments().parse_args()
    configs = {
        name: EngineConfig.model_validate({"model": options.model} | json.loads(text))
        for name, text in (("engine", options.engine), ("against", options.against))
    }
    tell = partial(logging.basicConfig, level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    answers = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, config in configs.items():
            target = Path(folder) / f"{name}.jsonl"
            # A process each: the first engine's memory is free when the second is loaded.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=tell) as process:
                process.submit(decide_files, options.schema, config, source=options.records, target=target).result()
            answers[name] = [json.loads(line) for line in target.read_text(encoding="utf-8").splitlines()]
    settings = {name: config.model_dump(mode="json", exclude_unset=True) for name, config in configs.items()}
    print(json.dumps(settings | compare(answers["engine"], answers["against"]), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
