"""Reading plans from JSON; ``plan_json`` says what they look like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from hloopt.analysis.layout import same_layout
from hloopt.interpret.control import branches
from hloopt.ir import Instruction, Module
from hloopt.kernels.buffers.packing import ALIGNMENT
from hloopt.kernels.buffers.slots import array_leaves
from hloopt.kernels.plan import (
    Allocation,
    Buffer,
    ConditionalStep,
    HostStep,
    KernelStep,
    Move,
    Plan,
    PlanStep,
    WhileStep,
)
from hloopt.kernels.spec import Copy, Launch, Step
from hloopt.kernels.spec_json import SpecReader
from hloopt.text.grammar import shape_of
from hloopt.text.problem import Problem
from hloopt.types import ArrayShape, Shape

__all__ = ["FORMAT", "VERSION", "PlanReader"]

VERSION: Final = 1
"""Raised when a field changes its meaning or goes away."""

FORMAT: Final = "hloopt plan"
_KINDS: Final = ("parameter", "constant", "arena", "result")


class PlanReader(SpecReader):
    """Reads what ``plan_json.dump_plan`` gives, for a module."""

    def __init__(self, module: Module) -> None:
        super().__init__("plan")
        self.module = module
        self.allocations: tuple[Allocation, ...] = ()

    def plan(self, content: Any) -> Plan:
        """The plan of what JSON holds."""
        content = self.typed(content, dict, "an object")
        if content.get("format") != FORMAT:
            raise self.error(f"'format' is not '{FORMAT}'")
        if content.get("version") != VERSION:
            raise self.error(f"version {content.get('version')!r}; this hloopt reads {VERSION}")
        self.allocations = tuple(self.each(content, "allocations", self.allocation))
        arenas = sum(entry.kind == "arena" for entry in self.allocations)
        if arenas > 1:
            raise self.error(f"{arenas} arenas, where one is enough")
        wanted = [leaf for one in self.module.entry.parameters for leaf in array_leaves(one.shape)]
        parameters = self.parameters(content, wanted)
        results = self.leaves(
            content,
            "results",
            [leaf for leaf in array_leaves(self.module.entry.root.shape) if leaf.dtype.is_array],
        )
        self.check_ends(parameters, results)
        steps = tuple(self.each(content, "steps", self.step))
        peak = self.field(content, "peak", int, "a number")
        bound = self.field(content, "live_bound", int, "a number")
        return Plan(self.allocations, parameters, results, steps, peak, bound)

    def parameters(
        self, content: dict[str, Any], wanted: list[ArrayShape]
    ) -> tuple[Buffer | None, ...]:
        """Buffers of the leaves of parameters, None for tokens."""

        def read(value: Any) -> Buffer | None:
            return None if value is None else self.buffer(value)

        found = tuple(self.each(content, "parameters", read))
        with self.at("parameters"):
            if len(found) != len(wanted):
                raise self.error(f"{len(found)} buffers, the module has {len(wanted)} leaves")
            for number, (buffer, shape) in enumerate(zip(found, wanted, strict=True)):
                if (buffer is None) == shape.dtype.is_array:
                    raise self.error(
                        f"leaf {number} is {shape}, for which there is a buffer or null"
                    )
            return tuple(
                None if buffer is None else self.of_shape(number, buffer, shape)
                for number, (buffer, shape) in enumerate(zip(found, wanted, strict=True))
            )

    def check_ends(
        self, parameters: tuple[Buffer | None, ...], results: tuple[Buffer, ...]
    ) -> None:
        """What is handed in and out has the memory that its array has, and no more."""
        ends = {"parameter": parameters, "result": results}
        for allocation in self.allocations:
            if allocation.kind not in ends:
                continue
            held = ends[allocation.kind]
            number = allocation.number
            buffer = held[number] if 0 <= number < len(held) else None
            if buffer is None or buffer.allocation is not allocation or buffer.offset:
                raise self.error(f"{allocation.kind} {number} does not lie in its memory")
            if allocation.byte_size != buffer.byte_size:
                raise self.error(
                    f"{allocation.kind} {number} has {buffer.byte_size} bytes, not {allocation.byte_size}"
                )

    # ---- allocations and buffers ----------------------------------------------------------------

    def allocation(self, value: Any) -> Allocation:
        """One piece of memory."""
        value = self.typed(value, dict, "an object")
        kind = self.choice(value, "kind", _KINDS)
        number = self.field(value, "number", int, "a number")
        byte_size = self.field(value, "bytes", int, "a number")
        if kind != "constant":
            return Allocation(kind, number, byte_size)  # type: ignore[arg-type]
        instruction = self.instruction(value, "constant")
        index = tuple(self.field(value, "index", list, "a list"))
        literal = instruction.literal
        with self.at("index"):
            for at in index:
                if (
                    literal is None
                    or not isinstance(at, int)
                    or not 0 <= at < len(literal.elements)
                ):
                    raise self.error(f"{instruction.name} has no element {list(index)}")
                literal = literal.elements[at]
            if literal is None or literal.array is None:
                raise self.error(f"{instruction.name} is no constant of an array")
        assert isinstance(literal.shape, ArrayShape)
        if literal.shape.byte_size != byte_size:
            raise self.error(
                f"{literal.shape} has {literal.shape.byte_size} bytes, not {byte_size}"
            )
        return Allocation("constant", number, byte_size, instruction, index)

    def buffer(self, value: Any) -> Buffer:
        """A part of it."""
        value = self.typed(value, list, "[allocation, offset, bytes, shape]")
        if len(value) != 4 or not all(isinstance(part, int) for part in value[:3]):
            raise self.error("expected [allocation, offset, bytes, shape]")
        number, offset, byte_size, text = value
        shape = self.shape(text)
        if not 0 <= number < len(self.allocations):
            raise self.error(f"there is no allocation {number}")
        allocation = self.allocations[number]
        if byte_size not in (0, shape.byte_size):
            raise self.error(f"{shape} has {shape.byte_size} bytes, not {byte_size}")
        if offset < 0 or offset + byte_size > allocation.byte_size or offset % ALIGNMENT:
            raise self.error(
                f"bytes {offset} to {offset + byte_size} are no buffer in {allocation.byte_size}, or do "
                f"not begin at a multiple of {ALIGNMENT}"
            )
        return Buffer(allocation, offset, byte_size, shape)

    def shape(self, text: Any) -> ArrayShape:
        """A shape of an array."""
        try:
            shape: Shape = shape_of(self.typed(text, str, "a shape"))
        except Problem as error:
            raise self.error(f"'{text}' is no shape") from error
        if not isinstance(shape, ArrayShape):
            raise self.error(f"'{text}' is no shape of an array")
        return shape

    def leaves(
        self, content: dict[str, Any], name: str, wanted: list[ArrayShape]
    ) -> tuple[Buffer, ...]:
        """Buffers for leaves of these shapes."""
        found = tuple(self.each(content, name, self.buffer))
        with self.at(name):
            if len(found) != len(wanted):
                raise self.error(f"{len(found)} buffers, the module has {len(wanted)} leaves")
            return tuple(
                self.of_shape(number, buffer, shape)
                for number, (buffer, shape) in enumerate(zip(found, wanted, strict=True))
            )

    def of_shape(self, number: int, buffer: Buffer, shape: ArrayShape) -> Buffer:
        """The buffer with the shape that the module has; one of them may leave out the usual layout."""
        with self.at(f"[{number}]"):
            if buffer.shape.dtype is not shape.dtype or not same_layout(buffer.shape, shape):
                raise self.error(f"a buffer of {buffer.shape}, the module has {shape}")
        return replace(buffer, shape=shape)

    # ---- steps ----------------------------------------------------------------------------------

    def step(self, value: Any) -> PlanStep:
        """A step of any kind."""
        value = self.typed(value, dict, "an object")
        kind = self.choice(value, "step", tuple(self._steps))
        instruction = self.instruction(value, "instruction")
        return self._steps[kind](self, value, instruction)

    def kernel(self, value: dict[str, Any], instruction: Instruction) -> KernelStep:
        """A kernel."""
        with self.at("spec"):
            spec = self.spec(self.typed(value.get("spec"), dict, "an object"))
        operands = self.leaves(value, "operands", _operand_leaves(instruction))
        results = self.leaves(value, "results", array_leaves(instruction.shape))
        scratch = tuple(self.each(value, "scratch", self.buffer))
        for entry in spec.steps:
            self.check_places(entry, len(operands), len(results), len(scratch))
        if len(scratch) != len(spec.scratch):
            raise self.error(f"{len(scratch)} buffers of scratch for {len(spec.scratch)}")
        return KernelStep(
            instruction,
            spec,
            self.field(value, "function", str, "a name"),
            operands,
            results,
            scratch,
            tuple(self.field(value, "inlined", list, "a list")),
            tuple(self.each(value, "before", self.move)),
            tuple(self.each(value, "after", self.move)),
        )

    def check_places(self, step: Step, operands: int, results: int, scratch: int) -> None:
        """Every place a step of a spec names is there."""
        if isinstance(step, Launch):
            places = [argument.place for argument in step.arguments]
        else:
            places = [step.source, step.target] if isinstance(step, Copy) else [step.target]
        counts = {"operand": operands, "result": results, "scratch": scratch}
        for place in places:
            if not 0 <= place.number < counts[place.kind]:
                raise self.error(f"there is no {place.kind} {place.number}")

    def move(self, value: Any) -> Move:
        """A copy."""
        value = self.typed(value, list, "[source, target]")
        if len(value) != 2:
            raise self.error("expected [source, target]")
        return Move(self.buffer(value[0]), self.buffer(value[1]))

    def host(self, value: dict[str, Any], instruction: Instruction) -> HostStep:
        """An instruction of the host."""
        return HostStep(
            instruction,
            self.leaves(value, "operands", _operand_leaves(instruction)),
            self.leaves(value, "results", array_leaves(instruction.shape)),
        )

    def loop(self, value: dict[str, Any], instruction: Instruction) -> WhileStep:
        """A loop."""
        if instruction.opcode != "while":
            raise self.error(f"{instruction.name} is {instruction.opcode}, not while")
        predicate = value.get("predicate")
        trips = value.get("trips")
        if trips is not None and (not isinstance(trips, int) or trips < 0):
            raise self.error("'trips' is neither a count nor null")
        if (predicate is None) != (trips is not None):
            raise self.error("a loop has either a predicate or known trips")
        with self.at("predicate"):
            tested = None if predicate is None else self.buffer(predicate)
        return WhileStep(
            instruction,
            tuple(self.each(value, "condition", self.step)),
            tested,
            tuple(self.each(value, "body", self.step)),
            trips,
            tuple(self.each(value, "state", self.buffer)),
        )

    def select(self, value: dict[str, Any], instruction: Instruction) -> ConditionalStep:
        """A conditional."""
        if instruction.opcode != "conditional":
            raise self.error(f"{instruction.name} is {instruction.opcode}, not conditional")
        (selector,) = self.leaves(
            {"selector": [value.get("selector")]},
            "selector",
            array_leaves(instruction.operands[0].shape),
        )

        def branch(steps: Any) -> tuple[PlanStep, ...]:
            return tuple(self.each({"steps": steps}, "steps", self.step))

        found = tuple(self.each(value, "branches", branch))
        if len(found) != len(branches(instruction)):
            raise self.error(
                f"{len(found)} branches, {instruction.name} has {len(branches(instruction))}"
            )
        return ConditionalStep(instruction, selector, found)

    _steps: Final[dict[str, Callable[[PlanReader, dict[str, Any], Instruction], PlanStep]]] = {
        "kernel": kernel,
        "host": host,
        "while": loop,
        "conditional": select,
    }

    # ---- pieces ---------------------------------------------------------------------------------

    def instruction(self, value: dict[str, Any], name: str) -> Instruction:
        text = self.field(value, name, str, "computation/instruction")
        computation, _, instruction = text.partition("/")
        home = self.module.computations.get(computation)
        found = home.by_name.get(instruction) if home is not None else None
        if found is None:
            raise self.error(f"the module has no instruction {text}")
        return found


def _operand_leaves(instruction: Instruction) -> list[ArrayShape]:
    return [leaf for operand in instruction.operands for leaf in array_leaves(operand.shape)]
