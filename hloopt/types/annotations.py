"""Attributes of any op: values kept as text, frontend attributes, metadata and origin."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias, TypeVar

from hloopt.dataclass import dataclass
from hloopt.types.strings import quote, unquote

__all__ = [
    "METADATA_TEXTS",
    "FrontendAttributes",
    "Metadata",
    "Origin",
    "OriginTree",
    "OriginalArray",
    "Recovery",
    "Text",
    "Verbatim",
    "record_of",
]

_T = TypeVar("_T")

METADATA_TEXTS = frozenset(
    (
        *("op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name"),
        "metadata_payload",
    )
)
"""The sub-attributes of ``metadata`` that are strings."""


class Text(str):
    """A string that stood in quotes; plain ``str`` values are bare words."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A value whose text is kept: sharding, JSON, frontend attributes, origin, statistics ...

    ``value`` is the record of what the text says; None where the form is not known, or was not parsed.
    """

    text: str
    value: Any = field(default=None, compare=False)

    @classmethod
    def of(cls, record: Any) -> Verbatim:
        """A record and the text that it prints."""
        return cls(str(record), record)

    def __str__(self) -> str:
        return self.text


def record_of(attributes: Mapping[str, Any], name: str, kind: type[_T]) -> _T | None:
    """What a value that is kept as text says; None where there is none, or of another form."""
    value = attributes.get(name)
    record = value.value if isinstance(value, Verbatim) else None
    return record if isinstance(record, kind) else None


@dataclass(frozen=True, slots=True)
class FrontendAttributes:
    """``{a="1",b={...}}``: names and values, each ``written`` as the text has it."""

    written: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(attributes: Mapping[str, Any]) -> FrontendAttributes:
        """Those of an instruction or a module; empty where there are none."""
        return record_of(attributes, "frontend_attributes", FrontendAttributes) or _NO_FRONTEND

    def items(self) -> Iterator[tuple[str, str]]:
        """Names and values: those of strings, or the texts in braces."""
        for name, text in self.written:
            yield name, unquote(text) if text[:1] in "\"'" else text

    def get(self, name: str) -> str | None:
        """The value of a name."""
        return dict(self.items()).get(name)

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __str__(self) -> str:
        return f"{{{','.join(f'{name}={text}' for name, text in self.written)}}}"


_NO_FRONTEND = FrontendAttributes()


LONGEST_OP_NAME: Final = 1_000
"""Characters of a name that inlining may make, so that nested calls do not make ever longer ones."""


class Metadata:
    """``metadata={op_name="..." stack_frame_id=3}``: its text, and its fields or what decodes them on demand.

    ``own`` is what the instruction had before it named lines of others, too; else this itself.
    """

    __slots__ = ("_fields", "own", "text")

    def __init__(
        self, text: str, fields: Callable[[str], Mapping[str, Any]] | Mapping[str, Any]
    ) -> None:
        self.text = text
        self.own = self
        self._fields = fields

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Metadata:
        """The metadata that has these fields."""
        parts = []
        for name, value in fields.items():
            if name in METADATA_TEXTS:
                value = quote(value)
            elif isinstance(value, tuple):
                value = f"{{{','.join(map(str, value))}}}"
            parts.append(f"{name}={value}")
        return cls(f"{{{' '.join(parts)}}}", fields)

    def within(self, op_name: str) -> Metadata:
        """The metadata of what is inlined in place of a call of this ``op_name``, which precedes its own.

        As XLA's inliner names it: JAX names the ops of a jitted helper relative to the helper.  Older
        versions name them from the program's root on, so that they already begin with the call's name.
        A name that would be longer than ``LONGEST_OP_NAME`` stays.
        """
        start = '{op_name="'
        mine = self.text[len(start) :] if self.text.startswith(start) else None
        prefix = quote(op_name)[1:-1]
        if mine is not None and callable(self._fields):  # not decoded yet: few of them ever are
            if mine.startswith(prefix) or len(prefix) + len(mine) > LONGEST_OP_NAME:
                return self
            found = Metadata(f"{start}{prefix}/{mine}", self._fields)
        else:
            name = str(self.fields.get("op_name", ""))
            if name.startswith(op_name) or len(op_name) + len(name) > LONGEST_OP_NAME:
                return self
            whole = f"{op_name}/{name}" if name else op_name
            found = Metadata.of({"op_name": whole} | {**self.fields, "op_name": whole})
        if self.own is not self:
            found.own = self.own.within(op_name)
        return found

    @property
    def fields(self) -> Mapping[str, Any]:
        """The sub-attributes: ``op_name``, ``op_type``, ``source_file``, ``stack_frame_id`` ..."""
        if callable(self._fields):
            self._fields = self._fields(self.text)
        return self._fields

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Metadata) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Metadata({self.text!r})"


@dataclass(frozen=True, slots=True)
class OriginalArray:
    """``{"name" {0}}``: an array of the module before all passes, or ``{}`` for none."""

    name: str = ""
    index: tuple[int, ...] = ()

    def __str__(self) -> str:
        index = f" {{{','.join(map(str, self.index))}}}" if self.index else ""
        return f"{{{quote(self.name)}{index}}}" if self.name else "{}"


OriginTree: TypeAlias = "OriginalArray | tuple[OriginTree, ...]"
"""The original arrays in the tree of a shape."""


@dataclass(frozen=True, slots=True)
class Origin:
    """``origin={({"a"}, {"b" {0}})}``: which arrays a value was; without a tree that of a synthetic call."""

    tree: OriginTree | None = None

    def __str__(self) -> str:
        return f"{{{_tree_text(self.tree)}}}" if self.tree is not None else "{[synthetic_call]}"


def _tree_text(tree: OriginTree) -> str:
    return f"({', '.join(map(_tree_text, tree))})" if isinstance(tree, tuple) else str(tree)


@dataclass(frozen=True, slots=True)
class Recovery:
    """``{"a"} : {"b"}, "HloModule ..."``: an array, another one, and the module that makes it of that."""

    old: OriginalArray
    new: OriginalArray
    module: str = ""

    def __str__(self) -> str:
        module = f",\n  {quote(self.module)}" if self.module else ""
        return f"{self.old} : {self.new}{module}"
