"""User-defined passes.

They come from an installed distribution (entry point group ``hloopt.passes``, each named like its pass) or from
a Python file that is named on the command line.  Nothing else imports code: pipelines in files, lock files
and inputs name passes that are there already.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from hloopt.errors import UsageError
from hloopt.rewrite.pass_ import Pass
from hloopt.rewrite.spec import check_options
from hloopt.user_code import run_file

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "GROUP",
    "entry_points_of",
    "installed",
    "installed_names",
    "load_file",
]

GROUP = "hloopt.passes"
"""The entry point group: each entry point is named like the pass that it gives."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def entry_points_of(group: str) -> tuple[EntryPoint, ...]:
    """The entry points that installed distributions have in a group; nothing of theirs is imported."""
    # Commands that never ask would wait a tenth longer for it.
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))


def installed_names() -> tuple[str, ...]:
    """The names of the passes of installed distributions; nothing is imported."""
    return tuple(sorted({entry.name for entry in entry_points_of(GROUP)}))


@cache
def installed(name: str) -> type[Pass] | None:
    """The installed pass of a name, None where there is none.

    Raises ``UsageError`` naming the entry point when it cannot be loaded or is not a pass of that name, and
    when there are several.
    """
    found = tuple(entry for entry in entry_points_of(GROUP) if entry.name == name)
    if not found:
        return None
    if len(found) > 1:
        owners = ", ".join(map(_owner, found))
        raise UsageError(f"several packages have a pass called '{name}' ({GROUP}): {owners}")
    (entry,) = found
    where = f"the entry point '{entry.name} = {entry.value}' of {GROUP} ({_owner(entry)})"
    try:
        loaded = entry.load()
    except (Exception, SystemExit) as error:
        raise UsageError(f"{where} cannot be loaded: {type(error).__name__}: {error}") from error
    kind = _checked(loaded, where)
    if kind.name != name:
        raise UsageError(f"{where} gives a pass called '{kind.name}'")
    return kind


def _owner(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "unknown package"


def load_file(path: str, taken: Collection[str]) -> Mapping[str, type[Pass]]:
    """The passes a Python file defines, by name: the file is run.

    ``taken`` are names that mean something already.  Raises ``UsageError`` when the file cannot be run, has
    no pass, or a pass that is not a frozen dataclass with a name not yet taken.
    """
    module = run_file(path, "hloopt_pass_file")
    kinds = [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Pass)
        and value.__module__ == module.__name__
        and not inspect.isabstract(value)
    ]
    found: dict[str, type[Pass]] = {}
    for kind in dict.fromkeys(kinds):
        checked = _checked(kind, f"{path}: {kind.__name__}")
        if checked.name in taken:
            raise UsageError(f"{path}: {kind.__name__}: hloopt has a '{checked.name}' already")
        if checked.name in found:
            raise UsageError(f"{path}: two passes are called '{checked.name}'")
        found[checked.name] = checked
    if not found:
        raise UsageError(f"{path}: no class in it is a pass (a subclass of hloopt.Pass)")
    return found


def _checked(found: Any, where: str) -> type[Pass]:
    """Raise ``UsageError`` unless something is the class of a pass as the runner needs it."""
    if not (isinstance(found, type) and issubclass(found, Pass)):
        what = found.__name__ if isinstance(found, type) else type(found).__name__
        raise UsageError(f"{where} is not a pass (a subclass of hloopt.Pass), but {what}")
    if inspect.isabstract(found):
        raise UsageError(f"{where} is an incomplete pass: it has no method 'run'")
    name = getattr(found, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{where} needs a class attribute 'name': letters, digits and -, not {name!r}"
        )
    parameters = vars(found).get("__dataclass_params__")
    if parameters is None or not parameters.frozen:
        raise UsageError(
            f"{where} is not a frozen dataclass, as passes are: @dataclass(frozen=True)"
        )
    options: Any = found  # a dataclass, as has been seen
    for option in dataclasses.fields(options):
        if option.init and option.default is option.default_factory is dataclasses.MISSING:
            raise UsageError(f"{where}: the option '{option.name}' has no default")
    try:
        check_options(found, typing.get_type_hints(found))
    except (NameError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from error
    return found
