"""A whole loop, a block for each unit of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from hloopt.analysis.index import Index, delinearize
from hloopt.analysis.parallel_loop import Axes, Carried
from hloopt.analysis.parallel_loop.block_stages import State
from hloopt.analysis.parallel_loop.coverage import writes_all
from hloopt.analysis.parallel_loop.edges import Value
from hloopt.codegen.elemental.indexing import starts
from hloopt.codegen.emission import Frame, framed
from hloopt.codegen.loops.block import BlockLoop
from hloopt.codegen.loops.places import firsts, full_index
from hloopt.codegen.positions import position_of
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import Expr
from hloopt.kernel_ir.scope import Scope
from hloopt.kernels.families.while_per_block import BlockLoopKernel, block_kernel

__all__ = ["EMITTERS"]


def emit(f: FunctionWriter) -> None:
    """Each block: what its threads share in shared memory, from the first trip to the last."""
    kernel = block_kernel(f.region, f.tile["threads"])
    unit = delinearize(f.block(), kernel.plan.parallel.sizes)
    _Unit(f, kernel, unit).write()


class _Unit:
    """What a block does for one unit."""

    def __init__(self, f: FunctionWriter, kernel: BlockLoopKernel, unit: tuple[Index, ...]) -> None:
        self.f = f
        self.e = f.elements
        self.kernel = kernel
        self.unit = unit
        self.block = BlockLoop(f, kernel.plan, unit)
        self.block.stream = self._stream

    def write(self) -> None:
        """Everything."""
        block, trip = self.block, self.kernel.plan.trip
        block.declare()
        parallel, begun = self.kernel.plan.parallel, False
        for carried in parallel.carried:
            update = carried.update
            is_wanted = update is not None and self.kernel.results(carried.number)
            if update is not None and is_wanted and not writes_all(parallel, update):
                self._hand_on(carried)
                begun = True
        if begun:
            block.barrier()
        block.run(trip)
        if not trip.closes and any(state.kind in ("single", "double") for state in trip.states):
            block.barrier()
        for carried in self.kernel.plan.parallel.carried:
            if not self.kernel.results(carried.number) or carried.role == "streamed":
                continue
            if block.is_invariant(carried.number):
                self._hand_on(carried)
            else:
                self._each(carried, partial(block.last, carried))

    def _hand_on(self, carried: Carried) -> None:
        """Write what an element of the state is before the first trip."""
        init = self.kernel.fused.loop.operands[0]
        value = Value((), init, carried.number)
        self._each(carried, lambda _, index: self.block.value(value, index))

    def _each(self, carried: Carried, value: Callable[[int, tuple[Index, ...]], Expr]) -> None:
        with self._whose(carried.axes):
            for slot, local, tests in self.block.threads.each(carried.local_elements):
                index = full_index(carried.axes, self.unit, delinearize(local, carried.local_dims))
                name = value(slot, index)
                with self.e.when(*tests):
                    self._store(carried.number, index, name)

    def _store(self, number: int, index: tuple[Index, ...], value: Expr) -> None:
        for leaf in self.kernel.results(number):
            pointee = self.f.result(leaf)
            self.f.store(pointee, position_of(index, pointee.shape), value)

    def _whose(self, axes: Axes) -> AbstractContextManager[Scope]:
        """The block of the one unit that writes what lies along some of the axes only."""
        return self.e.when(*firsts(self.unit, axes))

    def _stream(
        self, state: State, frame: Frame
    ) -> tuple[Axes, Callable[[tuple[Index, ...], Expr], None]] | None:
        """Where a trip's update of an element goes; None where nobody wants the element."""
        carried = self.kernel.plan.parallel.carried[state.number]
        update = carried.update
        assert update is not None
        if not self.kernel.results(state.number):
            return None
        sizes, part = carried.shape.dims, update.operands[1].array.dims
        first = self.e.run(framed(frame, starts(self.e, update.operands[2:], sizes, part)))

        def put(index: tuple[Index, ...], value: Expr) -> None:
            where = tuple(a + b for a, b in zip(index, first, strict=True))
            with self._whose(carried.axes):
                self._store(state.number, where, value)

        return carried.axes, put


EMITTERS = {"while-per-block": emit}
