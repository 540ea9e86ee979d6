"""The time of a whole loop as one kernel of the host: all that an iteration evaluates, as often as it does.

A kernel that loops has arrays for the state and for what ``ThreadPlan`` keeps, and variables for what is small
enough to be written out.  Any other value is computed for each element of each reader, like a producer in its
user's kernel (``body_usage.py``): a sum that 40 elements of the next state read is added up 40 times, with all
that is below it.  So

    iteration = ((U + S) / lanes + B F / scalars) / clock,    time = trip count * iteration

where U are additions (``host.toml``) for what work items own, S elements of the state, all of which are written
in each iteration, however few of them change, and F additions for what work items have in common, which each
of B blocks computes for itself.  Blocks of fewer work items than a vector has lanes compute number by number.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from hloopt.analysis.parallel_loop import LoopMapping, ParallelLoop, local_dims
from hloopt.analysis.parallel_loop.edges import entered
from hloopt.analysis.parallel_loop.host_mapping import LANES, block_items
from hloopt.analysis.parallel_loop.thread_plan import UNROLLED, ThreadPlan
from hloopt.analysis.trip_count import counted_iterations
from hloopt.cost_models.body_usage import BodyUsage, UsageGroup
from hloopt.cost_models.counting import OpUsage
from hloopt.cost_models.host import counting
from hloopt.cost_models.usage import UsageAnalysis
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import BODIES, MOVING
from hloopt.targets import Target
from hloopt.types import ArrayShape, DotDims, elements_of

__all__ = ["whole_loop_ns"]

_SCALARS: Final = 2.5
"""Additions that end in a clock where each is of a single number: loops that do not wait for each other."""

_GIVEN: Final = ("constant", "get-tuple-element", "parameter")
_READS: Final = MOVING - {"copy"} | {"dynamic-slice"}


def whole_loop_ns(mapping: LoopMapping, target: Target) -> float:
    """Nanoseconds of a loop in one kernel on one core, without its launches."""
    parallel = mapping.parallel
    work_items = block_items(parallel)
    blocks = -(-parallel.work_items // work_items)
    work = _Work(parallel)
    own, common = float(_written(parallel)), 0.0
    for called in entered(parallel.loop):
        found = work.of(called)
        own, common = own + found[0], common + found[1]
    # Where no vector of work items fits into the cache, vectors lie along what each work item has.
    in_vectors = work_items >= LANES or work_items == 1 < parallel.work_items
    lanes = float(max(1, target.fpus_per_core)) if in_vectors else _SCALARS
    each = own / lanes + blocks * common / _SCALARS
    return counted_iterations(parallel.loop).count * each / target.clock_ghz


def _written(parallel: ParallelLoop) -> int:
    """Elements of the state that an iteration writes: not what streams to a result, nor what stays as it is."""
    return sum(one.shape.elements for one in parallel.carried if one.role in ("uniform", "owned"))


class _Work:
    """Additions of an iteration: of all that work items own, and of what each block computes for itself."""

    def __init__(self, parallel: ParallelLoop) -> None:
        self.parallel = parallel
        self.usages = UsageAnalysis(counting())
        self.stored = frozenset(ThreadPlan(parallel).stored)

    def of(self, computation: Computation) -> tuple[float, float]:
        """Of work items, and of each block."""
        usage = _Evaluations(computation, self.count, self.kept(computation))
        own = common = 0.0
        for entry in computation:
            if entry.opcode in BODIES:
                work_items, block = self.called(entry)
                own, common = own + work_items, common + block
            elif entry.opcode != "parameter":
                spent = usage.group(entry).utilization * self.count(entry).flops
                if self.is_of_units(entry):
                    own += spent
                else:
                    common += spent
        return own, common

    def is_of_units(self, value: Instruction) -> bool:
        """Whether each work item has its part; what any could compute, each computes where it needs it."""
        if (value, 0) in self.parallel.owned or not self.parallel.sizes:
            return True
        return elements_of(value.shape) > UNROLLED

    def kept(self, computation: Computation) -> frozenset[Instruction]:
        """Values of which each element is computed once."""
        found = set(self.stored)
        simple: set[Instruction] = set()
        for value in computation:
            if value.opcode in BODIES or self.is_written_out(value):
                found.add(value)
            # What compilers take out of a loop: single numbers, unless another loop makes them.
            if value.opcode in _GIVEN or (
                self.size(value) == 1
                and (value.op.is_elementwise or value.opcode in _READS)
                and simple.issuperset(value.operands)
            ):
                simple.add(value)
        return frozenset(found | simple)

    def is_written_out(self, value: Instruction) -> bool:
        """Whether all code that reads a value is written out in one place, where it is computed once."""
        return self.size(value) <= UNROLLED and all(
            user.opcode == "tuple"
            or (user.opcode != "scatter" and max(self.size(user), self.folded(user)) <= UNROLLED)
            for user in value.users
        )

    def size(self, value: Instruction) -> int:
        """Elements that a work item has of a value."""
        if not isinstance(value.shape, ArrayShape):
            return 0
        return prod(local_dims(value.array, self.parallel.owned.get((value, 0))))

    def folded(self, reader: Instruction) -> int:
        """Elements that one element of a reader takes together."""
        if reader.opcode == "dot":
            return _contracted(reader)
        if reader.opcode == "reduce":
            return self.size(reader.operands[0]) // max(self.size(reader), 1)
        return 1

    def count(self, op: Instruction) -> OpUsage:
        """An op by itself; how often its operands are read is what the code of a loop does."""
        operands = op.operands
        if op.opcode in BODIES:
            return OpUsage(0, 0, (0,) * len(operands), (1.0,) * len(operands))
        usage = self.usages.op(op)
        if op.opcode == "dot":
            products = op.array.elements * _contracted(op)
            used = tuple(products / max(1, one.array.elements) for one in operands)
            return usage._replace(used=used)
        if op.opcode == "scatter":
            return _scatter(op, usage)
        return usage

    def called(self, op: Instruction) -> tuple[float, float]:
        """As ``of``: a loop in the loop, a branch, the longest where there are several."""
        if op.opcode == "while":
            times = counted_iterations(op).count
            found = [self.of(called) for called in entered(op)]
            return times * sum(one[0] for one in found), times * sum(one[1] for one in found)
        if op.opcode == "conditional":
            return max(map(self.of, branches(op)), key=sum)
        return self.of(*entered(op))


class _Evaluations(BodyUsage):
    """Utilisations where some values are computed once and kept."""

    def __init__(
        self,
        body: Computation,
        count: Callable[[Instruction], OpUsage],
        kept: frozenset[Instruction],
    ) -> None:
        self._kept = kept
        super().__init__(body, count)

    def _settle(self, instruction: Instruction) -> UsageGroup:
        group = super()._settle(instruction)
        if instruction not in self._kept or group.utilization <= 1:
            return group
        roots = frozenset((instruction,))
        self._utilization[instruction], self._emitted[instruction] = 1.0, 1
        self._known[roots] = once = UsageGroup(roots, 1.0, 1)
        return once


def _contracted(dot: Instruction) -> int:
    dims = DotDims.of(dot.attributes)
    return prod(dot.operands[0].array.dims[at] for at in dims.lhs_contracting)


def _scatter(scatter: Instruction, usage: OpUsage) -> OpUsage:
    """Each element of the result compares the indices of all updates, and what each may write to it."""
    count = (len(scatter.operands) - 1) // 2
    whole = elements_of(scatter.operands[0].shape)
    indices = elements_of(scatter.operands[count].shape)
    updates = elements_of(scatter.operands[count + 1].shape)
    given = whole * indices / max(updates, 1)
    used = (*(1.0,) * count, float(whole), *(given,) * count)
    return usage._replace(flops=2 * whole * indices, used=used)
