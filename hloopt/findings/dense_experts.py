"""Mixtures of experts that compute every expert for every token and multiply most of it by zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.findings.chosen import ChosenPlaces, are_distinct, chosen, is_nothing
from hloopt.findings.expert_groups import ExpertGroups, experts_of
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module
from hloopt.ir.walk import open_computations
from hloopt.linear_algebra.masks import is_summing
from hloopt.passes.expand.writer import Term, Writer
from hloopt.pipelines import parse_pipeline
from hloopt.types import DotDims, array

__all__ = ["for_all_tokens"]

_FEWER: Final = 2
"""The least ratio of all experts to those chosen for a token."""


@dataclass(frozen=True)
class _Mixture:
    """The sum over experts of what each makes of a token, by a weight that is zero for most.

    weights  ``[tokens, experts]`` in some order, or whether a token has an expert; ``rows`` is the dimension
             of the tokens
    made     by the experts; its dimensions of tokens and of experts
    choice   the indices of the experts that are not multiplied by zero
    """

    weights: Instruction
    rows: int
    made: Instruction
    tokens: int
    experts: int
    choice: ChosenPlaces

    @property
    def each(self) -> int:
        """Experts of a token."""
        shape = self.choice.indices.array
        return shape.dims[1] if shape.rank > 1 else 1

    @property
    def count(self) -> int:
        """Experts in all."""
        return self.made.array.dims[self.experts]


def for_all_tokens(subject: Subject) -> Iterator[FindingCandidate]:
    """Sums over experts whose weights are zero for most of them, by the indices that make them."""
    if is_planned(subject.module):
        return
    for computation in open_computations(subject.module):
        for one in computation:
            found = _mixture(one)
            if found is not None:
                yield _candidate(one, found)


def _candidate(root: Instruction, found: _Mixture) -> FindingCandidate:
    products = experts_of(found.made, found.tokens, found.experts)
    assert products is not None, "a mixture has experts"
    tokens = found.made.array.dims[found.tokens]
    names = " and ".join(f"%{one.name}" for one in products[:3])
    each, indices = found.each, found.choice.indices.name
    named = f"one are multiplied by zero: %{indices} is that one"
    if each > 1:
        named = f"{each} are multiplied by zero: %{indices} has those {each}"
    return FindingCandidate(
        (root, *products),
        f"%{root.name} adds up what {found.count} experts make of each of {tokens:,} tokens, of which all but "
        f"{named}. {names} compute all of them, {found.count / each:.3g} times as much as is used.",
        (
            FindingRemedy(
                "model",
                "order the tokens by expert and multiply each group by the weights of its expert alone: with "
                "a kernel of grouped products (Pallas' megablox gmm, Tokamax's ragged_dot), or with the same "
                "number of rows for each expert, x[rows] of [experts, capacity, features], where tokens "
                "beyond the capacity are lost. Priced with as many rows as are chosen, spread evenly",
            ),
        ),
        _chosen_alone,
        (found.choice.indices,),
        priced=_in_groups,
    )


def _mixture(root: Instruction) -> _Mixture | None:
    found = next((one for one in _sums(root) if _is_sparse(one)), None)
    return found if found and experts_of(found.made, found.tokens, found.experts) else None


def _is_sparse(one: _Mixture) -> bool:
    indices = one.choice.indices
    return (
        _FEWER * one.each <= one.count
        and indices.array.rank in (1, 2)
        and one.choice.dims[0] == one.rows
        and all(dim < 0 for dim in one.choice.dims[1:])
        and indices.array.dims[0] == one.made.array.dims[one.tokens]
        and are_distinct(indices)
    )


def _sums(root: Instruction) -> Iterator[_Mixture]:
    """The ways in which an instruction is a sum over one dimension of weights times another array."""
    if root.opcode == "dot":
        dims = DotDims.of(root.attributes)
        sides = ((dims.lhs_batch, dims.lhs_contracting), (dims.rhs_batch, dims.rhs_contracting))
        if not len(dims.lhs_batch) == len(dims.lhs_contracting) == 1:
            return
        for side in (0, 1):
            weights, made = root.operands[side], root.operands[1 - side]
            ((rows,), (along,)), ((tokens,), (experts,)) = sides[side], sides[1 - side]
            if weights.array.rank == 2 and (found := chosen(weights, along)) is not None:
                yield _Mixture(weights, rows, made, tokens, experts, found)
    elif is_summing(root):
        product = root.operands[0]
        if len(root.dimensions) != 1:
            return
        (experts,) = root.dimensions
        for spread, made in _weighted(product):
            if spread.opcode != "broadcast" or len(spread.dimensions) != 2:
                continue
            if experts not in spread.dimensions:
                continue
            along = spread.dimensions.index(experts)
            tokens, weights = spread.dimensions[1 - along], spread.operands[0]
            if (found := chosen(weights, along)) is not None:
                yield _Mixture(weights, 1 - along, made, tokens, experts, found)


def _weighted(product: Instruction) -> Sequence[tuple[Instruction, Instruction]]:
    """Possible weights, each with what it weights: factors of a product, or mask and arm of a select."""
    if product.opcode == "multiply":
        one, other = product.operands
        return (one, other), (other, one)
    if product.opcode == "select" and is_nothing(product.operands[2]):
        mask, made, _ = product.operands
        return ((mask, made),)
    return ()


def _chosen_alone(module: Module, places: Sequence[Instruction]) -> bool:
    """Add up the chosen experts of each token alone: the others are computed still, and not read."""
    return _rewritten(module, places[0], in_groups=False)


def _in_groups(module: Module, places: Sequence[Instruction]) -> bool:
    """Compute the experts for as many rows as are chosen, ordered by expert, and as many for each."""
    return _rewritten(module, places[0], in_groups=True)


def _rewritten(module: Module, root: Instruction, *, in_groups: bool) -> bool:
    found = _mixture(root)
    if found is None:
        return False
    write = Writer.before(root)
    indices = write.term(found.choice.indices)
    tokens = found.made.array.dims[found.tokens]
    if len(indices.dims) == 1:
        indices = indices.reshape(tokens, 1)
    rest = [at for at in range(found.made.array.rank) if at not in (found.tokens, found.experts)]
    weights = write.term(found.weights)
    weights = weights if found.rows == 0 else weights.transpose(1, 0)
    if in_groups:
        groups = ExpertGroups.of(write, indices, found.count)
        made = groups.made(found.made, found.tokens, found.experts)
        rows = made.transpose(found.experts, found.tokens, *rest)
        rows = rows.reshape(rows.dims[0] * rows.dims[1], *rows.dims[2:])
        parts = [groups.back(rows, number) for number in range(found.each)]
    else:
        rows = write.term(found.made).transpose(found.tokens, found.experts, *rest)
        parts = [_picked(write, rows, indices, number) for number in range(found.each)]
    total: Term | None = None
    for number, part in enumerate(parts):
        scale = _picked(write, weights, indices, number).convert(part.dtype)
        product = part * scale.broadcast(part.shape, 0)
        total = product if total is None else total + product
    assert total is not None, "a token has an expert"
    write.replace(root, _in_order(total, root, found))
    parse_pipeline("dce").run(module)
    return True


def _in_order(total: Term, root: Instruction, found: _Mixture) -> Term:
    """``[tokens, others]`` in the order of the result; a dot has that order already."""
    if root.opcode == "dot":
        return total
    place = found.tokens - (found.experts < found.tokens)
    order = list(range(1, len(total.dims)))
    order.insert(place, 0)
    return total.transpose(*order)


def _picked(write: Writer, rows: Term, indices: Term, number: int) -> Term:
    """``[tokens, others]`` of ``[tokens, experts, others]``: of each token what one of its experts has."""
    tokens, rest = indices.dims[0], rows.dims[2:]
    column = indices.slice((0, tokens), (number, number + 1))
    return write.make(
        "gather",
        rows,
        write.concatenate(1, write.iota(column.shape, 0), column),
        shape=array(rows.dtype, (tokens, *rest)),
        offset_dims=tuple(range(1, 1 + len(rest))),
        collapsed_slice_dims=(0, 1),
        start_index_map=(0, 1),
        index_vector_dim=1,
        slice_sizes=(1, 1, *rest),
    )
