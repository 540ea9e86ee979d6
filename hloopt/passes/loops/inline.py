"""Running a loop's body in the place of the loop: once, or several times in a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloopt.ir import Computation, Instruction, build, edit
from hloopt.ir.signatures import own_fusion_bodies, remove_uncalled
from hloopt.passes.loops.carried import (
    reads,
    remove_unused,
    tuple_of,
    whole_uses,
)
from hloopt.rewrite.driver import same_layout

__all__ = ["BodyCopies", "elements_of", "removal_obstacle", "replace_loop"]


def elements_of(value: Instruction, position: Instruction | Computation) -> list[Instruction]:
    """The elements of a tuple; a value that is not a tuple is its own only element."""
    return list(build.elements(position, value)) if value.is_tuple else [value]


class BodyCopies:
    """What a body was when this was made: copies are of that, even when the body grows by them."""

    def __init__(self, body: Computation) -> None:
        self._parameter = body.parameters[0]
        self._is_tuple = self._parameter.is_tuple
        opened = body.root.opcode == "tuple" and not body.root.users
        self._root = body.root
        self._copies: dict[Instruction, None] = {}
        self._results = body.root.operands if opened else None
        self._instructions = [
            inner
            for inner in body
            if inner is not self._parameter and not (opened and inner is body.root)
        ]

    def copy(
        self,
        position: Instruction | Computation,
        state: Sequence[Instruction],
        name: Callable[[str], str] = str,
        loop: Instruction | None = None,
    ) -> list[Instruction]:
        """Compute these elements of the state once more; the elements of the next state.

        Control edges between the instructions are copied; what has no metadata gets the loop's.  Called
        computations are shared, until ``settle``.
        """
        parameter = self._parameter
        mapped: dict[Instruction, Instruction] = {}
        if not self._is_tuple:
            mapped[parameter] = state[0]
        for inner in self._instructions:
            is_read = self._is_tuple and inner.opcode == "get-tuple-element"
            if is_read and inner.operands[0] is parameter:
                mapped[inner] = state[inner.tuple_index]
                continue
            if parameter in inner.operands and parameter not in mapped:
                mapped[parameter] = tuple_of(position, state, parameter.shape)
            copy = build.clone(inner, position, tuple(mapped[one] for one in inner.operands))
            edit.rename(copy, name(inner.name))
            if loop is not None:
                copy.metadata = copy.metadata or loop.metadata
            mapped[inner] = copy
            self._copies[copy] = None
            for before in inner.control_predecessors:
                if before in mapped:
                    edit.add_control_edge(mapped[before], copy)
        if self._results is not None:
            return [mapped[one] for one in self._results]
        if self._root is parameter:
            return list(state)
        return elements_of(mapped[self._root], position)

    def is_copy(self, instruction: Instruction) -> bool:
        """Whether an instruction was made by ``copy``."""
        return instruction in self._copies

    def settle(self) -> None:
        """Give fusions among the copies bodies of their own; once, when what was copied may be gone."""
        own_fusion_bodies(self._copies)


def removal_obstacle(loop: Instruction) -> str:
    """Why a loop cannot be replaced by what it computes, or an empty string."""
    if loop.has_control_edges:
        return "it has control edges"
    users = [user for user in loop.users if user.opcode == "get-tuple-element"]
    if any("sharding" in one.attributes for one in (loop, *users)):
        return "its result has a sharding"
    if any(one.has_control_edges for one in users):
        return "its result has control edges"
    if not loop.is_understood or loop.shape.is_dynamic:
        return "it has unknown attributes or dynamic dimensions"
    body, condition = loop.body, loop.condition
    shapes = (
        loop.operands[0].shape, body.parameters[0].shape, body.root.shape,
        condition.parameters[0].shape,
    )  # fmt: skip
    if not all(same_layout(loop.shape, shape) for shape in shapes):
        return "its state has several layouts"
    return ""


def replace_loop(loop: Instruction, elements: Sequence[Instruction]) -> None:
    """Let users of a loop have these values, and remove it with what it alone called."""
    if not loop.is_tuple:
        edit.replace_uses(loop, elements[0])
    else:
        found = reads(loop)
        for index, element in enumerate(elements):
            for read in found[index]:
                edit.replace_uses(read, element)
                edit.remove(read)
        if whole_uses(loop) or loop.is_root:
            whole = tuple_of(loop, elements, loop.shape)
            edit.replace_uses(loop, whole)
            whole.metadata = loop.metadata
    called, before = (loop.condition, loop.body), loop.operands
    edit.remove(loop)
    remove_uncalled(called)
    remove_unused((*before, *elements))
