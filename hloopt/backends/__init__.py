"""Executors behind one small interface, inputs, comparison, timing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.runtime.program import DeviceOptions, NativeOptions, NumpyOptions, Options, Program
from hloopt.spelling import nearest

if TYPE_CHECKING:
    from hloopt.kernels.selection import KernelSelection

__all__ = [
    "DEVICES",
    "Program",
    "check_device",
    "check_device_takes",
    "compile_module",
    "options_for",
]

DEVICES = ("cpu", "native", "gpu", "emulator")


def compile_module(module: Module, device: str = "cpu", options: Options | None = None) -> Program:
    """Make a module executable on ``device`` as its options say: ``NumpyOptions`` for ``cpu`` and so on.

    Raises ``UnsupportedError`` for the first instruction that cannot be run, before anything runs;
    ``DeviceError`` for a device that is not there; ``UsageError`` for an unknown name.
    """
    check_device(device)
    if device == "cpu":
        from hloopt.backends.numpy.program import NumpyProgram

        assert options is None or isinstance(options, NumpyOptions)
        return NumpyProgram(module, options)
    if device == "native":
        from hloopt.backends.native.compile import compile_for_participants

        assert options is None or isinstance(options, NativeOptions)
        return compile_for_participants(module, options or NativeOptions())
    from hloopt.backends.device_compile import compile_for_device

    assert options is None or isinstance(options, DeviceOptions)
    return compile_for_device(module, device, options)


def options_for(
    device: str, given: NumpyOptions, selection: KernelSelection | None = None
) -> Options | None:
    """The options of a device by those of ``cpu``, as far as it takes them, and a choice of kernels.

    None for a name that is not a device.  Raises ``UsageError`` for what the device does not support.
    """
    if device == "cpu":
        return given
    if device not in DEVICES:
        return None
    participants = given.replicas * given.partitions
    check_device_takes(device, participants, excess_precision=given.excess_precision)
    if device == "native":
        return NativeOptions(selection, given.threads, given.replicas, given.partitions)
    return DeviceOptions(selection)


def check_device_takes(device: str, participants: int, *, excess_precision: bool) -> None:
    """Raise ``UsageError`` for several participants on a GPU, and for excess precision: only ``cpu`` has it."""
    if participants != 1 and device != "native":
        raise UsageError(
            f"device '{device}' runs one participant, not {participants}; 'cpu' and 'native' run them all"
        )
    if excess_precision:
        raise UsageError(
            f"device '{device}' rounds each op to its type; 'cpu' has excess precision"
        )


def check_device(device: str) -> None:
    """Raise ``UsageError`` for an unknown device, ``DeviceError`` for one that this machine lacks."""
    if device not in DEVICES:
        known = ", ".join(DEVICES)
        raise UsageError(f"unknown device '{device}' (known: {known}){_meant(device)}")
    if device == "gpu":
        from hloopt.backends.cuda import check_gpu

        check_gpu()
    elif device == "native":
        from hloopt.backends.native import check_native

        check_native()
    elif device == "emulator":
        from hloopt.backends.emulator import check_emulator

        check_emulator()


def _meant(name: str) -> str:
    """A hint on what an unknown device may mean: another device, or a target."""
    from hloopt.targets import names, target

    if name.lower() == "xla-cpu":
        return "; hloopt compare, bisect, reduce and study have XLA itself run modules"
    if close := nearest(name.lower(), DEVICES):
        return f"; did you mean '{close[0]}'?"
    if name.lower() not in names():
        return ""
    found = target(name)
    if found.kind == "cuda":
        return (
            f"; {found.name} is a target: the devices 'gpu' and 'emulator' run the kernels chosen for it "
            f"(hloopt run --device emulator --target {found.name})"
        )
    return (
        f"; {found.name} is a target whose times are predicted (hloopt stats --target {found.name})"
    )
