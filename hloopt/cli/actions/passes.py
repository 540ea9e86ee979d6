"""What ``hloopt passes`` does."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from hloopt.cli.json_out import write_json
from hloopt.cli.pipeline_options import PASSES
from hloopt.driver.passes import pass_files
from hloopt.errors import UsageError
from hloopt.fusion.user_rules import rule_names
from hloopt.pipelines import ABOUT, PIPELINES, all_names, find_pass, parse_pipeline
from hloopt.presets import XLA_PRESETS
from hloopt.report.console import product, table
from hloopt.report.passes import (
    ENTRIES,
    RULES,
    describe,
    entry_json,
    example_json,
    find_rule,
    pipeline_lines,
    preset_json,
    preset_lines,
    rule_json,
    show_entries,
    show_pass,
    show_rule,
    summary,
)
from hloopt.rewrite.spec import did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

    from hloopt.rewrite import Pass, Rule

__all__ = ["execute"]


_WIDTH = 80  # columns, where the number is not known


_LONGEST = 400  # characters of a pipeline that are worth reading in one piece


def execute(
    names: tuple[str, ...], preset: str | None, xla_rules: bool, as_diff: bool, as_json: bool
) -> None:
    """What ``hloopt passes`` does."""
    if (preset is not None) + xla_rules + bool(names) > 1:
        raise UsageError("give only one of PASS, --preset and --xla-rules")
    if len(names) > 2:
        raise UsageError(f"one pass and one rule of it can be explained, not {len(names)} names")
    if preset is not None:
        _preset(preset, as_json)
    elif xla_rules:
        _xla_rules(as_json)
    elif names:
        _explain(names, as_diff, as_json)
    else:
        _list(as_json)


def _console() -> Console:
    return product(_WIDTH)


def _list(as_json: bool) -> None:
    passes = _known()
    rules = rule_names()
    if as_json:
        rows = [describe(kind) for kind in passes.values()]
        found = {"passes": rows, "pipelines": dict(PIPELINES), "fusion_rules": list(rules)}
        write_json("passes", found)
        return
    made = table("pass", "what it does", left=2)
    for kind in passes.values():
        made.add_row(kind.name, summary(kind))
    _console().print(made)
    named = table("\npipeline", "passes", left=2)
    for label, text in PIPELINES.items():
        broken = text.replace(",", ", ")  # the same pipeline, in words that go on a new line
        if len(text) > _LONGEST:
            what = "passes in XLA's order" if label in XLA_PRESETS else "more passes"
            broken = f"{what}: hloopt passes --preset {label}"
        named.add_row(label, broken or "(none)")
    _console().print(named)
    if rules:
        click.echo(f"\ncalled for every fusion, after all others (installed): {', '.join(rules)}")


def _known() -> dict[str, type[Pass]]:
    """All passes by name; an entry point that gives none is a warning."""
    extra = pass_files(PASSES.given()["pass_file"])
    found: dict[str, type[Pass]] = {}
    for name in dict.fromkeys((*all_names(), *extra)):
        try:
            kind = find_pass(name, extra)
        except UsageError as error:
            click.echo(f"hloopt: warning: {error}", err=True)
            continue
        if kind is not None:
            found[name] = kind
    return found


def _explain(names: tuple[str, ...], as_diff: bool, as_json: bool) -> None:
    name, extra = names[0], pass_files(PASSES.given()["pass_file"])
    rule = find_rule(name)
    if rule is not None and len(names) == 1:
        _show_rule(rule, as_diff, as_json)
        return
    if name in PIPELINES and len(names) == 1:
        pipeline = str(parse_pipeline(name))
        if as_json:
            write_json("passes", {"pipeline": name, "passes": pipeline})
        else:
            click.echo(pipeline)
        return
    kind = find_pass(name, extra)
    if kind is None:
        what = "pass or rule" if "=>" in name else "pass"
        known = [entry.name for entry in RULES.rules] if "=>" in name else []
        hint = did_you_mean(name, [*all_names(), *extra, *PIPELINES, *known])
        raise UsageError(f"no {what} is called '{name}'{hint}")
    if len(names) == 2:
        rule = find_rule(names[1])
        if rule is None or rule.name not in kind.rules:
            rules = kind.rules
            hint = did_you_mean(names[1], rules) if rules else " (it has no rules)"
            raise UsageError(f"{name} has no rule '{names[1]}'{hint}")
        _show_rule(rule, as_diff, as_json)
    elif as_json:
        row: dict[str, Any] = {**describe(kind), "example": example_json(kind)}
        write_json("passes", {"pass": row})
    else:
        show_pass(kind, _console(), as_diff=as_diff)


def _show_rule(rule: Rule, as_diff: bool, as_json: bool) -> None:
    if as_json:
        write_json("passes", {"rule": rule_json(rule)})
    else:
        show_rule(rule, _console(), as_diff=as_diff)


def _preset(name: str, as_json: bool) -> None:
    if name not in PIPELINES:
        raise UsageError(f"no preset is called '{name}'" + did_you_mean(name, PIPELINES))
    rows = XLA_PRESETS.get(name)
    pipeline = parse_pipeline(name)
    if as_json:
        steps = {"steps": preset_json(rows)} if rows is not None else {}
        write_json("passes", {"preset": name, "passes": str(pipeline), **steps})
        return
    if name in ABOUT:
        for line in wrap(f"{name}: {ABOUT[name]}", 78):
            click.echo(f"# {line}")
    for line in preset_lines(rows) if rows is not None else pipeline_lines(pipeline):
        click.echo(line)


def _xla_rules(as_json: bool) -> None:
    if as_json:
        write_json("passes", {"xla_rules": [entry_json(entry) for entry in ENTRIES]})
    else:
        show_entries(ENTRIES, _console())
