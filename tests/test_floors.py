"""The house stands: imports only go down, there are no cycles, heavy packages stay in their rooms."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.package_trees import PACKAGE, files, tree

FLOORS = {
    "errors": 0,
    "extras": 0,
    "cache_folder": 0,
    "compiled_cache": 0,
    "dataclass": 0,
    "display": 0,
    "process": 0,
    "source": 0,
    "graphs": 0,
    "numbers": 0,
    "lazy_table": 0,
    "spelling": 0,
    "user_code": 0,
    "textproto": 0,
    "toml_text": 0,
    "visible_text": 0,
    "workers": 1,
    "types": 1,
    "ops": 2,
    "ir": 3,
    "text": 4,
    "proto": 4,
    "profiles": 5,
    "verifier": 4,
    "dumps": 4,
    "interpret": 4,
    "stablehlo": 4,
    "reading": 5,
    "analysis": 5,
    "targets": 5,
    "rewrite": 5,
    "cost_models": 6,
    "passes": 6,
    "simplify": 6,
    "fusion": 7,
    "linear_algebra": 7,
    "kernel_ir": 6,
    "kernels": 8,
    "codegen": 9,
    "presets": 5,
    "pipelines": 9,
    "runtime": 10,
    "backends": 11,
    "exports": 12,
    "findings": 12,
    "study": 12,
    "prover": 12,
    "report": 13,
    "pages": 13,
    "driver": 14,
    "editor": 15,
    "cli": 15,
    "jax": 15,
    "torch": 17,
    "__init__": 16,
    "__main__": 16,
}

# Upward on purpose, with the reason.
EXCEPTIONS = {
    (
        "ir.module",
        "text",
    ): "the public surface has module.to_text(), so the graph knows the printer's door",
}

# Packages that only some rooms may import, and where.
CONFINED = {
    "lark": ("text",),
    "cupy": ("backends.cuda",),
    "dask": ("workers",),
    "distributed": ("workers",),
    "pygls": ("editor",),
    "pygments": ("report",),
    "rich": ("report", "cli"),
    "click": ("report", "cli"),
}


@dataclass(frozen=True)
class Import:
    """``importer`` needs ``imported`` (dotted, without the leading ``hloopt.``)."""

    importer: str
    imported: str
    line: int
    when_needed: bool
    typing_only: bool


def modules() -> dict[str, Path]:
    """Dotted module names without ``hloopt.``; a room's ``__init__`` is the room."""
    found = {}
    for path in files():
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        found[".".join(parts)] = path
    return found


MODULES = modules()


def imports(name: str) -> list[Import]:
    """All imports of a module; ``when_needed`` marks those inside functions."""
    return imports_of(name, MODULES[name])


@cache
def imports_of(name: str, path: Path) -> list[Import]:
    """The imports of a module, looked for once; only statements hold any."""
    found: list[Import] = []

    def visit(node: ast.AST, inside: bool, typing: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            typing = True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = True
        if isinstance(node, ast.Import):
            found.extend(
                Import(name, alias.name, node.lineno, inside, typing) for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                known = inner.removeprefix("hloopt.") in MODULES
                found.append(
                    Import(name, inner if known else str(node.module), node.lineno, inside, typing)
                )
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                visit(child, inside, typing)

    visit(tree(path), inside=False, typing=False)
    return found


def own(edge: Import) -> str | None:
    """The imported module of ours, or None."""
    if edge.imported == "hloopt":
        return "__init__"
    if not edge.imported.startswith("hloopt."):
        return None
    return edge.imported.removeprefix("hloopt.")


def room(module: str) -> str:
    """The first part of a module's name."""
    return module.split(".", maxsplit=1)[0]


def test_every_room_has_a_floor() -> None:
    """A new room must be put on the plan."""
    assert {room(name) for name in MODULES} <= set(FLOORS)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_down(name: str) -> None:
    """A module imports from lower floors, its own floor and its own room; lazily or not."""
    offences = []
    for edge in imports(name):
        target = own(edge)
        if target is None or room(target) == room(name) or room(name) in ("__init__", "__main__"):
            continue
        if target == "__init__" and room(name) == "cli":
            continue
        if (name, room(target)) in EXCEPTIONS:
            continue
        if FLOORS[room(target)] > FLOORS[room(name)]:
            offences.append(f"{name}:{edge.line} imports {target}")
    assert not offences


def test_no_cycles_between_modules() -> None:
    """Following imports that run when a module is loaded never leads back."""
    graph: dict[str, set[str]] = defaultdict(set)
    for name in MODULES:
        for edge in imports(name):
            target = own(edge)
            loaded = not edge.typing_only and not edge.when_needed
            if target in MODULES and loaded:
                graph[name].add(str(target))
    refuse_cycles(graph)


def test_no_cycles_between_rooms() -> None:
    """Rooms of one floor may know each other in one direction only; lazy imports count."""
    graph: dict[str, set[str]] = defaultdict(set)
    for name in MODULES:
        for edge in imports(name):
            target = own(edge)
            if target in MODULES and (name, room(target)) not in EXCEPTIONS:
                graph[room(name)].add(room(str(target)))
        graph[room(name)].discard(room(name))
    graph.pop("cli", None)  # the only room that may use the public surface, which is above it
    refuse_cycles(graph)


def refuse_cycles(graph: dict[str, set[str]]) -> None:
    """Fail with the path of the first cycle."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path, name))
        if name not in done:
            for target in sorted(graph.get(name, ())):
                visit(target, (*path, name))
            done.add(name)

    for name in sorted(graph):
        visit(name, ())


@pytest.mark.parametrize("package", sorted(CONFINED))
def test_heavy_packages_stay_in_their_rooms(package: str) -> None:
    """lark, cupy, rich and click are imported where the plan says and nowhere else."""
    allowed = CONFINED[package]
    offences = [
        f"{name}:{edge.line}"
        for name in MODULES
        for edge in imports(name)
        if edge.imported.split(".")[0] == package
        and not any(name == place or name.startswith(f"{place}.") for place in allowed)
    ]
    assert not offences


def test_the_test_sees_an_upward_import(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A planted offence is found: the check is not blind."""
    planted = tmp_path / "planted.py"
    planted.write_text("def f():\n    from hloopt.cli.main import main\n")
    monkeypatch.setitem(MODULES, "types.planted", planted)
    with pytest.raises(AssertionError, match=r"types.planted:2 imports cli"):
        test_imports_go_down("types.planted")


def test_the_test_sees_a_cycle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two modules that load each other are found; an import for annotations alone is no cycle."""
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("from hloopt.types import second\n")
    second.write_text("from hloopt.types.first import x\n")
    monkeypatch.setitem(MODULES, "types.first", first)
    monkeypatch.setitem(MODULES, "types.second", second)
    with pytest.raises(AssertionError, match=r"types.first -> types.second -> types.first"):
        test_no_cycles_between_modules()

    third = tmp_path / "third.py"
    third.write_text("if TYPE_CHECKING:\n    from hloopt.types.first import x\n")
    monkeypatch.setitem(MODULES, "types.second", third)
    test_no_cycles_between_modules()


def test_the_test_sees_rooms_that_know_each_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two rooms of one floor, each importing the other inside a function."""
    for name, target in (("text", "interpret"), ("interpret", "text")):
        planted = tmp_path / f"{name}.py"
        planted.write_text(f"def f():\n    import hloopt.{target}\n")
        monkeypatch.setitem(MODULES, f"{name}.planted", planted)
    with pytest.raises(AssertionError, match=r"interpret -> text"):
        test_no_cycles_between_rooms()


def test_the_test_sees_a_package_outside_its_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Lazily imported too, and by a room whose name only begins alike."""
    planted = tmp_path / "planted.py"
    planted.write_text("def f():\n    from rich.table import Table\n")
    monkeypatch.setitem(MODULES, "reporting.planted", planted)
    with pytest.raises(AssertionError, match=r"reporting.planted:2"):
        test_heavy_packages_stay_in_their_rooms("rich")
