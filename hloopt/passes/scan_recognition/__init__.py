"""Cumulative sums, products, minima and maxima, however they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import region_computations, wrapped_computations
from hloopt.passes.scan_recognition.ranges import (
    OPS_OF_SCANS,
    Description,
    Known,
    describe,
    identity,
)
from hloopt.passes.site import Site, is_replaceable
from hloopt.rewrite import Pass, PassLog
from hloopt.types import ArrayShape, SliceRange, Window, WindowDim, array
from hloopt.types import Literal as LiteralValue

__all__ = ["ScanRecognition"]

Form = Literal["inclusive", "exclusive", "reverse"]
_STEP = "ladder => reduce-window"
_LADDER = (*OPS_OF_SCANS, "slice", "pad", "concatenate", "broadcast", "constant")


@dataclass(frozen=True)
class ScanRecognition(Pass):
    """Write ladders of slices, pads and ops that make a cumulative result as one reduce-window.

    1. For every slice, pad, concatenate and associative op it is worked out which range of which array each
       element combines along one dimension: in one step an op joins ranges that touch (for minimum,
       maximum, and, or: that overlap, too), and takes what is padded with the neutral element as it is.
    2. Where element k combines all elements up to k (without k; from k on), whatever the ladder, a
       ``reduce-window`` whose window is as long as the dimension takes its place: padding ``n-1_0`` (``n_-1``;
       ``0_n-1``), which XLA and ``reduce-window-rewriter`` know as a scan.

    Results stay the same to the last bit for integers and booleans, minima and maxima; ladders of pads that
    are added, as JAX puts even and odd elements together, turn -0 into 0, and so does an addition of 0 that
    takes their place.  Sums and products of floating-point numbers are rounded in another order.

    shortest    the least length of the dimension
    longest     the greatest length of the dimension that is looked at
    fast_math   whether sums and products of floating-point numbers are rewritten
    """

    name: ClassVar[str] = "scan-recognition"
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
            raise UsageError(f"{self.name}: shortest is at least 2, and longest no less")

    def run(self, module: Module, log: PassLog) -> bool:
        """One walk over each computation, and ladders from the last one back."""
        skipped = wrapped_computations(module) | region_computations(module)
        changed = False
        for computation in module:
            if computation in skipped:
                continue
            for instruction, found, form in reversed(self.candidates(computation)):
                if instruction.computation is None or not self.may_rewrite(instruction, found, log):
                    continue
                log.hit(_STEP, instruction, f"{form} {found.opcode} of {found.source.name}")
                operands = instruction.operands
                _rewrite(instruction, found, form, module)
                _remove_unused(operands, found.source)
                changed = True
        return changed

    def candidates(self, computation: Computation) -> list[tuple[Instruction, Description, Form]]:
        """Ops and concatenates that are the last of a ladder, or of a part of one."""
        known: Known = {}
        result = []
        for instruction in computation:
            found = known[instruction] = describe(instruction, known, self.longest)
            form = None if found is None else _form(found)
            last = instruction.opcode not in ("slice", "pad")
            if found is not None and form is not None and last:
                result.append((instruction, found, form))
        return result

    def may_rewrite(self, instruction: Instruction, found: Description, log: PassLog) -> bool:
        """Whether length, type and marks allow it; whether the rounding stays."""
        length = len(found.low)
        if length < self.shortest or not is_replaceable(instruction) or not log.allows():
            return False
        if not instruction.users and not instruction.is_root:
            return False
        dtype = instruction.array.dtype
        exact = dtype.is_integer or dtype.is_pred
        if exact or self.fast_math:
            return True
        if found.opcode not in ("minimum", "maximum"):
            log.miss(_STEP, instruction, f"{found.opcode} of {dtype.name} needs fast_math")
            return False
        return not found.zeros or _adds_zeros(instruction)


def _remove_unused(operands: tuple[Instruction, ...], source: Instruction) -> None:
    """Take out what was needed for the ladder only, so that its parts are not taken for others."""
    pending = list(operands)
    while pending:
        instruction = pending.pop()
        if (
            instruction is not source
            and instruction.computation is not None
            and not (instruction.users or instruction.is_root)
            and is_replaceable(instruction)
            and instruction.opcode in _LADDER
        ):
            pending += instruction.operands
            edit.remove(instruction)


def _adds_zeros(instruction: Instruction) -> bool:
    """Whether the last op of a ladder adds arrays padded with 0, so that no result is -0."""
    return instruction.opcode == "add"


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
    length = shape.dims[dim]
    first = int(found.low[1] if form == "exclusive" else found.low[0])
    source = _part(site, found.source, dim, first, length)
    neutral = identity(found.opcode, shape.dtype)
    start = site.literal(LiteralValue(array(shape.dtype), neutral))
    rest = length - 1 - source.array.dims[dim]
    edges = {"inclusive": (length - 1, 0), "exclusive": (length, rest), "reverse": (0, length - 1)}
    window = [WindowDim(1)] * len(shape.dims)
    window[dim] = WindowDim(length, pad_low=edges[form][0], pad_high=edges[form][1])
    attributes = {"window": Window(tuple(window)), "to_apply": _region(module, found.opcode, shape)}
    result = site.make("reduce-window", (source, start), attributes, shape)
    if found.zeros and not (shape.dtype.is_integer or shape.dtype.is_pred):
        result = site.make("add", (result, site.splat(shape, 0)), {}, shape)
    if "frontend_attributes" in instruction.attributes:
        edit.set_attribute(
            result, "frontend_attributes", instruction.attributes["frontend_attributes"]
        )
    edit.replace_instruction(instruction, result)


def _part(site: Site, source: Instruction, dim: int, first: int, length: int) -> Instruction:
    """The elements of the source that are combined; an exclusive scan leaves out the last."""
    dims = source.array.dims
    limit = min(first + length, dims[dim])
    if (first, limit) == (0, dims[dim]) and limit == length:
        return source
    ranges = tuple(
        SliceRange(first, limit) if d == dim else SliceRange(0, size) for d, size in enumerate(dims)
    )
    return site.make("slice", (source,), {"slice": ranges})


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
