"""vLLM's engine process under Ctrl-C, its death, the death of its parent. Each test has an engine of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.slow]

START_S = 300.0

SCRIPT = """
import multiprocessing, sys
from slotstream.operators.engines.config import EngineConfig
from slotstream.operators.engines.host import discard, engine_for
from slotstream.operators.engines.probe import default_probe
from slotstream.schemas.errors import EngineError

def main():
    config = EngineConfig(model=sys.argv[1], max_model_len=128, kv_cache_mib=32)
    engine = engine_for(config)
    asked = default_probe(engine.info)
    print("ready", multiprocessing.active_children()[0].pid, flush=True)
    for line in sys.stdin:
        if line == "read\\n":
            print("read", len(engine.submit([asked])[0].result(60).log_probs), flush=True)
        elif line == "flood\\n":
            futures = engine.submit([asked] * 64)
            futures[0].result(60)
            print("flooded", flush=True)
            errors = [future.exception(60) for future in futures]
            print("failed", *{type(e).__name__ for e in errors if e}, futures[-1].done(), flush=True)
            try:
                engine.submit([asked])
            except EngineError as error:
                print("refused", error, flush=True)
            discard(config)
            engine = engine_for(config)
            print("rebuilt", len(engine.submit([asked])[0].result(60).log_probs), flush=True)
    print("leaving", file=sys.stderr, flush=True)

if __name__ == "__main__":
    main()
"""


@contextmanager
def engine_script(folder: Path, checkpoint: Path) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process with a warm engine that takes orders on stdin, and the process id of the engine's process."""
    script = folder / "with_engine.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(script), str(checkpoint)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        words = _line(process).split()
        assert words[0] == "ready", process.stderr and process.stderr.read()
        yield process, int(words[1])
    finally:
        process.kill()
        process.wait()


def _line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def _order(process: "subprocess.Popen[str]", order: str) -> str:
    assert process.stdin is not None
    process.stdin.write(order + "\n")
    process.stdin.flush()
    return _line(process)


def _ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_an_interrupt_does_not_reach_it_its_death_is_an_engine_error_and_it_can_be_rebuilt(
    tmp_path: Path, tiny_checkpoint: Path
) -> None:
    with engine_script(tmp_path, tiny_checkpoint) as (process, engine):
        os.kill(engine, signal.SIGINT)
        assert _order(process, "read") == "read 2\n"
        assert _order(process, "flood") == "flooded\n"
        os.kill(engine, signal.SIGKILL)
        assert _line(process) == "failed EngineError True\n"
        assert _line(process).startswith("refused the engine takes no reads: it died")
        assert _line(process) == "rebuilt 2\n"
        _, stderr = process.communicate(timeout=60)
        assert process.returncode == 0
        at_exit = stderr.rpartition("leaving\n")[2]
        assert "Error" not in at_exit  # of vLLM's __del__ without a module, or of its output handler without an engine


def test_it_ends_when_its_parent_is_killed(tmp_path: Path, tiny_checkpoint: Path) -> None:
    with engine_script(tmp_path, tiny_checkpoint) as (process, engine):
        process.kill()
        process.wait()
        deadline = time.monotonic() + START_S
        while not _ended(engine) and time.monotonic() < deadline:
            os.sched_yield()
        assert _ended(engine)
