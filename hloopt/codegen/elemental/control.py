"""Branches and loops inside a kernel, by one thread.

A conditional with little to compute computes all branches and chooses; a larger one branches, and computes all
that is wanted of it under one ``if``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product
from typing import Final

from hloopt.analysis.index import Index, Indices, Symbol, symbols_of
from hloopt.analysis.parallel_loop import parallel_loop
from hloopt.analysis.parallel_loop.thread_plan import UNROLLED
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, EmissionFrame, Emit, each
from hloopt.codegen.loops.places import Outside
from hloopt.codegen.loops.running import Running
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction
from hloopt.kernel_ir.expressions import TRUE, Expr, Select, eq
from hloopt.kernel_ir.scope import Scope
from hloopt.kernels.kernel import unsupported
from hloopt.ops.traits import PLUMBING, VIEWS
from hloopt.types import ArrayShape, leaves

__all__ = ["EMITTERS", "PREDICATED", "branch_frame", "branch_tests"]

PREDICATED: Final = 16
"""Branches of so many cheap instructions at most are all computed, and one result is chosen."""

_FREE: Final = PLUMBING | {"copy"}


def _conditional(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    called = list(branches(instruction))
    frames = [branch_frame(e, instruction, number, branch) for number, branch in enumerate(called)]
    selector = instruction.operands[0]
    which = yield At(selector)
    tests = branch_tests(selector, which, len(called))
    kind = e.uses.type(_leaves(instruction)[leaf].dtype)
    if all(map(_is_cheap, called)):
        roots = zip(called, frames, strict=True)
        values = yield from each(At(branch.root, index, leaf, frame) for branch, frame in roots)
        choice = values[-1]
        for test, value in reversed(list(zip(tests, values, strict=False))):
            choice = Select(test, value, choice)
        return e.scope.declare(kind, choice, instruction.name)
    wanted = _together(e, instruction, index, leaf)
    names = []
    for number, _ in wanted:
        kind = e.uses.type(_leaves(instruction)[number].dtype)
        names.append(e.scope.variable(kind, instruction.name))
    outer = e.scope
    fixed = frozenset(symbol for _, place in wanted for symbol in symbols_of(place))
    before = outer.section()
    taken = zip(instruction.operands[1:], called, frames, strict=True)
    for block, (operand, branch, frame) in zip(outer.branches(tests), taken, strict=True):
        _place_operand(e, operand, branch, frame, before, fixed)
        with e.within(block):
            requests = [At(branch.root, place, part, frame) for part, place in wanted]
            for name, value in zip(names, (yield from each(requests)), strict=True):
                e.scope.set(name, value)
    for (part, place), name in zip(wanted, names, strict=True):
        e.remember(instruction, place, part, name)
    return names[wanted.index((leaf, index))]


def _place_operand(
    e: Elements,
    operand: Instruction,
    branch: Computation,
    frame: EmissionFrame,
    before: Scope,
    fixed: frozenset[Symbol],
) -> None:
    """What a branch takes is computed before it: once, for all branches and for other uses."""
    for leaf, _ in enumerate(leaves(operand.shape)):
        place = Outside(operand, leaf, e.frame, before, fixed, [_ALL])
        e.places[frame, branch.parameters[0], leaf] = place


_ALL: Final = 1 << 30


def branch_frame(
    e: Elements, instruction: Instruction, number: int, branch: Computation
) -> EmissionFrame:
    """What a branch of a conditional is written in: one frame for each place of the conditional."""
    key = (e.frame, instruction, number)
    found = e.frames.get(key)
    if found is None:
        found = e.frames[key] = e.enter(branch, [instruction.operands[1 + number]])
    return found


def branch_tests(selector: Instruction, which: Expr, count: int) -> list[Expr]:
    """What must hold for each branch but the last, those before having been ruled out."""
    if selector.array.dtype.is_pred:
        return [which]
    return [eq(which, number) for number in range(count - 1)]


def _leaves(instruction: Instruction) -> list[ArrayShape]:
    return [shape for shape in leaves(instruction.shape) if isinstance(shape, ArrayShape)]


def _is_cheap(branch: Computation) -> bool:
    working = [one for one in branch if one.opcode not in _FREE]
    return len(working) <= PREDICATED and all(
        (one.op.is_elementwise and not one.op.transcendentals) or one.opcode in _MOVING
        for one in working
    )


_MOVING: Final = VIEWS | {"concatenate", "iota"}


def _together(
    e: Elements, instruction: Instruction, index: Indices, leaf: int
) -> list[tuple[int, Indices]]:
    """The elements that are computed under one ``if``: with a loop around, all that the work item has."""
    shapes = _leaves(instruction)
    axes = e.owned.get((instruction, leaf))
    found = [(leaf, index)]
    for number, shape in enumerate(shapes):
        along = e.owned.get((instruction, number))
        if axes is not None and along is not None and set(along) <= {*axes, None}:
            at = {axis: place for axis, place in zip(axes, index, strict=True) if axis is not None}
            sizes = [
                [Index(0)] if axis is not None else list(map(Index, range(size)))
                for axis, size in zip(along, shape.dims, strict=True)
            ]
            places = [
                tuple(
                    at[axis] if axis is not None else place
                    for axis, place in zip(along, local, strict=True)
                )
                for local in product(*sizes)
            ]
            if len(places) <= (e.unrolled or UNROLLED):
                found += [(number, place) for place in places]
        elif shape.dims == shapes[leaf].dims:
            found.append((number, index))
    return list(dict.fromkeys(found))


def _while(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    loop = e.loops.get(instruction)
    if loop is None:
        loop = e.loops[instruction] = parallel_loop(instruction, collect=False)
    if loop.obstacle is not None:
        raise unsupported(
            loop.obstacle.instruction, f"has no place in a kernel: {loop.obstacle.words}"
        )
    carried = loop.carried[leaf]
    if carried.role == "invariant":
        return (yield At(instruction.operands[0], index, leaf))
    places = {axis: at for axis, at in zip(carried.axes, index, strict=True) if axis is not None}
    work_item = tuple(places.get(axis, Index(0)) for axis in range(len(loop.sizes)))
    running = _ran(e, instruction, work_item, places)
    if running is None:
        running = Running(e, loop, work_item, e.frame)
        yield from running.run()
        e.runs.append(running)
        e.scope.remember(_run_key(running), TRUE)
    return (yield from running.after(carried, index))


def _run_key(running: Running) -> tuple[object, ...]:
    return ("while", running.outer, running.loop.loop, running.work_item)


def _ran(
    e: Elements, instruction: Instruction, work_item: Indices, axes: Collection[int]
) -> Running | None:
    """An execution of the loop, in a block around, of a work item that is the same along the axes."""
    for running in reversed(e.runs):
        if running.loop.loop is instruction and running.outer is e.frame:
            same = all(running.work_item[axis] == work_item[axis] for axis in axes)
            if same and e.scope.known(_run_key(running)) is not None:
                return running
    return None


EMITTERS: Final[Mapping[str, Emit]] = {"conditional": _conditional, "while": _while}
