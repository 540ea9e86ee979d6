"""Mistakes planted in a product by matrix units: each is found by the verifier, the emulator or the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np
import pytest

import hloopt
from hloopt.analysis.index import Index, Remainder
from hloopt.codegen.program import KernelProgram, ProgramPart
from hloopt.errors import EvaluationError
from hloopt.kernel_ir.expressions import Address, Binary, Element, Expr, IndexValue, as_expr
from hloopt.kernel_ir.rewriting import rewritten
from hloopt.kernel_ir.statements import (
    Barrier,
    Body,
    Commit,
    Copy,
    For,
    If,
    LoadMatrices,
    MultiplyMatrices,
    Set,
    Statement,
    Wait,
    mapped,
)
from hloopt.kernel_ir.verifier import KernelError, verify
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import Judge, Tolerance
from tests.codegen.harness import planned, ran
from tests.codegen.products import matrix_dot, module_of
from tests.codegen.test_dot_mma import SMALL

Change: TypeAlias = Callable[[Statement, bool], "Sequence[Statement] | None"]
"""What stands in place of a statement, which may be in a loop; None leaves it as it is."""


def changed(body: Body, change: Change, *, in_loop: bool = False) -> Body:
    """Statements with those that ``change`` names replaced."""
    made: list[Statement] = []
    for statement in body:
        found = change(statement, in_loop)
        if found is not None:
            made += found
            continue
        inside = in_loop or (isinstance(statement, For) and statement.unroll is None)
        inner = lambda one, inside=inside: changed(one, change, in_loop=inside)  # noqa: E731
        made.append(mapped(statement, lambda one: one, inner))
    return tuple(made)


def without(kind: type, *, in_loop: bool = True) -> Change:
    return lambda one, inside: [] if isinstance(one, kind) and inside is in_loop else None


def of(kind: type, make: Callable[..., Statement]) -> Change:
    return lambda one, _: [make(one)] if isinstance(one, kind) else None


def _at(address: Address, change: Callable[[Expr], Expr | None]) -> Address:
    element = address.element
    assert isinstance(element, Element)
    return element.array.address(rewritten(element.at[0], change))


def _straight(one: Expr) -> Expr | None:
    """Chunks of every row in the same order."""
    return one.left if isinstance(one, Binary) and one.sign == "^" else None


def _only(name: str, make: Callable[[LoadMatrices], LoadMatrices]) -> Change:
    def change(one: Statement, _: bool) -> list[Statement] | None:
        is_meant = isinstance(one, LoadMatrices) and name in str(one.source)
        return [make(one)] if is_meant and isinstance(one, LoadMatrices) else None

    return change


def _swapped(first: int, second: int) -> Callable[[LoadMatrices], LoadMatrices]:
    def make(one: LoadMatrices) -> LoadMatrices:
        registers = list(one.registers)
        registers[first], registers[second] = registers[second], registers[first]
        return replace(one, registers=tuple(registers))

    return make


def _later(one: Expr) -> Expr | None:
    """A test that holds once more."""
    if isinstance(one, Binary) and one.sign == "<":
        return Binary("<=", one.left, one.right, one.type)
    return None


def _stages(one: Expr) -> Expr | None:
    """Two stages instead of three."""
    match one:
        case IndexValue(Index(terms=((Remainder(dividend, 3), 1),), constant=0)):
            return as_expr(Index(0, ((Remainder(dividend, 2), 1),)))
    return None


def _tests(one: Statement, _: bool) -> list[Statement] | None:
    """The edge of the results, not of the stages."""
    if isinstance(one, If) and "following" not in str(one.test):
        return [replace(one, test=rewritten(one.test, _later))]
    return None


def _stage(one: Statement, _: bool) -> list[Statement] | None:
    made = mapped(one, lambda expr: rewritten(expr, _stages), lambda body: body)
    return [made] if made != one and not isinstance(one, For | If) else None


def _barrier_first(one: Statement, _: bool) -> list[Statement] | None:
    """Barriers before what they should follow."""
    if isinstance(one, Wait):
        return [Barrier(), one]
    return [] if isinstance(one, Barrier) else None


def _deeper(one: Copy) -> Copy:
    return replace(one, test=rewritten(one.test, _later))


MISTAKES: dict[str, Change] = {
    "no wait": without(Wait),
    "a wait that leaves a group more": of(Wait, lambda one: Wait(one.groups + 1)),
    "no barrier": without(Barrier),
    "the barrier before the wait": _barrier_first,
    "no commit": without(Commit, in_loop=False),
    "no commit in the loop": without(Commit),
    "a stage too few": _stage,
    "copies in straight rows": of(
        Copy, lambda one: replace(one, target=_at(one.target, _straight))
    ),
    "left rows straight": _only("lhs", lambda one: replace(one, source=_at(one.source, _straight))),
    "right rows straight": _only(
        "rhs", lambda one: replace(one, source=_at(one.source, _straight))
    ),
    "left halves of rows swapped": _only("lhs", _swapped(0, 1)),
    "left halves of k swapped": _only("lhs", _swapped(0, 2)),
    "right tiles swapped": _only("rhs", _swapped(0, 2)),
    "right halves of k swapped": _only("rhs", _swapped(0, 1)),
    "left transposed": _only("lhs", lambda one: replace(one, is_transposed=True)),
    "right not transposed": _only("rhs", lambda one: replace(one, is_transposed=False)),
    "a row more at the edge": of(Copy, _deeper),
    "a result more at the edge": _tests,
    "no product": without(MultiplyMatrices),
    "sums of another row": of(
        MultiplyMatrices,
        lambda one: replace(one, sums=(one.sums[2], one.sums[3], one.sums[0], one.sums[1])),
    ),
}

TEXT = module_of([matrix_dot(("bf16", "bf16", "f32"), 40, 136, 40)])


def is_found(program: KernelProgram, change: Change) -> bool:
    """Whether a change to the kernel of the product is noticed."""
    module, plan, _ = planned(TEXT, "dot-mma", SMALL)
    (part,) = (one for one in program.parts if one.function is not None)
    assert part.function is not None
    function = replace(part.function, body=changed(part.function.body, change))
    assert function != part.function, "the mistake is one of this kernel"
    try:
        verify(function)
    except KernelError:
        return True
    broken = KernelProgram(program.library, program.uses, (ProgramPart(part.remarks, function),))
    given = [np.array(one) for one in generate(module, 0)]
    want = hloopt.evaluate(module, given)
    try:
        got = ran(module, plan, broken, given, mode="check", seed=1)
    except EvaluationError:
        return True
    judge = Judge.of(module, [given], [want], tolerance=Tolerance(None, None))
    return not all(comparison.passed for comparison in judge.compare_all([got], [want]))


@pytest.fixture(scope="module")
def program() -> KernelProgram:
    """The kernel as it is."""
    return planned(TEXT, "dot-mma", SMALL)[2]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(program: KernelProgram, name: str) -> None:
    """One that is not would let a wrong kernel pass."""
    assert is_found(program, MISTAKES[name])


def test_the_kernel_itself_passes(program: KernelProgram) -> None:
    """What is found is the mistake: the same kernel written anew is right."""
    change: Change = lambda one, _: [Set(one.target, one.value)] if isinstance(one, Set) else None  # noqa: E731
    module, plan, _ = planned(TEXT, "dot-mma", SMALL)
    (part,) = (one for one in program.parts if one.function is not None)
    assert part.function is not None
    function = replace(part.function, body=changed(part.function.body, change))
    verify(function)
    same = KernelProgram(program.library, program.uses, (ProgramPart(part.remarks, function),))
    given = [np.array(one) for one in generate(module, 0)]
    got, want = ran(module, plan, same, given), hloopt.evaluate(module, given)
    judge = Judge.of(module, [given], [want], tolerance=Tolerance(None, None))
    assert all(comparison.passed for comparison in judge.compare_all([got], [want]))
