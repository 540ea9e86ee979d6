"""Running a loop's body in the place of the loop: once, or several times in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloopt.ir import Computation, Instruction, build, edit
from hloopt.passes.loops.carried import reads, remove_uncalled, tuple_of, whole_uses
from hloopt.rewrite.driver import same_layout
from hloopt.types import TupleShape

__all__ = ["copy_body", "elements_of", "removal_obstacle", "replace_loop"]


def elements_of(value: Instruction, position: Instruction | Computation) -> list[Instruction]:
    """The elements of a tuple; a value that is no tuple is its own only element."""
    if value.opcode == "tuple":
        return list(value.operands)
    if not isinstance(value.shape, TupleShape):
        return [value]
    return [
        build.make(position, "get-tuple-element", (value,), {"index": index}, shape=shape)
        for index, shape in enumerate(value.shape.elements)
    ]


def copy_body(
    body: Computation,
    position: Instruction | Computation,
    state: Sequence[Instruction],
    name: Callable[[str], str] = str,
    loop: Instruction | None = None,
) -> list[Instruction]:
    """A copy of what a body computes from these elements of the state; the elements it returns.

    Control edges between its instructions are copied; what has no metadata gets the loop's.  Called
    computations are shared.
    """
    parameter = body.parameters[0]
    mapped: dict[Instruction, Instruction] = {}
    skipped = {body.root} if body.root.opcode == "tuple" and not body.root.users else set()
    is_tuple = isinstance(parameter.shape, TupleShape)
    if not is_tuple:
        mapped[parameter] = state[0]
    for inner in body:
        if inner is parameter or inner in skipped:
            continue
        if is_tuple and inner.opcode == "get-tuple-element" and inner.operands[0] is parameter:
            mapped[inner] = state[inner.attributes["index"]]
            continue
        if parameter in inner.operands and parameter not in mapped:
            mapped[parameter] = tuple_of(position, state, parameter.shape)
        copy = build.clone(inner, position, tuple(mapped[one] for one in inner.operands))
        edit.rename(copy, name(inner.name))
        if loop is not None:
            copy.metadata = copy.metadata or loop.metadata
        mapped[inner] = copy
        for before in inner.control_predecessors:
            if before in mapped:
                edit.add_control_edge(mapped[before], copy)
    if body.root is parameter:
        return list(state)
    if skipped:
        return [mapped[one] for one in body.root.operands]
    return elements_of(mapped[body.root], position)


def removal_obstacle(loop: Instruction) -> str:
    """Why a loop cannot give way to what it computes, or an empty string."""
    if loop.control_predecessors or loop.control_successors:
        return "it has control edges"
    users = [user for user in loop.users if user.opcode == "get-tuple-element"]
    if any("sharding" in one.attributes for one in (loop, *users)):
        return "its result has a sharding"
    if any(one.control_predecessors or one.control_successors for one in users):
        return "its result has control edges"
    if not loop.is_understood or loop.shape.is_dynamic:
        return "it has unknown attributes or dynamic dimensions"
    body, condition = loop.attributes["body"], loop.attributes["condition"]
    shapes = (
        loop.operands[0].shape, body.parameters[0].shape, body.root.shape,
        condition.parameters[0].shape,
    )  # fmt: skip
    if not all(same_layout(loop.shape, shape) for shape in shapes):
        return "its state has several layouts"
    return ""


def replace_loop(loop: Instruction, elements: Sequence[Instruction]) -> None:
    """Let users of a loop have these values, and remove it with what it alone called."""
    if not isinstance(loop.shape, TupleShape):
        edit.replace_uses(loop, elements[0])
    else:
        for index, element in enumerate(elements):
            for read in reads(loop, index):
                edit.replace_uses(read, element)
                edit.remove(read)
        if whole_uses(loop) or loop.is_root:
            whole = tuple_of(loop, elements, loop.shape)
            edit.replace_uses(loop, whole)
            whole.metadata = loop.metadata
    called = (loop.attributes["condition"], loop.attributes["body"])
    edit.remove(loop)
    remove_uncalled(called)
