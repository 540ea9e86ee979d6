"""Random modules in which every opcode occurs, each as often as the others.

What ``random_modules`` puts together (control flow, fusions, views, updates) is joined by forms: those of ``forms.txt``,
and every elementwise op of every element type that takes it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from math import prod
from pathlib import Path

from hloopt.errors import ShapeError
from hloopt.ops import OPS, InferArgs
from hloopt.text.grammar import read
from hloopt.types import DTYPES, ArrayShape, Shape, TupleShape, array
from tests.properties.random_modules import DIMS, TYPES, Kind, Scope, _csv, _Generator

__all__ = ["OPCODES", "campaign_module", "forms"]

OPCODES = tuple(OPS)
_LINE = re.compile(r"(?:(\w+) = )?(.*)", re.DOTALL)
_SIGNATURE = re.compile(r"<(?![=0-9])((?:[^<>]|<=[0-9])*?)->((?:[^<>]|<=[0-9])*?)>")
_NAMED = re.compile(r"@([a-z-]+)((?:\.[a-z0-9]+)+)")
_DIRECTIONS = {"lt": "LT", "gt": "GT", "ge": "GE"}
_MOST = 2048  # elements of a value that others are made of
_RESULTS = 12
# What makes a value of another type out of one of these.
_PARTS = {"c64": "f32", "c128": "f64"}


@cache
def forms() -> dict[str, list[list[str]]]:
    """The forms of ``forms.txt`` by each opcode in them."""
    found: dict[str, list[list[str]]] = {}
    text = Path(__file__).with_name("forms.txt").read_text()
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        for opcode in {_split(line)[2] for line in lines}:
            found.setdefault(opcode, []).append(lines)
    return found


@cache
def elementwise() -> dict[str, list[tuple[str, ...]]]:
    """Element types of result and operands of each elementwise op that its row accepts."""
    names = [name for name, row in DTYPES.items() if row.is_array]
    return {
        opcode: [row for name in names for row in _typings(opcode, name)]
        for opcode, op in OPS.items()
        if op.is_elementwise
    }


def _typings(opcode: str, name: str) -> list[tuple[str, ...]]:
    low, high = OPS[opcode].arity
    operands = {
        "select": ("pred", name, name),
        "stochastic-convert": (name, f"u{DTYPES[name].bits}"),
    }.get(opcode, (name,) * min(max(low, 1), high))
    if any(operand not in DTYPES for operand in operands):
        return []
    attributes = {"direction": "LT"} if opcode == "compare" else {}
    if opcode == "reduce-precision":
        attributes = {"exponent_bits": 5, "mantissa_bits": 2}
    results = [None, *map(array, TYPES[2:])] if opcode in _DECLARED else [None]
    found = []
    for declared in results:
        shapes = tuple(map(array, operands))
        try:
            result = OPS[opcode].infer(InferArgs(opcode, shapes, attributes, {}, declared))
        except ShapeError:
            continue
        if isinstance(result, ArrayShape):
            found.append((result.dtype.name, *operands))
    return found


_DECLARED = ("convert", "stochastic-convert")


def _split(line: str) -> tuple[str, str, str, list[str], str]:
    """Name, shape, opcode, operands and attributes of a line of a form."""
    name, rest = _LINE.fullmatch(line).groups()
    shape, rest = _whole(rest, " ")
    opcode, rest = rest.strip().split("(", 1)
    inside, attributes = _whole(rest, ")")
    operands = []
    while inside:
        operand, inside = _whole(inside, ",")
        operands.append(operand.strip())
        inside = inside[1:]
    return name or "", shape.strip(), opcode, operands, attributes[1:]


def _whole(text: str, end: str) -> tuple[str, str]:
    """What comes before a character outside of brackets, and the rest from it on."""
    depth = 0
    for at, character in enumerate(text):
        if character == end and not depth:
            return text[:at], text[at:]
        depth += (character in "([{") - (character in ")]}")
    return text, ""


class _Forms(_Generator):
    """Draws forms beside what it draws anyway; ``plain`` counts the fusions and regions around a step."""

    def __init__(self, chooser: random.Random) -> None:
        super().__init__(chooser)
        self.plain = 0
        self.raw: list[tuple[str, str]] = []

    def step(self, scope: Scope, depth: int) -> None:
        if self.plain or self.chooser.random() < 0.6:
            super().step(scope, 2 if self.plain else depth)
        else:
            self.form(scope, self.chooser.choice(OPCODES), depth)

    def fuse(self, scope: Scope, depth: int) -> None:
        self.within(lambda: super(_Forms, self).fuse(scope, depth))

    def within(self, make: Callable[[], object]) -> None:
        self.plain += 1
        try:
            make()
        finally:
            self.plain -= 1

    def form(self, scope: Scope, opcode: str, depth: int) -> str | None:
        """An instruction of an opcode in one of its forms; None for those that the steps draw."""
        typings = elementwise().get(opcode)
        texts = forms().get(opcode)
        if typings and not (texts and self.chooser.random() < 0.3):
            return self.element_form(scope, opcode, typings)
        if not texts:
            return None
        names: dict[str, str] = {}
        lines = self.chooser.choice(texts)
        for line in lines:
            label, shape, opcode, operands, attributes = _split(line)
            if opcode == "constant":
                given = operands
            else:
                given = [names.get(one) or self.shaped(scope, one) for one in operands]
            attributes = _NAMED.sub(
                lambda found: self.applying(found[1], found[2][1:].split(".")), attributes
            )
            attributes = _SIGNATURE.sub(
                lambda found: self.signature(found[1], found[2]), attributes
            )
            name = scope.add(shape, f"{opcode}({', '.join(given)}){attributes}")
            names[label] = name
        self.keep(scope, name, read("shape", shape))
        return name

    def element_form(self, scope: Scope, opcode: str, typings: list[tuple[str, ...]]) -> str:
        result, *operands = self.chooser.choice(typings)
        dims = self.chooser.choice(DIMS)
        given = [self.shaped(scope, str(Kind(name, dims))) for name in operands]
        attributes = ""
        if opcode == "compare":
            attributes = f", direction={self.chooser.choice(('EQ', 'NE', 'LT', 'LE', 'GT', 'GE'))}"
        elif opcode == "reduce-precision":
            attributes = f", exponent_bits={self.chooser.randint(1, 8)}, mantissa_bits={self.chooser.randint(0, 8)}"
        kind = Kind(result, dims)
        name = scope.add(str(kind), f"{opcode}({', '.join(given)}){attributes}")
        self.keep(scope, name, array(result, dims))
        return name

    # ---- values of any shape --------------------------------------------------------------------------

    def shaped(self, scope: Scope, text: str) -> str:
        return self.value(scope, read("shape", text))

    def value(self, scope: Scope, shape: Shape) -> str:
        """A value of a shape, made of one there is."""
        if isinstance(shape, TupleShape):
            parts = [self.value(scope, element) for element in shape.elements]
            return scope.add(str(shape), f"tuple({', '.join(parts)})")
        assert isinstance(shape, ArrayShape)
        if not shape.dtype.is_array:
            return scope.add(str(shape), "after-all()")
        name = self.array(scope, Kind(shape.dtype.name, shape.dims))
        return (
            name
            if shape.layout is None or shape.layout.is_descending
            else scope.add(str(shape), f"copy({name})")
        )

    def array(self, scope: Scope, kind: Kind) -> str:
        if scope.values.get(kind) and self.chooser.random() < 0.5:
            return self.pick(scope, kind)
        if not scope.order or self.chooser.random() < 0.1:
            return self.filled(scope, kind)
        name, given = self.any(scope)
        have, want = prod(given.dims), prod(kind.dims)
        if have == 0 or want > _MOST:
            return self.filled(scope, kind)
        if given.dims != kind.dims:
            name = scope.add(f"{given.element}[{have}]", f"reshape({name})")
            name = self.resized(scope, name, given.element, have, want)
            name = scope.add(str(Kind(given.element, kind.dims)), f"reshape({name})")
        return self.converted(scope, name, given.element, kind)

    def resized(self, scope: Scope, name: str, element: str, have: int, want: int) -> str:
        if have > want:
            start = self.chooser.randint(0, have - want)
            return scope.add(
                f"{element}[{want}]", f"slice({name}), slice={{[{start}:{start + want}]}}"
            )
        if have < want:
            first = scope.add(f"{element}[1]", f"slice({name}), slice={{[0:1]}}")
            filler = scope.add(f"{element}[]", f"reshape({first})")
            return scope.add(
                f"{element}[{want}]", f"pad({name}, {filler}), padding=0_{want - have}"
            )
        return name

    def converted(self, scope: Scope, name: str, element: str, kind: Kind) -> str:
        if element == kind.element:
            return name
        part = _PARTS.get(kind.element)
        if part is not None:
            real = (
                name
                if element == part
                else scope.add(str(Kind(part, kind.dims)), f"convert({name})")
            )
            return scope.add(str(kind), f"complex({real}, {real})")
        return scope.add(str(kind), f"convert({name})")

    def filled(self, scope: Scope, kind: Kind) -> str:
        scalar = scope.add(f"{kind.element}[]", f"constant({self.number(kind.element)})")
        return (
            scope.add(str(kind), f"broadcast({scalar}), dimensions={{}}") if kind.dims else scalar
        )

    def number(self, element: str) -> str:
        row = DTYPES[element]
        if row.is_pred:
            return self.chooser.choice(("false", "true"))
        if element == "f8e8m0fnu":
            return self.chooser.choice(("1", "2", "0.5"))
        signed = ("0", "1", "-1") if row.bits > 1 else ("0", "-1")
        number = self.chooser.choice(("0", "1") if row.kind == "unsigned" else signed)
        return f"({number}, 1)" if row.is_complex else number

    def keep(self, scope: Scope, name: str, shape: Shape) -> None:
        """Let results be used by what follows, and be results of the module."""
        if isinstance(shape, TupleShape):
            for index, element in enumerate(shape.elements):
                self.keep(
                    scope,
                    scope.add(str(element), f"get-tuple-element({name}), index={index}"),
                    element,
                )
            return
        if not isinstance(shape, ArrayShape) or not shape.dtype.is_array:
            return
        if any(shape.dynamic or ()):
            dims = shape.dims
            for axis in range(len(dims)):
                size = scope.add("s32[]", f"constant({dims[axis]})")
                shape = ArrayShape(
                    shape.dtype,
                    dims,
                    None,
                    tuple(mark and at > axis for at, mark in enumerate(shape.dynamic)),
                )
                if not any(shape.dynamic):
                    shape = array(shape.dtype.name, dims)
                name = scope.add(
                    str(shape), f"set-dimension-size({name}, {size}), dimensions={{{axis}}}"
                )
        self.raw.append((name, str(shape)))
        element, dims = shape.dtype.name, shape.dims
        if shape.dtype.is_complex:
            element = _PARTS[element]
            name = scope.add(f"{element}[{_csv(dims)}]", f"real({name})")
        if len(dims) > 2:
            dims = (prod(dims),)
            name = scope.add(f"{element}[{dims[0]}]", f"reshape({name})")
        if element not in TYPES:
            element = self.chooser.choice(TYPES[2:])
            name = scope.add(f"{element}[{_csv(dims)}]", f"convert({name})")
        kind = Kind(element, dims)
        scope.values.setdefault(kind, []).append(name)
        scope.order.append((name, kind))

    # ---- computations ---------------------------------------------------------------------------------

    def applying(self, opcode: str, elements: list[str]) -> str:
        """A computation that applies an opcode, or a comparison, to two scalars: to the first pair of as many."""
        scope = Scope()
        pairs = [
            scope.add(f"{name}[]", f"parameter({2 * at + side})")
            for at, name in enumerate(elements)
            for side in (0, 1)
        ]
        if opcode in _DIRECTIONS:
            root = scope.add(
                "pred[]", f"compare({pairs[0]}, {pairs[1]}), direction={_DIRECTIONS[opcode]}"
            )
        else:
            root = self.folded(scope, opcode, elements, pairs)
        return self.close(scope, self.fresh("applying"), root)

    def folded(self, scope: Scope, opcode: str, elements: list[str], pairs: list[str]) -> str:
        if len(elements) == 1:
            return scope.add(f"{elements[0]}[]", f"{opcode}({pairs[0]}, {pairs[1]})")
        ends = [
            scope.add(f"{name}[]", f"{opcode}(v{at}, v{len(elements) + at})")
            for at, name in enumerate(elements)
        ]
        for at, name in enumerate(elements):
            scope.lines[at] = f"v{at} = {name}[] parameter({at})"
            scope.lines[len(elements) + at] = (
                f"v{len(elements) + at} = {name}[] parameter({len(elements) + at})"
            )
        return scope.add(
            f"({', '.join(f'{name}[]' for name in elements)})", f"tuple({', '.join(ends)})"
        )

    def signature(self, parameters: str, result: str) -> str:
        """A computation of a few random steps, or of one instruction."""
        scope, rest = Scope(), parameters.strip()
        result, _, single = result.partition(":=")
        number = 0
        while rest:
            shape, rest = _whole(rest, " ")
            rest = rest.strip()
            self.parameter(scope, read("shape", shape), number)
            number += 1
        if single:
            opcode, comma, attributes = single.strip().partition(",")
            operands = ", ".join(f"v{at}" for at in range(number))
            root = scope.add(result.strip(), f"{opcode}({operands}){comma}{attributes}")
            return self.close(scope, self.fresh("single"), root)
        raw, self.raw = self.raw, []
        self.within(lambda: self.grow(scope, self.chooser.randint(0, 2), 2))
        self.raw = raw
        root = self.value(scope, read("shape", result.strip()))
        if root in {f"v{at}" for at in range(number)}:
            root = self.again(scope, root, read("shape", result.strip()))
        return self.close(scope, self.fresh("signature"), root)

    def again(self, scope: Scope, name: str, shape: Shape) -> str:
        return name if isinstance(shape, TupleShape) else scope.add(str(shape), f"copy({name})")

    def parameter(self, scope: Scope, shape: Shape, number: int) -> None:
        if isinstance(shape, ArrayShape) and shape.dtype.name in TYPES and shape.rank < 3:
            scope.add(Kind(shape.dtype.name, shape.dims), f"parameter({number})")
            return
        name = scope.add(str(shape), f"parameter({number})")
        raw, self.raw = self.raw, []
        self.keep(scope, name, shape)
        self.raw = raw


def campaign_module(chooser: random.Random, opcode: str, steps: int = 8) -> str:
    """A module that has ``opcode`` in it, if any form or step draws it, and a few other things."""
    generator, scope = _Forms(chooser), Scope()
    for number in range(chooser.randint(2, 4)):
        scope.add(generator.kind(), f"parameter({number})")
    before = chooser.randint(0, steps // 2)
    generator.grow(scope, before, 0)
    generator.raw.clear()
    generator.form(scope, opcode, 0)
    own, generator.raw = generator.raw, []
    generator.grow(scope, chooser.randint(0, steps - before), 0)
    names = {line.partition(" = ")[0] for line in scope.lines}
    kept = [(name, shape) for name, shape in own if name in names]
    results = [generator.any(scope) for _ in range(chooser.randint(1, 4))]
    results += chooser.sample(kept, min(len(kept), _RESULTS))
    root, _ = generator.tuple_of(scope, results)
    generator.close(scope, "ENTRY main", root)
    return "HloModule random\n" + "\n".join(generator.computations) + "\n"
