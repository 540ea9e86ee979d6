"""Cumulative results: every ladder that makes one is found, whatever op, direction and order."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.scan_recognition import ScanRecognition
from tests.helpers.rarely import one_in
from tests.passes import proof
from tests.properties.random_modules import module_text

INTEGER_OPS = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
NEUTRAL = {
    "s32": {"add": "0", "multiply": "1", "maximum": "-2147483648", "minimum": "2147483647",
            "and": "-1", "or": "0", "xor": "0"},
    "u8": {"add": "0", "multiply": "1", "maximum": "0", "minimum": "255", "and": "255", "or": "0",
           "xor": "0"},
    "pred": {"add": "false", "multiply": "true", "maximum": "false", "minimum": "true",
             "and": "true", "or": "false", "xor": "false"},
    "f32": {"add": "0", "multiply": "1", "maximum": "-inf", "minimum": "inf"},
}  # fmt: skip


class Ladder:
    """Lines of a module that combine ``x`` of ``size`` elements in rows of ``width``."""

    def __init__(self, op: str, dtype: str, size: int, width: int = 0) -> None:
        self.op, self.dtype, self.width = op, dtype, width
        self.lines = [f"x = {self.shape(size)} parameter(0)"]
        self.lines.append(f"id = {dtype}[] constant({NEUTRAL[dtype][op]})")
        self.lines.append(f"zero = {dtype}[] constant({'false' if dtype == 'pred' else '0'})")
        self.sizes = {"x": size}

    def shape(self, size: int) -> str:
        return f"{self.dtype}[{size},{self.width}]" if self.width else f"{self.dtype}[{size}]"

    def add(self, size: int, text: str) -> str:
        name = f"v{len(self.lines)}x"
        self.lines.append(f"{name} = {self.shape(size)} {text}")
        self.sizes[name] = size
        return name

    def slice(self, name: str, start: int, limit: int, stride: int = 1) -> str:
        rest = f", [0:{self.width}]" if self.width else ""
        size = -(-(limit - start) // stride)
        return self.add(size, f"slice({name}), slice={{[{start}:{limit}:{stride}]{rest}}}")

    def pad(self, name: str, low: int, high: int, interior: int, value: str = "id") -> str:
        rest = "x0_0" if self.width else ""
        size = self.sizes[name]
        padded = size + low + high + max(0, size - 1) * interior
        return self.add(padded, f"pad({name}, {value}), padding={low}_{high}_{interior}{rest}")

    def join(self, one: str, other: str) -> str:
        size = self.sizes[one] + self.sizes[other]
        return self.add(size, f"concatenate({one}, {other}), dimensions={{0}}")

    def both(self, one: str, other: str, op: str = "") -> str:
        return self.add(self.sizes[one], f"{op or self.op}({one}, {other})")

    def doubling(self, name: str, reverse: bool, joined: bool) -> str:
        """Add what is 1, 2, 4 ... places away."""
        size, step = self.sizes[name], 1
        while step < size:
            if joined:
                part = self.slice(name, *((step, size) if reverse else (0, size - step)))
                rest = "" if not self.width else f",{self.width}"
                gap = f"g{len(self.lines)}x"
                self.lines.append(
                    f"{gap} = {self.dtype}[{step}{rest}] broadcast(id), dimensions={{}}"
                )
                self.sizes[gap] = step
                moved = self.join(part, gap) if reverse else self.join(gap, part)
            else:
                wide = self.pad(name, 0, step, 0) if reverse else self.pad(name, step, 0, 0)
                moved = self.slice(wide, *((step, size + step) if reverse else (0, size)))
            name, step = self.both(name, moved), step * 2
        return name

    def halves(self, name: str, weave: str = "") -> str:
        """Combine pairs, do the same for half as many, and put even and odd places together."""
        size = self.sizes[name]
        if size < 2:
            return name
        even, odd = self.slice(name, 0, size - 1, 2), self.slice(name, 1, size, 2)
        sums = self.halves(self.both(even, odd), weave)
        first = self.slice(name, 0, 1)
        if size > 2:
            count = self.sizes[sums] - (1 if size % 2 == 0 else 0)
            later = self.slice(name, 2, size, 2)
            first = self.join(first, self.both(self.slice(sums, 0, count), later))
        fill = "zero" if weave else "id"
        wide = self.pad(first, 0, size - 2 * self.sizes[first] + 1, 1, fill)
        other = self.pad(sums, 1, size - 2 * self.sizes[sums], 1, fill)
        return self.both(wide, other, weave)

    def text(self, root: str) -> str:
        lines = [f"ROOT {line}" if line.startswith(f"{root} =") else line for line in self.lines]
        body = "\n".join(lines)
        return f"HloModule m\nENTRY e {{\n{body}\n}}\n"


def opcodes(module: Module) -> list[str]:
    return [instruction.opcode for instruction in module.entry]


PASSES = (ScanRecognition(), DeadCodeElimination())


@pytest.mark.every_value
@pytest.mark.parametrize("op", INTEGER_OPS)
@pytest.mark.parametrize("dtype", ["s32", "u8", "pred"])
@pytest.mark.parametrize("reverse", [False, True])
def test_ladders_of_doubled_steps(op: str, dtype: str, reverse: bool) -> None:
    """Each step adds what lies twice as far: one reduce-window is left."""
    for size, width, joined in ((4, 0, False), (7, 2, False), (9, 0, True)):
        ladder = Ladder(op, dtype, size, width)
        text = ladder.text(ladder.doubling("x", reverse, joined))
        module, _ = proof.check(text, *PASSES, draws=4)
        assert sorted(set(opcodes(module))) == ["constant", "parameter", "reduce-window"]


@pytest.mark.every_value
@pytest.mark.parametrize("op", ["add", "multiply", "maximum", "or"])
@pytest.mark.parametrize("size", range(4, 18))
def test_ladders_of_halves(op: str, size: int) -> None:
    """The way jax.lax.associative_scan does it, for any length."""
    ladder = Ladder(op, "s32", size)
    module, _ = proof.check(ladder.text(ladder.halves("x", "add")), *PASSES, draws=4)
    assert "pad" not in opcodes(module)


@pytest.mark.every_value
@pytest.mark.parametrize("op", ["maximum", "minimum"])
@pytest.mark.parametrize("size", [4, 7, 16])
def test_float_extrema_keep_every_bit(op: str, size: int) -> None:
    """NaN, infinities and signs of zero are those of the ladder; where 0 was added, it still is."""
    ladder = Ladder(op, "f32", size)
    module, _ = proof.check(ladder.text(ladder.halves("x", "add")), *PASSES, draws=20)
    assert opcodes(module)[-1] == "add"
    ladder = Ladder(op, "f32", size)
    module, _ = proof.check(ladder.text(ladder.doubling("x", False, True)), *PASSES, draws=20)
    assert opcodes(module)[-1] == "reduce-window"


@pytest.mark.parametrize("op", ["add", "multiply"])
def test_float_sums_need_fast_math(op: str) -> None:
    """Another order rounds otherwise."""
    ladder = Ladder(op, "f32", 8)
    text = ladder.text(ladder.doubling("x", False, False))
    proof.check(text, ScanRecognition(), changes=False)
    proof.check(text, ScanRecognition(fast_math=True), rtol=1e-5)


def test_exclusive_scans() -> None:
    """A scan that is moved by one place, and one of a shifted source, of the same length or one less."""
    ladder = Ladder("add", "s32", 6)
    moved = ladder.slice(ladder.pad("x", 1, 0, 0), 0, 6)
    module, log = proof.check(ladder.text(ladder.doubling(moved, False, False)), *PASSES)
    assert log.hits["ladder => reduce-window"] == 1
    assert opcodes(module)[-1] == "reduce-window"
    ladder = Ladder("add", "s32", 6)
    module, _ = proof.check(
        ladder.text(ladder.doubling(ladder.pad("x", 1, 0, 0), False, False)), *PASSES
    )
    assert opcodes(module)[-1] == "reduce-window"


def test_part_of_a_source_is_cut_out() -> None:
    """A scan of some of the elements."""
    ladder = Ladder("add", "s32", 12)
    part = ladder.slice("x", 3, 9)
    module, _ = proof.check(ladder.text(ladder.doubling(part, False, False)), *PASSES)
    assert opcodes(module).count("slice") == 1


def test_what_is_no_scan_stays() -> None:
    """Sums of windows, a wrong filling, a missing step, two ops in one ladder, a ladder that is too short."""
    ladder = Ladder("add", "s32", 8)
    once = ladder.both("x", ladder.slice(ladder.pad("x", 1, 0, 0), 0, 8))
    proof.check(ladder.text(once), ScanRecognition(), changes=False)
    ladder = Ladder("multiply", "s32", 4)
    text = ladder.text(ladder.doubling("x", False, False))
    proof.check(text.replace("(x, id)", "(x, zero)"), ScanRecognition(), changes=False)
    proof.check(text.replace("multiply(x,", "add(x,"), ScanRecognition(), changes=False)
    ladder = Ladder("add", "s32", 3)
    text = ladder.text(ladder.doubling("x", False, False))
    proof.check(text, ScanRecognition(), changes=False)
    proof.check(text, ScanRecognition(shortest=3))
    proof.check(text, ScanRecognition(shortest=2, longest=2), changes=False)


def test_control_edges_stay() -> None:
    """The last op of a ladder keeps its place where something waits for it."""
    ladder = Ladder("add", "s32", 4)
    root = ladder.doubling("x", False, False)
    text = ladder.text(root).replace(f"ROOT {root} = s32[4] add", f"{root} = s32[4] add")
    text = text.replace(
        "\n}\n", f"\nROOT n = s32[4] negate(x), control-predecessors={{{root}}}\n}}\n"
    )
    proof.check(text, ScanRecognition(), changes=False)


def test_lengths_that_make_no_sense() -> None:
    """The shortest is no longer than the longest."""
    with pytest.raises(UsageError, match="shortest must be at least 2, and longest no less"):
        ScanRecognition(shortest=9, longest=8)


def test_large_scans_agree_with_numpy() -> None:
    """A thousand elements, by NumPy's own cumulative sum."""
    ladder = Ladder("add", "s32", 1000)
    module = hloopt.optimize(
        hloopt.parse(ladder.text(ladder.halves("x", "add"))), pipeline="scan-recognition,dce"
    )
    values = np.arange(1000, dtype=np.int32) % 17 - 8
    (result,) = hloopt.evaluate(module, [values])
    assert np.array_equal(result, np.cumsum(values, dtype=np.int32))


@pytest.mark.parametrize("seed", one_in(3, range(30)))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Slices, pads and concatenates of all kinds."""
    proof.check(
        module_text(random.Random(seed)), ScanRecognition(shortest=2), draws=1, changes=None
    )


LOOP = """HloModule m
body {{ s = (s32[], {row}, {array}, {array}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  c = {row} get-tuple-element(s), index=1
  y = {array} get-tuple-element(s), index=2
  x = {array} get-tuple-element(s), index=3
  zero = s32[] constant(0)
  one = s32[] constant(1)
  top = s32[] constant(5)
  n = s32[] add(i, one)
  down = s32[] subtract(top, i)
  p = {part} dynamic-slice(x, {place}), dynamic_slice_sizes={sizes}
  r = {row} reshape(p)
  t = {row} {op}(c, r)
  u = {part} reshape({written})
  z = {array} dynamic-update-slice(y, u, {place})
  ROOT o = (s32[], {row}, {array}, {array}) tuple(n, t, z, x) }}
test {{ s = (s32[], {row}, {array}, {array}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  six = s32[] constant({trips})
  ROOT go = pred[] compare(i, six), direction=LT }}
ENTRY e {{ x = {array} parameter(0)
  old = {array} parameter(1)
  zero = s32[] constant(0)
  k = {dtype}[] constant({start})
  c = {row} broadcast(k), dimensions={{}}
  s = (s32[], {row}, {array}, {array}) tuple(zero, c, old, x)
  w = (s32[], {row}, {array}, {array}) while(s), condition=test, body=body
  last = {row} get-tuple-element(w), index=1
  all = {array} get-tuple-element(w), index=2
  ROOT o = ({array}, {row}) tuple(all, last) }}
"""


def loop(op: str, dtype: str, **changes: str) -> str:
    """Six trips over rows of two."""
    given = {
        "op": op, "dtype": dtype, "row": f"{dtype}[2]", "array": f"{dtype}[6,2]", "sizes": "{1,2}",
        "part": f"{dtype}[1,2]", "place": "i, zero", "written": "t", "trips": "6",
        "start": NEUTRAL[dtype][op],
    }  # fmt: skip
    return LOOP.format(**{**given, **changes})


@pytest.mark.parametrize("op", ["add", "multiply", "minimum", "xor"])
@pytest.mark.parametrize("place", ["i, zero", "down, zero"])
def test_loops_that_accumulate(op: str, place: str) -> None:
    """Forward and backward; the value after the last trip comes from the result."""
    module, log = proof.check(loop(op, "s32", place=place), *PASSES)
    assert log.hits["loop that accumulates => reduce-window"] == 1
    assert "while" not in opcodes(module)
    assert opcodes(module).count("reduce-window") == 1


def test_loops_that_write_what_was_before() -> None:
    """An exclusive scan; the loop stays for the value it carries out."""
    module, _ = proof.check(loop("add", "s32", written="c"), *PASSES)
    assert {"while", "reduce-window"} <= set(opcodes(module))


def test_float_loops() -> None:
    """Minima and maxima to the last bit, sums with fast_math."""
    proof.check(loop("maximum", "f32"), ScanRecognition(), draws=20)
    proof.check(loop("add", "f32"), ScanRecognition(), changes=False)
    proof.check(loop("add", "f32"), ScanRecognition(fast_math=True), rtol=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        {"start": "3"},
        {"trips": "5"},
        {"written": "r"},
        {"place": "one, zero"},
        {"place": "i, i"},
        {"op": "subtract"},
    ],
)
def test_loops_that_do_something_else_stay(changes: dict[str, str]) -> None:
    """Another start, fewer trips than rows, other rows written, and an op that is not associative."""
    op = changes.pop("op", "add")
    text = loop("add", "s32", **changes).replace("add(c, r)", f"{op}(c, r)")
    proof.check(text, ScanRecognition(), changes=False)
