"""Cumulative sums, products, minima and maxima, however they are written."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import region_computations, wrapped_computations
from hloopt.ops.traits import ASSOCIATIVE, EXTREMA, JOINING
from hloopt.passes.scan_recognition.loops import LoopScan, loop_scans
from hloopt.passes.scan_recognition.ranges import (
    Description,
    Descriptions,
    describe,
    identity,
)
from hloopt.rewrite import Pass, PassLog, same_layout
from hloopt.rewrite.site import Site, is_replaceable, row_major
from hloopt.types import ArrayShape, SliceRange, Window, WindowDim, array
from hloopt.types import Literal as LiteralValue

__all__ = ["ScanRecognition"]

Form = Literal["inclusive", "exclusive", "reverse"]
_STEP = "ladder => reduce-window"
_LOOP = "loop that accumulates => reduce-window"
_LADDER = ASSOCIATIVE | JOINING | {"broadcast", "constant", "slice"}


@dataclass(frozen=True)
class ScanRecognition(Pass):
    """Write ladders of slices, pads and ops that make a cumulative result as one reduce-window.

    Ladders:

    1. For every slice, pad, concatenate and associative op it is computed which range of which array each
       element combines along one dimension: in one step an op joins ranges that touch (for minimum,
       maximum, and, or: that overlap, too), and takes what is padded with the neutral element as it is.
    2. Where element k combines all elements up to k (without k; from k on), whatever the ladder, a
       ``reduce-window`` whose window is as long as the dimension takes its place: padding ``n-1_0`` (``n_-1``;
       ``0_n-1``), which XLA and ``reduce-window-rewriter`` know as a scan.

    Loops that carry a value along an array, and write it row by row, give the same ``reduce-window`` of the
    array, outside of the loop, which goes when nothing else is left in it (while-loop-simplifier, dce).

    Results stay the same to the last bit for integers and booleans, minima and maxima; ladders of pads that
    are added, as JAX puts even and odd elements together, turn -0 into 0, and so does an addition of 0 that
    takes their place.  Sums and products of floating-point numbers are rounded in another order.

    shortest    the least length of the dimension
    longest     the greatest length of the dimension that is considered
    fast_math   whether sums and products of floating-point numbers are rewritten
    """

    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = s32[4] parameter(0)
  zero = s32[] constant(0)
  p1 = s32[5] pad(x, zero), padding=1_0
  c1 = s32[4] slice(p1), slice={[0:4]}
  a1 = s32[4] add(x, c1)
  p2 = s32[6] pad(a1, zero), padding=2_0
  c2 = s32[4] slice(p2), slice={[0:4]}
  ROOT a2 = s32[4] add(a1, c2)
}
"""

    shortest: int = 4
    longest: int = 65536
    fast_math: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.shortest <= self.longest:
            raise UsageError(f"{self.name}: shortest must be at least 2, and longest no less")

    def run(self, module: Module, log: PassLog) -> bool:
        """One walk over each computation, and ladders from the last one back."""
        skipped = wrapped_computations(module) | region_computations(module)
        changed = False
        for computation in module:
            if computation in skipped:
                continue
            for instruction in computation:
                if instruction.opcode == "while" and is_replaceable(instruction):
                    changed |= self.take_out(instruction, module, log)
            for instruction, found, form in reversed(self.candidates(computation)):
                if instruction.computation is None or not self.may_rewrite(instruction, found, log):
                    continue
                log.hit(_STEP, instruction, f"{form} {found.opcode} of {found.source.name}")
                operands = instruction.operands
                _rewrite(instruction, found, form, module)
                _remove_unused(operands, found.source)
                changed = True
        return changed

    def take_out(self, loop: Instruction, module: Module, log: PassLog) -> bool:
        """Compute outside what a loop accumulates; the loop keeps running for what else it does."""
        changed = False
        for scan in loop_scans(loop):
            result, dtype = scan.result, scan.result.array.dtype
            if not all(map(_may_go, (result, *scan.last))) or not log.allows():
                continue
            exact = dtype.is_integer or dtype.is_pred or scan.opcode in EXTREMA
            if result.array.dims[0] < self.shortest:
                continue
            if not (exact or self.fast_math):
                log.miss(_LOOP, result, f"{scan.opcode} of {dtype.name} needs fast_math")
                continue
            log.hit(_LOOP, result, f"{scan.form} {scan.opcode} of {scan.source.name}")
            _replace_scan(scan, module)
            changed = True
        return changed

    def candidates(self, computation: Computation) -> list[tuple[Instruction, Description, Form]]:
        """Ops and concatenates that are the last of a ladder, or of a part of one."""
        known: Descriptions = {}
        result = []
        for instruction in computation:
            found = known[instruction] = describe(instruction, known, self.longest)
            form = None if found is None else _form(found)
            if found and form and instruction.opcode not in ("slice", "pad"):
                result.append((instruction, found, form))
        return result

    def may_rewrite(self, instruction: Instruction, found: Description, log: PassLog) -> bool:
        """Whether length, type and marks allow it; whether the rounding stays."""
        length = len(found.low)
        if length < self.shortest or not is_replaceable(instruction) or not log.allows():
            return False
        dtype = instruction.array.dtype
        if not instruction.is_used or dtype.is_integer or dtype.is_pred or self.fast_math:
            return instruction.is_used
        if found.opcode not in EXTREMA:
            log.miss(_STEP, instruction, f"{found.opcode} of {dtype.name} needs fast_math")
            return False
        # Where the last op of a ladder adds arrays padded with 0, no result is -0.
        return not found.zeros or instruction.opcode == "add"


def _may_go(element: Instruction) -> bool:
    """Whether an element of a loop's result may be computed elsewhere: row-major, and nothing tied to it."""
    shape = element.array
    return is_replaceable(element) and same_layout(shape, row_major(shape, shape.dims))


def _remove_unused(operands: tuple[Instruction, ...], source: Instruction) -> None:
    """Take out what was needed for the ladder only, so that its parts are not taken for others."""
    pending = list(operands)
    while pending:
        instruction = pending.pop()
        if (
            instruction is not source
            and instruction.computation is not None
            and not instruction.is_used
            and is_replaceable(instruction)
            and instruction.opcode in _LADDER
        ):
            pending += instruction.operands
            edit.remove(instruction)


def _form(found: Description) -> Form | None:
    places = np.arange(len(found.low))
    low, high = found.low, found.high
    if not found.opcode or len(places) < 2:
        return None
    if (low == low[0]).all() and (high == low[0] + places + 1).all():
        return "inclusive"
    if (high == high[-1]).all() and (low == low[0] + places).all() and high[-1] - low[-1] == 1:
        return "reverse"
    start = low[1]
    neutral = identity(found.opcode, found.source.array.dtype)
    if found.fill is None or found.fill != neutral:
        return None
    if low[0] == high[0] and (low[1:] == start).all() and (high[1:] == start + places[1:]).all():
        return "exclusive"
    return None


def _rewrite(instruction: Instruction, found: Description, form: Form, module: Module) -> None:
    site, shape, dim = Site(instruction), instruction.array, found.dim
    first = int(found.low[1] if form == "exclusive" else found.low[0])
    source = _part(site, found.source, dim, first, shape.dims[dim])
    result = _scan(site, source, shape, dim, found.opcode, form, module)
    if found.zeros and not (shape.dtype.is_integer or shape.dtype.is_pred):
        result = site.make("add", result, site.splat(shape, 0), shape=shape)
    _put(instruction, result)


def _scan(
    site: Site,
    source: Instruction,
    shape: ArrayShape,
    dim: int,
    opcode: str,
    form: Form,
    module: Module,
) -> Instruction:
    """A reduce-window as long as the dimension."""
    length = shape.dims[dim]
    start = site.constant(LiteralValue(array(shape.dtype), identity(opcode, shape.dtype)))
    rest = length - 1 - source.array.dims[dim]
    edges = {"inclusive": (length - 1, 0), "exclusive": (length, rest), "reverse": (0, length - 1)}
    window = [WindowDim(1)] * len(shape.dims)
    window[dim] = WindowDim(length, pad_low=edges[form][0], pad_high=edges[form][1])
    return site.make(
        "reduce-window",
        source,
        start,
        shape=shape,
        window=Window(tuple(window)),
        to_apply=_region(module, opcode, shape),
    )


def _put(instruction: Instruction, result: Instruction) -> None:
    for name in ("sharding", "frontend_attributes"):
        if name in instruction.attributes:
            edit.set_attribute(result, name, instruction.attributes[name])
    edit.replace_instruction(instruction, result)


def _replace_scan(scan: LoopScan, module: Module) -> None:
    """The results in place of the loop's; the carry after the last iteration is the last (or first) row."""
    home, shape = scan.result.home, scan.result.array
    replaced = {scan.result, *scan.last}
    site = Site(next(entry for entry in home if entry in replaced))
    result = _scan(site, scan.source, shape, 0, scan.opcode, scan.form, module)
    ranges = [SliceRange(0, size) for size in shape.dims]
    length = shape.dims[0]
    ranges[0] = SliceRange(0, 1) if scan.form == "reverse" else SliceRange(length - 1, length)
    for last in scan.last:
        row = site.make("slice", result, slice=tuple(ranges))
        made = site.reshape(row, last.array)
        _put(last, made)
    _put(scan.result, result)


def _part(site: Site, source: Instruction, dim: int, first: int, length: int) -> Instruction:
    """The elements of the source that are combined; an exclusive scan leaves out the last."""
    dims = source.array.dims
    limit = min(first + length, dims[dim])
    if (first, limit) == (0, dims[dim]) and limit == length:
        return source
    ranges = tuple(
        SliceRange(first, limit) if d == dim else SliceRange(0, size) for d, size in enumerate(dims)
    )
    return site.make("slice", source, slice=ranges)


def _region(module: Module, opcode: str, shape: ArrayShape) -> Computation:
    """A computation that combines two scalars."""
    region = Computation(f"scan_{opcode}")
    scalar = array(shape.dtype)
    operands = tuple(
        build.make(region, "parameter", (), {"parameter_number": k}, shape=scalar, name=name)
        for k, name in enumerate(("left", "right"))
    )
    region.root = build.make(region, opcode, operands, {}, shape=scalar)
    return edit.add_computation(module, region)
