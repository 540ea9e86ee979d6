"""Rules about moved data, on random chains of movement: each result element keeps its place."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.simplify import Simplify
from hloopt.simplify.data_movement import before_transpose, common_factors
from tests.helpers.rarely import one_in
from tests.passes.proof import check

SIZES = (1, 1, 2, 3, 4)


class Chain:
    """Instructions of an entry computation, each a movement of earlier ones."""

    def __init__(self, seed: int, *, layouts: bool = False) -> None:
        self.random = random.Random(seed)
        self.layouts = layouts
        self.shapes: dict[str, str] = {}
        self.lines: list[str] = []
        self.dims: dict[str, tuple[int, ...]] = {}
        self.starts: list[str] = []
        for name in ("x", "y"):
            dims = tuple(self.random.choice(SIZES) for _ in range(self.random.choice((1, 2, 3))))
            self.add(name, dims, f"parameter({len(self.dims)})")
        for name in ("i", "j"):
            self.lines.append(f"{name} = s32[] parameter({len(self.dims) + len(self.starts)})")
            self.starts.append(name)
        self.lines += ["c0 = s32[] constant(0)", "c1 = s32[] constant(1)", "c5 = s32[] constant(5)"]
        self.starts += ["c0", "c1", "c5"]

    def add(self, name: str, dims: tuple[int, ...], text: str) -> None:
        order = list(range(len(dims)))[::-1]
        if self.layouts and self.random.random() < 0.4:
            self.random.shuffle(order)
        layout = f"{{{','.join(map(str, order))}}}" if self.layouts and dims else ""
        self.shapes[name] = f"s32[{','.join(map(str, dims))}]{layout}"
        self.lines.append(f"{name} = {self.shapes[name]} {text}")
        self.dims[name] = dims

    def step(self) -> None:
        name = self.random.choice(list(self.dims)[-3:])
        dims = self.dims[name]
        moves = (self.reshape, self.transpose, self.broadcast, self.slice, self.pad, self.reverse,
                 self.dynamic_slice, self.update, self.concatenate, self.compute, self.iota)  # fmt: skip
        if self.layouts:
            moves += (self.copy, self.copy, self.bitcast)
        self.random.choice(moves)(f"v{len(self.lines)}", name, dims)

    def reshape(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        rest, sizes = prod(dims), []
        while rest > 1:
            size = self.random.choice([n for n in range(2, rest + 1) if rest % n == 0])
            sizes.append(size)
            rest //= size
        for _ in range(self.random.choice((0, 0, 1))):
            sizes.insert(self.random.randrange(len(sizes) + 1), 1)
        self.add(new, tuple(sizes), f"reshape({name})")

    def transpose(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        order = self.random.sample(range(len(dims)), len(dims))
        listed = ",".join(map(str, order))
        self.add(new, tuple(dims[d] for d in order), f"transpose({name}), dimensions={{{listed}}}")

    def broadcast(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        rank = len(dims) + self.random.choice((0, 1))
        places = self.random.sample(range(rank), len(dims))
        if self.random.random() < 0.7:
            places.sort()
        sizes = [2] * rank
        for place, size in zip(places, dims, strict=True):
            sizes[place] = size
        if prod(sizes) <= 200:
            listed = ",".join(map(str, places))
            self.add(new, tuple(sizes), f"broadcast({name}), dimensions={{{listed}}}")

    def slice(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        taken, sizes = [], []
        for size in dims:
            start = self.random.randrange(size)
            limit = self.random.randint(start + 1, size)
            stride = self.random.choice((1, 1, 2))
            if self.random.random() < 0.4:
                start, limit, stride = 0, size, 1
            taken.append(f"[{start}:{limit}:{stride}]")
            sizes.append(-(-(limit - start) // stride))
        self.add(new, tuple(sizes), f"slice({name}), slice={{{', '.join(taken)}}}")

    def pad(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        if not dims:
            return
        entries, sizes = [], []
        for size in dims:
            low, high = self.random.choice(((0, 0), (0, 0), (1, 0), (0, 2), (-1, 1), (1, -1)))
            inner = self.random.choice((0, 0, 1))
            total = low + high + size + (size - 1) * inner
            if total < 1:
                low, high, total = 0, 0, size + (size - 1) * inner
            entries.append(f"{low}_{high}_{inner}")
            sizes.append(total)
        if prod(sizes) <= 200:
            self.add(new, tuple(sizes), f"pad({name}, c5), padding={'x'.join(entries)}")

    def reverse(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        turned = [d for d in range(len(dims)) if self.random.random() < 0.6]
        listed = ",".join(map(str, turned))
        self.add(new, dims, f"reverse({name}), dimensions={{{listed}}}")

    def part(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.random.choice((size, self.random.randint(1, size))) for size in dims)

    def indices(self, dims: tuple[int, ...]) -> str:
        return "".join(f", {self.random.choice(self.starts)}" for _ in dims)

    def dynamic_slice(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        sizes = self.part(dims)
        listed = ",".join(map(str, sizes))
        text = f"dynamic-slice({name}{self.indices(dims)}), dynamic_slice_sizes={{{listed}}}"
        self.add(new, sizes, text)

    def update(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        fitting = [
            other
            for other, sizes in self.dims.items()
            if len(sizes) == len(dims) and all(a <= b for a, b in zip(sizes, dims, strict=True))
        ]
        other = self.random.choice(fitting)
        self.add(new, dims, f"dynamic-update-slice({name}, {other}{self.indices(dims)})")

    def concatenate(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        if not dims or prod(dims) > 60:
            return
        d = self.random.randrange(len(dims))
        others = [
            other
            for other, sizes in self.dims.items()
            if len(sizes) == len(dims)
            and (*sizes[:d], *sizes[d + 1 :]) == (*dims[:d], *dims[d + 1 :])
        ]
        taken = [name, *self.random.choices(others, k=self.random.choice((1, 2)))]
        sizes = (*dims[:d], sum(self.dims[other][d] for other in taken), *dims[d + 1 :])
        self.add(new, sizes, f"concatenate({', '.join(taken)}), dimensions={{{d}}}")

    def compute(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        others = [other for other, sizes in self.dims.items() if sizes == dims]
        self.add(new, dims, f"subtract({name}, {self.random.choice(others)})")

    def iota(self, new: str, _: str, dims: tuple[int, ...]) -> None:
        if dims:
            self.add(new, dims, f"iota(), iota_dimension={self.random.randrange(len(dims))}")

    def copy(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        self.add(new, dims, f"copy({name})")

    def bitcast(self, new: str, name: str, dims: tuple[int, ...]) -> None:
        self.add(new, tuple(self.random.sample(dims, len(dims))), f"bitcast({name})")

    def text(self) -> str:
        names = list(self.dims)[-3:]
        shapes = ", ".join(self.shapes[name] for name in names)
        lines = "\n ".join(self.lines)
        return f"HloModule m\nENTRY e {{\n {lines}\n ROOT r = ({shapes}) tuple({', '.join(names)})\n}}\n"


@pytest.mark.parametrize("seed", one_in(3, range(60)))
def test_random_movement(seed: int) -> None:
    """Chains of ten movements keep every bit, come to rest, and no two rules fight."""
    chain = Chain(seed)
    for _ in range(10):
        chain.step()
    _, log = check(chain.text(), Simplify(), draws=3, changes=None)
    assert not log.notes


@pytest.mark.parametrize("seed", one_in(3, range(30)))
def test_random_movement_in_any_layout(seed: int) -> None:
    """The same with copies, bitcasts and any order in memory: results keep their bits and layouts."""
    chain = Chain(seed, layouts=True)
    for _ in range(10):
        chain.step()
    better, log = check(chain.text(), Simplify(), draws=2, changes=None)
    assert not log.notes
    names = list(chain.dims)[-3:]
    found = [str(operand.shape) for operand in better.entry.root.operands]
    assert found == [chain.shapes[name] for name in names]


@st.composite
def factors(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two lists of sizes with the same product."""
    primes = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=5))

    def grouped() -> tuple[int, ...]:
        sizes = [1] if draw(st.booleans()) else []
        for prime in primes:
            if not sizes or draw(st.booleans()):
                sizes.append(prime)
            else:
                sizes[-1] *= prime
        return tuple(sizes)

    return grouped(), grouped()


@given(factors())
def test_common_factors_are_groups_of_one_product(
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    """All dimensions are there once, in order, and both sides of a group have one product."""
    before, after = sizes
    groups = common_factors(before, after)
    assert [d for left, _ in groups for d in left] == list(range(len(before)))
    assert [d for _, right in groups for d in right] == list(range(len(after)))
    for left, right in groups:
        assert prod(before[d] for d in left) == prod(after[d] for d in right)


@given(factors(), st.randoms(use_true_random=False))
def test_a_reshape_before_a_transpose_is_one_after_it(
    sizes: tuple[tuple[int, ...], tuple[int, ...]], shuffle: random.Random
) -> None:
    """Where the two are said to change places, they give the same array."""
    dims, after = sizes
    permutation = tuple(shuffle.sample(range(len(dims)), len(dims)))
    source = [0] * len(dims)
    for place, d in enumerate(permutation):
        source[d] = dims[place]
    values = np.arange(prod(source)).reshape(source)
    found = before_transpose(permutation, dims, after)
    if found is not None:
        middle, order = found
        want = values.transpose(permutation).reshape(after)
        assert np.array_equal(values.reshape(middle).transpose(order), want)


def test_a_slice_goes_up_a_chain_of_values_used_twice_at_once() -> None:
    """One run takes a slice through 30 rounds of ops on the same values: equal slices are made once."""
    lines = ["x0 = u32[2] parameter(0)", "y0 = u32[2] parameter(1)"]
    for at in range(30):
        lines += [
            f"x{at + 1} = u32[2] add(x{at}, y{at})",
            f"l{at} = u32[2] multiply(y{at}, y0)",
            f"o{at} = u32[2] or(l{at}, y{at})",
            f"y{at + 1} = u32[2] xor(x{at + 1}, o{at})",
        ]
    body = "\n".join([*lines, "ROOT r = u32[1] slice(y30), slice={[1:2]}"])
    module, log = check(f"HloModule chain\nENTRY main {{\n{body}\n}}\n", Simplify(), draws=2)
    wide = [one for one in module.entry if one.array.dims == (2,)]
    assert [one.opcode for one in wide] == ["parameter", "parameter"]
    assert log.hits["slice(f(A, B)) => f(slice(A), slice(B))"] == 4 * 30


@pytest.mark.parametrize(
    "body",
    [
        (
            "x = s32[2,4] parameter(0)\n t = s32[8,1] reshape(x)\n"
            "ROOT r = s32[8] reduce(t, z), dimensions={1}, to_apply=add, sharding={devices=[2]0,1}"
        ),
        (
            "x = s32[3,2,4] parameter(0)\n t = s32[3,8] reshape(x)\n"
            "ROOT r = s32[8] reduce(t, z), dimensions={0}, to_apply=add, sharding={devices=[2]0,1}"
        ),
    ],
)
def test_a_sharding_stays_with_the_shape_that_it_cuts(body: str) -> None:
    """What is made on the way, of another rank, has no sharding; the result keeps its own."""
    add = "add { a = s32[] parameter(0)\n b = s32[] parameter(1)\n ROOT s = s32[] add(a, b) }"
    text = f"HloModule m\n{add}\nENTRY e {{\nz = s32[] constant(0)\n{body}\n}}\n"
    module, _ = check(text, Simplify(), draws=2)
    assert "sharding" in module.entry.root.attributes
    assert sum("sharding" in entry.attributes for entry in module.entry) == 1


def test_a_result_has_the_sharding_of_what_it_replaces() -> None:
    """Not that of an operand with whose attributes it was made."""
    body = (
        "x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n"
        "f = f32[6] floor(x), sharding={replicated}\n g = f32[6] floor(y)\n"
        "ROOT r = f32[6] maximum(f, g), sharding={devices=[2]0,1}"
    )
    module, _ = check(f"HloModule m\nENTRY e {{\n{body}\n}}\n", Simplify(), draws=2)
    assert module.entry.root.opcode == "floor"
    assert str(module.entry.root.attributes["sharding"]) == "{devices=[2]0,1}"
