"""Which modules of a dump, and in which stage."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hloopt.dumps.directory import Dump, DumpModule, Stage
from hloopt.errors import UsageError
from hloopt.spelling import nearest

__all__ = ["matching_modules", "matching_stages", "pick"]

_MOST_LISTED = 12


def pick(
    dump: Dump, module: str | None, stages: Sequence[str] = ()
) -> list[tuple[DumpModule, Stage]]:
    """The modules that match a regular expression, each in the requested stages.

    Without ``stages`` each module is taken as it was before optimisation, or in the first stage there is.
    Raises ``UsageError`` with the candidates when nothing matches.
    """
    modules = [entry for entry in matching_modules(dump, module) if entry.stages]
    if not modules:
        raise UsageError(f"{dump.folder}: {_nothing(dump, module)}")
    found = [(entry, one) for entry in modules for one in matching_stages(entry, stages)]
    if not found:
        raise UsageError(f"{dump.folder}: {_no_stage(modules, stages)}")
    return found


def matching_modules(dump: Dump, expression: str | None) -> list[DumpModule]:
    """The modules whose name, or the beginning of whose files' names, has a match."""
    if expression is None:
        return list(dump.modules)
    wanted = re.compile(expression)
    return [
        entry for entry in dump.modules if wanted.search(entry.name) or wanted.search(entry.label)
    ]


def matching_stages(module: DumpModule, wanted: Sequence[str]) -> list[Stage]:
    """The stages called before, after, snapshot or given, or whose label has a match; without any, the first.

    ``final`` is the stage after optimisation, or the one whose file says none, or the first.  In the order
    of compilation, whatever the order of what is wanted.
    """
    if not wanted:
        return list(module.stages[:1])
    kinds = {"before", "after", "snapshot", "given"}.intersection(wanted)
    labels = [re.compile(one) for one in wanted if one not in {*kinds, "final"}]
    if "final" in wanted:
        last = {entry.kind for entry in module.stages} & {"after", "given"}
        kinds |= last or {entry.kind for entry in module.stages[:1]}
    return [
        entry
        for entry in module.stages
        if entry.kind in kinds or any(label.search(entry.label) for label in labels)
    ]


def _nothing(dump: Dump, expression: str | None) -> str:
    named = [entry.label for entry in dump.modules if entry.stages]
    if not named:
        folders = _list(dump.folders)
        inside = f"; there are directories in it\n{folders}" if folders else ""
        return f"no HLO modules in this directory{inside}"
    close = nearest(str(expression), [entry.name for entry in dump.modules])
    hint = f"; did you mean '{close[0]}'?" if close else ";"
    return f"no module matches '{expression}'{hint} there are\n{_list(named)}"


def _no_stage(modules: list[DumpModule], stages: Sequence[str]) -> str:
    labels = dict.fromkeys(one.label for entry in modules for one in entry.stages if one.label)
    where = modules[0].label if len(modules) == 1 else f"{len(modules)} modules"
    there = f"there are\n{_list(list(labels))}" if labels else "file names say no stages here"
    wanted = "' or '".join(stages)
    return f"no stage of {where} matches '{wanted}'; {there}"


def _list(names: Sequence[str]) -> str:
    lines = [f"  {name}" for name in names[:_MOST_LISTED]]
    rest = len(names) - _MOST_LISTED
    return "\n".join([*lines, f"  and {rest} more"] if rest > 0 else lines)
