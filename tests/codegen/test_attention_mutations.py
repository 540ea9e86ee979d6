"""Mistakes planted in the attention kernel: each is found by the verifier, the emulator or the results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

import hloopt
from hloopt.codegen.program import KernelProgram, ProgramPart
from hloopt.errors import EvaluationError
from hloopt.ir import Module
from hloopt.kernel_ir.expressions import TRUE, Binary, Element, Expr, Select
from hloopt.kernel_ir.rewriting import rewritten
from hloopt.kernel_ir.statements import (
    Barrier,
    Commit,
    Copy,
    If,
    Let,
    LoadMatrices,
    MultiplyMatrices,
    Set,
    Statement,
    Wait,
)
from hloopt.kernel_ir.verifier import KernelError, verify
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import Judge, Tolerance
from tests.codegen.harness import planned, ran
from tests.codegen.test_attention import fused
from tests.helpers.attention_text import AttentionText
from tests.helpers.changed_kernels import Change, changed
from tests.helpers.rarely import one_in

TEXT = fused(AttentionText(1, 40, 50, 24, 24, mask="given", low="-inf"))
TILE = {"rows": 32, "columns": 16, "units": 1, "prefetch": 0}
COPIED = {**TILE, "prefetch": 1}


def number(kind: type, at: int) -> Change:
    """Without one statement of a kind."""
    left = iter(range(1000))
    return lambda one, _: [] if isinstance(one, kind) and next(left) == at else None


def let(hint: str, make: Callable[[Expr], Expr | None]) -> Change:
    """Another value for variables of a name."""

    def change(one: Statement, _: bool) -> list[Statement] | None:
        if not isinstance(one, Let) or one.var.name.rstrip("_0123456789") != hint:
            return None
        return [replace(one, value=rewritten(one.value, make))]

    return change


def sets(array: str, sign: str) -> Change:
    """Without changes of an array by products."""

    def change(one: Statement, _: bool) -> list[Statement] | None:
        if not isinstance(one, Set) or not isinstance(one.target, Element):
            return None
        is_meant = one.target.array.name == array and isinstance(one.value, Binary)
        return [] if is_meant and isinstance(one.value, Binary) and one.value.sign == sign else None

    return change


def loads(array: str, make: Callable[[LoadMatrices], LoadMatrices]) -> Change:
    def change(one: Statement, _: bool) -> list[Statement] | None:
        return [make(one)] if isinstance(one, LoadMatrices) and array in str(one.source) else None

    return change


def crossed(one: LoadMatrices) -> LoadMatrices:
    first, second, third, fourth = one.registers
    return replace(one, registers=(first, third, second, fourth))


def _other_branch(one: Expr) -> Expr | None:
    return one.other if isinstance(one, Select) else None


def _once_more(one: Expr) -> Expr | None:
    if isinstance(one, Binary) and one.sign == "<":
        return Binary("<=", one.left, one.right, one.type)
    return None


def _column(one: Statement, _: bool) -> list[Statement] | None:
    is_meant = isinstance(one, If) and "column" in str(one.test)
    return (
        [replace(one, test=rewritten(one.test, _once_more))]
        if isinstance(one, If) and is_meant
        else None
    )


def _rows(one: Statement, _: bool) -> list[Statement] | None:
    if not isinstance(one, MultiplyMatrices):
        return None
    first, second, third, fourth = one.sums
    return [replace(one, sums=(third, fourth, first, second))]


MISTAKES: dict[str, Change] = {
    "no barrier behind the keys": number(Barrier, 0),
    "no barrier before the values": number(Barrier, 1),
    "no barrier behind the values": number(Barrier, 2),
    "no barrier before the next keys": number(Barrier, 3),
    "contexts are not scaled": sets("o_sums", "*"),
    "scaled the other way round": let(
        "distance",
        lambda one: Binary("-", one.right, one.left, one.type) if isinstance(one, Binary) else None,
    ),
    "scaled where nothing was met": let("factor", _other_branch),
    "exponentials of what is no difference": let("most", _other_branch),
    "keys crossed": loads("tile", crossed),
    "queries crossed": loads("rows", crossed),
    "values not transposed": loads("tile", lambda one: replace(one, is_transposed=False)),
    "sums of another row": _rows,
    "a column more": _column,
}


def copies(make: Callable[[Copy], Copy]) -> Change:
    """Other copies of keys and values."""
    return lambda one, _: [make(one)] if isinstance(one, Copy) else None


def _swapped(one: Copy) -> Copy:
    """The first of the two tiles."""
    array = replace(one.target.element.array, name="tile")  # type: ignore[union-attr]
    return replace(
        one, target=replace(one.target, element=replace(one.target.element, array=array))
    )  # type: ignore[type-var]


def _early(one: Statement, _: bool) -> list[Statement] | None:
    """The barrier before the wait: what other threads copied need not be there."""
    if isinstance(one, Wait):
        return [Barrier(), one]
    return [] if isinstance(one, Barrier) and one.scope == "block" else None


COPY_MISTAKES: dict[str, Change] = {
    "no wait for the keys": number(Wait, 0),
    "no wait for the values": number(Wait, 1),
    "keys in no group": number(Commit, 0),
    "values in no group": number(Commit, 1),
    "keys that are waited for a group too late": lambda one, _: (
        [replace(one, groups=1)] if isinstance(one, Wait) else None
    ),
    "no barrier behind the keys": number(Barrier, 0),
    "no barrier behind the values": number(Barrier, 1),
    "barriers before the waits": _early,
    "values over keys that are still read": copies(_swapped),
    "what lies behind the last column is read": copies(lambda one: replace(one, test=TRUE)),
}


def judged(
    module: Module, program: KernelProgram, change: Change, tile: Mapping[str, int] = TILE
) -> bool | None:
    """Whether a changed kernel passes; None where nothing was changed."""
    _, plan, _ = planned(TEXT, "attention", tile)
    (part,) = (one for one in program.parts if one.function is not None)
    assert part.function is not None
    function = replace(part.function, body=changed(part.function.body, change))
    if function == part.function:
        return None
    try:
        verify(function)
    except KernelError:
        return False
    broken = KernelProgram(program.library, program.uses, (ProgramPart(part.remarks, function),))
    q, k, v, keep = (np.array(one) for one in generate(module, 0))
    keep[:, :20] = False
    keep[:, 20:] = np.arange(30) % 3 > 0
    k[:, 30:] *= 8
    given = [q, k, v, keep]
    want = hloopt.evaluate(module, given)
    try:
        got = ran(module, plan, broken, given, mode="check", seed=1)
    except EvaluationError:
        return False
    judge = Judge.of(module, [given], [want], tolerance=Tolerance(None, None))
    return all(comparison.passed for comparison in judge.compare_all([got], [want]))


@pytest.fixture(scope="module")
def made() -> tuple[Module, KernelProgram]:
    """The kernel as it is."""
    module, _, program = planned(TEXT, "attention", TILE)
    return module, program


@pytest.mark.parametrize("name", one_in(2, MISTAKES))
def test_a_mistake_is_found(made: tuple[Module, KernelProgram], name: str) -> None:
    """One that is not would let a wrong kernel pass."""
    assert judged(*made, MISTAKES[name]) is False


def test_the_kernel_itself_passes(made: tuple[Module, KernelProgram]) -> None:
    """What is found is the mistake: a barrier more changes nothing."""
    twice: Change = lambda one, _: [one, Barrier()] if isinstance(one, Barrier) else None  # noqa: E731
    assert judged(*made, twice) is True


@pytest.mark.parametrize("name", one_in(2, COPY_MISTAKES))
def test_a_mistake_of_copies_is_found(name: str) -> None:
    """Of copies that are under way while something else is multiplied."""
    module, _, program = planned(TEXT, "attention", COPIED)
    assert judged(module, program, COPY_MISTAKES[name], COPIED) is False


def test_the_copying_kernel_itself_passes() -> None:
    """A barrier more, and a wait more, change nothing."""
    twice: Change = lambda one, _: [one, one] if isinstance(one, Barrier | Wait) else None  # noqa: E731
    module, _, program = planned(TEXT, "attention", COPIED)
    assert judged(module, program, twice, COPIED) is True
