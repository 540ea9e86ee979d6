"""``hloopt passes``."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import click

from hloopt.cli.options import json_option
from hloopt.errors import UsageError

__all__ = ["command"]

_OPTION_LINE = re.compile(r"^ *(\w+) {2,}(\S.*)$")


@click.command("passes")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List passes and pipelines, or explain one with its options.

    \b
    Example:
      hloopt passes instruction-fusion
    """
    from hloopt.pipelines import PASSES, PIPELINES
    from hloopt.report.console import product, table, write_json

    if name is not None:
        _explain(name, as_json)
        return
    if as_json:
        rows = [_describe(entry) for entry in PASSES.values()]
        write_json("passes", {"passes": rows, "pipelines": dict(PIPELINES)})
        return
    made = table("pass", "what it does", left=2)
    for entry in PASSES.values():
        made.add_row(entry.name, _summary(entry))
    product().print(made)
    named = table("\npipeline", "passes", left=2)
    for label, text in PIPELINES.items():
        named.add_row(label, text or "(none)")
    product().print(named)


def _explain(name: str, as_json: bool) -> None:
    from rich.text import Text

    from hloopt.pipelines import PASSES, PIPELINES, parse_pipeline
    from hloopt.report.console import product, table, write_json
    from hloopt.rewrite.spec import did_you_mean

    if name in PIPELINES:
        pipeline = str(parse_pipeline(name))
        if as_json:
            write_json("passes", {"pipeline": name, "passes": pipeline})
        else:
            click.echo(pipeline)
        return
    if name not in PASSES:
        known = [*PASSES, *PIPELINES]
        raise UsageError(f"no pass is called '{name}'" + did_you_mean(name, known))
    row = _describe(PASSES[name])
    if as_json:
        write_json("passes", {"pass": row})
        return
    console = product()
    console.print(Text.assemble((name, "bold"), f"\n{row['doc']}"), soft_wrap=True)
    if row["options"]:
        made = table("\noption", "type", "default", "meaning", left=4)
        for option in row["options"]:
            kind = option["type"].replace("tuple[str, ...]", "list of words")
            made.add_row(option["name"], kind, option["default"], option["meaning"])
        console.print(made)
    if row["rules"]:
        made = table("\nrule", "", left=2)
        for rule in row["rules"]:
            made.add_row(rule["name"], "fast_math only" if rule["fast_math"] else "")
        console.print(made)


def _summary(entry: Any) -> str:
    return (inspect.getdoc(entry) or "").split("\n", 1)[0]


def _describe(entry: Any) -> dict[str, Any]:
    from hloopt.rewrite.spec import value_text

    meanings: dict[str, str] = {}
    for base in reversed(entry.__mro__):
        meanings.update(_meanings(inspect.cleandoc(base.__doc__ or "")))
    return {
        "name": entry.name,
        "summary": _summary(entry),
        "doc": _without_options(inspect.getdoc(entry) or ""),
        "options": [
            {
                "name": option.name,
                "type": str(option.type),
                "default": value_text(option.default),
                "meaning": meanings.get(option.name, ""),
            }
            for option in dataclasses.fields(entry)
        ],
        "rules": [{"name": rule, "fast_math": fast} for rule, fast in entry.rules.items()],
    }


def _meanings(doc: str) -> dict[str, str]:
    """The lines ``option   meaning`` of a docstring; an indented line goes on."""
    found: dict[str, str] = {}
    last = ""
    for line in doc.splitlines():
        match = _OPTION_LINE.match(line)
        if match:
            last = match.group(1)
            found[last] = match.group(2)
        elif last and line.startswith(" " * 4) and line.strip():
            found[last] += " " + line.strip()
        else:
            last = ""
    return found


def _without_options(doc: str) -> str:
    kept = []
    inside = False
    for line in doc.splitlines():
        inside = bool(_OPTION_LINE.match(line)) or (inside and line.startswith(" " * 4))
        if not inside:
            kept.append(line)
    return "\n".join(kept).strip()
