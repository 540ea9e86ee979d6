"""What ``hloopt run`` asks of devices: kernels, and how closely accesses are watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloopt.cli.kernel_options import Selecting, choices_of
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Module

if TYPE_CHECKING:
    from hloopt.runtime import Program
    from hloopt.runtime.device_compile import DeviceOptions

__all__ = ["OnDevices"]


@dataclass(frozen=True)
class OnDevices:
    """The options of one call that are about devices other than the CPU."""

    selecting: Selecting
    allow_host: bool = False
    unchecked: bool = False

    def check(self, device: str) -> None:
        """Raise ``UsageError`` for options that the device does not take, or not together."""
        if device in ("cpu", "native"):
            self._check_host(device)
        if device in ("gpu", "emulator") and self.selecting.is_native:
            raise UsageError(f"--target host is for --device native, not for {device}")
        if device == "cpu" and self.selecting.options.keys() - {"target"}:
            raise UsageError(
                "options that choose kernels are for --device native, gpu and emulator, not for cpu"
            )

    def _check_host(self, device: str) -> None:
        given = {
            "--kernel-file": self.selecting.has_files,
            "--allow-host": self.allow_host,
            "--unchecked": self.unchecked,
        }
        asked = [option for option, is_given in given.items() if is_given]
        if asked:
            raise UsageError(f"{asked[0]} is for --device gpu and emulator, not for {device}")

    def given(self, device: str, module: Module, threads: int | None = None) -> Program:
        """The module as it is; what the user wants of kernels is about another one."""
        from hloopt.kernels.selection import KernelSelection
        from hloopt.runtime import compile_module

        if device == "native":
            return compile_module(module, device, threads=threads)
        selection = KernelSelection(target=self.selecting.instance.target)
        return compile_module(module, device, options=self._options(selection))

    def optimised(self, device: str, module: Module, threads: int | None = None) -> Program:
        """The optimised module; choices are remembered for a lock file."""
        from hloopt.runtime import compile_module
        from hloopt.runtime.device_compile import CompiledProgram

        if device == "native":
            from hloopt.runtime.native.compile import compile_native

            selection = self.selecting.instance
            native = compile_native(module, threads=threads, selection=selection)
            self.selecting.lock(native.prepared.module, choices_of(native.prepared.report))
            return native
        options = self._options(self.selecting.instance)
        program = compile_module(module, device, options=options)
        assert isinstance(program, CompiledProgram)
        prepared = program.prepared
        self.selecting.lock(prepared.module, choices_of(prepared.report))
        return program

    def _options(self, selection: object) -> DeviceOptions:
        from hloopt.kernels.selection import KernelSelection
        from hloopt.runtime.device_compile import DeviceOptions

        assert isinstance(selection, KernelSelection)
        return DeviceOptions(
            selection=selection,
            allow_host=self.allow_host,
            mode="fast" if self.unchecked else "check",
        )
