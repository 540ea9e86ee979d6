"""What the native device leaves to the NumPy executor: some products by BLAS, long sorts, eigenvalues."""

from __future__ import annotations

from typing import Final

from hloopt.analysis.contraction import of_dot
from hloopt.analysis.convolutions import of_convolution
from hloopt.analysis.elementwise import tells_apart
from hloopt.cost_models.host import LONGEST_WINDOW
from hloopt.interpret import has_evaluation
from hloopt.ir import Instruction
from hloopt.kernels.kernel import (
    NO,
    YES,
    Kernel,
    Site,
    Verdict,
    elemental_problem,
    no_tile,
)
from hloopt.kernels.spec import KernelSpec, Tile
from hloopt.ops.traits import ELEMENTAL, SEQUENTIAL

__all__ = ["KERNELS", "PRODUCTS", "slow_in_a_loop"]

PRODUCTS: Final = 1024
"""Multiply-adds, in all, of a product that a loop may compute element by element: a call takes as long."""


def slow_in_a_loop(one: Instruction, products: int = PRODUCTS, window: int = LONGEST_WINDOW) -> str:
    """Why a loop over elements is a slow way to compute an instruction; empty where it is not."""
    if one.opcode in ("dot", "convolution"):
        made = (of_dot if one.opcode == "dot" else of_convolution)(one).multiply_adds
        return f"{made} multiply-adds are more than {products}" if made > products else ""
    if one.opcode in ("reduce-window", "select-and-scatter"):
        size = one.window.size
        return f"a window has {size} elements, more than {window}" if size > window else ""
    if tells_apart(one):
        return f"{one.name} is each participant's own"
    if one.op.is_elementwise or one.opcode in ELEMENTAL or one.opcode in SEQUENTIAL:
        return ""
    return f"{one.name} is a {one.opcode}"


def _fits(site: Site) -> Verdict:
    for instruction in site.region.body:
        if not has_evaluation(instruction.opcode):
            return NO(f"{instruction.name}: {instruction.opcode} has no evaluation")
    return YES("the NumPy executor runs it")


def _wanted(site: Site) -> Verdict:
    for instruction in site.region.body:
        if reason := slow_in_a_loop(instruction):
            return YES(reason)
    problem = elemental_problem(site.region)
    return YES(problem) if problem else NO("a loop computes it")


def _spec(_: Site, tile: Tile) -> KernelSpec:
    return KernelSpec("native-call", tile, library="NumPy")


KERNELS = (
    Kernel(
        "native-call",
        "a call of the NumPy executor, which uses BLAS",
        _fits,
        _wanted,
        no_tile,
        _spec,
        device="native",
    ),
)
