"""Executors behind one small interface, inputs, comparison, timing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.runtime.program import Program
from hloopt.spelling import nearest

if TYPE_CHECKING:
    from hloopt.backends.device_compile import DeviceOptions

__all__ = ["DEVICES", "Program", "check_device", "check_device_takes", "compile_module"]

DEVICES = ("cpu", "native", "gpu", "emulator")


def compile_module(
    module: Module,
    device: str = "cpu",
    *,
    excess_precision: bool = False,
    replicas: int = 1,
    partitions: int = 1,
    exact: bool = False,
    threads: int | None = None,
    options: DeviceOptions | None = None,
) -> Program:
    """Make a module executable on ``device``, by one participant or ``replicas * partitions`` of them.

    ``exact`` has ``cpu`` compute functions of f32 as the interpreter does, correctly rounded, where it else
    errs by up to 4 units in the last place; other devices have functions of their own.  ``threads`` of ``cpu``
    and ``native`` share large work: by default ``HLOOPT_THREADS``, or as many as cores.  ``options`` are for
    ``gpu`` and ``emulator``, which run one participant and round strictly.  Raises ``UnsupportedError`` for the
    first instruction that cannot be run, before anything runs; ``DeviceError`` for a device that is not there;
    ``UsageError`` for an unknown name, and for what a device does not do.
    """
    check_device(device)
    if device == "cpu":
        from hloopt.backends.numpy.program import NumpyProgram

        return NumpyProgram(
            module,
            excess_precision=excess_precision,
            replicas=replicas,
            partitions=partitions,
            exact=exact,
            threads=threads,
        )
    check_device_takes(device, replicas * partitions, excess_precision=excess_precision)
    if device == "native":
        from hloopt.backends.native.compile import compile_native

        if options is not None:
            raise UsageError("device 'native' is this processor: it takes no target")
        return compile_native(module, threads=threads)
    from hloopt.backends.device_compile import compile_for_device

    return compile_for_device(module, device, options)


def check_device_takes(device: str, participants: int, *, excess_precision: bool) -> None:
    """Raise ``UsageError`` for several participants and excess precision: only ``cpu`` has these."""
    if participants != 1:
        raise UsageError(
            f"device '{device}' runs one participant, not {participants}; 'cpu' runs them all"
        )
    if excess_precision:
        raise UsageError(
            f"device '{device}' rounds each op to its type; 'cpu' has excess precision"
        )


def check_device(device: str) -> None:
    """Raise ``UsageError`` for a name that is no device, ``DeviceError`` for one that this machine lacks."""
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
    """What a name that is no device may have meant: another device, or a target."""
    from hloopt.targets import names, target

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
