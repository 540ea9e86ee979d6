"""The only place where the graph changes.

Every function keeps operands and users, control edges, called computations and callers, names and
positions in step on both sides.  Costs are proportional to what changes, never to the computation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hloopt.ir.computation import Computation
from hloopt.ir.instruction import Instruction
from hloopt.ir.links import (
    add_parameter,
    attach,
    computations_in,
    drop_call,
    drop_use,
    edges_without,
    home_of,
    link,
    operands_with,
    register,
    renumber_without,
    unlink,
)
from hloopt.ir.module import Module
from hloopt.types import Shape

__all__ = [
    "add_computation",
    "add_control_edge",
    "add_operands",
    "append",
    "append_unnamed",
    "dissolve",
    "drop_calls",
    "drop_control_edges",
    "exchange_bodies",
    "insert_before",
    "move_after",
    "move_before",
    "permute_parameters",
    "remove",
    "remove_computation",
    "remove_operands",
    "remove_parameters",
    "rename",
    "rename_computation",
    "replace_instruction",
    "replace_many",
    "replace_operand",
    "replace_uses",
    "set_attribute",
    "set_operand",
    "set_operands",
    "set_root",
    "set_shape",
    "splice",
    "take_control_edges",
    "take_over",
]


def append(computation: Computation, instruction: Instruction) -> Instruction:
    """Put a new instruction at the end of a computation and register all its links."""
    attach(computation, instruction, computation._last, None)
    return instruction


def append_unnamed(computation: Computation, instruction: Instruction) -> Instruction:
    """As ``append``, into a temporary computation: the name may be taken, and is not registered."""
    instruction.computation = computation
    link(computation, instruction, computation._last, None)
    register(computation, instruction)
    return instruction


def insert_before(position: Instruction, instruction: Instruction) -> Instruction:
    """Put a new instruction right before ``position`` and register all its links."""
    computation = home_of(position)
    attach(computation, instruction, position._previous, position)
    return instruction


def move_before(position: Instruction, instruction: Instruction) -> None:
    """Move an instruction of the same computation to right before ``position``."""
    if position is instruction:
        return
    computation = home_of(position)
    unlink(computation, instruction)
    link(computation, instruction, position._previous, position)


def move_after(position: Instruction, instruction: Instruction) -> None:
    """Move an instruction of the same computation to right after ``position``."""
    if position is instruction or position._next is instruction:
        return
    computation = home_of(position)
    unlink(computation, instruction)
    link(computation, instruction, position, position._next)


def put_in_order(computation: Computation, order: Sequence[Instruction]) -> None:
    """Reorder the instructions of a computation.

    Raises ``ValueError`` where ``order`` has not as many; each of them is in the computation, and there once.
    """
    if len(order) != len(computation):
        raise ValueError(f"{len(order)} of {len(computation)} instructions of {computation.name}")
    computation._facts.clear()
    previous: Instruction | None = None
    for instruction in order:
        instruction._previous = previous
        if previous is not None:
            previous._next = instruction
        previous = instruction
    computation._last = previous
    computation._first = order[0] if order else None
    if previous is not None:
        previous._next = None


def take_over(computation: Computation, instruction: Instruction) -> None:
    """Move an instruction of another computation to the end of this one; its operands follow."""
    home = home_of(instruction)
    unlink(home, instruction)
    del home.by_name[instruction.name]
    if instruction.opcode == "parameter":
        home.parameters.remove(instruction)
        add_parameter(computation, instruction)
    instruction.name = computation.fresh_name(instruction.name)
    computation.by_name[instruction.name] = instruction
    instruction.computation = computation
    link(computation, instruction, computation._last, None)


def splice(
    position: Instruction, source: Computation, given: Mapping[Instruction, Instruction]
) -> list[Instruction]:
    """Move all that ``source`` computes to right before ``position``, with what is given for its parameters.

    What has moved has the names, users and places among callers that a copy would have.  ``source``, which is
    to be removed, keeps parameters that nothing reads; nothing in it may have control edges.
    """
    home, moved, entry = home_of(position), [], source._first
    home._facts.clear()
    source._facts.clear()
    while entry is not None:
        if entry.opcode != "parameter":
            moved.append(entry)
        entry = entry._next
    previous, names = position._previous, home.by_name
    for entry in moved:
        name = entry.name if entry.name not in names else home.fresh_name(entry.name)
        entry.name, entry.computation, entry._previous = name, home, previous
        names[name] = entry
        if previous is None:
            home._first = entry
        else:
            previous._next = entry
        previous = entry
        entry.users.clear()
        entry.operands = tuple([given.get(operand, operand) for operand in entry.operands])
        for operand in entry.operands:
            operand.users[entry] = operand.users.get(entry, 0) + 1
        for value in entry.attributes.values():
            if type(value) is tuple or type(value) is Computation:
                for called in computations_in(value):
                    called.callers[entry] = called.callers.pop(entry)
    position._previous = previous
    if previous is not None:
        previous._next = position
    home._count += len(moved)
    source._first = source._last = None
    source._count = 0
    for parameter in source.parameters:
        parameter.users.clear()
        link(source, parameter, source._last, None)
    return moved


def exchange_bodies(left: Instruction, right: Instruction) -> None:
    """Exchange the computations of two fusions of one module; names and places stay where they were.

    Raises ``ValueError`` for fusions of different modules.
    """
    mine = left.calls
    other = right.calls
    module = mine.module
    if module is None or other.module is not module:
        raise ValueError(f"{left.name} and {right.name} are in different modules")
    set_attribute(left, "calls", other)
    set_attribute(right, "calls", mine)
    mine.name, other.name = other.name, mine.name
    mine.offset, other.offset = other.offset, mine.offset
    mine._serial, other._serial = other._serial, mine._serial
    module.computations[mine.name] = mine
    module.computations[other.name] = other


def replace_uses(old: Instruction, new: Instruction) -> None:
    """Make every user of ``old``, and the root if it is that, use ``new``.  Control edges stay."""
    if old is new:
        return
    for user, count in list(old.users.items()):
        if user is new:
            continue
        user.operands = operands_with(user, old, new, count)
        new.users[user] = new.users.get(user, 0) + count
        del old.users[user]
    computation = home_of(old)
    if computation.root is old:
        computation.root = new


def replace_many(mapping: Mapping[Instruction, Instruction]) -> None:
    """``replace_uses`` for several at once: an instruction that uses several of them is rewritten once.

    No replacement is to be replaced itself.
    """
    users: dict[Instruction, None] = {}
    for old in mapping:
        users.update(dict.fromkeys(old.users))
    for user in users:
        set_operands(user, tuple(mapping.get(operand, operand) for operand in user.operands))
    for old, new in mapping.items():
        computation = home_of(old)
        if computation.root is old:
            computation.root = new


def replace_instruction(old: Instruction, new: Instruction) -> None:
    """``replace_uses``, transfer control edges and metadata, and remove ``old``.

    Metadata goes only to a ``new`` that was made here and has none: what stood in the text keeps its own.
    ``new`` takes the name of ``old`` when it was made here (it has no place in a text) and ``old`` has
    one that the user knows.
    """
    replace_uses(old, new)
    take_control_edges(old, new)
    if new.metadata is None and new.offset < 0:
        new.metadata = old.metadata
    name, known = old.name, old.offset >= 0 and new.offset < 0
    computation = home_of(old)
    if old.users:
        return
    removable = old.opcode != "parameter"
    if removable:
        remove(old)
    if known and removable and new.computation is computation:
        rename(new, name)
        new.offset = old.offset


def set_operand(instruction: Instruction, index: int, value: Instruction) -> None:
    """Replace one operand; ``index`` is its number, from 0."""
    operands = list(instruction.operands)
    operands[index] = value
    set_operands(instruction, tuple(operands))


def replace_operand(instruction: Instruction, old: Instruction, new: Instruction) -> None:
    """Make one instruction use ``new`` wherever it uses ``old``; other users stay."""
    set_operands(instruction, tuple(new if one is old else one for one in instruction.operands))


def set_operands(instruction: Instruction, operands: tuple[Instruction, ...]) -> None:
    """Replace the operand list."""
    for operand in instruction.operands:
        drop_use(operand, instruction)
    instruction.operands = operands
    for operand in operands:
        operand.users[instruction] = operand.users.get(instruction, 0) + 1


def add_operands(instruction: Instruction, values: tuple[Instruction, ...]) -> None:
    """Append operands; the places among these operands' users stay."""
    instruction.operands += values
    for operand in values:
        operand.users[instruction] = operand.users.get(instruction, 0) + 1


def remove_operands(instruction: Instruction, gone: Collection[Instruction]) -> None:
    """Remove every operand that is one of ``gone``."""
    for operand in instruction.operands:
        if operand in gone:
            drop_use(operand, instruction)
    instruction.operands = tuple([entry for entry in instruction.operands if entry not in gone])


def set_attribute(instruction: Instruction, name: str, value: Any) -> None:
    """Set an attribute, or remove it when ``value`` is None; callers of computations follow."""
    if instruction.computation is not None:
        instruction.computation._facts.clear()
    for computation in computations_in(instruction.attributes.get(name)):
        drop_call(computation, instruction)
    if value is None:
        instruction.attributes.pop(name, None)
    else:
        instruction.attributes[name] = value
    for computation in computations_in(value):
        computation.callers[instruction] = computation.callers.get(instruction, 0) + 1


def permute_parameters(computation: Computation, order: Sequence[int]) -> None:
    """Number the parameters anew: ``order`` has the numbers they had, the first one first.

    Callers must pass their operands in this order.  Raises ``ValueError`` for what is not a permutation.
    """
    if sorted(order) != list(range(len(computation.parameters))):
        raise ValueError(
            f"{list(order)} is not an order of {len(computation.parameters)} parameters"
        )
    computation.parameters[:] = [computation.parameters[number] for number in order]
    for number, parameter in enumerate(computation.parameters):
        parameter.attributes["parameter_number"] = number


def set_shape(instruction: Instruction, shape: Shape) -> None:
    """Change the result shape (a parameter of a new signature, a tuple that lost elements)."""
    instruction.shape = shape


def set_root(computation: Computation, root: Instruction) -> None:
    """Make another instruction of the computation its root.  Raises ``ValueError`` for one of another."""
    if root.computation is not computation:
        raise ValueError(f"{root.name} is not in computation {computation.name}")
    computation.root = root


def rename(instruction: Instruction, name: str) -> None:
    """Give an instruction a name; it is made unique in its computation."""
    computation = home_of(instruction)
    if instruction.name == name:
        return
    del computation.by_name[instruction.name]
    instruction.name = computation.fresh_name(name)
    computation.by_name[instruction.name] = instruction


def rename_all(computation: Computation, names: Mapping[Instruction, str]) -> None:
    """Give instructions of a computation names, which no others have; they may exchange theirs."""
    for instruction in names:
        del computation.by_name[instruction.name]
    for instruction, name in names.items():
        instruction.name = computation.fresh_name(name)
        computation.by_name[instruction.name] = instruction


def add_control_edge(before: Instruction, after: Instruction) -> None:
    """``before`` must run before ``after``."""
    if before not in after.control_predecessors:
        after.control_predecessors += (before,)
        before.control_successors += (after,)


def drop_control_edges(instruction: Instruction) -> None:
    """Let an instruction run whenever its operands are there."""
    for before in instruction.control_predecessors:
        before.control_successors = edges_without(before.control_successors, instruction)
    instruction.control_predecessors = ()


def take_control_edges(source: Instruction, target: Instruction) -> None:
    """Move all control edges of ``source`` to ``target``; an edge between the two is dropped."""
    for before in source.control_predecessors:
        before.control_successors = edges_without(before.control_successors, source)
        if before is not target:
            add_control_edge(before, target)
    for after in source.control_successors:
        after.control_predecessors = edges_without(after.control_predecessors, source)
        if after is not target:
            add_control_edge(target, after)
    source.control_predecessors = ()
    source.control_successors = ()


def remove(instruction: Instruction) -> None:
    """Take an unused instruction out; raises ``ValueError`` while anything depends on it.

    Its control predecessors become those of its control successors, so that order survives.
    """
    computation = home_of(instruction)
    if instruction.users or computation.root is instruction:
        raise ValueError(f"{instruction.name} is still used")
    for after in instruction.control_successors:
        for before in instruction.control_predecessors:
            add_control_edge(before, after)
        after.control_predecessors = edges_without(after.control_predecessors, instruction)
    for before in instruction.control_predecessors:
        before.control_successors = edges_without(before.control_successors, instruction)
    instruction.control_predecessors = instruction.control_successors = ()
    for operand in instruction.operands:
        drop_use(operand, instruction)
    for value in instruction.attributes.values():
        for called in computations_in(value):
            drop_call(called, instruction)
    unlink(computation, instruction)
    del computation.by_name[instruction.name]
    if instruction.opcode == "parameter":
        renumber_without(computation, (instruction,))
    instruction.operands = ()
    instruction.computation = None


def remove_parameters(computation: Computation, gone: Collection[Instruction]) -> None:
    """Take several unused parameters out; those after them move up.

    Callers must no longer pass operands for them.  Raises ``ValueError`` while anything uses one.
    """
    for parameter in gone:
        if parameter.users or computation.root is parameter:
            raise ValueError(f"{parameter.name} is still used")
        unlink(computation, parameter)
        del computation.by_name[parameter.name]
        parameter.computation = None
    renumber_without(computation, gone)


def add_computation(module: Module, computation: Computation) -> Computation:
    """Register a computation under a unique name; ``walk.callees_first`` finds its place."""
    computation.name = module.fresh_name(computation.name)
    computation.module = module
    module.computations[computation.name] = computation
    return computation


def rename_computation(computation: Computation, name: str) -> None:
    """Give a computation a name, made unique in its module.  Raises ``ValueError`` for one in no module."""
    module = computation.module
    if module is None:
        raise ValueError(f"computation {computation.name} is in no module")
    if computation.name == name:
        return
    del module.computations[computation.name]
    computation.name = module.fresh_name(name)
    module.computations[computation.name] = computation


def remove_computation(computation: Computation) -> None:
    """Remove a computation from its module, and its calls with it.  Raises ``ValueError`` if it has callers."""
    module = computation.module
    if module is None or computation.callers or module.entry is computation:
        raise ValueError(f"computation {computation.name} is still used")
    drop_calls(computation)
    del module.computations[computation.name]
    computation.module = None


def drop_calls(computation: Computation) -> None:
    """Unregister the calls made by a computation that is no longer used."""
    for instruction in computation:
        for value in instruction.attributes.values():
            for called in computations_in(value):
                drop_call(called, instruction)


def dissolve(computation: Computation) -> None:
    """As ``drop_calls``, and all links between instructions are cut, so that memory is freed at once."""
    drop_calls(computation)
    for instruction in list(computation):
        instruction.users.clear()
        instruction._next = instruction._previous = instruction.computation = None
    computation._first = computation._last = None
    computation._facts.clear()
    computation.parameters.clear()
