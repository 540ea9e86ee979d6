"""Which producers and consumers one of two planned modules has in one kernel, and the other in two.

Instructions of both are matched by the values that they compute, whatever they are called and in whichever
kernel they are.  Costs are linear in instructions, each fusion's body counted once for each fusion.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from hloopt.analysis.value_digests import ValueDigests
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module

__all__ = ["PartedPair", "parted_pairs"]

_Value: TypeAlias = bytes
_Key: TypeAlias = tuple[_Value, _Value]
"""The values of a producer and of an instruction that reads it."""
_Kernels: TypeAlias = dict[Instruction, dict[Instruction, _Value]]
"""What each kernel computes."""
_Made: TypeAlias = tuple[Instruction, Instruction]
_SEEN_THROUGH: Final = frozenset({"bitcast", "get-tuple-element", "reshape"})


@dataclass(frozen=True, slots=True)
class PartedPair:
    """A producer and a consumer that are in one kernel on one side only.

    fused_before        whether that is the side before
    producer, consumer  of the side after; ``kernels`` there, one where they are fused
    before              the kernels of the two in the module before
    values              what both compute, as digests of ``ValueDigests``
    """

    fused_before: bool
    producer: Instruction
    consumer: Instruction
    kernels: tuple[Instruction, ...]
    before: tuple[Instruction, ...]
    values: tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class _Use:
    """A result and one that reads it; two kernels, or one."""

    producer: Instruction
    consumer: Instruction
    kernels: tuple[Instruction, ...]


def parted_pairs(before: Module, after: Module) -> list[PartedPair]:
    """Pairs that are fused on one side only, in the order of the module after.

    A pair that a side has both fused and apart, for the producer was copied, is fused there.
    """
    old, new = _uses(before), _uses(after)
    return [
        PartedPair(
            len(old[values].kernels) == 1,
            use.producer,
            use.consumer,
            use.kernels,
            old[values].kernels,
            values,
        )
        for values, use in new.items()
        if values in old and (len(old[values].kernels) == 1) != (len(use.kernels) == 1)
    ]


def _uses(module: Module) -> dict[_Key, _Use]:
    found: dict[_Key, _Use] = {}
    inside = {
        kernel: {entry: value for value, entry in known.inner}
        for kernel, known in ValueDigests(module).kernels.items()
    }
    for kernel, values in inside.items():
        for consumer, value in values.items():
            for operand in consumer.operands:
                made = _made_by(operand, kernel, inside)
                if made is None:
                    continue
                home, producer = made
                key = inside[home][producer], value
                if key not in found or home is kernel:
                    kernels = (kernel,) if home is kernel else (home, kernel)
                    found[key] = _Use(producer, consumer, kernels)
    return found


def _made_by(value: Instruction, kernel: Instruction, inside: _Kernels) -> _Made | None:
    """The kernel and the instruction that compute what one in ``kernel`` reads; None for parameters."""
    element: int | None = None
    while value not in inside.get(kernel, ()):
        if value.opcode == "parameter":
            if kernel.opcode != "fusion" or value.computation is not kernel.calls:
                return None
            value = kernel.operands[value.parameter_number]  # beside the kernel from here on
        elif value.opcode == "fusion":
            kernel, root = value, value.calls.root
            several = root.opcode == "tuple" and element is not None
            value = root.operands[element or 0] if several else root
            element = None
        elif value in inside.get(value, ()):
            kernel = value
        elif value.opcode in _SEEN_THROUGH:
            element = value.tuple_index if value.opcode == "get-tuple-element" else element
            value = value.operands[0]
        else:
            return None
    return kernel, value
