"""Removing kernels that were chosen for another device than the one a module is prepared for."""

from __future__ import annotations

from typing import ClassVar, Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.kernels.backend_config import KernelConfig
from hloopt.kernels.kernel import KernelDevice
from hloopt.kernels.registry import kernels
from hloopt.rewrite import Pass, PassLog

__all__ = ["DropKernels"]

_DEVICES: Final[tuple[KernelDevice, ...]] = ("gpu", "native")


@dataclass(frozen=True)
class DropKernels(Pass):
    """Remove kernels from backend_config that were chosen for another device.

    A name that no device has stays: the selection of kernels says so.

    device  gpu or native: whose kernels stay
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = f32[1024] parameter(0)
  ROOT y = f32[1024] negate(x), backend_config={"hloopt":{"kernel":"native-loop"}}
}
"""

    device: KernelDevice = "gpu"

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each instruction once; a note names the first kernel removed."""
        written = [
            (one, config, config.choice[0])
            for one in module.instructions()
            if (config := KernelConfig(one)).choice
        ]
        if not written:
            return False
        own = {kernel.name for kernel in kernels(self.device)}
        others = {
            kernel.name: other
            for other in _DEVICES
            for kernel in kernels(other)
            if kernel.name not in own
        }
        dropped: list[tuple[Instruction, str]] = []
        for instruction, config, name in written:
            if name in others and log.allows():
                log.hit("drop a kernel", instruction, f"{name} is not one of {self.device}")
                dropped.append((instruction, name))
                config.drop()
        if dropped:
            first, name = dropped[0]
            more = f" (and {len(dropped) - 1} more)" if len(dropped) > 1 else ""
            anew = f"was chosen for {others[name]}, so {self.device} chooses anew{more}"
            log.note(f"%{first.name}: {name} {anew}")
        return bool(dropped)
