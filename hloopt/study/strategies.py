"""Strategies, their ladders and ablations, of what a TOML table says.

::

    [[strategy]]
    name = "hloopt"
    passes = "O3"                     # a pipeline as everywhere: a text, or a list of texts and tables
    ladder = ["rng-expander", ["concat-removal", "tuple-simplifier"], "loop-fusion"]
    ablation = ["rng-expander"]       # or true: each pass of the pipeline by itself

    [[strategy]]
    name = "built up"
    base = "call-inliner,simplify"
    ladder = ["cse", "fix(simplify,dce)"]
    then = "priority-fusion"

The rows of a ladder over ``passes`` are the pipeline without any of the steps, then with the first of them in
its place, with the first two, and so on: the last row is the whole pipeline, and has the strategy's name; the
first is called ``NAME base``.  Over ``base`` the steps are put one after the other at its end, before ``then``.
An ablation is the whole pipeline, and a row ``NAME less STEP`` for each step that is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from hloopt.dataclass import dataclass
from hloopt.fusion.lock_file import read_decisions
from hloopt.fusion.strategies import has_strategy
from hloopt.kernels.selection import KernelSelection
from hloopt.kernels.selection.selectors import find_selector
from hloopt.pipelines import pipeline_of, read_pipeline
from hloopt.rewrite import Pass, Pipeline
from hloopt.rewrite.entries import select
from hloopt.rewrite.toml_form import read_entry
from hloopt.rewrite.toml_places import KeyPath
from hloopt.study.plan import Strategy
from hloopt.study.tables import Table

__all__ = ["STRATEGY_KEYS", "StrategyReader"]

STRATEGY_KEYS: Final = (
    "name", "passes", "pipeline", "base", "then", "ladder", "ablation", "modules", "kernels", "selector",
    "lock", "rules",
)  # fmt: skip
"""What the table of a strategy may have."""

_SOURCES: Final = ("passes", "pipeline", "base")


@dataclass(frozen=True)
class StrategyReader:
    """Reads the tables of one file; each method raises ``FileError`` at what makes no sense.

    folder  what names of files are relative to
    passes  those of ``--pass-file``
    rules   the texts of ``--fusion-rule``: a file may name one of them, it never brings code
    """

    folder: Path
    passes: Mapping[str, type[Pass]]
    rules: Sequence[str]

    def read(self, table: Table) -> list[Strategy]:
        """The rows of one table."""
        name = table.text("name")
        if not name:
            raise table.key_error("a strategy needs a name")
        given = [key for key in _SOURCES if key in table]
        if len(given) != 1:
            given_keys = f"{' and '.join(given)} each say" if given else "nothing says"
            message = f"{given_keys} what '{name}' runs: give one of {', '.join(_SOURCES)}"
            raise table.key_error(message, *given[-1:])
        made = self._built_up(table) if "base" in table else self._whole(table)
        advice = [key for key in ("lock", "rules") if table.get(key)]
        for one in made:
            if advice and not has_strategy(one.pipeline):
                raise table.key_error(f"no pass of '{one.name}' fuses anything", advice[0])
        return made

    def _common(self, table: Table) -> Strategy:
        """Name, modules, kernels and rules; no passes yet."""
        kernels = table.texts("kernels")
        for number, wish in enumerate(kernels):
            table.placed(partial(KernelSelection, kernel=(wish,)), "kernels", number)
        selector = table.text("selector") or KernelSelection.selector
        table.placed(partial(find_selector, selector), "selector")
        lock, rules = table.text("lock"), table.texts("rules")
        path = str(self.folder / lock)
        for number, rule in enumerate(rules):
            if rule not in self.rules:
                said = (
                    f"a file never brings code: give --fusion-rule {rule} on the command line, too"
                )
                raise table.value_error(said, "rules", number)
        name = table.text("name")
        return Strategy(
            name,
            name,
            Pipeline(()),
            "",
            family=name,
            modules=table.texts("modules"),
            selection=KernelSelection(kernel=kernels, selector=selector),
            lock=table.placed(partial(read_decisions, path), "lock") if lock else None,
            rules=rules,
        )

    def _whole(self, table: Table) -> list[Strategy]:
        """A pipeline, its ladder and its ablation."""
        if "then" in table:
            raise table.key_error("'then' follows the steps over a 'base'", "then")
        typed = table.get("passes")
        if typed is not None:
            pipeline = self._pipeline(table, typed, "passes")
        else:
            path = str(self.folder / table.text("pipeline"))
            pipeline = table.placed(partial(read_pipeline, path, self.passes), "pipeline")
        text = typed if isinstance(typed, str) else str(pipeline)
        whole = replace(self._common(table), pipeline=pipeline, text=text)
        made = [whole]
        if "ladder" in table:
            steps = _steps(table, "ladder", pipeline)
            rungs = [
                (_joined(steps[count - 1]) if count else "", _without(pipeline, steps[count:]))
                for count in range(len(steps) + 1)
            ]
            made = _ladder(whole, rungs, text)
        if "ablation" in table:
            if table.get("ablation") is True:
                steps = [(name,) for name in dict.fromkeys(one.name for one in pipeline.passes())]
            else:
                steps = _steps(table, "ablation", pipeline)
            made += [_ablated(whole, step, made[-1].name) for step in steps]
        return made

    def _built_up(self, table: Table) -> list[Strategy]:
        """A ladder over a base."""
        if "ladder" not in table:
            raise table.key_error("a 'base' is that of a 'ladder'", "base")
        if "ablation" in table:
            message = "an 'ablation' leaves steps out of 'passes', not of a 'base'"
            raise table.key_error(message, "ablation")
        steps = table.get("ladder")
        if not isinstance(steps, list) or not steps:
            raise table.value_error("a ladder is a list of steps", "ladder")
        common = self._common(table)
        so_far = self._pipeline(table, table.get("base"), "base").entries
        end = self._pipeline(table, table.get("then"), "then").entries if "then" in table else ()
        rungs = [("", Pipeline(so_far + end))]
        for number, value in enumerate(steps):
            step = self._pipeline(table, value, "ladder", number)
            so_far += step.entries
            text = value if isinstance(value, str) else str(step)
            rungs.append((text, Pipeline(so_far + end)))
        return _ladder(common, rungs)

    def _pipeline(self, table: Table, value: Any, *at: str | int) -> Pipeline:
        """A text, or a list of texts and tables, each with its own place for what is wrong in it."""
        made: list[Pipeline] = []
        for number, entry in enumerate(value if isinstance(value, list) else [value]):
            place: KeyPath = (*at, number) if isinstance(value, list) else at
            made.append(table.placed(partial(self._read_entry, entry), *place))
        return Pipeline(tuple(entry for part in made for entry in part.entries))

    def _read_entry(self, entry: Any) -> Pipeline:
        return pipeline_of(read_entry(entry), self.passes)


def _steps(table: Table, key: str, pipeline: Pipeline) -> list[tuple[str, ...]]:
    """Names of passes of the pipeline, or lists of names that go together.  Raises ``FileError``."""
    value = table.get(key)
    if not isinstance(value, list) or not value:
        message = "steps are a list of names of passes; names that go together are a list in it"
        raise table.value_error(message, key)
    known = list(dict.fromkeys(instance.name for instance in pipeline.passes()))
    found: list[tuple[str, ...]] = []
    for number, step in enumerate(value):
        names = [step] if isinstance(step, str) else step
        if not isinstance(names, list) or not names:
            raise table.value_error("a step is the name of a pass, or several", key, number)
        for inner, name in enumerate(names):
            at: KeyPath = (key, number) if isinstance(step, str) else (key, number, inner)
            if name not in known:
                raise table.unknown("pass of the pipeline", name, known, *at)
            if any(name in other for other in found) or name in names[:inner]:
                raise table.value_error(f"'{name}' is a step already", *at)
        found.append(tuple(names))
    return found


def _ladder(
    common: Strategy, rungs: Sequence[tuple[str, Pipeline]], text: str = ""
) -> list[Strategy]:
    """The rows of a ladder: each adds a step.

    The last is the whole, which has the name of the family and ``text``, where it was typed.
    """
    made: list[Strategy] = []
    family = common.family
    for number, (step, pipeline) in enumerate(rungs, 1):
        is_last = number == len(rungs)
        name = family if is_last else f"{family} + {step}" if step else f"{family} base"
        row = replace(
            common,
            name=name,
            label=f"+ {step}" if step else f"{family}, base",
            pipeline=pipeline,
            text=text if is_last and text else str(pipeline),
            kind="ladder",
            before=made[-1].name if made else "",
        )
        made.append(row)
    return made


def _ablated(whole: Strategy, step: tuple[str, ...], last: str) -> Strategy:
    """The row of what is left without a step; ``last`` is the row of the whole pipeline."""
    pipeline, label = _without(whole.pipeline, [step]), f"less {_joined(step)}"
    return replace(
        whole,
        name=f"{whole.family} {label}",
        label=label,
        pipeline=pipeline,
        text=str(pipeline),
        kind="ablation",
        whole=last,
    )


def _without(pipeline: Pipeline, steps: Sequence[tuple[str, ...]]) -> Pipeline:
    """The pipeline less the passes of some steps; groups that are empty then go."""
    names = {name for step in steps for name in step}
    kept = select(pipeline.entries, lambda entry: None if entry.name in names else entry)
    return Pipeline(kept)


def _joined(names: Sequence[str]) -> str:
    return " + ".join(names)
