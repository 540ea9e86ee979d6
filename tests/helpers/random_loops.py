"""Random loops whose elements mostly go their own ways: what may become one kernel, and what may not.

The state has a counter, arrays along a common dimension, small arrays, stacked outputs and what is handed on;
the first state is read, made of constants, or computed, partly for others, too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tests.helpers.support import Array

__all__ = ["inputs", "loop_text"]

_REGIONS: Final = """
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }
any { p = pred[] parameter(0) q = pred[] parameter(1) ROOT s = pred[] or(p, q) }
"""
_UNARY: Final = ("negate", "abs", "cosine", "floor")
_BINARY: Final = ("add", "subtract", "multiply", "maximum", "minimum")


@dataclass
class _Body:
    """Lines of a computation, and what there is by shape."""

    prefix: str
    lines: list[str] = field(default_factory=list)
    pool: dict[str, list[str]] = field(default_factory=dict)

    def add(self, shape: str, text: str) -> str:
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"  {name} = {shape} {text}")
        self.pool.setdefault(shape, []).append(name)
        return name

    def close(self, name: str, root: str) -> str:
        lines = [
            line.replace("  ", "  ROOT ", 1) if line.startswith(f"  {root} =") else line
            for line in self.lines
        ]
        return "\n".join([f"{name} {{", *lines, "}"])


class _Program:
    def __init__(self, chooser: random.Random, lengths: Sequence[int]) -> None:
        self.chooser = chooser
        self.n, self.k = chooser.choice(lengths), chooser.choice((1, 2, 3))
        self.iterations = chooser.choice((0, 1, 4))
        n, k, t = self.n, self.k, max(self.iterations, 1)
        self.row, self.table, self.small = f"f32[{n}]", f"f32[{n},{k}]", f"f32[{k}]"
        self.stacked, self.means, self.given = f"f32[{t},{n}]", f"f32[{t}]", f"f32[{t},{n}]"
        self.entry = _Body("e")
        for number, shape in enumerate((self.row, self.table, self.small, self.given)):
            self.entry.add(shape, f"parameter({number})")

    def pick(self, body: _Body, shape: str) -> str:
        """Something of a shape; a constant where there is nothing."""
        found = body.pool.get(shape)
        if found:
            return self.chooser.choice(found)
        dtype = shape.partition("[")[0]
        value = {"pred": "true", "f32": "0.5"}.get(dtype, "2")
        if shape.endswith("[]"):
            return body.add(shape, f"constant({value})")
        return body.add(shape, f"broadcast({self.pick(body, f'{dtype}[]')}), dimensions={{}}")

    def step(self, body: _Body) -> None:
        """One op over what there is."""
        self.chooser.choice((self.unary, self.binary, self.spread, self.fold, self.other))(body)

    def unary(self, body: _Body) -> None:
        shape = self.chooser.choice((self.row, self.table, self.small, "f32[]"))
        body.add(shape, f"{self.chooser.choice(_UNARY)}({self.pick(body, shape)})")

    def binary(self, body: _Body) -> None:
        shape = self.chooser.choice((self.row, self.table, self.small, "f32[]"))
        left, right = self.pick(body, shape), self.pick(body, shape)
        if self.chooser.random() < 0.3:
            mask = shape.replace("f32", "pred")
            chosen = body.add(mask, f"compare({left}, {right}), direction=LT")
            body.add(shape, f"select({chosen}, {self.pick(body, shape)}, {right})")
        else:
            body.add(shape, f"{self.chooser.choice(_BINARY)}({left}, {right})")

    def spread(self, body: _Body) -> None:
        """From fewer dimensions to more."""
        source, target, dims = self.chooser.choice(
            (("f32[]", self.row, ""), (self.row, self.table, "0"), (self.small, self.table, "1"))
        )
        body.add(target, f"broadcast({self.pick(body, source)}), dimensions={{{dims}}}")

    def fold(self, body: _Body) -> None:
        """From more dimensions to fewer; some of these mix what would be apart."""
        source, target, dim = self.chooser.choice(
            ((self.table, self.row, 1), (self.table, self.row, 1), (self.row, "f32[]", 0))
        )
        zero = body.add("f32[]", "constant(0)")
        operand = self.pick(body, source)
        body.add(target, f"reduce({operand}, {zero}), dimensions={{{dim}}}, to_apply=sum")

    def other(self, body: _Body) -> None:
        n, k = self.n, self.k
        kinds: tuple[Callable[[], str], ...] = (
            lambda: body.add(self.row, "iota(), iota_dimension=0"),
            lambda: body.add(
                self.table, f"reverse({self.pick(body, self.table)}), dimensions={{1}}"
            ),
            lambda: body.add(
                self.row,
                f"reshape({body.add(f'f32[{n},1]', f'slice({self.pick(body, self.table)}), slice={{[0:{n}], [0:1]}}')})",
            ),
            lambda: body.add(self.row, f"reverse({self.pick(body, self.row)}), dimensions={{0}}"),
            lambda: body.add(
                self.table,
                f"transpose({body.add(f'f32[{k},{n}]', f'transpose({self.pick(body, self.table)}), dimensions={{1,0}}')}), dimensions={{1,0}}",
            ),
        )
        weights = (2, 2, 2, 1, 2)
        self.chooser.choices(kinds, weights)[0]()

    # ---- the loop -----------------------------------------------------------------------------------

    def text(self) -> str:
        """The module."""
        for _ in range(self.chooser.randint(0, 6)):
            self.step(self.entry)
        state = self.first_state()
        body, condition = self.body(state), self.condition(state)
        shape = f"({', '.join(kind for kind, _ in state)})"
        whole = self.entry.add(shape, f"tuple({', '.join(name for _, name in state)})")
        loop = self.entry.add(shape, f"while({whole}), condition=condition, body=body")
        root = self.results(state, loop)
        return "\n\n".join(
            ["HloModule loops", _REGIONS, body, condition, self.entry.close("ENTRY main", root)]
        )

    def first_state(self) -> list[tuple[str, str]]:
        """Shapes and names: counter, arrays, stacked outputs, what is handed on."""
        entry = self.entry
        kinds = [self.row, self.table, self.small, "f32[]"]
        carried = ["s32[]", *self.chooser.choices(kinds, k=self.chooser.randint(1, 4))]
        state = [
            (kind, entry.add("s32[]", "constant(0)") if kind == "s32[]" else self.pick(entry, kind))
            for kind in carried
        ]
        zero = entry.add("f32[]", "constant(0)")
        for kind in (self.stacked, self.means):
            if self.chooser.random() < 0.6:
                made = entry.add(kind, f"broadcast({zero}), dimensions={{}}")
                state.append((kind, made))
        if self.chooser.random() < 0.6:
            # What is read in every trip: a parameter, or something computed.
            given = "e3" if self.chooser.random() < 0.5 else entry.add(self.given, "negate(e3)")
            state.append((f"{self.given} ", given))
        return state

    def body(self, state: list[tuple[str, str]]) -> str:
        body = _Body("b")
        shape = f"({', '.join(kind for kind, _ in state)})"
        whole = body.add(shape, "parameter(0)")
        reads = [
            body.add(kind.strip(), f"get-tuple-element({whole}), index={number}")
            for number, (kind, _) in enumerate(state)
        ]
        for kind in (self.stacked, self.means):
            body.pool.pop(kind, None)
        counter, one = reads[0], body.add("s32[]", "constant(1)")
        for (kind, _), read in zip(state, reads, strict=True):
            if kind.endswith(" "):
                self.read_given(body, read, counter)
        for _ in range(self.chooser.randint(2, 9)):
            self.step(body)
        results = [body.add("s32[]", f"add({counter}, {one})")]
        for (kind, _), read in list(zip(state, reads, strict=True))[1:]:
            results.append(self.next_of(body, kind, read, counter))
        root = body.add(shape, f"tuple({', '.join(results)})")
        return body.close("body", root)

    def read_given(self, body: _Body, read: str, counter: str) -> None:
        zero = body.add("s32[]", "constant(0)")
        sizes = f"dynamic_slice_sizes={{1,{self.n}}}"
        part = body.add(f"f32[1,{self.n}]", f"dynamic-slice({read}, {counter}, {zero}), {sizes}")
        body.add(self.row, f"reshape({part})")

    def next_of(self, body: _Body, kind: str, read: str, counter: str) -> str:
        if kind.endswith(" ") or (
            kind not in (self.stacked, self.means) and self.chooser.random() < 0.15
        ):
            return read
        if kind == self.stacked and kind != self.table:
            part = body.add(f"f32[1,{self.n}]", f"reshape({self.pick(body, self.row)})")
            zero = body.add("s32[]", "constant(0)")
            return body.add(kind, f"dynamic-update-slice({read}, {part}, {counter}, {zero})")
        if kind == self.means and kind not in (self.row, self.small):
            part = body.add("f32[1]", f"reshape({self.pick(body, 'f32[]')})")
            return body.add(kind, f"dynamic-update-slice({read}, {part}, {counter})")
        return self.pick(body, kind)

    def condition(self, state: list[tuple[str, str]]) -> str:
        body = _Body("c")
        shape = f"({', '.join(kind for kind, _ in state)})"
        whole = body.add(shape, "parameter(0)")
        counter = body.add("s32[]", f"get-tuple-element({whole}), index=0")
        most = body.add("s32[]", f"constant({self.iterations})")
        root = body.add("pred[]", f"compare({counter}, {most}), direction=LT")
        rows = [number for number, (kind, _) in enumerate(state) if kind == self.row]
        if rows and self.chooser.random() < 0.25:
            row = body.add(self.row, f"get-tuple-element({whole}), index={rows[0]}")
            mask = f"pred[{self.n}]"
            high = body.add(
                self.row, f"broadcast({body.add('f32[]', 'constant(3)')}), dimensions={{}}"
            )
            low = body.add(mask, f"compare({row}, {high}), direction=LT")
            no = body.add("pred[]", "constant(false)")
            some = body.add("pred[]", f"reduce({low}, {no}), dimensions={{0}}, to_apply=any")
            root = body.add("pred[]", f"and({root}, {some})")
        return body.close("condition", root)

    def results(self, state: list[tuple[str, str]], loop: str) -> str:
        if self.chooser.random() < 0.15:
            return loop
        entry = self.entry
        numbers = self.chooser.sample(range(len(state)), self.chooser.randint(1, len(state)))
        found = [
            (
                state[number][0],
                entry.add(state[number][0].strip(), f"get-tuple-element({loop}), index={number}"),
            )
            for number in numbers
        ]
        for _ in range(self.chooser.randint(0, 3)):
            self.step(entry)
        if self.chooser.random() < 0.5:
            kind = self.chooser.choice((self.row, self.table))
            found.append((kind, self.pick(entry, kind)))
        shape = f"({', '.join(kind for kind, _ in found)})"
        return entry.add(shape, f"tuple({', '.join(name for _, name in found)})")


def loop_text(chooser: random.Random, lengths: Sequence[int] = (1, 5, 20)) -> str:
    """A module with one loop, of four parameters; ``lengths`` of the common dimension.

    What is short enough each work item may compute alike: arrays of more than 16 elements are shared out.
    """
    return _Program(chooser, lengths).text()


def inputs(shapes: list[tuple[int, ...]]) -> list[Array]:
    """Ordinary numbers for the parameters of such a module."""
    source = np.random.default_rng(3)
    return [source.uniform(-2, 2, dims).astype(np.float32) for dims in shapes]
