"""Which path reads, and what is said about it."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from slotstream.operators.engines.lifetime import PARENT_VARIABLE
from slotstream.operators.engines.protocol import ReadResult
from slotstream.operators.engines.slot_path import gate, plugin
from slotstream.operators.engines.slot_path.gate import choose_path
from slotstream.operators.engines.slot_path.self_check import CPU_BOUND, GPU_BOUND, check_gap
from slotstream.schemas.errors import EngineNotCapable


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "entry_points", lambda group: _Entries())
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)


class _Entries:
    names = frozenset({gate.PLUGIN, "slotstream_lifetime"})


@pytest.mark.parametrize("version", ["0.32.0", "0.32.1", "0.32.0+cu130", "0.32.1rc1"])
def test_a_tested_version_is_read_by_slots(version: str) -> None:
    path = choose_path("auto", version)
    assert (path.kind, path.doubtful) == ("slot", False)
    assert str(path).startswith("slot path, one step a read (tested with vllm 0.32.0")


@pytest.mark.parametrize(
    ("setting", "attention", "fused"),
    [
        ("auto", None, True),
        ("auto", "TRITON_ATTN", True),
        ("auto", "FLASH_ATTN", False),
        ("two_steps", None, False),
    ],
)
def test_prompt_and_canvas_share_a_step_where_attention_can_tell_them_apart(
    setting: Any, attention: str | None, fused: bool
) -> None:
    path = choose_path(setting, "0.32.0", attention)
    assert (path.kind, path.fused, path.doubtful) == ("slot", fused, False)
    assert ("two steps a read" in str(path)) is not fused


@pytest.mark.parametrize("version", ["0.31.9", "0.33.0", "0.33.0rc1", "1.0.0", "nightly", ""])
def test_another_version_is_read_by_vllms_own_code_with_a_warning(version: str) -> None:
    path = choose_path("auto", version)
    assert (path.kind, path.doubtful) == ("stock", True)
    assert version in path.reason


def test_the_setting_turns_it_off_without_a_warning() -> None:
    assert str(choose_path("off", "0.32.0")) == "stock path (engine.slot_path is off)"
    assert not choose_path("off", "0.32.0").doubtful


@pytest.mark.parametrize(("allowed", "kind"), [("", "stock"), ("other", "stock"), (f"other,{gate.PLUGIN}", "slot")])
def test_a_plugin_that_vllm_may_not_load_is_not_counted_on(
    monkeypatch: pytest.MonkeyPatch, allowed: str, kind: str
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", allowed)
    assert choose_path("auto", "0.32.0").kind == kind


def test_an_installation_from_before_the_plugin_reads_by_vllms_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Entries, "names", frozenset({"slotstream_lifetime"}))
    assert "install slotstream again" in choose_path("auto", "0.32.0").reason


@pytest.mark.parametrize("parent", [None, "1", "not a number"])
def test_in_a_process_that_is_not_slotstreams_the_plugin_does_nothing(
    monkeypatch: pytest.MonkeyPatch, parent: str | None
) -> None:
    monkeypatch.delenv(PARENT_VARIABLE, raising=False)
    if parent is not None:
        monkeypatch.setenv(PARENT_VARIABLE, parent)
    monkeypatch.setitem(sys.modules, "vllm.model_executor.models", None)  # an import of it would raise
    plugin.register()


def test_in_slotstreams_own_process_it_goes_to_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARENT_VARIABLE, str(os.getpid()))
    monkeypatch.setitem(sys.modules, "vllm.model_executor.models", None)
    with pytest.raises(ImportError):
        plugin.register()


def test_a_plugin_is_found_under_the_name_in_setup() -> None:
    root = Path(__file__).resolve().parents[4]
    assert (
        f'"{gate.PLUGIN} = slotstream.operators.engines.slot_path.plugin:register"' in (root / "setup.py").read_text()
    )


@pytest.mark.parametrize(("gap", "exact"), [(CPU_BOUND / 2, True), (GPU_BOUND / 2, False), (0.0, True)])
def test_the_self_check_passes_within_its_bound(gap: float, exact: bool) -> None:
    assert check_gap(_result(-1.0 - gap), _result(-1.0), exact=exact) == pytest.approx(gap)


@pytest.mark.parametrize(("gap", "exact"), [(2 * CPU_BOUND, True), (2 * GPU_BOUND, False), (float("nan"), False)])
def test_the_self_check_refuses_what_rounding_does_not_explain(gap: float, exact: bool) -> None:
    with pytest.raises(EngineNotCapable, match=r"engine\.slot_path: off"):
        check_gap(_result(-1.0 - gap), _result(-1.0), exact=exact)


def _result(value: float) -> ReadResult:
    return ReadResult(((-3.0, value), (-2.0,)))
