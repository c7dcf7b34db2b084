"""Which code reads: the slot path where it was tested, else vLLM's own."""

import os
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Literal

__all__ = ["FUSED_ATTENTION", "PLUGIN", "TESTED", "ReadPath", "choose_path"]

FUSED_ATTENTION = "TRITON_ATTN"
"""The attention backend of the slot path on a GPU, unless another is asked for."""

PLUGIN = "slotstream_slot_path"
"""Name of the entry point in setup.py."""

TESTED = ("0.32.0", "0.33.0")
"""vLLM versions that the slot path was tested with: from the first, below the second. It overrides methods that are no
public interface of vLLM, so any other version reads by vLLM's own code."""


@dataclass(frozen=True, slots=True)
class ReadPath:
    """kind: slot (slotstream's) or stock (vLLM's own).  reason: why.  doubtful: somebody should know of it.

    fused: the end of a prompt and its canvas run in one step of the engine.
    """

    kind: Literal["slot", "stock"]
    reason: str
    doubtful: bool = False
    fused: bool = False

    def __str__(self) -> str:
        steps = "" if self.kind == "stock" else ", one step a read" if self.fused else ", two steps a read"
        return f"{self.kind} path{steps} ({self.reason})"


def choose_path(
    setting: Literal["auto", "two_steps", "off"], vllm_version: str, attention_backend: str | None = None
) -> ReadPath:
    """What `engine.slot_path`, the installed vLLM and `engine.attention_backend` come to.

    The fused step hands attention more sequences than there are requests. The CPU's and the Triton kernels take any
    number; the others keep buffers for as many as there are requests.
    """
    if setting == "off":
        return ReadPath("stock", "engine.slot_path is off")
    first, below = TESTED
    if not _numbers(first) <= _numbers(vllm_version) < _numbers(below):
        reason = f"the slot path was tested with vllm {first} to below {below}, and {vllm_version} is installed"
        return ReadPath("stock", reason, doubtful=True)
    if not _installed():
        reason = f"vLLM finds no plugin {PLUGIN}: install slotstream again, or add it to VLLM_PLUGINS"
        return ReadPath("stock", reason, doubtful=True)
    reason = f"tested with vllm {first} to below {below}"
    if setting == "two_steps":
        return ReadPath("slot", f"{reason}; engine.slot_path is two_steps")
    if attention_backend not in (None, FUSED_ATTENTION):
        return ReadPath("slot", f"{reason}; {attention_backend} takes no fused step, {FUSED_ATTENTION} does")
    return ReadPath("slot", reason, fused=True)


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
