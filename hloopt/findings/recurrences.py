"""Loops that are associative recurrences: their iterations need not wait for each other.

``h = a * h + b`` with a and b that do not depend on h, sums, products, maxima and minima combine pairs in any
order: ``jax.lax.associative_scan`` takes 2 log2(n) steps over whole arrays where the loop takes n over rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from hloopt.analysis.trip_count import trip_count
from hloopt.findings.all_iterations import AllIterations, BatchedTerm
from hloopt.findings.associative_scan import LinearStep, Scale, composed, rows_of, scanned
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import ProgramPlan, is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ops.traits import EXTREMA, op_table
from hloopt.passes.expand.writer import Term, Writer
from hloopt.passes.loops.carried import is_read_by_element
from hloopt.passes.loops.counters import counters
from hloopt.rewrite.regions import identity
from hloopt.types import ArrayShape

__all__ = ["parallel_scans"]

_LEAST: Final = 16
_MOST: Final = 1 << 17
"""Iterations of a loop that is looked at."""
_BODY: Final = 250
"""Instructions of its body at most."""
_LOOPS: Final = 8
"""Loops of a module that are written anew to see whether they can be."""


_LAST: Final = " alone"
"""Marks a recurrence of which only the last value is read."""
_PEAK: Final = 4
_ROOM: Final = 1 << 26
"""How many times the memory, and how many bytes besides, all iterations at once may take."""


class _ParallelLoop:
    """A loop written for all iterations at once, at the end of a computation.

    ``found`` says by element of the state which recurrence it is, nothing where no iteration reads what another
    one writes; ``results`` are the elements behind the loop.
    """

    def __init__(self, loop: Instruction, writer: Writer, count: int) -> None:
        self.loop = loop
        self.writer = writer
        self.count = count
        self.state, self.root = loop.body.parameters[0], loop.body.root
        self.counters = counters(loop)
        self.starts = [
            writer.make("parameter", shape=shape, parameter_number=index)
            for index, shape in enumerate(loop.elements)
        ]
        self.body = AllIterations(loop, writer, count, self.counters, self._before)
        self.depending = {index: self._depending(index) for index in self._changed()}
        self.found: dict[int, str] = {}
        self._after: dict[int, Term | None] = {}
        self._pending: set[int] = set()
        self._linears: dict[tuple[Instruction, int], LinearStep | None] = {}
        self.computation: Computation | None = None

    def results(self) -> list[Term] | None:
        """Every element of the state behind the loop; None where one cannot be written."""
        made = [self._result(index) for index in range(len(self.starts))]
        known = [one for one in made if one is not None]
        return known if len(known) == len(made) else None

    def _changed(self) -> Iterator[int]:
        for index, following in enumerate(self.root.operands):
            if not self._stays(index, following) and index not in self.counters:
                yield index

    def _stays(self, index: int, following: Instruction) -> bool:
        return following.is_element_of(self.state) and following.tuple_index == index

    def _depending(self, index: int) -> frozenset[Instruction]:
        """The instructions of the body that depend on an element of the state."""
        found: set[Instruction] = set()
        for instruction in self.loop.body:
            own = instruction.is_element_of(self.state) and instruction.tuple_index == index
            if own or any(one in found for one in instruction.operands if one is not self.state):
                found.add(instruction)
        return frozenset(found)

    def _result(self, index: int) -> Term | None:
        following = self.root.operands[index]
        if self._stays(index, following):
            return self.starts[index]
        if index in self.counters:
            return self.writer.splat(self.starts[index].shape, self.counters[index].at(self.count))
        if following.opcode == "dynamic-update-slice" and self._stays(index, following.operands[0]):
            return self._written(index, following)
        folded = self._folded(index)
        if folded is not None:
            return folded
        after = self.after(index)
        return None if after is None else self._row(after, self.count - 1)

    def _row(self, term: Term, number: int) -> Term:
        return rows_of(term, number, number + 1).reshape(*term.dims[1:])

    def _written(self, index: int, update: Instruction) -> Term | None:
        """An array of which each iteration writes a row, all of them in the end."""
        if len(self.depending[index] & set(self.root.operands)) > 1:
            return None
        part = self.body.of(update.operands[1])
        given = [self.body.of(one) for one in update.operands[2:]]
        places = [one for one in given if one is not None]
        dims = update.array.dims
        if part is None or len(places) < len(given) or dims[0] != self.count:
            return None
        order = self.body.order(places, dims)
        if order is None or update.operands[1].array.dims != (1, *dims[1:]):
            return None
        rows = self.body.spread(part).reshape(*dims)
        return rows if order[1] > 0 else self.writer.make("reverse", rows, dimensions=(0,))

    def _before(self, index: int) -> BatchedTerm | None:
        """What the iterations find: the start, then what those before them leave."""
        if index not in self.depending:
            return BatchedTerm(self.starts[index], False)
        after = self.after(index)
        if after is None:
            return None
        first = self.starts[index].reshape(1, *after.dims[1:])
        return BatchedTerm(
            self.writer.concatenate(0, first, rows_of(after, 0, self.count - 1)), True
        )

    def after(self, index: int) -> Term | None:
        """What each iteration leaves of an element; None where that depends on more than a recurrence."""
        if index not in self._after:
            if index in self._pending:
                return None
            self._pending.add(index)
            self._after[index] = self._solved(index)
            self._pending.discard(index)
        return self._after[index]

    def _solved(self, index: int) -> Term | None:
        following, start = self.root.operands[index], self.starts[index]
        found = self._combined(index) or self._linear(following, index)
        if found is None:
            return None
        if isinstance(found, LinearStep):
            after = self._recurrence(index, found)
        else:
            opcode, value = found
            self.found[index] = opcode
            (total,) = scanned([value], lambda one, other: [one[0].binary(opcode, other[0])])
            after = self._spread(start).binary(opcode, total)
        self.body.known[following] = BatchedTerm(after, True)
        return after

    def _spread(self, start: Term) -> Term:
        return self.body.spread(BatchedTerm(start, False))

    def _combined(self, index: int) -> tuple[str, Term] | None:
        """``maximum(h, b)`` or the like, with a b that does not depend on h."""
        following = self.root.operands[index]
        if following.opcode not in EXTREMA or len(following.operands) != 2:
            return None
        for one, other in (following.operands, following.operands[::-1]):
            if self._stays(index, one) and other not in self.depending[index]:
                value = self.body.of(other)
                return None if value is None else (following.opcode, self.body.spread(value))
        return None

    def _recurrence(self, index: int, found: LinearStep) -> Term:
        start, scale, shift = self._spread(self.starts[index]), found.scale, found.shift
        if scale == 0:
            return shift or self.writer.splat(start.shape, 0)
        if scale == 1:
            if shift is None:
                return start
            self.found[index] = "add"
            (total,) = scanned([shift], lambda one, other: [one[0] + other[0]])
            return start + total
        factor = self._term(scale, start.shape)
        if shift is None:
            self.found[index] = "multiply"
            (total,) = scanned([factor], lambda one, other: [one[0] * other[0]])
            return start * total
        self.found[index] = "linear"
        factors, shifts = scanned([factor, shift], composed)
        return factors * start + shifts

    def _term(self, scale: Scale, shape: ArrayShape) -> Term:
        return self.writer.splat(shape, scale) if isinstance(scale, int) else scale

    def _folded(self, index: int) -> Term | None:
        """The last value of a sum, product, maximum or minimum that nothing else reads: a reduction."""
        following, start = self.root.operands[index], self.starts[index]
        depending = self.depending[index]
        if len(depending & set(self.root.operands)) != 1 or following not in depending:
            return None
        fold = self._combined(index)
        if fold is None:
            found = self._linear(following, index)
            if found is None:
                return None
            if found.scale == 1 and found.shift is not None:
                fold = "add", found.shift
            elif isinstance(found.scale, Term) and found.shift is None:
                fold = "multiply", found.scale
            else:
                return None
        opcode, value = fold
        self.found[index] = opcode + _LAST
        neutral = self.writer.constant(np.asarray(identity(opcode, start.dtype)))
        return start.binary(opcode, value.reduce(opcode, neutral, 0))

    def _linear(self, value: Instruction, index: int) -> LinearStep | None:
        """A value of the body as a linear function of an element of the state."""
        if self._stays(index, value):
            return LinearStep(1, None)
        if value not in self.depending[index]:
            made = self.body.of(value)
            return None if made is None else LinearStep(0, self.body.spread(made))
        key = value, index
        if key not in self._linears:
            self._linears[key] = self._made(value, index)
        return self._linears[key]

    def _made(self, value: Instruction, index: int) -> LinearStep | None:
        opcode, operands = value.opcode, value.operands
        if opcode in ("multiply", "divide"):
            return self._scaled(value, index)
        if opcode == "select":
            return self._chosen(value, index)
        if opcode not in ("add", "subtract", "negate"):
            return None
        first, last = (self._linear(one, index) for one in (operands[0], operands[-1]))
        if first is None or last is None:
            return None
        last = last if opcode == "add" else last.negated()
        return last if opcode == "negate" else first.plus(last)

    def _scaled(self, value: Instruction, index: int) -> LinearStep | None:
        left, right = value.operands
        if left not in self.depending[index] and value.opcode == "multiply":
            left, right = right, left
        if right in self.depending[index]:
            return None
        inner, factor = self._linear(left, index), self.body.of(right)
        if inner is None or factor is None:
            return None
        term = self.body.spread(factor)
        by = 1 / term if value.opcode == "divide" else term
        scale = inner.scale
        return LinearStep(
            by if scale == 1 else 0 if scale == 0 else by * scale,
            None if inner.shift is None else inner.shift * by,
        )

    def _chosen(self, value: Instruction, index: int) -> LinearStep | None:
        """Where the recurrence starts again: a select by what does not depend on the element."""
        by = value.operands[0]
        chooser = None if by in self.depending[index] else self.body.of(by)
        left, right = (self._linear(one, index) for one in value.operands[1:])
        if chooser is None or left is None or right is None or by.array.dims != value.array.dims:
            return None
        where, shape = self.body.spread(chooser), self.body.shape(value.array)
        nothing = self.writer.splat(shape, 0)
        return LinearStep(
            where.select(self._term(left.scale, shape), self._term(right.scale, shape)),
            where.select(left.shift or nothing, right.shift or nothing),
        )


def parallel_scans(subject: Subject) -> Iterator[FindingCandidate]:
    """Loops whose carried values are associative recurrences, and all else the same op for each iteration.

    None on the host: its loops are one kernel on one core, where twice the sums take longer.
    """
    if is_planned(subject.module) or subject.planner.predictor.target.kind == "cpu":
        return
    looked = 0
    for computation in subject.module:
        for loop in computation:
            if loop.opcode != "while" or not _fits(loop) or looked == _LOOPS:
                continue
            looked += 1
            written = _written(loop, Module("scratch", subject.module.source))
            if written is not None:
                yield _candidate(loop, written.found)


def _fits(loop: Instruction) -> bool:
    return (
        is_read_by_element(loop)
        and len(loop.body) <= _BODY
        and all(isinstance(one, ArrayShape) and not one.is_dynamic for one in loop.elements)
        and _LEAST <= (trip_count(loop) or 0) <= _MOST
    )


def _written(loop: Instruction, module: Module) -> _ParallelLoop | None:
    """A loop in parallel form, as a computation of that module."""
    count = trip_count(loop)
    assert count is not None, "that of loops that fit is known"
    body = Computation(f"{loop.name}_in_parallel")
    writer = Writer(body, module, loop.metadata)
    made = _ParallelLoop(loop, writer, count)
    results = made.results()
    if results is None:
        return None
    root = writer.pack(*results).instruction
    edit.set_root(body, root)
    made.computation = edit.add_computation(module, body)
    return made


def _in_parallel(module: Module, places: Sequence[Instruction]) -> bool:
    """A call of the parallel form in place of each loop."""
    for loop in places:
        made = _written(loop, module)
        if made is None or made.computation is None:
            return False
        given = build.elements(loop, loop.operands[0])
        attributes = {"to_apply": made.computation}
        call = build.make(loop, "call", given, attributes, shape=loop.shape, metadata=loop.metadata)
        edit.replace_instruction(loop, call)
    return True


_WORDS: Final = op_table({
    "add": ("jnp.cumsum", "jnp.add", "jnp.sum"),
    "multiply": ("jnp.cumprod", "jnp.multiply", "jnp.prod"),
    "maximum": ("jax.lax.cummax", "jnp.maximum", "jnp.max"),
    "minimum": ("jax.lax.cummin", "jnp.minimum", "jnp.min"),
}, otherwise="no recurrence by itself")  # fmt: skip
"""Of each op the cumulative function, the binary one, and the reduction."""


def _remedy(kind: str) -> str:
    if kind == "linear":
        return (
            "jax.lax.associative_scan(lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (a, b)), with a and b "
            "of all steps computed before it"
        )
    cumulative, binary, reduction = _WORDS[kind.removesuffix(_LAST)]
    if kind.endswith(_LAST):
        return f"{reduction}(xs, axis=0): only the last value is read"
    return f"{cumulative}(xs, axis=0), or jax.lax.associative_scan({binary}, xs)"


def _candidate(loop: Instruction, found: dict[int, str]) -> FindingCandidate:
    count, kinds = trip_count(loop), dict.fromkeys(found.values())
    if not found:
        return FindingCandidate(
            (loop,),
            f"%{loop.name} runs {count:,} iterations one after another, and none of them reads what another "
            "one writes: they can be one iteration over whole arrays.",
            (
                FindingRemedy(
                    "model",
                    "jax.vmap(f)(xs) for jax.lax.map(f, xs) or a scan that carries nothing; "
                    "jax.lax.map(f, xs, batch_size=...) where the memory for all at once is missing",
                ),
            ),
            _in_parallel,
            holds=_fits_memory,
        )
    elements = ", ".join(f"element {index} ({_formula(kind)})" for index, kind in found.items())
    return FindingCandidate(
        (loop,),
        f"%{loop.name} runs {count:,} iterations one after another for {elements} of its state, and that is "
        "associative: the iterations can be combined in pairs, over whole arrays. Sums and products are "
        "rounded in another order then.",
        tuple(FindingRemedy("model", _remedy(kind)) for kind in kinds),
        _in_parallel,
        holds=_fits_memory,
    )


def _formula(kind: str) -> str:
    name = kind.removesuffix(_LAST)
    if name == "linear":
        return "h = a * h + b"
    sign = {"add": "h + b", "multiply": "h * a"}.get(name, f"{name}(h, b)")
    return f"h = {sign}"


def _fits_memory(before: ProgramPlan, after: ProgramPlan) -> bool:
    """Whether the arrays of all iterations fit."""
    return after.peak_bytes <= _PEAK * before.peak_bytes + _ROOM
