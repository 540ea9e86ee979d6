"""``hloopt diff --why-recompile``: what made a second compilation necessary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hloopt.analysis.recompilation import Compilation, recompilation, recompilations
from hloopt.cli.files import Input, InputText, each_input, open_each
from hloopt.cli.json_out import write_json
from hloopt.dumps import DumpModule, parse_name, read_dump
from hloopt.dumps.beside import Beside, beside
from hloopt.errors import UsageError
from hloopt.report.console import product
from hloopt.report.module_pairs import GivenModule, match_modules
from hloopt.report.recompilation import (
    CompiledFunction,
    RecompiledPairs,
    show_functions,
    show_pairs,
)

__all__ = ["why_recompile"]

_FOUND = 1


def why_recompile(
    arguments: Sequence[str], stages: Sequence[Sequence[str]], *, as_json: bool
) -> int:
    """Print why each function of one dump, or each module of the second side, was compiled again.

    The exit code: 0 where nothing was, 1 where there is a reason, that of the error for what cannot be read.
    """
    sides = open_each(arguments, stages)
    compiled = sum(len(texts) for texts in sides)
    if len(sides) == 1:
        sides = [_several(sides[0])]
    reader = _Reader()
    rows, code = each_input([text for texts in sides for text in texts], reader.read)
    document: dict[str, Any] = {"modules": rows}
    if not code:
        count = len(sides[0])
        if len(sides) == 1:
            functions = _functions(reader.found)
            code = _FOUND if functions else 0
            document |= {
                "functions": [one.to_json() for one in functions],
                "compilations": compiled,
            }
        else:
            pairs = _pairs(reader.found[:count], reader.found[count:])
            code = 0 if pairs.same else _FOUND
            document |= pairs.to_json()
        if not as_json and len(sides) == 1:
            show_functions(functions, compiled, product())
        elif not as_json:
            show_pairs(pairs, product())
    if as_json:
        write_json("diff", document)
    return code


def _several(texts: Sequence[InputText]) -> list[InputText]:
    """The texts of functions that may have been compiled several times; of names that say nothing all."""
    names = [parse_name(Path(text.name).name) for text in texts]
    counts = Counter(name.name for name in names if name.number is not None)
    return [
        text
        for text, name in zip(texts, names, strict=True)
        if name.number is None or counts[name.name] > 1
    ]


class _Reader:
    """Modules with what their dump directories have beside them."""

    def __init__(self) -> None:
        self.found: list[tuple[GivenModule, Compilation]] = []
        self._folders: dict[Path, dict[Path, DumpModule]] = {}

    def read(self, read: Input) -> dict[str, Any]:
        """Keep a module; its row in JSON."""
        path = Path(read.name)
        label, known = self._beside(path)
        given = GivenModule(read.name, read.module)
        self.found.append((given, Compilation(label, read.module, known)))
        return {"module": read.module.name}

    def _beside(self, path: Path) -> tuple[str, Beside]:
        """What the module of a file is called in its directory, and what is beside it there."""
        if not path.is_file() or parse_name(path.name).number is None:
            return path.name, Beside()
        folder = path.parent
        try:
            if folder not in self._folders:
                modules = read_dump(folder).modules
                self._folders[folder] = {file.path: one for one in modules for file in one.files}
            module = self._folders[folder][path]
            return module.label, beside(module)
        except OSError as error:
            raise UsageError(f"{error.filename or folder}: {error.strerror or error}") from error


def _functions(found: Sequence[tuple[GivenModule, Compilation]]) -> list[CompiledFunction]:
    """The functions that were compiled several times, the most often compiled first."""
    groups: dict[str, list[Compilation]] = {}
    for _, one in found:
        groups.setdefault(one.module.name, []).append(one)
    again = [
        CompiledFunction(name, len(group), tuple(recompilations(group)))
        for name, group in groups.items()
        if len(group) > 1
    ]
    return sorted(again, key=lambda one: -one.compilations)


def _pairs(
    before: Sequence[tuple[GivenModule, Compilation]],
    after: Sequence[tuple[GivenModule, Compilation]],
) -> RecompiledPairs:
    compilations = {id(given): one for given, one in (*before, *after)}
    sides = [given for given, _ in before], [given for given, _ in after]
    if len(before) == len(after) == 1:
        return RecompiledPairs((recompilation(before[0][1], after[0][1]),))
    pairs, left, right = match_modules(*sides)
    return RecompiledPairs(
        tuple(
            recompilation(compilations[id(one)], compilations[id(other)]) for one, other in pairs
        ),
        tuple(left),
        tuple(right),
    )
