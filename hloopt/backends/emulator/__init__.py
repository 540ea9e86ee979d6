"""CUDA C executed on the CPU: the same source and launches as on a GPU, with or without checks."""

from hloopt.backends.emulator.device import EmulatorDevice, Mode
from hloopt.backends.emulator.toolchain import check_emulator

__all__ = ["EmulatorDevice", "Mode", "check_emulator"]
