"""Stable sorts of short rows: an order of places is merged, from runs of one element on."""

from __future__ import annotations

from hloopt.backends.native.codegen.nest import least, tasks
from hloopt.codegen.families.sort import index_in_row, place_of
from hloopt.codegen.writer import FunctionWriter
from hloopt.ir import Instruction
from hloopt.kernel_ir.expressions import Array, Expr, Select, Var, as_expr, both, either
from hloopt.kernel_ir.types import INT
from hloopt.kernels.families.sort import rows_of, sort_of

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    sort = sort_of(f.region)
    assert sort is not None
    e, (rows, length, _) = f.elements, rows_of(sort)
    with tasks(f, "row", f.tile["rows"], rows) as row:
        kinds = [f.uses.type(operand.array.dtype) for operand in sort.operands]
        values = [e.scope.array(kind, (length,), "values") for kind in kinds]
        order, merged = (e.scope.array(INT, (length,), hint) for hint in ("order", "merged"))
        with e.counting(0, length, "at", type=INT) as at:
            index = index_in_row(sort, row, at)
            for array, operand in zip(values, sort.operands, strict=True):
                e.scope.set(array[at], e.value(operand, index))
            e.scope.set(order[at], at)
        _merge_all(f, sort, values, order, merged)
        with e.counting(0, length, "at", type=INT) as at:
            place = e.scope.declare(INT, order[at], "place")
            for number, array in enumerate(values):
                f.store(f.result(number), place_of(sort, row, at), array[place])


def _merge_all(
    f: FunctionWriter, sort: Instruction, values: list[Array], order: Array, merged: Array
) -> None:
    """Merge neighbouring runs of 1, 2, 4 ... places until there is one."""
    e, length = f.elements, rows_of(sort)[1]
    widths, width = e.scope.loop(1, length, "width", INT, 2, change="*=")
    with e.within(widths):
        pairs, left = e.scope.loop(0, length, "left", INT, 2 * width)
        with e.within(pairs):
            middle = e.scope.declare(INT, least(left + width, length), "middle")
            end = e.scope.declare(INT, least(left + 2 * width, length), "end")
            _merge(f, sort, values, (order, merged), (left, middle, end))
        with e.counting(0, length, "at", type=INT) as at:
            e.scope.set(order[at], merged[at])


def _merge(
    f: FunctionWriter,
    sort: Instruction,
    values: list[Array],
    orders: tuple[Array, Array],
    run: tuple[Var, Var, Var],
) -> None:
    """Two runs into one: the right one's element goes first where the comparator says so."""
    e, (order, merged), (left, middle, end) = f.elements, orders, run
    i = e.scope.variable(INT, "i", left)
    j = e.scope.variable(INT, "j", middle)
    block, target = e.scope.loop(left, end, "target", INT)
    with e.within(block):
        scope = e.scope
        # Where one run is used up its last place stands in, and what the comparator says of it does not count.
        one = scope.declare(INT, order[least(i, middle - 1)], "one")
        other = scope.declare(INT, order[least(j, end - 1)], "other")
        given: list[Expr] = [array[place] for array in values for place in (other, one)]
        names = [scope.declare(item.type, item, "key") for item in given]
        (first,) = e.run(e.call(sort.attributes["to_apply"], names))
        takes = scope.declare(
            INT, Select.of(both([j < end, either([i >= middle, first])]), 1, 0), "takes"
        )
        scope.set(merged[target], Select.of(takes > 0, other, one))
        scope.set(j, takes, "+")
        scope.set(i, 1 - as_expr(takes), "+")


EMITTERS = {"native-sort": _emit}
"""What writes the kernels of this family."""
