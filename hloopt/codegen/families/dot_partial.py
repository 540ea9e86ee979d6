"""Adding the partial sums of a contracted axis that was cut into parts."""

from __future__ import annotations

from hloopt.analysis.contraction import Contraction
from hloopt.analysis.index import delinearize, narrowed
from hloopt.codegen.families.dot_values import add, store_sums, sum_type_name
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernels.families.dot_region import Product

__all__ = ["emit_sum"]


def emit_sum(f: FunctionWriter, product: Product, contraction: Contraction, split: int) -> None:
    """A thread for each result: the sum of its parts, in their order."""
    e, elements = f.elements, contraction.hero_elements
    thread = f.global_thread("i")
    if thread.high >= elements:
        f.scope.line(f"if ({thread} >= {elements}) return;")
        thread = narrowed(thread, elements)
    partial = next(found for found in f.pointees.values() if found.name.startswith("scratch"))
    kind = sum_type_name(f, contraction)
    total = f.scope.variable(kind, "total", f"{partial.name}[{thread}]")
    if split > 1:
        block, part = e.loop(split - 1, "part")
        with e.within(block):
            at = thread + (part + 1) * elements
            name = e.scope.declare(kind, f"{partial.name}[{at}]", "next")
            for line in add(contraction, total, name):
                e.scope.line(line)
    store_sums(f, product, [delinearize(thread, contraction.hero_dims)], [total])
