"""What the grammar's rules become: frozen values where the text alone decides, records elsewhere.

Lark calls the method named like a rule with the rule's parts, innermost rule first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from lark import Token, Transformer

from hloopt.text.hints import did_you_mean
from hloopt.text.problem import Problem
from hloopt.text.strings import unquote
from hloopt.types import (
    DTYPES,
    UNBOUNDED,
    AliasEntry,
    ArrayShape,
    BufferShape,
    IotaList,
    Layout,
    Shape,
    SliceRange,
    Text,
    TupleShape,
    Verbatim,
)
from hloopt.types.attrs import ConvDims, PaddingDim, Window, WindowDim

__all__ = [
    "ArgumentsText",
    "AttributeText",
    "ComputationText",
    "InstructionText",
    "LineText",
    "LiteralText",
    "ModuleText",
    "OperandText",
    "Syntax",
    "begin",
    "end",
]


def begin(token: Token) -> int:
    """Where a token begins in the text it was read from."""
    assert token.start_pos is not None, "tokens of a text have a place"
    return token.start_pos


def end(token: Token) -> int:
    """Where a token ends in the text it was read from."""
    assert token.end_pos is not None, "tokens of a text have a place"
    return token.end_pos


@dataclass(frozen=True, slots=True)
class AttributeText:
    """``name=value``: where the value stands; it is read when its kind is known."""

    name: str
    offset: int
    start: int
    end: int

    def moved(self, base: int) -> AttributeText:
        """The same attribute, with offsets counted from ``base`` characters earlier."""
        return AttributeText(self.name, self.offset + base, self.start + base, self.end + base)


@dataclass(frozen=True, slots=True)
class OperandText:
    """A name, or an instruction in place when ``arguments`` is not None."""

    name: Token
    shape: Shape | None
    arguments: ArgumentsText | None = None


@dataclass(frozen=True, slots=True)
class InstructionText:
    """An instruction read token by token."""

    root: bool
    name: Token
    shape: Shape | None
    opcode: Token
    arguments: ArgumentsText
    attributes: list[AttributeText]


@dataclass(frozen=True, slots=True)
class LineText:
    """An ordinary instruction with further attributes."""

    line: Token
    attributes: list[AttributeText]


# The text between parentheses with the closing one, or the operands in it.
ArgumentsText: TypeAlias = Token | list[OperandText]


@dataclass(frozen=True, slots=True)
class ComputationText:
    """``body`` is a list of LINE tokens, ``LineText`` and ``InstructionText``."""

    entry: bool
    name: Token
    result: Shape | None
    body: list[Any]
    attributes: list[AttributeText]


@dataclass(frozen=True, slots=True)
class ModuleText:
    """``tables`` maps ``FileNames`` and the like to their rows."""

    name: Token | None
    attributes: list[AttributeText]
    tables: dict[str, list[Token]]
    computations: list[ComputationText]


@dataclass(frozen=True, slots=True)
class LiteralText:
    """A literal before its shape is known: ``form`` is element, dense, elided or several."""

    form: str
    offset: int
    text: str
    elements: tuple[LiteralText, ...] = ()
    depth: int = 0


class Syntax(Transformer[Token, Any]):
    """One method a rule; rules imported through several files carry their files' names in front."""

    def __getattr__(self, name: str) -> Any:
        plain = name.rpartition("__")[2]
        if plain == name or not plain or plain not in type(self).__dict__:
            raise AttributeError(name)
        return getattr(self, plain)

    def __init__(self, read: Callable[[str, str], Any]) -> None:
        super().__init__()
        self._read = read
        self._shapes: dict[str, Shape] = {}

    # ---- module ----

    def module(self, parts: list[Any]) -> ModuleText:
        computations = [part for part in parts if isinstance(part, ComputationText)]
        name, attributes, tables = None, [], {}
        for part in parts:
            if isinstance(part, tuple):
                if part[0] == "HloModule":
                    name, attributes = part[1], part[2]
                else:
                    tables[part[0]] = part[1]
        return ModuleText(name, attributes, tables, computations)

    def header(self, parts: list[Any]) -> tuple[str, Token, list[AttributeText]]:
        return "HloModule", parts[0], parts[1:]

    def file_names(self, rows: list[Token]) -> tuple[str, list[Token]]:
        return "FileNames", rows

    def function_names(self, rows: list[Token]) -> tuple[str, list[Token]]:
        return "FunctionNames", rows

    def file_locations(self, rows: list[Token]) -> tuple[str, list[Token]]:
        return "FileLocations", rows

    def stack_frames(self, rows: list[Token]) -> tuple[str, list[Token]]:
        return "StackFrames", rows

    def computation(self, parts: list[Any]) -> ComputationText:
        entry = parts[0].type == "ENTRY"
        name = parts[1] if entry else parts[0]
        rest = parts[2 if entry else 1 :]
        result = rest.pop(0)[0] if isinstance(rest[0], tuple) else None
        return ComputationText(entry, name, result, rest[0], rest[1:])

    def signature(self, parts: list[Any]) -> tuple[Shape]:
        return (parts[-1],)

    def parameter(self, parts: list[Any]) -> None:
        return None

    def body(self, parts: list[Any]) -> list[Any]:
        return parts

    # ---- instruction ----

    def instruction(self, parts: list[Any]) -> InstructionText:
        root = parts[0].type == "ROOT"
        if root:
            del parts[0]
        name, (shape, opcode), arguments = parts[:3]
        return InstructionText(root, name, shape, opcode, arguments, parts[3:])

    def line_and_more(self, parts: list[Any]) -> LineText:
        return LineText(parts[0], parts[1:])

    def head(self, parts: list[Any]) -> tuple[Shape | None, Token]:
        return (parts[0], parts[1]) if len(parts) == 2 else (None, parts[0])

    def operands(self, parts: list[OperandText]) -> list[OperandText]:
        return parts

    def operand(self, parts: list[Any]) -> OperandText:
        return OperandText(parts[-1], parts[0] if len(parts) == 2 else None)

    def nested(self, parts: list[Any]) -> OperandText:
        return OperandText(parts[-2], parts[0] if len(parts) == 3 else None, parts[-1])

    def attributes(self, parts: list[AttributeText]) -> list[AttributeText]:
        return parts

    def attribute(self, parts: list[Any]) -> AttributeText:
        key, value = parts
        span = value if isinstance(value, tuple) else (begin(value), end(value))
        return AttributeText(key[:-1], begin(key), *span)

    def deep(self, parts: list[Any]) -> tuple[int, int]:
        return begin(parts[0]), end(parts[-1])

    # ---- shapes ----

    def shape_text(self, parts: list[Token]) -> Shape:
        text = parts[0]
        found = self._shapes.get(text)
        if found is None:
            try:
                found = self._read("shape", str(text))
            except Problem as problem:
                raise problem.moved(begin(text)) from None
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            self._shapes[str(text)] = found
        return found

    def array_shape(self, parts: list[Any]) -> ArrayShape:
        name, *rest = parts
        element = DTYPES.get(str(name))
        if element is None:
            raise Problem(
                begin(name),
                f"unknown element type {str(name)!r}{did_you_mean(name, DTYPES)}",
                width=len(name),
            )
        layout = None
        offset = begin(name)
        if rest and isinstance(rest[-1], tuple) and isinstance(rest[-1][0], Layout):
            layout, offset = rest.pop()
        dims = tuple(size for size, _ in rest)
        dynamic = tuple(mark for _, mark in rest)
        if not element.is_array and dims:
            raise Problem(begin(name), f"{name} has no dimensions", width=len(name))
        if layout is not None and len(layout.minor_to_major) != len(dims):
            raise Problem(
                offset,
                f"the layout orders {len(layout.minor_to_major)} dimensions, the shape has {len(dims)}",
            )
        if layout is not None and sorted(layout.minor_to_major) != list(range(len(dims))):
            raise Problem(offset, "the layout is no permutation of the dimensions")
        if layout is None and not dims:
            layout = _SCALAR
        return ArrayShape(element, dims, layout, dynamic if any(dynamic) else ())

    def static(self, parts: list[Token]) -> tuple[int, bool]:
        return _size(parts[0]), False

    def bounded(self, parts: list[Token]) -> tuple[int, bool]:
        return _size(parts[0]), True

    def unbounded(self, parts: list[Token]) -> tuple[int, bool]:
        return UNBOUNDED, True

    def opening(self, parts: list[Token]) -> Token:
        return parts[0]

    def tuple_shape(self, parts: list[Any]) -> TupleShape:
        shape = TupleShape(tuple(parts[1:]))
        if _depth(shape) > _DEEPEST_SHAPE:
            raise Problem(
                begin(parts[0]), f"a shape is nested more than {_DEEPEST_SHAPE} levels deep"
            )
        return shape

    def buffer_shape(self, parts: list[Any]) -> BufferShape:
        return BufferShape(parts[-1])

    def layout(self, parts: list[Any]) -> tuple[Layout, int]:
        opening, order = parts[:2]
        pieces = dict(parts[2]) if len(parts) == 3 else {}
        space = int(pieces.get("S", 0))
        bits = int(pieces.get("E", 0))
        suffix = "".join(
            piece if letter in {"D", "T", "SC", "#", "*", "P"} else f"{letter}({piece})"
            for letter, piece in (parts[2] if len(parts) == 3 else ())
            if (letter, piece) not in _DEFAULTS
        )
        return Layout(order, suffix, space, bits), begin(opening)

    def order(self, parts: list[Token]) -> tuple[int, ...]:
        return tuple(map(int, parts))

    def suffix(self, parts: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return parts

    def level_types(self, parts: list[Token]) -> tuple[str, str]:
        return "D", f"D({','.join(parts)})"

    def tiles(self, parts: list[str]) -> tuple[str, str]:
        return "T", "T" + "".join(parts)

    def tile(self, parts: list[Token]) -> str:
        return f"({','.join(parts)})"

    def tail_padding(self, parts: list[Token]) -> tuple[str, str]:
        return "L", str(int(parts[0]))

    def index_type(self, parts: list[Token]) -> tuple[str, str]:
        return "#", f"#({parts[0]})"

    def pointer_type(self, parts: list[Token]) -> tuple[str, str]:
        return "*", f"*({parts[0]})"

    def element_size(self, parts: list[Token]) -> tuple[str, str]:
        return "E", str(int(parts[0]))

    def memory_space(self, parts: list[Token]) -> tuple[str, str]:
        return "S", str(int(parts[0]))

    def split(self, parts: list[Token]) -> tuple[str, str]:
        return "SC", f"SC({parts[0]}:{','.join(parts[1:])})"

    def physical_shape(self, parts: list[Shape]) -> tuple[str, str]:
        return "P", f"P({parts[0]})"

    def metadata_prefix(self, parts: list[Token]) -> tuple[str, str]:
        return "M", str(int(parts[0]))

    # ---- literals ----

    def element(self, parts: list[Token]) -> LiteralText:
        return LiteralText("element", begin(parts[0]), str(parts[0]))

    def elided(self, parts: list[Token]) -> LiteralText:
        return LiteralText("elided", begin(parts[0]), "")

    def dense(self, parts: list[Token]) -> LiteralText:
        return LiteralText("dense", begin(parts[0]), str(parts[0]))

    def several(self, parts: list[LiteralText]) -> LiteralText:
        offset = parts[0].offset if parts else 0
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > _DEEPEST_SHAPE:
            raise Problem(offset, f"a literal is nested more than {_DEEPEST_SHAPE} levels deep")
        return LiteralText("several", offset, "", tuple(parts), depth)

    def literal(self, parts: list[LiteralText]) -> LiteralText:
        return parts[0]

    def deep_array(self, parts: list[Any]) -> LiteralText:
        text = "".join(_flat(parts))
        return LiteralText("dense", begin(parts[0]), text)

    def complex(self, parts: list[Token]) -> str:
        return "".join(parts)

    # ---- values of attributes ----

    def integer(self, parts: list[Token]) -> int:
        return int(parts[0])

    def float(self, parts: list[Token]) -> float:
        return float(parts[0].partition("(")[0])

    def boolean(self, parts: list[Token]) -> bool:
        return bool(parts[0] == "true")

    def word(self, parts: list[Token]) -> str:
        return str(parts[0])

    def string(self, parts: list[Token]) -> Text:
        return Text(unquote(parts[0]))

    def integers(self, parts: list[Token]) -> tuple[int, ...]:
        return tuple(map(int, parts))

    def group_list(self, parts: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        return tuple(parts)

    def mesh_groups(self, parts: list[Any]) -> type[Verbatim]:
        return Verbatim

    def iota(self, parts: list[Any]) -> IotaList:
        return IotaList(*parts)

    def dims(self, parts: list[Token]) -> tuple[int, ...]:
        return tuple(map(int, parts))

    def transposed(self, parts: list[Token]) -> tuple[int, ...]:
        return tuple(map(int, parts))

    def slices(self, parts: list[SliceRange]) -> tuple[SliceRange, ...]:
        return tuple(parts)

    def slice_range(self, parts: list[Token]) -> SliceRange:
        return SliceRange(*map(int, parts))

    def window(self, parts: list[tuple[Token, list[tuple[int, ...]]]]) -> Window:
        fields: dict[str, list[tuple[int, ...]]] = {}
        rank = len(parts[0][1]) if parts else 0
        for key, values in parts:
            if key in fields:
                raise Problem(begin(key), f"{key} is given twice", width=len(key))
            if len(values) != rank:
                raise Problem(
                    begin(key), f"{key} has {len(values)} dimensions, not {rank}", width=len(key)
                )
            fields[str(key)] = values
        if parts and "size=" not in fields:
            raise Problem(begin(parts[0][0]), "a window needs size=", width=len(parts[0][0]))
        ones = [(1,)] * rank
        columns = (
            fields.get("size=", ones),
            fields.get("stride=", ones),
            fields.get("pad=", [(0, 0)] * rank),
            fields.get("lhs_dilate=", ones),
            fields.get("rhs_dilate=", ones),
            fields.get("rhs_reversal=", [(0,)] * rank),
        )
        return Window(
            tuple(
                WindowDim(size[0], stride[0], pad[0], pad[1], lhs[0], rhs[0], bool(reversal[0]))
                for size, stride, pad, lhs, rhs, reversal in zip(*columns, strict=True)
            )
        )

    def window_field(self, parts: list[Token]) -> tuple[Token, list[tuple[int, ...]]]:
        key, value = parts
        pairs = key == "pad="
        values = [tuple(map(int, part.split("_"))) for part in value.split("x")]
        if any(len(entry) != (2 if pairs else 1) for entry in values):
            wanted = "low_high pairs, as in 0_1x0_1" if pairs else "numbers, as in 3x3"
            raise Problem(begin(value), f"{key} wants {wanted}", width=len(value))
        return key, values

    def padding(self, parts: list[Token]) -> tuple[PaddingDim, ...]:
        return tuple(PaddingDim(*map(int, part.split("_"))) for part in parts[0].split("x"))

    def conv_dims(self, parts: list[Token]) -> ConvDims:
        return _conv_dims(parts[0])

    def called(self, parts: list[Any]) -> tuple[int, int]:
        value = parts[0]
        return value if isinstance(value, tuple) else (begin(value), end(value))

    def called_list(self, parts: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return parts

    def shape_list(self, parts: list[Shape]) -> tuple[Shape, ...]:
        return tuple(parts)

    def shaped_literal(self, parts: list[Any]) -> tuple[Shape, LiteralText]:
        return parts[0], parts[1]

    def names(self, parts: list[Token]) -> list[tuple[str, int]]:
        return [(str(part).lstrip("%"), begin(part)) for part in parts]

    def metadata(self, parts: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(parts)

    def metadata_field(self, parts: list[Any]) -> tuple[str, Any]:
        key, value = parts
        if key.type.endswith("TEXT_KEY"):
            return key[:-1], unquote(value)
        return key[:-1], value if isinstance(value, tuple) else int(value)

    def alias(self, parts: list[Any]) -> AliasEntry:
        index, parameter, parameter_index, *kind = parts
        return AliasEntry(index, int(parameter), parameter_index, str(kind[0]) if kind else "")

    def input_output_alias(self, parts: list[AliasEntry]) -> tuple[AliasEntry, ...]:
        return tuple(parts)

    def donor(self, parts: list[Any]) -> tuple[int, tuple[int, ...]]:
        return int(parts[0]), parts[1]

    def buffer_donor(self, parts: list[Any]) -> tuple[tuple[int, tuple[int, ...]], ...]:
        return tuple(parts)

    def entry_computation_layout(self, parts: list[Shape]) -> tuple[tuple[Shape, ...], Shape]:
        return tuple(parts[:-1]), parts[-1]

    def flags(self, parts: list[bool]) -> tuple[bool, ...]:
        return tuple(parts)


_MOST_SHAPES = 50_000
_DEEPEST_SHAPE = 64
_SCALAR = Layout(())
_DEFAULTS = {("S", "0"), ("E", "0"), ("L", "1"), ("M", "0")}


def _size(token: Token) -> int:
    size = int(token)
    if not 0 <= size < 1 << 63:
        raise Problem(begin(token), f"{token} is no dimension size", width=len(token))
    return size


def _depth(shape: Shape) -> int:
    """Levels of tuples; those inside were counted before, so that the recursion is bounded."""
    if not isinstance(shape, TupleShape):
        return 0
    return 1 + max(map(_depth, shape.elements), default=0)


def _flat(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        yield part.text if isinstance(part, LiteralText) else str(part)


def _conv_dims(token: Token) -> ConvDims:
    lhs_rhs, _, out = str(token).partition("->")
    lhs, _, rhs = lhs_rhs.partition("_")
    for labels, letters in ((lhs, "bf"), (rhs, "io"), (out, "bf")):
        known = [label for label in labels if label != "?"]
        spatial = sorted(label for label in known if label.isdigit())
        complete = all(known.count(letter) == 1 for letter in letters)
        if not complete or spatial != [str(axis) for axis in range(len(spatial))]:
            raise Problem(
                begin(token) + str(token).index(labels),
                f"{labels!r} must have {letters[0]}, {letters[1]} and the spatial digits from 0, once each",
                width=len(labels),
            )
    if not len(lhs.replace("?", "")) == len(rhs.replace("?", "")) == len(out.replace("?", "")):
        raise Problem(begin(token), "the three parts have different ranks", width=len(token))

    def spatial_of(labels: str) -> tuple[int, ...]:
        digits = sorted(label for label in labels if label.isdigit())
        return tuple(labels.index(digit) for digit in digits)

    return ConvDims(
        lhs.index("b"),
        lhs.index("f"),
        spatial_of(lhs),
        rhs.index("i"),
        rhs.index("o"),
        spatial_of(rhs),
        out.index("b"),
        out.index("f"),
        spatial_of(out),
        str(token),
    )
