"""A kernel taken out of its module: functions, buffers, and what is enqueued in which order."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Final, TypeAlias

from hloopt.backends.device_compile import choices_of, lower
from hloopt.codegen.program import KernelProgram, render
from hloopt.codegen.types import is_packed
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.kernels.plan import KernelStep, Plan, PlanBuffer, function_name
from hloopt.kernels.planning import plan_program
from hloopt.kernels.selection import Choice, KernelSelection
from hloopt.kernels.selection.requests import tile_text
from hloopt.kernels.spec import Dim3, Fill, Launch, LeafPlace
from hloopt.kernels.standalone import standalone
from hloopt.rewrite.spec import did_you_mean
from hloopt.targets import Target
from hloopt.types import ArrayShape, Shape, leaves

__all__ = [
    "WORKSPACE",
    "Bytes",
    "CopyBytes",
    "ExportArray",
    "FillBytes",
    "KernelAction",
    "KernelExport",
    "LaunchFunction",
    "export_kernel",
    "identifier",
]

_LONGEST: Final = 60


@dataclass(frozen=True, slots=True)
class ExportArray:
    """An argument or a result: its name in the file, a name of C and Python, and its shape, row-major."""

    name: str
    shape: ArrayShape


@dataclass(frozen=True, slots=True)
class Bytes:
    """``size`` bytes at ``offset`` (a multiple of 256) of an array or of the workspace, by its name.

    What has no bytes has no name.
    """

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CopyBytes:
    """All bytes of one buffer into another of the same size."""

    target: Bytes
    source: Bytes


@dataclass(frozen=True, slots=True)
class FillBytes:
    """Every byte of a buffer set to ``value``."""

    target: Bytes
    value: int


@dataclass(frozen=True, slots=True)
class LaunchFunction:
    """One launch: pointers, then 32-bit integers; ``shared`` bytes a block beside the function's arrays."""

    function: str
    grid: Dim3
    block: Dim3
    shared: int
    pointers: tuple[Bytes, ...]
    scalars: tuple[int, ...]


KernelAction: TypeAlias = CopyBytes | FillBytes | LaunchFunction

WORKSPACE: Final = "workspace"
_USED: Final = frozenset(
    ("cupy", "functools", "jax", "jnp", "lax", "main", "np", "numpy", "sys", "torch")
)


@dataclass(frozen=True)
class KernelExport:
    """One instruction of a module as a program of one kernel.

    name         of the function in the file
    instruction  its name in the module
    kernel       the kernel that runs it, with its tile
    module       the instruction by itself, as the interpreter evaluates it: a parameter for each argument
    target       the device the kernel was chosen for
    plan         of that module
    program      its functions, CUDA C
    """

    name: str
    instruction: str
    kernel: str
    module: Module
    target: Target
    plan: Plan
    program: KernelProgram

    @cached_property
    def arguments(self) -> tuple[ExportArray, ...]:
        """An array for each leaf of the operands."""
        parameters = self.module.entry.parameters
        names = [one.name for one in parameters for _ in leaves(one.shape)]
        return _named("in", names, (leaf for one in parameters for leaf in leaves(one.shape)))

    @cached_property
    def results(self) -> tuple[ExportArray, ...]:
        """An array for each leaf of the result."""
        shapes = tuple(leaves(self.module.entry.root.shape))
        names = [""] if len(shapes) == 1 else [str(number) for number in range(len(shapes))]
        return _named("out", names, shapes)

    @property
    def workspace(self) -> int:
        """The bytes of device memory that are needed while it runs, beside arguments and results."""
        return sum(one.byte_size for one in self.plan.allocations if one.kind == "arena")

    @cached_property
    def actions(self) -> tuple[KernelAction, ...]:
        """What is enqueued, in order."""
        found: list[KernelAction] = []
        for step in self.plan.steps:
            assert isinstance(step, KernelStep), "checked where it was exported"
            found += self._of_step(step)
        for array, buffer in zip(self.results, self.plan.results, strict=True):
            made, wanted = self._bytes(buffer), Bytes(array.name, 0, buffer.byte_size)
            if made != wanted and wanted.size:
                found.append(CopyBytes(wanted, made))
        return tuple(found)

    def _of_step(self, step: KernelStep) -> Iterator[KernelAction]:
        for move in step.before:
            yield CopyBytes(self._bytes(move.target), self._bytes(move.source))
        for part in step.spec.steps:
            if isinstance(part, Launch):
                yield LaunchFunction(
                    function_name(step, part),
                    part.grid,
                    part.block,
                    part.shared,
                    tuple(self._at(step, argument.place) for argument in part.arguments),
                    part.scalars,
                )
            elif isinstance(part, Fill):
                yield FillBytes(self._at(step, part.target), part.value)
            else:
                target, source = self._at(step, part.target), self._at(step, part.source)
                if target != source:
                    yield CopyBytes(target, source)
        for move in step.after:
            yield CopyBytes(self._bytes(move.target), self._bytes(move.source))

    def _at(self, step: KernelStep, place: LeafPlace) -> Bytes:
        buffers = {"operand": step.operands, "result": step.results, "scratch": step.scratch}
        return self._bytes(buffers[place.kind][place.number])

    def _bytes(self, buffer: PlanBuffer) -> Bytes:
        allocation = buffer.allocation
        arrays = {"parameter": self.arguments, "result": self.results}.get(allocation.kind)
        name = WORKSPACE if arrays is None else arrays[allocation.number].name
        return Bytes(name if buffer.byte_size else "", buffer.offset, buffer.byte_size)


def export_kernel(module: Module, name: str, selection: KernelSelection) -> KernelExport:
    """The kernel that runs the instruction called ``name`` once a module is ready for a GPU.

    ``module`` is not changed.  A choice of a kernel that the module carries, or that ``selection`` wants,
    stays. Raises ``UsageError`` where no kernel is called so, ``UnsupportedError`` for one that is no
    functions of ours (a library call, a loop of several kernels), or whose arrays have no plain form.
    """
    ready, report = lower(module, selection)
    choice = _chosen(choices_of(report), name, module)
    instruction = choice.alternatives.instruction
    alone = standalone(instruction, keep_constants=_has_scalars_only(instruction))
    alone.stack_tables = ready.stack_tables
    for shape in (*alone.entry.parameter_shapes, alone.entry.root.shape):
        if problem := _problem(shape):
            raise ready.unsupported(instruction, problem)
    if not choice.kernel:
        raise ready.unsupported(instruction, f"no kernel runs it: {choice.reason}")
    wanted = f"{alone.entry.root.name}={choice.kernel}{tile_text(choice.tile)}"
    own = replace(selection, kernel=(wanted,), lock="", frozen=False, rule="", keep=False)
    planned, report = lower(alone, own)
    plan = plan_program(planned, own.kernel_of(choices_of(report)), results_apart=True)
    for step in plan.steps:
        if not isinstance(step, KernelStep):
            raise ready.unsupported(instruction, "it is a loop or a branch of several kernels")
        if step.spec.library:
            problem = f"{step.spec.library} computes it, which is a library and no kernel of a file"
            raise ready.unsupported(instruction, problem)
    if large := [one for one in plan.allocations if one.kind == "constant"]:
        problem = f"it holds a constant of {large[0].byte_size} bytes, which has no place in a file"
        raise ready.unsupported(instruction, problem)
    return KernelExport(
        identifier(name),
        name,
        choice.kernel + tile_text(choice.tile),
        alone,
        own.described,
        plan,
        render(plan, own.described, own.limits()),
    )


def identifier(name: str) -> str:
    """A name of C and of Python made of any text; never a word of Python, nor what a file itself uses."""
    stem = re.sub(r"[^A-Za-z0-9]+", "_", name)[:_LONGEST].strip("_") or "kernel"
    taken = keyword.iskeyword(stem) or hasattr(builtins, stem) or stem in _USED
    return f"kernel_{stem}" if taken or not stem[0].isalpha() else stem


def _chosen(choices: Sequence[Choice], name: str, module: Module) -> Choice:
    found = [choice for choice in choices if choice.instruction == name.removeprefix("%")]
    if len(found) == 1:
        return found[0]
    if found:
        places = ", ".join(choice.computation for choice in found)
        raise UsageError(f"several kernels are called '{name}': in {places}")
    names = [choice.instruction for choice in choices]
    there = any(name in computation.by_name for computation in module)
    hint = "; it is part of another kernel, or not left" if there else did_you_mean(name, names)
    raise UsageError(f"no kernel is called '{name}'{hint}; hloopt kernels lists them")


def _has_scalars_only(instruction: Instruction) -> bool:
    """Whether operands that are constants have an element each: others become arguments."""
    return all(
        isinstance(operand.shape, ArrayShape) and operand.shape.elements <= 1
        for operand in instruction.operands
        if operand.opcode == "constant"
    )


def _problem(shape: Shape) -> str:
    """Why a value cannot be an array of a file, or nothing."""
    for leaf in leaves(shape):
        if not isinstance(leaf, ArrayShape) or not leaf.dtype.is_array:
            return f"{leaf} is not an array"
        if leaf.is_dynamic:
            return f"{leaf} has no fixed size"
        if is_packed(leaf.dtype):
            return f"elements of {leaf.dtype} are narrower than a byte"
        if leaf.layout is not None and not leaf.layout.is_descending:
            return f"{leaf} is not row-major"
    return ""


def _named(prefix: str, names: Iterable[str], shapes: Iterable[Shape]) -> tuple[ExportArray, ...]:
    """Arrays whose names begin alike, so that none is a word of a language or a name of a template."""
    found: dict[str, ExportArray] = {}
    for name, shape in zip(names, shapes, strict=True):
        assert isinstance(shape, ArrayShape), "checked where it was exported"
        stem = made = f"{prefix}_{identifier(name)}" if name else prefix
        number = 1
        while made in found:
            number += 1
            made = f"{stem}_{number}"
        found[made] = ExportArray(made, shape)
    return tuple(found.values())
