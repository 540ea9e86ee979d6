"""Tiles that a mask takes away: left out where that changes nothing, computed where it would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.analysis.attention import Attention, Masking, attention_form, masking_of
from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.region import region_of
from hloopt.codegen.program import KernelProgram, ProgramPart, kernel_steps
from hloopt.errors import EvaluationError
from hloopt.kernel_ir.expressions import TRUE, Binary, Expr, both
from hloopt.kernel_ir.statements import Agree, Barrier, Let, Set, Statement
from hloopt.kernel_ir.verifier import KernelError, verify
from hloopt.kernels.attention_recognition import AttentionRecognition
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import Judge, Tolerance
from tests.codegen.harness import check_kernel, planned, ran
from tests.codegen.test_attention import fused
from tests.codegen.test_attention_mutations import let, number
from tests.helpers.attention_text import AttentionText
from tests.helpers.changed_kernels import Change, changed
from tests.helpers.rarely import one_in

CAUSAL = AttentionText(1, 65, 80, 16, 16)
TILE = {"rows": 16, "columns": 16, "skip": 1}
_SAME = "compare(row_at, column_at), direction=GE"
_WINDOW = (
    "compare(row_at, column_at), direction=GE\n"
    "  back = s32[] constant(20)\n  backs = s32[65,80] broadcast(back), dimensions={}\n"
    "  end = s32[65,80] add(column_at, backs)\n"
    "  near = pred[65,80] compare(row_at, end), direction=LT\n"
    "  both = pred[65,80] and(may, near)"
)


def window(text: str) -> str:
    """A causal mask made one of a sliding window."""
    assert _SAME in text
    return text.replace(_SAME, _WINDOW).replace("broadcast(may)", "broadcast(both)")


def added(text: str) -> str:
    """A mask that is added, not chosen by."""
    before = "x = f32[1,65,80] select(mask, scaled, lows)"
    assert before in text
    return text.replace(
        before,
        "none = f32[] constant(0)\n  nones = f32[1,65,80] broadcast(none), dimensions={}\n"
        "  penalty = f32[1,65,80] select(mask, nones, lows)\n"
        "  x = f32[1,65,80] add(scaled, penalty)",
    )


def forms(text: str) -> list[Attention]:
    """The forms of a program's kernels."""
    entry = hloopt.parse(text).entry
    found = [attention_form(region_of(one)) for one in entry if custom_name(one) == "attention"]
    assert all(isinstance(one, Attention) for one in found)
    return found  # type: ignore[return-value]


def masking(text: str) -> list[Masking | None]:
    """What is known of the masks of a program's kernels."""
    return [masking_of(form) for form in forms(text)]


def by_distance(text: str) -> str:
    """A causal mask by a distance that is a float."""
    return text.replace(
        _SAME,
        "compare(far, zeros), direction=GE",
    ).replace(
        "may = pred",
        "away = s32[65,80] subtract(row_at, column_at)\n  far = f32[65,80] convert(away)\n"
        "  nil = f32[] constant(0)\n  zeros = f32[65,80] broadcast(nil), dimensions={}\n  may = pred",
    )


TEXTS: dict[str, str] = {
    "by distance": by_distance(CAUSAL.text()),
    "causal": CAUSAL.text(),
    "causal with -inf": replace(CAUSAL, low="-inf").text(),
    "window": window(CAUSAL.text()),
    "window with -inf": window(replace(CAUSAL, low="-inf").text()),
    "added": added(CAUSAL.text()),
    "late division": replace(CAUSAL, late=True).text(),
    "narrow softmax": replace(CAUSAL, softmax="bf16", low="-1e30").text(),
    "f32": replace(CAUSAL, kind="f32").text(),
    "f16": replace(CAUSAL, kind="f16").text(),
}


@cache
def fused_text(text: str) -> str:
    """A program whose attention is kernels."""
    module = hloopt.parse(text)
    plan = AttentionRecognition(always=True).fuse(module)
    assert plan.steps, plan.refusals
    return hloopt.optimize(module, "dce").to_text()


@pytest.mark.parametrize("name", one_in(3, TEXTS))
def test_forms(name: str) -> None:
    """Masks that are causal, windows, added or chosen by; every kernel of them leaves tiles out."""
    text = fused_text(TEXTS[name])
    (found,) = masking(text)
    assert found is not None
    assert all(limits is not None for limits in found.limits)
    program = check_kernel(text, "attention", TILE, everywhere=False)
    assert "__syncthreads_and" in program.text


@pytest.mark.parametrize("size", one_in(2, [[17, 1000], [1, 17], [129, 130], [64, 64], [300, 200]]))
def test_sizes(size: tuple[int, int]) -> None:
    """Ragged sizes, more columns than rows and fewer: rows that no mask leaves a column are none here."""
    rows, columns = size
    form = replace(CAUSAL, rows=rows, columns=columns)
    check_kernel(fused(form), "attention", {**TILE, "rows": 32}, everywhere=False)


def run(text: str, change: Callable[..., None], tile: dict[str, int]) -> None:
    module = hloopt.parse(text)
    given = [np.array(one) for one in generate(module, 1)]
    change(*given)
    check_kernel(text, "attention", tile, inputs=given, everywhere=False)


def _infinite_value(q: Any, k: Any, v: Any) -> None:
    v[0, 79, 3] = np.inf


def _nan_value(q: Any, k: Any, v: Any) -> None:
    v[0, 70, 5] = np.nan


def _special_keys(q: Any, k: Any, v: Any) -> None:
    k[0, 78, 1], k[0, 60, 2] = np.nan, np.inf


def _low_scores(q: Any, k: Any, v: Any) -> None:
    q[0, 2] = -3e38 / 16
    k[0, :3] = 16


@pytest.mark.every_value
@pytest.mark.parametrize("change", [_infinite_value, _nan_value, _special_keys, _low_scores])
@pytest.mark.parametrize("name", ["causal", "causal with -inf", "window", "added", "late division"])
def test_special_numbers(name: str, change: Callable[..., None]) -> None:
    """A product of zero with what is not finite is NaN; scores may lie as low as what masks them."""
    run(fused_text(TEXTS[name]), change, TILE)


@pytest.mark.parametrize("low", ["-inf", "-1e30", "-30"])
def test_rows_without_a_column(low: str) -> None:
    """A row that the mask takes all columns from is the mean of all values, or NaN, as in the text."""
    text = (
        replace(CAUSAL, low=low).text().replace(_SAME, "compare(column_at, row_at), direction=LT")
    )
    check_kernel(fused_text(text), "attention", TILE if low != "-30" else {}, everywhere=False)


def test_masks_that_take_too_little() -> None:
    """Exponentials 30 below the greatest are no zeros: nothing is left out, and nothing tested."""
    text = fused_text(replace(CAUSAL, low="-30").text())
    assert masking(text) == [None]
    _, plan, _ = planned(text, "attention")
    (step,) = (one for one in kernel_steps(plan.steps) if one.spec.kernel == "attention")
    assert step.spec.tile["skip"] == 0
    assert len(step.spec.steps) == 1


GRADIENTS = {
    "causal": CAUSAL,
    "causal with -inf": replace(CAUSAL, low="-inf"),
    "f32": replace(CAUSAL, kind="f32"),
}


@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize("change", one_in(3, [_special_keys, None, _nan_value]))
def test_gradients(name: str, change: Callable[..., None] | None) -> None:
    """Each of the three kernels leaves tiles out, where rows and columns have changed places, too."""
    text = fused(GRADIENTS[name], gradient=True)
    found = masking(text)
    assert len(found) == 3
    assert all(one is not None for one in found)
    module = hloopt.parse(text)
    given = [np.array(one) for one in generate(module, 1)]
    if change is not None:
        change(*given[:3])
    check_kernel(text, "attention", TILE, inputs=given, everywhere=False)


def deep(text: str, depth: int) -> str:
    """A mask, and scores, that are computed from one value twice, again and again."""
    lines = []
    for at in range(depth):
        before = "column_at" if not at else f"deep_{at - 1}"
        lines.append(f"deep_{at} = s32[65,80] minimum({before}, {before})")
    for at in range(depth):
        before = "scaled" if not at else f"wide_{at - 1}"
        lines.append(f"wide_{at} = f32[1,65,80] add({before}, {before})")
    made = "\n  ".join(lines)
    return text.replace(
        f"may = pred[65,80] {_SAME}",
        f"{made}\n  may = pred[65,80] compare(row_at, deep_{depth - 1}), direction=GE",
    ).replace("add(scaled, penalty)", f"add(wide_{depth - 1}, penalty)")


@pytest.mark.parametrize("name", ["causal", "added"])
def test_values_that_are_used_twice(name: str) -> None:
    """What is said of them is said once: nothing grows by a factor with each op."""
    text = deep(TEXTS[name], 5)
    assert text.count("minimum(") == 5
    (found,) = masking(fused_text(text))
    assert (found is None) == (name == "added")
    if found is not None:
        check_kernel(fused_text(text), "attention", TILE, everywhere=False)
    (found,) = masking(fused_text(deep(TEXTS[name], 60)))
    assert (found is None) == (name == "added")


def test_the_share_that_is_left() -> None:
    """Of a causal mask half of the tiles and the diagonal, of a window what is near it."""
    (causal,) = masking(fused_text(replace(CAUSAL, rows=1024, columns=1024).text()))
    assert causal is not None
    assert causal.shares(128, 64) == [(2 + 4 + 6 + 8 + 10 + 12 + 14 + 16) / 128]
    (near,) = masking(fused_text(TEXTS["window"]))
    assert near is not None
    table = near.table(16, 16)
    at = np.arange(5)
    assert (table == ((at[None, :] > at[:, None]) | (at[None, :] < at[:, None] - 2))).all()


# ---- planted mistakes -------------------------------------------------------------------------------


NEAR = replace(CAUSAL, low="-200")


def near(row: int) -> Callable[..., None]:
    """A row whose scores lie little above what masked ones are: 2 and 10 are the two rows of a lane."""

    def change(q: Any, k: Any, v: Any) -> None:
        k[0, :11], q[0, row] = 1, -49.75

    return change


def always(one: Statement, _: bool) -> list[Statement] | None:
    """The block finds that nothing is lost, whatever it tests."""
    return [replace(one, test=TRUE)] if isinstance(one, Agree) else None


def _own_answer(one: Statement, _: bool) -> list[Statement] | None:
    """Each thread goes by its own rows."""
    return [Let(one.var, one.test)] if isinstance(one, Agree) else None


def limits(change: Callable[[int, list[Expr]], list[Expr]]) -> Change:
    """Other limits than all: of the first row of a lane, then of the second one."""
    halves = iter(range(100))

    def changes(one: Statement, _: bool) -> list[Statement] | None:
        if not isinstance(one, Set) or getattr(one.target, "name", "") != "nothing":
            return None
        found: list[Expr] = []
        rest = one.value
        while isinstance(rest, Binary) and rest.sign == "&&":
            found.insert(0, rest.right)
            rest = rest.left
        return [replace(one, value=both([rest, *change(next(halves), found)]))]

    return changes


def folds(name: str) -> Change:
    """Without what takes elements in."""
    return lambda one, _: (
        [] if isinstance(one, Set) and getattr(one.target, "name", "") == name else None
    )


def _nearer(one: Expr) -> Expr | None:
    is_meant = isinstance(one, Binary) and one.sign == "<="
    return Binary.of("<", one.left, one.right - 16) if is_meant else None  # type: ignore[union-attr]


MISTAKES: dict[str, tuple[Change, Callable[..., None]]] = {
    "left out whatever the scores": (always, near(2)),
    "left out whatever the values": (always, _nan_value),
    "threads that do not agree": (_own_answer, near(2)),
    "only first rows are tested": (limits(lambda at, all: [] if at else all), near(10)),
    "only second rows are tested": (limits(lambda at, all: all if at else []), near(2)),
    "no limit of exponentials": (limits(lambda _, all: [all[0], all[2]]), near(2)),
    "no limit of values": (limits(lambda _, all: all[:2]), _infinite_value),
    "sizes that are not read": (folds("greatest_size"), _nan_value),
    "sizes of nothing": (folds("greatest"), _nan_value),
    "no barrier in the first launch": (number(Barrier, 0), _nan_value),
    "a mask that begins a tile early": (let("place", _nearer), lambda *_: None),
}


def passes(change: Change, inputs: Callable[..., None]) -> bool | None:
    """Whether a changed kernel gives what the interpreter does; None where nothing was changed."""
    module, plan, program = planned(fused(NEAR), "attention", TILE)
    given = [np.array(one) for one in generate(module, 0)]
    inputs(*given)
    parts: list[ProgramPart] = []
    is_changed = False
    for part in program.parts:
        if part.function is None:
            parts.append(part)
            continue
        body = changed(part.function.body, change)
        function = replace(part.function, body=body)
        is_changed = is_changed or body != part.function.body
        try:
            verify(function)
        except KernelError:
            return False
        parts.append(ProgramPart(part.remarks, function))
    if not is_changed:
        return None
    broken = KernelProgram(program.library, program.uses, tuple(parts))
    want = hloopt.evaluate(module, given)
    try:
        got = ran(module, plan, broken, given, mode="check", seed=1)
    except EvaluationError:
        return False
    judge = Judge.of(module, [given], [want], tolerance=Tolerance(None, None))
    return all(comparison.passed for comparison in judge.compare_all([got], [want]))


@pytest.mark.parametrize("name", one_in(2, MISTAKES))
def test_a_mistake_is_found(name: str) -> None:
    """One that is not would leave tiles out that matter."""
    assert passes(*MISTAKES[name]) is False


@pytest.mark.parametrize("inputs", [near(2), _nan_value, _infinite_value])
def test_the_kernel_itself_passes(inputs: Callable[..., None]) -> None:
    """What is found is the mistake: a barrier more changes nothing."""
    twice: Change = lambda one, _: [one, Barrier()] if isinstance(one, Barrier) else None  # noqa: E731
    assert passes(twice, inputs) is True
