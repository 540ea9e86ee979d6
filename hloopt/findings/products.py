"""Products that cost more than what they compute: with one-hot matrices, too thin, in an expensive order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from hloopt.analysis.effects import Effects
from hloopt.analysis.matrix_properties import Matrices
from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy, ReducedDot
from hloopt.findings.planning import ProgramPlan
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import open_computations
from hloopt.linear_algebra import LinearAlgebra
from hloopt.linear_algebra.clusters import clusters
from hloopt.linear_algebra.orders import PairBudget
from hloopt.passes.dots.strength_reduction import DotStrengthReduction, as_reduction
from hloopt.rewrite import PassLog
from hloopt.rewrite.site import Site, row_major, sites
from hloopt.types import ArrayShape, DotDims

__all__ = ["is_sure_on_host", "one_hot", "orders", "reduced_dot", "thin"]

_VIEWS: Final = frozenset({"convert", "copy"})
_THIN: Final = 16
"""The least size of a tile's side: what is shorter leaves the rest of the tile idle."""

_SURE: Final = 0.3
"""Of changes that ``native`` was measured with, those that saved less than this by their prices gained none."""

_ON_GPU: Final = (
    "a tile of a matrix unit is {tile} or more on each side, and with {listed} most of it is idle."
)
_ON_HOST: Final = (
    "with {listed} the loops of a BLAS are mostly idle or end soon, and the result goes through memory once "
    "more."
)


@dataclass(frozen=True)
class _OneHot:
    """A matrix with a 1 in each row: ``dimension`` is the one that the 1 is searched along.

    ``places`` has the indices of the ones; dimension k of it is dimension ``kept[k]`` of the matrix.
    """

    places: Instruction
    kept: tuple[int, ...]
    dimension: int


def one_hot(subject: Subject) -> Iterator[FindingCandidate]:
    """Products of one-hot matrices with tables: each row of the result is a row of the table."""
    for dot in sites(subject.module, "dot"):
        for side in (0, 1):
            found = _one_hot(dot, side)
            if found is None:
                continue
            rows = dot.operands[1 - side].array.dims[_contracted(dot, 1 - side)]
            yield FindingCandidate(
                (dot,),
                f"%{dot.name} multiplies by a one-hot matrix {dot.operands[side].array}, of which it "
                f"reads {rows:,} elements to pick one: each result is a row of "
                f"%{dot.operands[1 - side].name}.",
                (
                    FindingRemedy(
                        "model",
                        "index the table: jnp.take(table, ids, axis=0) for one_hot(ids) @ table",
                    ),
                ),
                partial(_pick_rows, side=side),
                (dot.operands[side],),
            )


def _contracted(dot: Instruction, side: int) -> int:
    dims = DotDims.of(dot.attributes)
    return (dims.lhs_contracting, dims.rhs_contracting)[side][0]


def _one_hot(dot: Instruction, side: int) -> _OneHot | None:
    """The one-hot matrix on a side, contracted along the dimension of its ones."""
    dims = DotDims.of(dot.attributes)
    if dims.lhs_batch or len(dims.lhs_contracting) != 1 or dot.operands[1 - side].array.rank < 1:
        return None
    value = dot.operands[side]
    while value.opcode in _VIEWS:
        value = value.operands[0]
    if value.opcode != "compare" or value.direction != "EQ" or dot.operands[side].array.rank < 2:
        return None
    for places, count in (value.operands, value.operands[::-1]):
        if count.opcode != "iota" or places.opcode != "broadcast":
            continue
        dimension = count.iota_dimension
        if dimension == _contracted(dot, side) and dimension not in places.dimensions:
            kept = places.dimensions
            if len(kept) == value.array.rank - 1 and list(kept) == sorted(kept):
                return _OneHot(places.operands[0], kept, dimension)
    return None


def _pick_rows(module: Module, places: Sequence[Instruction], side: int) -> bool:
    """Gather the rows of the table; 0 where an index is none of its rows, as in the product."""
    for dot in places:
        found = _one_hot(dot, side)
        if found is None:
            return False
        site, table = Site(dot), dot.operands[1 - side]
        along, rank = _contracted(dot, 1 - side), table.array.rank
        rest = tuple(size for dim, size in enumerate(table.array.dims) if dim != along)
        picks = found.places.array.dims
        first = 0 if side == 1 else len(picks)
        offsets = tuple(range(first, first + rank - 1))
        shape = ArrayShape(
            table.array.dtype, (*picks, *rest) if side == 0 else (*rest, *picks), dot.array.layout
        )
        rows = site.make(
            "gather",
            table,
            found.places,
            shape=shape,
            offset_dims=offsets,
            collapsed_slice_dims=(along,),
            start_index_map=(along,),
            index_vector_dim=len(picks),
            slice_sizes=tuple(
                1 if dim == along else size for dim, size in enumerate(table.array.dims)
            ),
        )
        inside = _inside(site, found.places, table.array.dims[along])
        mask = site.make(
            "broadcast",
            inside,
            shape=row_major(ArrayShape(inside.array.dtype, shape.dims, shape.layout), shape.dims),
            dimensions=tuple(range(len(picks)))
            if side == 0
            else tuple(range(len(rest), len(shape.dims))),
        )
        value = site.make("select", mask, rows, site.splat(shape, 0), shape=shape)
        if shape.dtype is not dot.array.dtype:
            value = site.make(
                "convert", value, shape=ArrayShape(dot.array.dtype, shape.dims, shape.layout)
            )
        site.replace(value)
    return True


def _inside(site: Site, places: Instruction, rows: int) -> Instruction:
    """Whether each index is a row of the table."""
    shape = places.array
    above = site.make("compare", places, site.splat(shape, 0), direction="GE")
    below = site.make("compare", places, site.splat(shape, rows), direction="LT")
    return site.make("and", above, below)


def thin(subject: Subject) -> Iterator[FindingCandidate]:
    """Products with a side shorter than a tile."""
    target = subject.planner.predictor.target
    on_host = target.kind == "cpu"
    for dot in sites(subject.module, "dot"):
        dims = DotDims.of(dot.attributes)
        lhs, rhs = (operand.array for operand in dot.operands)
        if not dims.lhs_contracting or not dot.array.dtype.is_float:
            continue
        sides = {
            "M": _size(lhs, dims.lhs_free(lhs.rank)),
            "N": _size(rhs, dims.rhs_free(rhs.rank)),
            "K": _size(lhs, dims.lhs_contracting),
        }
        short = {name: size for name, size in sides.items() if size < _THIN}
        if not short or not dot.array.elements:
            continue
        listed = ", ".join(f"{name}={size}" for name, size in short.items())
        yield FindingCandidate(
            (dot,),
            f"%{dot.name} is a product of M={sides['M']:,}, N={sides['N']:,}, K={sides['K']:,}: "
            + (_ON_HOST if on_host else _ON_GPU).format(listed=listed, tile=_THIN),
            (
                FindingRemedy(
                    "model",
                    "write it as (a[..., None] * b).sum(axis): products and sums fuse with "
                    "what is around them",
                ),
                FindingRemedy(
                    "hloopt", "dot-strength-reduction{fast_math=true}, before other passes"
                ),
            ),
            _as_sums,
            holds=is_sure_on_host if on_host else None,
        )


def is_sure_on_host(before: ProgramPlan, after: ProgramPlan) -> bool:
    """Whether a gain on the host is more than what prices of single kernels may be off by there."""
    return before.seconds - after.seconds >= _SURE * before.seconds


def _size(shape: ArrayShape, dims: Sequence[int]) -> int:
    size = 1
    for dim in dims:
        size *= shape.dims[dim]
    return size


def _as_sums(module: Module, places: Sequence[Instruction]) -> bool:
    for dot in places:
        as_reduction(dot, as_written=True)
    return bool(places)


def reduced_dot(subject: Subject) -> ReducedDot | None:
    """The largest of the dots that XLA turns into multiply and reduce on a GPU; None where it turns none."""
    planner = subject.planner
    found = (one for one in planner.pipeline.passes() if isinstance(one, DotStrengthReduction))
    rule = next(found, None)
    if rule is None or planner.predictor.target.kind != "cuda" or not subject.is_small:
        return None
    log = PassLog()
    dots = [dot for dot in sites(subject.module, "dot") if rule.takes(dot, log)]
    if not dots:
        return None
    dot = max(dots, key=lambda one: sum(operand.shape.byte_size for operand in one.operands))
    kept = planner.plan(subject.module, without=rule.name)
    return ReducedDot(
        dot.name,
        subject.module.user_line(dot.metadata) or "",
        str(dot.shape),
        "f32" if dot.array.dtype.is_narrow_float else dot.array.dtype.name,
        rule.why(dot)[0],
        len(dots) - 1,
        (subject.plan.seconds, kept.seconds),
    )


def orders(subject: Subject) -> Iterator[FindingCandidate]:
    """Those that the pass ``linear-algebra`` writes anew, all of a computation together."""
    target = subject.planner.predictor.target
    algebra = LinearAlgebra(reassociate=True, target=target.name)
    effects, budget = Effects(subject.module), PairBudget()
    for computation in open_computations(subject.module):
        found = clusters(computation, target, effects, Matrices())
        plans = [plan for cluster in found if (plan := cluster.best_plan(budget))]
        if not plans:
            continue
        sites = tuple(value.root for plan in plans for value in plan.cluster.values)
        before, after = (sum(plan.flops[side] for plan in plans) for side in (0, 1))
        yield FindingCandidate(
            sites,
            f"The products behind %{sites[0].name} are computed in the order in which they are written, "
            + (
                f"with {before:,} flops; the best order or form found has {after:,}."
                if after < before
                else f"which takes longer than other forms of the same {before:,} flops."
            ),
            (
                FindingRemedy(
                    "model",
                    "multiply by vectors and thin matrices first, A @ (B @ x) for A @ B @ x (jnp.einsum and "
                    "jnp.linalg.multi_dot choose the order); take rows, diagonals and sums of the factors, "
                    "not of the product; put common factors before sums",
                ),
                FindingRemedy("hloopt", "linear-algebra{reassociate=true}, before other passes"),
            ),
            partial(_written_anew, algebra=algebra),
        )


def _written_anew(module: Module, places: Sequence[Instruction], algebra: LinearAlgebra) -> bool:
    return algebra.run_on(places[0].home, Effects(module), PassLog())
