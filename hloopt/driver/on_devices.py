"""Running on devices whose programs are kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hloopt.backends.device_compile import compile_for_device
from hloopt.backends.native.compile import compile_for_participants
from hloopt.dataclass import dataclass
from hloopt.driver.selecting import Selecting, selecting
from hloopt.errors import UsageError
from hloopt.kernels.selection import KernelSelection
from hloopt.runtime.program import DeviceOptions, EmulatorMode, NativeOptions

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from hloopt.driver.options import RunOptions
    from hloopt.driver.spmd import World
    from hloopt.ir import Module
    from hloopt.runtime.program import Program

__all__ = ["OnDevices"]


@dataclass(frozen=True)
class OnDevices:
    """The options of one run, and its kernel selection."""

    options: RunOptions
    selecting: Selecting

    @classmethod
    def of(
        cls, options: RunOptions, enter: Callable[[AbstractContextManager[None]], object]
    ) -> OnDevices:
        """``enter`` as ``selecting`` takes it.

        Raises ``UsageError`` for options that the device does not take, or not together.
        """
        device = options.device
        native: dict[str, Any] = {"device": "native", "target": "host"}
        fixed = native if device == "native" else {}
        selection = selecting(options.kernels, enter, **fixed)
        options.check_host()
        if device in ("gpu", "emulator") and selection.is_native:
            raise UsageError(f"--target host is for --device native, not for {device}")
        if device == "cpu" and selection.options.keys() - {"target"}:
            raise UsageError(
                "options that choose kernels are for --device native, gpu and emulator, not for cpu"
            )
        if device == "gpu":
            from hloopt.driver.gpu_profile import choose_for_this_gpu

            choose_for_this_gpu(selection)
        return cls(options, selection)

    def given(self, module: Module, counts: tuple[int, int], world: World | None) -> Program:
        """The given module; the user's choices of kernels apply to the optimised one."""
        selection = KernelSelection(target=self.selecting.instance.target)
        return self._compiled(
            module, None if self.selecting.is_native else selection, counts, world
        )

    def optimised(self, module: Module, counts: tuple[int, int], world: World | None) -> Program:
        """The optimised module; choices are remembered for a lock file."""
        program: Any = self._compiled(module, self.selecting.instance, counts, world)
        self.selecting.lock(program.prepared.report)
        found: Program = program
        return found

    def _compiled(
        self,
        module: Module,
        selection: KernelSelection | None,
        counts: tuple[int, int],
        world: World | None,
    ) -> Program:
        device, options = self.options.device, self.options
        if device == "native":
            wanted = NativeOptions(selection, options.threads, *counts)
            program = compile_for_participants(module, wanted)
            return program if world is None else world.share(program, module, wanted)
        mode: EmulatorMode = "fast" if options.unchecked else "check"
        given = DeviceOptions(selection, options.allow_host, mode)
        return compile_for_device(module, device, given)
