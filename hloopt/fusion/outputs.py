"""The results of a fusion: one, or a ``tuple`` read by ``get-tuple-element``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hloopt.fusion.merge import Alias, fusion_aliases, has_tuple_root, read_results, set_aliases
from hloopt.ir import Instruction, build, edit, walk
from hloopt.types import TupleShape

__all__ = [
    "add_output",
    "element_of",
    "hand_over",
    "insert_after",
    "remove_dead_elements",
    "remove_source",
]

_LIKE_THE_SHAPE: Final = ("sharding", "origin")
"""Attributes whose form is that of the result: with a tuple's they would not be valid."""


def insert_after(position: Instruction, instruction: Instruction) -> Instruction:
    """Put a new instruction right after another one."""
    following = position._next
    if following is not None:
        return edit.insert_before(following, instruction)
    assert position.computation is not None
    return edit.append(position.computation, instruction)


def remove_dead_elements(source: Instruction) -> None:
    """Remove the ``get-tuple-element`` users of an instruction that nothing reads or waits for."""
    for user in list(source.users):
        if user.opcode == "get-tuple-element" and not (
            user.users or user.is_root or user.control_successors
        ):
            edit.remove(user)


def add_output(fusion: Instruction, inner: Instruction) -> int:
    """Make an instruction of the body a result of the fusion; the number of this result.

    One that is a result already keeps its number.  A fusion with one result gets a tuple, and its users a
    ``get-tuple-element`` of it, which takes over sharding and origin: those of a tuple are written otherwise.
    """
    root = fusion.calls.root
    if root.opcode != "tuple":
        if inner is root:
            return 0
        _make_tuple(fusion, (root, inner))
        return 1
    for number, known in enumerate(root.operands):
        if known is inner:
            return number
    _read_by_elements(fusion)
    edit.add_operands(root, (inner,))
    _move_to_end(root)
    root.shape = fusion.shape = TupleShape(tuple([entry.shape for entry in root.operands]))
    for name in _LIKE_THE_SHAPE:
        root.attributes.pop(name, None)
        fusion.attributes.pop(name, None)
    return len(root.operands) - 1


def _make_tuple(fusion: Instruction, outputs: tuple[Instruction, ...]) -> None:
    body = fusion.calls
    body.root = build.make(body, "tuple", outputs)
    was_root = fusion.is_root
    users = list(fusion.users)
    kept = fusion_aliases(fusion)
    element = Instruction(
        "get-tuple-element", "get-tuple-element", fusion.shape, (), {"index": 0}, fusion.metadata
    )
    for name in _LIKE_THE_SHAPE:
        if name in fusion.attributes:
            element.attributes[name] = fusion.attributes.pop(name)
    insert_after(fusion, element)
    if users or was_root:
        edit.replace_uses(fusion, element)
    fusion.shape = body.root.shape
    edit.add_operands(element, (fusion,))
    set_aliases(fusion, [replace(pair, output=(0, *pair.output)) for pair in kept])


def _move_to_end(root: Instruction) -> None:
    body = root.home
    last = body._last
    if last is not None and last is not root:
        edit.move_after(last, root)


def _read_by_elements(fusion: Instruction) -> None:
    """Give readers of the whole tuple a ``tuple`` of its elements."""
    readers = [user for user in fusion.users if user.opcode != "get-tuple-element"]
    if not readers and not fusion.is_root:
        return
    assert isinstance(fusion.shape, TupleShape)
    kept = {user for user in fusion.users if user.opcode == "get-tuple-element"}
    home = fusion.home
    whole = Instruction("tuple", "tuple", fusion.shape, (), {}, fusion.metadata)
    insert_after(fusion, whole)
    for reader in readers:
        for index, operand in enumerate(reader.operands):
            if operand is fusion:
                edit.set_operand(reader, index, whole)
    if fusion.is_root:
        edit.set_root(home, whole)
    assert kept.isdisjoint(readers)
    elements = [element_of(fusion, index) for index in range(len(fusion.shape.elements))]
    edit.add_operands(whole, tuple(elements))


def element_of(fusion: Instruction, index: int) -> Instruction:
    """A new ``get-tuple-element`` right after the fusion."""
    element = Instruction(
        "get-tuple-element",
        "get-tuple-element",
        fusion.elements[index],
        (fusion,),
        {"index": index},
    )
    return insert_after(fusion, element)


def hand_over(source: Instruction, fusion: Instruction, inner: dict[int, Instruction]) -> None:
    """Redirect the readers of ``source`` to the fusion that computes its results now; remove ``source``.

    ``inner`` are the instructions of the body that make the source's results; those that nothing else reads
    are not results of the fusion.
    """
    moved = fusion_aliases(source)
    remove_dead_elements(source)
    numbers = {number: add_output(fusion, inner[number]) for number in read_results(source)}
    values: dict[int, Instruction] = {}
    for number, output in numbers.items():
        values[number] = fusion if not has_tuple_root(fusion) else element_of(fusion, output)
    single = not has_tuple_root(source)
    if moved:
        set_aliases(fusion, [*fusion_aliases(fusion), *_renumbered(moved, numbers, fusion, single)])
    if single:
        for value in values.values():
            _pass_on(source, value, fusion)
    else:
        _hand_over_elements(source, values)
    edit.take_control_edges(source, fusion)
    remove_source(source)


def _renumbered(
    pairs: list[Alias], numbers: dict[int, int], fusion: Instruction, single: bool
) -> list[Alias]:
    """Pairs of the source as they are for the fusion; those of results that nothing reads are dropped."""
    found = []
    for pair in pairs:
        number, *rest = (0, *pair.output) if single else pair.output
        if number in numbers:
            output = (numbers[number], *rest) if has_tuple_root(fusion) else tuple(rest)
            found.append(replace(pair, output=output))
    return found


def _pass_on(old: Instruction, new: Instruction, fusion: Instruction) -> None:
    if new is not fusion:
        new.metadata = old.metadata
        for name in _LIKE_THE_SHAPE:
            if name in old.attributes:
                new.attributes[name] = old.attributes[name]
    edit.replace_uses(old, new)


def _hand_over_elements(source: Instruction, values: dict[int, Instruction]) -> None:
    for user in list(source.users):
        if user.opcode == "get-tuple-element":
            value = values.get(user.tuple_index)
            if value is not None:
                edit.replace_uses(user, value)
                edit.take_control_edges(user, value)
                if value.metadata is None:
                    value.metadata = user.metadata
            edit.remove(user)
    if source.users or source.is_root:
        elements = tuple(values[number] for number in sorted(values))
        whole = Instruction("tuple", "tuple", source.shape, (), {}, source.metadata)
        insert_after(elements[0], whole)
        for element in elements[1:]:
            edit.move_before(whole, element)
        edit.add_operands(whole, elements)
        edit.replace_uses(source, whole)


def remove_source(source: Instruction) -> None:
    """Remove an instruction that nothing reads, and its body unless something else calls it."""
    bodies = list(walk.called_computations(source)) if source.opcode == "fusion" else []
    edit.remove(source)
    for body in bodies:
        if not body.callers:
            edit.remove_computation(body)
