"""The dot kernel: factors packed where they have to be, sums by ``product`` of products.h, then stores."""

from __future__ import annotations

from collections.abc import Sequence

from hloopt.analysis.contraction import Contraction, Group, Side
from hloopt.analysis.index import Index, Symbol
from hloopt.codegen.families.dot_index import operand_place, result_place, split_axes
from hloopt.codegen.families.dot_values import read_factor, store_sums, sum_type_name
from hloopt.codegen.native.families.gemm import in_memory
from hloopt.codegen.writer import FunctionWriter
from hloopt.kernels.families.dot_region import Product
from hloopt.kernels.families.native_dot import along_columns, small_product

__all__ = ["EMITTERS"]


def _emit(f: FunctionWriter) -> None:
    product = small_product(f.region)
    assert isinstance(product, Product)
    contraction = along_columns(product.contraction)
    product = Product(contraction, product.routes)
    sizes = {group: contraction.size(group) for group in ("b", "m", "n", "k")}
    batch = Index(0)
    scope = f.scope
    if sizes["b"] > 1:
        name = scope.names.fresh("b")
        scope = scope.block(f"for (long long {name} = begin; {name} < end; ++{name})")
        batch = Symbol(name, 0, sizes["b"] - 1).index
    with f.elements.within(scope):
        left = _factors(f, contraction, contraction.lhs, batch, ("m", "k"))
        right = _factors(f, contraction, contraction.rhs, batch, ("k", "n"))
        kind = sum_type_name(f, contraction)
        sums = _array(f, kind, sizes["m"] * sizes["n"], "sums")
        f.elements.scope.line(
            f"hloopt::product<{kind}>({sizes['m']}, {sizes['n']}, {sizes['k']}, "
            f"{left[0]}, {left[1]}, {left[2]}, {right[0]}, {right[1]}, {sums}, {sizes['n']});"
        )
        _store(f, product, batch, sums)


def _array(f: FunctionWriter, kind: str, elements: int, hint: str) -> str:
    name = f.scope.names.fresh(hint)
    f.elements.scope.line(f"__attribute__((aligned(64))) {kind} {name}[{elements}];")
    return name


def _factors(
    f: FunctionWriter, contraction: Contraction, side: Side, batch: Index, groups: Sequence[Group]
) -> tuple[str, int, int]:
    """Where a factor lies, and how far its rows and columns are apart."""
    rows, columns = (contraction.size(group) for group in groups)
    found = in_memory(f, contraction, side, batch, groups)
    if found is not None and (groups[1] == "k" or columns == 1 or found[2] == 1):
        return found
    name = _array(f, sum_type_name(f, contraction), rows * columns, "factors")
    outer, row = f.elements.loop(rows, groups[0])
    with f.elements.within(outer):
        inner, column = f.elements.loop(columns, groups[1])
        with f.elements.within(inner):
            axes = split_axes(contraction, {"b": batch, groups[0]: row, groups[1]: column})
            tests, place = operand_place(side, axes)
            value = read_factor(f, contraction, side, tests, place, "factor")
            f.elements.scope.line(f"{name}[{row * columns + column}] = {value};")
    return name, columns, 1


def _store(f: FunctionWriter, product: Product, batch: Index, sums: str) -> None:
    contraction = product.contraction
    outer, row = f.elements.loop(contraction.size("m"), "m")
    with f.elements.within(outer):
        inner, column = f.elements.loop(contraction.size("n"), "n")
        with f.elements.within(inner):
            axes = split_axes(contraction, {"b": batch, "m": row, "n": column})
            place = result_place(contraction, axes)
            total = f"{sums}[{row * contraction.size('n') + column}]"
            store_sums(f, product, [place], [total])


EMITTERS = {"native-dot": _emit}
"""What writes each kernel of this family."""
