"""The CUDA C of a whole plan: device functions that are used, then a function or more an instruction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from hloopt.analysis.region import region_of
from hloopt.codegen.device import Uses
from hloopt.codegen.families import emitters
from hloopt.codegen.writer import write_function
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.kernel_ir.listing import listing
from hloopt.kernel_ir.printer import Printer
from hloopt.kernel_ir.statements import Function
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.plan import KernelStep, Plan, PlanStep, walk_steps
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.spec import Launch
from hloopt.rewrite.source_lines import kernel_lines
from hloopt.targets import Target
from hloopt.text.printer import print_instruction

__all__ = [
    "KernelProgram",
    "ProgramPart",
    "comment",
    "kernel_steps",
    "launched",
    "listed",
    "render",
    "step_text",
    "text_of",
]

_WIDTH = 160


@dataclass(frozen=True)
class ProgramPart:
    """A kernel of a program: its comment, and its function, or the text that a user wrote."""

    remarks: tuple[str, ...]
    function: Function | None = None
    text: str = ""

    def lines(self, printer: Printer) -> Iterator[str]:
        """What a printer makes of it."""
        yield from self.remarks
        if self.function is not None:
            yield from printer.function(self.function)
        elif self.text:
            yield self.text
        else:
            yield ""


@dataclass(frozen=True)
class KernelProgram:
    """The kernels of a plan.

    library  the text of the device functions that they use
    uses     the names of these; ``library`` of a program that is text has them all
    """

    library: str
    uses: tuple[str, ...]
    parts: tuple[ProgramPart, ...]

    @cached_property
    def text(self) -> str:
        """CUDA C."""
        printer = Printer()
        return "\n".join(
            [self.library, *(line for part in self.parts for line in part.lines(printer))]
        )


def listed(parts: Sequence[ProgramPart]) -> Iterator[str]:
    """The readable listing of the kernels' IR; the text of those that users wrote."""
    for part in parts:
        if part.function is not None:
            yield from part.remarks
            yield from listing(part.function)
            yield ""
        elif part.text:
            yield from (*part.remarks, part.text, "")


def text_of(program: KernelProgram | str) -> str:
    """The CUDA C of a program, which may be text already."""
    return program if isinstance(program, str) else program.text


def render(plan: Plan, target: Target | None = None, limits: Limits | None = None) -> KernelProgram:
    """The kernels of a plan; target and limits are those that they were chosen for.

    Raises ``UnsupportedError`` for an instruction inside a kernel that no kernel can compute.
    """
    uses = Uses()
    parts: list[ProgramPart] = []
    for step in kernel_steps(plan.steps):
        parts += [*_step(step, uses, target, limits), ProgramPart(())]
    return KernelProgram(uses.source(), uses.names(), tuple(parts))


def step_text(step: KernelStep, target: Target | None = None, limits: Limits | None = None) -> str:
    """The CUDA C of one instruction, without the device functions that it calls; as ``render`` otherwise."""
    printer = Printer()
    parts = _step(step, Uses(), target, limits)
    return "\n".join(line for part in parts for line in part.lines(printer))


def kernel_steps(steps: tuple[PlanStep, ...]) -> Iterator[KernelStep]:
    """The kernels of a plan, in the order of their steps, those of loops and branches among them."""
    return (step for step in walk_steps(steps) if isinstance(step, KernelStep))


def launched(step: KernelStep) -> list[Launch]:
    """A launch of each function that a step has."""
    found: dict[str, Launch] = {}
    for part in step.spec.steps:
        if isinstance(part, Launch):
            found.setdefault(part.function, part)
    return list(found.values())


def _step(
    step: KernelStep, uses: Uses, target: Target | None, limits: Limits | None
) -> Iterator[ProgramPart]:
    launches = launched(step)
    if not launches:
        return
    remarks = tuple(comment(step.instruction))
    kernel = find_kernel(step.spec.kernel)
    if kernel.source is not None:
        assert target is not None, "a kernel with its own source needs the target"
        site = Site(region_of(step.instruction), target, limits or Limits())
        yield ProgramPart(remarks, text=kernel.source(site, step.spec, step.function))
        return
    emit = emitters()[step.spec.kernel]
    for launch in launches:
        yield ProgramPart(remarks, write_function(step, launch, emit, uses))
        remarks = ()


def comment(instruction: Instruction) -> Iterator[str]:
    """What is computed, and where in the user's program; text of the module stays in comments."""
    yield _quoted(print_instruction(instruction))
    if instruction.opcode == "fusion":
        body: Computation = instruction.attributes["calls"]
        for inner in body:
            yield _quoted(f"  {print_instruction(inner)}")
    place = _user_line(instruction)
    if place:
        yield _quoted(place)


def _user_line(instruction: Instruction) -> str:
    """The user's lines and what XLA calls the op in the first, as far as the module says."""
    module = instruction.computation.module if instruction.computation is not None else None
    line = ", ".join(kernel_lines(module, instruction)) if module is not None else ""
    fields: Any = instruction.metadata.fields if instruction.metadata is not None else {}
    return " ".join(str(part) for part in (line, fields.get("op_name")) if part)


def _quoted(text: str) -> str:
    """A line comment: no line ends in it, and none goes on in the next line."""
    line = " ".join(text.split("\n")).replace("\r", " ")
    if len(line) > _WIDTH:
        line = f"{line[: _WIDTH - 3]}..."
    printable = "".join(char if char.isprintable() else "?" for char in line)
    # Trigraphs and a last backslash would change what the compiler reads.
    return f"// {printable.replace('??', '? ?').rstrip(chr(92))}"
