"""A worker's side of ``hloopt study``: cells of modules that came as text."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from hloopt import __version__
from hloopt.cli.files import InputText
from hloopt.cli.study_runner import Studied, StudyRunner
from hloopt.cli.study_setup import StudyOptions, chosen_devices, chosen_plan
from hloopt.dataclass import dataclass
from hloopt.driver.options import PassOptions
from hloopt.errors import UsageError
from hloopt.reading import read_content
from hloopt.study.cell_rows import cell_row
from hloopt.study.plan import ModuleRow, StudyPlan
from hloopt.study.turns import Turns

__all__ = ["prepared", "setup_of"]

_OF_PASSES: Final = ("pass_file", "fusion_rule")
_ELSEWHERE: Final = ("passes", "gates", "html", "cells", "workers", "timeout", "memory")
"""Options that cells do not depend on, or that are taken apart."""


def setup_of(options: StudyOptions) -> dict[str, Any]:
    """What all cells of a study share, as JSON values.

    Files are named as on the command line: they are read where the worker runs, in a folder of the same name.
    """
    given = {one.name: getattr(options, one.name) for one in fields(options)}
    for name in _ELSEWHERE:
        del given[name]
    passes = {name: getattr(options.passes, name) for name in _OF_PASSES}
    return {
        "version": __version__,
        "folder": str(Path.cwd()),
        "turns": uuid4().hex,
        "options": given,
        "passes": passes,
    }


def prepared(setup: Mapping[str, Any]) -> Callable[[Any], Any]:
    """What answers with a cell; the setup is that of ``setup_of``.

    Raises ``UsageError`` for another version of hloopt, and for what is wrong with options and files here.
    """
    if setup["version"] != __version__:
        raise UsageError(f"hloopt is {__version__} there and {setup['version']} here")
    given = {key: _tuple(value) for key, value in setup["options"].items()}
    passes = {key: _tuple(value) for key, value in setup["passes"].items()}
    if Path(setup["folder"]).is_dir():
        os.chdir(setup["folder"])
    options = StudyOptions(PassOptions(**passes), **given)
    plan = chosen_plan(options)
    _, predictors = chosen_devices(options, plan)
    turns = Turns(setup["turns"])
    runner = StudyRunner.of(options, plan, predictors, turns)
    return _Answers(plan, runner, turns).answer


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass
class _Answers:
    """One module at a time, whose cells share what was made of it."""

    plan: StudyPlan
    runner: StudyRunner
    turns: Turns
    _at: tuple[str, Studied] | None = None

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """A cell, and the files that ``--out`` is to keep of it."""
        strategy = self.plan.strategy(question["strategy"])
        if strategy.digest() != question["digest"]:
            raise UsageError(f"the files of strategy '{strategy.name}' have changed")
        studied = self._studied(question["of"], question["module"])
        with self.turns.shared():
            cell = self.runner.cell(studied, strategy, question["device"])
        return {"cell": cell_row(cell), "kept": self.runner.keep.taken()}

    def _studied(self, digest: str, module: Mapping[str, Any]) -> Studied:
        if self._at is None or self._at[0] != digest:
            if "bytes" in module:
                content = base64.b64decode(module["bytes"])
            else:
                content = module["text"].encode("utf-8", "surrogateescape")
            found = read_content(content, module["name"], place=module["place"])
            text = InputText(module["name"], None, content=content)
            self._at = digest, Studied(ModuleRow(**module["row"]), found, text)
        return self._at[1]
