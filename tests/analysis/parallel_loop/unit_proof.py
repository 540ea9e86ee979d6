"""Holding a loop's axes against the interpreter: what one work item has changes nothing of what others have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hloopt
from hloopt.analysis.parallel_loop import ParallelLoop, Sharing, parallel_loop
from hloopt.ir import Instruction, Module

__all__ = ["EVERY_AXIS", "early", "found_in", "loop_of", "strangers"]

Array = np.ndarray[Any, Any]

EVERY_AXIS = Sharing(free=0, repeated=1 << 60, least_part=0.0, least_gain=0.0)
"""Whatever can be an axis is one, however much work items repeat."""


def loop_of(module: Module) -> Instruction:
    """The loop of the entry."""
    return next(one for one in module.entry if one.opcode == "while")


def found_in(text: str, sharing: Sharing = Sharing(), *, collect: bool = True) -> ParallelLoop:  # noqa: B008
    """What is found of the loop of a module's entry."""
    return parallel_loop(loop_of(hloopt.parse(text)), collect=collect, sharing=sharing)


def strangers(text: str, choose: Callable[[int], int], sharing: Sharing = EVERY_AXIS) -> list[str]:
    """Elements of results that change with what a work item has to which they do not belong.

    The parameters are the state but for its element 0, a counter, and so are the results.
    """
    module = hloopt.parse(text)
    parallel = parallel_loop(loop_of(module), sharing=sharing)
    assert parallel.obstacle is None
    if not parallel.sizes:
        return []
    unit = tuple(choose(size) for size in parallel.sizes)
    inputs = [
        np.array([choose(7) - 3 for _ in range(one.array.elements)], np.int32).reshape(
            one.array.dims
        )
        for one in module.entry.parameters
    ]
    changed = [array.copy() for array in inputs]
    for carried in parallel.carried[1:]:
        if carried.role in ("owned", "streamed"):
            at = part(carried.axes, unit)
            if any(axis is not None for axis in carried.axes):
                changed[carried.number - 1][at] += 1 + choose(5)
    before, after = hloopt.evaluate(module, inputs), hloopt.evaluate(module, changed)
    found = []
    for carried in parallel.carried[1:]:
        if carried.update in parallel.after:
            continue
        one, other = (results[carried.number - 1].copy() for results in (before, after))
        if any(axis is not None for axis in carried.axes):
            one[part(carried.axes, unit)] = other[part(carried.axes, unit)] = 0
        if not np.array_equal(one, other):
            found.append(f"element {carried.number}, {carried.role} along {carried.axes}")
    return found


def part(axes: Sequence[int | None], unit: Sequence[int]) -> tuple[int | slice, ...]:
    """Where a work item's part of an array is."""
    return tuple(slice(None) if axis is None else unit[axis] for axis in axes)


def early(text: str, choose: Callable[[int], int], sharing: Sharing = EVERY_AXIS) -> list[str]:
    """Results that differ where a work item runs alone, of a loop whose work items may stop by themselves.

    Alone is a work item all others are like.  A loop of other trips has none.
    """
    module = hloopt.parse(text)
    loop = loop_of(module)
    parallel = parallel_loop(loop, sharing=sharing)
    if parallel.iterations.kind != "element":
        return []
    inputs = [
        np.array([choose(9) - 4 for _ in range(one.array.elements)], np.int32).reshape(
            one.array.dims
        )
        for one in module.entry.parameters
    ]
    root = module.entry.root
    numbers = [read.attributes["index"] for read in root.operands]
    whole = hloopt.evaluate(module, inputs)
    found = []
    for unit in np.ndindex(*parallel.sizes):
        alike = []
        for carried, array in zip(parallel.carried[1:], inputs, strict=True):
            copy = array.copy()
            if carried.role == "owned":
                at = part(carried.axes, unit)
                shape = [1 if axis is not None else size for axis, size in
                         zip(carried.axes, copy.shape, strict=True)]  # fmt: skip
                copy[...] = np.asarray(array[at]).reshape(shape)
            alike.append(copy)
        alone = hloopt.evaluate(module, alike)
        for number, one, other in zip(numbers, whole, alone, strict=True):
            at = part(parallel.carried[number].axes, unit)
            if not np.array_equal(one[at], other[at]):
                found.append(f"element {number} of work item {unit}")
    return found
