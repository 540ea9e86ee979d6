"""Executors behind one small interface, inputs, comparison, timing."""

from __future__ import annotations

from difflib import get_close_matches

from hloopt.errors import DeviceError, UsageError
from hloopt.ir import Module
from hloopt.runtime.program import Program

__all__ = ["DEVICES", "Program", "check_device", "compile_module"]

DEVICES = ("cpu", "gpu", "emulator")


def compile_module(
    module: Module,
    device: str = "cpu",
    *,
    excess_precision: bool = False,
    replicas: int = 1,
    partitions: int = 1,
) -> Program:
    """Make a module executable on ``device``, by one participant or ``replicas * partitions`` of them.

    Raises ``UnsupportedError`` for the first instruction that cannot be run, before anything runs;
    ``DeviceError`` for a device this version has no executor for; ``UsageError`` for an unknown name.
    """
    check_device(device)
    from hloopt.runtime.numpy.program import NumpyProgram

    return NumpyProgram(
        module, excess_precision=excess_precision, replicas=replicas, partitions=partitions
    )


def check_device(device: str) -> None:
    """Raise ``UsageError`` for a name that is no device, ``DeviceError`` for one without an executor."""
    if device not in DEVICES:
        close = get_close_matches(device, DEVICES, 1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"unknown device '{device}' (known: {', '.join(DEVICES)}){hint}")
    if device != "cpu":
        raise DeviceError(f"device '{device}': this version of hloopt executes on 'cpu' only")
