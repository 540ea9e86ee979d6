"""Changing what a while carries: the one place that keeps state, condition, body and users consistent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

from hloopt.analysis.backend_config import BackendConfig, config_text, read_backend_config
from hloopt.ir import Computation, Instruction, build, edit
from hloopt.ir.signatures import own_computation, remove_uncalled
from hloopt.ir.walk import called_computations, has_side_effect
from hloopt.types import Shape, Sharding, TupleShape, Verbatim

__all__ = [
    "CarriedState",
    "by_element",
    "element_shardings",
    "growth_obstacle",
    "init_elements",
    "is_read_by_element",
    "keep_shardings",
    "obstacle",
    "reads",
    "remove_unused",
    "set_state_shape",
    "states",
    "tuple_of",
    "used_reads",
    "uses",
    "whole_uses",
]


_BY_ELEMENT = ("origin", "statistics")
_Change: TypeAlias = Callable[[list[Shape]], list[Shape]]


def obstacle(loop: Instruction) -> str:
    """Why the state of a loop cannot be changed, or an empty string."""
    shape = loop.shape
    body, condition = loop.body, loop.condition
    parts = (
        loop, loop.operands[0], body.parameters[0], body.root, condition.parameters[0],
    )  # fmt: skip
    if not isinstance(shape, TupleShape):
        return "its state is not a tuple"
    if shape.is_dynamic:
        return "its state has dynamic dimensions"
    if not all(part.is_understood for part in parts):
        return "it has unknown attributes"
    if any(by_element(part) and element_shardings(part) is None for part in parts):
        return "its sharding is given by elements of elements"
    return ""


def growth_obstacle(loop: Instruction) -> str:
    """Why the state of a loop cannot have other elements than it has, or an empty string."""
    parts = (loop, loop.operands[0], *states(loop)[:2], loop.body.root)
    if any(map(by_element, parts)):
        return "its sharding is given element by element"
    return obstacle(loop)


def reads(state: Instruction) -> dict[int, list[Instruction]]:
    """The get-tuple-elements of a state, by the element."""
    found: dict[int, list[Instruction]] = defaultdict(list)
    for user in state.users:
        if user.opcode == "get-tuple-element":
            found[user.tuple_index].append(user)
    return found


def used_reads(state: Instruction) -> dict[int, list[Instruction]]:
    """Those of them that have users."""
    return {index: [one for one in found if one.is_used] for index, found in reads(state).items()}


def states(loop: Instruction) -> tuple[Instruction, Instruction, Instruction]:
    """The state in condition and body, and behind the loop."""
    return loop.condition.parameters[0], loop.body.parameters[0], loop


def uses(loop: Instruction) -> dict[int, list[Instruction]]:
    """The reads in condition, body and behind the loop that have users themselves, by the element."""
    found: dict[int, list[Instruction]] = defaultdict(list)
    for state in states(loop):
        for index, group in reads(state).items():
            found[index] += [read for read in group if read.is_used]
    return found


def whole_uses(state: Instruction) -> list[Instruction]:
    """The users that take more than one element."""
    return [user for user in state.users if user.opcode != "get-tuple-element"]


def is_read_by_element(loop: Instruction) -> bool:
    """Whether a loop's state is a tuple, made for it in its body, of which all read single elements.

    Its computations are its own, and no control edge or sharding ties the state inside of them.
    """
    root = loop.body.root
    return (
        loop.is_tuple
        and root.opcode == "tuple"
        and not root.users
        and all(sum(one.callers.values()) == 1 for one in (loop.body, loop.condition))
        and not any(one.is_tied for one in (root, *states(loop)[:2]))
        and not any(state.is_root or whole_uses(state) for state in states(loop))
    )


def init_elements(loop: Instruction) -> tuple[Instruction, ...]:
    """The elements before the loop, taken out of their tuple right before it where that is needed."""
    return build.elements(loop, loop.operands[0])


class CarriedState:
    """A loop that is being changed: its operand and its body's root are private tuples, which nothing
    else uses, its condition and body are called by it alone, and only get-tuple-elements read its state.

    With ``keeps_state``, what the state consists of will not change, and its result is used as it was.
    """

    def __init__(self, loop: Instruction, *, keeps_state: bool = False) -> None:
        self.loop = loop
        own_computation(loop, "condition")
        own_computation(loop, "body")
        self.condition: Computation = loop.condition
        self.body: Computation = loop.body
        self.states = (self.condition.parameters[0], self.body.parameters[0])
        self._own_root()
        for state in self.states:
            _to_the_front(state)
            _only_read(state)
        if not keeps_state:
            self._own_init()
            _only_read(loop)

    @property
    def init(self) -> Instruction:
        """The tuple before the loop."""
        return self.loop.operands[0]

    @property
    def root(self) -> Instruction:
        """The tuple that the body returns."""
        return self.body.root

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of the elements."""
        return self.loop.elements

    def drop(self, indices: Collection[int]) -> None:
        """Take elements out of the state; nothing but their own next values may need them."""
        gone = set(indices)
        kept = [index for index in range(len(self.shapes)) if index not in gone]
        unused = [part.operands[index] for part in (self.init, self.root) for index in gone]
        edit.set_operands(self.init, tuple(self.init.operands[index] for index in kept))
        edit.set_operands(self.root, tuple(self.root.operands[index] for index in kept))
        for part in (self.init, self.root, *self.states, self.loop):
            keep_shardings(part, kept)
        for state in (*self.states, self.loop):
            found = reads(state)
            for index in sorted(gone):
                for read in found[index]:
                    if state is self.loop:
                        edit.remove(read)
                    else:
                        _remove_with_users(read)
            renumbered = {old: new for new, old in enumerate(kept)}
            for user in state.users:
                edit.set_attribute(user, "index", renumbered[user.tuple_index])
        self.reshape(lambda shapes: [shapes[index] for index in kept])
        self.renumber_config({old: new for new, old in enumerate(kept)})
        remove_unused(unused)

    def add(self, values: Sequence[Instruction]) -> range:
        """Carry values from outside, which the body passes through; the new elements' indices."""
        first = len(self.shapes)
        more = [value.shape for value in values]
        edit.set_operands(self.init, (*self.init.operands, *values))
        self.reshape(lambda shapes: [*shapes, *more])
        added = range(first, first + len(more))
        new = tuple(build.element(self.root, self.states[1], index) for index in added)
        edit.set_operands(self.root, (*self.root.operands, *new))
        return added

    def reshape(self, change: _Change) -> None:
        """Change the shapes of the elements everywhere; what is given by element only is dropped."""
        for part in (self.init, self.root, *self.states, self.loop):
            set_state_shape(part, TupleShape(tuple(change(list(part.elements)))))

    def renumber_config(self, renumbered: dict[int, int]) -> None:
        """Let the backend_config speak of elements by their new indices; those without one are gone."""
        config = read_backend_config(self.loop)
        if config:
            edit.set_attribute(
                self.loop, "backend_config", config_text(self.loop, _moved(config, renumbered))
            )

    def _own_init(self) -> None:
        source = self.loop.operands[0]
        if source.opcode == "tuple" and len(source.users) == 1 and not source.is_root:
            return
        elements = init_elements(self.loop)
        edit.set_operands(self.loop, (tuple_of(self.loop, elements, self.loop.shape),))

    def _own_root(self) -> None:
        root = self.body.root
        if root.opcode != "tuple" or root.users:
            elements = build.elements(self.body, root)
            edit.set_root(self.body, tuple_of(self.body, elements, root.shape))


def set_state_shape(part: Instruction, shape: Shape) -> None:
    """Change what a loop carries in one place; what is said of the elements one by one is dropped."""
    edit.set_shape(part, shape)
    for name in _BY_ELEMENT:
        edit.set_attribute(part, name, None)


def _moved(config: BackendConfig, renumbered: dict[int, int]) -> BackendConfig:
    """Numbers of elements in XLA's description of a loop, where the elements are still there."""
    changed = dict(config)
    variable = config.get("known_induction_variable")
    if isinstance(variable, dict):
        index = renumbered.get(int(variable.get("tuple_index", 0)))
        if index is None:
            del changed["known_induction_variable"]
            changed.pop("known_init_step", None)
        else:
            changed["known_induction_variable"] = {**variable, "tuple_index": str(index)}
    dynamic = config.get("dynamic_variables")
    if isinstance(dynamic, list):
        rows = ((row, renumbered.get(int(row.get("tuple_index", 0)))) for row in dynamic)
        changed["dynamic_variables"] = [
            {**row, "tuple_index": str(index)} for row, index in rows if index is not None
        ]
    return changed


def _to_the_front(parameter: Instruction) -> None:
    """A text may have constants before it, and what takes their place will read the state."""
    edit.move_before(next(iter(parameter.home)), parameter)


def tuple_of(
    position: Instruction | Computation, elements: Iterable[Instruction], shape: Shape
) -> Instruction:
    """A tuple with exactly this shape, right before an instruction or at the end of a computation."""
    return build.make(position, "tuple", tuple(elements), shape=shape)


def _only_read(state: Instruction) -> None:
    """Give users of a whole state a tuple of its elements."""
    computation, users = state.home, whole_uses(state)
    if not users and not state.is_root:
        return
    # Made before the state, then behind it: the graph has no other handle.
    elements = tuple(build.element(state, state, at) for at in range(len(state.elements)))
    whole = tuple_of(state, elements, state.shape)
    edit.move_before(elements[0] if elements else whole, state)
    for user in users:
        if user is not whole:
            edit.replace_operand(user, state, whole)
    if state.is_root:
        edit.set_root(computation, whole)


def _remove_with_users(instruction: Instruction) -> None:
    """Remove an instruction and all that depends on it."""
    stack = [instruction]
    while stack:
        top = stack[-1]
        if top.computation is None:
            stack.pop()
        elif top.users:
            stack.extend(top.users)
        else:
            edit.remove(top)
            stack.pop()


def remove_unused(instructions: Iterable[Instruction], keep: Collection[Instruction] = ()) -> None:
    """Remove those of some instructions that nothing needs, and with them what only they needed."""
    pending = list(instructions)
    while pending:
        instruction = pending.pop()
        if (
            instruction.computation is not None
            and instruction not in keep
            and _is_unused(instruction)
        ):
            pending.extend(instruction.operands)
            called = tuple(called_computations(instruction))
            edit.remove(instruction)
            remove_uncalled(called)


def _is_unused(instruction: Instruction) -> bool:
    return not (
        instruction.users
        or instruction.is_root
        or instruction.opcode == "parameter"
        or instruction.has_control_edges
        or instruction.op.family in ("collective", "async", "host")
        or has_side_effect(instruction)
    )


def by_element(instruction: Instruction) -> bool:
    """Whether each element of a tuple has a separate sharding, or may have one."""
    sharding = Sharding.of(instruction.attributes)
    return "sharding" in instruction.attributes if sharding is None else bool(sharding.elements)


def element_shardings(instruction: Instruction) -> tuple[Sharding, ...] | None:
    """The shardings of the elements; None where there is not one for each of them."""
    sharding, shape = Sharding.of(instruction.attributes), instruction.shape
    parts = sharding.elements if sharding is not None else None
    if parts is None or not isinstance(shape, TupleShape) or len(parts) != len(shape.elements):
        return None
    if any(isinstance(element, TupleShape) for element in shape.elements):
        return None
    return parts


def keep_shardings(instruction: Instruction, kept: Collection[int]) -> None:
    """Leave out the shardings of all other elements; to be called while the shape still has them."""
    if by_element(instruction):
        parts = element_shardings(instruction) or ()
        left = tuple(part for index, part in enumerate(parts) if index in kept)
        sharding = Verbatim.of(Sharding(elements=left)) if left else None
        edit.set_attribute(instruction, "sharding", sharding)
