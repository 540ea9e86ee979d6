"""The rules of ``shapes.lark`` and ``literals.lark``: one method a rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hloopt.text.problem import Problem, type_meant
from hloopt.text.records import LiteralText, Token, integer, integers
from hloopt.types import DTYPES, UNBOUNDED, ArrayShape, BufferShape, Layout, TupleShape

__all__ = ["DEEPEST_SHAPE", "MOST_SHAPES", "ShapeRules"]

_DEEPEST = 64
DEEPEST_SHAPE = 64
MOST_SHAPES = 50_000
_HUGE = 1 << 63
_SCALAR = Layout(())
_DEFAULTS = {"S(0)", "E(0)", "L(1)", "M(0)"}


class ShapeRules:
    """Shapes, layouts, and literals that have no shape yet.

    Equal tuples are one object: what is found out about one need not be found out again for each place
    where it stands, of which nested ones have many.
    """

    def __init__(self) -> None:
        self._tuples: dict[TupleShape, TupleShape] = {}

    # ---- shapes ----

    def array_shape(self, parts: list[Any]) -> ArrayShape:
        name, *rest = parts
        layout = None
        offset = name.begin
        if rest and isinstance(rest[-1], tuple) and isinstance(rest[-1][0], Layout):
            layout, offset = rest.pop()
        dims = tuple(size for size, _ in rest)
        dynamic = tuple(mark for _, mark in rest)
        return _array(str(name), name.begin, dims, dynamic if any(dynamic) else (), layout, offset)

    def plain_array(self, parts: list[Token]) -> ArrayShape:
        token = parts[0]
        name, _, rest = token.partition("[")
        sizes, _, order = rest.partition("]")
        dims = tuple(map(int, sizes.split(","))) if sizes else ()
        start = token.begin
        if max(dims, default=0) >= _HUGE:
            raise Problem(start, f"{max(dims)} is not a dimension size", token)
        layout = Layout(tuple(map(int, order[1:-1].split(",")))) if order else None
        return _array(name, start, dims, (), layout, start + len(token) - len(order))

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
        if shape.depth > DEEPEST_SHAPE:
            raise Problem(
                parts[0].begin, f"a shape is nested more than {DEEPEST_SHAPE} levels deep"
            )
        if len(self._tuples) >= MOST_SHAPES:
            self._tuples.clear()
        return self._tuples.setdefault(shape, shape)

    def buffer_shape(self, parts: list[Any]) -> BufferShape:
        return BufferShape(parts[-1])

    def layout(self, parts: list[Any]) -> tuple[Layout, int]:
        opening, order, *rest = parts
        pieces = rest[0] if rest else []
        numbers = {piece[0]: piece[2:-1] for piece in pieces if piece[1] == "("}
        suffix = "".join(piece for piece in pieces if piece not in _DEFAULTS)
        space, bits = (int(numbers.get(letter, 0)) for letter in "SE")
        return Layout(order, suffix, space, bits), opening.begin

    def order(self, parts: list[Token]) -> tuple[int, ...]:
        return integers(parts)

    def suffix(self, parts: list[list[Any]]) -> list[str]:
        return ["".join(_written(piece)) for piece in parts]

    def split(self, parts: list[Token]) -> list[str]:
        first, *rest = map(str, integers(parts))
        return [f"SC({first}:{','.join(rest)})"]

    # ---- literals ----

    def element(self, parts: list[Token]) -> LiteralText:
        return LiteralText("element", parts[0].begin, str(parts[0]))

    def elided(self, parts: list[Token]) -> LiteralText:
        return LiteralText("elided", parts[0].begin, "")

    def dense(self, parts: list[Token]) -> LiteralText:
        return LiteralText("dense", parts[0].begin, str(parts[0]))

    def several(self, parts: list[LiteralText]) -> LiteralText:
        offset = parts[0].offset if parts else 0
        depth = 1 + max((part.depth for part in parts), default=0)
        if depth > _DEEPEST:
            raise Problem(offset, f"a literal is nested more than {_DEEPEST} levels deep")
        return LiteralText("several", offset, "", tuple(parts), depth)

    def literal(self, parts: list[LiteralText]) -> LiteralText:
        return parts[0]

    def deep_array(self, parts: list[Any]) -> LiteralText:
        depth = 1 + max((part.depth for part in parts if isinstance(part, LiteralText)), default=0)
        if depth > _DEEPEST:
            raise Problem(parts[0].begin, f"a literal is nested more than {_DEEPEST} levels deep")
        text = "".join(_flat(parts))
        return LiteralText("dense", parts[0].begin, text, depth=depth)

    def complex(self, parts: list[Token]) -> str:
        return "".join(parts)


def _array(
    name: str,
    start: int,
    dims: tuple[int, ...],
    dynamic: tuple[bool, ...],
    layout: Layout | None,
    layout_start: int,
) -> ArrayShape:
    element = DTYPES.get(name)
    if element is None:
        raise Problem(start, f"unknown element type {name!r}{type_meant(name, DTYPES)}", name)
    if not element.is_array and dims:
        raise Problem(start, f"{name} has no dimensions", name)
    if layout is None:
        return ArrayShape(element, dims, None if dims else _SCALAR, dynamic)
    order, rank = layout.minor_to_major, len(dims)
    if len(order) != rank:
        raise Problem(
            layout_start, f"the layout orders {len(order)} dimensions, the shape has {rank}"
        )
    if sorted(order) != list(range(rank)):
        raise Problem(layout_start, "the layout is not a permutation of the dimensions")
    return ArrayShape(element, dims, layout, dynamic)


def _size(token: Token) -> int:
    size = integer(token)
    if size < 0:
        raise Problem(token.begin, f"{token} is not a dimension size", token)
    return size


def _flat(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        yield part.text if isinstance(part, LiteralText) else str(part)


def _written(piece: list[Any]) -> Iterator[str]:
    for part in piece:
        if isinstance(part, list):
            yield from _written(part)
        elif isinstance(part, Token) and part.lstrip("-").isdecimal():
            yield str(integer(part))
        else:
            yield str(part)
