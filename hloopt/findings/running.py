"""Running sums and the like: compilers fold each element, or each in its block, from the first one on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import log2, sqrt
from typing import Final

import numpy as np

from hloopt.findings.associative_scan import scanned
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.ops.traits import IDEMPOTENT, op_table
from hloopt.passes.expand.reduce_window_rewriter import ReduceWindowRewriter
from hloopt.passes.expand.writer import Term, Writer
from hloopt.rewrite.regions import is_identity, is_liftable, lifted, named_combiner
from hloopt.rewrite.site import Site, sites
from hloopt.runtime.tolerance import FREE, Tolerance
from hloopt.types import RunningDim

__all__ = ["reductions"]

_LEAST: Final = 32
"""Elements along the dimension from which on it is looked at."""
_MANY: Final = 1 << 22
"""Elements from which on the fewest steps are worth any number of kernels."""
_LARGE: Final = 1 << 16
_BLOCK: Final = 4
"""Elements of a block that takes few steps an element and few kernels."""
_WORDS: Final = op_table({
    "add": ("sum", "jnp.add"),
    "multiply": ("product", "jnp.multiply"),
    "maximum": ("maximum", "jnp.maximum"),
    "minimum": ("minimum", "jnp.minimum"),
}, otherwise="its region says what it combines")  # fmt: skip
"""What a fold with each op is called, and the op of JAX."""


def reductions(subject: Subject) -> Iterator[FindingCandidate]:
    """Windows that are the beginnings, or the ends, of a dimension, in two forms of linear cost.

    Without threads, one pass makes them, where the region is an op that its executor knows.
    """
    one_pass = not subject.planner.predictor.target.has_threads
    for window in sites(subject.module, "reduce-window"):
        found = window.window.running(window.fold_inputs[0].array.dims)
        if found is None or not _may_go(window, found):
            continue
        if window.is_tuple and not one_pass:
            continue  # XLA cuts these into blocks, which is not priced here
        if not (one_pass and named_combiner(window.to_apply)):
            yield _candidate(window, found, in_blocks=not one_pass)


def _may_go(window: Instruction, found: RunningDim) -> bool:
    """Whether it is long, and another order of combining gives the same up to rounding."""
    operands = (*window.fold_inputs, *window.fold_inits)
    if window.fold_inputs[0].array.dims[found.axis] < _LEAST:
        return False
    if not is_liftable(window.to_apply, operands):
        return False
    opcode = named_combiner(window.to_apply)
    return not opcode or opcode in IDEMPOTENT or is_identity(opcode, window.fold_inits[0])


def _candidate(window: Instruction, found: RunningDim, *, in_blocks: bool) -> FindingCandidate:
    opcode = named_combiner(window.to_apply)
    name, function = _WORDS.get(opcode, ("reduction", "f"))
    source = window.fold_inputs[0]
    size = source.array.dims[found.axis]
    reverse = ", reverse=True" if found.reverse else ""
    steps = source.array.elements * (size - 1)
    if in_blocks:
        how = "compilers compute it in blocks of 16 at best, each element from the first of its block on."
    else:
        how = "its region is not one op, so that each element is folded from the first one on."
    remedy = FindingRemedy(
        "model",
        f"jax.lax.associative_scan({function}, x, axis={found.axis}{reverse}), which combines neighbours, then "
        "pairs (tfp.math.scan_associative)",
    )
    why = (
        f"%{window.name} is a running {name} along {size:,} elements, written as a reduce-window of {steps:,} "
        f"flops; {how} In pairs it is {2 * source.array.elements:,}."
    )
    blocks = FindingRemedy(
        "hloopt", f"reduce-window-rewriter{{fast_math=true,block={_BLOCK}}}, before other passes"
    )
    reshaped = FindingRemedy(
        "model",
        f"cut the dimension into blocks of {_BLOCK} to 8 by a reshape: run within blocks, over their last "
        "elements, and combine both",
    )
    scan = FindingCandidate((window,), why, (remedy,), _as_scan, tolerance=_tolerance(source, size))
    if window.is_tuple or source.array.elements > _MANY:
        return scan
    shorter = replace(scan, remedies=(blocks, reshaped), change=_in_blocks)
    return replace(scan, instead=shorter)


def _tolerance(source: Instruction, size: int) -> Tolerance:
    """Of many floats a bound of the first order, since what rounding explains takes evaluations of both forms.

    Sums in pairs are off by ``log2(n)`` roundings of what they come to (N. Higham, The accuracy of floating
    point summation, SIAM J. Sci. Comput. 14, 1993), of numbers of either sign about ``sqrt(n)`` on the way.
    """
    kind = source.array.dtype
    if source.array.elements < _LARGE or kind.name not in ("f32", "f64"):
        return FREE
    rounding = 4 * log2(size) * float(np.finfo(kind.numpy).eps)
    return Tolerance(rtol=rounding, atol=rounding * sqrt(size))


def _in_blocks(module: Module, places: Sequence[Instruction]) -> bool:
    rewriter = ReduceWindowRewriter(block=_BLOCK, fast_math=True)
    if any(rewriter.obstacle(window) for window in places):
        return False
    for window in places:
        writer = Writer.before(window)
        writer.replace(window, rewriter.expand(window, writer))
    return True


def _as_scan(module: Module, places: Sequence[Instruction]) -> bool:
    """Combine neighbours, then pairs of them, and so on."""
    for window in places:
        dims = window.fold_inputs[0].array.dims
        found = window.window.running(dims)
        if found is None:
            return False
        writer = Writer.before(window)
        values = [writer.term(one) for one in window.fold_inputs]
        if found.reverse:
            values = _turned(values, found.axis)
        values = scanned(values, _Combined(window, writer), found.axis)
        if found.reverse:
            values = _turned(values, found.axis)
        writer.replace(window, writer.pack(*values) if window.is_tuple else values[0])
    return True


def _turned(values: Sequence[Term], axis: int) -> list[Term]:
    return [one.writer.make("reverse", one, dimensions=(axis,)) for one in values]


class _Combined:
    """The region of a window, applied to whole arrays."""

    def __init__(self, window: Instruction, writer: Writer) -> None:
        self.region = window.to_apply
        self.writer = writer
        self.site = Site(window)

    def __call__(self, earlier: Sequence[Term], later: Sequence[Term]) -> list[Term]:
        """The combination of elements with those that follow them."""
        operands = [one.instruction for one in (*earlier, *later)]
        made = lifted(self.region, operands, earlier[0].shape, self.site)
        return [self.writer.term(one) for one in made]
