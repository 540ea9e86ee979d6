"""Copies of whole arrays: the device's own copy of memory."""

from __future__ import annotations

from hloopt.analysis.layout import same_layout
from hloopt.analysis.region import Region
from hloopt.ir import Instruction
from hloopt.kernels.kernel import NO, YES, Kernel, Recognizer, Site, Verdict, always, no_tile
from hloopt.kernels.spec import Copy, KernelPart, KernelSpec, LeafPlace, Tile
from hloopt.ops.traits import FORWARDING

__all__ = ["KERNELS"]

_SAME_BYTES = FORWARDING | {"bitcast", "reshape"}


@Recognizer
def _sources(region: Region) -> list[int] | str:
    """The operand leaf that each result is a copy of, or why one is not a copy."""
    sources = []
    for result in region.results:
        found = _source(region, result.instruction, result.leaf)
        if isinstance(found, str):
            return found
        sources.append(found)
    return sources


def _source(region: Region, instruction: Instruction, leaf: int) -> int | str:
    while instruction not in region.inputs:
        if instruction.opcode not in _SAME_BYTES:
            return f"{instruction.name} is not a copy"
        operand = instruction.operands[0]
        result, source = region.arrays_of(instruction)[leaf], region.arrays_of(operand)[leaf]
        if result.dtype.bits != source.dtype.bits:
            return f"{instruction.name} changes the width of elements"
        if instruction.opcode == "copy" and (
            not same_layout(result, source) or result.dtype is not source.dtype
        ):
            return f"{instruction.name} changes layout or type"
        instruction = operand
    number = region.inputs[instruction] + leaf
    if region.inlined(number) is not None:
        return f"{instruction.name} is a constant in the code"
    return region.canonical(number)


def _fits(site: Site) -> Verdict:
    problem = _sources.problem(site.region)
    return NO(problem) if problem else YES("every result has the bytes of an operand")


def _spec(site: Site, tile: Tile) -> KernelSpec:
    sources = _sources(site.region)
    steps: tuple[KernelPart, ...] = tuple(
        Copy(LeafPlace("operand", source), LeafPlace("result", number))
        for number, source in enumerate(sources)
        if site.region.results[number].shape.elements
    )
    return KernelSpec("copy", tile, steps)


KERNELS = (
    Kernel(
        "copy",
        "the device copies the bytes",
        _fits,
        always("the device copies memory without a kernel"),
        no_tile,
        _spec,
    ),
)
