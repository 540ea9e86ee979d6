"""Scan along rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hloopt.analysis.index import Index, Indices, delinearize
from hloopt.codegen import position_of
from hloopt.codegen.emission import Asking, At, each
from hloopt.codegen.families.loop import strided
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernel_ir.expressions import Expr
from hloopt.kernels.families.scan import Scan, scan_of

__all__ = ["emit"]


def emit(f: FunctionWriter) -> None:
    """A thread: carries in registers, one step after the other, outputs stored as they come."""
    scan = scan_of(f.region)
    assert scan is not None
    with strided(f, prod(scan.rows)) as thread:
        f.elements.run(_row(f, scan, delinearize(thread, scan.rows)))


def _row(f: FunctionWriter, scan: Scan, row: Indices) -> Asking:
    e = f.elements
    first = yield from each(At(carry, row if carry.array.dims else ()) for carry in scan.carries)
    names = [
        e.scope.variable(f.uses.type(carry.array.dtype), "carry", value)
        for carry, value in zip(scan.carries, first, strict=True)
    ]
    if scan.length:
        computation = scan.scan.attributes["to_apply"]
        inner = row if any(one.array.dims for one in computation.parameters) else ()
        with e.counting(0, scan.length, "step") as step:
            at = Index(scan.length - 1) - step if scan.is_reverse else step
            index = (*row[: scan.axis], at, *row[scan.axis :])
            values = yield from each(At(operand, index) for operand in scan.inputs)
            made = yield from e.call(computation, [*values, *names], inner)
            _store(f, scan, 0, scan.outputs, index, made)
            fresh = [
                e.scope.declare(f.uses.type(carry.array.dtype), value, "next")
                for carry, value in zip(scan.carries, made[scan.outputs :], strict=True)
            ]
            for name, value in zip(names, fresh, strict=True):
                e.scope.set(name, value)
    _store(f, scan, scan.outputs, scan.outputs + len(names), row, names)


def _store(
    f: FunctionWriter,
    scan: Scan,
    begin: int,
    end: int,
    index: Indices,
    values: Sequence[Expr],
) -> None:
    """Store the leaves of the scan from ``begin`` to ``end`` that are results."""
    for number, leaf in enumerate(scan.leaves):
        shape = f.region.results[number].shape
        if begin <= leaf < end and shape.elements:
            place = index if shape.dims else ()
            f.store(f.result(number), position_of(place, shape), values[leaf - begin])
