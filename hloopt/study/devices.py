"""The devices of a study: where times are taken, where results are verified, what is predicted."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Final, Literal, TypeAlias

from hloopt.errors import UsageError
from hloopt.rewrite.spec import did_you_mean
from hloopt.runtime.memory import memory_limit
from hloopt.study.plan import MEASURED
from hloopt.targets import find_target, names

__all__ = ["EMULATOR", "DeviceUse", "check_name", "device_names", "machine", "way_of"]

EMULATOR: Final = "emulator"

DeviceUse: TypeAlias = Literal["measured", "verified", "predicted"]

_PROCESSORS = Path("/proc/cpuinfo")


def device_names() -> tuple[str, ...]:
    """All that a study takes by name."""
    return (*MEASURED, EMULATOR, *names())


def way_of(device: str) -> DeviceUse:
    """How a study uses a device."""
    if device in MEASURED:
        return "measured"
    return "verified" if device == EMULATOR else "predicted"


def check_name(device: str) -> None:
    """Raise ``UsageError`` for what is neither a device, a target nor the path of a description."""
    if way_of(device) != "predicted":
        return
    if device.lower() not in names() and not Path(device).suffix:
        try:
            find_target(device)  # XLA's names of the same
        except UsageError as error:
            hint = did_you_mean(device, device_names())
            raise UsageError(f"no device or target is called '{device}'{hint}") from error
    find_target(device)


def machine() -> str:
    """The machine in words: times taken on the CPU are its times."""
    cores = os.cpu_count() or 1
    parts = [_processor(), f"{cores} core{'s' * (cores != 1)}", platform.system()]
    limit = memory_limit()
    if limit is not None:
        parts.insert(2, f"{limit / 2**30:.0f} GiB")
    return ", ".join(filter(None, parts))


def _processor() -> str:
    if _PROCESSORS.exists():
        for line in _PROCESSORS.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine()
