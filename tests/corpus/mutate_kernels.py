"""Would the checks notice a wrong kernel?  Generated CUDA C with one line changed, run on the emulator.

    python -m tests.corpus.mutate_kernels [--count N] [--seed N] [--seconds N] [--workers N] [--fresh] [PATTERN]

Each mutant of a kernel runs inside its program.  It is caught by what a user has: check mode finds something, a
kernel's results are not the interpreter's, or another order of blocks and threads gives other bits.

What is left over is held against the kernel as it was, bit for bit, with several inputs (special values among
them) and orders.  A mutant that gives the same bits each time is equivalent and does not count; one that differs
by no more than rounding does on all of them is told apart as well.  Fails where fewer than 95 % are caught.

The run goes on where it was stopped; rows are kept in .corpus/mutations.jsonl.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np

import hloopt
from hloopt.analysis.region import region_of
from hloopt.backends.emulator import EmulatorDevice
from hloopt.backends.kernel_check import CheckedProgram
from hloopt.codegen.program import kernel_steps, render
from hloopt.errors import DeviceError, EvaluationError
from hloopt.ir import Instruction, Module
from hloopt.kernels.kernel import Kernel, Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.plan import Plan, function_name
from hloopt.kernels.planning import plan_program
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.selection import choose
from hloopt.kernels.spec import KernelSpec, Launch
from hloopt.runtime.device import Array, PointerArgument
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import judged
from hloopt.runtime.trial_inputs import TRIALS, trial_inputs
from hloopt.targets import find_target
from hloopt.workers.pool import answers
from hloopt.workers.process import Worker
from hloopt.workers.records import WorkerTask
from hloopt.workers.row_file import RowFile
from hloopt.workers.serving import serve
from tests.corpus.mutation_subjects import SUBJECTS, Subject
from tests.corpus.mutations import Mutation, kernel_texts, sample

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["Batch", "Judged", "judge", "main"]

STORE = ROOT / ".corpus" / "mutations.jsonl"
_SECONDS = 10.0  # for one launch
_AT_ONCE = 12  # mutants in a translation unit
_TARGET = find_target("h200")
_LIMITS = Limits()

Verdict = Literal["check", "compared", "order", "equivalent", "rounding", "missed", "no program"]
CAUGHT: tuple[Verdict, ...] = ("check", "compared", "order")


@dataclass(frozen=True, slots=True)
class Judged:
    """What became of a mutant; ``note`` says how it was found out, or that nothing found it."""

    subject: str
    kernel: str
    mutation: Mutation
    verdict: Verdict
    note: str = ""


@dataclass(frozen=True)
class Program:
    """A subject, ready to run."""

    module: Module
    plan: Plan
    source: str

    @property
    def is_atomic(self) -> bool:
        """Whether the order of blocks may show in the last bits."""
        return any(step.spec.is_atomic for step in kernel_steps(self.plan.steps))

    def families(self) -> dict[str, str]:
        """The kernel of each CUDA function."""
        return {
            function_name(step, part): step.spec.kernel
            for step in kernel_steps(self.plan.steps)
            for part in step.spec.steps
            if isinstance(part, Launch)
        }


def program_of(subject: Subject) -> Program:
    """Kernels chosen as the subject says."""
    module = hloopt.parse(subject.text, subject.name)
    hloopt.verify(module)
    ready = hloopt.optimize(module if subject.kernel else hloopt.optimize(module), "device")
    used = set()

    def chosen(instruction: Instruction) -> tuple[Kernel, KernelSpec]:
        if subject.kernel:
            kernel, site = (
                find_kernel(subject.kernel),
                Site(region_of(instruction), _TARGET, _LIMITS),
            )
            if kernel.fits(site):
                used.add(kernel.name)
                return kernel, kernel.spec(site, {**kernel.tile(site), **subject.tile})
        return choose(instruction, _TARGET, _LIMITS)

    plan = plan_program(ready, chosen)
    assert not subject.kernel or used, f"{subject.name}: {subject.kernel} fits nothing"
    return Program(ready, plan, render(plan, _TARGET, _LIMITS).text)


class _Device(EmulatorDevice):
    """Launches a mutant in the place of its kernel."""

    instead: tuple[str, str] = ("", "")

    def launch(
        self,
        function: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[PointerArgument],
        scalars: Sequence[int] = (),
    ) -> None:
        if function == self.instead[0]:
            function = self.instead[1]
        super().launch(function, grid, block, arguments, scalars)


@dataclass
class Batch:
    """Mutants of one program in one translation unit, each under a name of its own."""

    program: Program
    mutants: dict[str, tuple[str, Mutation]]
    mode: Literal["check", "fast"]
    source: str = field(init=False)
    chaotic: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        texts = kernel_texts(self.program.source)
        parts = [self.program.source]
        parts += [
            mutation.apply(texts[name], name, new) for new, (name, mutation) in self.mutants.items()
        ]
        self.source = "\n\n".join(parts)

    def run(self, mutant: str, inputs: Sequence[Array], seed: int) -> list[Array]:
        """Results with a mutant in its kernel's place; with none for an empty name.

        Raises ``EvaluationError`` for what the emulator finds, and ``AssertionError`` for a kernel whose
        results are not the interpreter's (in check mode).
        """
        device = _Device(mode=self.mode, seed=seed, time_limit=_SECONDS, threads=1)
        if mutant:
            device.instead = (self.mutants[mutant][0], mutant)
        program = CheckedProgram(self.program.module, self.program.plan, device, self.source)
        with closing(program):
            if self.mode == "fast":
                program.most = -1  # no kernel is compared
            results = program.run(inputs)
        found = {finding.launch: finding for finding in program.findings}
        if not mutant:
            # Sums near zero, which no tolerance knows of: nobody would take these for wrong.
            self.chaotic |= set(found)
        told = [finding for launch, finding in found.items() if launch not in self.chaotic]
        if told:
            raise AssertionError(str(told[0]))
        return results

    def refused(self) -> set[str]:
        """Mutants that the compiler does not take."""
        try:
            self.run("", generate(self.program.module, 0), 0)
        except DeviceError:
            if len(self.mutants) == 1:
                return set(self.mutants)
            found: set[str] = set()
            for name, mutant in self.mutants.items():
                found |= Batch(self.program, {name: mutant}, self.mode).refused()
            return found
        return set()


def _special(inputs: Sequence[Array], seed: int) -> list[Array]:
    """Inputs with special values strewn in: zeros of both signs, infinities, NaN, extremes."""
    rng = np.random.default_rng(seed)
    made = []
    for array in inputs:
        copy = np.array(array)
        values: list[Any] = []
        if copy.dtype.kind == "f":
            limits = np.finfo(copy.dtype)
            values = [0.0, -0.0, np.inf, -np.inf, np.nan, limits.max, limits.tiny, -1.0]
        elif copy.dtype.kind in "iu":
            bounds = np.iinfo(copy.dtype)
            values = [0, bounds.min, bounds.max, 1]
        if values and copy.size:
            places = rng.integers(0, copy.size, max(1, copy.size // 8))
            copy.flat[places] = rng.choice(np.array(values, copy.dtype), places.size)
        made.append(copy)
    return made


def judge(
    subject: Subject, program: Program, chosen: Sequence[tuple[str, Mutation]]
) -> Iterator[Judged]:
    """What becomes of mutants, up to a dozen or so."""
    mutants = {
        f"{name}__m{number}": pair for number, pair in enumerate(chosen) for name in pair[:1]
    }
    batch = Batch(program, mutants, "check")
    refused = batch.refused()
    families = program.families()

    def judged(mutant: str, verdict: Verdict, note: str = "") -> Judged:
        name, mutation = mutants[mutant]
        return Judged(subject.name, families[name], mutation, verdict, note)

    for name in refused:
        yield judged(name, "no program")
    batch = Batch(program, {k: v for k, v in mutants.items() if k not in refused}, "check")
    left = {}
    for name, mutant in batch.mutants.items():
        verdict, note = _caught(batch, name)
        if verdict is None:
            left[name] = mutant
        else:
            yield judged(name, verdict, note)
    if left:
        fast = Batch(program, left, "fast")
        for name in left:
            yield judged(name, *_in_truth(batch, fast, name))


def _caught(batch: Batch, mutant: str) -> tuple[Verdict | None, str]:
    """By what a kernel on trial has to pass: check mode with its inputs, blocks in another order each time.

    The first inputs run twice, and their results are the same bits.
    """
    module = batch.program.module
    first: list[Array] = []
    for trial, order in [(0, 1), *((trial, trial + 2) for trial in range(len(TRIALS)))]:
        inputs = trial_inputs(module, trial, TRIALS[trial])
        if mutant == next(iter(batch.mutants)):
            batch.run("", inputs, order)
        try:
            got = batch.run(mutant, inputs, order)
        except EvaluationError as error:
            return "check", f"inputs {trial}: {error.reason}"
        except AssertionError as error:
            return "compared", f"inputs {trial}: {error}"
        if order == 2 and not batch.program.is_atomic and not _same(first, got):
            return "order", "inputs 0: other bits in another order"
        first = first or got
    return None, ""


def _in_truth(check: Batch, fast: Batch, mutant: str) -> tuple[Verdict, str]:
    """Whether a mutant that was not caught is equivalent after all."""
    module = check.program.module
    rounded = ""
    for what, inputs in _many_inputs(module):
        checked = what.endswith(" 101")
        for seed in (0, 5):
            try:
                want = fast.run("", inputs, 0)
                got = fast.run(mutant, inputs, seed)
                if checked:
                    check.run("", inputs, seed)
                    check.run(mutant, inputs, seed)
            except EvaluationError as error:
                return "missed", f"{what}: {error.reason}"
            except AssertionError as error:
                return "missed", f"{what}: {error}"
            if _same(got, want) or (check.program.is_atomic and _near(module, inputs, got, want)):
                continue
            if not _near(module, inputs, got, want):
                return "missed", f"{what}: other results"
            rounded = rounded or f"{what}: other bits, within rounding"
    return ("rounding", rounded) if rounded else ("equivalent", "")


def _many_inputs(module: Module) -> Iterator[tuple[str, list[Array]]]:
    """Inputs that no trial has: of each spread, with special values, and many with a lone element."""
    for spread in dict.fromkeys(TRIALS):
        for seed in range(101, 125 if spread == "lone" else 104):
            yield f"{spread} {seed}", trial_inputs(module, seed, spread)
    for seed in (101, 102, 103):
        yield f"special values {seed}", _special(generate(module, seed), seed)


def _near(
    module: Module, inputs: Sequence[Array], got: Sequence[Array], want: Sequence[Array]
) -> bool:
    return all(comparison.passed for comparison in judged(module, inputs, got, want))


def _same(got: Sequence[Array], want: Sequence[Array]) -> bool:
    return all(one.tobytes() == other.tobytes() for one, other in zip(got, want, strict=True))


def _key(subject: str, source: str, mutation: tuple[str, Mutation]) -> str:
    name, change = mutation
    told = f"{subject}\n{source}\n{name}\n{change.line}\n{change.after}"
    return blake2b(told.encode(), digest_size=10).hexdigest()


def _work(question: dict[str, Any]) -> dict[str, Any]:
    """The keys of the mutants of one subject, and their rows; those that are kept already are left out."""
    number, done = question["subject"], set(question["done"])
    subject = SUBJECTS[number]
    program = program_of(subject)
    texts = kernel_texts(program.source)
    wanted = [
        (_key(subject.name, texts[mutation[0]], mutation), mutation)
        for mutation in sample(texts, question["count"], question["seed"] + number)
    ]
    todo = [(key, mutation) for key, mutation in wanted if key not in done]
    made: dict[str, dict[str, str]] = {}
    for at in range(0, len(todo), _AT_ONCE):
        if time.time() > question["until"]:
            break
        part = todo[at : at + _AT_ONCE]
        keys = {mutation: key for key, mutation in part}
        for row in judge(subject, program, [mutation for _, mutation in part]):
            (key,) = [k for (_, m), k in keys.items() if m is row.mutation]
            made[key] = _row(row)
    return {"wanted": [key for key, _ in wanted], "made": made}


def _row(judged: Judged) -> dict[str, str]:
    return {
        "subject": judged.subject,
        "kernel": judged.kernel,
        "kind": judged.mutation.kind,
        "mutation": str(judged.mutation),
        "verdict": judged.verdict,
        "note": re.sub(r"\s+", " ", judged.note)[:300],
    }


def _report(found: Sequence[dict[str, str]]) -> float:
    """Print the tables; the part of mutants that matter that was caught."""
    totals = Counter(row["verdict"] for row in found)
    for title in ("kind", "kernel"):
        table: dict[str, Counter[str]] = defaultdict(Counter)
        for row in found:
            table[row[title]][row["verdict"]] += 1
        print(f"{title:28} caught of which by check / compared / order   missed  rounding  same")
        for name, counts in sorted(table.items()):
            ways = " / ".join(str(counts[way]) for way in CAUGHT)
            caught = sum(counts[way] for way in CAUGHT)
            print(f"{name:28} {caught:6} {ways:>34} {counts['missed']:9} {counts['rounding']:9} {counts['equivalent']:5}")  # fmt: skip
        print()
    for row in found:
        if row["verdict"] in ("missed", "rounding"):
            print(f"{row['verdict']}: {row['subject']} ({row['kernel']}): {row['mutation']}\n    {row['note']}")  # fmt: skip
    late = sum(row["verdict"] in CAUGHT and not row["note"].startswith("inputs 0") for row in found)
    caught = sum(totals[way] for way in CAUGHT)
    mattering = caught + totals["missed"]
    part = caught / mattering if mattering else 1.0
    print(f"{len(found)} mutants, {totals['no program']} refused by the compiler, {totals['equivalent']} equivalent, "
          f"{totals['rounding']} within rounding; {mattering} matter, {caught} caught: {part:.1%} ({late} of them not by the first inputs)")  # fmt: skip
    return part


def main(arguments: Sequence[str] | None = None) -> int:
    """Mutate, run and report; 1 where fewer than 95 % of what matters was caught."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--count", type=int, default=14, help="mutants of each subject")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="no new batch after so long")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--fresh", action="store_true", help="forget what was kept")
    given = parser.parse_args(arguments)
    if given.worker:
        serve(_work)
        return 0
    STORE.parent.mkdir(exist_ok=True)
    if given.fresh:
        STORE.unlink(missing_ok=True)
    asked = {"count": given.count, "seed": given.seed, "until": time.time() + given.seconds}
    wanted: set[str] = set()
    command = (sys.executable, "-m", "tests.corpus.mutate_kernels", "--worker")
    with RowFile(STORE, "mutants of kernels", {}) as file:
        tasks = [
            WorkerTask(subject.name, {**asked, "subject": at, "done": list(file.rows)})
            for at, subject in enumerate(SUBJECTS)
            if given.pattern in subject.name
        ]
        for answer in answers(tasks, partial(Worker, command, None), given.workers):
            if answer.failure is not None:
                raise RuntimeError(f"{answer.task.key}: {answer.failure}")
            wanted |= set(answer.value["wanted"])
            for key, row in answer.value["made"].items():
                file.add(key, row)
            print(f"{answer.task.key}: done", flush=True)
        found = [row for key, row in file.rows.items() if key in wanted]
    left = len(wanted) - len(found)
    part = _report(found)
    if left:
        print(f"{left} mutants left: time was up")
    return 0 if part >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
