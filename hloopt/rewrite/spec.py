"""The text form of passes and pipelines.

::

    pipeline := entry ("," entry)*
    entry    := NAME options?                      a pass, or a named pipeline such as O2
              | "fix" options? "(" pipeline ")"    repeated until nothing changes
    options  := "{" [NAME "=" value ("," NAME "=" value)*] "}"
    value    := WORD | STRING | "[" [value ("," value)*] "]"

A WORD is made of letters, digits and ``_ . + - / :``; a STRING is a JSON string, for everything else
(``disable=["A + 0 => A"]``).  Blanks and line ends are free, and ``#`` begins a comment that goes on to the
end of its line.  What an option may be comes from the type of the
dataclass field: ``int``, ``float``, ``bool``, ``str``, ``Literal[...]`` words, ``tuple[..., ...]`` of those,
and ``None`` where the type allows it.  ``pass_text`` writes a text that gives the same pass back.
"""

from __future__ import annotations

import dataclasses
import json
import re
import typing
from collections.abc import Iterable, Mapping
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeAlias

from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, UsageError
from hloopt.rewrite.pass_ import Pass
from hloopt.spelling import nearest

__all__ = [
    "FixSpec",
    "OptionValue",
    "PassSpec",
    "Spec",
    "check_options",
    "did_you_mean",
    "make_pass",
    "parse",
    "pass_text",
]

OptionValue: TypeAlias = "str | tuple[OptionValue, ...]"

_TOKEN = re.compile(
    r'(?:\s|#[^\n]*)*+(?:([A-Za-z0-9_.+\-/:]+)|("(?:[^"\\]|\\.)*")|([{}()\[\],=])|([^\s#])|\Z)'
)
_MAX_LISTED = 16
_MAX_DEPTH = 50
_WORD = re.compile(r"[A-Za-z0-9_.+\-/:]+")


@dataclass(frozen=True, slots=True)
class PassSpec:
    """``name{key=value}`` before the name is looked up."""

    name: str
    options: tuple[tuple[str, OptionValue], ...] = ()


@dataclass(frozen=True, slots=True)
class FixSpec:
    """``fix{limit=N}(...)``."""

    entries: tuple[Spec, ...]
    options: tuple[tuple[str, OptionValue], ...] = ()


Spec: TypeAlias = PassSpec | FixSpec


def parse(text: str) -> tuple[Spec, ...]:
    """Read a pipeline text; raises ``UsageError`` with the place where it stops making sense."""
    reader = _Reader(text)
    entries = reader.entries() if reader.peek else ()
    if reader.peek:
        reader.fail("a ',' or the end")
    return entries


class _Reader:
    """Tokens of a text with one of lookahead; a token is (kind, text, offset)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        for match in _TOKEN.finditer(text):
            group = match.lastindex
            if group is None:  # nothing but blanks and comments before the end
                break
            kind = ("word", "string", match.group(group), "stray")[group - 1]
            self.tokens.append((kind, match.group(group), match.start(group)))
        self.position = 0
        self.depth = 0

    @property
    def peek(self) -> str:
        """The kind of the next token, empty at the end."""
        return self.tokens[self.position][0] if self.position < len(self.tokens) else ""

    def fail(self, expected: str) -> NoReturn:
        found, offset = "the end", len(self.text)
        if self.position < len(self.tokens):
            _, text, offset = self.tokens[self.position]
            found = repr(text)
        start = self.text.rfind("\n", 0, offset) + 1
        line = self.text[start:].partition("\n")[0]
        marker = f"\n  {line}\n  {' ' * (offset - start)}^"
        raise UsageError(f"in the pipeline text: expected {expected}, found {found}{marker}")

    def take(self, kind: str, expected: str) -> str:
        if self.peek != kind:
            self.fail(expected)
        self.position += 1
        return self.tokens[self.position - 1][1]

    def enter(self, wanted: str) -> None:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail(f"{wanted} in no more than {_MAX_DEPTH} brackets")

    def entries(self) -> tuple[Spec, ...]:
        found = [self.entry()]
        while self.peek == ",":
            self.position += 1
            found.append(self.entry())
        return tuple(found)

    def entry(self) -> Spec:
        name = self.take("word", "the name of a pass")
        options = self.options() if self.peek == "{" else ()
        if name != "fix":
            return PassSpec(name, options)
        self.take("(", "'(' after fix")
        self.enter("a pass")
        entries = self.entries()
        self.depth -= 1
        self.take(")", "',' or ')'")
        return FixSpec(entries, options)

    def options(self) -> tuple[tuple[str, OptionValue], ...]:
        self.take("{", "'{'")
        found: list[tuple[str, OptionValue]] = []
        while self.peek != "}":
            if found:
                self.take(",", "',' or '}'")
            key = self.take("word", "the name of an option")
            self.take("=", "'=' after the name of an option")
            found.append((key, self.value()))
        self.take("}", "'}'")
        return tuple(found)

    def value(self) -> OptionValue:
        if self.peek == "string":
            return self.string()
        if self.peek != "[":
            return self.take("word", "a value")
        self.position += 1
        self.enter("a value")
        found: list[OptionValue] = []
        while self.peek != "]":
            if found:
                self.take(",", "',' or ']'")
            found.append(self.value())
        self.position += 1
        self.depth -= 1
        return tuple(found)

    def string(self) -> str:
        try:
            return str(json.loads(self.tokens[self.position][1], strict=False))
        except ValueError:
            self.fail("a string as JSON writes it")
        finally:
            self.position += 1


def make_pass(spec: PassSpec, passes: Mapping[str, type[Pass]]) -> Pass:
    """The pass a spec names; raises ``UsageError`` for an unknown pass, option or a wrong value."""
    if spec.name not in passes:
        raise UsageError(f"no pass is called '{spec.name}'" + did_you_mean(spec.name, passes))
    kind = passes[spec.name]
    options = read_options(kind, spec.name, spec.options)
    try:
        return kind(**options)
    except HlooptError:
        raise
    except Exception as error:  # a user-defined pass may raise anything
        raise UsageError(f"{spec.name}: {error}") from error


def read_options(
    kind: type[Any], name: str, options: tuple[tuple[str, OptionValue], ...]
) -> dict[str, Any]:
    """Option texts as values of the fields of dataclass ``kind``; ``name`` is for messages."""
    if not options:
        return {}
    types = typing.get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind) if field.init]
    found: dict[str, Any] = {}
    for key, value in options:
        if key not in known:
            hint = did_you_mean(key, known) if known else " (it has no options)"
            raise UsageError(f"{name} has no option '{key}'" + hint)
        if key in found:
            raise UsageError(f"{name} gives the option '{key}' twice")
        found[key] = _convert(value, types[key], f"{name}{{{key}=...}}")
    return found


def did_you_mean(wrong: str, valid: Iterable[str]) -> str:
    """``; did you mean 'x'? (valid: ...)``, to be put after a message about an unknown name.

    Of many valid names only the nearest are shown.
    """
    names = sorted(set(valid))
    if not names:
        return " (there are none)"
    close = nearest(wrong, names)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    if len(names) <= _MAX_LISTED:
        return f"{hint} (valid: {', '.join(names)})"
    near = nearest(wrong, names, 3, 0.3)
    return hint or (f"; near: {', '.join(near)}" if near else f" ({len(names)} are valid)")


def check_options(kind: type[Any], types: Mapping[str, Any]) -> None:
    """Raise ``TypeError`` for an option whose type has no text form."""
    for field in dataclasses.fields(kind):
        if field.init and not _has_text_form(types[field.name]):
            raise TypeError(f"the option '{field.name}' is a {field.type}, which has no text form")


def _has_text_form(kind: Any) -> bool:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, UnionType):
        rest = [entry for entry in inner if entry is not NoneType]
        return len(rest) == 1 and _has_text_form(rest[0])
    if origin is tuple:
        return len(inner) == 2 and inner[1] is Ellipsis and _has_text_form(inner[0])
    if origin is typing.Literal:
        return all(isinstance(word, str) for word in inner)
    return kind in (bool, int, float, str)


def _convert(value: OptionValue, kind: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, UnionType):
        inner = [entry for entry in typing.get_args(kind) if entry is not NoneType]
        return None if value == "none" else _convert(value, inner[0], where)
    if origin is tuple:
        items = value if isinstance(value, tuple) else (value,)
        return tuple(_convert(item, typing.get_args(kind)[0], where) for item in items)
    if isinstance(value, tuple):
        raise UsageError(f"{where} takes one value, not a list")
    if origin is typing.Literal:
        words = [str(word) for word in typing.get_args(kind)]
        if value not in words:
            raise UsageError(f"{where} is '{value}'" + did_you_mean(value, words))
        return value
    if kind is bool:
        if value not in ("true", "false"):
            raise UsageError(f"{where} is '{value}'; it is true or false")
        return value == "true"
    if kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            wanted = "an integer" if kind is int else "a number"
            raise UsageError(f"{where} is '{value}'; it takes {wanted}") from None
    if kind is str:
        return value
    raise TypeError(f"{where}: options of type {kind} have no text form")


def pass_text(instance: Pass) -> str:
    """``name{key=value}`` with the options that are not at their defaults."""
    return instance.name + options_text(instance)


def options_text(instance: Any, skip: tuple[str, ...] = ()) -> str:
    """``{key=value}`` for the fields of a dataclass that differ from their defaults, or nothing."""
    shown = [
        f"{field.name}={value_text(getattr(instance, field.name))}"
        for field in dataclasses.fields(instance)
        if field.init
        and field.name not in skip
        and not _same(getattr(instance, field.name), _default(field))
    ]
    return "{" + ",".join(shown) + "}" if shown else ""


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def value_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[" + ",".join(map(value_text, value)) + "]"
    text = repr(value) if isinstance(value, float) else str(value)
    return text if _WORD.fullmatch(text) and text != "none" else json.dumps(text)
