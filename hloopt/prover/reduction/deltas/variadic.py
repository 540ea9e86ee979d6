"""Fewer operands of ops that take any number of them, with the results that belong to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.ir import Computation, Instruction, build, edit
from hloopt.ir.signatures import own_computation
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import COLLECTIVE
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.deltas.agreeing import AgreeingDimensions
from hloopt.prover.reduction.deltas.bodies import nothing
from hloopt.prover.reduction.deltas.dimensions import resize
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder
from hloopt.types import TupleShape

__all__ = ["VARIADIC"]

_FOLDS: Final = ("reduce", "reduce-window")


def _sites(case: Case) -> list[Site]:
    """Of each op the last operand first: the numbers of the others stay."""
    return [
        (home.name, one.name, number)
        for home in case.module
        for one in reversed(home)
        for number in reversed(range(_count(one)))
    ]


def _count(one: Instruction) -> int:
    """How many operands may go, as long as one is left; 0 where that is no matter of its own."""
    count = len(one.operands)
    if one.opcode in _FOLDS:
        count = len(one.fold_inputs)
    elif one.opcode == "scatter":
        count //= 2
    elif one.opcode == "conditional":
        # Of two branches the delta for called computations takes one.
        count -= 2
        return count + 1 if count > 1 and not one.operands[0].array.dtype.is_pred else 0
    elif one.opcode in COLLECTIVE:
        is_plain = one.is_tuple and len(one.elements) == count and not one.op.phase
        count = count if is_plain and (one.opcode != "all-to-all" or _is_cut(one)) else 0
    elif one.opcode not in ("sort", "map", "concatenate"):
        return 0
    return count if count > 1 else 0


def _is_cut(one: Instruction) -> bool:
    return "dimensions" in one.attributes


def _apply(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    joined = False
    for home, name, number in sites:
        one = draft.find((home, name))
        if one is None or number >= _count(one):
            continue
        if one.is_tuple and one.opcode != "conditional" and not _is_taken_apart(one):
            continue
        joined |= one.opcode == "concatenate"
        _drop(draft, one, number)
    if joined:
        resize(draft, AgreeingDimensions(draft.module), {})


def _is_taken_apart(one: Instruction) -> bool:
    return not one.is_root and all(user.is_element_of(one) for user in one.users)


def _drop(draft: CaseDraft, one: Instruction, number: int) -> None:
    count = _count(one)
    gone = set(_operands_of(one, number, count))
    dropped = [one.operands[place] for place in gone]
    if one.opcode == "conditional":
        branches = one.attributes["branch_computations"]
        rest = tuple(branch for at, branch in enumerate(branches) if at != number)
        edit.set_attribute(one, "branch_computations", rest)
    else:
        if one.is_tuple:
            _drop_result(draft, one, number)
        if one.opcode not in COLLECTIVE and one.opcode != "concatenate":
            _drop_parameters(one, number, count)
    kept = (operand for place, operand in enumerate(one.operands) if place not in gone)
    edit.set_operands(one, tuple(kept))
    for operand in dropped:
        draft.drop(operand)


def _operands_of(one: Instruction, number: int, count: int) -> Iterator[int]:
    """The places of what goes: an input with its initial value, an operand with its updates."""
    yield number + (one.opcode == "conditional")
    if one.opcode in _FOLDS:
        yield number + count
    elif one.opcode == "scatter":
        yield number + count + 1


def _drop_parameters(one: Instruction, number: int, count: int) -> None:
    """Let the computation that is applied do without an operand, for which it reads zeros."""
    (name,) = one.op.computation_attributes()
    own_computation(one, name)
    (body,) = called_computations(one)
    if one.opcode == "map":
        places = [number]
    elif one.opcode == "sort":
        places = [2 * number, 2 * number + 1]
    else:
        places = [number, number + count]
        _drop_root(body, number)
    for place in reversed(places):
        parameter = body.parameters[place]
        if parameter.is_used:
            edit.replace_uses(parameter, nothing(next(iter(body)), parameter.shape))
        edit.remove(parameter)


def _drop_root(body: Computation, number: int) -> None:
    root = body.root
    values = [value for at, value in enumerate(build.elements(body, root)) if at != number]
    if len(values) == 1:
        edit.set_root(body, values[0])
    else:
        shape = TupleShape(tuple(value.shape for value in values))
        edit.set_root(body, build.make(body, "tuple", tuple(values), shape=shape))
    if not root.users:
        edit.remove(root)


def _drop_result(draft: CaseDraft, one: Instruction, number: int) -> None:
    """Take an element out of the results; those that read it get the operand, or zeros where shapes differ."""
    operand, shape = one.operands[number], one.elements[number]
    rest = [part for at, part in enumerate(one.elements) if at != number]
    edit.set_shape(one, rest[0] if len(rest) == 1 else TupleShape(tuple(rest)))
    for user in list(one.users):
        if user.computation is None:
            continue
        index = user.tuple_index
        if index == number:
            same = operand.shape == shape
            draft.replace(user, operand if same else nothing(user, shape))
        elif len(rest) == 1:
            draft.replace(user, one)
        else:
            edit.set_attribute(user, "index", index - (index > number))


VARIADIC: Final = Delta("operands of variadic ops", _sites, _apply)
