"""XLA's CPU compiler as a witness: without a pass, with its stages dumped, with intermediates returned.

Each question is a compilation in a child process with a time limit (``runtime.xla``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from pathlib import Path
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.errors import DeviceError, HlooptError, UnsupportedError
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ops import traits
from hloopt.pipelines import parse_pipeline
from hloopt.prover.comparing import RunsCompared, compare_runs
from hloopt.prover.executor import Executor, Run
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.comparison import OutputComparison
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.runtime.xla import XLA_SECONDS, run_xla, xla_python
from hloopt.types import ArrayShape

__all__ = ["MiscompiledValue", "XlaOracle"]

_DUMP: Final = "--xla_dump_hlo_as_text --xla_dump_hlo_pass_re=.* --xla_dump_large_constants=true"
_AT_ONCE: Final = 256
"""Values that are returned by one compilation."""
_SILENT: Final = traits.PLUMBING | {"constant"}


@dataclass(frozen=True)
class MiscompiledValue:
    """An instruction whose value XLA computes otherwise than the interpreter.

    alone  it differs only where it is not returned beside the values before it
    """

    instruction: Instruction
    comparison: OutputComparison
    alone: bool


@dataclass
class XlaOracle:
    """XLA on one module and its inputs.

    flags    what is added to ``XLA_FLAGS`` of each compilation
    seconds  how long one may take
    begin    is called with what is asked, for a progress line
    """

    inputs: TrialInputs
    executor: Executor = Executor()
    tolerance: Tolerance = FREE
    flags: str = ""
    seconds: float = XLA_SECONDS
    begin: Callable[[str], None] = lambda _: None

    def obstacle(self) -> str:
        """Why XLA cannot be asked here; empty where it can."""
        if prod(self.inputs.counts) != 1:
            return "XLA is run with one participant only"
        try:
            xla_python()
        except DeviceError as error:
            return str(error)
        return ""

    def run(self, module: Module, flags: str = "") -> Run:
        """What XLA computes.  Raises as ``run_xla``."""
        given = f"{self.flags} {flags}".strip()
        found = run_xla(module, self.inputs.arrays[0], seconds=self.seconds, flags=given)
        return Run(module, [found.results])

    def dumped(self, module: Module, folder: Path) -> Run:
        """As ``run``; the stages of the compilation are in the folder then."""
        self.begin("compiled by XLA")
        return self.run(module, f"--xla_dump_to={folder} {_DUMP}")

    def judged(self, own: Run, got: Run) -> RunsCompared:
        """What XLA gave, beside what the interpreter gave."""
        excess = self.executor.excess_precision
        return compare_runs(
            own, got, self.inputs, tolerance=self.tolerance, excess_precision=excess
        )

    def without(self, own: Run, pass_name: str) -> str:
        """What comes of compiling a module again with a pass switched off, as a clause.

        ``own`` is what the interpreter makes of it.
        """
        self.begin(f"compiled by XLA without {pass_name}")
        try:
            if self.judged(own, self.run(own.module)).equal:
                return "untested: XLA here gives the right result with the pass, too"
        except HlooptError as error:
            return f"untested: {_first_line(error)}"
        try:
            compared = self.judged(
                own, self.run(own.module, f"--xla_disable_hlo_passes={pass_name}")
            )
        except UnsupportedError as error:
            return f"checked: XLA cannot compile without it ({_first_line(error)})"
        except HlooptError as error:
            return f"untested: {_first_line(error)}"
        if compared.equal:
            return "checked: with the flag the result agrees"
        return "checked: with the flag the result still differs"

    def first_wrong(self, module: Module) -> MiscompiledValue | None:
        """The first instruction of the entry, calls inlined, that XLA computes otherwise; None where none does.

        All values are returned by a few compilations.  Where none of them differs then, since what is
        returned is not fused, each is the only result in its turn: as many compilations as halving needs.
        Raises as ``run_xla``.
        """
        whole = build.clone_module(module)
        parse_pipeline("call-inliner,dce").run(whole)
        values = [entry for entry in whole.entry if _is_returnable(entry)]
        for start in range(0, len(values), _AT_ONCE):
            part = values[start : start + _AT_ONCE]
            self.begin(f"XLA's values {start + 1} to {start + len(part)} of {len(values)}")
            for entry, compared in zip(part, self._returned(whole, part), strict=True):
                if not compared.passed:
                    return MiscompiledValue(entry, compared, alone=False)
        return self._alone(whole, values)

    def _alone(self, whole: Module, values: Sequence[Instruction]) -> MiscompiledValue | None:
        """The first value that differs where it is the only result."""
        right, wrong = -1, len(values)
        found: MiscompiledValue | None = None
        tried = len(values) - 1
        while right < tried < wrong:
            entry = values[tried]
            self.begin(f"XLA's value of {entry.name}")
            (compared,) = self._returned(whole, [entry])
            if compared.passed:
                right = tried
            else:
                wrong, found = tried, MiscompiledValue(entry, compared, alone=True)
            tried = (right + wrong) // 2
        return found

    def _returned(
        self, whole: Module, wanted: Sequence[Instruction]
    ) -> tuple[OutputComparison, ...]:
        """What XLA makes of some values, beside the interpreter's."""
        module = _returning(whole, [entry.name for entry in wanted])
        own = self.executor.run(module, self.inputs)
        return self.judged(own, self.run(module)).results


def _is_returnable(entry: Instruction) -> bool:
    return (
        entry.opcode not in _SILENT
        and isinstance(entry.shape, ArrayShape)
        and entry.shape.dtype.is_array
    )


def _returning(whole: Module, names: Sequence[str]) -> Module:
    """A copy whose results are the values of these instructions of the entry."""
    module = build.clone_module(whole)
    by_name = {entry.name: entry for entry in module.entry}
    wanted = tuple(by_name[name] for name in names)
    edit.set_root(module.entry, build.make(module.entry, "tuple", wanted))
    for name in ("entry_computation_layout", "input_output_alias", "buffer_donor"):
        module.attributes.pop(name, None)
    parse_pipeline("dce").run(module)
    return module


def _first_line(error: HlooptError) -> str:
    return error.message.partition("\n")[0]
