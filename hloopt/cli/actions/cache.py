"""What ``hloopt cache`` does."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click

from hloopt.cache_folder import cache_folder, own_folder
from hloopt.cli.json_out import write_json
from hloopt.errors import UsageError
from hloopt.numbers import byte_size
from hloopt.process import notes
from hloopt.report.console import TableColumn, product, records_table

__all__ = ["execute"]


_KINDS = {
    "native": "programs for this processor",
    "emulator": "CUDA C compiled for this processor",
    "nvrtc": "machine code for GPUs",
    "stablehlo": "modules converted from StableHLO",
    "grammar": "tables of the parser",
    "expression": "regular expressions of the parser",
}


_COLUMNS = (
    TableColumn("kind", "kind"),
    TableColumn("entries", "entries", "{:,}".format),
    TableColumn("bytes", "bytes", byte_size),
    TableColumn("what", "kind", _KINDS.__getitem__),
)


# Names that hloopt gives: all other files in the folder are kept.
_ENTRY = re.compile(r"[0-9a-f]{32}-[0-9a-f]{32}(\.\w+)?|\.build-\w+")


_FILE = re.compile(r"\.?(grammar|expression)-[0-9a-f]+\.json(\.\w+)?")


def execute(clear: bool, as_json: bool) -> None:
    """What ``hloopt cache`` does."""
    folder = cache_folder()
    if own_folder() is None and (folder is None or folder.exists()):
        raise UsageError(notes()[-1])
    assert folder is not None
    found: dict[str, list[tuple[Path, int]]] = {kind: [] for kind in _KINDS}
    for kind, path in _entries(folder):
        with suppress(OSError):  # another process removed it
            found[kind].append((path, _size(path)))
            if clear:
                _remove(path)
    kinds = {
        kind: {"entries": len(rows), "bytes": sum(size for _, size in rows)}
        for kind, rows in found.items()
    }
    total, entries = (sum(one[key] for one in kinds.values()) for key in ("bytes", "entries"))
    if as_json:
        content = {"folder": str(folder), "bytes": total, "kinds": kinds, "cleared": clear}
        write_json("cache", content)
    elif clear:
        click.echo(f"{folder}: {entries} entries removed, {byte_size(total)}")
    elif not entries:
        click.echo(f"{folder}: nothing in it")
    else:
        click.echo(f"{folder}: {byte_size(total)}")
        rows = [{"kind": kind, **one} for kind, one in kinds.items() if one["entries"]]
        product().print(records_table(_COLUMNS, rows))


def _entries(folder: Path) -> Iterator[tuple[str, Path]]:
    """What hloopt has put into the folder, by kind."""
    for path in sorted(folder.glob("*")):
        if own := _FILE.fullmatch(path.name):
            yield own[1], path
        elif path.name in _KINDS and own_folder(path.name) is not None:
            for entry in sorted(path.iterdir()):
                if _ENTRY.fullmatch(entry.name):
                    yield path.name, entry


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(inner.stat().st_size for inner in path.rglob("*"))
    return path.lstat().st_size


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
