"""Which code reads: the slot path where it was tested, else vLLM's own."""

import os
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Literal

__all__ = ["PLUGIN", "TESTED", "ReadPath", "choose_path"]

PLUGIN = "slotstream_slot_path"
"""Name of the entry point in setup.py."""

TESTED = ("0.32.0", "0.33.0")
"""vLLM versions that the slot path was tested with: from the first, below the second. It overrides methods that are no
public interface of vLLM, so any other version reads by vLLM's own code."""


@dataclass(frozen=True, slots=True)
class ReadPath:
    """kind: slot (slotstream's) or stock (vLLM's own).  reason: why.  doubtful: somebody should know of it."""

    kind: Literal["slot", "stock"]
    reason: str
    doubtful: bool = False

    def __str__(self) -> str:
        return f"{self.kind} path ({self.reason})"


def choose_path(setting: Literal["auto", "off"], vllm_version: str) -> ReadPath:
    """What `engine.slot_path` and the installed vLLM come to."""
    if setting == "off":
        return ReadPath("stock", "engine.slot_path is off")
    first, below = TESTED
    if not _numbers(first) <= _numbers(vllm_version) < _numbers(below):
        reason = f"the slot path was tested with vllm {first} to below {below}, and {vllm_version} is installed"
        return ReadPath("stock", reason, doubtful=True)
    if not _installed():
        reason = f"vLLM finds no plugin {PLUGIN}: install slotstream again, or add it to VLLM_PLUGINS"
        return ReadPath("stock", reason, doubtful=True)
    return ReadPath("slot", f"tested with vllm {first} to below {below}")


def _installed() -> bool:
    """Whether vLLM will load the plugin: a checkout that was installed before there was one has no entry."""
    allowed = os.environ.get("VLLM_PLUGINS")
    if allowed is not None and PLUGIN not in allowed.split(","):
        return False
    return PLUGIN in entry_points(group="vllm.general_plugins").names


def _numbers(version: str) -> tuple[int, ...]:
    """0.32.1rc1+cu130 -> (0, 32, 1)."""
    found = []
    for part in version.split("+", maxsplit=1)[0].split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        found.append(int(digits))
    return tuple(found)
