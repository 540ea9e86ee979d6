"""What ``hloopt run`` asks of devices: kernels, a plan to replay, how closely accesses are watched."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hloopt.cli.kernel_options import Selecting, choices_of
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Module
from hloopt.types.shape import compatible, without_layout

if TYPE_CHECKING:
    from hloopt.runtime import Program
    from hloopt.runtime.device_compile import DeviceOptions
    from hloopt.runtime.replay import Replay

__all__ = ["OnDevices"]


@dataclass(frozen=True)
class OnDevices:
    """The options of one call that are about devices other than the CPU; ``plan`` is a file to replay."""

    selecting: Selecting
    allow_host: bool = False
    unchecked: bool = False
    plan: str | None = None

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
        if self.plan is not None and self.selecting.asked:
            raise UsageError(
                "--plan says which kernels run: options that choose others do not go with it"
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
        if self.plan is not None and device == "cpu":
            raise UsageError("--plan is for --device native, gpu and emulator, not for cpu")

    def replay(self, module: Module) -> Replay | None:
        """The plan for a module, if one is given.  Raises ``UsageError`` for one that takes or gives others."""
        if self.plan is None:
            return None
        from hloopt.runtime.replay import read_replay

        replay = read_replay(Path(self.plan), module.name)
        if difference := _difference(module.entry, replay.module.entry):
            raise UsageError(
                f"{self.plan}: this is a plan of {replay.module.name}, not of {module.name}: {difference}"
            )
        return replay

    def given(self, device: str, module: Module, threads: int | None = None) -> Program:
        """The module as it is; what the user wants of kernels is about another one."""
        from hloopt.kernels.selection import KernelSelection
        from hloopt.runtime import compile_module

        if device == "native":
            return compile_module(module, device, threads=threads)
        selection = KernelSelection(target=self.selecting.instance.target)
        return compile_module(module, device, options=self._options(selection, None))

    def optimised(
        self, device: str, module: Module, replay: Replay | None, threads: int | None = None
    ) -> Program:
        """The optimised module, or the plan; choices are remembered for a lock file."""
        from hloopt.runtime import compile_module
        from hloopt.runtime.device_compile import CompiledProgram

        if device == "native":
            from hloopt.runtime.native.compile import compile_native

            selection = self.selecting.instance
            native = compile_native(module, threads=threads, selection=selection, replay=replay)
            self.selecting.lock(native.prepared.module, choices_of(native.prepared.report))
            return native
        options = self._options(self.selecting.instance, replay)
        program = compile_module(module, device, options=options)
        assert isinstance(program, CompiledProgram)
        prepared = program.prepared
        self.selecting.lock(prepared.module, choices_of(prepared.report))
        return program

    def _options(self, selection: object, replay: Replay | None) -> DeviceOptions:
        from hloopt.kernels.selection import KernelSelection
        from hloopt.runtime.device_compile import DeviceOptions

        assert isinstance(selection, KernelSelection)
        return DeviceOptions(
            selection=selection,
            allow_host=self.allow_host,
            mode="fast" if self.unchecked else "check",
            replay=replay,
        )


def _difference(here: Computation, there: Computation) -> str:
    """What two entries take or give differently, layouts aside; empty where it is the same."""
    ours, theirs = here.parameter_shapes, there.parameter_shapes
    if len(ours) != len(theirs):
        return f"it takes {_counted(len(theirs))}, not {len(ours)}"
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if not compatible(one, other):
            return f"its parameter {number} is {without_layout(other)}, not {without_layout(one)}"
    one, other = here.root.shape, there.root.shape
    if not compatible(one, other):
        return f"its result is {without_layout(other)}, not {without_layout(one)}"
    return ""


def _counted(parameters: int) -> str:
    return f"{parameters} parameter{'s' if parameters != 1 else ''}"
