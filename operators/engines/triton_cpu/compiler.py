"""The compiler half of the stub: Triton requires one concrete class here, and `TRITON_INTERPRET=1` never calls it."""

from types import ModuleType
from typing import NoReturn

from triton.backends.compiler import BaseBackend, GPUTarget

__all__ = ["InterpreterBackend"]

_REFUSAL = (
    "slotstream's Triton backend 'cpu' does not compile: it only lets Triton's interpreter run. "
    "Set TRITON_INTERPRET=1 before triton is imported (slotstream does so when it starts vLLM on a CPU)."
)


class InterpreterBackend(BaseBackend):  # type: ignore[misc]
    """Supports no compilation target but "cpu", and compiles none."""

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        return "slotstream-interpreter"

    def parse_options(self, options: dict[str, object]) -> NoReturn:  # noqa: ARG002 (Triton's interface)
        raise RuntimeError(_REFUSAL)

    def add_stages(self, stages: dict[str, object], options: object) -> NoReturn:  # noqa: ARG002
        raise RuntimeError(_REFUSAL)

    def load_dialects(self, context: object) -> NoReturn:  # noqa: ARG002
        raise RuntimeError(_REFUSAL)

    def get_module_map(self) -> dict[str, ModuleType]:
        return {}
