"""A whole loop, a block for each work item of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hloopt.analysis.index import Indices, delinearize
from hloopt.analysis.parallel_loop import Axes, Carried
from hloopt.analysis.parallel_loop.block_stages import StagedState
from hloopt.analysis.parallel_loop.edges import LoopValue
from hloopt.analysis.parallel_loop.state import LoopState
from hloopt.codegen.elemental.indexing import starts
from hloopt.codegen.emission import EmissionFrame, framed
from hloopt.codegen.loops.block import BlockLoop, Store
from hloopt.codegen.loops.places import LoopResults, full_index
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import Expr
from hloopt.kernels.families.while_per_block import block_kernel

__all__ = ["EMITTERS"]


def emit(f: FunctionWriter) -> None:
    """Each block: what its threads share in shared memory, from the first iteration to the last."""
    _WorkItem(f).write()


class _WorkItem:
    """What a block does for one work item."""

    def __init__(self, f: FunctionWriter) -> None:
        self.fused, self.plan = block_kernel(f.region, f.tile["threads"])
        work_item = delinearize(f.block(), self.plan.parallel.sizes)
        self.results = LoopResults(f, self.fused, work_item)
        self.e = f.elements
        self.block = BlockLoop(f, self.plan, work_item)
        self.block.stream = self._stream

    def write(self) -> None:
        """Write the whole body."""
        block, iteration = self.block, self.plan.iteration
        block.declare()
        parallel = self.plan.parallel
        begun = [
            carried
            for carried in parallel.carried
            if carried.update is not None
            and self.fused.leaves(carried.number)
            and not LoopState(parallel.loop).covers(carried.update)
        ]
        for carried in begun:
            self._pass_through(carried)
        if begun:
            block.barrier()
        block.run(iteration)
        if not iteration.closes and any(
            state.kind in ("single", "double") for state in iteration.states
        ):
            block.barrier()
        for carried in parallel.carried:
            if not self.fused.leaves(carried.number) or carried.role == "streamed":
                continue
            if block.is_invariant(carried.number):
                self._pass_through(carried)
            else:
                self._each(carried, partial(block.last, carried))

    def _pass_through(self, carried: Carried) -> None:
        """Write what an element of the state is before the first iteration."""
        value = LoopValue((), self.fused.loop.operands[0], carried.number)
        self._each(carried, lambda _, index: self.block.value(value, index))

    def _each(self, carried: Carried, value: Callable[[int, Indices], Expr]) -> None:
        with self.results.of_one_unit(carried.axes):
            for slot, local, tests in self.block.threads.each(carried.local_elements):
                place = delinearize(local, carried.local_dims)
                index = full_index(carried.axes, self.block.work_item, place)
                name = value(slot, index)
                with self.e.when(*tests):
                    self.results.store(carried.number, index, name)

    def _stream(self, state: StagedState, frame: EmissionFrame) -> tuple[Axes, Store] | None:
        """Where an iteration's update of an element goes; None where the element is not a result."""
        carried = self.plan.parallel.carried[state.number]
        update = carried.update
        assert update is not None
        if not self.fused.leaves(state.number):
            return None
        sizes, part = carried.shape.dims, update.operands[1].array.dims
        first = self.e.run(framed(frame, starts(self.e, update.operands[2:], sizes, part)))

        def put(index: Indices, value: Expr) -> None:
            with self.results.of_one_unit(carried.axes):
                self.results.store(state.number, index, value, first)

        return carried.axes, put


EMITTERS = {"while-per-block": emit}
