"""A reduce inside a kernel: each thread folds the elements of its results one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hloopt.analysis.index import Index, Indices
from hloopt.codegen.elements import Elements
from hloopt.codegen.emission import Asking, At, Emission, Emit, each, every
from hloopt.codegen.reducer import ReducerCode
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Expr, Var
from hloopt.kernel_ir.statements import Target

__all__ = ["EMITTERS", "begin", "finish", "fold"]


def begin(e: Elements, reducer: ReducerCode, inits: Sequence[Expr], hint: str) -> list[Var]:
    """Variables for the accumulators, set to the inits."""
    return [
        e.variable(kind, f"{hint}_sum" if len(inits) == 1 else hint, value)
        for kind, value in zip(reducer.accumulators, reducer.lift(e, inits), strict=True)
    ]


def finish(
    e: Elements,
    reducer: ReducerCode,
    names: Sequence[Expr],
    instruction: Instruction,
    index: Indices,
    leaf: int,
) -> Expr:
    """Round the accumulators and remember every output; returns output ``leaf``."""
    results = reducer.lower(e, names)
    for number, name in enumerate(results):
        e.remember(instruction, index, number, name)
    return results[leaf]


def _reduce(e: Elements, instruction: Instruction, index: Indices, leaf: int) -> Emission:
    count = len(instruction.operands) // 2
    inputs, inits = instruction.operands[:count], instruction.operands[count:]
    reducer = ReducerCode.of(instruction)
    first = yield from each(map(At, inits))
    names = begin(e, reducer, first, instruction.name)
    dims = inputs[0].array.dims
    reduced = set(instruction.attributes["dimensions"])
    kept = iter(index)
    alone = e.alone.get(instruction, {})
    position = [alone.get(at, Index(0)) if at in reduced else next(kept) for at in range(len(dims))]
    # One element is at the place of its result, where what it is computed from may be known already.
    along = sorted(at for at in reduced if dims[at] != 1 and at not in alone)

    def one(places: Sequence[Index]) -> Asking:
        for at, place in zip(along, places, strict=True):
            position[at] = place
        yield from fold(e, reducer, names, inputs, tuple(position))

    yield from every(e, [dims[at] for at in along], "r", one, around=index)
    return finish(e, reducer, names, instruction, index, leaf)


def fold(
    e: Elements,
    reducer: ReducerCode,
    names: Sequence[Target],
    inputs: Sequence[Instruction],
    position: Indices,
) -> Asking:
    """Take the elements at ``position`` into the accumulators."""
    values = yield from each(At(operand, position) for operand in inputs)
    results = yield from reducer.combine(e, names, reducer.lift(e, values))
    reducer.write(e, names, results)


EMITTERS: Final[Mapping[str, Emit]] = {"reduce": _reduce}
