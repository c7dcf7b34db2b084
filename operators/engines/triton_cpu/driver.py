"""The driver half of the stub: present, never active, so that no other driver is displaced."""

from typing import NoReturn

from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

__all__ = ["InterpreterDriver"]


class InterpreterDriver(DriverBase):  # type: ignore[misc]
    """Answers what Triton asks of a driver without a device; there is nothing to launch."""

    @classmethod
    def is_active(cls) -> bool:
        return False

    def map_python_to_cpp_type(self, ty: str) -> NoReturn:
        raise RuntimeError(f"slotstream's Triton backend 'cpu' compiles nothing, so it has no C++ type for {ty!r}.")

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu", 0, 0)

    def get_active_torch_device(self) -> object:
        import torch  # noqa: PLC0415 (this module is imported by every process that imports triton)

        return torch.device("cpu")

    def get_benchmarker(self) -> NoReturn:
        raise RuntimeError("slotstream's Triton backend 'cpu' runs in the interpreter; there is nothing to benchmark.")
