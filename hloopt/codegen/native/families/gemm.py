"""The kernel of large products: for each task, some rows by ``large_product`` of products.h."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.contraction import Contraction, Group, Side
from hloopt.analysis.index import Index, Symbol
from hloopt.codegen.families.dot_index import operand_place, split_axes
from hloopt.codegen.families.dot_values import sum_type
from hloopt.codegen.positions import position_of
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernels.families.native_gemm import large_product

__all__ = ["EMITTERS", "in_memory"]


def _emit(f: FunctionWriter) -> None:
    contraction = large_product(f.region)
    assert isinstance(contraction, Contraction)
    b, m, n, k = (contraction.size(group) for group in ("b", "m", "n", "k"))
    rows = f.tile["rows"]
    parts = -(-m // rows)
    name = f.scope.names.fresh("task")
    task = Symbol(name, 0, b * parts - 1).index
    block = f.scope.block(f"for (long long {name} = begin; {name} < end; ++{name})")
    with f.elements.within(block):
        batch = f.elements.symbol(task // parts, "b", 0, b - 1)
        first = f.elements.symbol(task % parts * rows, "row", 0, m - 1)
        left, lm, lk = _factor(f, contraction, contraction.lhs, batch, ("m", "k"))
        right, rk, rn = _factor(f, contraction, contraction.rhs, batch, ("k", "n"))
        some = rows if m % rows == 0 else f"({first} + {rows} < {m} ? {rows} : {m} - ({first}))"
        block.line(
            f"hloopt::large_product<{sum_type(f, contraction)}>({some}, {n}, {k}, "
            f"{left} + {first * lm}, {lm}, {lk}, {right}, {rk}, {rn}, "
            f"{f.result(0).name} + {batch * (m * n) + first * n}, {n});"
        )


def _factor(
    f: FunctionWriter, contraction: Contraction, side: Side, batch: Index, groups: Sequence[Group]
) -> tuple[str, int, int]:
    found = in_memory(f, contraction, side, batch, groups)
    assert found is not None, "the family asks for it"
    return found


def in_memory(
    f: FunctionWriter, contraction: Contraction, side: Side, batch: Index, groups: Sequence[Group]
) -> tuple[str, int, int] | None:
    """Where a factor lies in memory, and how far its rows and its columns are apart.

    None for what is computed, of another type than the sums, or not at equal distances.
    """
    instruction = side.instruction
    if instruction not in f.region.inputs or side.scale is not None:
        return None
    number = f.region.inputs[instruction]
    pointer = f.elements.memory.get(f.region.canonical(number))
    if pointer is None or instruction.array.dtype is not contraction.accumulator:
        return None
    rows, columns = (contraction.size(group) for group in groups)
    row = Symbol(f"counts {groups[0]}", 0, rows - 1).index
    column = Symbol(f"counts {groups[1]}", 0, columns - 1).index
    axes = split_axes(contraction, {"b": batch, groups[0]: row, groups[1]: column})
    tests, place = operand_place(side, axes)
    if tests:
        return None
    rest = position_of(place, instruction.array)
    steps = []
    for count in (row, column):
        step = next((times for atom, times in rest.terms if Index(0, ((atom, 1),)) == count), 0)
        rest = rest - count * step
        steps.append(step)
    if "counts" in str(rest):
        return None
    return f"{pointer} + {rest}", steps[0], steps[1]


EMITTERS = {"native-gemm": _emit}
"""What writes the kernel of this family."""
