"""Lock files: fusion decisions as data, so that the same kernels can be made again.

::

    version = 1

    [[fusion]]
    module = "jit_f"
    computation = "main"
    name = "fusion.3"
    kind = "kInput"
    calls = "fused_computation.2"
    instructions = ["exp.1", "reduce.2"]
    signature = "0f3a..."

    [[unfused]]
    module = "jit_f"
    computation = "main"
    instructions = ["dot.1", "add.7"]

    [[nofuse]]
    producer = "/exp.*/"
    consumer = "op:reduce"
    reason = "softmax is measured on its own"

A ``fusion`` is one kernel: its instructions by the names they have before anything is fused, in their order; an
instruction may be in several.  ``outputs`` names those whose results it gives, where it is not the last one
alone, ``operands`` what it reads, in the order of its parameters, ``backend_config`` what the kernel of
a ``kCustom`` fusion is made by, ``calls`` its computation, whose number is its place in the order of making.

::

    [[loop]]
    module = "jit_f"
    computation = "main"
    name = "while.5"
    kernel = "while-per-thread"
    prologue = ["constant.1", "broadcast.2"]
    signature = "77c1..."

A ``loop`` with a ``kernel`` is that kernel, which computes ``prologue`` before the first iteration; without one
it runs step by step.

``unfused`` instructions are kernels by themselves.  What is in neither is left to the strategy.  ``fuse`` and
``nofuse`` are about pairs, by the patterns of ``rewrite/naming.py``; module and computation may be left out.

The choices of kernels are in the same file (``kernels/lock.py``).  Nothing in it is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final, TypeVar

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.rewrite.naming import NamePattern, parse_pattern
from hloopt.rewrite.spec import did_you_mean
from hloopt.toml_text import read_toml_file

__all__ = [
    "VERSION",
    "Decisions",
    "LockedGroup",
    "LoopRow",
    "PairRow",
    "Unfused",
    "decisions_text",
    "head_text",
    "read_decisions",
    "read_tables",
    "string",
    "text_of",
]

VERSION: Final = 1
_LISTS: Final = ("kernel", "fusion", "loop", "unfused", "fuse", "nofuse")
_TOP: Final = ("version", "target", "device", *_LISTS)
_PAIR: Final = ("producer", "consumer", "module", "computation", "reason")
_ALWAYS: Final = ("module", "computation", "name", "kind", "instructions")
_KINDS: Final = ("kLoop", "kInput", "kOutput", "kCustom")
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class _Row:
    """The keys that say where it is."""

    module: str
    computation: str

    @property
    def place(self) -> tuple[str, str]:
        """Module and computation."""
        return self.module, self.computation


_AnyRow = TypeVar("_AnyRow", bound=_Row)
_Each = TypeVar("_Each")


@dataclass(frozen=True, slots=True)
class LockedGroup(_Row):
    """One kernel: ``instructions`` in their order, of which ``outputs`` are the results.

    The numbers of the computations they call (``calls``) are the order in which fusions were made.
    """

    name: str
    kind: str
    calls: str = ""
    instructions: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    backend_config: str = ""
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Unfused(_Row):
    """Instructions of one computation that are kernels by themselves."""

    instructions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LoopRow(_Row):
    """A ``while``: the kernel it is, with ``prologue`` in it; no ``kernel`` where it runs step by step."""

    name: str
    kernel: str = ""
    prologue: tuple[str, ...] = ()
    signature: str = ""


@dataclass(frozen=True, slots=True)
class PairRow:
    """What a user wants of all pairs that two patterns match; ``title`` is what messages call the row.

    An empty module or computation means all of them.
    """

    title: str
    wanted: bool
    producer: NamePattern
    consumer: NamePattern
    module: str = ""
    computation: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Decisions:
    """What a lock file says about fusion; ``name`` is the file's."""

    name: str
    groups: tuple[LockedGroup, ...] = ()
    unfused: tuple[Unfused, ...] = ()
    pairs: tuple[PairRow, ...] = ()
    loops: tuple[LoopRow, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.groups or self.unfused or self.pairs or self.loops)


def string(text: str) -> str:
    """A basic string of TOML, which has JSON's escapes but wants DEL escaped, too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def head_text(rows: Mapping[str, str]) -> str:
    """How every lock file begins; ``rows`` follow the version."""
    lines = [
        "# What is fused, and which kernel runs it: --lock takes it, --frozen refuses what has changed.",
        f"version = {VERSION}",
        *(f"{key} = {string(value)}" for key, value in rows.items()),
    ]
    return "\n".join(lines) + "\n"


def decisions_text(
    groups: Iterable[LockedGroup], unfused: Iterable[Unfused], loops: Iterable[LoopRow] = ()
) -> str:
    """The tables of decisions; the same in the same order give the same text."""
    lines = [*_tables("loop", loops), *_tables("fusion", groups), *_tables("unfused", unfused)]
    return "".join(f"{line}\n" for line in lines)


def _tables(title: str, rows: Iterable[_Row]) -> Iterator[str]:
    for row in rows:
        yield from ("", f"[[{title}]]")
        for key in fields(row):
            value = getattr(row, key.name)
            if _is_needed(row, key.name, value):
                text = isinstance(value, str)
                yield from [f"{key.name} = {string(value)}"] if text else _list(key.name, value)


def _is_needed(row: _Row, key: str, value: str | tuple[str, ...]) -> bool:
    """Whether a key has to be written: its value is not the default that a reader assumes."""
    if isinstance(row, LockedGroup) and key == "outputs":
        return row.outputs != row.instructions[-1:]
    if isinstance(row, LockedGroup) and key == "operands":
        return len(row.operands) > 1
    return bool(value) or key in _ALWAYS


def _list(key: str, names: Sequence[str]) -> list[str]:
    """A TOML array of names, wrapped over lines."""
    parts = [string(name) for name in names]
    whole = f"{key} = [{', '.join(parts)}]"
    if len(whole) <= _WIDTH:
        return [whole]
    lines, line = [f"{key} = ["], "   "
    for part in parts:
        if len(line) + len(part) + 2 > _WIDTH and line.strip():
            lines.append(line)
            line = "   "
        line += f" {part},"
    return [*lines, line, "]"]


def read_tables(path: str) -> dict[str, Any]:
    """The content of a lock file, with its entries not yet checked.

    Raises ``FileError`` at the place of a TOML error; ``UsageError`` for unknown keys, other
    versions, and values that are not lists of tables.
    """
    found = read_toml_file(path)
    _check_keys(found, _TOP, path)
    if found.get("version") != VERSION:
        given = f"version is {found['version']!r}" if "version" in found else "'version' is missing"
        raise UsageError(f"{path}: {given}; this hloopt reads {VERSION}")
    for key in _LISTS:
        rows = found.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise UsageError(f"{path}: '{key}' is a list of tables: [[{key}]]")
    return found


def read_decisions(path: str) -> Decisions:
    """What a lock file says about fusion.

    Raises as ``read_tables`` does, and ``UsageError`` naming the invalid entry.
    """
    found = read_tables(path)

    def each(key: str, read: Callable[[Mapping[str, Any], str], _Each]) -> tuple[_Each, ...]:
        rows = enumerate(found.get(key, ()))
        return tuple(read(row, f"{path}: {key}[{number}]") for number, row in rows)

    pairs = (*each("nofuse", partial(_pair, False)), *each("fuse", partial(_pair, True)))
    unfused = each("unfused", partial(_read, Unfused))
    return Decisions(path, each("fusion", _group), unfused, pairs, each("loop", _loop))


def _check_keys(row: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in row:
        if key not in known:
            raise UsageError(f"{where}: '{key}' means nothing here{did_you_mean(key, known)}")


def _read(kind: type[_AnyRow], row: Mapping[str, Any], where: str) -> _AnyRow:
    """A table as its record: lists of names and texts, of which some must be there."""
    known = fields(kind)
    _check_keys(row, [key.name for key in known], where)
    values: dict[str, Any] = {
        key.name: (_names if "tuple" in str(key.type) else text_of)(row, key.name, where)
        for key in known
        if key.name in row or key.name in _ALWAYS
    }
    return kind(**values)


def _group(row: Mapping[str, Any], where: str) -> LockedGroup:
    group = _read(LockedGroup, row, where)
    if len(group.instructions) < 2:
        raise UsageError(f"{where}: a fusion has two instructions at least")
    for name in group.outputs:
        if name not in group.instructions:
            raise UsageError(f"{where}: the output {name} is none of its instructions")
    if group.kind not in _KINDS:
        raise UsageError(f"{where}: 'kind' is {group.kind!r}{did_you_mean(group.kind, _KINDS)}")
    return replace(group, outputs=group.outputs or group.instructions[-1:])


def _loop(row: Mapping[str, Any], where: str) -> LoopRow:
    loop = _read(LoopRow, row, where)
    return replace(loop, name=loop.name.removeprefix("%"))


def _pair(wanted: bool, row: Mapping[str, Any], where: str) -> PairRow:
    _check_keys(row, _PAIR, where)
    patterns = []
    for key in ("producer", "consumer"):
        try:
            patterns.append(parse_pattern(text_of(row, key, where)))
        except UsageError as error:
            start = "" if error.message.startswith(where) else f"{where}: "
            raise UsageError(f"{start}{error.message}") from error
    words = (text_of(row, key, where) if key in row else "" for key in _PAIR[2:])
    return PairRow(where, wanted, patterns[0], patterns[1], *words)


def _names(row: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = row.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise UsageError(f"{where}: '{key}' is a list of names")
    names = tuple(name.removeprefix("%") for name in value)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{where}: {twice} stands there twice")
    return names


def text_of(row: Mapping[str, Any], key: str, where: str) -> str:
    """The text under a key.  Raises ``UsageError`` where there is none."""
    value = row.get(key)
    if not isinstance(value, str):
        raise UsageError(f"{where}: '{key}' has to be a text")
    return value
