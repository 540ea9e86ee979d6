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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from hloopt.errors import FileError, UsageError
from hloopt.fusion.lock_file import read_decisions
from hloopt.fusion.strategies import has_strategy
from hloopt.kernels.selection import KernelSelection
from hloopt.kernels.selection.selectors import find_selector
from hloopt.pipelines import pipeline_of, read_pipeline
from hloopt.rewrite import Pass, Pipeline
from hloopt.rewrite.entries import select
from hloopt.rewrite.spec import did_you_mean
from hloopt.rewrite.toml_form import read_entry
from hloopt.rewrite.toml_places import Path as At
from hloopt.rewrite.toml_places import Places
from hloopt.study.plan import Strategy

__all__ = ["StrategyReader"]

_KEYS: Final = (
    "name", "passes", "pipeline", "base", "then", "ladder", "ablation", "modules", "kernels", "selector",
    "lock", "rules",
)  # fmt: skip
_SOURCES: Final = ("passes", "pipeline", "base")

Found = TypeVar("Found")


class StrategyReader:
    """Reads the tables of one file.

    folder  what names of files are relative to
    passes  those of ``--pass-file``
    rules   the texts of ``--fusion-rule``: a file may name one of them, it never brings code
    """

    def __init__(
        self,
        places: Places,
        folder: Path,
        passes: Mapping[str, type[Pass]],
        rules: Sequence[str],
    ) -> None:
        self.places = places
        self.folder = folder
        self.passes = passes
        self.rules = rules

    def read(self, table: Any, at: At) -> list[Strategy]:
        """The rows of one table.  Raises ``FileError`` at what makes no sense."""
        if not isinstance(table, dict):
            raise self.places.value_error(at, "a strategy is a table")
        self.check_keys(table, at, _KEYS, "a strategy")
        name = self.text(table, at, "name")
        if not name:
            raise self.places.key_error(at, "a strategy needs a name")
        given = [key for key in _SOURCES if key in table]
        if len(given) != 1:
            told = f"{' and '.join(given)} each say" if given else "nothing says"
            message = f"{told} what '{name}' runs: give one of {', '.join(_SOURCES)}"
            raise self.places.key_error((*at, given[-1]) if given else at, message)
        made = self._built_up(table, at) if "base" in table else self._whole(table, at)
        for one in made:
            self._check_fuses(one, table, at)
        return made

    def check_keys(self, table: Mapping[str, Any], at: At, keys: Sequence[str], what: str) -> None:
        """Raise ``FileError`` at a key that means nothing."""
        for key in table:
            if key not in keys:
                hint = did_you_mean(key, keys)
                raise self.places.key_error((*at, key), f"{what} has no '{key}'{hint}")

    def text(self, table: Mapping[str, Any], at: At, key: str) -> str:
        """The text of a key, empty where there is none."""
        value = table.get(key, "")
        if not isinstance(value, str):
            raise self.places.value_error((*at, key), f"'{key}' is a text")
        return value

    def texts(self, table: Mapping[str, Any], at: At, key: str) -> tuple[str, ...]:
        """The texts of a key, whose value is one of them or a list."""
        value = table.get(key, [])
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list):
            raise self.places.value_error((*at, key), f"'{key}' is a text or a list of texts")
        for number, one in enumerate(found):
            if not isinstance(one, str):
                raise self.places.value_error((*at, key, number), f"'{key}' holds texts")
        return tuple(found)

    def _common(self, table: Mapping[str, Any], at: At) -> Strategy:
        """Name, modules, kernels and rules; no passes yet."""
        kernels = self.texts(table, at, "kernels")
        for number, wish in enumerate(kernels):
            self._placed((*at, "kernels", number), partial(KernelSelection, kernel=(wish,)))
        selector = self.text(table, at, "selector") or KernelSelection.selector
        self._placed((*at, "selector"), partial(find_selector, selector))
        lock = self.text(table, at, "lock")
        path = str(self.folder / lock)
        rules = self.texts(table, at, "rules")
        for number, rule in enumerate(rules):
            if rule not in self.rules:
                said = (
                    f"a file never brings code: give --fusion-rule {rule} on the command line, too"
                )
                raise self.places.value_error((*at, "rules", number), said)
        name = self.text(table, at, "name")
        return Strategy(
            name,
            name,
            Pipeline(()),
            "",
            family=name,
            modules=self.texts(table, at, "modules"),
            selection=KernelSelection(kernel=kernels, selector=selector),
            lock=self._placed((*at, "lock"), partial(read_decisions, path)) if lock else None,
            rules=rules,
        )

    def _whole(self, table: Mapping[str, Any], at: At) -> list[Strategy]:
        """A pipeline, its ladder and its ablation."""
        if "then" in table:
            raise self.places.key_error((*at, "then"), "'then' follows the steps over a 'base'")
        pipeline = self._pipeline_of(table, at)
        common = self._common(table, at)
        whole = replace(common, pipeline=pipeline, text=self._told(table, pipeline))
        rungs = self._rungs(table, at, whole) if "ladder" in table else []
        made = rungs or [whole]
        if "ablation" in table:
            made += self._ablation(table, at, made[-1], whole)
        return made

    def _rungs(self, table: Mapping[str, Any], at: At, whole: Strategy) -> list[Strategy]:
        steps = self._steps(table["ladder"], (*at, "ladder"), whole.pipeline)
        made: list[Strategy] = []
        for count in range(len(steps) + 1):
            left_out = frozenset(name for step in steps[count:] for name in step)
            pipeline = without(whole.pipeline, left_out)
            text = whole.text if count == len(steps) else str(pipeline)
            step = _joined(steps[count - 1]) if count else ""
            one = replace(whole, pipeline=pipeline, text=text)
            made.append(_rung(one, made, step, is_last=count == len(steps)))
        return made

    def _built_up(self, table: Mapping[str, Any], at: At) -> list[Strategy]:
        """A ladder over a base."""
        if "ladder" not in table:
            raise self.places.key_error((*at, "base"), "a 'base' is that of a 'ladder'")
        if "ablation" in table:
            message = "an 'ablation' leaves steps out of 'passes', not of a 'base'"
            raise self.places.key_error((*at, "ablation"), message)
        steps = table["ladder"]
        if not isinstance(steps, list) or not steps:
            raise self.places.value_error((*at, "ladder"), "a ladder is a list of steps")
        common = self._common(table, at)
        so_far = self._pipeline(table["base"], (*at, "base")).entries
        end = self._pipeline(table["then"], (*at, "then")).entries if "then" in table else ()
        made: list[Strategy] = []
        for number in range(len(steps) + 1):
            told = ""
            if number:
                step = self._pipeline(steps[number - 1], (*at, "ladder", number - 1))
                so_far += step.entries
                told = steps[number - 1] if isinstance(steps[number - 1], str) else str(step)
            pipeline = Pipeline(so_far + end)
            row = replace(common, pipeline=pipeline, text=str(pipeline))
            made.append(_rung(row, made, told, is_last=number == len(steps)))
        return made

    def _ablation(
        self, table: Mapping[str, Any], at: At, last: Strategy, whole: Strategy
    ) -> list[Strategy]:
        """The whole pipeline stands above: rows for what is left out of it."""
        asked = table["ablation"]
        if asked is True:
            names = dict.fromkeys(instance.name for instance in whole.pipeline.passes())
            steps: list[tuple[str, ...]] = [(name,) for name in names]
        else:
            steps = self._steps(asked, (*at, "ablation"), whole.pipeline)
        made = []
        for step in steps:
            pipeline = without(whole.pipeline, frozenset(step))
            label = f"less {_joined(step)}"
            made.append(
                replace(
                    whole,
                    name=f"{whole.family} {label}",
                    label=label,
                    pipeline=pipeline,
                    text=str(pipeline),
                    kind="ablation",
                    whole=last.name,
                )
            )
        return made

    def _steps(self, value: Any, at: At, pipeline: Pipeline) -> list[tuple[str, ...]]:
        """Names of passes, or lists of names that go together."""
        if not isinstance(value, list) or not value:
            message = "steps are a list of names of passes; names that go together are a list in it"
            raise self.places.value_error(at, message)
        known = list(dict.fromkeys(instance.name for instance in pipeline.passes()))
        found: list[tuple[str, ...]] = []
        for number, step in enumerate(value):
            names = [step] if isinstance(step, str) else step
            if not isinstance(names, list) or not names:
                raise self.places.value_error(
                    (*at, number), "a step is the name of a pass, or several"
                )
            for inner, name in enumerate(names):
                where = (*at, number) if isinstance(step, str) else (*at, number, inner)
                if name not in known:
                    hint = did_you_mean(str(name), known)
                    message = f"no pass of the pipeline is called '{name}'{hint}"
                    raise self.places.value_error(where, message)
                if any(name in other for other in found) or name in names[:inner]:
                    raise self.places.value_error(where, f"'{name}' is a step already")
            found.append(tuple(names))
        return found

    def _pipeline_of(self, table: Mapping[str, Any], at: At) -> Pipeline:
        if "passes" in table:
            return self._pipeline(table["passes"], (*at, "passes"))
        path = str(self.folder / self.text(table, at, "pipeline"))
        return self._placed((*at, "pipeline"), partial(read_pipeline, path, self.passes))

    def _pipeline(self, value: Any, at: At) -> Pipeline:
        """A text, or a list of texts and tables, each with a place of its own for what is wrong in it."""
        entries = value if isinstance(value, list) else [value]
        made = Pipeline(())
        for number, entry in enumerate(entries):
            where = (*at, number) if isinstance(value, list) else at
            part = self._placed(where, partial(self._read_entry, entry))
            made = Pipeline(made.entries + part.entries)
        return made

    def _read_entry(self, entry: Any) -> Pipeline:
        return pipeline_of(read_entry(entry), self.passes)

    def _told(self, table: Mapping[str, Any], pipeline: Pipeline) -> str:
        value = table.get("passes")
        return value if isinstance(value, str) else str(pipeline)

    def _check_fuses(self, one: Strategy, table: Mapping[str, Any], at: At) -> None:
        """Raise ``FileError`` for advice about fusion that nobody asks for."""
        if has_strategy(one.pipeline):
            return
        for key in ("lock", "rules"):
            if table.get(key):
                message = f"no pass of '{one.name}' fuses anything"
                raise self.places.key_error((*at, key), message)

    def _placed(self, at: At, step: Callable[[], Found]) -> Found:
        """What ``step`` gives; what is wrong is told where it stands in the file."""
        try:
            return step()
        except FileError:
            raise
        except UsageError as error:
            raise self.places.value_error(at, error.message.removeprefix("--kernel: ")) from error


def without(pipeline: Pipeline, names: frozenset[str]) -> Pipeline:
    """The pipeline less the passes of these names; groups that are empty then go."""
    kept = select(pipeline.entries, lambda entry: None if entry.name in names else entry)
    return Pipeline(kept)


def _rung(one: Strategy, below: Sequence[Strategy], step: str, *, is_last: bool) -> Strategy:
    """One rung of a ladder; the last has the name of the family, since it is the whole."""
    name = one.family if is_last else f"{one.family} + {step}" if step else f"{one.family} base"
    label = f"+ {step}" if step else f"{one.family}, base"
    before = below[-1].name if below else ""
    return replace(one, name=name, label=label, kind="ladder", before=before)


def _joined(names: Sequence[str]) -> str:
    return " + ".join(names)
