"""What experts compute, for rows that are ordered by expert instead of all tokens."""

from __future__ import annotations

from math import ceil
from typing import Final, Self, TypeAlias

from hloopt.analysis.elementwise import is_elementwise
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.passes.expand.computations import region
from hloopt.passes.expand.writer import Term, Writer
from hloopt.types import ArrayShape, DotDims, TupleShape, array

__all__ = ["ExpertGroups", "experts_of"]

_Dims: TypeAlias = "tuple[int | None, int | None]"
"""Which dimensions of a value are those of the tokens and of the experts."""
_MOST: Final = 128
"""Instructions that are followed from a sum over experts."""


def experts_of(made: Instruction, tokens: int, experts: int) -> tuple[Instruction, ...] | None:
    """The dots over all tokens and experts that a value is made of; None where it is made of anything else."""
    dims: dict[Instruction, _Dims] = {}
    if not _visit(made, (tokens, experts), dims):
        return None
    return tuple(one for one in reversed(dims) if one.opcode == "dot") or None


def _visit(value: Instruction, where: _Dims, known: dict[Instruction, _Dims]) -> bool:
    """Note the dimensions of all that depends on both; False where one cannot be followed."""
    if None in where:
        return True
    if value in known:
        return known[value] == where
    if len(known) == _MOST:
        return False
    sources = _sources(value, where)
    if sources is None:
        return False
    known[value] = where
    return all(_visit(operand, dims, known) for operand, dims in sources)


def _sources(value: Instruction, where: _Dims) -> list[tuple[Instruction, _Dims]] | None:
    """The operands with their dimensions; None for ops that are not followed."""
    tokens, experts = where
    assert tokens is not None, "both are known"
    assert experts is not None, "both are known"
    if value.opcode == "dot":
        return _factors(value, tokens, experts)
    if value.opcode == "broadcast":
        dims = value.dimensions
        at = {dim: number for number, dim in enumerate(dims)}
        return [(value.operands[0], (at.get(tokens), at.get(experts)))]
    if value.opcode == "transpose":
        order = value.dimensions
        return [(value.operands[0], (order[tokens], order[experts]))]
    if value.opcode == "reduce" and value.is_array:
        summed = value.operands[0]
        kept = [dim for dim in range(summed.array.rank) if dim not in value.dimensions]
        return [(summed, (kept[tokens], kept[experts])), (value.operands[1], (None, None))]
    if is_elementwise(value):
        return [(one, where if one.array.rank else (None, None)) for one in value.operands]
    return None


def _factors(dot: Instruction, tokens: int, experts: int) -> list[tuple[Instruction, _Dims]] | None:
    numbers = DotDims.of(dot.attributes)
    sides = numbers.places(*(one.array.rank for one in dot.operands))
    found: list[tuple[Instruction, _Dims]] = []
    for operand, places in zip(dot.operands, sides, strict=True):
        dims = {place: dim for dim, place in places.items()}
        found.append((operand, (dims.get(tokens), dims.get(experts))))
    has_tokens_alone = any(its[0] is not None and its[1] is None for _, its in found)
    return None if has_tokens_alone and numbers.lhs_batch else found


@dataclass(frozen=True)
class ExpertGroups:
    """So many rows for each expert, the chosen tokens ordered by expert.

    tokens  ``[experts, rows]``: which token is at a place
    places  ``[tokens, each]``: at which place of all a token is for each of its experts
    """

    write: Writer
    tokens: Term
    places: Term

    @classmethod
    def of(cls, write: Writer, indices: Term, experts: int) -> Self:
        """The rows for indices ``[tokens, each]``, as if each expert were chosen as often as any other."""
        count, each = indices.dims
        total = count * each
        rows = ceil(total / experts)
        numbers = write.iota(array(indices.dtype, (total,)), 0)
        order = _sorted(write, indices.reshape(total), numbers)
        tokens = order.binary("divide", each)
        zero = write.scalar(tokens.dtype, 0)
        tokens = tokens.pad(zero, (0, rows * experts - total)).reshape(experts, rows)
        return cls(write, tokens, _sorted(write, order, numbers).reshape(count, each))

    def made(self, value: Instruction, tokens: int, experts: int) -> Term:
        """What the value is for these rows: the dimension of tokens is that of the rows of an expert."""
        known: dict[Instruction, Term] = {}
        return self._made(value, (tokens, experts), known)

    def back(self, rows: Term, number: int) -> Term:
        """``[tokens, others]`` of ``[experts * rows, others]``, for one of the experts of each token."""
        count = self.places.dims[0]
        places = self.places.slice((0, count), (number, number + 1)).reshape(count)
        return _taken(self.write, rows, places, 0)

    def _made(self, value: Instruction, where: _Dims, known: dict[Instruction, Term]) -> Term:
        tokens, experts = where
        if tokens is None:
            return self.write.term(value)
        assert experts is not None, "rows of tokens alone are gathered where they are used"
        if value not in known:
            known[value] = self._rewritten(value, tokens, experts, known)
        return known[value]

    def _rewritten(
        self, value: Instruction, tokens: int, experts: int, known: dict[Instruction, Term]
    ) -> Term:
        sources = _sources(value, (tokens, experts))
        assert sources is not None, "the detector has followed it"
        for number, (operand, (its_tokens, its_experts)) in enumerate(sources):
            if its_tokens is not None and its_experts is None:
                rows = _taken(self.write, self.write.term(operand), self.tokens, its_tokens)
                if value.opcode == "broadcast":
                    return self._spread(value, rows, its_tokens, tokens, experts)
                return self._multiplied(value, number, rows, its_tokens, tokens, experts)
        dims = list(value.array.dims)
        dims[tokens] = self.tokens.dims[1]
        return self.write.make(
            value.opcode,
            *(self._made(operand, where, known) for operand, where in sources),
            shape=array(value.array.dtype, tuple(dims)),
            **value.attributes,
        )

    def _spread(self, value: Instruction, rows: Term, own: int, tokens: int, experts: int) -> Term:
        """A broadcast over experts, of rows ``[experts, rows, others]``."""
        rest = [dim for at, dim in enumerate(value.dimensions) if at != own]
        places = [experts, tokens, *rest]
        order = sorted(range(len(places)), key=places.__getitem__)
        dims = list(value.array.dims)
        dims[tokens] = self.tokens.dims[1]
        shape = array(value.array.dtype, tuple(dims))
        return rows.transpose(*order).broadcast(shape, *(places[at] for at in order))

    def _multiplied(
        self, dot: Instruction, side: int, rows: Term, own: int, tokens: int, experts: int
    ) -> Term:
        """A product of all tokens with all experts as one of each expert's rows with its own factor."""
        dims = DotDims.of(dot.attributes)
        other = dot.operands[1 - side]
        batch = (dims.lhs_batch, dims.rhs_batch)[side]
        contracting = (dims.lhs_contracting, dims.rhs_contracting)
        assert not batch, "the detector asks for that"
        places = dims.places(*(one.array.rank for one in dot.operands))
        expert = next(dim for dim, place in places[1 - side].items() if place == experts)
        shifted = tuple(2 + dim - (dim > own) for dim in contracting[side])
        free = [place for dim, place in places[side].items() if dim != own]
        others = [place for dim, place in places[1 - side].items() if dim != expert]
        # The result is [experts, rows, free of rows, free of the other factor].
        made = [experts, tokens, *free, *others]
        sizes = [*self.tokens.dims, *(dot.array.dims[place] for place in (*free, *others))]
        product = self.write.make(
            "dot",
            rows,
            self.write.term(other),
            shape=array(dot.array.dtype, tuple(sizes)),
            lhs_batch_dims=(0,),
            rhs_batch_dims=(expert,),
            lhs_contracting_dims=shifted,
            rhs_contracting_dims=contracting[1 - side],
        )
        return product.transpose(*(made.index(place) for place in range(len(made))))


def _sorted(write: Writer, keys: Term, numbers: Term) -> Term:
    """The numbers in the order of their keys."""
    value = array(keys.dtype)
    inner = region(write, "comparator", value, value, value, value)
    first, second, *_ = inner.parameters
    both = write.make(
        "sort",
        keys,
        numbers,
        shape=TupleShape((_shape(keys), _shape(numbers))),
        dimensions=(0,),
        is_stable=True,
        to_apply=inner.finish(first < second),
    )
    return both.part(1)


def _shape(term: Term) -> ArrayShape:
    return array(term.dtype, term.dims)


def _taken(write: Writer, source: Term, rows: Term, along: int) -> Term:
    """``[rows, others]``: at each place of ``rows`` what the source has there along a dimension."""
    rest = tuple(size for dim, size in enumerate(source.dims) if dim != along)
    first = len(rows.dims)
    return write.make(
        "gather",
        source,
        rows,
        shape=array(source.dtype, (*rows.dims, *rest)),
        offset_dims=tuple(range(first, first + len(rest))),
        collapsed_slice_dims=(along,),
        start_index_map=(along,),
        index_vector_dim=first,
        slice_sizes=tuple(1 if dim == along else size for dim, size in enumerate(source.dims)),
    )
