"""Sorts of few or short rows on the native device: the stable merge of runs that defines the op.

What takes long is left to NumPy, whose sorts of plain keys use vectors; a call of it costs some 15 us.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from hloopt.interpret.comparator import sort_keys
from hloopt.ir import Instruction
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.families.sort import rows_of, sort_of
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, elemental_problem
from hloopt.kernels.spec import KernelPart, KernelSpec, Launch, Tile, written

__all__ = ["KERNELS"]

_NAME: Final = "native-sort"

# Of f32 with their positions a comparison takes 4 to 6 ns, so that NumPy is quicker from here on: measured with
# rows of 64 to 4096 elements, 1 and 16 of them.  Comparators that NumPy has no keys for take it far longer.
_COMPARISONS: Final = 3000
_MOST_BYTES: Final = 1 << 16
"""Of a row, which lies on the stack: its elements, and their order twice."""
_TASK_ELEMENTS: Final = 1 << 11


def _row_bytes(sort: Instruction) -> int:
    each = sum(-(-operand.array.dtype.bits // 8) for operand in sort.operands)
    return rows_of(sort)[1] * (each + 8)


def _fits(site: Site) -> Verdict:
    sort = sort_of(site.region)
    if sort is None:
        return NO("the results are not those of one sort")
    for operand in sort.operands:
        if operand.array.dtype.bits < 8:
            return NO(f"elements of {operand.array.dtype.name} share bytes with their neighbours")
    if problem := elemental_problem(site.region, (sort,)):
        return NO(problem)
    if (needed := _row_bytes(sort)) > _MOST_BYTES:
        return NO(f"a row needs {needed} bytes of the stack, more than {_MOST_BYTES}")
    return YES(f"rows of {rows_of(sort)[1]} elements")


def _wanted(site: Site) -> Verdict:
    sort = sort_of(site.region)
    assert sort is not None
    rows, length, _ = rows_of(sort)
    comparisons = rows * length * max(length - 1, 1).bit_length()
    if comparisons <= _COMPARISONS:
        return YES("a call of NumPy takes longer")
    if sort_keys(sort.attributes["to_apply"]) is None:
        return YES("NumPy has no keys for the comparator")
    return NO(f"{comparisons} comparisons are more than {_COMPARISONS}: NumPy sorts by keys")


def _tile(site: Site) -> Tile:
    sort = sort_of(site.region)
    assert sort is not None
    rows, length, _ = rows_of(sort)
    return MappingProxyType({"rows": max(1, min(rows, _TASK_ELEMENTS // max(length, 1)))})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    sort = sort_of(site.region)
    assert sort is not None
    rows, length, _ = rows_of(sort)
    steps: tuple[KernelPart, ...] = ()
    if rows * length:
        arguments = (*operands_read(site.region), *written(range(len(site.region.results))))
        steps = (Launch.linear("", -(-rows // tile["rows"]), 1, arguments),)
    return KernelSpec(_NAME, tile, steps)


KERNELS = (
    Kernel(
        _NAME,
        "rows on the stack, runs of which are merged",
        _fits,
        _wanted,
        _tile,
        _spec,
        device="native",
    ),
)
