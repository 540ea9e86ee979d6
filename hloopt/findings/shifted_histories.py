"""Arrays of the last values that a loop carries and moves by a place in each iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.analysis.induction import Affine
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, build, edit
from hloopt.numbers import byte_size
from hloopt.passes.loops.carried import CarriedState, growth_obstacle, reads, used_reads
from hloopt.passes.loops.counters import counters
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite.pattern import splat_literal
from hloopt.rewrite.site import row_major, sites
from hloopt.types import ArrayShape, SliceRange

__all__ = ["in_loops"]

_LEAST: Final = 1 << 14
"""Bytes of a history that is worth a word: a smaller one is moved while a kernel starts."""
_MOST: Final = 1 << 30
"""Bytes of all values that a loop has at hand at once."""
_FEW: Final = 3


@dataclass(frozen=True)
class _History:
    """Element ``index`` of a loop's state, whose places along ``dim`` move by those that ``rows`` has.

    made     the next value; ``is_front`` says that the new rows come before the others
    counter  another element, the number of the iteration, up or down by 1 in ``count`` iterations
    """

    loop: Instruction
    index: int
    dim: int
    made: Instruction
    rows: Instruction
    is_front: bool
    counter: int
    variable: Affine
    count: int

    @property
    def shape(self) -> ArrayShape:
        """Of the history."""
        return self.made.array

    @property
    def step(self) -> int:
        """How many places it moves by."""
        return self.rows.array.dims[self.dim]

    @property
    def wide(self) -> ArrayShape:
        """Of the history with what all iterations add to it."""
        dims = list(self.shape.dims)
        dims[self.dim] += self.count * self.step
        return row_major(self.shape, tuple(dims))


def in_loops(subject: Subject) -> Iterator[FindingCandidate]:
    """Loops of known count that drop the oldest of the values they carry, and add new ones."""
    if is_planned(subject.module):
        return
    for loop in sites(subject.module, "while"):
        for found in _histories(loop):
            shape = found.shape
            runs = found.count
            yield FindingCandidate(
                (loop,),
                f"%{found.made.name} moves all of element {found.index} of the state of %{loop.name} by "
                f"{found.step} of its {shape.dims[found.dim]:,} places, in each of {runs:,} iterations: "
                f"{byte_size(shape.byte_size)} are read and written, {byte_size(found.rows.shape.byte_size)} "
                "of them new. Where they stay in place, an iteration writes these alone, and the last "
                f"{shape.dims[found.dim]:,} are a slice.",
                (
                    FindingRemedy(
                        "model",
                        "carry room for all steps, h = jnp.concatenate([h, zeros of the steps]), write with "
                        "jax.lax.dynamic_update_index_in_dim(h, x, n + i, 0) and read "
                        "jax.lax.dynamic_slice_in_dim(h, i + 1, n); where the new values are the scan's xs, "
                        "jnp.concatenate([h, xs]) holds every such slice before it",
                    ),
                ),
                _in_place,
                (found.made,),
            )


def _histories(loop: Instruction) -> Iterator[_History]:
    if not loop.is_tuple or loop.body.root.opcode != "tuple" or growth_obstacle(loop):
        return
    moved = [
        (index, found)
        for index, value in enumerate(loop.body.root.operands)
        if value.is_array and value.shape.byte_size >= _LEAST
        if (found := _moved(loop.body.parameters[0], index, value)) is not None
    ]
    count = trip_count(loop) if moved else None
    if count is None or count < _FEW:
        return
    counted = next((row for row in counters(loop).items() if abs(row[1].step) == 1), None)
    for index, (dim, made, rows, is_front) in moved:
        if counted is None or used_reads(loop.condition.parameters[0]).get(index):
            continue
        history = _History(loop, index, dim, made, rows, is_front, *counted, count)
        if history.wide.byte_size <= _MOST:
            yield history


def _moved(
    state: Instruction, index: int, value: Instruction
) -> tuple[int, Instruction, Instruction, bool] | None:
    """The dimension along which an element of the state moves, its next value, the new rows, and their side."""
    joined, rows = value, None
    if value.opcode == "dynamic-update-slice":
        joined, rows = value.operands[:2]
    if joined.opcode != "concatenate" or len(joined.operands) != 2:
        return None
    (dim,) = joined.dimensions
    for at, kept in enumerate(joined.operands):
        source = kept.operands[0] if kept.opcode == "slice" else kept
        if not source.is_element_of(state) or source.tuple_index != index:
            continue
        other = joined.operands[1 - at]
        step, size = other.array.dims[dim], joined.array.dims[dim]
        first = 0 if at else size - step
        if rows is not None and not _is_at(value, dim, first, step):
            return None
        if kept is not source and _kept(kept, dim) == ((0 if at else step), size - step):
            return dim, value, other if rows is None else rows, bool(at)
    return None


def _kept(kept: Instruction, dim: int) -> tuple[int, int] | None:
    """Where a slice along one dimension begins, and how long it is."""
    ranges: tuple[SliceRange, ...] = kept.attributes["slice"]
    sizes = kept.operands[0].array.dims
    for at, (row, size) in enumerate(zip(ranges, sizes, strict=True)):
        if row.stride != 1 or (at != dim and (row.start, row.limit) != (0, size)):
            return None
    return ranges[dim].start, ranges[dim].size


def _is_at(update: Instruction, dim: int, first: int, step: int) -> bool:
    """Whether an update writes ``step`` places from ``first`` on, and all along the other dimensions."""
    dims = list(update.array.dims)
    dims[dim] = step
    starts = [splat_literal(one) for one in update.operands[2:]]
    wanted = [first if at == dim else 0 for at in range(len(dims))]
    return update.operands[1].array.dims == tuple(dims) and all(
        one is not None and one.array is not None and int(one.array) == place
        for one, place in zip(starts, wanted, strict=True)
    )


def _in_place(module: Module, places: Sequence[Instruction]) -> bool:
    """Carry room for all new values: each stays where it is written."""
    changed = False
    while (found := next(_histories(places[0]), None)) is not None:
        _widen(found)
        changed = True
    if changed:
        parse_pipeline("cse,dce").run(module)
    return changed


def _widen(found: _History) -> None:
    state = CarriedState(found.loop)
    before = state.init.operands[found.index]
    room = build.splat(state.init, _room(found), 0)
    order = (room, before) if found.is_front else (before, room)
    wide = build.make(
        state.init, "concatenate", order, {"dimensions": (found.dim,)}, shape=found.wide
    )
    edit.set_operand(state.init, found.index, wide)
    state.reshape(
        lambda shapes: [found.wide if at == found.index else one for at, one in enumerate(shapes)]
    )
    for each in state.states:
        for read in reads(each)[found.index]:
            edit.set_shape(read, found.wide)
    _write(found, state)
    for read in reads(found.loop)[found.index]:
        whole = build.element(read, found.loop, found.index, read.metadata)
        edit.replace_instruction(read, _last(found, read, whole))


def _room(found: _History) -> ArrayShape:
    dims = list(found.shape.dims)
    dims[found.dim] = found.count * found.step
    return row_major(found.shape, tuple(dims))


def _start(
    found: _History, position: Instruction, state: Instruction, more: int = 0
) -> Instruction:
    """Where the history is in an iteration, and ``more`` places from there."""
    variable, step = found.variable, found.step
    counter = build.element(position, state, found.counter)
    back = found.count * step if found.is_front else 0
    factor = (-step if found.is_front else step) * variable.step
    offset = back + more - variable.first * factor

    def number(value: int) -> Instruction:
        return build.splat(position, counter.array, value)

    scaled = build.make(position, "multiply", (counter, number(factor)))
    return build.make(position, "add", (scaled, number(offset)))


def _window(
    found: _History, position: Instruction, whole: Instruction, start: Instruction
) -> Instruction:
    """The places that a history has in the array with all of them."""
    zero = build.splat(position, start.array, 0)
    starts = tuple(start if dim == found.dim else zero for dim in range(found.shape.rank))
    return build.make(
        position,
        "dynamic-slice",
        (whole, *starts),
        {"dynamic_slice_sizes": found.shape.dims},
        shape=row_major(found.shape, found.shape.dims),
    )


def _write(found: _History, state: CarriedState) -> None:
    """Write the new rows as soon as they are known: what reads the history then finds it beside them."""
    body, order = state.states[1], list(state.body)
    places = {one: at for at, one in enumerate(order)}
    after = order[places[found.rows] + 1]
    olds = reads(body)[found.index]
    forward = -found.step if found.is_front else found.step
    beside = -found.step if found.is_front else found.shape.dims[found.dim]
    whole = build.element(after, body, found.index)
    start = _start(found, after, body, beside)
    zero = build.splat(after, start.array, 0)
    starts = tuple(start if dim == found.dim else zero for dim in range(found.shape.rank))
    operands = (whole, found.rows, *starts)
    written = build.make(
        after, "dynamic-update-slice", operands, shape=found.wide, metadata=found.made.metadata
    )
    for read in olds:
        for user in list(read.users):
            source = written if places[user] > places[found.rows] else read
            window = _window(found, user, source, _start(found, user, body))
            edit.replace_operand(user, read, window)
    edit.set_operand(state.root, found.index, written)
    if found.made.users:
        window = _window(found, found.made, written, _start(found, found.made, body, forward))
        edit.replace_uses(found.made, window)


def _last(found: _History, position: Instruction, whole: Instruction) -> Instruction:
    """The history after the loop."""
    start = 0 if found.is_front else found.count * found.step
    ranges = tuple(
        SliceRange(start if dim == found.dim else 0, (start if dim == found.dim else 0) + size)
        for dim, size in enumerate(found.shape.dims)
    )
    shape = row_major(found.shape, found.shape.dims)
    return build.make(position, "slice", (whole,), {"slice": ranges}, shape=shape)
