"""Windows inside a kernel: reduce-window and select-and-scatter, a thread for each result."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack
from typing import Final

from hloopt.analysis.index import Index, Indices, Symbol
from hloopt.codegen import inside
from hloopt.codegen.elemental.reduction import begin, finish, fold
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import At, Emission, Emit, each
from hloopt.codegen.reducer import ReducerCode
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import FALSE, Call, Expr, Var, as_expr, eq
from hloopt.kernel_ir.types import BOOL
from hloopt.types import WindowDim

__all__ = ["EMITTERS", "window_position"]


def window_position(
    output: Index, element: Index, window: WindowDim, size: int
) -> tuple[list[Expr], Index]:
    """Which element of a dimension of ``size`` a window meets, and the tests that it meets one.

    Output ``o`` meets element ``i`` at window position ``w`` where
    ``o * stride + w * window_dilation - pad_low == i * base_dilation``.
    """
    at = output * window.stride + element * window.window_dilation - window.pad_low
    end = (size - 1) * window.base_dilation
    return inside(at, end, window.base_dilation), at // window.base_dilation


def _visit(e: Elements, instruction: Instruction, output: Indices, blocks: ExitStack) -> Indices:
    """Begin loops over the window of an output, and tests that it meets an element; returns its index."""
    position = []
    dims = instruction.operands[0].array.dims
    for at, window in enumerate(instruction.window.dims):
        element = Index(0)
        if window.size != 1:
            element = blocks.enter_context(e.counting(0, window.size, "w"))
        tests, place = window_position(output[at], element, window, dims[at])
        blocks.enter_context(e.when(*tests))
        position.append(place)
    return tuple(position)


def _reduce_window(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    count = len(instruction.operands) // 2
    inputs, inits = instruction.operands[:count], instruction.operands[count:]
    reducer = ReducerCode.of(instruction)
    first = yield from each(map(At, inits))
    names = begin(e, reducer, first, instruction.name)
    with ExitStack() as blocks:
        blocks.enter_context(e.before(index))
        position = _visit(e, instruction, index, blocks)
        if inputs[0].array.elements:
            yield from fold(e, reducer, names, inputs, position)
    return finish(e, reducer, names, instruction, index, leaf)


def _select_and_scatter(
    e: Elements, instruction: Instruction, index: Indices, leaf: int
) -> Emission:
    """The element at ``index`` takes in each source value whose window selects it, in their order.

    Each window that meets the element is searched anew: windows overlap little.
    """
    source, init = instruction.operands[1:]
    windows = instruction.window.dims
    first = yield At(init)
    total = e.variable(instruction.array.dtype, instruction.name, first)
    with ExitStack() as blocks:
        blocks.enter_context(e.before(index))
        places: list[Index] = []
        for at, window in enumerate(windows):
            size = source.array.dims[at]
            if size == 0:
                return total
            # Windows that may meet it: o*stride <= i + pad_low <= o*stride + reach.
            reach = (window.size - 1) * window.window_dilation
            low = index[at] + window.pad_low - reach + (window.stride - 1)
            kind = e.loads.index_type
            begin, end = (
                as_expr(one // window.stride) for one in (low, index[at] + window.pad_low)
            )
            if low.low < 0:
                begin = Call("max", (as_expr(0), begin), kind)
            if (index[at] + window.pad_low).high // window.stride > size - 1:
                end = Call("min", (as_expr(size - 1), end), kind)
            block, counter = e.scope.loop(begin, end, "o", kind, test="<=")
            blocks.enter_context(e.within(block))
            places.append(Symbol(counter.name, 0, size - 1).index)
        chosen = yield from _selected(e, instruction, tuple(places))
        blocks.enter_context(e.when(*map(eq, chosen, index)))
        value = yield At(source, tuple(places))
        results = yield from e.call(instruction.attributes["scatter"], [total, value])
        e.scope.set(total, results[0])
    return total


def _selected(
    e: Elements, instruction: Instruction, output: Indices
) -> Generator[At, Expr, list[Var]]:
    """Search one window; returns the variables of the selected element's place, -1 where there is none."""
    operand = instruction.operands[0]
    kind = e.loads.index_type
    chosen = [e.scope.variable(kind, f"selected_{at}", -1) for at in range(operand.array.rank)]
    best = e.variable(operand.array.dtype, "selected")
    with ExitStack() as blocks:
        blocks.enter_context(e.before(output))
        position = _visit(e, instruction, output, blocks)
        candidate = yield At(operand, position)
        keep = e.scope.variable(BOOL, "keep", FALSE)
        with e.when(chosen[0] >= 0):
            results = yield from e.call(instruction.attributes["select"], [best, candidate])
            e.scope.set(keep, results[0])
        with e.when(keep.negated()):
            e.scope.set(best, candidate)
            for name, place in zip(chosen, position, strict=True):
                e.scope.set(name, place)
    return chosen


EMITTERS: Final[Mapping[str, Emit]] = {
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
}
