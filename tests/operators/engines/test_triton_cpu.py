"""The Triton stub: found by every process, light, and in nobody's way."""

import subprocess
import sys

import pytest

pytest.importorskip("triton")

FOUND = "import triton.backends as b; print(b.backends['cpu'].driver.__module__, b.backends['cpu'].driver.is_active())"


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()


def test_a_fresh_process_finds_it_and_it_is_never_the_active_driver() -> None:
    assert python(FOUND) == "slotstream.operators.engines.triton_cpu.driver False"


def test_the_backends_of_gpus_stay_registered() -> None:
    assert {"nvidia", "amd", "cpu"} <= set(python("import triton.backends as b; print(*b.backends)").split())


def test_finding_it_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'vllm', 'apache_beam', 'pydantic'}"
    assert python(f"import sys, triton.backends; print({heavy} & set(sys.modules))") == "set()"


def test_a_kernel_runs_in_the_interpreter_of_a_fresh_process() -> None:
    code = """
import torch, triton, triton.language as tl
import linecache, types
source = '''
@triton.jit
def double(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at) * 2)
'''
linecache.cache['kernel.py'] = (len(source), None, source.splitlines(True), 'kernel.py')
names = {'triton': triton, 'tl': tl}
exec(compile(source, 'kernel.py', 'exec'), names)
x = torch.arange(8.0); y = torch.empty(8)
names['double'][(1,)](x, y, BLOCK=8)
print(y.tolist() == (x * 2).tolist())
"""
    assert python(code, TRITON_INTERPRET="1") == "True"


def test_asked_to_compile_it_says_what_to_set() -> None:
    from slotstream.operators.engines.triton_cpu.compiler import InterpreterBackend
    from slotstream.operators.engines.triton_cpu.driver import InterpreterDriver

    target = InterpreterDriver().get_current_target()
    assert InterpreterBackend.supports_target(target)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"):
        InterpreterBackend(target).parse_options({})
