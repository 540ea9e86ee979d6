"""What our fusion of 2026 makes of XLA's modules, beside what XLA makes of them.

    python -m tests.corpus.fusion_beside [--after FOLDER] [--pipeline TEXT] [NAME...]
    python -m tests.corpus.fusion_beside --refusals [NAME...]

For each ``corpus/jax`` NAME with ``NAME.prefusion.hlo`` (the module as XLA's fusion passes get it) and
``NAME.fused.hlo`` (as they leave it): the kernels of ours and theirs, how many both have (a kernel is the values it
computes, whatever their names), and whether all are the same.  ``--after`` takes XLA's module after priority fusion
alone out of dumps (FOLDER/NAME/k), and runs that pass alone.  With names: the kernels that only one side has.
``--refusals``: XLA's steps are done again, and at each our rules are asked for what XLA decided there.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import takewhile
from pathlib import Path

import hloopt
from hloopt.cost_models.xla_2026 import Xla2026
from hloopt.errors import HlooptError
from hloopt.fusion.advice import Advice
from hloopt.fusion.priority.benefit import Benefits
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.replay import replay
from hloopt.fusion.xla_log import Fused, Ineligible, XlaLog, read_log
from hloopt.fusion.xla_reasons import code_of
from hloopt.ir import Computation, Instruction, edit
from hloopt.pipelines import parse_pipeline
from hloopt.source import Source
from hloopt.targets import target
from tests.helpers.partition import compare_partitions, partition

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["BOTH", "Outcome", "Verdicts", "compare", "verdicts"]

FIRST = "variadic-op-splitter,sort-iota-fusion"
PRIORITY = f"{FIRST},priority-fusion"
BOTH = f"{PRIORITY},cse,dce,multi-output-fusion,cse,dce"


@dataclass(frozen=True)
class Outcome:
    """Kernels of both sides, as many as both have, and seconds of our passes."""

    ours: int
    theirs: int
    common: int
    seconds: float

    @property
    def same(self) -> bool:
        """Whether both have the same kernels."""
        return self.ours == self.theirs == self.common


@dataclass
class Verdicts:
    """What XLA's log says of producers, and what our rules say of the same at the same moment.

    refused    producers XLA refuses, and how many of them we refuse, too; for the same reason
    allowed    producers XLA prices, and how many of them we allow, too
    others     by XLA's words and our answer, where they are not the same
    """

    refused: int = 0
    refused_too: int = 0
    same_reason: int = 0
    allowed: int = 0
    allowed_too: int = 0
    others: Counter[tuple[str, str]] = field(default_factory=Counter)

    def take(self, reason: str | None, ours: str, code: str) -> None:
        """One step: XLA's words of a refusal, or None; our answer in words, and its code."""
        if reason is None:
            self.allowed += 1
            self.allowed_too += not code
        else:
            self.refused += 1
            self.refused_too += bool(code)
            self.same_reason += code_of(reason) == code
        if (code_of(reason) if reason is not None else "") != code:
            self.others[(reason or "allowed")[:60], ours[:60]] += 1

    def __str__(self) -> str:
        return (
            f"refused {self.refused_too}/{self.refused}, same reason {self.same_reason}/{self.refused},"
            f" allowed {self.allowed_too}/{self.allowed}"
        )


def compare(before: str, after: str, pipeline: str) -> tuple[Outcome, list[str]]:
    """One program; with it a line for each kernel that only one side has."""
    module = hloopt.parse(before)
    passes = parse_pipeline(pipeline)
    start = time.perf_counter()
    passes.run(module)
    seconds = time.perf_counter() - start
    other = hloopt.parse(after)
    # Ours sees that a == b is b == a; XLA's does not.
    for one in (module, other):
        parse_pipeline("cse,dce").run(one)
    ours, theirs = partition(module), partition(other)
    found = compare_partitions(ours, theirs)
    outcome = Outcome(ours.counts.total(), theirs.counts.total(), found.same, seconds)
    lines = [f"  ours   {_told(entry)}" for entry in found.only_left]
    return outcome, [*lines, *(f"  theirs {_told(entry)}" for entry in found.only_right)]


def _told(entry: Instruction) -> str:
    assert entry.computation is not None
    opcodes = Counter(inner.opcode for inner in entry.attributes.get("calls", [entry]))
    what = " ".join(f"{opcode}:{count}" for opcode, count in opcodes.most_common())
    return f"{entry.computation.name}/{entry.name} {entry.shape} {what}"


def verdicts(before: str, log: XlaLog, into: Verdicts) -> None:
    """Ask our rules at each step of XLA's log for what XLA decided."""
    module = hloopt.parse(before)
    known = set(module.entry.by_name)
    parse_pipeline(FIRST).run(module)
    _name_as(log, module.entry, known)
    model = Xla2026(target("h200"))
    rules = PriorityFusion().pair_rules(model)
    for event in replay(module, log):
        if isinstance(event.step, Fused):
            for gone in (*event.consumers, event.producer, event.fusion):
                if gone is not None:
                    rules.forget(gone)
                    model.forget(gone)
            continue
        benefits = Benefits(rules, model, Advice())
        benefits.open(event.producer)
        refusal = benefits.refusal(event.producer)
        code = refusal[1].code if refusal is not None else ""
        reason = event.step.reason if isinstance(event.step, Ineligible) else None
        into.take(reason, str(refusal[1]) if refusal is not None else "allowed", code)


def _name_as(log: XlaLog, entry: Computation, known: set[str]) -> None:
    """Call what the first passes made as XLA's log does, which alone tells how many names XLA had used up."""
    steps = takewhile(lambda step: not isinstance(step, Fused), log.steps)
    names = dict.fromkeys(step.producer for step in steps if step.producer.startswith("fusion"))
    made = [one for one in entry if one.opcode == "fusion" and one.name not in known]
    missing = sorted((name for name in names if name not in known), key=_number)
    if len(missing) == len(made):
        for fusion, name in zip(made, missing, strict=True):
            edit.rename(fusion, name)


def _number(name: str) -> int:
    return int(name.rpartition(".")[2]) if "." in name else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--after", type=Path)
    parser.add_argument("--pipeline")
    parser.add_argument("--refusals", action="store_true")
    options = parser.parse_args()
    folder = Path(os.environ["HLOOPT_CORPUS"]) / "jax"
    names = options.names or sorted(
        path.name.removesuffix(".fused.hlo") for path in folder.glob("*.fused.hlo")
    )
    if options.refusals:
        return _refusals(folder, names)
    return _partitions(folder, names, options)


def _refusals(folder: Path, names: Sequence[str]) -> int:
    total = Verdicts()
    for name in names:
        own = Verdicts()
        log = folder / f"{name}.fusion_log.txt"
        if not log.exists():
            continue
        before = (folder / f"{name}.prefusion.hlo").read_text()
        verdicts(before, read_log(Source(log.read_text(), log.name)), own)
        print(f"{name:34} {own}", flush=True)
        for key in fields(Verdicts):
            value = getattr(total, key.name) + getattr(own, key.name)
            setattr(total, key.name, value)
    print(f"all {total}")
    for (theirs, ours), count in total.others.most_common(40):
        print(f"{count:6} XLA: {theirs!r}; ours: {ours!r}")
    return 0


def _partitions(folder: Path, names: Sequence[str], options: argparse.Namespace) -> int:
    pipeline = options.pipeline or (PRIORITY if options.after else BOTH)
    same = ours = theirs = failed = done = 0
    for name in names:
        after = folder / f"{name}.fused.hlo"
        if options.after:
            found = sorted((options.after / name / "k").glob("*after_priority-fusion*.txt"))
            if not found:
                continue
            after = found[-1]
        before = (folder / f"{name}.prefusion.hlo").read_text()
        done += 1
        try:
            outcome, lines = compare(before, after.read_text(), pipeline)
        except HlooptError as error:
            failed += 1
            print(f"{name:34} {error}", flush=True)
            continue
        same += outcome.same
        ours += outcome.ours
        theirs += outcome.theirs
        print(
            f"{name:34} ours {outcome.ours:5} theirs {outcome.theirs:5} common {outcome.common:5}"
            f" {outcome.seconds:6.2f} s{'' if outcome.same else '  differs'}",
            flush=True,
        )
        if options.names:
            print("\n".join(lines))
    print(f"same {same} of {done}, failed {failed}; kernels ours {ours}, theirs {theirs}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
