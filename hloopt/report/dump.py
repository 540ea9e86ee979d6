"""The tables of ``hloopt ls``: the modules of a dump directory, and the stages of one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from hloopt.dumps import Dump, DumpFile, DumpModule, Stage, counts
from hloopt.numbers import byte_size
from hloopt.report.console import TableColumn, plain_text, records_table, say

__all__ = ["dump_json", "show_modules", "show_stages", "show_total"]


def dump_json(
    dump: Dump, found: Sequence[tuple[DumpModule, Sequence[Stage]]], *, counted: str
) -> dict[str, Any]:
    """A directory as JSON values: the modules found with their stages, and the files that belong to none.

    ``counted`` says of which stages instructions and computations are counted: all, ends (before and after
    optimisation) or none.
    """
    return {
        "folder": str(dump.folder),
        "modules": [_module(module, stages, counted) for module, stages in found],
        "others": _others(dump.others),
        "folders": list(dump.folders),
    }


def _module(module: DumpModule, stages: Sequence[Stage], counted: str) -> dict[str, Any]:
    files = [file for stage in stages for file in stage.files]
    others = [file for kind in module.others.values() for file in kind]
    return {
        "label": module.label,
        "number": module.number,
        "name": module.name,
        "prefix": module.prefix,
        "bytes": sum(file.size for file in (*files, *others)),
        "stages": [_stage(stage, counted) for stage in stages],
        "others": _others(module.others),
    }


def _stage(stage: Stage, counted: str) -> dict[str, Any]:
    wanted = counted == "all" or (counted == "ends" and stage.kind in {"before", "after", "given"})
    instructions, computations = (counts(stage) if wanted else None) or (None, None)
    return {
        "kind": stage.kind,
        "label": stage.label,
        "step": stage.step if stage.step >= 0 else None,
        "instructions": instructions,
        "computations": computations,
        "files": [
            {"path": str(file.path), "format": file.format, "bytes": file.size}
            for file in stage.files
        ],
    }


def _others(kinds: dict[str, tuple[DumpFile, ...]]) -> dict[str, dict[str, int]]:
    return {
        kind: {"files": len(files), "bytes": sum(file.size for file in files)}
        for kind, files in kinds.items()
    }


def show_modules(found: dict[str, Any], console: Console) -> None:
    """A line a module: its stages, the instructions before and after, how many files else there are."""
    console.print(records_table(_MODULES, found["modules"], left=3, optional=("formats", "stages")))


def _summary(stages: list[dict[str, Any]]) -> str:
    """Such as ``before, 18 passes, after``."""
    words = {"pass": "pass", "snapshot": "snapshot", "other": "other"}
    numbers: dict[str, int] = {}
    for stage in stages:
        numbers[stage["kind"]] = numbers.get(stage["kind"], 0) + 1
    parts = [
        _plural(number, words[kind]) if kind in words else kind
        for kind, number in numbers.items()
        if kind != "given"
    ]
    return ", ".join(parts)


def _plural(number: int, word: str) -> str:
    ends = {"pass": "es", "other": ""}
    return f"{number} {word}{ends.get(word, 's') if number != 1 else ''}"


def _formats(stages: list[dict[str, Any]]) -> str:
    found = dict.fromkeys(file["format"] for stage in stages for file in stage["files"])
    return " ".join(sorted(found, key=("text", "proto", "snapshot", "mlir").index))


def _count(kinds: set[str], stages: list[dict[str, Any]]) -> str:
    numbers = [stage["instructions"] for stage in stages if stage["kind"] in kinds]
    return plain_text(numbers[-1]) if numbers else ""


_MODULES: Final = (
    TableColumn("module", "label"),
    TableColumn("stages", "stages", _summary),
    TableColumn("formats", "stages", _formats),
    TableColumn("instructions\nbefore", "stages", partial(_count, {"before", "given"})),
    TableColumn("\nafter", "stages", partial(_count, {"after"})),
    TableColumn(
        "other\nfiles",
        "others",
        lambda kinds: str(sum(row["files"] for row in kinds.values()) or ""),
    ),
    TableColumn("size", "bytes", byte_size),
)
_STAGES: Final = (
    TableColumn("stage", "label", lambda label: label or "(its name has no stage)"),
    TableColumn("formats", "", lambda stage: _formats([stage])),
    TableColumn("computations", "computations"),
    TableColumn("instructions", "instructions"),
    TableColumn("size", "files", lambda files: byte_size(sum(file["bytes"] for file in files))),
)


def show_stages(found: dict[str, Any], console: Console, *, others: bool = True) -> None:
    """The stages of each module with their counts, then what else there is, by kind."""
    for module in found["modules"]:
        console.print(Text(module["label"], "bold"), soft_wrap=True)
        made = records_table(_STAGES, module["stages"], left=2)
        for kind, row in module["others"].items() if others else ():
            made.add_row(
                kind, _plural(row["files"], "file"), "", "", byte_size(row["bytes"]), style="dim"
            )
        console.print(made)


def show_total(found: dict[str, Any], console: Console) -> None:
    """What the directory holds altogether, and what is in it besides modules."""
    others: dict[str, dict[str, int]] = {}
    for kinds in (found["others"], *(module["others"] for module in found["modules"])):
        for kind, row in kinds.items():
            sums = others.setdefault(kind, {"files": 0, "bytes": 0})
            others[kind] = {key: sums[key] + row[key] for key in sums}
    files = sum(row["files"] for row in others.values()) + sum(
        len(stage["files"]) for module in found["modules"] for stage in module["stages"]
    )
    size = sum(module["bytes"] for module in found["modules"])
    size += sum(row["bytes"] for row in found["others"].values())
    text = (
        f"{_plural(len(found['modules']), 'module')}, {_plural(files, 'file')}, {byte_size(size)}"
    )
    if others:
        text += f"; other files: {_kinds(others)}"
    if found["folders"]:
        text += f"; other directories: {', '.join(found['folders'])}"
    say(console, text)


def _kinds(others: dict[str, dict[str, int]]) -> str:
    return ", ".join(f"{kind} ({row['files']})" for kind, row in sorted(others.items()))
