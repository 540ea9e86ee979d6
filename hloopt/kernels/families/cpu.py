"""The ways of the NumPy executor: what it does by itself, and what else it can do when it is told to.

``hloopt/runtime/numpy/ways.py`` has the functions.  Nothing is launched: a spec says which library works.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from hloopt.interpret.comparator import sort_keys
from hloopt.interpret.regions import combiner
from hloopt.interpret.sizes import is_dynamic
from hloopt.ir import Instruction
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict
from hloopt.kernels.spec import KernelSpec, Tile
from hloopt.types import ArrayShape, Window, WindowDim

__all__ = ["KERNELS", "blas_problem", "matmul_problem", "ufunc_problem"]

_BLAS = frozenset({"f32", "f64", "c64", "c128"})
_NARROW = frozenset({"bf16", "f16"})


def blas_problem(dot: Instruction) -> str:
    """Why BLAS does not make a product of operands as they are, empty where it does."""
    if len(dot.operands) != 2:
        return "the product has sparse operands"
    result = dot.array.dtype
    if result.name not in _BLAS | _NARROW:
        return f"BLAS has no products of {result}"
    for operand in dot.operands:
        kind = operand.array.dtype
        if kind is not result and not (kind.is_narrow_float and result.name in _BLAS):
            return f"BLAS has no products of {kind} in {result}"
    return ""


def ufunc_problem(reduce: Instruction) -> str:
    """Why no reduction of NumPy's runs on operands as they are, empty where one does."""
    if not isinstance(reduce.shape, ArrayShape) or len(reduce.operands) != 2:
        return "it reduces several operands at once"
    name = combiner(reduce.attributes["to_apply"])
    if name not in ("maximum", "minimum"):
        return f"the region is {name or 'no single op'}, not maximum or minimum"
    kind = reduce.array.dtype
    if not kind.is_float or kind.numpy != kind.compute:
        return f"{kind} is converted first"
    return ""


def matmul_problem(convolution: Instruction) -> str:
    """Why a convolution is not one product of matrices, empty where it is: a window of one place."""
    dims = convolution.attributes["dim_labels"]
    window = Window.given(convolution.attributes.get("window"), len(dims.input_spatial))
    for number, dimension in enumerate(window.dims):
        if dimension != WindowDim(1):
            return f"window dimension {number} is {dimension}, not of size 1 without stride and padding"
    for name in ("feature_group_count", "batch_group_count"):
        if convolution.attributes.get(name, 1) != 1:
            return f"{name} is {convolution.attributes[name]}"
    return ""


def _keys_problem(sort: Instruction) -> str:
    return "" if sort_keys(sort.attributes["to_apply"]) else "the comparator compares no keys"


def _nothing(_: Instruction) -> str:
    return ""


def _kernel(
    name: str,
    opcode: str,
    summary: str,
    problem: Callable[[Instruction], str],
    wanted: Verdict,
    efficiency: Efficiency,
) -> Kernel:
    """A way to evaluate an opcode; any opcode for an empty one."""

    def fits(site: Site) -> Verdict:
        instruction = site.region.instruction
        if opcode and instruction.opcode != opcode:
            return NO(f"it is for {opcode}")
        if opcode and is_dynamic(instruction):
            return NO("it has a dimension whose size the program decides")
        found = problem(instruction)
        return NO(found) if found else YES()

    def spec(_: Site, tile: Tile) -> KernelSpec:
        return KernelSpec(name, tile, library="NumPy")

    return Kernel(
        name,
        summary,
        fits,
        lambda _: wanted,
        lambda _: MappingProxyType({}),
        spec,
        device="cpu",
        efficiency=lambda *_: efficiency,
    )


_FIRST = YES("the quickest where it fits")
_ASKED = NO("only when asked for")
_FULL = Efficiency()
_LOOPS = Efficiency(compute=0.05, reason="loops of NumPy instead of BLAS")
_STEPS = Efficiency(memory=0.2, compute=0.05, reason="a pass over the array for each step")

KERNELS = (
    _kernel("dot-blas", "dot", "numpy.matmul on operands as they are", blas_problem, _FIRST, _FULL),
    _kernel("dot-einsum", "dot", "numpy.einsum, sums in loops", _nothing, _ASKED, _LOOPS),
    _kernel(
        "reduce-ufunc", "reduce", "a reduction of NumPy's", ufunc_problem, _FIRST, _FULL
    ),
    _kernel(
        "reduce-fold", "reduce", "the region, element by element in order", _nothing, _ASKED, _STEPS
    ),
    _kernel("sort-keys", "sort", "numpy.lexsort by the keys", _keys_problem, _FIRST, _FULL),
    _kernel("sort-merge", "sort", "a merge sort by the comparator", _nothing, _ASKED, _STEPS),
    _kernel(
        "convolution-matmul", "convolution", "one product of matrices", matmul_problem,
        _FIRST, _FULL,
    ),
    _kernel(
        "convolution-windows", "convolution", "windows side by side, multiplied by the kernel",
        _nothing, YES("windows of any form"), Efficiency(memory=0.3, reason="windows are copied"),
    ),
    _kernel("numpy", "", "what the NumPy executor does by itself", _nothing, YES("as it comes"), _FULL),
)  # fmt: skip
