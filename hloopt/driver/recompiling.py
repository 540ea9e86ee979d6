"""Why functions were compiled again: modules with what their dumps have beside them, paired or in groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from hloopt.analysis.recompilation import Compilation, recompilation, recompilations
from hloopt.dumps import DumpModule, parse_name, pick, read_dump
from hloopt.dumps.beside import Beside, beside
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.reading import is_dump, read_file
from hloopt.report.module_pairs import GivenModule, match_modules
from hloopt.report.recompilation import CompiledFunction, RecompiledFunctions, RecompiledPairs
from hloopt.verifier import verify_module

__all__ = ["Compilations", "given_modules", "perhaps_again", "why_recompiled"]


class Compilations:
    """Modules with what lies beside them in the dump directories that they are of."""

    def __init__(self) -> None:
        self.found: list[tuple[GivenModule, Compilation]] = []
        self._folders: dict[Path, dict[Path, DumpModule]] = {}

    def add(self, given: GivenModule) -> None:
        """Another module.  Raises ``UsageError`` where what lies beside it cannot be read."""
        path = Path(given.file)
        label, known = self._beside(path)
        self.found.append((given, Compilation(label, given.module, known)))

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

    def functions(self, compiled: int) -> RecompiledFunctions:
        """The functions that were compiled several times, the most often compiled first.

        ``compiled`` is the number of all compilations, those included that were not added.
        """
        groups: dict[str, list[Compilation]] = {}
        for _, one in self.found:
            groups.setdefault(one.module.name, []).append(one)
        again = [
            CompiledFunction(name, len(group), tuple(recompilations(group)))
            for name, group in groups.items()
            if len(group) > 1
        ]
        again.sort(key=lambda one: -one.compilations)
        return RecompiledFunctions(tuple(again), compiled)

    def pairs(self, count: int) -> RecompiledPairs:
        """The first ``count`` modules beside the others."""
        before, after = self.found[:count], self.found[count:]
        if len(before) == len(after) == 1:
            return RecompiledPairs((recompilation(before[0][1], after[0][1]),))
        known = {id(given): one for given, one in self.found}
        sides = [given for given, _ in before], [given for given, _ in after]
        pairs, left, right = match_modules(*sides)
        return RecompiledPairs(
            tuple(recompilation(known[id(one)], known[id(other)]) for one, other in pairs),
            tuple(left),
            tuple(right),
        )


def perhaps_again(names: Sequence[str]) -> list[int]:
    """Which files have functions that may have been compiled several times; of names that say nothing all."""
    parsed = [parse_name(Path(name).name) for name in names]
    counts = Counter(name.name for name in parsed if name.number is not None)
    return [at for at, name in enumerate(parsed) if name.number is None or counts[name.name] > 1]


def files_of(source: Path, stages: Sequence[str] = ()) -> list[tuple[Path, Path | None]]:
    """A file; of a dump directory that of each module, before optimisation or in these stages.

    With each one that has all values.
    """
    if not is_dump(source):
        return [(source, None)]
    try:
        return [stage.paths() for _, stage in pick(read_dump(source), None, stages)]
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror or error}") from error


def given_modules(source: Module | str | Path, stages: Sequence[str] = ()) -> list[GivenModule]:
    """A module, that of a file, or all of a dump directory, before optimisation or in these stages.

    Raises what ``hloopt.read`` does.
    """
    if isinstance(source, Module):
        return [GivenModule(source.name, source)]
    return list(_read(files_of(Path(source), stages)))


def _read(files: Iterable[tuple[Path, Path | None]]) -> Iterable[GivenModule]:
    for path, twin in files:
        module = read_file(path, twin).module
        verify_module(module)
        yield GivenModule(str(path), module)


def why_recompiled(
    before: Module | str | Path, after: Module | str | Path | None
) -> RecompiledPairs | RecompiledFunctions:
    """What ``hloopt diff --why-recompile`` finds; without ``after`` in one dump directory."""
    known = Compilations()
    if after is None:
        if isinstance(before, Module) or not is_dump(Path(before)):
            raise UsageError(
                "one module alone was not compiled again: give two, or a dump directory"
            )
        files = files_of(Path(before))
        for given in _read(files[at] for at in perhaps_again([str(path) for path, _ in files])):
            known.add(given)
        return known.functions(len(files))
    sides = given_modules(before), given_modules(after)
    for given in (*sides[0], *sides[1]):
        known.add(given)
    return known.pairs(len(sides[0]))
