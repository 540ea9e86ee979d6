"""The rules of ``attributes.lark``: one method a rule."""

from __future__ import annotations

from math import isinf
from typing import Any

from hloopt.text.problem import Problem
from hloopt.text.records import LiteralText, Token, integer, integers
from hloopt.text.sharding_rules import ShardingRules
from hloopt.types import (
    AliasEntry,
    ConvDims,
    Origin,
    OriginalArray,
    OriginTree,
    PaddingDim,
    Recovery,
    Shape,
    SliceRange,
    Text,
    TupleShape,
    Window,
    WindowDim,
)
from hloopt.types.strings import unquote

__all__ = ["ValueRules"]


_DEEPEST = 64


class ValueRules(ShardingRules):
    """Values of attributes."""

    def integer(self, parts: list[Token]) -> int:
        return integer(parts[0])

    def float(self, parts: list[Token]) -> float:
        token = parts[0]
        value = float(token.partition("(")[0])
        if isinf(value) and "inf" not in token:
            raise Problem(token.begin, "the number is out of range", token)
        return value

    def boolean(self, parts: list[Token]) -> bool:
        return bool(parts[0] == "true")

    def word(self, parts: list[Token]) -> str:
        return str(parts[0])

    def string(self, parts: list[Token]) -> Text:
        return Text(unquote(parts[0]))

    def integers(self, parts: list[Token]) -> tuple[int, ...]:
        return integers(parts)

    def group_list(self, parts: list[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    slices = shape_list = buffer_donor = group_list
    input_output_alias = output_to_operand_aliasing = group_list
    flags = parameter_replication = original_tuple = origin_recovery_table = statistics = group_list

    def slice_range(self, parts: list[Token]) -> SliceRange:
        return SliceRange(*integers(parts))

    def window(self, parts: list[tuple[Token, list[tuple[int, ...]]]]) -> Window:
        fields: dict[str, list[tuple[int, ...]]] = {}
        sizes = [len(values) for key, values in parts if key == "size="]
        if parts and not sizes:
            raise Problem(parts[0][0].begin, "a window needs size=", parts[0][0])
        rank = sizes[0] if sizes else 0
        for key, values in parts:
            if key in fields:
                raise Problem(key.begin, f"{key} is given twice", key)
            if len(values) != rank and key != "rhs_reversal=":
                raise Problem(key.begin, f"{key} has {len(values)} dimensions, not {rank}", key)
            fields[str(key)] = values
        ones = [(1,)] * rank
        columns = (
            fields.get("size=", ones),
            fields.get("stride=", ones),
            fields.get("pad=", [(0, 0)] * rank),
            fields.get("lhs_dilate=", ones),
            fields.get("rhs_dilate=", ones),
            # As many as there are: XLA does not count them.
            (fields.get("rhs_reversal=", []) + [(0,)] * rank)[:rank],
        )
        return Window(
            tuple(
                WindowDim(size[0], stride[0], pad[0], pad[1], lhs[0], rhs[0], reversal[0] == 1)
                for size, stride, pad, lhs, rhs, reversal in zip(*columns, strict=True)
            )
        )

    def window_field(self, parts: list[Token]) -> tuple[Token, list[tuple[int, ...]]]:
        key, value = parts
        pairs = key == "pad="
        values = _columns(value)
        if any(len(entry) != (2 if pairs else 1) for entry in values):
            wanted = "low_high pairs, as in 0_1x0_1" if pairs else "numbers, as in 3x3"
            raise Problem(value.begin, f"{key} wants {wanted}", value)
        return key, values

    def padding(self, parts: list[Token]) -> tuple[PaddingDim, ...]:
        return tuple(PaddingDim(*column) for column in _columns(parts[0]))

    def conv_dims(self, parts: list[Token]) -> ConvDims:
        return _conv_dims(parts[0])

    def called(self, parts: list[Any]) -> tuple[int, int]:
        value = parts[0]
        return value if isinstance(value, tuple) else (value.begin, value.end)

    def shaped_literal(self, parts: list[Any]) -> tuple[Shape, LiteralText]:
        return parts[0], parts[1]

    def shaped_tuple(self, parts: list[tuple[Shape, LiteralText]]) -> tuple[Shape, LiteralText]:
        shapes, elements = [shape for shape, _ in parts], [element for _, element in parts]
        return TupleShape(tuple(shapes)), LiteralText("several", 0, "", tuple(elements))

    def names(self, parts: list[Token]) -> list[tuple[str, int]]:
        return [(str(part).lstrip("%"), part.begin) for part in parts]

    def metadata(self, parts: list[tuple[str, Any]]) -> dict[str, Any]:
        return dict(parts)

    def metadata_field(self, parts: list[Any]) -> tuple[str, Any]:
        key, value = parts
        if key.type.endswith("TEXT_KEY"):
            return key[:-1], unquote(value)
        if key.type.endswith("OTHER_KEY"):
            return key[:-1], str(value)
        return key[:-1], value if isinstance(value, tuple) else integer(value)

    def alias(self, parts: list[Any]) -> AliasEntry:
        index, parameter, parameter_index, *kind = parts
        return AliasEntry(index, integer(parameter), parameter_index, str(kind[0]) if kind else "")

    def short_alias(self, parts: list[Any]) -> AliasEntry:
        return AliasEntry(parts[0], integer(parts[1]), (), "")

    def donor(self, parts: list[Any]) -> tuple[int, tuple[int, ...]]:
        return integer(parts[0]), parts[1]

    def entry_computation_layout(self, parts: list[Shape]) -> tuple[tuple[Shape, ...], Shape]:
        return tuple(parts[:-1]), parts[-1]

    def frontend_attribute(self, parts: list[Any]) -> tuple[str, int, int]:
        name, value = parts
        return str(name), *(value if isinstance(value, tuple) else (value.begin, value.end))

    def origin(self, parts: list[OriginTree]) -> Origin | None:
        level: list[OriginTree] = parts
        for _ in range(_DEEPEST):
            level = [inner for tree in level if isinstance(tree, tuple) for inner in tree]
        if level:
            raise Problem(0, f"an origin is nested more than {_DEEPEST} levels deep")
        return Origin(parts[0]) if parts else None

    def synthetic_origin(self, parts: list[Token]) -> Origin:
        return Origin()

    def original(self, parts: list[Any]) -> OriginalArray:
        return OriginalArray(unquote(parts[0]), *parts[1:]) if parts else OriginalArray()

    def recovery(self, parts: list[Any]) -> Recovery:
        old, new, *module = parts
        return Recovery(old, new, *map(unquote, module))

    def operand_precision(self, parts: list[Token]) -> tuple[str, ...]:
        return tuple(map(str, parts))

    def result_accuracy(self, parts: list[Any]) -> tuple[tuple[str, str], ...]:
        """Names and numbers of tolerances, or the name of the mode."""
        return tuple(parts) if isinstance(parts[0], tuple) else (("mode", str(parts[0])),)

    def tolerance(self, parts: list[Token]) -> tuple[str, str]:
        return str(parts[0]), str(parts[1])

    statistic = tolerance

    def sparsity_config(
        self, parts: list[tuple[str, dict[str, tuple[int, ...]]]]
    ) -> dict[str, dict[str, tuple[int, ...]]]:
        """Numbers by side and by name: of ``rhs={sparsity=1x2}`` 1 and 2."""
        return dict(parts)

    def sparsity(self, parts: list[Token]) -> tuple[str, dict[str, tuple[int, ...]]]:
        side, *fields = parts
        keys, values = fields[::2], fields[1::2]
        numbers = [tuple(column[0] for column in _columns(value)) for value in values]
        return side[:-1], {key[:-1]: value for key, value in zip(keys, numbers, strict=True)}

    def backend_config(self, parts: list[Any]) -> None:
        """Taken as it is."""

    raw = backend_config


def _columns(token: Token) -> list[tuple[int, ...]]:
    """``0_1x2_3`` by dimension."""
    columns, at = [], token.begin
    for part in token.split("x"):
        values = []
        for digits in part.split("_"):
            values.append(integer(digits, at))
            at += len(digits) + 1
        columns.append(tuple(values))
    return columns


def _conv_dims(token: Token) -> ConvDims:
    lhs_rhs, _, out = str(token).partition("->")
    lhs, _, rhs = lhs_rhs.partition("_")
    for labels, letters in ((lhs, "bf"), (rhs, "io"), (out, "bf")):
        known = [label for label in labels if label != "?"]
        spatial = sorted(label for label in known if label.isdigit())
        complete = all(known.count(letter) == 1 for letter in letters)
        if not complete or spatial != [str(axis) for axis in range(len(spatial))]:
            raise Problem(
                token.begin + str(token).index(labels),
                f"{labels!r} must have {letters[0]}, {letters[1]} and the spatial digits from 0, once each",
                labels,
            )
    if not len(lhs.replace("?", "")) == len(rhs.replace("?", "")) == len(out.replace("?", "")):
        raise Problem(token.begin, "the three parts have different ranks", token)

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
