"""Descriptions of passes and rules: options, rules, worked examples run as they are shown."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any

from rich.console import Console
from rich.text import Text

from hloopt.errors import HlooptError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.passes import convert_pairs
from hloopt.passes.examples import rule_examples, whole_module
from hloopt.pipelines import PASSES
from hloopt.presets import Row, preset_rows
from hloopt.report.console import say, table
from hloopt.report.diff import unified_diff
from hloopt.rewrite import Fix, Pass, PassLog, Pipeline, Rule, RuleSet, apply_rules
from hloopt.rewrite.entries import Entry, entry_text
from hloopt.rewrite.spec import value_text
from hloopt.simplify import RULES
from hloopt.simplify.xla import ENTRIES, SimplifierEntry
from hloopt.text.parser import parse_module

__all__ = [
    "ENTRIES",
    "RULES",
    "describe",
    "entry_json",
    "example_json",
    "find_rule",
    "pipeline_lines",
    "preset_json",
    "preset_lines",
    "rule_json",
    "show_entries",
    "show_pass",
    "show_rule",
    "summary",
]

_OPTION_LINE = re.compile(r"^ *(\w+) {2,}(\S.*)$")


def summary(kind: type[Pass]) -> str:
    """The first line of a pass's docstring."""
    return _doc(kind).split("\n", 1)[0]


def _doc(kind: type[Pass]) -> str:
    return (inspect.getdoc(kind) or "").replace("``", "`")


def describe(kind: type[Pass]) -> dict[str, Any]:
    """A pass as JSON values: what it does, its options and rules."""
    meanings: dict[str, str] = {}
    options: Any = kind  # every pass is a dataclass
    names = frozenset(option.name for option in dataclasses.fields(options) if option.init)
    for base in reversed(kind.__mro__):
        meanings.update(_meanings(inspect.cleandoc(base.__doc__ or "").replace("``", "`"), names))
    types = typing.get_type_hints(kind)
    return {
        "name": kind.name,
        "summary": summary(kind),
        "doc": _without_options(_doc(kind), names),
        "options": [
            {
                "name": option.name,
                "type": _words(types[option.name]),
                "default": value_text(_default(option)),
                "meaning": meanings.get(option.name, ""),
            }
            for option in dataclasses.fields(options)
            if option.init
        ],
        "rules": [
            {"name": rule, "fast_math": fast, "needs": _needs(rule) if fast else ""}
            for rule, fast in kind.rules.items()
        ],
    }


def _needs(name: str) -> str:
    """The option without which a rule of a pass does not apply."""
    rule = find_rule(name)
    return "floats_are_real" if rule is not None and rule.floats_are_real else "fast_math"


def _default(option: dataclasses.Field[Any]) -> Any:
    if option.default_factory is not dataclasses.MISSING:
        return option.default_factory()
    return option.default


def example_json(kind: type[Pass]) -> dict[str, str] | None:
    """The worked example of a pass with its default options, run now; None where it has none."""
    if not kind.example:
        return None
    module = _read(kind.example)
    before = module.to_text()
    try:
        Pipeline((kind(),)).run(module)
    except HlooptError as error:
        return {"before": before, "error": error.message}
    return {"before": before, "after": module.to_text()}


def show_pass(kind: type[Pass], console: Console, *, as_diff: bool) -> None:
    """Everything about a pass; its example before and after, or as a diff."""
    row = describe(kind)
    console.print(Text(kind.name, style="bold"))
    for line in list(_filled(row["doc"], console.width))[:-1]:
        say(console, line)
    if row["options"]:
        made = table("\noption", "type", "default", "meaning", left=4)
        for option in row["options"]:
            made.add_row(option["name"], option["type"], option["default"], option["meaning"])
        console.print(made)
    for needs in ("", "fast_math", "floats_are_real"):
        title = f"rules with {needs} only" if needs else "rules"
        names = [rule["name"] for rule in row["rules"] if rule["needs"] == needs]
        if names:
            how = "  (explained by: hloopt passes 'EQUATION')" if find_rule(names[0]) else ""
            say(console, ("\n" + title, "bold"), how)
            for name in names:
                _show_equation(name, console)
    _show_example(example_json(kind), console, as_diff=as_diff)


def _show_equation(name: str, console: Console) -> None:
    """An equation in one line, or in two where it is longer than the line."""
    left, arrow, right = name.partition(" => ")
    short = len(name) <= console.width or not arrow
    for line in (name,) if short else (left, f"    => {right}"):
        say(console, line)


_ITEM = re.compile(r" *(?:\d+\.|[-*]) +")
_LONGEST_EQUATION = 35  # characters of one that are kept together in a table


def _filled(doc: str, width: int) -> Iterator[str]:
    """A docstring's paragraphs and items in lines that fit; formulas, which are indented, stay as they are."""
    text: list[str] = []
    hang = ""
    for line in [*doc.splitlines(), ""]:
        item = _ITEM.match(line)
        formula = line.startswith(" ") and not item and not (hang and line.startswith(hang))
        if item or formula or not line:
            yield from textwrap.wrap(
                " ".join(text), width, subsequent_indent=hang, break_on_hyphens=False
            )
            text, hang = [], ""
        if item:
            text, hang = [line], " " * item.end()
        elif formula or not line:
            yield line
        else:
            text.append(line.strip() if hang else line)


def _words(kind: Any) -> str:
    """A type as people say it: ``int``, ``list of words``, ``fast or slow``, ``int or none``."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " or ".join(map(str, inner))
    if origin in (typing.Union, UnionType):
        return " or ".join("none" if part is NoneType else _words(part) for part in inner)
    if origin is tuple:
        return f"list of {'words' if inner[0] is str else _words(inner[0])}"
    return "word" if kind is str else str(kind.__name__)


def _show_example(found: Mapping[str, str] | None, console: Console, *, as_diff: bool) -> None:
    if found is None:
        return
    if as_diff and "after" in found:
        lines = unified_diff(found["before"], found["after"], context=1000)[1:]
        _show_text("example, as a diff", "\n".join(lines), console)
        return
    _show_text("example", found["before"], console)
    if "after" in found:
        _show_text("becomes", _without_middle(found["after"]), console)
    else:
        _show_text("fails", found["error"], console)


def _without_middle(text: str) -> str:
    """A text of more than 60 lines with its first 40 and its last ones; scripts get it whole."""
    lines = text.strip("\n").splitlines()
    if len(lines) <= 60:
        return text
    left_out = f"  ... {len(lines) - 44} lines more (--json has all) ..."
    return "\n".join([*lines[:40], left_out, *lines[-4:]])


def _show_text(title: str, text: str, console: Console) -> None:
    console.print(Text(f"\n{title}", style="bold"))
    for line in text.strip("\n").splitlines():
        say(console, f"  {line}".rstrip())


def find_rule(name: str) -> Rule | None:
    """The rule of an equation; blanks do not matter."""
    wanted = "".join(name.split())
    known = (*RULES.rules, *convert_pairs.RULES)
    return next((rule for rule in known if "".join(rule.name.split()) == wanted), None)


def rule_json(rule: Rule) -> dict[str, Any]:
    """A rule as JSON values: its example before and after it was applied, and what it leaves alone."""
    texts = rule_examples()[rule.name]
    module = _read(whole_module(texts.example, texts.types[0]))
    before, after = module.to_text(), clone_module(module)
    for computation in after:
        apply_rules(
            computation,
            RuleSet((rule,)),
            PassLog(),
            fast_math=rule.fast_math or rule.floats_are_real,
            floats_are_real=rule.floats_are_real,
        )
    return {
        "name": rule.name,
        "fast_math": rule.fast_math,
        "floats_are_real": rule.floats_are_real,
        "passes": [name for name, kind in PASSES.items() if rule.name in kind.rules],
        "xla": [entry.number for entry in ENTRIES if rule.name in entry.rules],
        "example": {"before": before, "after": after.to_text()},
        "left_alone": _read(whole_module(texts.counterexample, texts.types[0])).to_text(),
    }


def show_rule(rule: Rule, console: Console, *, as_diff: bool) -> None:
    """A rule, its example, and an example of what it leaves alone."""
    row = rule_json(rule)
    needs = _needs(rule.name) if rule.fast_math or rule.floats_are_real else ""
    only = f", with {needs} only" if needs else ""
    numbers = ", ".join(map(str, row["xla"]))
    xla = f"; XLA's number {numbers} (hloopt passes --xla-rules)" if numbers else ""
    passes = " and ".join(row["passes"])
    console.print(Text.assemble((rule.name, "bold"), f"\nA rule of {passes}{only}{xla}."))
    _show_example(row["example"], console, as_diff=as_diff)
    _show_text("left alone", row["left_alone"], console)


def _read(text: str) -> Module:
    return parse_module(text, "example")


def entry_json(entry: SimplifierEntry) -> dict[str, Any]:
    """An entry of the list of what XLA's simplifier does, as JSON values."""
    return dataclasses.asdict(entry)


def show_entries(entries: Iterable[SimplifierEntry], console: Console) -> None:
    """What XLA's algebraic simplifier does, by number, and what does it here or why not."""
    made = table("", "XLA rewrites", "here", left=3)
    for column in made.columns[1:]:
        column.max_width = _LONGEST_EQUATION
    for entry in entries:
        here = [*entry.rules, *(f"pass {name}" for name in entry.passes)]
        cell = "\n".join([*here, *([f"({entry.reason})"] if entry.reason else [])])
        made.add_row(str(entry.number), entry.equation, cell)
    console.print(made)


def preset_json(rows: tuple[Row, ...]) -> list[dict[str, str]]:
    """The steps of a preset as JSON values."""
    return [
        {"group": group, "xla": step.xla, "entry": step.entry, "reason": step.reason}
        for group, step in preset_rows(rows)
    ]


def pipeline_lines(pipeline: Pipeline) -> Iterator[str]:
    """A pipeline's text, an entry a line: still a text that can be read back."""
    yield from _entry_lines(pipeline.entries, "")


def _entry_lines(entries: tuple[Entry, ...], indent: str) -> Iterator[str]:
    for number, entry in enumerate(entries):
        comma = "" if number == len(entries) - 1 else ","
        if isinstance(entry, Fix):
            head, _, _ = str(entry).partition("(")
            yield f"{indent}{head}("
            yield from _entry_lines(entry.entries, indent + "  ")
            yield f"{indent}){comma}"
        else:
            yield f"{indent}{entry_text(entry)}{comma}"


def preset_lines(rows: tuple[Row, ...]) -> Iterator[str]:
    """A preset as a pipeline text, an entry a line, with XLA's names and the reasons as comments."""
    steps = list(preset_rows(rows))
    written = [number for number, (_, step) in enumerate(steps) if step.entry]
    last = {group: number for number, (group, step) in enumerate(steps) if step.entry}
    widest = max((len(steps[number][1].entry) for number in written), default=0)
    current = ""
    for number, (group, step) in enumerate(steps):
        if current and group != current:
            yield _closing(current, last, written)
        if group and group != current:
            yield f"fix(  # {group}" if group in last else f"# {group}:"
        current = group
        indent = "  " if group else ""
        end = last.get(group) if group else written[-1]
        entry = indent + step.entry + ("" if number == end or not step.entry else ",")
        line = f"{entry:{widest + len(indent) + 1}}  # {step.xla}"
        if step.reason:  # too long to stand beside it
            start = f"{indent}# {step.xla}: "
            yield from textwrap.wrap(
                step.reason, 80, initial_indent=start, subsequent_indent=f"{indent}#   "
            )
            line = entry
        if step.entry:
            yield line
    if current:
        yield _closing(current, last, written)


def _closing(group: str, last: Mapping[str, int], written: list[int]) -> str:
    if group not in last:
        return f"# end of {group}"
    return ")" if last[group] == written[-1] else "),"


def _option(line: str, names: frozenset[str]) -> re.Match[str] | None:
    """The line of one of these options: other words in a row of their own are text."""
    match = _OPTION_LINE.match(line)
    return match if match and match.group(1) in names else None


def _meanings(doc: str, names: frozenset[str]) -> dict[str, str]:
    """The lines ``option   meaning`` of a docstring; an indented line goes on."""
    found: dict[str, str] = {}
    last = ""
    for line in doc.splitlines():
        match = _option(line, names)
        if match:
            last = match.group(1)
            found[last] = match.group(2)
        elif last and line.startswith(" " * 4) and line.strip():
            found[last] += " " + line.strip()
        else:
            last = ""
    return found


def _without_options(doc: str, names: frozenset[str]) -> str:
    kept = []
    inside = False
    for line in doc.splitlines():
        inside = bool(_option(line, names)) or (inside and line.startswith(" " * 4))
        if not inside:
            kept.append(line)
    return "\n".join(kept).strip()
