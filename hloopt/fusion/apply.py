"""Edits that make fusions: wrap an instruction, move producers in, add results.

Every edit leaves a module that is valid and computes the same, with its control edges, and costs what it
moves: the producer's body and the operands concerned.  Where a fusion gets the results of a producer or
sibling, readers of these that precede the fusion are moved after it; a strategy with many such edits
skips that (``keep_order=False``) and calls ``restore_order`` at the end.
"""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.fusion.merge import copy_in, has_tuple_root, new_parameter
from hloopt.fusion.outputs import hand_over, remove_dead_elements, remove_source
from hloopt.ir import Computation, Instruction, build, edit, walk

__all__ = [
    "fuse",
    "fuse_multi_output",
    "fuse_producer",
    "has_tuple_root",
    "merge_siblings",
    "number_parameter_names",
    "remove_producer",
    "restore_order",
    "wrap",
]

_CARRIED = ("sharding", "frontend_attributes")


def wrap(root: Instruction, kind: str, name: str) -> Instruction:
    """Put a fusion of ``root`` alone in its place; users, control edges and metadata go with it.

    Operands that occur several times become one parameter.
    """
    home = root.computation
    if home is None or home.module is None:
        raise ValueError(f"{root.name} is in no module")
    body = edit.add_computation(home.module, Computation("fused_computation"))
    operands = tuple(dict.fromkeys(root.operands))
    parameters = {
        operand: edit.append(body, new_parameter(number, operand))
        for number, operand in enumerate(operands)
    }
    inner = tuple(parameters[operand] for operand in root.operands)
    body.root = build.clone(root, body, inner)
    attributes = {"kind": kind, "calls": body}
    attributes |= {key: root.attributes[key] for key in _CARRIED if key in root.attributes}
    fusion = Instruction(name, "fusion", root.shape, operands, attributes, root.metadata)
    fusion.offset = root.offset
    edit.insert_before(root, fusion)
    edit.replace_uses(root, fusion)
    edit.take_control_edges(root, fusion)
    edit.remove(root)
    return fusion


def fuse(producer: Instruction, consumer: Instruction, kind: str | None = None) -> Instruction:
    """Move a copy of ``producer`` into ``consumer``, which becomes a fusion if it is none; return it.

    A producer that is a fusion brings its body; of one with several results ``consumer`` reads some through
    ``get-tuple-element``.  The producer stays (``remove_producer``), and so do the other readers.
    ``kind`` is that of the fusion, ``kLoop`` for a new one without it.  The schedule of the module goes.
    """
    fusion = _as_fusion(consumer, kind)
    copy_in(fusion, producer, alone=True)
    return fusion


def fuse_multi_output(
    producer: Instruction,
    consumer: Instruction,
    kind: str | None = None,
    *,
    keep_order: bool = True,
) -> Instruction:
    """Move ``producer`` itself into ``consumer``: what others read of it becomes results of the fusion.

    Otherwise as ``fuse``; ``producer`` is gone afterwards.  Raises ``ValueError`` (unless ``keep_order``
    is false) where the consumer needs the producer through a third instruction, too.
    """
    if keep_order:
        _make_room(producer, consumer, _elements(producer) | {producer})
    remove_dead_elements(producer)
    fusion = _as_fusion(consumer, kind)
    hand_over(producer, fusion, copy_in(fusion, producer, alone=False))
    return fusion


def merge_siblings(
    first: Instruction, second: Instruction, kind: str | None = None, *, keep_order: bool = True
) -> Instruction:
    """One fusion that computes what both do, results of ``first`` before those of ``second``; the fusion.

    Results of ``second`` that nothing reads are left out.  Neither needs the other: raises ``ValueError``
    otherwise, unless ``keep_order`` is false.
    """
    if keep_order:
        if _is_before(first, second):
            _make_room(first, second, frozenset())
            edit.move_before(second, first)
        else:
            _make_room(second, first, frozenset())
    remove_dead_elements(second)
    fusion = _as_fusion(first, kind)
    hand_over(second, fusion, copy_in(fusion, second, alone=False))
    return fusion


def fuse_producer(fusion: Instruction, producer: Instruction) -> Instruction:
    """Copy ``producer``, an op and an operand of ``fusion``, into its body; the copy."""
    return copy_in(fusion, producer, alone=True)[0]


def remove_producer(producer: Instruction) -> bool:
    """Remove a producer that nothing uses any more; return whether it was removed.

    Unused ``get-tuple-element`` users go in any case, and a fusion's body unless something else calls it.
    """
    remove_dead_elements(producer)
    if producer.users or producer.is_root or producer.control_successors:
        return False
    remove_source(producer)
    return True


def number_parameter_names(bodies: Iterable[Computation]) -> None:
    """Call every parameter ``param_N`` by its number."""
    for body in bodies:
        wrong = [
            parameter
            for parameter in body.parameters
            if parameter.name != f"param_{parameter.parameter_number}"
        ]
        for parameter in wrong:
            edit.rename(parameter, "param")
        for parameter in wrong:
            edit.rename(parameter, f"param_{parameter.parameter_number}")


def restore_order(computation: Computation) -> None:
    """Restore topological order: operands and control predecessors first, otherwise the order is kept."""
    previous: Instruction | None = None
    for instruction in walk.post_order(computation):
        if previous is not None:
            edit.move_after(previous, instruction)
        elif computation._first is not None:
            edit.move_before(computation._first, instruction)
        previous = instruction


def _as_fusion(consumer: Instruction, kind: str | None) -> Instruction:
    home = consumer.computation
    if home is None or home.module is None:
        raise ValueError(f"{consumer.name} is in no module")
    home.module.attributes.pop("is_scheduled", None)
    if consumer.opcode != "fusion":
        return wrap(consumer, kind or "kLoop", "fusion")
    if kind is not None:
        consumer.attributes["kind"] = kind
    return consumer


def _elements(instruction: Instruction) -> frozenset[Instruction]:
    return frozenset(user for user in instruction.users if user.opcode == "get-tuple-element")


def _is_before(left: Instruction, right: Instruction) -> bool:
    """Whether ``left`` precedes ``right``; the cost is the distance between them."""
    behind_left, behind_right = left._next, right._next
    while True:
        if behind_left is right or behind_right is None:
            return True
        if behind_right is left or behind_left is None:
            return False
        behind_left, behind_right = behind_left._next, behind_right._next


def _make_room(early: Instruction, late: Instruction, own: frozenset[Instruction]) -> None:
    """Move what depends on ``early`` and precedes ``late`` to right after ``late``.

    ``late`` may need ``own`` only; raises ``ValueError`` where it needs ``early`` through something else.
    """
    dependent = {early, *own}
    moved: list[Instruction] = []
    entry = early._next
    while entry is not None and entry is not late:
        if not dependent.isdisjoint((*entry.operands, *entry.control_predecessors)):
            dependent.add(entry)
            moved.append(entry)
        entry = entry._next
    if not (dependent - own).isdisjoint((*late.operands, *late.control_predecessors)):
        raise ValueError(f"{late.name} needs {early.name} through another instruction")
    position = late
    for instruction in moved:
        edit.move_after(position, instruction)
        position = instruction
