"""Whether an instruction may write its result over an operand that nothing else needs any more."""

from __future__ import annotations

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.in_place import in_place_pairs
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["may_share"]


def may_share(
    operand: Instruction,
    index: tuple[int, ...],
    user: Instruction,
    at: tuple[int, ...],
    *,
    gpu: bool,
) -> bool:
    """Whether leaf ``at`` of ``user`` may lie in the bytes of leaf ``index`` of its operand.

    As ``CanShareOperandBufferWithUser`` of XLA's dataflow analysis, and ``FusionCanShareBufferHint`` of its GPU
    compiler, which allows more of fusions.
    """
    given, made = _leaf(operand.shape, index), _leaf(user.shape, at)
    if given is None or made is None:
        return False
    numbers = [number for number, one in enumerate(user.operands) if one is operand]
    for pair in in_place_pairs(user):
        if pair.output_index == at and pair.operand in numbers and pair.operand_index == index:
            return True
    if user.opcode == "fusion":
        parameter = user.calls.parameters[numbers[0]]
        if gpu and user.calls.root.opcode == "sort":
            root = user.calls.root
            sorted_at = [number for number, one in enumerate(root.operands) if one is parameter]
            place = (sorted_at[0],) if len(root.operands) > 1 and sorted_at else ()
            return given == made and len(sorted_at) == len(parameter.users) == 1 and at == place
        if gpu:
            return not index and _as_wide(given, made) and _in_order(user, parameter, at)
        return given == made and not index and _is_pointwise(parameter)
    if gpu and user.opcode == "all-reduce":
        return len(user.operands) == 1 or (len(at) == 1 and user.operands[at[0]] is operand)
    if given != made or (gpu and user.opcode == "custom-call"):
        return False
    if user.opcode in ("while", "conditional"):
        number = 1 if user.opcode == "conditional" else 0
        return number in numbers and at == index
    if user.opcode in ("dynamic-update-slice", "scatter"):
        return numbers == [0]
    if user.opcode == "triangular-solve":
        return numbers == [1]
    if user.opcode == "sort":
        alone = all(one is user for one in operand.users)
        return alone and (len(user.operands) == 1 or (len(numbers) == 1 and at == (numbers[0],)))
    return not index and not at and _elementwise(user)


def _elementwise(user: Instruction) -> bool:
    """A map, too, computes each element from those at its place."""
    return user.opcode == "map" or is_elementwise(user)


def _is_pointwise(parameter: Instruction) -> bool:
    """Whether all that a fusion computes from a parameter is elementwise."""
    pending, seen = [parameter], {parameter}
    while pending:
        for user in pending.pop().users:
            if user.opcode != "tuple" and not _elementwise(user):
                return False
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return True


def _as_wide(given: Shape, made: Shape) -> bool:
    if given == made:
        return True
    return (
        isinstance(given, ArrayShape)
        and isinstance(made, ArrayShape)
        and given.elements == made.elements
        and given.dtype.bits == made.dtype.bits
    )


def _in_order(fusion: Instruction, parameter: Instruction, at: tuple[int, ...]) -> bool:
    """Whether a fusion reads a parameter in the order in which it writes the output at ``at``.

    So it is where only elementwise ops, bitcasts and an update in place are between them; a reduction is done
    before any other output is written.
    """
    root = fusion.calls.root
    several = root.opcode == "tuple"
    output = root.operands[at[0]] if several and at else root
    inner = output.operands[0] if output.opcode == "bitcast" else output
    hero = _reduction(fusion)
    pending, seen = [parameter], {parameter}
    while pending:
        value = pending.pop()
        if value is hero:
            continue
        for user in value.users:
            if user not in seen:
                seen.add(user)
                pending.append(user)
            if not (
                user is hero
                or user.opcode in ("bitcast", "tuple")
                or _keeps_order(user, value, inner)
            ):
                return False
    if (
        several
        and not _elementwise(inner)
        and any(one is not output and one in seen for one in root.operands)
    ):
        return False
    return output in seen


def _reduction(fusion: Instruction) -> Instruction | None:
    """The reduction whose kernel a fusion has, if it has that of one."""
    if fusion.attributes.get("kind") != "kInput":
        return None
    root = fusion.calls.root
    outputs = root.operands if root.opcode == "tuple" else (root,)
    for one in outputs:
        while one.opcode == "bitcast":
            one = one.operands[0]
        if one.opcode == "reduce":
            return one
    return None


def _keeps_order(user: Instruction, value: Instruction, root: Instruction) -> bool:
    numbers = [number for number, one in enumerate(user.operands) if one is value]
    if user is root and user.opcode == "scatter":
        return len(numbers) == 1 and numbers[0] < (len(user.operands) - 1) // 2
    if root.opcode == "dynamic-update-slice":
        if user is root:
            return numbers[0] in (0, 1)
        if user.opcode == "dynamic-slice" and user.operands[0] is root.operands[0]:
            one = user.array.elements == 1 and root.operands[1].array.elements == 1
            same = user.operands[1:] == root.operands[2:]
            return user.shape == root.operands[1].shape and (one or same)
    if user.opcode == "dynamic-update-slice":
        return numbers[0] == 0
    return user.opcode != "copy" and _elementwise(user)


def _leaf(shape: Shape, index: tuple[int, ...]) -> Shape | None:
    for number in index:
        if not isinstance(shape, TupleShape):
            return None
        shape = shape.elements[number]
    return None if isinstance(shape, TupleShape) else shape
