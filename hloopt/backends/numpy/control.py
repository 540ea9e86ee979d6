"""Loops and conditionals as steps: the lines of called computations, and which inputs these may overwrite."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.plan import (
    Cases,
    Function,
    Line,
    LineLoop,
    Slots,
    Step,
    in_place,
    leaf_slots,
    pack,
    unpack,
)
from hloopt.backends.numpy.sharing import give_away, most_alive, written_inputs
from hloopt.backends.numpy.source import compile_line
from hloopt.interpret.context import Context
from hloopt.interpret.control import branches, check_progress
from hloopt.ir import Computation, Instruction
from hloopt.types import ArrayShape, Shape, TupleShape, leaves

if TYPE_CHECKING:
    from hloopt.backends.numpy.loop_blocks import BlockedLoop, CompiledLoop
    from hloopt.backends.numpy.loop_plan import Blocking

__all__ = ["Lines", "add_conditional", "add_while"]


class Lines(Context):
    """The interface that compiles called computations (``compiler.LineCompiler``)."""

    launches: list[int]
    loops: dict[str, str]
    blocking: Blocking | None
    threads: int

    @abstractmethod
    def line(self, computation: Computation, *, counted: bool) -> Line:
        """A computation's steps."""

    @abstractmethod
    def cut(self, line: Line, *, looped: bool = False) -> Line:
        """A line with large elementwise work done by blocks."""

    @abstractmethod
    def function(self, computation: Computation, *, counted: bool) -> Function:
        """A computation as a function of flat arrays."""

    @abstractmethod
    def is_inlined(self, callee: Computation) -> bool:
        """Whether a computation is written where it is called."""

    @abstractmethod
    def several(
        self,
        builder: Builder,
        instruction: Instruction,
        operands: list[Slots],
        function: Function,
        **flags: Any,
    ) -> Slots:
        """A step with several results."""


def add_while(
    compiler: Lines,
    builder: Builder,
    instruction: Instruction,
    operands: list[Slots],
    *,
    counted: bool,
) -> Slots:
    """A loop.  The body may overwrite the parts of the state it updates in place.

    They are copied before the first iteration unless this loop is the last to need them.
    """
    body = compiler.line(instruction.body, counted=counted)

    def stuck(iteration: int) -> None:
        check_progress(instruction, iteration, alone=compiler.participant.count == 1)

    blocked = _blocked(compiler, instruction, body, stuck)
    if blocked is not None:

        def choose(own: frozenset[int]) -> Function:
            return lambda *state: blocked.run(own, state)

        return compiler.several(
            builder, instruction, operands, in_place, writes=blocked.written, choose=choose
        )
    compiler.cut(body, looped=True)
    condition = compiler.cut(compiler.line(instruction.condition, counted=counted))
    writes = _give_away(body, len(body.inputs))
    from hloopt.analysis.trip_count import trip_count

    # A condition with side effects is evaluated all the same.
    count = None if any(step.keep for step in condition.steps) else trip_count(instruction, 0)
    inner = LineLoop(condition, body, _kept_leaves(compiler, instruction.shape), stuck, count)
    return compiler.several(
        builder, instruction, operands, in_place, writes=tuple(sorted(writes)), inner=inner
    )


def _give_away(line: Line, width: int) -> frozenset[int]:
    """The positions of a flat state of ``width`` arrays that a body writes into from now on."""
    written = written_inputs(line) & set(line.inputs[:width])
    give_away(line, written)
    return frozenset(at for at in range(width) if line.inputs[at] in written)


def _blocked(
    compiler: Lines, instruction: Instruction, line: Line, stuck: Callable[[int], None]
) -> BlockedLoop | None:
    """The loop of a fusion by blocks of its work items; None for a loop that runs whole."""
    computation = instruction.computation
    assert computation is not None
    fusion = next(iter(computation.callers), None)
    if fusion is None:
        return None
    # Loading the analysis of loops takes longer than compiling a module without such loops.
    from hloopt.analysis.parallel_loop import fused_loop
    from hloopt.backends.numpy.loop_blocks import BlockedLoop
    from hloopt.backends.numpy.loop_plan import Blocking, plan_blocks

    fused = fused_loop(fusion)
    if fused is None or fused.loop is not instruction:
        return None
    planned = plan_blocks(
        instruction, fused.results, most_alive(line), compiler.blocking or Blocking()
    )
    if isinstance(planned, str):
        compiler.loops[fusion.name] = f"runs whole: {planned}"
        return None
    compiler.loops[fusion.name] = f"runs in {planned.words}"
    return BlockedLoop(planned, partial(_cut_loop, compiler), compiler, stuck, compiler.threads)


def _cut_loop(
    compiler: Lines, condition: Computation, body: Computation, shape: TupleShape
) -> CompiledLoop:
    from hloopt.backends.numpy.loop_blocks import CompiledLoop

    line = compiler.line(body, counted=False)
    written = _give_away(line, len(shape.elements))
    function = compile_line(line, compiler.launches, looped=True)
    condition_function = compile_line(
        compiler.line(condition, counted=False), compiler.launches, looped=True
    )
    return CompiledLoop(condition_function, function, _kept(compiler, shape), written)


def add_conditional(
    compiler: Lines,
    builder: Builder,
    instruction: Instruction,
    operands: list[Slots],
    *,
    counted: bool,
) -> Slots:
    """A choice of one of several computations."""
    computations = branches(instruction)
    lines, starts, enter = [], [], []
    start = 1
    for operand, computation in zip(instruction.operands[1:], computations, strict=True):
        lines.append(_branch(compiler, computation, counted=counted))
        starts.append(start)
        enter.append(_kept_leaves(compiler, operand.shape))
        start += len(enter[-1])
    leave = _kept_leaves(compiler, instruction.shape)
    inner = Cases(tuple(lines), tuple(starts), tuple(enter), leave)
    return compiler.several(builder, instruction, operands, in_place, inner=inner)


def _branch(compiler: Lines, computation: Computation, *, counted: bool) -> Line:
    """A computation written in place, or a call of it."""
    if compiler.is_inlined(computation):
        return compiler.cut(compiler.line(computation, counted=counted))
    builder = Builder(compiler)
    inputs = [builder.slots(parameter.shape) for parameter in computation.parameters]
    builder.line.inputs = [leaf for slots in inputs for leaf in leaf_slots(slots)]
    outs = tuple(leaf_slots(builder.slots(computation.result_shape)))
    function = compiler.function(computation, counted=counted)
    ins = tuple(builder.line.inputs)
    builder.line.steps.append(Step(function, ins, outs, several=True, view=True, keep=True))
    builder.line.results = list(outs)
    return builder.line


def _kept(compiler: Lines, shape: Shape) -> Function:
    """What a buffer of ``shape`` keeps of a value: see ``Context.materialize``."""
    if not compiler.excess_precision:
        return _same
    packed = pack([shape])
    return lambda flat: unpack(compiler.materialize(packed(*flat)[0], shape))


def _kept_leaves(compiler: Lines, shape: Shape) -> tuple[Function | None, ...]:
    """The same for each array of it; None for those that are kept as they are."""
    return tuple(
        partial(compiler.materialize, shape=leaf)
        if isinstance(leaf, ArrayShape) and compiler.carrier(leaf.dtype) != leaf.dtype.numpy
        else None
        for leaf in leaves(shape)
    )


def _same(flat: tuple[Any, ...]) -> tuple[Any, ...]:
    return flat
