"""What the native device leaves to the NumPy executor: products by BLAS, sorts, transforms, linear algebra."""

from __future__ import annotations

from types import MappingProxyType

from hloopt.interpret import has_evaluation
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict
from hloopt.kernels.spec import KernelSpec, Tile

__all__ = ["KERNELS"]


def _fits(site: Site) -> Verdict:
    for instruction in site.region.body:
        if not has_evaluation(instruction.opcode):
            return NO(f"{instruction.name}: {instruction.opcode} has no evaluation")
    return YES("the NumPy executor runs it")


def _spec(_: Site, tile: Tile) -> KernelSpec:
    return KernelSpec("native-call", tile, library="NumPy")


KERNELS = (
    Kernel(
        "native-call",
        "a call of the NumPy executor, which uses BLAS",
        _fits,
        lambda _: YES("no loop computes it"),
        lambda _: MappingProxyType({}),
        _spec,
        device="native",
        efficiency=lambda *_: Efficiency(),
    ),
)
