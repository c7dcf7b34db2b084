"""One engine in a process of its own: load it, run the rows, write the file anew after each."""

import argparse
import json
import logging
import os
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slotstream.operators.engines.config import EngineConfig
from tests.bench.reads.engines import open_engine
from tests.bench.reads.rows import ROWS, Bench
from tests.bench.reads.workload import DemoReads, SyntheticReads

__all__ = ["measure_one"]


def measure_one(options: argparse.Namespace) -> int:
    """Measure `options.one` and write what there is into `options.into`. Returns 0 when the engine loaded and closed.

    A row that fails leaves its error, and the next one runs: after a dead engine each says so.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    config = EngineConfig.model_validate_json(options.config[0])
    extra = json.loads(options.extra[0])
    found: dict[str, Any] = {"config": config.model_dump(mode="json", exclude_unset=True), "vllm_arguments": extra}
    found["rows"] = {}
    started = time.monotonic()
    try:
        engine = open_engine(options.one, config, extra)
    except Exception as error:
        _write(options.into, found | {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()})
        return 1
    found |= {"start_s": round(time.monotonic() - started, 1), "engine": asdict(engine.info)}
    _write(options.into, found)  # says that it is loaded
    sys.stdin.readline()  # its turn: other engines may be loading or measured beside it
    demo = options.workload == "demo"
    bench = Bench(
        engine,
        DemoReads(config, engine.info) if demo else SyntheticReads(engine.info.vocab_size),
        seconds=options.seconds,
        rounds=options.rounds,
        mixed=options.mixed,
        alone=options.alone,
        equal=options.equal,
    )
    for name in options.rows:
        run, shape = ROWS[name]
        began = time.monotonic()
        if shape.canvas > engine.info.canvas_length and not demo:
            row: dict[str, Any] = {"not_run": f"the engine serves a canvas of {engine.info.canvas_length}"}
        else:
            try:
                row = run(bench)
            except Exception as error:
                row = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        found["rows"][name] = row | {"took_s": round(time.monotonic() - began, 1)}
        if hasattr(engine, "stats"):
            found["stats"] = _plain(engine.stats())
        logging.info("row %s: %s", name, row)
        _write(options.into, found | {"answers": bench.answers})
    engine.close()
    return 0


def _plain(value: Any) -> Any:
    return json.loads(
        json.dumps(value, default=lambda other: asdict(other) if hasattr(other, "__slots__") else str(other))
    )


def _write(path: Path, found: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found), encoding="utf-8")
    os.replace(part, path)
