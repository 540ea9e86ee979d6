"""XLA's device descriptions: ``GpuTargetConfigProto`` as text, the files of its ``target_config/specs``."""

from __future__ import annotations

import re
from typing import Any

from hloopt.errors import FileError
from hloopt.proto.words import ELEMENT_TYPES
from hloopt.source import Source
from hloopt.targets.target import Rate, Target
from hloopt.textproto import Message, ScalarField, read_textproto

__all__ = ["read_xla_form"]

# Fields of GpuDeviceInfoProto that are numbers, and ours.
_REQUIRED = {
    "core_count": "cores",
    "fpus_per_core": "fpus_per_core",
    "clock_rate_ghz": "clock_ghz",
    "memory_bandwidth": "memory_bandwidth",
    "device_memory_size": "memory_size",
    "l2_cache_size": "l2_size",
    "threads_per_warp": "warp_size",
    "threads_per_block_limit": "threads_per_block",
    "threads_per_core_limit": "threads_per_core",
    "shared_memory_per_block": "shared_per_block",
    "shared_memory_per_core": "shared_per_core",
}
_OPTIONAL = {
    "registers_per_core_limit": "registers_per_core",
    "registers_per_block_limit": "registers_per_block",
    "shared_memory_per_block_optin": "shared_per_block_optin",
    "max_blocks_per_multiprocessor": "blocks_per_core",
    "reserved_shared_memory_per_block": "reserved_shared_per_block",
    "mem_clock_ghz": "memory_clock_ghz",
    "pcie_bandwidth": "pcie_bandwidth",
}
_REALS = frozenset({"clock_rate_ghz", "mem_clock_ghz"})
_KINDS = {"CUDA": "cuda", "ROCM": "rocm"}
_MEMORY_CLOCK = re.compile(r"(\d+)KHz mem clock")

# What XLA's cost model takes for every device of a vendor: bytes of L1 a kernel uses, bytes of the smallest
# access to memory, bytes a core exchanges with the memory system in a clock.
_MODEL = {
    "cuda": {"l1_per_core": 2048, "dram_transaction": 64, "core_transaction": 32},
    "rocm": {"l1_per_core": 16384, "dram_transaction": 64, "core_transaction": 32},
}


def read_xla_form(source: Source, name: str, message: Message | None = None) -> Target:
    """The device a text describes; what hloopt does not use is skipped.

    ``message`` is what has been read of the text already.  Raises ``FileError`` at malformed text,
    at a missing number, and for missing fields.
    """
    return _Reader(source).target(name, message or read_textproto(source))


class _Reader:
    def __init__(self, source: Source) -> None:
        self.source = source

    def fail(self, offset: int, message: str) -> FileError:
        return self.source.error(FileError, offset, message)

    def target(self, name: str, whole: Message) -> Target:
        info = self.one(whole, "gpu_device_info")
        if not isinstance(info, Message):
            raise self.fail(0, "the message gpu_device_info is missing")
        platform = self.text(whole, "platform_name")
        kind = _KINDS.get(platform or "CUDA")
        if kind is None:
            raise self.fail(0, f"devices of platform '{platform}' are not known")
        values: dict[str, Any] = dict(_MODEL[kind])
        for theirs, ours in _REQUIRED.items():
            found = self.number(info, theirs)
            if found is None:
                raise self.fail(info.offset, f"gpu_device_info has no {theirs}")
            values[ours] = found
        values |= {
            "registers_per_core": 0,
            "registers_per_block": 0,
            "shared_per_block_optin": values["shared_per_block"],
        }
        for theirs, ours in _OPTIONAL.items():
            found = self.number(info, theirs)
            if found is not None:
                values[ours] = found
        values["grid_limit"] = self.triple(info, "block_dim_limit")
        values["block_limit"] = self.triple(info, "thread_dim_limit")
        title = self.text(whole, "device_description_str") or self.text(info, "name") or name
        return Target(
            name=name,
            title=title,
            kind=kind,
            capability=self.capability(info),
            memory_clock_ghz=values.pop("memory_clock_ghz", 0) or self.memory_clock(info),
            interconnect_links=self.links(info),
            calibrated=False,
            scalar_rates=self.rates(info, "scalar_unit_description"),
            matrix_rates=self.rates(info, "matrix_unit_description"),
            sources={"": self.source.name},
            **values,
        )

    def one(self, message: Message, name: str) -> ScalarField | Message | None:
        """The field's value; the last one counts, as everywhere in protocol buffers, but only of scalars."""
        values = message.fields.get(name, [])
        if len(values) > 1:
            raise self.fail(values[1].offset, f"{name} is given twice")
        return values[0] if values else None

    def number(self, message: Message, name: str) -> int | float | None:
        found = self.one(message, name)
        if found is None:
            return None
        is_real = name in _REALS
        if isinstance(found, ScalarField) and isinstance(found.value, int | float):
            if found.value < 0:
                raise self.fail(found.offset, f"{name} is negative")
            if is_real:
                return float(found.value)
            if isinstance(found.value, int):
                return found.value
        raise self.fail(found.offset, f"{name} is {'a' if is_real else 'a whole'} number")

    def text(self, message: Message, name: str) -> str | None:
        found = self.one(message, name)
        if found is None:
            return None
        if isinstance(found, ScalarField) and isinstance(found.value, str):
            return found.value
        raise self.fail(found.offset, f"{name} is a text")

    def inner(self, message: Message, name: str) -> Message | None:
        found = self.one(message, name)
        if isinstance(found, ScalarField):
            raise self.fail(found.offset, f"{name} is a message")
        return found

    def triple(self, info: Message, name: str) -> tuple[int, int, int]:
        x, y, z = (int(self.number(info, f"{name}_{axis}") or 0) for axis in "xyz")
        return x, y, z

    def capability(self, info: Message) -> tuple[int, int]:
        found = self.inner(info, "cuda_compute_capability")
        if found is None:
            return 0, 0
        major, minor = (int(self.number(found, part) or 0) for part in ("major", "minor"))
        return major, minor

    def memory_clock(self, info: Message) -> float:
        """Of descriptions that say it in words only."""
        match = _MEMORY_CLOCK.search(self.text(info, "model_str") or "")
        return int(match[1]) / 1e6 if match else 0.0

    def links(self, info: Message) -> int:
        found = self.inner(info, "device_interconnect_info")
        return int(self.number(found, "active_links") or 0) if found else 0

    def rates(self, info: Message, name: str) -> dict[str, Rate]:
        unit = self.inner(info, name)
        found: dict[str, Rate] = {}
        for entry in unit.fields.get("rate_infos", []) if unit else []:
            if isinstance(entry, ScalarField):
                raise self.fail(entry.offset, "rate_infos are messages")
            key, value = self.number(entry, "key"), self.inner(entry, "value")
            dtype = ELEMENT_TYPES.get(int(key or 0))
            if dtype is None:
                raise self.fail(entry.offset, f"unknown element type {key}")
            if value is None:
                raise self.fail(entry.offset, f"the rate of {dtype} has no value")
            found[dtype] = Rate(
                self.clock(value), *(int(self.number(value, part) or 0) for part in _PARTS)
            )
        return found

    def clock(self, value: Message) -> float:
        return float(self.number(value, "clock_rate_ghz") or 0.0)


_PARTS = ("units_per_core", "ops_per_clock")
