"""Windows inside a kernel: reduce-window and select-and-scatter, a thread for each result."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack
from typing import Final

from hloopt.analysis.index import Index, Symbol
from hloopt.analysis.windows import window_dims
from hloopt.codegen.elemental.reduction import begin, finish, fold
from hloopt.codegen.elements import At, Elements, Emission, Emit, each
from hloopt.codegen.reducer import Reducer
from hloopt.ir import Instruction
from hloopt.types import WindowDim

__all__ = ["EMITTERS", "window_position"]

_Position = tuple[Index, ...]


def window_position(
    e: Elements, output: Index, element: Index, window: WindowDim, size: int
) -> tuple[list[str], Index]:
    """Which element of a dimension of ``size`` a window meets, and the tests that it meets one.

    Output ``o`` meets element ``i`` at window position ``w`` where
    ``o * stride + w * window_dilation - pad_low == i * base_dilation``.
    """
    at = output * window.stride + element * window.window_dilation - window.pad_low
    end = (size - 1) * window.base_dilation
    tests = []
    if at.low < 0:
        tests.append(f"{at} >= 0")
    if at.high > end:
        tests.append(f"{at} <= {end}")
    if window.base_dilation > 1:
        tests.append(f"{at % window.base_dilation} == 0")
    return tests, at // window.base_dilation


def _visit(
    e: Elements, instruction: Instruction, output: _Position, blocks: ExitStack
) -> _Position:
    """Begin loops over the window of an output, and tests that it meets an element; returns its index."""
    position = []
    dims = instruction.operands[0].array.dims
    for at, window in enumerate(window_dims(instruction)):
        element = Index(0)
        if window.size != 1:
            block, element = e.loop(window.size, "w")
            blocks.enter_context(e.within(block))
        tests, place = window_position(e, output[at], element, window, dims[at])
        if tests:
            blocks.enter_context(e.within(e.scope.when(f"{' && '.join(tests)}")))
        position.append(place)
    return tuple(position)


def _reduce_window(e: Elements, instruction: Instruction, index: _Position, leaf: int) -> Emission:
    count = len(instruction.operands) // 2
    inputs, inits = instruction.operands[:count], instruction.operands[count:]
    reducer = Reducer.of(instruction)
    first = yield from each(map(At, inits))
    names = begin(e, reducer, first, instruction.name)
    with ExitStack() as blocks:
        blocks.enter_context(e.before(index))
        position = _visit(e, instruction, index, blocks)
        if inputs[0].array.elements:
            yield from fold(e, reducer, names, inputs, position)
    return finish(e, reducer, names, instruction, index, leaf)


def _select_and_scatter(
    e: Elements, instruction: Instruction, index: _Position, leaf: int
) -> Emission:
    """The element at ``index`` takes in each source value whose window selects it, in their order.

    Each window that meets the element is searched anew: windows overlap little.
    """
    source, init = instruction.operands[1:]
    windows = window_dims(instruction)
    first = yield At(init)
    total = e.scope.variable(e.uses.type(instruction.array.dtype), instruction.name, first)
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
            name = e.scope.names.fresh("o")
            kind = e.loads.index_type
            begin_text = (
                f"max(0, {low // window.stride})" if low.low < 0 else f"{low // window.stride}"
            )
            last = (index[at] + window.pad_low) // window.stride
            end_text = f"min({size - 1}, {last})" if last.high > size - 1 else f"{last}"
            block = e.scope.block(
                f"for ({kind} {name} = {begin_text}; {name} <= {end_text}; ++{name})"
            )
            blocks.enter_context(e.within(block))
            places.append(Symbol(name, 0, size - 1).index)
        chosen = yield from _selected(e, instruction, tuple(places))
        same = " && ".join(
            f"{name} == {at.factor_text}" for name, at in zip(chosen, index, strict=True)
        )
        blocks.enter_context(e.within(e.scope.when(f"{same or 'true'}")))
        value = yield At(source, tuple(places))
        results = yield from e.call(instruction.attributes["scatter"], [total, value])
        e.scope.line(f"{total} = {results[0]};")
    return total


def _selected(
    e: Elements, instruction: Instruction, output: _Position
) -> Generator[At, str, list[str]]:
    """Search one window; returns the variables of the selected element's place, -1 where there is none."""
    operand = instruction.operands[0]
    kind = e.loads.index_type
    chosen = [e.scope.variable(kind, f"selected_{at}", "-1") for at in range(operand.array.rank)]
    best = e.scope.variable(e.uses.type(operand.array.dtype), "selected")
    with ExitStack() as blocks:
        blocks.enter_context(e.before(output))
        position = _visit(e, instruction, output, blocks)
        candidate = yield At(operand, position)
        keep = e.scope.variable("bool", "keep", "false")
        with e.within(e.scope.when(f"{chosen[0]} >= 0")):
            results = yield from e.call(instruction.attributes["select"], [best, candidate])
            e.scope.line(f"{keep} = {results[0]};")
        with e.within(e.scope.when(f"!{keep}")):
            e.scope.line(f"{best} = {candidate};")
            for name, place in zip(chosen, position, strict=True):
                e.scope.line(f"{name} = {place};")
    return chosen


EMITTERS: Final[Mapping[str, Emit]] = {
    "reduce-window": _reduce_window,
    "select-and-scatter": _select_and_scatter,
}
