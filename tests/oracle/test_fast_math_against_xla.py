"""What ``fast_math`` makes of special values: what the text says, or what XLA's default makes of it, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import ParseError, VerifyError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.passes.examples import rule_examples, whole_module
from hloopt.rewrite import PassLog, Rule, RuleSet, apply_rules
from hloopt.simplify import RULES
from tests.helpers.edge_values import edges
from tests.oracle.oracle import ask, available

EXAMPLES = rule_examples()
pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]

DRAWS = 40
# XLA does these by default as well, which its CPU cannot show: a reason each.
ELSEWHERE = {
    "(convolution(A, B) + D) * C => convolution(A, B * C) + D * C": "by default for GPUs only",
    "convolution(pad(A, 0), B) => convolution(A, B)": "its convolution multiplies the padding",
    "convolution(A, pad(B, 0)) => convolution(A, B) with a dilated window": "the same of holes",
}
# Sums in another order: what overflows on the way depends on it.
SUMS = frozenset(("convolution", "dot", "reduce", "reduce-window", "scatter"))


@dataclass
class Case:
    """A module that a rule rewrites with fast_math alone, before and after."""

    before: Module
    after: Module
    draws: list[np.ndarray[Any, Any]]
    path: Path


def loose_rules(element: str) -> Iterator[tuple[Rule, Module, Module]]:
    """Rules that fast_math lets rewrite their example or counterexample in an element type."""
    for rule in RULES.rules:
        if rule.floats_are_real:
            continue
        for text in (EXAMPLES[rule.name].example, EXAMPLES[rule.name].counterexample):
            for old in (*dict.fromkeys(("f32", *EXAMPLES[rule.name].types)), "c64"):
                text = text.replace(f"{old}[", "$T[")
            try:
                module = hloopt.parse(whole_module(text, element), rule.name)
                hloopt.verify(module)
            except (ParseError, VerifyError):
                continue
            fast, log = _rewritten(rule, module, fast_math=True)
            if log.hits[rule.name] and not _rewritten(rule, module, fast_math=False)[1].hits:
                yield rule, module, fast


def _rewritten(rule: Rule, module: Module, *, fast_math: bool) -> tuple[Module, PassLog]:
    changed, log = clone_module(module), PassLog()
    if fast_math or not rule.fast_math:
        for computation in changed:
            apply_rules(computation, RuleSet((rule,)), log, fast_math=fast_math)
    return changed, log


def special(module: Module) -> list[np.ndarray[Any, Any]]:
    """Draws of every parameter; XLA's CPU takes subnormal numbers for zero, so that there are none."""
    random = np.random.default_rng(7)
    sums = any(instruction.opcode in SUMS for instruction in module.instructions())
    found = []
    for parameter in module.entry.parameters:
        values = edges(parameter.array.dtype)
        if parameter.array.dtype.is_float:
            values[values == 100.0] = 50.0  # exp(-100) is subnormal
            size = np.abs(values.astype(np.float64))
            limit = float(np.finfo(np.float32).max)
            tiny = float(np.finfo(np.float32).tiny)
            values = values[~((size > 0) & (size < tiny)) & ~(sums & (size == limit))]
        found.append(random.choice(values, size=(DRAWS, *parameter.array.dims)))
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Case]]:
    """Cases of f32 by their rule, and XLA's answers to all of them, asked once."""
    folder = tmp_path_factory.mktemp("fast_math")
    found: dict[str, list[Case]] = {}
    for number, (rule, before, after) in enumerate(loose_rules("f32")):
        case = Case(before, after, special(before), folder / f"{number:03}.hlo")
        case.path.write_text(before.to_text())
        arrays = {f"in_{at}": values for at, values in enumerate(case.draws)}
        np.savez(case.path.with_suffix(".npz"), **arrays)
        found.setdefault(rule.name, []).append(case)
    ask("draws", str(folder))
    return found


def test_there_are_rules_to_ask_for(answers: dict[str, list[Case]]) -> None:
    """The rules that rewrite floats only with fast_math are found, those named above among them."""
    assert len(answers) >= 40
    assert set(answers) >= set(ELSEWHERE)
    assert "A / C => A * (1 / C)" in answers


@pytest.mark.parametrize("name", [rule.name for rule in RULES.rules if not rule.floats_are_real])
def test_special_values_are_those_of_the_text_or_of_xla(
    name: str, answers: dict[str, list[Case]]
) -> None:
    """Element by element: NaN, an infinity or a number as in the text, or as XLA has it by default."""
    for case in answers.get(name, []):
        if name in ELSEWHERE:
            optimized = case.path.with_suffix(".optimized").read_text(encoding="utf-8")
            assert "GPU" in ELSEWHERE[name] or " pad(" not in optimized
            continue
        with np.load(case.path.with_suffix(".out")) as stored:
            theirs = [stored[f"out_{at}"] for at in range(len(stored.files))]
        for draw in range(DRAWS):
            arrays = [values[draw] for values in case.draws]
            wanted = hloopt.evaluate(case.before, arrays)
            got = hloopt.evaluate(case.after, arrays)
            for want, ours, xla in zip(wanted, got, (entry[draw] for entry in theirs), strict=True):
                fine = alike(ours, want) | alike(ours, xla)
                assert fine.all(), f"{case.before.to_text()}\n{arrays}\n{want}\n{ours}\n{xla}"


def alike(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Both NaN, the same infinity, or numbers that differ by roundings; zeros of both signs are one."""
    if left.dtype.kind not in "fV":
        return np.asarray(left == right)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(left), np.abs(right))
        near = np.abs(left - right) <= 1e-4 * size + 1e-37
    return np.asarray((left == right) | (np.isnan(left) & np.isnan(right)) | near)
