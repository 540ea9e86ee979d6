"""Steps of chains: each adds an op, or a few, to the dynamic module and what it means to the static twin."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import strategies as st

from tests.properties.dynamic_chains import Array

__all__ = ["STEPS", "merge"]


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


def stretched(c):
    """Two dynamic sizes of which one is one: it is broadcast."""
    a = c.pick(1)
    if not a.marks[0] or not a.sizes[0]:
        return
    one, twin = c.fresh(), c.fresh()
    row = Array(one, a.bounds, a.marks, (1, *a.sizes[1:]))
    c.dynamic.append(
        f"{one} = {row.dynamic()} set-dimension-size({a.name}, {c.number(1)}), dimensions={{0}}"
    )
    single = c.cut(a, row.sizes)
    rest = ",".join(map(str, a.sizes[1:]))
    kept = ",".join(map(str, range(1, len(a.sizes))))
    c.static += [
        f"{twin}.r = s32[{rest}] reshape({single})",
        f"{twin} = {a.static()} broadcast({twin}.r), dimensions={{{kept}}}",
    ]
    first = c.draw(st.booleans())
    names = ((a.name, one), (a.name, twin)) if first else ((one, a.name), (twin, a.name))
    c.like(a, *(f"subtract({', '.join(pair)})" for pair in names))


def update(c):
    """A row of a static array written into another, where both have it."""
    a = c.pick(1)
    if not a.sizes[0] or any(a.marks[1:]):
        return
    row = c.fresh()
    shape = f"s32[{','.join(map(str, (1, *a.bounds[1:])))}]"
    c.both(f"{row} = {shape} broadcast({c.number(5)}), dimensions={{}}")
    # XLA clamps to the bound, so that a row of the only one is the whole dimension.
    if a.bounds[0] == 1:
        return
    starts = [c.draw(st.integers(0, a.sizes[0] - 1)), *[0] * (len(a.bounds) - 1)]
    c.like(a, f"dynamic-update-slice({a.name}, {row}, {', '.join(map(c.number, starts))})")


def scattered(c):
    """Rows added at places within and beyond the size: those beyond it are left out."""
    a = c.pick(1)
    if any(a.marks[1:]):
        return
    places = c.draw(st.lists(st.integers(-1, a.bounds[0]), min_size=1, max_size=3))
    where, rows = c.fresh(), c.fresh()
    listed = ", ".join(f"{{{place}}}" for place in places)
    shape = ",".join(map(str, (len(places), *a.bounds[1:])))
    c.both(f"{where} = s32[{len(places)},1] constant({{{listed}}})")
    c.both(f"{rows} = s32[{shape}] broadcast({c.number(3)}), dimensions={{}}")
    window = ",".join(map(str, range(1, len(a.bounds))))
    c.like(a, f"scatter({a.name}, {where}, {rows}), update_window_dims={{{window}}}, "
           "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
           "to_apply=plus")  # fmt: skip


def shrinking_loop(c):
    """Each trip takes the last row off and adds the rest to itself."""
    a = c.pick(1)
    iterations = c.draw(st.integers(0, min(a.sizes[0], 2)))
    sizes = (a.sizes[0] - iterations, *a.sizes[1:])
    carried = Array("x", a.bounds, (True, *a.marks[1:]), sizes)
    shape, name = carried.dynamic(), c.fresh()
    c.regions.append(f"""
cond.{name} {{ s = ({shape}, s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=1
  n = s32[] constant({iterations})
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
        f"{factor}.s = s32[] constant({2**iterations})",
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
    reduce_window, sort, stretched, update, scattered, set_size, set_size, get_size, merge, split, flatten, dot, row, rows,
    shrinking_loop, branches,
)  # fmt: skip
