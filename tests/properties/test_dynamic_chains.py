"""Chains of ops on arrays with dynamic dimensions.

Each chain is written twice: with bounds and dynamic dimensions, and as the static twin, a module in which every
dimension has the size it has at run time and what is cut silently is sliced.  The interpreter and the NumPy executor
must give the twin's results, on the module as it is written and as it is optimised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt

REGIONS = """
plus { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b) }
larger { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] maximum(a, b) }
less { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
"""


@dataclass(frozen=True)
class Array:
    """A value of both modules: its name, bounds, which dimensions are dynamic, and its sizes."""

    name: str
    bounds: tuple[int, ...]
    marks: tuple[bool, ...]
    sizes: tuple[int, ...]

    def dynamic(self, element="s32"):
        """The shape of the dynamic module."""
        dims = (f"<={b}" if m else str(b) for b, m in zip(self.bounds, self.marks, strict=True))
        return f"{element}[{','.join(dims)}]"

    def static(self, element="s32"):
        """The shape of the twin."""
        return f"{element}[{','.join(map(str, self.sizes))}]"


@dataclass
class Chain:
    """The two modules while they are written."""

    draw: object
    regions: list[str] = field(default_factory=list)
    dynamic: list[str] = field(default_factory=list)
    static: list[str] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    inputs: list[np.ndarray] = field(default_factory=list)
    count: int = 0

    def fresh(self):
        self.count += 1
        return f"v{self.count}"

    def pick(self, least_rank=0):
        return self.draw(st.sampled_from([a for a in self.arrays if len(a.bounds) >= least_rank]))

    def both(self, line):
        self.dynamic.append(line)
        self.static.append(line)

    def add(self, bounds, marks, sizes, text, twin=None):
        """One more array, ``text`` being its instruction in the dynamic module, ``twin`` in the static one."""
        array = Array(self.fresh(), tuple(bounds), tuple(marks), tuple(sizes))
        self.dynamic.append(f"{array.name} = {array.dynamic()} {text}")
        self.static.append(f"{array.name} = {array.static()} {text if twin is None else twin}")
        self.arrays.append(array)
        return array

    def like(self, array, text, twin=None):
        return self.add(array.bounds, array.marks, array.sizes, text, twin)

    def number(self, value):
        """A scalar: a constant, or one the optimiser does not know."""
        name = self.fresh()
        if self.draw(st.booleans()):
            self.both(f"{name} = s32[] constant({value})")
        else:
            self.inputs.append(np.array(value, np.int32))
            self.both(f"{name} = s32[] parameter({len(self.inputs) - 1})")
        return name

    def parameter(self, bounds, marks, sizes):
        values = self.draw(st.lists(st.integers(-9, 9), min_size=prod(sizes), max_size=prod(sizes)))
        self.inputs.append(np.array(values, np.int32).reshape(sizes))
        self.add(bounds, marks, sizes, f"parameter({len(self.inputs) - 1})")

    def cut(self, array, sizes):
        """The name in the twin of an array cut to sizes."""
        if array.sizes == tuple(sizes):
            return array.name
        name = self.fresh()
        listed = ", ".join(f"[0:{size}]" for size in sizes)
        shape = f"s32[{','.join(map(str, sizes))}]"
        self.static.append(f"{name} = {shape} slice({array.name}), slice={{{listed}}}")
        return name

    def partner(self, array, free=-1):
        """An array of the same bounds and fitting sizes but for one dimension, and the sizes of both."""
        for other in self.draw(st.permutations(self.arrays)):
            if len(other.bounds) == len(array.bounds) and all(
                dim == free
                or (
                    one.bounds[dim] == two.bounds[dim]
                    and (
                        one.sizes[dim] == two.sizes[dim] or not (one.marks[dim] and two.marks[dim])
                    )
                )
                for one, two in [(array, other)]
                for dim in range(len(array.bounds))
            ):
                marks = tuple(map(max, array.marks, other.marks))
                sizes = tuple(map(min, array.sizes, other.sizes))
                return other, marks, sizes
        raise AssertionError("an array fits itself")


def unary(c):
    a = c.pick()
    c.like(a, f"{c.draw(st.sampled_from(['negate', 'abs', 'not', 'copy']))}({a.name})")


def binary(c):
    a = c.pick()
    b, marks, sizes = c.partner(a)
    opcode = c.draw(st.sampled_from(["add", "multiply", "maximum", "subtract"]))
    twin = f"{opcode}({c.cut(a, sizes)}, {c.cut(b, sizes)})"
    c.add(a.bounds, marks, sizes, f"{opcode}({a.name}, {b.name})", twin)


def select(c):
    a = c.pick()
    b, marks, sizes = c.partner(a)
    kept = Array(c.fresh(), a.bounds, marks, sizes)
    one, two = c.cut(a, sizes), c.cut(b, sizes)
    c.dynamic.append(
        f"{kept.name} = {kept.dynamic('pred')} compare({a.name}, {b.name}), direction=LT"
    )
    c.static.append(f"{kept.name} = {kept.static('pred')} compare({one}, {two}), direction=LT")
    text = f"select({kept.name}, {a.name}, {b.name})"
    c.like(kept, text, f"select({kept.name}, {one}, {two})")


def broadcast(c):
    a, size = c.pick(), c.draw(st.integers(1, 3))
    if len(a.bounds) > 2:
        return
    at = c.draw(st.integers(0, len(a.bounds)))
    dims = ",".join(str(dim + (dim >= at)) for dim in range(len(a.bounds)))
    shapes = [(*x[:at], new, *x[at:]) for x, new in
              ((a.bounds, size), (a.marks, False), (a.sizes, size))]  # fmt: skip
    c.add(*shapes, f"broadcast({a.name}), dimensions={{{dims}}}")


def transpose(c):
    a = c.pick()
    order = c.draw(st.permutations(range(len(a.bounds))))
    shapes = [[x[dim] for dim in order] for x in (a.bounds, a.marks, a.sizes)]
    c.add(*shapes, f"transpose({a.name}), dimensions={{{','.join(map(str, order))}}}")


def reverse(c):
    a = c.pick(1)
    c.like(a, f"reverse({a.name}), dimensions={{{c.draw(st.integers(0, len(a.bounds) - 1))}}}")


def slices(c):
    a = c.pick(1)
    texts, twins, bounds, marks, sizes = [], [], [], [], []
    for bound, mark, size in zip(a.bounds, a.marks, a.sizes, strict=True):
        start = c.draw(st.integers(0, bound))
        limit = c.draw(st.integers(start, bound))
        stride = c.draw(st.integers(1, 2))
        taken = len(range(start, limit, stride))
        inside = len(range(size)[start:limit:stride])
        if taken == 1 and not inside:
            return  # an element beyond the size: an error, which is not for here
        texts.append(f"[{start}:{limit}:{stride}]")
        twins.append(f"[{min(start, size)}:{min(limit, size)}:{stride}]")
        bounds.append(taken)
        marks.append(mark and taken != 1)
        sizes.append(inside)
    text, twin = (f"slice({a.name}), slice={{{', '.join(x)}}}" for x in (texts, twins))
    c.add(bounds, marks, sizes, text, twin)


def concatenate(c):
    a = c.pick(1)
    dim = c.draw(st.integers(0, len(a.bounds) - 1))
    b, marks, sizes = c.partner(a, dim)
    if a.bounds[dim] + b.bounds[dim] > 12:
        return
    bounds, sizes = list(a.bounds), list(sizes)
    parts = []
    for x in (a, b):
        sizes[dim] = x.sizes[dim]
        parts.append(c.cut(x, sizes))
    bounds[dim], sizes[dim] = a.bounds[dim] + b.bounds[dim], a.sizes[dim] + b.sizes[dim]
    tail = f"dimensions={{{dim}}}"
    c.add(bounds, marks, sizes, f"concatenate({a.name}, {b.name}), {tail}",
          f"concatenate({parts[0]}, {parts[1]}), {tail}")  # fmt: skip


def pad(c):
    a = c.pick(1)
    entries, bounds, sizes = [], [], []
    for bound, size in zip(a.bounds, a.sizes, strict=True):
        low, high = c.draw(st.integers(-1, 2)), c.draw(st.integers(-1, 2))
        interior = c.draw(st.integers(0, 1))
        entries.append(f"{low}_{high}_{interior}")
        bounds.append(low + high + bound + max(bound - 1, 0) * interior)
        sizes.append(low + high + size + max(size - 1, 0) * interior)
    if min(sizes) < 0 or max(bounds) > 12:
        return
    value = c.number(7)
    c.add(bounds, a.marks, sizes, f"pad({a.name}, {value}), padding={'x'.join(entries)}")


def reduce(c):
    a, zero = c.pick(1), c.number(0)
    gone = c.draw(st.sets(st.integers(0, len(a.bounds) - 1), min_size=1))
    kept = [dim for dim in range(len(a.bounds)) if dim not in gone]
    shapes = [[x[dim] for dim in kept] for x in (a.bounds, a.marks, a.sizes)]
    region = c.draw(st.sampled_from(["plus", "larger"]))
    listed = ",".join(map(str, sorted(gone)))
    c.add(*shapes, f"reduce({a.name}, {zero}), dimensions={{{listed}}}, to_apply={region}")


def reduce_window(c):
    a, zero = c.pick(1), c.number(0)
    window = [(c.draw(st.integers(1, 2)), c.draw(st.integers(1, 2))) for _ in a.bounds]
    bounds, sizes = (
        [max(0, (n - w) // s + 1) for n, (w, s) in zip(x, window, strict=True)]
        for x in (a.bounds, a.sizes)
    )
    text = "x".join(str(w) for w, _ in window), "x".join(str(s) for _, s in window)
    c.add(bounds, a.marks, sizes, f"reduce-window({a.name}, {zero}), "
          f"window={{size={text[0]} stride={text[1]}}}, to_apply=plus")  # fmt: skip


def sort(c):
    a = c.pick(1)
    dim = c.draw(st.integers(0, len(a.bounds) - 1))
    c.like(a, f"sort({a.name}), dimensions={{{dim}}}, is_stable=true, to_apply=less")


def set_size(c):
    a = c.pick(1)
    dim = c.draw(st.integers(0, len(a.bounds) - 1))
    size = c.draw(st.integers(0, a.sizes[dim]))
    marks = [mark or at == dim for at, mark in enumerate(a.marks)]
    sizes = [size if at == dim else n for at, n in enumerate(a.sizes)]
    text = f"set-dimension-size({a.name}, {c.number(size)}), dimensions={{{dim}}}"
    c.add(a.bounds, marks, sizes, text, f"copy({c.cut(a, sizes)})")


def get_size(c):
    a = c.pick(1)
    dim = c.draw(st.integers(0, len(a.bounds) - 1))
    text = f"get-dimension-size({a.name}), dimensions={{{dim}}}"
    c.add((), (), (), text, f"constant({a.sizes[dim]})")


def merge(c):
    a = c.pick(2)
    at = c.draw(st.integers(0, len(a.bounds) - 2))
    if a.bounds[at] * a.bounds[at + 1] > 16 or 0 in a.bounds:
        return
    marks = [*a.marks[:at], max(a.marks[at : at + 2]), *a.marks[at + 2 :]]
    bounds, sizes = ([*x[:at], x[at] * x[at + 1], *x[at + 2 :]] for x in (a.bounds, a.sizes))
    c.add(bounds, marks, sizes, f"reshape({a.name})")


def split(c):
    a = c.pick(1)
    at = c.draw(st.integers(0, len(a.bounds) - 1))
    part = c.draw(st.sampled_from([n for n in (1, 2, 3) if not a.bounds[at] % n]))
    if len(a.bounds) > 2 or a.sizes[at] % part or 0 in a.bounds:
        return
    major = c.draw(st.booleans())

    def parts(size, whole):
        return (size // part, part) if major else (part, size // part)

    flags = (a.marks[at], False) if major else (False, a.marks[at])
    bounds, sizes = ([*x[:at], *parts(x[at], x), *x[at + 1 :]] for x in (a.bounds, a.sizes))
    c.add(bounds, [*a.marks[:at], *flags, *a.marks[at + 1 :]], sizes, f"reshape({a.name})")


def flatten(c):
    a = c.pick(1)
    if prod(a.bounds) > 64:
        return
    count = c.number(prod(a.sizes))
    c.add([prod(a.bounds)], [True], [prod(a.sizes)], f"dynamic-reshape({a.name}, {count})",
          f"reshape({a.name})")  # fmt: skip


def dot(c):
    a = c.pick(1)
    for b in c.draw(st.permutations(c.arrays)):
        if not b.bounds or len(a.bounds) + len(b.bounds) > 5 or a.bounds[-1] != b.bounds[0]:
            continue
        if a.marks[-1] and b.marks[0] and a.sizes[-1] != b.sizes[0]:
            continue
        size = min(a.sizes[-1], b.sizes[0])
        one, two = c.cut(a, (*a.sizes[:-1], size)), c.cut(b, (size, *b.sizes[1:]))
        tail = f"lhs_contracting_dims={{{len(a.bounds) - 1}}}, rhs_contracting_dims={{0}}"
        shapes = [(*x[:-1], *y[1:]) for x, y in
                  ((a.bounds, b.bounds), (a.marks, b.marks), (a.sizes, b.sizes))]  # fmt: skip
        c.add(*shapes, f"dot({a.name}, {b.name}), {tail}", f"dot({one}, {two}), {tail}")
        return


def row(c):
    """One row, by dynamic-slice."""
    a = c.pick(1)
    if not a.sizes[0]:
        return
    starts = [c.draw(st.integers(0, a.sizes[0] - 1)), *[0] * (len(a.bounds) - 1)]
    names = ", ".join(map(c.number, starts))
    marks = [False, *(m and n > 1 for m, n in zip(a.marks[1:], a.bounds[1:], strict=True))]
    if any(m and not n for m, n, b in zip(a.marks[1:], a.sizes[1:], a.bounds[1:], strict=True)
           if b == 1):  # fmt: skip
        return
    texts = (
        f"dynamic-slice({a.name}, {names}), dynamic_slice_sizes={{{','.join(map(str, x))}}}"
        for x in ((1, *a.bounds[1:]), (1, *a.sizes[1:]))
    )
    c.add((1, *a.bounds[1:]), marks, (1, *a.sizes[1:]), *texts)


def rows(c):
    """Rows at places that are known, by gather."""
    a = c.pick(1)
    if not a.sizes[0] or any(m and b == 1 for m, b in zip(a.marks[1:], a.bounds[1:], strict=True)):
        return
    places = c.draw(st.lists(st.integers(0, a.sizes[0] - 1), min_size=1, max_size=3))
    name, rank = c.fresh(), len(a.bounds)
    listed = ", ".join(f"{{{place}}}" for place in places)
    c.both(f"{name} = s32[{len(places)},1] constant({{{listed}}})")
    offset = ",".join(map(str, range(1, rank)))
    texts = (
        f"gather({a.name}, {name}), offset_dims={{{offset}}}, collapsed_slice_dims={{0}}, "
        f"start_index_map={{0}}, index_vector_dim=1, slice_sizes={{{','.join(map(str, x))}}}"
        for x in ((1, *a.bounds[1:]), (1, *a.sizes[1:]))
    )
    count = len(places)
    c.add((count, *a.bounds[1:]), (False, *a.marks[1:]), (count, *a.sizes[1:]), *texts)


def shrinking_loop(c):
    """Each trip takes the last row off and adds the rest to itself."""
    a = c.pick(1)
    trips = c.draw(st.integers(0, min(a.sizes[0], 2)))
    sizes = (a.sizes[0] - trips, *a.sizes[1:])
    carried = Array("x", a.bounds, (True, *a.marks[1:]), sizes)
    shape, name = carried.dynamic(), c.fresh()
    c.regions.append(f"""
cond.{name} {{ s = ({shape}, s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=1
  n = s32[] constant({trips})
  ROOT r = pred[] compare(i, n), direction=LT }}
body.{name} {{ s = ({shape}, s32[]) parameter(0)
  x = {shape} get-tuple-element(s), index=0
  i = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  n = s32[] get-dimension-size(x), dimensions={{0}}
  m = s32[] subtract(n, one)
  y = {shape} set-dimension-size(x, m), dimensions={{0}}
  z = {shape} add(y, y)
  ROOT r = ({shape}, s32[]) tuple(z, j) }}
""")
    zero, size, whole = c.number(0), c.number(a.sizes[0]), c.fresh()
    c.dynamic += [
        f"{whole}.set = {shape} set-dimension-size({a.name}, {size}), dimensions={{0}}",
        f"{whole}.t = ({shape}, s32[]) tuple({whole}.set, {zero})",
        f"{whole}.w = ({shape}, s32[]) while({whole}.t), condition=cond.{name}, body=body.{name}",
    ]
    factor = c.fresh()
    listed = ",".join(map(str, sizes))
    c.static += [
        f"{factor}.s = s32[] constant({2**trips})",
        f"{factor} = s32[{listed}] broadcast({factor}.s), dimensions={{}}",
    ]
    c.add(carried.bounds, carried.marks, sizes, f"get-tuple-element({whole}.w), index=0",
          f"multiply({c.cut(a, sizes)}, {factor})")  # fmt: skip


def branches(c):
    """One branch passes an array on, the other makes it smaller."""
    a = c.pick(1)
    taken, size = c.draw(st.booleans()), c.draw(st.integers(0, a.sizes[0]))
    name, marks = c.fresh(), (True, *a.marks[1:])
    result = Array("r", a.bounds, marks, a.sizes).dynamic()
    c.regions.append(f"""
true.{name} {{ x = {a.dynamic()} parameter(0)
  n = s32[] constant({size})
  ROOT y = {result} set-dimension-size(x, n), dimensions={{0}} }}
false.{name} {{ x = {a.dynamic()} parameter(0)
  ROOT y = {a.dynamic()} negate(x) }}
""")
    selector = c.fresh()
    c.dynamic += [
        f"{selector}.n = s32[] parameter({len(c.inputs)})",
        f"{selector}.z = s32[] constant(0)",
        f"{selector} = pred[] compare({selector}.n, {selector}.z), direction=NE",
    ]
    c.static.append(f"{selector}.n = s32[] parameter({len(c.inputs)})")
    c.inputs.append(np.array(taken, np.int32))
    sizes = (size, *a.sizes[1:]) if taken else a.sizes
    text = (
        f"conditional({selector}, {a.name}, {a.name}), true_computation=true.{name}, "
        f"false_computation=false.{name}"
    )
    c.add(a.bounds, marks, sizes, text, f"{'copy' if taken else 'negate'}({c.cut(a, sizes)})")


STEPS = (
    unary, binary, binary, select, broadcast, transpose, reverse, slices, concatenate, pad, reduce,
    reduce_window, sort, set_size, set_size, get_size, merge, split, flatten, dot, row, rows,
    shrinking_loop, branches,
)  # fmt: skip


@st.composite
def chains(draw):
    """Two modules, static and dynamic, and their inputs."""
    c = Chain(draw)
    bound = draw(st.integers(1, 6))
    size = draw(st.integers(0, bound))
    for _ in range(draw(st.integers(1, 3))):
        rest = draw(st.lists(st.integers(1, 3), max_size=1))
        dynamic = draw(st.booleans())
        first = size if dynamic else bound
        c.parameter((bound, *rest), (dynamic, *(False for _ in rest)), (first, *rest))
    for _ in range(draw(st.integers(1, 8))):
        candidates = [step for step in STEPS if step is not merge or _has_rank(c, 2)]
        draw(st.sampled_from(candidates))(c)
    results = c.arrays[-1:] + draw(st.lists(st.sampled_from(c.arrays), max_size=3))
    texts = []
    for lines, shapes in (
        (c.dynamic, [array.dynamic() for array in results]),
        (c.static, [array.static() for array in results]),
    ):
        names = ", ".join(array.name for array in results)
        body = "\n  ".join([*lines, f"ROOT out = ({', '.join(shapes)}) tuple({names})"])
        regions = REGIONS + "".join(c.regions if lines is c.dynamic else [])
        texts.append(f"HloModule chain\n{regions}\nENTRY e {{\n  {body}\n}}\n")
    return texts[0], texts[1], c.inputs


def _has_rank(c, rank):
    return any(len(array.bounds) >= rank for array in c.arrays)


@given(chains())
@settings(max_examples=150)
def test_dynamic_chains_are_their_static_twins(chain):
    """Bounds change nothing but shapes: not in the interpreter, the executor, or the optimiser."""
    text, twin, inputs = chain
    want = hloopt.evaluate(_valid(twin), inputs)
    module = _valid(text)
    optimized = hloopt.optimize(module, pipeline="O2")
    hloopt.verify(optimized)
    for what, given_module in (("given", module), ("O2", optimized)):
        for who, results in (
            ("interpreter", hloopt.evaluate(given_module, inputs)),
            ("executor", hloopt.compile(given_module).run(inputs)),
        ):
            for got, wanted in zip(results, want, strict=True):
                np.testing.assert_array_equal(got, wanted, f"{who}, {what}", strict=True)


def _valid(text):
    module = hloopt.parse(text, "chain.hlo")
    hloopt.verify(module)
    return module
