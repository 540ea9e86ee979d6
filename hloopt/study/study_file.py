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
from functools import partial
from os.path import normpath
from pathlib import Path
from typing import Final

from hloopt.cost_models.registry import model_names
from hloopt.errors import UsageError
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Pass
from hloopt.rewrite.spec import did_you_mean
from hloopt.rewrite.toml_places import read_table
from hloopt.source import read_source
from hloopt.study.devices import check_name
from hloopt.study.plan import ModuleRow, Strategy, StudyPlan
from hloopt.study.strategies import STRATEGY_KEYS, StrategyReader
from hloopt.study.tables import Table

__all__ = ["named_strategies", "read_study"]

_TOP: Final = ("title", "baseline", "devices", "cost_model", "module", "strategy")
_MODULE_TEXTS: Final = ("file", "name", "variant_of", "inputs")
_TOLERANCES: Final = ("rtol", "atol")


def read_study(
    path: str,
    passes: Mapping[str, type[Pass]] | None = None,
    rules: Sequence[str] = (),
) -> StudyPlan:
    """The plan of a study file; ``passes`` and ``rules`` are those given on the command line.

    Raises ``UsageError`` for a file that cannot be read, ``FileError`` with the place of what makes no sense.
    """
    found, places = read_table(read_source(path))
    top = Table(found, places, (), "a study", _TOP)
    return _study(top, StrategyReader(Path(path).parent, passes or {}, rules))


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


def _study(top: Table, reader: StrategyReader) -> StudyPlan:
    title, rows = top.text("title"), list[Strategy]()
    for table in top.tables("strategy", "a strategy", STRATEGY_KEYS):
        for row in reader.read(table):
            if any(row.name == other.name for other in rows):
                raise table.value_error(f"two strategies are called '{row.name}'", "name")
            rows.append(row)
    if not rows:
        raise top.key_error("there is no [[strategy]] in it")
    names = [row.name for row in rows]
    baseline, model = top.text("baseline") or names[0], top.text("cost_model")
    if baseline not in names:
        raise top.unknown("strategy", baseline, names, "baseline")
    modules, devices = _modules(top, reader.folder), _devices(top)
    if model and model not in model_names():
        raise top.unknown("cost model", model, model_names(), "cost_model")
    return StudyPlan(tuple(rows), baseline, modules, devices, model or None, title)


def _modules(top: Table, folder: Path) -> tuple[ModuleRow, ...]:
    found: list[ModuleRow] = []
    tables = [*top.tables("module", "a module", (*_MODULE_TEXTS, *_TOLERANCES))]
    for table in tables:
        row = _module(table, folder)
        if any(row.name == other.name for other in found):
            raise table.key_error(f"two modules are called '{row.name}'")
        found.append(row)
    for row, table in zip(found, tables, strict=True):
        others = [other.name for other in found if other is not row]
        if row.variant_of and row.variant_of not in others:
            message = f"no other module is called '{row.variant_of}'"
            raise table.value_error(message + did_you_mean(row.variant_of, others), "variant_of")
    return tuple(found)


def _module(table: Table, folder: Path) -> ModuleRow:
    file, name, variant, inputs = map(table.text, _MODULE_TEXTS)
    if not file:
        raise table.key_error("a module needs a file")
    paths = {key: normpath(folder / table.text(key)) for key in ("file", "inputs")}
    for key, path in paths.items():
        if table.text(key) and not Path(path).exists():
            raise table.value_error(f"there is no file {path}", key)
    tolerances = (_tolerance(table, key) for key in _TOLERANCES)
    arrays = paths["inputs"] if inputs else None
    return ModuleRow(paths["file"], name or Path(file).stem, variant, arrays, *tolerances)


def _tolerance(table: Table, key: str) -> float | None:
    value = table.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise table.value_error(f"'{key}' is a number from 0", key)
    return float(value)


def _devices(top: Table) -> tuple[str, ...] | None:
    if "devices" not in top:
        return None
    found = top.texts("devices")
    if not found:
        raise top.value_error("the list has no device", "devices")
    for number, name in enumerate(found):
        top.placed(partial(check_name, name), "devices", number)
        if name in found[:number]:
            raise top.value_error(f"'{name}' is listed twice", "devices", number)
    return found
