"""Would the checks notice?  Kernels of matrix units with one statement changed: ``python -m tests.codegen.matrix_mutants``.

Each change is made at each place of the kernel IR where it can be: a wait, barrier, commit, copy, product or value
left out or made once too often, fragments exchanged, rows not turned, edges off by one.  A mutant is caught where the
verifier refuses it, check mode finds something, or results lie outside of the bound of their error, with inputs of
three seeds, special values among them, and threads in two orders.  What is not caught has its reason in ``EQUIVALENT``,
or was missed.  ``--count`` is how many of each subject are drawn.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

import hloopt
from hloopt.analysis.index import Index, Remainder
from hloopt.codegen.program import KernelProgram, ProgramPart
from hloopt.errors import EvaluationError
from hloopt.ir import Module
from hloopt.kernel_ir.expressions import (
    Address,
    Binary,
    Element,
    Expr,
    IndexValue,
    as_expr,
    both,
)
from hloopt.kernel_ir.printer import Printer
from hloopt.kernel_ir.rewriting import rewritten
from hloopt.kernel_ir.statements import (
    Barrier,
    Body,
    Commit,
    Copy,
    For,
    Function,
    If,
    Let,
    LoadMatrices,
    MultiplyMatrices,
    Set,
    Statement,
    Wait,
    mapped,
)
from hloopt.kernel_ir.verifier import KernelError, verify
from hloopt.kernels.plan import Plan
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import Judge, Tolerance
from tests.codegen.harness import planned, ran
from tests.codegen.products import matrix_dot, module_of
from tests.codegen.test_attention import fused
from tests.codegen.test_dot_mma import F32, SMALL, gated, of_algorithm
from tests.helpers.attention_text import AttentionText

SUBJECTS: dict[str, tuple[str, str, dict[str, int]]] = {
    "bf16": (module_of([matrix_dot(("bf16", "bf16", "f32"), 40, 136, 40)]), "dot-mma", SMALL),
    "s8": (
        module_of([matrix_dot(("s8", "s8", "s32"), 20, 160, 48)]),
        "dot-mma",
        {**SMALL, "k": 64},
    ),
    "tf32": (of_algorithm([matrix_dot(F32, 40, 104, 40)], "dot_tf32_tf32_f32"), "dot-mma", SMALL),
    "bf16x3": (
        of_algorithm([matrix_dot(F32, 36, 104, 36)], "dot_bf16_bf16_f32_x3"),
        "dot-mma",
        SMALL,
    ),
    "gated": (gated(40, 104, 40), "dot-mma", SMALL),
    "attention in tf32": (
        fused(AttentionText(1, 20, 40, 12, 20, kind="f32", mask="none"), precision="tf32"),
        "attention",
        {"rows": 16, "columns": 16, "prefetch": 1},
    ),
    "parts": (
        module_of([matrix_dot(("bf16", "bf16", "f32"), 24, 264, 40)]),
        "dot-mma-split-k",
        {**SMALL, "split": 2},
    ),
}
"""Modules, the kernel that computes each, and its tile."""


@dataclass(frozen=True)
class Mutant:
    """A kernel with one statement changed."""

    kind: str
    before: str
    function: Function


def mutants(function: Function) -> Iterator[Mutant]:
    """All of a kernel."""
    for number, statement in enumerate(_all(function.body)):
        for kind, made in _changes(statement):
            body = _with(function.body, number, made)
            if body != function.body:
                line = next(iter(Printer().body((statement,), 0)), "")
                yield Mutant(kind, line, replace(function, body=body))


def _all(body: Body) -> Iterator[Statement]:
    for statement in body:
        yield statement
        for name in ("body", "otherwise"):
            yield from _all(getattr(statement, name, ()))


def _with(body: Body, number: int, made: Sequence[Statement]) -> Body:
    """The body with the statement of a number replaced, counted as in ``_all``."""
    left = [number]

    def inside(one: Body) -> Body:
        found: list[Statement] = []
        for statement in one:
            left[0] -= 1
            if left[0] == -1:
                found += made
                left[0] -= sum(1 for _ in _all((statement,))) - 1
            else:
                found.append(mapped(statement, lambda expr: expr, inside))
        return tuple(found)

    return inside(body)


def _straight(one: Expr) -> Expr | None:
    return one.left if isinstance(one, Binary) and one.sign == "^" else None


def _later(one: Expr) -> Expr | None:
    if isinstance(one, Binary) and one.sign == "<":
        return Binary("<=", one.left, one.right, one.type)
    return None


def _fewer(one: Expr) -> Expr | None:
    """Two stages instead of three."""
    match one:
        case IndexValue(Index(terms=((Remainder(dividend, 3), 1),), constant=0)):
            return as_expr(Index(0, ((Remainder(dividend, 2), 1),)))
    return None


def _moved(address: Address) -> Address:
    element = address.element
    assert isinstance(element, Element)
    return element.array.address(rewritten(element.at[0], _straight))


def _exchanged(registers: tuple[Expr, ...], first: int, second: int) -> tuple[Expr, ...]:
    made = list(registers)
    made[first], made[second] = made[second], made[first]
    return tuple(made)


def _changes(one: Statement) -> Iterator[tuple[str, list[Statement]]]:
    """What may stand in place of a statement."""
    true = both([])
    match one:
        case Wait():
            yield "no wait", []
            yield "a wait too short", [Wait(one.groups + 1)]
        case Barrier():
            yield "no barrier", []
        case Commit():
            yield "no commit", []
        case Copy():
            yield "no copy", []
            yield "an edge once more", [replace(one, test=rewritten(one.test, _later))]
            yield "no edge", [replace(one, test=true)]
            yield "rows not turned", [replace(one, target=_moved(one.target))]
        case LoadMatrices():
            yield "rows not turned", [replace(one, source=_moved(one.source))]
            yield "transposed", [replace(one, is_transposed=not one.is_transposed)]
            for pair in ((0, 1), (0, 2), (1, 3)):
                registers = _exchanged(one.registers, *pair)
                yield "fragments exchanged", [replace(one, registers=registers)]  # type: ignore[arg-type]
        case MultiplyMatrices():
            yield "no product", []
            yield "a product twice", [one, one]
            yield "fragments exchanged", [replace(one, left=_exchanged(one.left, 0, 1))]
            yield "fragments exchanged", [replace(one, left=_exchanged(one.left, 1, 2))]
            yield "fragments exchanged", [replace(one, right=_exchanged(one.right, 0, 1))]
            sums = (*one.sums[2:], *one.sums[:2])
            yield "sums of another row", [replace(one, sums=sums)]
        case If():
            yield "an edge once more", [replace(one, test=rewritten(one.test, _later))]
            yield "no edge", [replace(one, test=true)]
        case For():
            yield "a step too few", [replace(one, stop=one.stop - 1)]
            yield "a step too late", [replace(one, first=one.first + 1)]
        case Let():
            yield "a stage too few", [replace(one, value=rewritten(one.value, _fewer))]
            if isinstance(one.value, IndexValue) and one.value.index != Index(0):
                yield "a place off by one", [replace(one, value=one.value + 1)]
        case Set():
            yield "no value", []
            target = one.target
            if isinstance(target, Element) and target.array.space == "shared":
                turned = [rewritten(at, _straight) for at in target.at]
                yield "rows not turned", [Set(target.array[tuple(turned)], one.value, one.sign)]


class Trial:
    """One subject: runs mutants, and says what becomes of them."""

    def __init__(self, name: str) -> None:
        text, kernel, tile = SUBJECTS[name]
        self.module: Module
        self.plan: Plan
        self.module, self.plan, self.program = planned(text, kernel, tile)
        self.inputs = [self._given(seed) for seed in range(3)]
        self.wanted = [hloopt.evaluate(self.module, one) for one in self.inputs]
        self.judges = [
            Judge.of(self.module, [one], [want], tolerance=Tolerance(None, None))
            for one, want in zip(self.inputs, self.wanted, strict=True)
        ]
        self.right = [
            [np.array(one) for one in ran(self.module, self.plan, self.program, given, seed=1)]
            for given in self.inputs
        ]

    def _given(self, seed: int) -> list[np.ndarray]:
        """Arrays of a seed; of the last one with infinities and NaN among them."""
        made = [np.array(one) for one in generate(self.module, seed)]
        for array in made if seed == 2 else ():
            if array.dtype.kind != "i":
                array.flat[:: max(1, array.size // 7)] = np.array(
                    [np.inf, 0.0, -np.inf, 3e38, np.nan, 1e-40, -0.0, 1.0], array.dtype
                )[: len(array.flat[:: max(1, array.size // 7)])]
        return made

    def mutants(self) -> list[tuple[int, Mutant]]:
        """All of its kernels, with the places of these in the program."""
        parts = enumerate(self.program.parts)
        found = [(at, part.function) for at, part in parts if part.function is not None]
        return [(at, one) for at, function in found for one in mutants(function)]

    def verdict(self, at: int, function: Function) -> str:
        """How a mutant in place of a kernel is caught; ``same bits``, ``within rounding`` or ``missed``."""
        try:
            verify(function)
        except KernelError:
            return "verifier"
        parts = list(self.program.parts)
        parts[at] = ProgramPart(parts[at].remarks, function)
        broken = KernelProgram(self.program.library, self.program.uses, tuple(parts))
        same = True
        for number, given in enumerate(self.inputs):
            for order in (1, 2) if not number else (1,):
                try:
                    got = ran(self.module, self.plan, broken, given, mode="check", seed=order)
                except EvaluationError:
                    return "check mode"
                compared = self.judges[number].compare_all([got], [self.wanted[number]])
                if not all(one.passed for one in compared):
                    return "results"
                pairs = zip(got, self.right[number], strict=True)
                same = same and all(one.tobytes() == own.tobytes() for one, own in pairs)
        return "same bits" if same else "within rounding"


CAUGHT = ("verifier", "check mode", "results")
_EDGES = ("no edge", "an edge once more")
EQUIVALENT = (
    (
        _EDGES,
        r"\b[mn](_\d+)? < \d+\)",
        "what is read beyond an edge of m or n is part of no result",
    ),
    (("no value",), r"^chunk(_\d+)?\[\d+\] = ", "zeros beyond an edge of m or n are part of none"),
    (_EDGES, r"following(_\d+)? < ", "a stage is written that no step reads any more"),
    (_EDGES, r"^if \(column(_\d+)? < \d+\)", "weights beyond the last column multiply zeros"),
    (
        ("a step too late",),
        r"distance = 2; distance > 0",
        "lanes 3 and 1 apart reach the same four as those 2 and 1 apart",
    ),
    (("no value",), r"nearest_tf32\(", "bits are cut off, not rounded, as the algorithm allows"),
)
"""Changes of which nothing can be noticed: kinds, what their line has, and why."""


def reason(mutant: Mutant) -> str:
    """Why a mutant that was not caught is as right as the kernel; empty where nothing says so."""
    for kinds, pattern, words in EQUIVALENT:
        if mutant.kind in kinds and re.search(pattern, mutant.before):
            return words
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what became of the mutants; 1 where one was not caught and nothing says why."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(SUBJECTS)}")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    total: Counter[str] = Counter()
    for name in given.names or SUBJECTS:
        trial = Trial(name)
        every = trial.mutants()
        for at, one in random.Random(given.seed).sample(every, min(given.count, len(every))):
            verdict = trial.verdict(at, one.function)
            if verdict not in CAUGHT:
                why = reason(one)
                print(
                    f"{verdict}: {name}: {one.kind}: {one.before}\n    {why or 'MISSED'}",
                    flush=True,
                )
                verdict = why or "missed"
            total[verdict] += 1
        print(f"{name}: {dict(total)} so far, of {len(every)} in it", flush=True)
    caught = sum(total[how] for how in CAUGHT)
    print(f"{caught} of {sum(total.values())} caught, {total['missed']} missed")
    for words, count in total.items():
        print(f"{count:6} {words}")
    return 1 if total["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
