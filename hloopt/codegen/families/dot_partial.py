"""Adding the partial sums of a contracted axis that was cut into parts."""

from __future__ import annotations

from hloopt.analysis.contraction import Contraction
from hloopt.analysis.index import delinearize
from hloopt.codegen.families.dot_values import add, store_sums, sum_type
from hloopt.codegen.families.loop import bounded
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernels.families.dot_region import ProductRegion

__all__ = ["emit_sum"]


def emit_sum(
    f: FunctionWriter, product: ProductRegion, contraction: Contraction, split: int
) -> None:
    """A thread for each result: the sum of its parts, in their order."""
    e, elements = f.elements, contraction.hero_elements
    thread = f.global_thread("i")
    thread = bounded(f, thread, elements)
    partial, kind = f.scratch(0).memory, sum_type(f, contraction)
    total = f.scope.variable(kind, "total", partial[thread])
    if split > 1:
        with e.counting(0, split - 1, "part") as part:
            other = partial[thread + (part + 1) * elements]
            add(f, contraction, total, e.scope.declare(kind, other, "next"))
    store_sums(f, product, [delinearize(thread, contraction.hero_dims)], [total])
