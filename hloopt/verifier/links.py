"""The graph itself: links in step on both sides, operands before users, calls without cycles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.verifier.constraints import Fault

__all__ = ["call_faults", "link_faults", "order_faults"]

# What walks calls by calling itself can rely on it; real programs have fewer than ten.
_MOST_LEVELS = 64


def link_faults(module: Module, computation: Computation) -> Iterator[Fault]:
    """Membership, names, parameters, users, control edges and callers of one computation."""
    if (
        module.computations.get(computation.name) is not computation
        or computation.module is not module
    ):
        yield Fault(computation, "name", "is not registered in its module under its name")
    yield from _parameter_faults(computation)
    count = 0
    uses: Counter[Instruction] = Counter()
    for instruction in computation:
        count += 1
        if instruction.computation is not computation:
            yield Fault(
                instruction, "link", f"does not know that it is in computation %{computation.name}"
            )
        if computation.by_name.get(instruction.name) is not instruction:
            yield Fault(instruction, "name", f"is not found by its name in %{computation.name}")
        uses.update(instruction.operands)
        yield from _edge_faults(instruction)
    yield from _control_faults(computation)
    if count != len(computation) or count != len(computation.by_name):
        yield Fault(
            computation,
            "link",
            f"counts {len(computation)} instructions and {len(computation.by_name)} names, "
            f"and has {count}",
        )
    for instruction in computation:
        listed = sum(instruction.users.values())
        if listed != uses[instruction]:
            yield Fault(
                instruction,
                "users",
                f"lists {listed} uses, instructions use it {uses[instruction]} times",
            )


def _edge_faults(instruction: Instruction) -> Iterator[Fault]:
    """Operands and calls of one instruction, seen from the other side."""
    for operand, count in Counter(instruction.operands).items():
        listed = operand.users.get(instruction, 0)
        if listed != count:
            yield Fault(
                instruction,
                "users",
                f"uses %{operand.name} {count} times, which lists it as a user {listed} times",
            )
    for called, count in Counter(walk.called_computations(instruction)).items():
        listed = called.callers.get(instruction, 0)
        if listed != count:
            yield Fault(
                instruction,
                "caller",
                f"calls %{called.name} {count} times, which lists it as a caller {listed} times",
            )


def _control_faults(computation: Computation) -> Iterator[Fault]:
    """Control edges that only one of their ends records."""
    known_after: dict[tuple[Instruction, Instruction], None] = {}
    known_before: dict[tuple[Instruction, Instruction], None] = {}
    for instruction in computation:
        for before in instruction.control_predecessors:
            known_after[before, instruction] = None
        for after in instruction.control_successors:
            known_before[instruction, after] = None
    for before, after in known_after:
        if (before, after) not in known_before:
            yield Fault(after, "control-edge", f"is not a control successor of %{before.name}")
    for before, after in known_before:
        if (before, after) not in known_after:
            message = f"does not list %{before.name} as its control predecessor"
            yield Fault(after, "control-edge", message)


def _parameter_faults(computation: Computation) -> Iterator[Fault]:
    """Parameter numbers are 0, 1, 2 ... and the list of parameters is the parameters."""
    listed = computation.parameters
    for number, parameter in enumerate(listed):
        found = parameter.attributes.get("parameter_number")
        if found != number:
            message = f"has parameter number {found}, parameters must be dense: {number}"
            yield Fault(parameter, "parameter", message)
        if parameter.computation is not computation:
            message = f"is a parameter of %{computation.name} but not in it"
            yield Fault(parameter, "parameter", message)
    count = sum(instruction.opcode == "parameter" for instruction in computation)
    if count != len(listed):
        message = f"lists {len(listed)} parameters and has {count}"
        yield Fault(computation, "parameter", message)


def order_faults(computation: Computation) -> Iterator[Fault]:
    """A root that is there; operands and control predecessors that come first."""
    root: Instruction | None = getattr(computation, "root", None)
    if root is None or root.computation is not computation:
        yield Fault(computation, "root", "has no root among its instructions")
    seen: set[Instruction] = set()
    late = False
    for instruction in computation:
        for what, before in _dependences(instruction):
            if before in seen:
                continue
            if before.computation is not computation:
                yield Fault(
                    instruction,
                    "operand-order",
                    f"{what} %{before.name} is not in its computation %{computation.name}",
                )
                continue
            late = True
            yield Fault(instruction, "operand-order", f"comes before its {what} %{before.name}")
        seen.add(instruction)
    if late:
        yield from _cycle_faults(computation)


def _dependences(instruction: Instruction) -> Iterator[tuple[str, Instruction]]:
    for operand in instruction.operands:
        yield "operand", operand
    for before in instruction.control_predecessors:
        yield "control predecessor", before


def _cycle_faults(computation: Computation) -> Iterator[Fault]:
    """What is left when everything that waits for nothing has been taken away, again and again."""
    waiting = {
        instruction: sum(
            before.computation is computation for _, before in _dependences(instruction)
        )
        for instruction in computation
    }
    ready = [instruction for instruction, count in waiting.items() if not count]
    while ready:
        done = ready.pop()
        del waiting[done]
        for after, count in (*done.users.items(), *((one, 1) for one in done.control_successors)):
            if after in waiting:
                waiting[after] -= count
                if waiting[after] == 0:
                    ready.append(after)
    if waiting:
        names = ", ".join(f"%{instruction.name}" for instruction in list(waiting)[:5])
        yield Fault(computation, "cycle", f"has a cycle among or before {names}")


def call_faults(module: Module) -> Iterator[Fault]:
    """An entry; calls that stay in the module and do not come back to where they started."""
    entry: Computation | None = getattr(module, "entry", None)
    if entry is None or module.computations.get(entry.name) is not entry:
        yield Fault(module, "entry", "has no entry computation among its computations")
    callees: dict[Computation, dict[Computation, Instruction]] = {}
    for computation in module:
        called: dict[Computation, Instruction] = {}
        for instruction in computation:
            for target in walk.called_computations(instruction):
                called.setdefault(target, instruction)
        callees[computation] = called
        for target, instruction in called.items():
            if module.computations.get(target.name) is not target:
                message = f"calls %{target.name}, which is not in the module"
                yield Fault(instruction, "caller", message)
        for caller in computation.callers:
            if caller.computation is None or caller.computation.module is not module:
                message = f"lists a caller %{caller.name} outside of the module"
                yield Fault(computation, "caller", message)
    yield from _recursion_faults(callees)


def _recursion_faults(
    callees: dict[Computation, dict[Computation, Instruction]],
) -> Iterator[Fault]:
    """Calls that lead back to a computation on the way, or too deep; each is reported once."""
    finished: dict[Computation, int] = {}  # how many levels of calls are below it
    for start, first in callees.items():
        if start in finished:
            continue
        path = {start}
        stack = [(start, iter(first.items()))]
        while stack:
            computation, calls = stack[-1]
            step = next(calls, None)
            if step is None:
                depth = _depth(callees[computation], finished)
                if depth == _MOST_LEVELS + 1:
                    message = f"has more than {_MOST_LEVELS} levels of calls below it"
                    yield Fault(computation, "call-depth", message)
                finished[computation] = depth
                path.discard(computation)
                stack.pop()
                continue
            target, instruction = step
            if target in path:
                message = f"calls %{target.name}, which calls it again: HLO has no recursion"
                yield Fault(instruction, "recursion", message)
            elif target not in finished and target in callees:
                path.add(target)
                stack.append((target, iter(callees[target].items())))


def _depth(called: Iterable[Computation], known: dict[Computation, int]) -> int:
    return max((known.get(target, 0) + 1 for target in called), default=0)
