"""The ways of the NumPy executor: what it does by itself, and what else it can do when it is told to.

``hloopt/runtime/numpy/ways.py`` has the functions.  Nothing is launched: a spec says which library works.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

from hloopt.interpret.comparator import sort_keys
from hloopt.interpret.sizes import is_dynamic
from hloopt.ir import Instruction
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict
from hloopt.kernels.library_problems import matmul_problem, product_problem, ufunc_problem
from hloopt.kernels.spec import KernelSpec, Tile

__all__ = ["KERNELS"]


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
    _kernel(
        "dot-blas", "dot", "numpy.matmul, of floats that are exact for integers", product_problem,
        _FIRST, _FULL,
    ),
    _kernel("dot-einsum", "dot", "numpy.einsum, sums in loops", _nothing, _ASKED, _LOOPS),
    _kernel(
        "reduce-ufunc", "reduce", "a reduction of NumPy's", ufunc_problem, _FIRST, _FULL
    ),
    _kernel(
        "reduce-fold", "reduce", "the region, element by element in order", _nothing, _ASKED, _STEPS
    ),
    _kernel(
        "sort-keys", "sort", "NumPy's sorts of keys packed with an index", _keys_problem, _FIRST,
        _FULL,
    ),
    _kernel("sort-merge", "sort", "a merge sort by the comparator", _nothing, _ASKED, _STEPS),
    _kernel(
        "convolution-matmul", "convolution", "products of the operands as they lie", matmul_problem,
        _FIRST, _FULL,
    ),
    _kernel(
        "convolution-windows", "convolution", "blocks of windows, copied and multiplied by the kernel",
        _nothing, YES("windows of any form"), Efficiency(memory=0.3, reason="windows are copied"),
    ),
    _kernel("numpy", "", "what the NumPy executor does by itself", _nothing, YES("as it comes"), _FULL),
)  # fmt: skip
