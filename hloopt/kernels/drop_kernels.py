"""Taking out kernels that were chosen for another device than the one a module is made ready for."""

from __future__ import annotations

from typing import ClassVar, Final

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import KernelDevice
from hloopt.kernels.registry import kernels
from hloopt.kernels.written import drop_choice, read_choice
from hloopt.rewrite import Pass, PassLog

__all__ = ["DropKernels"]

_DEVICES: Final[tuple[KernelDevice, ...]] = ("gpu", "native")


@dataclass(frozen=True)
class DropKernels(Pass):
    """Take kernels out of backend_config that were chosen for another device.

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
        """Look at each instruction once; a note names the first kernel that goes."""
        written = [
            (one, choice[0]) for one in module.instructions() if (choice := read_choice(one))
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
        dropped = [
            (one, name) for one, name in written if name in others and self._drop(one, name, log)
        ]
        if dropped:
            first, name = dropped[0]
            more = f" (and {len(dropped) - 1} more)" if len(dropped) > 1 else ""
            log.note(
                f"%{first.name}: {name} was chosen for {others[name]}, so {self.device} chooses anew{more}"
            )
        return bool(dropped)

    def _drop(self, instruction: Instruction, kernel: str, log: PassLog) -> bool:
        if not log.allows():
            return False
        log.hit("drop a kernel", instruction, f"{kernel} is not one of {self.device}")
        return drop_choice(instruction)
