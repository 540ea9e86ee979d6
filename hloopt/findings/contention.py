"""Scatters of which many updates meet in few places: they wait for each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from hloopt.analysis.elementwise import plain_opcode
from hloopt.cost_models.contention import NATIVE, Collisions, collisions, scatter_root, waiting_ns
from hloopt.findings.finding import ContendedScatter, FindingRemedy
from hloopt.findings.index_ranges import LIMIT, counts_up
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.kernels.costs import KernelCost
from hloopt.passes.expand.writer import Writer
from hloopt.passes.indexing.known import KnownArrays
from hloopt.rewrite.regions import identity, named_combiner
from hloopt.rewrite.site import sites
from hloopt.types import ScatterDims, array

__all__ = ["contended", "scatters"]

_COPIES: Final = 32
_ROOM: Final = 1 << 28
"""Bytes that all copies may take."""
_COUNTED: Final = 32
"""Bits of an index type that counts windows without an overflow."""
_SHOWN: Final = 2
_FLOATS: Final = frozenset({"f32", "f64"})
_WORSE: Final = 4
"""How many times a kernel's time its worst case takes to be worth a note."""
_LEAST_NS: Final = 20_000.0


def scatters(subject: Subject) -> Iterator[FindingCandidate]:
    """Those whose updates meet wherever they go, since there are more of them than places."""
    if not subject.planner.predictor.target.has_threads:
        return
    for scatter in sites(subject.module, "scatter"):
        if not scatter.is_array or len(scatter.fold_inputs) > 1:
            continue
        found = collisions(scatter)
        copies = min(_COPIES, found.least)
        if copies > 1 and _fits(scatter, copies):
            yield _candidate(scatter, found, copies)


def _fits(scatter: Instruction, copies: int) -> bool:
    """Whether its combiner has a neutral element, its indices are a list, and the copies find room."""
    dims = ScatterDims.of(scatter.attributes)
    indices = scatter.scatter_indices.array
    return (
        bool(named_combiner(scatter.to_apply))
        and not dims.input_batching_dims
        and dims.index_vector_dim == 1
        and indices.rank in (1, 2)
        and indices.dtype.bits >= _COUNTED
        and scatter.array.byte_size * copies <= _ROOM
    )


_METHODS: Final = (
    ("add", "add", "sum"),
    ("maximum", "max", "max"),
    ("minimum", "min", "min"),
    ("multiply", "multiply", "prod"),
)
"""A combiner, what it is called in ``x.at[i].add(y)``, and as a sum over an axis."""


def _candidate(scatter: Instruction, found: Collisions, copies: int) -> FindingCandidate:
    word = "meet" if found.exact else "meet at least"
    combiner = named_combiner(scatter.to_apply)
    verb, reduction = next(
        ((verb, reduction) for opcode, verb, reduction in _METHODS if opcode == combiner),
        ("apply", "reduce"),
    )

    def change(module: Module, places: Sequence[Instruction]) -> bool:
        for one in places:
            _in_copies(one, copies)
        return bool(places)

    return FindingCandidate(
        (scatter,),
        f"%{scatter.name} combines {found.windows:,} windows in {found.places:,} places: "
        f"{found.least:,} {word} in the busiest one, where one waits for another.",
        (
            FindingRemedy(
                "model",
                f"{verb} into {copies} copies in turn: jnp.full(({copies}, *x.shape), neutral)"
                f".at[jnp.arange(n) % {copies}, ids].{verb}(u).{reduction}(0), then combine with x",
            ),
            FindingRemedy(
                "model",
                "sort by index before it, where that can be done once: x.at[ids[order]]"
                f".{verb}(u[order], indices_are_sorted=True) with order = jnp.argsort(ids)",
            ),
        ),
        change,
    )


def _in_copies(scatter: Instruction, copies: int) -> None:
    """Window ``i`` goes to copy ``i % copies`` of the operand, and the copies are combined."""
    write = Writer.before(scatter)
    opcode, dims = named_combiner(scatter.to_apply), ScatterDims.of(scatter.attributes)
    operand, indices, updates = (write.term(one) for one in scatter.operands)
    count = indices.dims[0]
    kind = indices.dtype
    turn = write.iota(array(kind, (count, 1)), 0).binary("remainder", copies)
    places = write.concatenate(1, turn, indices.reshape(count, len(dims.index_map)))
    neutral = write.constant(np.asarray(identity(opcode, operand.dtype)))
    shape = array(operand.dtype, (copies, *operand.dims))
    attributes = {
        **scatter.attributes,
        "inserted_window_dims": (0, *(dim + 1 for dim in dims.inserted_window_dims)),
        "scatter_dims_to_operand_dims": (0, *(dim + 1 for dim in dims.index_map)),
        "index_vector_dim": 1,
        "indices_are_sorted": False,
    }
    made = write.make(
        "scatter", neutral.broadcast(shape), places, updates, shape=shape, **attributes
    )
    write.replace(scatter, operand.binary(opcode, made.reduce(opcode, neutral, 0)))


def contended(subject: Subject) -> tuple[ContendedScatter, ...]:
    """The scatters that take much longer where all indices are equal than where they are spread evenly."""
    if not subject.planner.predictor.target.has_threads:
        return ()
    rows = [row for row in subject.plan.rows if _may_be_slow(subject, row)]
    rows.sort(key=lambda row: -row.seconds)
    return tuple(_contended(subject, row) for row in rows[:_SHOWN])


def _may_be_slow(subject: Subject, row: KernelCost) -> bool:
    target = subject.planner.predictor.target
    worst = waiting_ns(row.instruction, target, worst=True)
    scatter = scatter_root(row.instruction)
    if scatter is None or row.prediction is None:
        return False
    if worst <= max(_LEAST_NS, _WORSE * row.prediction.seconds * 1e9):
        return False
    return not counts_up(scatter, KnownArrays(subject.plan.module, LIMIT))


def _contended(subject: Subject, row: KernelCost) -> ContendedScatter:
    target = subject.planner.predictor.target
    scatter = scatter_root(row.instruction)
    assert scatter is not None, "the kernel ends with it"
    found = collisions(scatter, row.instruction)
    opcode, kind = plain_opcode(scatter.to_apply), scatter.array.dtype.name
    swapped = waiting_ns(row.instruction, target, worst=True, native=False)
    return ContendedScatter(
        row.instruction.name,
        row.line,
        found.windows,
        found.places,
        found.least,
        row.prediction.seconds if row.prediction is not None else 0.0,
        waiting_ns(row.instruction, target, worst=True) * 1e-9,
        swapped * 1e-9,
        f"{opcode} of {kind}" if kind in _FLOATS and kind in NATIVE.get(opcode, ()) else "",
    )
