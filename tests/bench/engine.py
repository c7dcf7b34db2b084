"""How fast slotstream's engine reads, beside stock vLLM on the same machine in the same run. Prints one JSON object.

Each engine is loaded in a process of its own, one after the other:
  default  stock vLLM as it sets itself up for this model: it silently takes 8 requests a step
  stock    stock vLLM as slotstream sets it up: 127 requests a step, no canvas cut, slotstream's own path off
  ours     slotstream's own path

On a CPU, with the checkpoint that ships and the demo's own reads (the default; about 5 minutes):
    python tests/bench/engine.py
On a GPU, with random weights at the size of DiffusionGemma-26B-A4B (about 4 minutes an engine):
    python tests/bench/engine.py --model 26b --out results --config '{"attention_backend": "TRITON_ATTN"}'
The same quantized, slotstream's own path only:
    python tests/bench/engine.py --model 26b --engines ours-fp8 --extra '{"quantization": "fp8_per_channel"}'

Rows (128 record tokens behind a shared prefix of 256, canvas 32, 3 slots of 4 marks, unless the name says otherwise):
  alone          one read at a time: p50, p90, milliseconds
  in_flight_N    reads/s with N reads in the engine at all times
  slots_N        the same at 256 in flight with N slots (24: in a canvas of 64); decisions/s is slots x reads/s
  record_N       the same at 256 in flight with N record tokens
  mixed          reads of all shapes, straight after the start: slowest read, longest time without an answer
  curves         reads/s and p50 over slots, options, prefix, record and reads in flight, one at a time
  answers        the same reads in every engine: largest gap and flipped arg max between them
A row or an engine that fails leaves its error in the JSON and the others run. --out holds what there is so far at any
time. Random weights are scaled as trained ones are (norms one, fan-in); their answers mean nothing, and their flips say
only how numerics move.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    # Python puts this script's own folder first: a module here would then hide an installed package of its name.
    sys.path[0] = str(ROOT)

from slotstream.operators.engines.environment import installed_vllm  # noqa: E402 (after the path is set)
from tests.bench.reads.child import Child  # noqa: E402
from tests.bench.reads.engines import ENGINES, kind  # noqa: E402
from tests.bench.reads.one_engine import measure_one  # noqa: E402
from tests.bench.reads.picture import draw, table  # noqa: E402
from tests.bench.reads.random_weights import MODEL_26B, MODEL_TINY, model_folder, plugin_folder  # noqa: E402
from tests.bench.reads.report import agreement, bars  # noqa: E402
from tests.bench.reads.rows import COMPARED, ROWS  # noqa: E402

__all__ = ["arguments", "measure"]

_MODELS = {"26b": MODEL_26B, "tiny": MODEL_TINY}


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    _, on_cpu = installed_vllm()
    parser.add_argument("--model", help="checkpoint folder, or 26b or tiny: random weights (unset: the one that ships)")
    parser.add_argument(
        "--engines",
        nargs="+",
        type=_engine,
        metavar="NAME",
        help="default, stock, ours; also twice, with a suffix of "
        "its own settings: ours-fp8. Unset: all three; on a CPU stock and ours",
    )
    parser.add_argument(
        "--rows", nargs="+", choices=ROWS, help="unset: all; with the demo's reads those without a shape"
    )
    parser.add_argument("--workload", choices=("demo", "synthetic"), help="unset: demo for the shipped checkpoint")
    parser.add_argument("--config", nargs="+", default=[], metavar="[NAME=]JSON", help="fields of EngineConfig")
    parser.add_argument(
        "--extra",
        nargs="+",
        default=[],
        metavar="[NAME=]JSON",
        help="vLLM arguments that EngineConfig has no field for",
    )
    parser.add_argument("--seconds", type=float, default=20.0 if on_cpu else 5.0, help="aim for each timed phase")
    parser.add_argument("--rounds", type=int, default=2, help="timed phases a row; the best counts")
    parser.add_argument("--mixed", type=int, default=200 if on_cpu else 10_000, help="reads of the mixed row")
    parser.add_argument("--alone", type=int, default=20 if on_cpu else 60, help="reads of the row alone")
    parser.add_argument("--equal", type=int, default=64, help="reads of the row answers")
    parser.add_argument(
        "--together",
        action="store_true",
        help="load all engines at once, measure one after the other (saves minutes where the memory holds all: set "
        "kv_cache_mib)",
    )
    parser.add_argument(
        "--limit-s", type=float, default=1_800.0, help="an engine that takes longer, once it is its turn, is ended"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for result.json, curves.svg and .md, each engine's figures and log"
    )
    parser.add_argument("--against", type=Path, metavar="FILE", help="an engine's file of another run: compare answers")
    parser.add_argument("--add", action="store_true", help="keep and compare the engines that --out holds already")
    parser.add_argument("--one", type=_engine, help=argparse.SUPPRESS)  # a child's: which engine
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # a child's: where to
    return parser


def measure(options: argparse.Namespace, out: Path) -> dict[str, Any]:
    """Run every engine, write result.json after each, return it."""
    _, on_cpu = installed_vllm()
    demo = (options.workload or ("synthetic" if options.model else "demo")) == "demo"
    engines = options.engines or (["stock", "ours"] if on_cpu else list(ENGINES))
    rows = options.rows or [name for name in ROWS if not demo or (name in COMPARED and name != "in_flight_256")]
    before = _before(out) if options.add else {}
    result: dict[str, Any] = {
        "runs": [
            *before.get("runs", []),
            {"date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "command": shlex.join(["python", *sys.argv])},
        ],
        "machine": _machine(),
        "vllm": installed_vllm()[0],
        "weights": "random, scaled" if options.model in _MODELS else "the checkpoint's",
        "engines": {name: found for name, found in before.get("engines", {}).items() if name not in engines},
    }
    answers: dict[str, Any] = {name: found.pop("answers", {}) for name, found in result["engines"].items()}
    # A place that stays: vLLM's compile cache knows a model by its path.
    place = Path(tempfile.gettempdir()) / "slotstream-bench"
    path = [str(plugin_folder(place / "plugin")), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, path))}
    children: dict[str, Child] = {}
    for name in engines:
        command = [
            sys.executable, __file__, "--one", name, "--into", str(out / f"{name}.json"),
            "--config", json.dumps(_model(options.model, place) | _its_own(options.config, name)),
            "--extra", json.dumps(_its_own(options.extra, name)), "--workload", "demo" if demo else "synthetic",
            "--rows", *(row for row in rows if kind(name) == "ours" or row in COMPARED),
            *(f"--{key}={getattr(options, key)}" for key in ("seconds", "rounds", "mixed", "alone", "equal")),
        ]  # fmt: skip
        children[name] = Child(command, environment, out / f"{name}.json")
    if options.together:
        for child in children.values():
            child.start()
        for child in children.values():
            child.loaded(options.limit_s)
    for name, child in children.items():
        print(f"{name}: {ENGINES[kind(name)]}", file=sys.stderr, flush=True)
        found = child.finish(options.limit_s)
        answers[name] = found.pop("answers", {})
        result["engines"][name] = found
        result["agreement"] = _agreements(answers, options.against)
        result["bars"] = bars(result["engines"], on_cpu=on_cpu)
        (out / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    curves = {name: its["rows"]["curves"] for name, its in result["engines"].items() if "curves" in its.get("rows", {})}
    if curves:
        caption = (
            f"reads/s; {result['weights']} weights, {result['machine'].get('gpu', 'CPU')}, {result['runs'][-1]['date']}"
        )
        (out / "curves.svg").write_text(draw(curves, caption), encoding="utf-8")
        (out / "curves.md").write_text(table(curves, caption), encoding="utf-8")
    return result


def _engine(name: str) -> str:
    if kind(name) not in ENGINES:
        raise argparse.ArgumentTypeError(f"engine {name!r} is none of {', '.join(ENGINES)}, with or without -SUFFIX")
    return name


def _before(out: Path) -> dict[str, Any]:
    """What an earlier run left in the folder, each engine with its answers."""
    path = out / "result.json"
    if not path.is_file():
        return {}
    before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for name in before["engines"]:
        its = out / f"{name}.json"
        if its.is_file():
            before["engines"][name]["answers"] = json.loads(its.read_text(encoding="utf-8")).get("answers", {})
    return before


def _model(model: str | None, place: Path) -> dict[str, Any]:
    if model not in _MODELS:
        return {"model": model} if model else {}
    folder = model_folder(place / model, _MODELS[model])
    return {"model": str(folder), "load_format": "dummy", "max_model_len": 2048, "canvas_length": 32}


def _its_own(texts: Sequence[str], name: str) -> dict[str, Any]:
    """What the options [NAME=]JSON say for one engine; a later one replaces an earlier one's fields."""
    found: dict[str, Any] = {}
    for text in texts:
        of, _, fields = text.partition("=")
        if text.startswith("{"):
            found |= json.loads(text)
        elif of == name:
            found |= json.loads(fields)
    return found


def _agreements(answers: dict[str, Any], against: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    others = {name: its for name, its in answers.items() if its.get("together")}
    if against is not None:
        others[f"file {against.name}"] = json.loads(against.read_text(encoding="utf-8"))["answers"]
    names = list(others)
    for i, one in enumerate(names):
        found[f"{one}: alone and together"] = agreement(others[one]["alone"], others[one]["together"])
        for other in names[i + 1 :]:
            for how in ("alone", "together"):
                found[f"{one} and {other}: {how}"] = agreement(others[one][how], others[other][how])
    return found


def _machine() -> dict[str, Any]:
    machine: dict[str, Any] = {"cores": os.cpu_count(), "cpu": platform.machine()}
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        machine["gpu"] = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    return machine


def main() -> int:
    """Print the JSON; exit code 0 when every engine ran."""
    options = arguments().parse_args()
    if options.one:
        return measure_one(options)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        out = options.out or Path(scratch)
        out.mkdir(parents=True, exist_ok=True)
        result = measure(options, out)
    print(json.dumps(result | {"took_s": round(time.monotonic() - started, 1)}, indent=1))
    return 0 if all("error" not in engine for engine in result["engines"].values()) else 1


if __name__ == "__main__":
    sys.exit(main())
