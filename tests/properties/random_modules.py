"""Random modules: control flow, fusions, views, updates in place, reductions, tuples, several types.

``module_text(chooser)`` draws from a ``random.Random``, or from one of hypothesis that shrinks.  Every
text is a valid module that ends: loops count to a small constant.  Types, dimensions, numbers and ops are
few, so that values meet others they can be used with; what matters is how they are put together.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import prod

__all__ = ["module_text"]

TYPES = ("f32", "f32", "f32", "s32", "bf16", "pred", "u8")
DIMS = ((), (3,), (6,), (2, 3), (3,), (6,), (3, 2), (1, 3), (0, 3))
NUMBERS = {"f32": ("0", "-0", "1", "-1", "0.5", "3.25", "inf", "nan"),
           "bf16": ("0", "-0", "1", "2", "0.125"), "s32": ("0", "1", "-1", "2", "-2147483648"),
           "u8": ("0", "1", "4", "255"), "pred": ("false", "true")}  # fmt: skip
UNARY = {"f32": ("negate", "abs", "floor", "sign", "copy"), "bf16": ("negate", "abs", "sign"),
         "s32": ("negate", "abs", "not", "sign"), "u8": ("negate", "not"), "pred": ("not",)}  # fmt: skip
FLOATS = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power")
INTEGERS = ("add", "subtract", "multiply", "and", "or", "xor", "maximum", "minimum",
            "shift-right-logical", "divide", "remainder")  # fmt: skip
BINARY = {"f32": FLOATS, "bf16": FLOATS, "s32": INTEGERS, "u8": INTEGERS,
          "pred": ("and", "or", "xor", "add", "multiply")}  # fmt: skip
REDUCERS = {"f32": ("add", "maximum"), "bf16": ("minimum",), "s32": ("add", "multiply", "or"),
            "u8": ("add", "maximum"), "pred": ("and", "or")}  # fmt: skip
_COUNTS = ((0, 1, "LT", 3), (0, 1, "LT", 3), (4, -2, "GE", 1), (0, 2, "LE", 9), (2, -1, "GT", 0), (7, 3, "LE", 13),
           (250, 4, "NE", 2), (5, 251, "NE", 246))  # fmt: skip
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")


_NAME = re.compile(r"\bv[0-9]+\b")


@dataclass(frozen=True)
class Kind:
    """An element type with dimensions."""

    element: str
    dims: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.element}[{','.join(map(str, self.dims))}]"


@dataclass
class Scope:
    """One computation: its lines and the arrays that can be used in it."""

    lines: list[str] = field(default_factory=list)
    values: dict[Kind, list[str]] = field(default_factory=dict)
    order: list[tuple[str, Kind]] = field(default_factory=list)

    def add(self, kind: Kind | str, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {kind} {text}")
        if isinstance(kind, Kind):
            self.values.setdefault(kind, []).append(name)
            self.order.append((name, kind))
        return name


class _Generator:
    def __init__(self, chooser: random.Random) -> None:
        self.chooser = chooser
        self.computations: list[str] = []
        self.reducers: dict[tuple[str, str], str] = {}

    def close(self, scope: Scope, name: str, root: str) -> str:
        """Write a computation; ``root`` is one of its lines."""
        lines = [f"ROOT {line}" if line.startswith(f"{root} =") else line for line in scope.lines]
        self.computations.append(f"{name} {{\n" + "\n".join(lines) + "\n}")
        return name

    def fresh(self, stem: str) -> str:
        return f"{stem}{len(self.computations)}"

    def kind(self) -> Kind:
        return Kind(self.chooser.choice(TYPES), self.chooser.choice(DIMS))

    def pick(self, scope: Scope, kind: Kind) -> str:
        """An array of a kind, which is made of a constant or of others where there is none."""
        names = scope.values.get(kind)
        if names and self.chooser.random() < 0.9:
            return self.chooser.choice(names[-4:] + names)
        if self.chooser.random() < 0.5:
            return self.constant(scope, kind)
        source = scope.values.get(Kind(kind.element, ()))
        scalar = (
            self.chooser.choice(source) if source else self.constant(scope, Kind(kind.element, ()))
        )
        return scope.add(kind, f"broadcast({scalar}), dimensions={{}}") if kind.dims else scalar

    def constant(self, scope: Scope, kind: Kind) -> str:
        """One number, in all elements."""
        number = self.chooser.choice(NUMBERS[kind.element])
        scalar = scope.add(Kind(kind.element, ()), f"constant({number})")
        return scope.add(kind, f"broadcast({scalar}), dimensions={{}}") if kind.dims else scalar

    def any(self, scope: Scope) -> tuple[str, Kind]:
        """An array, one of the last ones more often than not."""
        recent = scope.order[-6:] if self.chooser.random() < 0.7 else scope.order
        return self.chooser.choice(recent)

    def index(self, scope: Scope) -> str:
        return self.pick(scope, Kind("s32", ()))

    def step(self, scope: Scope, depth: int) -> None:
        forms: list[Callable[[Scope], None]] = [
            self.unary, self.binary, self.binary, self.select, self.compare, self.convert,
            self.move, self.move, self.move, self.cut, self.update, self.update, self.reduce,
            self.pack, self.count, self.join,
        ]  # fmt: skip
        if depth < 2:
            forms += [
                lambda inner: self.fuse(inner, depth),
                lambda inner: self.call(inner, depth),
                lambda inner: self.branch(inner, depth),
                lambda inner: self.loop(inner, depth),
                lambda inner: self.loop(inner, depth),
            ]
        self.chooser.choice(forms)(scope)

    def unary(self, scope: Scope) -> None:
        name, kind = self.any(scope)
        scope.add(kind, f"{self.chooser.choice(UNARY[kind.element])}({name})")

    def binary(self, scope: Scope) -> None:
        name, kind = self.any(scope)
        constant = self.chooser.random() < 0.3
        pair = [name, self.constant(scope, kind) if constant else self.pick(scope, kind)]
        self.chooser.shuffle(pair)
        scope.add(kind, f"{self.chooser.choice(BINARY[kind.element])}({pair[0]}, {pair[1]})")

    def select(self, scope: Scope) -> None:
        name, kind = self.any(scope)
        predicate = self.pick(scope, Kind("pred", self.chooser.choice([kind.dims, ()])))
        scope.add(kind, f"select({predicate}, {self.pick(scope, kind)}, {name})")

    def compare(self, scope: Scope) -> None:
        name, kind = self.any(scope)
        direction = self.chooser.choice(DIRECTIONS)
        text = f"compare({name}, {self.pick(scope, kind)}), direction={direction}"
        scope.add(Kind("pred", kind.dims), text)

    def convert(self, scope: Scope) -> None:
        name, kind = self.any(scope)
        scope.add(Kind(self.chooser.choice(TYPES), kind.dims), f"convert({name})")

    def move(self, scope: Scope) -> None:
        """Transpose, reverse, reshape, broadcast or copy."""
        name, kind = self.any(scope)
        rank = len(kind.dims)
        order = list(range(rank))
        self.chooser.shuffle(order)
        if self.chooser.random() < 0.3:
            target = Kind(kind.element, (2, *kind.dims)[-2:] if rank else (3,))
            kept = range(len(target.dims) - rank, len(target.dims))
            scope.add(target, f"broadcast({name}), dimensions={{{_csv(kept)}}}")
        elif self.chooser.random() < 0.3:
            size = prod(kind.dims)
            fitting = [dims for dims in DIMS if prod(dims) == size] or [(size,)]
            scope.add(Kind(kind.element, self.chooser.choice(fitting)), f"reshape({name})")
        elif self.chooser.random() < 0.5:
            turned = Kind(kind.element, tuple(kind.dims[axis] for axis in order))
            scope.add(turned, f"transpose({name}), dimensions={{{_csv(order)}}}")
        else:
            axes = sorted(self.chooser.sample(order, self.chooser.randint(0, rank)))
            scope.add(kind, f"reverse({name}), dimensions={{{_csv(axes)}}}")

    def ranges(self, kind: Kind) -> Iterator[tuple[int, int, int]]:
        for size in kind.dims:
            start = self.chooser.randint(0, size)
            yield start, self.chooser.randint(start, size), self.chooser.randint(1, 2)

    def cut(self, scope: Scope) -> None:
        """Slice or dynamic-slice."""
        name, kind = self.any(scope)
        ranges = list(self.ranges(kind))
        if self.chooser.random() < 0.5:
            dims = tuple(-(-(limit - start) // stride) for start, limit, stride in ranges)
            parts = ", ".join(f"[{a}:{b}:{c}]" for a, b, c in ranges)
            scope.add(Kind(kind.element, dims), f"slice({name}), slice={{{parts}}}")
        else:
            dims = tuple(limit - start for start, limit, _ in ranges)
            starts = "".join(f", {self.index(scope)}" for _ in dims)
            text = f"dynamic-slice({name}{starts}), dynamic_slice_sizes={{{_csv(dims)}}}"
            scope.add(Kind(kind.element, dims), text)

    def update(self, scope: Scope) -> None:
        name, kind = self.any(scope)
        smaller = [
            other for other in scope.values
            if other.element == kind.element and len(other.dims) == len(kind.dims)
            and all(a <= b for a, b in zip(other.dims, kind.dims, strict=True))
        ]  # fmt: skip
        part = self.pick(scope, self.chooser.choice(smaller))
        starts = "".join(f", {self.index(scope)}" for _ in kind.dims)
        scope.add(kind, f"dynamic-update-slice({name}, {part}{starts})")

    def reduce(self, scope: Scope) -> None:
        name, kind = self.any(scope)
        axes = [axis for axis in range(len(kind.dims)) if self.chooser.random() < 0.6]
        rest = tuple(size for axis, size in enumerate(kind.dims) if axis not in axes)
        region = self.reducer(kind.element, self.chooser.choice(REDUCERS[kind.element]))
        init = self.pick(scope, Kind(kind.element, ()))
        text = f"reduce({name}, {init}), dimensions={{{_csv(axes)}}}, to_apply={region}"
        scope.add(Kind(kind.element, rest), text)

    def reducer(self, element: str, opcode: str) -> str:
        key = (element, opcode)
        if key not in self.reducers:
            scope, kind = Scope(), Kind(element, ())
            pair = [scope.add(kind, f"parameter({number})") for number in (0, 1)]
            root = scope.add(kind, f"{opcode}({', '.join(pair)})")
            self.reducers[key] = self.close(scope, self.fresh("region"), root)
        return self.reducers[key]

    def count(self, scope: Scope) -> None:
        kind = Kind(self.chooser.choice(("f32", "s32", "u8")), self.chooser.choice(DIMS[1:]))
        axis = self.chooser.randrange(len(kind.dims))
        scope.add(kind, f"iota(), iota_dimension={axis}")

    def join(self, scope: Scope) -> None:
        """Concatenate or pad along the last dimension."""
        name, kind = self.any(scope)
        if not kind.dims:
            return
        if self.chooser.random() < 0.5:
            wider = Kind(kind.element, (*kind.dims[:-1], 2 * kind.dims[-1]))
            pair = f"{name}, {self.pick(scope, kind)}"
            scope.add(wider, f"concatenate({pair}), dimensions={{{len(kind.dims) - 1}}}")
        else:
            wider = Kind(kind.element, (*kind.dims[:-1], kind.dims[-1] + 1))
            padding = "x".join([*["0_0"] * (len(kind.dims) - 1), "1_0"])
            filler = self.pick(scope, Kind(kind.element, ()))
            scope.add(wider, f"pad({name}, {filler}), padding={padding}")

    def pack(self, scope: Scope) -> None:
        """A tuple, maybe twice the same value, taken apart again."""
        parts = [self.any(scope) for _ in range(self.chooser.randint(1, 3))]
        whole, _ = self.tuple_of(scope, parts, self.chooser.random() < 0.3)
        self.unpack(scope, whole, [kind for _, kind in parts])

    def tuple_of(
        self, scope: Scope, parts: list[tuple[str, Kind]], barrier: bool = False
    ) -> tuple[str, str]:
        shape = f"({', '.join(str(kind) for _, kind in parts)})"
        name = scope.add(shape, f"tuple({', '.join(name for name, _ in parts)})")
        return (scope.add(shape, f"opt-barrier({name})") if barrier else name), shape

    def unpack(self, scope: Scope, whole: str, kinds: list[Kind]) -> list[str]:
        return [
            scope.add(kind, f"get-tuple-element({whole}), index={index}")
            for index, kind in enumerate(kinds)
        ]

    def inner(self, kinds: list[Kind], depth: int) -> Scope:
        """A computation with these parameters and a few steps."""
        scope = Scope()
        for number, kind in enumerate(kinds):
            scope.add(kind, f"parameter({number})")
        self.grow(scope, self.chooser.randint(0, 4), depth)
        return scope

    def grow(self, scope: Scope, steps: int, depth: int) -> None:
        for _ in range(steps):
            self.step(scope, depth)

    def fuse(self, scope: Scope, depth: int) -> None:
        self.apply(scope, 2, "fusion", "kind=kLoop, calls=")

    def call(self, scope: Scope, depth: int) -> None:
        self.apply(scope, depth + 1, "call", "to_apply=")

    def apply(self, scope: Scope, depth: int, opcode: str, attributes: str) -> None:
        given = [self.any(scope) for _ in range(self.chooser.randint(1, 3))]
        body = self.inner([kind for _, kind in given], depth)
        root, kind = self.any(body)
        if opcode == "fusion":
            given = _without_dead(body, root, given)
        name = self.close(body, self.fresh("called"), root)
        operands = ", ".join(name for name, _ in given)
        scope.add(kind, f"{opcode}({operands}), {attributes}{name}")

    def state(self, shape: str, kinds: list[Kind]) -> tuple[Scope, list[str]]:
        scope = Scope()
        whole = scope.add(shape, "parameter(0)")
        return scope, self.unpack(scope, whole, kinds)

    def branch(self, scope: Scope, depth: int) -> None:
        """A conditional whose branches may hand their argument on as it is."""
        given = [self.any(scope) for _ in range(self.chooser.randint(1, 3))]
        kinds = [kind for _, kind in given]
        whole, shape = self.tuple_of(scope, given)
        branches = []
        for _ in range(2):
            body, _ = self.state(shape, kinds)
            if self.chooser.random() < 0.3:
                root = "v0"
            else:
                self.grow(body, self.chooser.randint(0, 3), depth + 1)
                root, _ = self.tuple_of(body, [(self.pick(body, kind), kind) for kind in kinds])
            branches.append(self.close(body, self.fresh("branch"), root))
        selector = self.pick(scope, Kind(self.chooser.choice(("pred", "s32")), ()))
        text = f"conditional({selector}, {whole}, {whole}), branch_computations={{{', '.join(branches)}}}"
        if f"{selector} = pred" in "\n".join(scope.lines):
            text = (f"conditional({selector}, {whole}, {whole}), "
                    f"true_computation={branches[0]}, false_computation={branches[1]}")  # fmt: skip
        self.unpack(scope, scope.add(shape, text), kinds)

    def loop(self, scope: Scope, depth: int) -> None:
        """A while over a counter and a few arrays, which the body changes, swaps or hands on.

        Some of the arrays come twice, the counter may count down or round, and another may go with it.
        """
        start, step, direction, limit = self.chooser.choice(_COUNTS)
        if direction == "LT":
            limit = self.chooser.randint(0, 3)
        counter = Kind("u8" if direction == "NE" else "s32", ())
        given = [self.any(scope) for _ in range(self.chooser.randint(1, 4))]
        given += given[: self.chooser.choice((0, 0, 1))]
        other = self.chooser.choice((None, None, 1, -2))
        if other is not None:
            given.append((scope.add("s32[]", "constant(5)"), Kind("s32", ())))
        place = self.chooser.randint(0, len(given))
        given.insert(place, (scope.add(counter, f"constant({start})"), counter))
        kinds = [kind for _, kind in given]
        whole, shape = self.tuple_of(scope, given)
        body, slots = self.state(shape, kinds)
        self.grow(body, self.chooser.randint(1, 5), depth + 1)
        carried = [
            (slot if self.chooser.random() < 0.3 else self.pick(body, kind), kind)
            for slot, kind in zip(slots, kinds, strict=True)
        ]
        carried[place] = (self.counted(body, slots[place], counter, step), counter)
        if other is not None:
            last = len(kinds) - (1 if place < len(kinds) - 1 else 2)
            carried[last] = (self.counted(body, slots[last], kinds[last], other), kinds[last])
        root, _ = self.tuple_of(body, carried)
        test, positions = self.state(shape, kinds)
        bound = test.add(counter, f"constant({limit})")
        again = test.add("pred[]", f"compare({positions[place]}, {bound}), direction={direction}")
        body_name = self.close(body, self.fresh("body"), root)
        test_name = self.close(test, self.fresh("test"), again)
        text = f"while({whole}), condition={test_name}, body={body_name}"
        self.unpack(scope, scope.add(shape, text), kinds)

    def counted(self, body: Scope, slot: str, kind: Kind, step: int) -> str:
        return body.add(str(kind), f"add({slot}, {body.add(str(kind), f'constant({step})')})")


def module_text(chooser: random.Random, steps: int = 12) -> str:
    """A module with two to four parameters and up to eight results."""
    generator = _Generator(chooser)
    scope = Scope()
    for number in range(chooser.randint(2, 4)):
        scope.add(generator.kind(), f"parameter({number})")
    generator.grow(scope, chooser.randint(1, steps), 0)
    results = [generator.any(scope) for _ in range(chooser.randint(1, 8))]
    root, _ = generator.tuple_of(scope, results)
    generator.close(scope, "ENTRY main", root)
    return "HloModule random\n" + "\n".join(generator.computations) + "\n"


def _without_dead(body: Scope, root: str, given: list[tuple[str, Kind]]) -> list[tuple[str, Kind]]:
    """Leave out of a body what its root does not need: a fusion holds nothing else.

    Returns the operands of those parameters that are left.
    """
    texts = dict(line.split(" = ", 1) for line in body.lines)
    needed, pending = set(), [root]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            pending += _NAME.findall(texts[name])
    left = [number for number in range(len(given)) if f"v{number}" in needed]
    for position, number in enumerate(left):
        texts[f"v{number}"] = f"{given[number][1]} parameter({position})"
    body.lines = [f"{name} = {text}" for name, text in texts.items() if name in needed]
    return [given[number] for number in left]


def _csv(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))
