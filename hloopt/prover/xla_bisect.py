"""Which pass of XLA makes a module wrong: it is compiled here, its stages are dumped and bisected."""

from __future__ import annotations

from pathlib import Path

from hloopt.dataclass import dataclass
from hloopt.dumps import read_dump
from hloopt.errors import DeviceError, HlooptError, UnsupportedError
from hloopt.ir import Module
from hloopt.prover.bisection import Bisection
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.dumped_stages import stages_of
from hloopt.prover.executor import Executor
from hloopt.prover.trials import TrialOptions
from hloopt.prover.xla_oracle import XlaOracle
from hloopt.runtime.tolerance import FREE, Tolerance

__all__ = ["XlaBisect"]


@dataclass
class XlaBisect:
    """A bisection of XLA's CPU compiler on one module; ``folder`` is where its stages are dumped."""

    module: Module
    name: str
    folder: Path
    inputs: TrialOptions = TrialOptions()
    executor: Executor = Executor()
    tolerance: Tolerance = FREE
    every: bool = False
    flags: str = ""
    _stages: DumpBisect | None = None

    @property
    def status(self) -> str:
        """Where the search is, for a progress line."""
        return self._stages.status if self._stages is not None else "compiled by XLA"

    @property
    def unreadable(self) -> list[HlooptError]:
        """Errors of the stages that cannot be read."""
        return self._stages.unreadable if self._stages is not None else []

    def run(self) -> Bisection:
        """Compile and bisect; results of the compiled program count as recorded.

        Raises ``DeviceError`` where there is no jaxlib, and as ``XlaOracle.dumped`` and ``DumpBisect.run``.
        """
        first = next(self.inputs.all(self.module))
        oracle = XlaOracle(first, self.executor, self.tolerance, self.flags)
        obstacle = oracle.obstacle()
        if obstacle:
            raise DeviceError(f"{self.name}: XLA cannot compile it here: {obstacle}")
        compiled = oracle.dumped(self.module, self.folder)
        modules = [module for module in read_dump(self.folder).modules if module.stages]
        if not modules:
            raise UnsupportedError("XLA dumped no stage of it", name=self.name)
        dumped = max(modules, key=lambda module: len(module.stages))
        search = self._stages = DumpBisect(
            dumped.label,
            self.name,
            stages_of(dumped),
            self.inputs,
            self.executor,
            self.tolerance,
            self.every,
            recorded=compiled.results,
            flags=self.flags,
            weights=self.module.weights,
        )
        return search.run()
