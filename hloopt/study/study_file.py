"""Study files: TOML that says what is compared with what.

::

    title = "What does which pass buy?"
    baseline = "XLA 2022"                     # of all ratios; the first strategy where nothing is said
    devices = ["cpu", "h200", "a100"]         # cpu, gpu, xla-cpu: measured; emulator: verified; else predicted
    cost_model = "xla-2026"

    [[module]]                                # files on the command line take their place
    file = "naive.hlo"

    [[module]]
    file = "unrolled.hlo"
    name = "unrolled by 10"
    variant_of = "naive"                      # ratios are to the baseline of that module
    inputs = "naive.npz"                      # else unrolled.npz, else a seed
    atol = 1e-4                               # and rtol: of results that are recorded in it

    [[strategy]]
    name = "XLA 2022"
    passes = "xla-gpu-2022"

    [[strategy]]                              # see strategies.py: ladder, ablation, base, then
    name = "ours"
    passes = "O3"
    modules = ["naive"]                       # patterns of names
    kernels = ["op:while=while-per-block"]    # as --kernel, on gpu and emulator; selector = "cost"
    lock = "ours.toml"                        # what is fused with what
    rules = ["rules.py:once"]                 # one of those that --fusion-rule brings

Names of files are relative to the study file.  Nothing in it is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os.path import normpath
from pathlib import Path
from typing import Any, Final

from hloopt.cost_models.registry import model_names
from hloopt.errors import UsageError
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Pass
from hloopt.rewrite.spec import did_you_mean
from hloopt.rewrite.toml_places import Path as At
from hloopt.rewrite.toml_places import Places, read_table
from hloopt.source import Source
from hloopt.study.devices import check_name
from hloopt.study.plan import ModuleRow, Strategy, StudyPlan
from hloopt.study.strategies import StrategyReader

__all__ = ["named_strategies", "read_study"]

_TOP: Final = ("title", "baseline", "devices", "cost_model", "module", "strategy")
_MODULE_TEXTS: Final = ("file", "name", "variant_of", "inputs")
_TOLERANCES: Final = ("rtol", "atol")


def read_study(
    path: str,
    passes: Mapping[str, type[Pass]] | None = None,
    rules: Sequence[str] = (),
) -> StudyPlan:
    """What a study file asks for; ``passes`` and ``rules`` are those that the command line brings.

    Raises ``UsageError`` for a file that cannot be read, ``FileError`` with the place of what makes no sense.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8") from error
    table, places = read_table(Source(text, path))
    folder = Path(path).parent
    return _StudyReader(StrategyReader(places, folder, passes or {}, rules)).study(table)


def named_strategies(
    texts: Sequence[str], passes: Mapping[str, type[Pass]] | None = None
) -> tuple[Strategy, ...]:
    """Strategies of texts ``PASSES`` or ``NAME=PASSES``.  Raises ``UsageError``."""
    made: list[Strategy] = []
    for text in texts:
        name, pipeline = _split(text)
        if any(one.name == name for one in made):
            raise UsageError(f"two strategies are called '{name}'")
        parsed = parse_pipeline(pipeline, passes)
        made.append(Strategy(name, name, parsed, pipeline, family=name))
    return tuple(made)


def _split(text: str) -> tuple[str, str]:
    """Name and passes; a ``=`` inside of braces is an option's."""
    name, equals, passes = text.partition("=")
    if equals and "{" not in name and "(" not in name and "," not in name and name.strip():
        return name.strip(), passes
    return text, text


class _StudyReader:
    def __init__(self, strategies: StrategyReader) -> None:
        self.strategies = strategies

    @property
    def places(self) -> Places:
        return self.strategies.places

    def study(self, table: dict[str, Any]) -> StudyPlan:
        self.strategies.check_keys(table, (), _TOP, "a study")
        title = self.strategies.text(table, (), "title")
        rows = self._strategies(table)
        return StudyPlan(
            rows,
            self._baseline(table, rows),
            self._modules(table),
            self._devices(table),
            self._cost_model(table),
            title,
        )

    def _tables(self, table: dict[str, Any], key: str) -> list[tuple[Any, At]]:
        found = table.get(key, [])
        if not isinstance(found, list):
            raise self.places.value_error((key,), f"write [[{key}]]: there may be several")
        return [(entry, (key, number)) for number, entry in enumerate(found)]

    def _strategies(self, table: dict[str, Any]) -> tuple[Strategy, ...]:
        found: list[Strategy] = []
        for entry, at in self._tables(table, "strategy"):
            for row in self.strategies.read(entry, at):
                if any(row.name == other.name for other in found):
                    message = f"two strategies are called '{row.name}'"
                    raise self.places.value_error((*at, "name"), message)
                found.append(row)
        if not found:
            raise self.places.key_error((), "there is no [[strategy]] in it")
        return tuple(found)

    def _baseline(self, table: dict[str, Any], rows: Sequence[Strategy]) -> str:
        name = self.strategies.text(table, (), "baseline") or rows[0].name
        names = [row.name for row in rows]
        if name not in names:
            hint = did_you_mean(name, names)
            raise self.places.value_error(("baseline",), f"no strategy is called '{name}'{hint}")
        return name

    def _modules(self, table: dict[str, Any]) -> tuple[ModuleRow, ...]:
        found: list[ModuleRow] = []
        tables = self._tables(table, "module")
        for entry, at in tables:
            if not isinstance(entry, dict):
                raise self.places.value_error(at, "a module is a table")
            self.strategies.check_keys(entry, at, (*_MODULE_TEXTS, *_TOLERANCES), "a module")
            row = self._module(entry, at)
            if any(row.name == other.name for other in found):
                raise self.places.key_error(at, f"two modules are called '{row.name}'")
            found.append(row)
        names = [row.name for row in found]
        for row, (_, at) in zip(found, tables, strict=True):
            others = [name for name in names if name != row.name]
            if row.variant_of and row.variant_of not in others:
                message = f"no other module is called '{row.variant_of}'"
                hint = did_you_mean(row.variant_of, others)
                raise self.places.value_error((*at, "variant_of"), message + hint)
        return tuple(found)

    def _module(self, entry: dict[str, Any], at: At) -> ModuleRow:
        file, name, variant, inputs = (
            self.strategies.text(entry, at, key) for key in _MODULE_TEXTS
        )
        if not file:
            raise self.places.key_error(at, "a module needs a file")
        folder = self.strategies.folder
        path = normpath(folder / file)
        if not Path(path).exists():
            raise self.places.value_error((*at, "file"), f"there is no file {path}")
        arrays = normpath(folder / inputs) if inputs else None
        if arrays is not None and not Path(arrays).exists():
            raise self.places.value_error((*at, "inputs"), f"there is no file {arrays}")
        rtol, atol = (self._tolerance(entry, at, key) for key in _TOLERANCES)
        return ModuleRow(path, name or Path(file).stem, variant, arrays, rtol, atol)

    def _tolerance(self, entry: dict[str, Any], at: At, key: str) -> float | None:
        value = entry.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise self.places.value_error((*at, key), f"'{key}' is a number from 0")
        return float(value)

    def _devices(self, table: dict[str, Any]) -> tuple[str, ...] | None:
        if "devices" not in table:
            return None
        found = self.strategies.texts(table, (), "devices")
        if not found:
            raise self.places.value_error(("devices",), "the list has no device")
        for number, name in enumerate(found):
            where: At = ("devices", number)
            try:
                check_name(name)
            except UsageError as error:
                raise self.places.value_error(where, error.message) from error
            if name in found[:number]:
                raise self.places.value_error(where, f"'{name}' is listed twice")
        return found

    def _cost_model(self, table: dict[str, Any]) -> str | None:
        name = self.strategies.text(table, (), "cost_model")
        if name and name not in model_names():
            hint = did_you_mean(name, model_names())
            raise self.places.value_error(
                ("cost_model",), f"no cost model is called '{name}'{hint}"
            )
        return name or None
