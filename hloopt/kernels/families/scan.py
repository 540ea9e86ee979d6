"""Scan: a thread traverses the scanned dimension for each place of the others, its carries in registers."""

from __future__ import annotations

from math import prod
from types import MappingProxyType

from hloopt.analysis.region import Region
from hloopt.ir import Computation, Instruction
from hloopt.kernels.families.loop import operands_read, own_threads
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict, always, elemental_problem
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace, Tile
from hloopt.types import ArrayShape

__all__ = ["KERNELS", "Scan", "scan_of"]


class Scan:
    """The parts of a scan.

    ``inputs`` and ``carries`` are operands; ``length`` elements along ``axis``; ``rows`` are the dimensions of
    everything else; ``leaves`` say for each result of the region which leaf of the scan it is.
    """

    def __init__(self, region: Region, scan: Instruction, leaves: tuple[int, ...]) -> None:
        self.scan = scan
        self.leaves = leaves
        count = scan.attributes.get("num_carries", 0)
        self.inputs = scan.operands[: len(scan.operands) - count]
        self.carries = scan.operands[len(self.inputs) :]
        shapes = region.arrays_of(scan)
        self.outputs = len(shapes) - count
        (self.axis,) = scan.attributes["dimensions"]
        along = [operand.array for operand in self.inputs] or list(shapes[: self.outputs])
        dims = along[0].dims
        self.length = dims[self.axis]
        self.rows = (*dims[: self.axis], *dims[self.axis + 1 :])
        self.is_reverse = bool(scan.attributes.get("is_reverse", False))


def scan_of(region: Region) -> Scan | None:
    """The scan whose outputs and last carries are the results of a region."""
    scan = None
    leaves = []
    for result in region.results:
        instruction, leaf = result.instruction, result.leaf
        if instruction.opcode == "get-tuple-element" and instruction not in region.inputs:
            instruction, leaf = instruction.operands[0], instruction.attributes["index"]
        if instruction.opcode != "scan" or scan not in (None, instruction):
            return None
        scan = instruction
        leaves.append(leaf)
    return Scan(region, scan, tuple(leaves)) if scan is not None else None


def _fits(site: Site) -> Verdict:
    scan = scan_of(site.region)
    if scan is None:
        return NO("the results are not those of one scan")
    mixing = _mixing(scan)
    if mixing is not None:
        return NO(f"{mixing.name} of its computation, a {mixing.opcode}, is of whole slices")
    for result in site.region.results:
        if result.shape.dtype.bits < 8:
            return NO(f"elements of {result.shape.dtype.name} share bytes with their neighbours")
    problem = elemental_problem(site.region, (scan.scan,))
    return NO(problem) if problem else YES("a thread for each row")


def _mixing(scan: Scan) -> Instruction | None:
    """Why a thread cannot compute an element of every slice by itself."""
    computation: Computation = scan.scan.attributes["to_apply"]
    for inner in computation:
        if inner.opcode == "tuple" and inner.is_root:
            continue
        if not isinstance(inner.shape, ArrayShape) or inner.array.dims not in ((), scan.rows):
            return inner
        pointwise = inner.op.is_elementwise or inner.opcode in ("parameter", "constant")
        if not pointwise and not (inner.opcode == "broadcast" and not inner.operands[0].array.dims):
            return inner
    return None


def _tile(site: Site) -> Tile:
    return MappingProxyType({"threads": site.limits.loop_threads, "vector": 1})


def _spec(site: Site, tile: Tile) -> KernelSpec:
    scan = scan_of(site.region)
    assert scan is not None
    rows = prod(scan.rows)
    if not rows:
        return KernelSpec("scan", tile)
    blocks, threads = own_threads(site, rows, tile)
    results = (
        Argument(LeafPlace("result", number), "out")
        for number, result in enumerate(site.region.results)
        if result.shape.elements
    )
    launch = Launch.linear("", blocks, threads, (*operands_read(site.region), *results))
    return KernelSpec("scan", tile, (launch,))


KERNELS = (
    Kernel(
        "scan",
        "a thread goes along each row, step by step",
        _fits,
        always("each step needs the one before"),
        _tile,
        _spec,
    ),
)
