"""A device of NumPy that runs each function of a plan by evaluating its instruction, and trusts nobody.

Memory begins as noise.  What a launch is given as ``out`` is made noise first, so that whatever it should not
have read is seen; what it is given as ``in`` must be the same afterwards.  Results are compared with the
interpreter's by whoever uses it: noise that somebody reads makes them differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import hloopt
from hloopt.analysis.in_place import in_place_pairs
from hloopt.analysis.layout import same_layout
from hloopt.analysis.region import region_of
from hloopt.errors import UnsupportedError
from hloopt.interpret import EVALUATORS
from hloopt.interpret.context import leaf_arrays
from hloopt.interpret.dynamic import evaluator
from hloopt.interpret.interpreter import Interpreter
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import NO, YES, Kernel, overwritable
from hloopt.kernels.plan import KernelStep, Plan, function_name, walk_steps
from hloopt.kernels.planning import plan_program
from hloopt.kernels.spec import Argument, Copy, Dim3, KernelSpec, Launch, LeafPlace
from hloopt.passes.copy_insertion.tuples import indices
from hloopt.runtime.device import (
    Pointer,
    PointerArgument,
    array_of_bytes,
    bytes_of_array,
    empty,
    value_of_leaves,
)
from hloopt.runtime.device_program import DeviceProgram
from hloopt.types import ArrayShape

__all__ = ["FakeDevice", "choose", "fake_program"]

Array = np.ndarray[Any, Any]
_NOISE = 0xA5

KERNEL = Kernel(
    "whole",
    "evaluates an instruction at once",
    lambda _: YES("the interpreter can"),
    lambda _: NO("only in tests"),
    lambda _: {},
    lambda site, _: whole_spec(site.region.instruction),
)


def choose(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
    """One launch for whatever the interpreter can evaluate; copies that move nothing are copies."""
    if instruction.opcode not in EVALUATORS or instruction.op.side_effect:
        raise UnsupportedError(f"{instruction.name}: no kernel")
    if (
        instruction.opcode == "copy"
        and isinstance(instruction.shape, ArrayShape)
        and same_layout(instruction.operands[0].shape, instruction.shape)
    ):
        step = Copy(LeafPlace("operand", 0), LeafPlace("result", 0))
        return KERNEL, KernelSpec("copy", steps=(step,))
    return KERNEL, whole_spec(instruction)


def whole_spec(instruction: Instruction) -> KernelSpec:
    """All operands in, all results out; updates in place as the analysis says."""
    region = region_of(instruction)
    pairs = []
    for pair in in_place_pairs(instruction):
        before = sum(
            len(list(indices(operand.shape))) for operand in instruction.operands[: pair.operand]
        )
        at = list(indices(instruction.operands[pair.operand].shape)).index(pair.operand_index)
        result = list(indices(instruction.shape)).index(pair.output_index)
        pairs.append((before + at, result))
    updated = {operand for operand, _ in pairs}
    written = {result for _, result in pairs}
    arguments = [
        Argument(LeafPlace("operand", number), "in")
        for number in region.read
        if number not in updated
    ]
    arguments += [
        Argument(LeafPlace("result", number), "update" if number in written else "out")
        for number, shape in enumerate(region.arrays_of(instruction))
        if shape.byte_size
    ]
    launch = Launch("", (1, 1, 1), (32, 1, 1), tuple(arguments))
    overwrites = () if pairs else overwritable(region)
    return KernelSpec("whole", steps=(launch,), in_place=tuple(pairs), overwrites=overwrites)


class FakeDevice:
    """See the module.  ``events`` lists launches, copies, fills, uploads and downloads in order."""

    def __init__(self, plan: Plan) -> None:
        self.memory: list[Array] = []
        self.events: list[tuple[Any, ...]] = []
        self.closed = False
        self.steps: dict[str, tuple[KernelStep, Launch]] = {}
        for step in walk_steps(plan.steps):
            if isinstance(step, KernelStep):
                for part in step.spec.steps:
                    if isinstance(part, Launch):
                        name = function_name(step, part)
                        assert name not in self.steps, f"two functions are called {name}"
                        self.steps[name] = step, part
        self.interpreter: Interpreter | None = None

    def load(self, source: str, describe: dict[str, str]) -> None:
        self.source, self.describe = source, describe

    def allocate(self, byte_size: int) -> int:
        assert byte_size > 0
        self.memory.append(np.full(byte_size, _NOISE, np.uint8))
        return len(self.memory) - 1

    def bytes(self, pointer: Pointer) -> Array:
        if not pointer.byte_size:
            return np.zeros(0, np.uint8)
        whole = self.memory[pointer.allocation]
        assert 0 <= pointer.offset <= len(whole) - pointer.byte_size
        # Parts of an array that is put together in place are aligned to what is read at once.
        assert pointer.offset % 16 == 0 or pointer.byte_size <= 8
        return whole[pointer.offset : pointer.offset + pointer.byte_size]

    def upload(self, target: Pointer, array: Array) -> None:
        self.events.append(("upload", target))
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.bytes(target)[:] = raw

    def download(self, source: Pointer) -> Array:
        self.events.append(("download", source))
        return self.bytes(source).copy()

    def copy(self, target: Pointer, source: Pointer) -> None:
        self.events.append(("copy", target, source))
        assert not overlap(target, source)
        self.bytes(target)[:] = self.bytes(source)

    def fill(self, target: Pointer, value: int) -> None:
        self.events.append(("fill", target, value))
        self.bytes(target)[:] = value

    def launch(
        self,
        function: str,
        grid: Dim3,
        block: Dim3,
        arguments: Sequence[PointerArgument],
        scalars: Sequence[int] = (),
    ) -> None:
        self.events.append(("launch", function))
        step, launch = self.steps[function]
        assert (grid, block, tuple(scalars)) == (launch.grid, launch.block, launch.scalars)
        assert len(arguments) == len(launch.arguments)
        self.check_apart(arguments)
        found = self.operands(step, launch, arguments)
        for argument in arguments:
            if argument.role == "out":
                self.bytes(argument.pointer)[:] = _NOISE
        results = self.evaluate(step.instruction, found)
        pointers = {
            argument.place.number: given.pointer
            for argument, given in zip(launch.arguments, arguments, strict=True)
            if argument.place.kind == "result"
        }
        for number, array in enumerate(results):
            if number in pointers:
                shape = step.results[number].shape
                self.bytes(pointers[number])[:] = bytes_of_array(array, shape)

    def check_apart(self, arguments: Sequence[PointerArgument]) -> None:
        for argument in arguments:
            for other in arguments:
                if argument is not other and "out" in (argument.role, other.role):
                    assert not overlap(argument.pointer, other.pointer)

    def operands(
        self, step: KernelStep, launch: Launch, arguments: Sequence[PointerArgument]
    ) -> Iterator[Array]:
        """The arrays of all operand leaves: through pointers, or constants written into the code."""
        region = region_of(step.instruction)
        pointers = {
            argument.place: given.pointer
            for argument, given in zip(launch.arguments, arguments, strict=True)
        }
        updated = dict(step.spec.in_place)
        found: list[Array] = []
        for number, shape in enumerate(region.operands):
            first = region.canonical(number)
            place = (
                LeafPlace("result", updated[first])
                if first in updated
                else LeafPlace("operand", first)
            )
            constant = region.inlined(number)
            if not shape.byte_size:
                found.append(empty(shape))
            elif constant is not None:
                assert number in step.inlined or place in pointers
                found.append(np.full(shape.dims, constant, shape.dtype.numpy))
            else:
                found.append(array_of_bytes(self.bytes(pointers[place]).copy(), shape))
        return iter(found)

    def evaluate(self, instruction: Instruction, arrays: Iterator[Array]) -> list[Array]:
        operands = tuple(value_of_leaves(operand.shape, arrays) for operand in instruction.operands)
        assert self.interpreter is not None
        run = evaluator(instruction, EVALUATORS[instruction.opcode])
        with np.errstate(all="ignore"):
            return list(leaf_arrays(run(instruction, operands, self.interpreter)))

    def close(self) -> None:
        self.closed = True


def overlap(left: Pointer, right: Pointer) -> bool:
    """Whether two pieces of memory share a byte."""
    return (
        left.allocation == right.allocation
        and left.offset < right.offset + right.byte_size
        and right.offset < left.offset + left.byte_size
    )


def fake_program(
    module: Module,
    chooser: Callable[[Instruction], tuple[Kernel, KernelSpec]] = choose,
    *,
    allow_host: bool = False,
    make_device: Callable[[Plan], FakeDevice] = FakeDevice,
) -> DeviceProgram:
    """A module made ready, planned and loaded onto a fake device."""
    ready = hloopt.optimize(module, "device")
    plan = plan_program(ready, chooser, allow_host=allow_host)
    device = make_device(plan)
    device.interpreter = Interpreter(ready, EVALUATORS)
    return DeviceProgram(ready, plan, device, "")
