"""Queries on the graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

from hloopt import graphs
from hloopt.ir.computation import Computation
from hloopt.ir.instruction import Instruction
from hloopt.ir.module import Module
from hloopt.ops import OPS
from hloopt.ops.traits import COLLECTIVE, CONTROL_FLOW, WRAPPING
from hloopt.types import TupleShape

__all__ = [
    "called_computations",
    "callees",
    "callees_first",
    "callers_first",
    "calls_by_attribute",
    "custom_call_targets",
    "exchanges",
    "execution_order",
    "has_opcode",
    "has_side_effect",
    "of_opcode",
    "open_computations",
    "post_order",
    "region_computations",
    "remembered",
    "slots_of",
    "top_level_computations",
    "wrapped_computations",
]

T = TypeVar("T")


def calls_by_attribute(instruction: Instruction) -> dict[str, tuple[Computation, ...]]:
    """The computations an instruction names, by attribute, in the order of the op's schema.

    The order in which attributes were written or set does not matter.  What the schema does not have
    comes last, by name.
    """
    found: dict[str, tuple[Computation, ...]] = {}
    for name, value in instruction.attributes.items():
        kind = type(value)
        if kind is Computation:
            found[name] = (value,)
        elif kind is tuple and value and type(value[0]) is Computation:
            found[name] = value
    if len(found) < 2:
        return found
    schema = [name for name in instruction.op.computation_attributes() if name in found]
    return {name: found[name] for name in (*schema, *sorted(found.keys() - set(schema)))}


def called_computations(instruction: Instruction) -> tuple[Computation, ...]:
    """The computations an instruction names, in the order of the op's schema."""
    groups = calls_by_attribute(instruction) if instruction.attributes else None
    if not groups:
        return ()
    return tuple([called for group in groups.values() for called in group])


def callees_first(module: Module) -> list[Computation]:
    """All computations, each after those it calls; otherwise in the module's order."""
    return list(graphs.post_order(module, callees))


def callees(computation: Computation) -> tuple[Computation, ...]:
    """The computations that instructions of a computation name, as often as they do."""
    return remembered(computation, _callees)


def _callees(computation: Computation) -> tuple[Computation, ...]:
    found: list[Computation] = []
    for instruction in computation:
        # Few instructions call anything.
        attributes = instruction.attributes
        if not attributes:
            continue
        for value in attributes.values():
            kind = type(value)
            if kind is Computation or (kind is tuple and value and type(value[0]) is Computation):
                found += called_computations(instruction)
                break
    return tuple(found)


def remembered(computation: Computation, find: Callable[[Computation], T]) -> T:
    """What ``find`` makes of a computation, found again only once the computation has changed.

    It may look at which instructions there are, at their order, opcodes and attributes, and at nothing else.
    """
    known = computation._facts
    if find not in known:
        known[find] = find(computation)
    found: T = known[find]
    return found


def of_opcode(computation: Computation, opcode: str) -> Sequence[Instruction]:
    """The instructions of an opcode as they are now, in their order."""
    return remembered(computation, _by_opcode).get(opcode, ())


def _by_opcode(computation: Computation) -> dict[str, list[Instruction]]:
    found: dict[str, list[Instruction]] = {}
    for instruction in computation:
        opcode = instruction.opcode
        if opcode in found:
            found[opcode].append(instruction)
        else:
            found[opcode] = [instruction]
    return found


def has_opcode(computation: Computation, opcodes: Collection[str]) -> bool:
    """Whether a computation has an instruction of one of these opcodes."""
    known = remembered(computation, _by_opcode)
    return any(opcode in known for opcode in opcodes)


def has_side_effect(instruction: Instruction) -> bool:
    """Whether running the instruction does more than make its result.

    By its row, by ``custom_call_has_side_effect=true``, by an attribute that is not in the table, or because a
    computation it calls contains such an instruction.
    """
    return _has_own_effect(instruction) or any(
        any(map(_has_own_effect, called))
        for called in graphs.reached(called_computations(instruction), callees)
    )


def _has_own_effect(instruction: Instruction) -> bool:
    return (
        instruction.op.side_effect
        or bool(instruction.attributes.get("custom_call_has_side_effect"))
        or not instruction.is_understood
    )


def exchanges(instruction: Instruction) -> bool:
    """Whether the result depends on what other participants have: of collectives, and of what calls them."""
    called = graphs.reached(called_computations(instruction), callees)
    return any(one.opcode in COLLECTIVE for one in chain((instruction,), *called))


def custom_call_targets(module: Module) -> set[str]:
    """The targets of all custom calls."""
    return {
        instruction.custom_call_target
        for instruction in module.instructions()
        if instruction.opcode == "custom-call"
    }


def execution_order(computation: Computation) -> list[Instruction]:
    """The order in which a computation is run: its own, but data is sent before it is waited for.

    In a module that is not scheduled, the order of the text is one of many: what does not depend on a
    ``recv-done`` between devices goes before it, so that a ring of participants does not wait for itself.
    """
    module = computation.module
    order = list(computation)
    if (module is not None and module.attributes.get("is_scheduled")) or not any(
        map(_waits, order)
    ):
        return order
    remaining, order = order, []
    while remaining:
        behind: dict[Instruction, None] = {}
        for instruction in remaining:
            needed = (*instruction.operands, *instruction.control_predecessors)
            if _waits(instruction) or any(one in behind for one in needed):
                behind[instruction] = None
            else:
                order.append(instruction)
        order += list(behind)[:1]
        remaining = list(behind)[1:]
    return order


def _waits(instruction: Instruction) -> bool:
    return instruction.opcode == "recv-done" and not instruction.attributes.get("is_host_transfer")


def post_order(
    computation: Computation, starts: Iterable[Instruction] | None = None
) -> list[Instruction]:
    """All instructions, or what ``starts`` need, each after its operands and control predecessors.

    From ``starts`` on, the order is that of operands: it does not depend on the order of the text.
    """
    return list(graphs.post_order(computation if starts is None else starts, _before))


def _before(instruction: Instruction) -> tuple[Instruction, ...]:
    operands, predecessors = instruction.operands, instruction.control_predecessors
    return (*operands, *reversed(predecessors)) if predecessors else operands


def callers_first(module: Module) -> list[Computation]:
    """``top_level_computations``, each after all that call it."""
    run = set(top_level_computations(module))
    return [computation for computation in reversed(callees_first(module)) if computation in run]


def top_level_computations(module: Module) -> list[Computation]:
    """The entry and what it reaches through control flow (while, conditional, call, async-start).

    These are the computations whose instructions are run one by one; bodies of fusions and of reduce,
    sort, scatter, map and the like are not among them.  Callers come before callees.
    """
    order: list[Computation] = []
    seen = {module.entry}
    pending = [module.entry]
    while pending:
        computation = pending.pop()
        order.append(computation)
        for instruction in computation if has_opcode(computation, CONTROL_FLOW) else ():
            if instruction.opcode in CONTROL_FLOW:
                for called in called_computations(instruction):
                    if called not in seen:
                        seen.add(called)
                        pending.append(called)
    return order


def region_computations(module: Module) -> set[Computation]:
    """Computations applied element by element: callees of reduce, sort, scatter, map and the like."""
    return {
        computation
        for computation in module
        if any(
            caller.opcode not in CONTROL_FLOW and caller.opcode != "fusion"
            for caller in computation.callers
        )
    }


def wrapped_computations(module: Module) -> set[Computation]:
    """Bodies of fusions, of asynchronous calls and of unknown ops: each belongs to its caller.

    What is in a fusion was decided with the code as it is; what an async-start wraps is a single op, and
    XLA writes it as one (``slice-start``), so that it must stay one; what an unknown op requires of its
    computations is not known.
    """
    return {
        computation
        for computation in module
        if any(
            caller.opcode in WRAPPING or caller.opcode not in OPS for caller in computation.callers
        )
    }


def open_computations(
    module: Module, order: Iterable[Computation] | None = None
) -> Iterator[Computation]:
    """All computations that are not wrapped, in the module's order or another one."""
    wrapped = wrapped_computations(module)
    return (entry for entry in (module if order is None else order) if entry not in wrapped)


def slots_of(producer: Instruction, consumer: Instruction) -> tuple[int, ...]:
    """The numbers of the consumer's operands that are the producer's result, or an element of its tuple."""
    if producer.users.get(consumer) == 1 and not isinstance(producer.shape, TupleShape):
        return (consumer.operands.index(producer),)
    return tuple(
        slot
        for slot, operand in enumerate(consumer.operands)
        if operand is producer or operand.is_element_of(producer)
    )
