"""``hloopt ops --device``: which opcodes of which element types have a kernel, found by compiling one.

For each, the least module is made ready for a device, kernels are matched with what remains of the instruction,
and their source is written, CUDA C or the C++ of the native device.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from rich.console import Console

from hloopt.analysis.region import region_of
from hloopt.backends.native.codegen import render as render_native
from hloopt.codegen.program import kernel_steps, render
from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, UnsupportedError
from hloopt.interpret import supported
from hloopt.ir import Instruction, Module
from hloopt.kernels import selectable
from hloopt.kernels.examples import NO_KERNEL, WITHOUT, example_text, opcodes
from hloopt.kernels.kernel import Kernel, KernelDevice, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.planning import plan_program
from hloopt.kernels.registry import kernels
from hloopt.kernels.selection import choose
from hloopt.kernels.selection.candidate import Candidate, candidates, packing_problem
from hloopt.kernels.spec import KernelSpec
from hloopt.ops.traits import RANDOM, TRANSFERS
from hloopt.pipelines import optimize_module, parse_pipeline
from hloopt.report.console import paragraph, table
from hloopt.rewrite import Pipeline
from hloopt.targets import Target
from hloopt.targets.target import HOST
from hloopt.text.parser import parse_module
from hloopt.types import DTYPES, DType
from hloopt.verifier import verify_module

__all__ = ["Coverage", "coverage", "coverage_json", "show_coverage"]


@dataclass(frozen=True, slots=True)
class Coverage:
    """What runs an opcode.

    dtypes    element types that have a kernel; empty where types do not matter
    kernels   the names of all that fit, in order of preference
    without   element types that have none, with the reason; types that no kernel takes are left out
    becomes   what it becomes before kernels are chosen, or why it needs none; empty where it stays
    reason    why it has none, whatever its types
    """

    opcode: str
    dtypes: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    without: tuple[tuple[str, str], ...] = ()
    becomes: str = ""
    reason: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all that the interpreter evaluates has a kernel, or needs none."""
        return not self.without and not self.reason


def coverage(target: Target, wanted: Collection[str] | None = None) -> list[Coverage]:
    """A row for each opcode, or for the ``wanted`` ones, by name; less than a tenth of a second each.

    Of ``HOST`` for the native device.
    """
    rows = [Coverage(opcode, becomes=reason) for opcode, reason in NO_KERNEL.items()]
    called = _CALLED if _is_native(target) else frozenset()
    rows += [Coverage(opcode, kernels=("native-call",)) for opcode in called]
    rows += [
        Coverage(opcode, reason=reason)
        for opcode, reason in WITHOUT.items()
        if opcode not in called
    ]
    if wanted is not None:
        rows = [row for row in rows if row.opcode in wanted]
    rows += [_covered(opcode, target) for opcode in opcodes() if wanted is None or opcode in wanted]
    return sorted(rows, key=lambda row: row.opcode)


# Ops that talk to the host, have a state, or depend on their target: no single module covers them.
_CALLED: Final = TRANSFERS | RANDOM - {"rng-bit-generator"} | {"custom-call"}


def _is_native(target: Target) -> bool:
    return target is HOST


def _covered(opcode: str, target: Target) -> Coverage:
    dtypes = [dtype for dtype in DTYPES.values() if dtype.is_array and _is_valid(opcode, dtype)]
    asker = _Asker(opcode, target, Limits())
    dtypes = [dtype for dtype in dtypes if not packing_problem(dtype)]
    problems = asker.problems(dtypes)
    return Coverage(
        opcode,
        tuple(dtype.name for dtype in dtypes if dtype.name not in problems),
        tuple(kernel.name for kernel in asker.known if kernel.name in asker.fitting),
        tuple(problems.items()),
        asker.becomes(),
    )


def _is_valid(opcode: str, dtype: DType) -> bool:
    """Whether HLO has the op for a type, and the interpreter evaluates it."""
    try:
        module = parse_module(example_text(opcode, [dtype]), opcode)
        verify_module(module)
        supported(module)
    except HlooptError:
        return False
    return True


class _Asker:
    """The coverage of one opcode."""

    def __init__(self, opcode: str, target: Target, limits: Limits) -> None:
        self.opcode = opcode
        self.target = target
        self.limits = limits
        self.device: KernelDevice = "native" if _is_native(target) else "gpu"
        lowering = parse_pipeline(f"device-{self.device}")
        self.pipeline = Pipeline(lowering.entries[:-1])  # kernels are chosen here
        self.known = tuple(kernel for kernel in kernels(self.device) if not kernel.owner)
        self.fitting: set[str] = set()
        self.left: set[str] = set()

    def problems(self, dtypes: Sequence[DType]) -> dict[str, str]:
        """Types without a kernel and why; all types in one module, one by one where that has a problem."""
        if not dtypes:
            return {}
        problem = self.problem(dtypes)
        if not problem or len(dtypes) == 1:
            return {dtypes[0].name: problem} if problem else {}
        half = len(dtypes) // 2
        return {**self.problems(dtypes[:half]), **self.problems(dtypes[half:])}

    def problem(self, dtypes: Sequence[DType]) -> str:
        """Why the op has no kernel for some of these types, empty where it has for all."""
        given = parse_module(example_text(self.opcode, dtypes), self.opcode)
        module = optimize_module(given, self.pipeline)
        for instruction in _asked_about(module, dtypes):
            self.ask(instruction)
        for _, instruction in selectable(module):
            found = self.candidates(instruction)
            if not any(candidate.ok for candidate in found):
                return self.reason(found)
        try:
            plan = plan_program(module, self.choose)
            if _is_native(self.target):
                render_native(plan)
            else:
                render(plan, self.target, self.limits)
        except UnsupportedError as error:
            return error.notes[0] if error.notes else error.message
        self.left.update(step.instruction.opcode for step in kernel_steps(plan.steps))
        return ""

    def reason(self, found: Sequence[Candidate]) -> str:
        """The most informative refusal: of a kernel that fits other types, else of the most general."""
        near = [candidate for candidate in found if candidate.name in self.fitting] or found[-1:]
        return "; ".join(dict.fromkeys(candidate.reason for candidate in near))

    def choose(self, instruction: Instruction) -> tuple[Kernel, KernelSpec]:
        """The kernel that the rules pick."""
        return choose(instruction, self.target, self.limits, device=self.device, known=self.known)

    def candidates(self, instruction: Instruction) -> Sequence[Candidate]:
        """All kernels with their verdicts."""
        site = Site(region_of(instruction), self.target, self.limits)
        return candidates(site, self.known)

    def ask(self, instruction: Instruction) -> None:
        """Remember which kernels fit an instruction."""
        self.fitting.update(found.name for found in self.candidates(instruction) if found.ok)

    def becomes(self) -> str:
        """The opcodes that remain in the place of an op without kernels."""
        if not self.left or self.opcode in self.left:
            return ""
        return "becomes " + ", ".join(sorted(self.left))


def _asked_about(module: Module, dtypes: Sequence[DType]) -> Iterator[Instruction]:
    names = {f"{dtype.name}_r" for dtype in dtypes}
    every = [instruction for _, instruction in selectable(module)]
    own = [instruction for instruction in every if instruction.name in names]
    yield from own or every


def coverage_json(row: Coverage) -> dict[str, Any]:
    """A row as JSON values."""
    return {
        "opcode": row.opcode,
        "kernels": list(row.kernels),
        "dtypes": list(row.dtypes),
        "without": dict(row.without),
        "becomes": row.becomes,
        "reason": row.reason,
    }


def show_coverage(rows: Sequence[Coverage], console: Console) -> None:
    """A row an opcode; of types without a kernel their reason, those that share one together."""
    made = table("opcode", "kernels", "types", "without a kernel", left=4)
    made.columns[0].no_wrap = True
    for row in rows:
        kernels = ", ".join(row.kernels)
        how = row.becomes if not kernels or row.becomes else ""
        cell = f"{how}: {kernels}" if how and kernels else how or kernels
        made.add_row(row.opcode, cell, str(len(row.dtypes) or ""), _missing(row))
    console.print(made)
    for dtype in DTYPES.values():
        if problem := packing_problem(dtype):
            paragraph(console, f"no kernel takes {dtype}: {problem}", console.width)


def _missing(row: Coverage) -> str:
    reasons: dict[str, list[str]] = {}
    for dtype, reason in row.without:
        general = re.sub(rf"\b{re.escape(dtype)}\b", "...", reason)
        reasons.setdefault(general.replace(f"{dtype}_r", row.opcode), []).append(dtype)
    if len(reasons) == 1 and not row.dtypes:
        return next(iter(reasons))
    parts = [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]
    return "; ".join(parts) or row.reason
