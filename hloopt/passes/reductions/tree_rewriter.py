"""Long reductions in two steps, so that a block of a kernel finishes each result of a step."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

from hloopt.analysis.emitters.tree_split import TreeSplit, tree_split
from hloopt.analysis.reduction import is_unnested, reduction_dims
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module
from hloopt.passes.reductions import plain_reduces, regrouping_obstacle
from hloopt.rewrite import Pass, PassLog, own_attributes
from hloopt.rewrite.site import Site, row_major
from hloopt.types import Dims, PaddingDim

__all__ = ["TreeReductionRewriter"]

_STEP = "reduce in two steps"


@dataclass(frozen=True)
class TreeReductionRewriter(Pass):
    """Reduce a long dimension in parts, then the parts.

        reduce(a[..,n,..]) over n    =>    reduce(reduce(reshape(pad(a))[..,k,m,..]) over m) over k

    A block of a kernel finishes rows of 16,384 elements, batches of 8 rows and columns of 4,096; more takes
    as many blocks, and so a second kernel.  As XLA does, by its sizes (``analysis/emitters/tree_split.py``):
    k and m are near the square root of n, with as little padding (by the initial value) as can be; a batch
    of rows is reduced row by row first.  The elements are combined in another order: sums of floats need
    ``fast_math``.

    fast_math   whether to cut sums and products of floats and complex numbers as well
    """

    example: ClassVar[str] = """HloModule example

add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT s = s32[] add(a, b)
}

ENTRY main {
  x = s32[20000]{0} parameter(0)
  z = s32[] constant(0)
  ROOT r = s32[] reduce(x, z), dimensions={0}, to_apply=add
}
"""

    fast_math: bool = False

    def run(self, module: Module, log: PassLog) -> bool:
        """Look at each reduce, and at its parts."""
        changed = False
        for reduce in plain_reduces(module):
            pending = [reduce]
            while pending:
                one = pending.pop()
                split = _wanted(one)
                if split is None:
                    continue
                if words := regrouping_obstacle(one, self.fast_math):
                    log.miss(_STEP, one, words)
                    continue
                if not log.allows():
                    return changed
                by = (
                    "rows of a batch first"
                    if split.is_batch
                    else f"{split.outer} times {split.inner}"
                )
                log.hit(_STEP, one, by)
                pending += (_by_rows if split.is_batch else _in_parts)(one, split)
                changed = True
        return changed


def _wanted(reduce: Instruction) -> TreeSplit | None:
    """How to cut a reduction that a tiled kernel takes."""
    form = reduction_dims(reduce)
    dimensions = sorted(reduce.dimensions)
    if form is None or not is_unnested(reduce):
        return None
    if any(after - before == 1 for before, after in pairwise(dimensions)):
        return None  # reduction-dimension-grouper makes one of them first
    if reduce.operands[0].array.dims[dimensions[-1]] != form.dims[2 if form.is_row else 1]:
        return None
    return tree_split(form)


def _by_rows(reduce: Instruction, _: TreeSplit) -> tuple[Instruction, ...]:
    """The minor reduced dimension first; both steps."""
    site = Site(reduce)
    inputs, inits = reduce.fold_inputs, reduce.fold_inits
    major, minor = sorted(reduce.dimensions)
    return _two_steps(site, inputs, inits, ((minor,), (major,)))


def _in_parts(reduce: Instruction, split: TreeSplit) -> tuple[Instruction, ...]:
    """The last reduced dimension as two; both steps."""
    site = Site(reduce)
    inits = reduce.fold_inits
    *others, last = sorted(reduce.dimensions)
    inputs = []
    for value, init in zip(reduce.fold_inputs, inits, strict=True):
        dims = value.array.dims
        whole, after = dims[:last], dims[last + 1 :]
        if split.padding:
            padding = tuple(
                PaddingDim(0, split.padding * (dim == last)) for dim in range(len(dims))
            )
            shape = row_major(value.array, (*whole, dims[last] + split.padding, *after))
            value = site.make("pad", value, init, shape=shape, padding=padding)
        shape = row_major(value.array, (*whole, split.outer, split.inner, *after))
        inputs.append(site.reshape(value, shape))
    steps = ((*others, last + 1), (last - len(others),))
    return _two_steps(site, tuple(inputs), inits, steps)


def _two_steps(
    site: Site,
    inputs: tuple[Instruction, ...],
    inits: tuple[Instruction, ...],
    dimensions: tuple[Dims, Dims],
) -> tuple[Instruction, ...]:
    attributes = own_attributes(site.root)
    first = site.make("reduce", *inputs, *inits, **(attributes | {"dimensions": dimensions[0]}))
    parts: tuple[Instruction, ...] = (first,)
    if len(inputs) > 1:
        parts = tuple(site.make("get-tuple-element", first, index=at) for at in range(len(inputs)))
    second = site.make("reduce", *parts, *inits, **(attributes | {"dimensions": dimensions[1]}))
    site.replace(second)
    return first, second
