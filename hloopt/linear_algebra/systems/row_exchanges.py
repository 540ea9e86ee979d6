"""The order in which LU factors have the rows of their matrix, computed from the pivots of ``getrf``.

Frameworks compute it with a loop that exchanges two places of ``0, 1, ...`` for each pivot, or with a call.
"""

from __future__ import annotations

from typing import Final, TypeAlias, cast

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import op_table
from hloopt.rewrite import splat_literal
from hloopt.types import Dims

__all__ = ["rows_of_factors"]

_MOST: Final = 200
"""Instructions of a loop that are read."""
_PERMUTING: Final = "cu_lu_pivots_to_permutation"
_VIEWS: Final = frozenset({"bitcast", "copy", "reshape"})

_Term: TypeAlias = "tuple[object, ...]"
"""What a loop computes, for each matrix of a batch: an opcode and its operands, which are terms or numbers."""
_COUNT: Final[_Term] = ("count",)
_ROWS: Final[_Term] = ("rows",)
_PIVOTS: Final[_Term] = ("pivots",)
_AT: Final[_Term] = ("read", _PIVOTS, _COUNT)
_FIRST: Final[_Term] = ("read", _ROWS, _COUNT)
_SECOND: Final[_Term] = ("read", _ROWS, _AT)
_EXCHANGED: Final = (
    ("write", ("write", _ROWS, _COUNT, _SECOND), _AT, _FIRST),
    ("write", ("write", _ROWS, _AT, _FIRST), _COUNT, _SECOND),
)


def rows_of_factors(indices: Instruction) -> tuple[Instruction, bool] | None:
    """The call of ``getrf`` whose row order [batch, n] ``indices`` are; whether they are its inverse.

    None for all other indices.
    """
    is_inverse = False
    for _ in range(_MOST):
        inner = _unclamped(indices)
        if inner is None:
            break
        indices = inner
    if indices.opcode != "get-tuple-element":
        return _called(indices, is_inverse)
    (whole,) = indices.operands
    if whole.opcode == "sort" and indices.tuple_index == 1 and _is_argsort(whole):
        is_inverse = True
        indices = whole.operands[0]
        if indices.opcode != "get-tuple-element":
            return _called(indices, is_inverse)
        (whole,) = indices.operands
    if whole.opcode != "while":
        return None
    call = _exchanging(whole, indices.tuple_index)
    return None if call is None else (call, is_inverse)


def _called(indices: Instruction, is_inverse: bool) -> tuple[Instruction, bool] | None:
    if indices.opcode != "custom-call" or indices.custom_call_target != _PERMUTING:
        return None
    call = _factored(indices.operands[0])
    return None if call is None else (call, is_inverse)


def _unclamped(value: Instruction) -> Instruction | None:
    """What indices are made of that are the same for all that are rows."""
    if value.opcode in _VIEWS:
        inner = value.operands[0]
        long = [[size for size in one.array.dims if size > 1] for one in (value, inner)]
        return inner if long[0] == long[1] else None
    if value.opcode == "clamp":
        low, inner, high = value.operands
        size = _number(high)
        is_whole = _number(low) == 0 and size is not None and size >= inner.array.dims[-1] - 1
        return inner if is_whole else None
    if value.opcode == "select":
        mask, _, inner = value.operands
        if mask.opcode == "compare" and mask.direction == "LT" and mask.operands[0] is inner:
            return inner if _number(mask.operands[1]) == 0 else None
    return None


def _number(value: Instruction) -> int | None:
    """The integer that all elements are."""
    literal = splat_literal(value)
    array = None if literal is None else literal.array
    if array is None or not array.size or array.dtype.kind not in "iu":
        return None
    return int(array.reshape(-1)[0])


def _is_argsort(sort: Instruction) -> bool:
    """Whether the second result of a sort by the first operand is the inverse of that permutation."""
    if len(sort.operands) != 2 or not _is_counted(sort.operands[1]):
        return False
    rank = sort.operands[0].array.rank
    root = sort.to_apply.root
    return (
        tuple(sort.dimensions) == (rank - 1,)
        and root.opcode == "compare"
        and root.direction in ("LT", "LE")
        and [one.opcode for one in root.operands] == ["parameter"] * 2
        and [one.parameter_number for one in root.operands] == [0, 1]
    )


def _is_counted(value: Instruction) -> bool:
    """Whether an array is 0, 1, ... along its last dimension."""
    while value.opcode in ("broadcast", "copy"):
        rank = value.operands[0].array.rank
        if value.opcode == "broadcast" and (
            not rank or value.dimensions[-1] != value.array.rank - 1
        ):
            return False
        value = value.operands[0]
    return value.opcode == "iota" and value.iota_dimension == value.array.rank - 1


def _factored(pivots: Instruction) -> Instruction | None:
    """The call of ``getrf`` whose pivots, counted from 0, an array has."""
    if pivots.opcode == "copy":
        pivots = pivots.operands[0]
    step = {"add": -1, "subtract": 1}.get(pivots.opcode)
    if step is None or _number(pivots.operands[1]) != step:
        return None
    part = pivots.operands[0]
    if part.opcode != "get-tuple-element" or part.tuple_index != 1:
        return None
    call = part.operands[0]
    is_call = call.opcode == "custom-call" and "getrf_ffi" in call.custom_call_target
    return call if is_call else None


def _exchanging(loop: Instruction, at: int) -> Instruction | None:
    """The call whose pivots a loop exchanges rows by, if it does in the state at ``at``."""
    state, body, condition = loop.operands[0], loop.body, loop.condition
    root, limit = body.root, condition.root
    if state.opcode != "tuple" or root.opcode != "tuple" or len(body) > _MOST:
        return None
    if limit.opcode != "compare" or limit.direction != "LT":
        return None
    counter, bound = limit.operands
    if counter.opcode != "get-tuple-element" or counter.operands[0].opcode != "parameter":
        return None
    count, rows = counter.tuple_index, state.operands[at].array
    if not rows.rank or _number(bound) != rows.dims[-1] or count == at:
        return None
    if _number(state.operands[count]) != 0 or not _is_counted(state.operands[at]):
        return None
    for place, given in enumerate(state.operands):
        if place in (at, count) or not given.is_array or given.array.dims != rows.dims:
            continue
        call = _factored(given)
        if call is None:
            continue
        terms = _LoopTerms(body, {count: _COUNT, at: _ROWS, place: _PIVOTS}, rows.dims)
        found = [terms.of.get(root.operands[one]) for one in (count, at, place)]
        if found[0] == ("plus", _COUNT, 1) and found[1] in _EXCHANGED and found[2] == _PIVOTS:
            return call
    return None


@dataclass
class _LoopTerms:
    """Terms of a loop's body by the parts of its state; ``dims`` [batch, n] of the rows."""

    body: Computation
    state: dict[int, _Term]
    dims: Dims

    def __post_init__(self) -> None:
        self.of: dict[Instruction, _Term] = {}
        for one in self.body:
            if one.is_array:
                found = self._term(one)
                if found is not None:
                    self.of[one] = found

    def _term(self, one: Instruction) -> _Term | None:
        number = _number(one)
        if number is not None:
            return ("number", number)
        if one.opcode == "get-tuple-element":
            is_state = one.operands[0].opcode == "parameter"
            return self.state.get(one.tuple_index) if is_state else None
        rule = _RULES.get(one.opcode)
        return None if rule is None else rule(self, one)

    def _view(self, one: Instruction) -> _Term | None:
        """The same elements; of what is one for each matrix also in other dimensions."""
        inner = one.operands[0]
        term = self.of.get(inner)
        is_same = inner.array.dims == one.array.dims
        return term if is_same or (term is not None and not _is_rows(term)) else None

    def _plus(self, one: Instruction) -> _Term | None:
        term, other = (self.of.get(operand) for operand in one.operands)
        if term is None or other is None or other[0] != "number":
            return None
        return ("plus", term, other[1])

    def _compared(self, one: Instruction) -> _Term | None:
        term, other = (self.of.get(operand) for operand in one.operands)
        if term is None or other is None or other[0] != "number":
            return None
        return (one.direction, term, other[1])

    def _both(self, one: Instruction) -> _Term | None:
        terms = [self.of.get(operand) for operand in one.operands]
        return None if None in terms else ("and", *terms)

    def _selected(self, one: Instruction) -> _Term | None:
        """One side, where the counter and pivots, which are places of rows, always choose it."""
        mask, first, second = (self.of.get(operand) for operand in one.operands)
        if mask is None:
            return None
        if mask[0] == "LT" and mask[2] == 0:
            return second if _is_place(mask[1]) else None
        size = self.dims[-1]
        always = (("GE", 0), ("LE", size - 1), ("LT", size))
        parts = cast("tuple[_Term, ...]", mask[1:] if mask[0] == "and" else (mask,))
        is_inside = all(part[::2] in always and _is_place(part[1]) for part in parts)
        return first if is_inside else None

    def _read(self, one: Instruction) -> _Term | None:
        array, *starts = (self.of.get(operand) for operand in one.operands)
        return self._at("read", array, starts, one.array.dims)

    def _written(self, one: Instruction) -> _Term | None:
        array, value, *starts = (self.of.get(operand) for operand in one.operands)
        found = self._at("write", array, starts, one.operands[1].array.dims)
        return None if found is None or value is None or _is_rows(value) else (*found, value)

    def _at(
        self, word: str, array: _Term | None, starts: list[_Term | None], dims: Dims
    ) -> _Term | None:
        """One place of the rows of each matrix."""
        *others, place = starts
        if array is None or not _is_rows(array) or place is None or not _is_place(place):
            return None
        is_one = dims == (*self.dims[:-1], 1) and all(one == ("number", 0) for one in others)
        return (word, array, place) if is_one else None

    def _gathered(self, one: Instruction) -> _Term | None:
        given, last = one.attributes, len(self.dims) - 1
        array, place = (self.of.get(operand) for operand in one.operands)
        batch = tuple(range(last))
        is_one = (
            tuple(given["start_index_map"]) == (last,)
            and tuple(given.get("operand_batching_dims", ())) == batch
            and tuple(given.get("start_indices_batching_dims", ())) == batch
            and all(size == 1 for size in given["slice_sizes"])
        )
        return self._at("read", array, [place], (*self.dims[:-1], 1)) if is_one else None

    def _scattered(self, one: Instruction) -> _Term | None:
        given, last = one.attributes, len(self.dims) - 1
        batch = tuple(range(last))
        region = one.to_apply.root
        is_one = (
            len(one.operands) == 3
            and tuple(given["scatter_dims_to_operand_dims"]) == (last,)
            and tuple(given.get("input_batching_dims", ())) == batch
            and tuple(given.get("scatter_indices_batching_dims", ())) == batch
            and one.operands[2].array.elements * self.dims[-1] == one.array.elements
            and region.opcode == "parameter"
            and region.parameter_number == 1
        )
        if not is_one:
            return None
        array, place, value = (self.of.get(operand) for operand in one.operands)
        found = self._at("write", array, [place], (*self.dims[:-1], 1))
        return None if found is None or value is None or _is_rows(value) else (*found, value)


_RULES: Final = op_table(
    {
        "add": _LoopTerms._plus,
        "and": _LoopTerms._both,
        "bitcast": _LoopTerms._view,
        "broadcast": _LoopTerms._view,
        "compare": _LoopTerms._compared,
        "copy": _LoopTerms._view,
        "dynamic-slice": _LoopTerms._read,
        "dynamic-update-slice": _LoopTerms._written,
        "gather": _LoopTerms._gathered,
        "reshape": _LoopTerms._view,
        "scatter": _LoopTerms._scattered,
        "select": _LoopTerms._selected,
    },
    otherwise="is computed by no exchange of rows",
)


def _is_rows(term: _Term) -> bool:
    """Whether a term has a number for each row, not one for each matrix."""
    return term in (_ROWS, _PIVOTS) or term[0] == "write"


def _is_place(term: object) -> bool:
    """Whether a number is that of a row: the counter, or a pivot."""
    return term in (_COUNT, _AT)
