"""Running a program for whole arrays, and what XLA's SPMD partitioner makes of it, on the same inputs."""

from __future__ import annotations

from dataclasses import field, replace

from hloopt.dataclass import dataclass
from hloopt.interpret import tells_participants_apart
from hloopt.interpret.partitioning import (
    is_partitioned,
    partitioning_of,
    whole_arrays,
)
from hloopt.ir import Module
from hloopt.prover.executor import Executor, Run
from hloopt.prover.trials import TrialInputs

__all__ = ["PartitionedRuns"]


@dataclass
class PartitionedRuns:
    """Runs modules of one compilation, of which some have been partitioned, on whole arrays.

    whole     a module before that
    inputs    of it; each replica takes those of its first participant
    executor  what runs them
    near      other modules whose annotations count
    first     results of the first run, which say where results lie that no annotation places
    """

    whole: Module
    inputs: TrialInputs
    executor: Executor
    near: list[Module] = field(default_factory=list)
    first: Run | None = None

    def run(self, module: Module, name: str = "") -> Run:
        """Run a module: with whole arrays, or with its parts of them where it has been partitioned.

        The results are whole arrays, of each replica.  Raises ``UnsupportedError`` where nothing says how a
        parameter is cut, or how a result may lie, and as ``Executor.run``.
        """
        replicas, partitions = self.inputs.counts
        wholes = replace(
            self.inputs,
            arrays=self.inputs.arrays[::partitions],
            counts=(replicas, 1),
        )
        if is_partitioned(self.whole, module):
            parts = partitioning_of(self.whole, module, partitions, self.near)
        elif tells_participants_apart(module):
            parts = whole_arrays(module, partitions)
        else:
            self.near.append(module)
            return self._first(replace(self.executor.run(module, wholes, name), taken=wholes))
        taken = replace(wholes, arrays=parts.cut(wholes.arrays), counts=self.inputs.counts)
        ran = self.executor.run(module, taken, name)
        if self.first is not None:
            parts = parts.placed(ran.results, self.first.results)
        return self._first(
            replace(
                ran,
                results=parts.joined(ran.results),
                taken=taken,
                parts=parts,
                apart=tuple(parts.apart(ran.results)),
            )
        )

    def _first(self, run: Run) -> Run:
        if self.first is None:
            self.first = run
        return run
