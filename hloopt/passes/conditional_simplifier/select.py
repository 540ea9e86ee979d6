"""Conditionals of little work as selects."""

from __future__ import annotations

from hloopt.analysis.elementwise import is_elementwise
from hloopt.ir import Computation, Instruction, build, edit
from hloopt.ops.traits import MOVING, PLUMBING, TUPLES
from hloopt.passes.conditional_simplifier.branches import Branch, is_movable
from hloopt.rewrite import PassLog
from hloopt.types import ArrayShape, Shape, TupleShape, parts_of, scalar

__all__ = ["select_instead", "select_of_two"]

_STEP = "compute all branches and select"
_FAMILIES = ("elementwise", "movement", "source", "tuple", "indexing")
_NOTHING = PLUMBING | {"bitcast", "broadcast", "reshape"}
_HANDED_ON = TUPLES | {"parameter"}
_CHEAP = _HANDED_ON | MOVING - {"bitcast", "reverse", "transpose"} | {"dynamic-slice", "reduce"}


def select_of_two(conditional: Instruction, branches: list[Branch], log: PassLog) -> bool:
    """What XLA does: compute both branches of a pred where neither is empty and none of their ops dear."""
    if not _is_array_or_tuple(conditional):
        return False
    if len(branches) != 2 or not conditional.operands[0].array.dtype.is_pred:
        return False
    for branch in branches:
        body = branch.computation
        if not all(map(_is_cheap, body)) or all(one.opcode in _HANDED_ON for one in body):
            return False
    return _select(conditional, branches, log, "of two branches of cheap ops")


def _is_cheap(instruction: Instruction) -> bool:
    if instruction.opcode == "parameter":
        return True
    cheap = instruction.opcode in _CHEAP or instruction.opcode == "constant"
    return is_movable(instruction) and (cheap or is_elementwise(instruction))


def select_instead(
    conditional: Instruction, branches: list[Branch], log: PassLog, ops: int, elements: int
) -> bool:
    """Compute every branch where all of them together do no more than ``ops`` on small arrays."""
    if not _is_array_or_tuple(conditional):
        return False
    if not all(_is_plain(branch.computation) for branch in branches):
        return False
    work = sum(_work(branch.computation) for branch in branches)
    largest = max(_largest(branch.computation) for branch in branches)
    if work > ops or largest > elements:
        reason = f"{work} ops on up to {largest} elements; the limits are {ops} and {elements}"
        log.miss(_STEP, conditional, reason)
        return False
    return _select(conditional, branches, log, f"{work} ops on up to {largest} elements")


def _select(conditional: Instruction, branches: list[Branch], log: PassLog, remark: str) -> bool:
    if not log.allows():
        return False
    log.hit(_STEP, conditional, remark)
    results = [_inlined(conditional, branch) for branch in branches]
    edit.replace_instruction(conditional, _selected(conditional, results))
    return True


def _is_array_or_tuple(conditional: Instruction) -> bool:
    parts = parts_of(conditional.shape)
    free = "sharding" not in conditional.attributes
    return free and bool(parts) and all(map(_is_selectable, parts))


def _is_selectable(shape: Shape) -> bool:
    """Whether this is a static array of numbers; there is no choosing between tokens."""
    return (
        isinstance(shape, ArrayShape)
        and not shape.is_dynamic
        and shape.dtype.kind not in ("token", "opaque")
    )


def _is_plain(computation: Computation) -> bool:
    return all(
        instruction.opcode == "parameter"
        or (is_movable(instruction) and instruction.op.family in _FAMILIES)
        for instruction in computation
    )


def _work(computation: Computation) -> int:
    return sum(instruction.opcode not in _NOTHING for instruction in computation)


def _largest(computation: Computation) -> int:
    """The most elements of anything that is computed; what is only forwarded is not counted."""
    sizes = [
        instruction.array.elements
        for instruction in (*computation, computation.root)
        if instruction.is_array and instruction.opcode not in ("parameter", "get-tuple-element")
    ]
    root = computation.root
    parts = parts_of(root.shape)
    sizes += [part.elements for part in parts if isinstance(part, ArrayShape)]
    return max(sizes, default=0)


def _inlined(conditional: Instruction, branch: Branch) -> Instruction:
    values = {branch.parameter: branch.operand}
    for instruction in branch.computation:
        if instruction.opcode != "parameter":
            operands = tuple(values[entry] for entry in instruction.operands)
            values[instruction] = build.clone(instruction, conditional, operands)
    return values[branch.computation.root]


def _selected(conditional: Instruction, results: list[Instruction]) -> Instruction:
    shape = conditional.shape
    conditions = _conditions(conditional, len(results))
    if isinstance(shape, ArrayShape):
        return _choose(conditional, conditions, results, shape)
    assert isinstance(shape, TupleShape)
    columns = []
    for index, part in enumerate(shape.elements):
        assert isinstance(part, ArrayShape)
        values = [_element(conditional, result, index) for result in results]
        columns.append(_choose(conditional, conditions, values, part))
    return _make(conditional, "tuple", tuple(columns), shape)


def _element(conditional: Instruction, result: Instruction, index: int) -> Instruction:
    if result.opcode == "tuple":
        return result.operands[index]
    return build.element(conditional, result, index, conditional.metadata)


def _conditions(conditional: Instruction, count: int) -> list[Instruction]:
    """When each branch but the last is taken; an index out of range takes the last."""
    index = conditional.operands[0]
    if index.array.dtype.is_pred:
        return [index]
    found = []
    for number in range(count - 1):
        limit = build.constant(conditional, scalar(index.array.dtype.name, number))
        found.append(
            build.make(
                conditional, "compare", (index, limit), {"direction": "EQ"},
                metadata=conditional.metadata,
            )
        )  # fmt: skip
    return found


def _choose(
    conditional: Instruction,
    conditions: list[Instruction],
    values: list[Instruction],
    shape: ArrayShape,
) -> Instruction:
    chosen = values[-1]
    for condition, value in reversed(list(zip(conditions, values[:-1], strict=True))):
        if value is not chosen:
            chosen = _make(conditional, "select", (condition, value, chosen), shape)
    return chosen


def _make(
    conditional: Instruction,
    opcode: str,
    operands: tuple[Instruction, ...],
    shape: ArrayShape | TupleShape,
) -> Instruction:
    return build.make(conditional, opcode, operands, {}, shape=shape, metadata=conditional.metadata)
