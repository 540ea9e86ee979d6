"""Which kernel each instruction of a program gets, and what cannot be run at all."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import field

from hloopt.analysis.effects import Effects
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.errors import SourceError, UnsupportedError
from hloopt.interpret import has_evaluation
from hloopt.interpret.tiling import is_tiled
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import called_computations
from hloopt.kernels.kernel import ChooseKernel
from hloopt.kernels.layout_check import layout_problem
from hloopt.kernels.spec import Copy, KernelSpec, LeafPlace
from hloopt.ops.traits import CONTROL_FLOW, FREE
from hloopt.types import ArrayShape

__all__ = ["Assignment", "assign_kernels"]

_START = KernelSpec("copy", steps=(Copy(LeafPlace("operand", 0), LeafPlace("result", 0)),))


@dataclass
class Assignment:
    """What the steps of a program are made of.

    specs       how each instruction runs that has a kernel
    hosted      those that the interpreter evaluates
    iterations  the trip count of each loop where it is known: its condition does not run
    needed      instructions of which something is needed
    """

    specs: dict[Instruction, KernelSpec] = field(default_factory=dict)
    hosted: set[Instruction] = field(default_factory=set)
    iterations: dict[Instruction, int | None] = field(default_factory=dict)
    needed: set[Instruction] = field(default_factory=set)


def assign_kernels(
    module: Module,
    choose: ChooseKernel,
    free: AbstractSet[Instruction] = frozenset(),
    *,
    allow_host: bool | None = False,
    is_shared: bool = False,
) -> Assignment:
    """Choose a kernel for every instruction that will run; those that are ``free`` need none.

    Raises ``UnsupportedError`` for the first that cannot be run, with the number of others; ``allow_host`` lets
    the interpreter evaluate those that have no kernel, and is None where there is none.  Where the program
    ``is_shared``, participants meet.
    """
    assigner = _Assigner(module, choose, free, allow_host=allow_host, is_shared=is_shared)
    assigner.computation(module.entry)
    if assigner.errors:
        error = _first(assigner.errors)
        if allow_host is not None and assigner.hostable == len(assigner.errors):
            hint = "hloopt run --allow-host lets the interpreter evaluate what has no kernel"
            error.notes = (hint, *error.notes)
        raise error
    return assigner.assignment


class _Assigner:
    def __init__(
        self,
        module: Module,
        choose: ChooseKernel,
        free: AbstractSet[Instruction],
        *,
        allow_host: bool | None,
        is_shared: bool,
    ) -> None:
        self.free = free
        self.is_shared = is_shared
        self.module = module
        self.choose = choose
        self.allow_host = allow_host
        self.assignment = Assignment()
        self.errors: list[UnsupportedError] = []
        self.hostable = 0
        self.effects = Effects(module)

    def computation(self, computation: Computation) -> None:
        needed = list(_needed(computation, self.effects))
        self.assignment.needed.update(needed)
        for instruction in reversed(needed):
            if instruction.opcode in FREE or instruction in self.free:
                self.check(instruction)
            elif instruction.opcode in CONTROL_FLOW:
                self.call(instruction)
            else:
                self.instruction(instruction)

    def call(self, call: Instruction) -> None:
        self.check(call)
        if call.opcode == "while":
            self.loop(call)
        else:
            for computation in called_computations(call):
                self.computation(computation)

    def loop(self, loop: Instruction) -> None:
        condition: Computation = loop.attributes["condition"]
        iterations = None if any(map(self.effects.has, condition)) else trip_count(loop)
        self.assignment.iterations[loop] = iterations
        if iterations is None:
            self.computation(condition)
        if iterations != 0:
            self.computation(loop.attributes["body"])

    def check(self, instruction: Instruction) -> bool:
        reason = _obstacle(instruction)
        if instruction.op.family == "collective" and not self.is_shared:
            what = "brings several participants together; one device runs one"
            reason = reason or f"{instruction.opcode} {what}"
        if reason:
            self.errors.append(self.module.unsupported(instruction, reason))
        return not reason

    def instruction(self, instruction: Instruction) -> None:
        if not self.check(instruction):
            return
        if not instruction.shape.byte_size and not self.effects.has(instruction):
            return
        if instruction.opcode == "copy-start":
            self.assignment.specs[instruction] = _START
            return
        try:
            self.assignment.specs[instruction] = self.choose(instruction)[1]
        except UnsupportedError as error:
            hostable = _may_be_hosted(instruction)
            if self.allow_host and hostable:
                self.assignment.hosted.add(instruction)
                return
            self.hostable += hostable
            self.errors.append(error)


def _needed(computation: Computation, effects: Effects) -> Iterator[Instruction]:
    """What the result and side effects need, users before operands."""
    needed = {computation.root}
    for instruction in reversed(computation):
        if instruction in needed or effects.has(instruction) or instruction.control_successors:
            needed.update(instruction.operands)
            yield instruction


def _obstacle(instruction: Instruction) -> str:
    """Why an instruction cannot be planned, whatever kernels there are; empty where it can."""
    shapes = (instruction.shape, *(operand.shape for operand in instruction.operands))
    if any(shape.is_dynamic for shape in shapes):
        return f"{instruction.opcode} has a bounded dynamic dimension, which no kernel masks (cpu runs it)"
    if not instruction.is_understood:
        return f"{instruction.opcode} has attributes whose meaning is not known"
    if instruction.literal is not None and instruction.literal.elided:
        return "the value of this constant is left out of the text ({...})"
    return _tiled(instruction) or layout_problem(instruction)


def _tiled(instruction: Instruction) -> str:
    """Why a tiled layout cannot be planned: a device's memory is dense, so that ops on bytes would differ."""
    inside: list[Instruction] = [instruction]
    if instruction.opcode == "fusion":
        inside += instruction.attributes["calls"]
    for one in inside:
        if one.opcode == "bitcast":
            for shape in (one.operands[0].shape, one.shape):
                if isinstance(shape, ArrayShape) and is_tiled(shape):
                    who = "it" if one is instruction else one.name
                    return f"{who} looks at the bytes of a tiled layout, {shape}"
    return ""


def _may_be_hosted(instruction: Instruction) -> bool:
    return has_evaluation(instruction.opcode) and instruction.op.family != "async"


def _first(errors: list[UnsupportedError]) -> UnsupportedError:
    """The first error in the text; the others are counted in a note."""
    first = min(errors, key=lambda error: (error.line, error.column))
    if len(errors) == 1:
        return first
    others = [error for error in errors if error is not first]
    notes = [_count(others), *(f"{_place(error)}{error.message}" for error in others[:9])]
    return UnsupportedError(
        first.message,
        name=first.name,
        line=first.line,
        column=first.column,
        excerpt=first.excerpt,
        width=first.width,
        notes=(*notes, *first.notes),
    )


def _count(errors: list[UnsupportedError]) -> str:
    return f"{len(errors)} more instruction{'s' if len(errors) > 1 else ''} cannot be run"


def _place(error: SourceError) -> str:
    return f"{error.name}:{error.line}:{error.column}: " if error.line else ""
