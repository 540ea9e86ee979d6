"""Putting a ``while`` into a fusion, in the form that kernels take (``FusedLoop``)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hloopt.analysis.layout import same_layout
from hloopt.analysis.parallel_loop import ParallelLoop
from hloopt.fusion.loop_sinking import sunk_into
from hloopt.fusion.merge import new_parameter
from hloopt.ir import Computation, Instruction, build, edit
from hloopt.types import TupleShape

__all__ = ["is_read", "wrap_loop"]


def is_read(parallel: ParallelLoop) -> bool:
    """Whether anything needs what a loop computes: more than what the body passes through unchanged."""
    loop, invariant = parallel.loop, _invariant(parallel)
    reads = [user for user in loop.users if user.opcode == "get-tuple-element"]
    if loop.is_root or len(reads) < len(loop.users):
        return len(invariant) < len(parallel.carried)
    return any(
        _waits(read) or not (_is_dead(read) or read.tuple_index in invariant) for read in reads
    )


def _is_dead(read: Instruction) -> bool:
    return not (read.users or read.is_root or _waits(read))


def _waits(entry: Instruction) -> bool:
    return entry.has_control_edges


def _invariant(parallel: ParallelLoop) -> set[int]:
    return {entry.number for entry in parallel.carried if entry.role == "invariant"}


def wrap_loop(
    parallel: ParallelLoop, name: str, most: int, only: AbstractSet[str] | None = None
) -> tuple[Instruction, tuple[Instruction, ...]]:
    """Replace a loop by a fusion; return the fusion, and the ops that it computes before the first iteration.

    At most ``most`` ops, and ``only`` those named, where that is given; those that nothing else needs are
    removed.  Elements of the state that nothing reads are not results, and those that the body passes
    through are read where they come from.  The loop's name, and those of the reads of its elements, stay
    within the fusion.
    """
    loop = parallel.loop
    _own_state(loop)
    invariant = _invariant(parallel)
    _read_elements(loop)
    _read_outside(loop, invariant)
    _agree_on_layouts(loop)
    reads = [user for user in loop.users if user.opcode == "get-tuple-element"]
    sunk = sunk_into(loop, loop.operands[0].operands, invariant, most, only)
    fusion = _fusion(loop, sunk, reads, name)
    _hand_over(loop, fusion, reads)
    _remove(loop, sunk)
    return fusion, sunk


def _own_state(loop: Instruction) -> None:
    """Give a loop a private tuple for its initial state."""
    given = loop.operands[0]
    is_own = set(given.users) == {loop} and not (given.is_root or _waits(given))
    if given.opcode == "tuple" and is_own:
        return
    if given.opcode == "tuple":
        elements = given.operands
    else:
        assert isinstance(given.shape, TupleShape), "a flat state"
        elements = tuple(
            build.make(loop, "get-tuple-element", (given,), {"index": number}, name=given.name)
            for number in range(len(given.shape.elements))
        )
    own = build.make(loop, "tuple", elements, shape=given.shape, name=given.name)
    edit.set_operand(loop, 0, own)


def _agree_on_layouts(loop: Instruction) -> None:
    """Give a loop the layouts of its body's parameter: a kernel has one order for what it carries.

    The first state is copied into them, and from them what others read.
    """
    shape, inner = loop.shape, loop.body.parameters[0].shape
    assert isinstance(shape, TupleShape)
    assert isinstance(inner, TupleShape)
    if all(map(same_layout, shape.elements, inner.elements)):
        return
    given = loop.operands[0]
    operands = list(given.operands)
    reads = [user for user in loop.users if user.opcode == "get-tuple-element"]
    edit.set_shape(loop, inner)
    for number, (outer, own) in enumerate(zip(shape.elements, inner.elements, strict=True)):
        if not same_layout(outer, own):
            operands[number] = build.make(given, "copy", (operands[number],), shape=own)
    for read in reads:
        own = inner.elements[read.tuple_index]
        if not same_layout(read.shape, own):
            attributes = dict(read.attributes)
            first = build.make(read, "get-tuple-element", (loop,), attributes, shape=own)
            edit.replace_instruction(read, build.make(read, "copy", (first,), shape=read.shape))
    edit.set_operands(given, tuple(operands))
    edit.set_shape(given, inner)


def _read_elements(loop: Instruction) -> None:
    """Make users of the whole state read its elements instead."""
    others = [user for user in loop.users if user.opcode != "get-tuple-element"]
    if not others and not loop.is_root:
        return
    assert isinstance(loop.shape, TupleShape), "a flat state"
    at = loop._next
    place: Instruction | Computation | None = at or loop.computation
    assert place is not None, "a loop of a module"
    elements = tuple(
        build.make(place, "get-tuple-element", (loop,), {"index": number}, name=loop.name)
        for number in range(len(loop.shape.elements))
    )
    whole = build.make(place, "tuple", elements, shape=loop.shape, name=loop.name)
    for user in others:
        for number, operand in enumerate(user.operands):
            if operand is loop:
                edit.set_operand(user, number, whole)
    if loop.is_root:
        assert loop.computation is not None
        edit.set_root(loop.computation, whole)


def _read_outside(loop: Instruction, invariant: AbstractSet[int]) -> None:
    """Read what the body passes through where it comes from; remove reads that nothing needs."""
    for read in list(loop.users):
        number = read.tuple_index
        if number in invariant and not _waits(read):
            edit.replace_uses(read, loop.operands[0].operands[number])
        if _is_dead(read):
            edit.remove(read)


def _fusion(
    loop: Instruction, sunk: tuple[Instruction, ...], reads: list[Instruction], name: str
) -> Instruction:
    home = loop.home
    assert home.module is not None, "a loop of a module"
    body = Computation("loop_computation")
    body.execution_thread = home.execution_thread
    entry = loop.operands[0]
    read = (operand for op in (*sunk, entry) for operand in op.operands)
    operands = tuple(dict.fromkeys(one for one in read if one not in sunk))
    values = {
        operand: edit.append(body, new_parameter(number, operand))
        for number, operand in enumerate(operands)
    }
    for op in (*sunk, entry, loop):
        values[op] = build.clone(op, body, tuple(values[one] for one in op.operands))
    results: dict[int, Instruction] = {}
    for user in reads:
        number = user.tuple_index
        if number not in results:
            results[number] = build.clone(user, body, (values[loop],))
    outputs = tuple(results[number] for number in sorted(results))
    body.root = outputs[0] if len(outputs) == 1 else build.make(body, "tuple", outputs)
    edit.add_computation(home.module, body)
    attributes = {"kind": "kCustom", "calls": body}
    fusion = Instruction(name, "fusion", body.root.shape, operands, attributes, loop.metadata)
    fusion.offset = loop.offset
    return edit.insert_before(loop, fusion)


def _hand_over(loop: Instruction, fusion: Instruction, reads: list[Instruction]) -> None:
    edit.take_control_edges(loop, fusion)
    numbers = sorted({read.tuple_index for read in reads})
    for read in reads:
        if len(numbers) == 1:
            edit.replace_uses(read, fusion)
            edit.take_control_edges(read, fusion)
            edit.remove(read)
        else:
            edit.set_operand(read, 0, fusion)
            edit.set_attribute(read, "index", numbers.index(read.tuple_index))


def _remove(loop: Instruction, sunk: tuple[Instruction, ...]) -> None:
    entry = loop.operands[0]
    edit.remove(loop)
    edit.remove(entry)
    for op in reversed(sunk):
        if not op.users and not op.is_root:
            edit.remove(op)
