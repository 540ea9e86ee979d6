"""Calls, branches, loops, asynchronous pairs, tuples and what passes values on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.types import DTYPES
from tests.helpers.rarely import examples
from tests.semantics.combiners import stored
from tests.semantics.elements import ELEMENTS, drawn_dims, seeds, shape_of, values
from tests.semantics.statement import check

OPCODES = (
    "add-dependency",
    "after-all",
    "async-done",
    "async-start",
    "async-update",
    "call",
    "conditional",
    "copy-done",
    "copy-start",
    "domain",
    "fusion",
    "get-tuple-element",
    "opt-barrier",
    "tuple",
    "while",
)

names = st.sampled_from(ELEMENTS)


def program(body, regions=""):
    return f"HloModule statement\n{regions}\nENTRY entry {{\n{body}\n}}\n"


@st.composite
def trees(draw, depth=3):
    """A nested tuple of element types with dimensions."""
    parts = draw(st.integers(0, 3))
    return [
        draw(trees(depth=depth - 1))
        if depth and draw(st.booleans())
        else (draw(names), draw(drawn_dims(max_rank=2, max_size=3)))
        for _ in range(parts)
    ]


def tree_shape(tree):
    if isinstance(tree, list):
        return f"({', '.join(map(tree_shape, tree))})"
    return shape_of(*tree)


def leaves_of(tree):
    return [leaf for part in tree for leaf in leaves_of(part)] if isinstance(tree, list) else [tree]


def numbered(tree, numbers):
    """The tree with a number for each leaf."""
    if isinstance(tree, list):
        return [numbered(part, numbers) for part in tree]
    return next(numbers)


class Lines:
    """The lines of a computation; the last one is its root."""

    def __init__(self):
        self.lines = []

    def add(self, shape, text):
        name = f"v{len(self.lines)}"
        self.lines.append(f"  {name} = {shape} {text}")
        return name

    def pack(self, tree, names_):
        """tuple instructions around the named leaves."""
        if not isinstance(tree, list):
            return next(names_)
        parts = [self.pack(part, names_) for part in tree]
        return self.add(tree_shape(tree), f"tuple({', '.join(parts)})")

    def text(self):
        *before, last = self.lines
        return "\n".join([*before, "  ROOT" + last[1:]])


@given(trees(), st.booleans(), seeds, st.data())
@settings(max_examples=examples(40))
def test_tuples_hold_values_and_give_them_back(tree, whole, chooser, data):
    """tuple puts values together in order, get-tuple-element takes one out, however they are nested."""
    leaves, lines = leaves_of(tree), Lines()
    arrays = [values(*leaf, chooser) for leaf in leaves]
    if whole:  # one parameter that is the tuple itself
        name = lines.add(tree_shape(tree), "parameter(0)")
    else:
        each = [lines.add(shape_of(*leaf), f"parameter({at})") for at, leaf in enumerate(leaves)]
        name = lines.pack(tree, iter(each))
    part, places = tree, numbered(tree, iter(range(len(leaves))))
    while isinstance(part, list) and part and data.draw(st.booleans()):
        index = data.draw(st.integers(0, len(part) - 1))
        part, places = part[index], places[index]
        name = lines.add(tree_shape(part), f"get-tuple-element({name}), index={index}")
    lines.add(f"({tree_shape(part)})", f"tuple({name})")
    check(program(lines.text()), arrays, [arrays[place] for place in leaves_of(places)])


@given(trees(), seeds)
@settings(max_examples=examples(40))
def test_barriers_dependencies_and_domains_pass_any_value_on(tree, chooser):
    """Tuples through opt-barrier, arrays through add-dependency and domain; tokens have no value."""
    leaves, lines = leaves_of(tree), Lines()
    arrays = [values(*leaf, chooser) for leaf in leaves]
    shape = tree_shape(tree)
    name = lines.add(shape, "parameter(0)")
    name = lines.add(shape, f"opt-barrier({name})")
    token = lines.add("token[]", "after-all()")
    token = lines.add("token[]", f"after-all({token}, {token})")
    results = []
    for at, part in enumerate(tree):
        part_shape = tree_shape(part)
        element = lines.add(part_shape, f"get-tuple-element({name}), index={at}")
        if not isinstance(part, list):
            element = lines.add(part_shape, f"add-dependency({element}, {token})")
            kind = 'domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}'
            element = lines.add(part_shape, f"domain({element}), {kind}")
        results.append(element)
    shapes = ", ".join([*map(tree_shape, tree), "token[]"])
    lines.add(f"({shapes})", f"tuple({', '.join([*results, token])})")
    check(program(lines.text()), arrays, arrays)


BODY = """
{name} {{
  x = s32[{n}] parameter(0)
  y = s32[{n}] parameter(1)
  m = s32[{n}] multiply(x, y)
  s = s32[{n}] subtract(m, y)
  ROOT t = (s32[{n}], s32[{n}]) tuple(s, m)
}}"""


@pytest.mark.parametrize(
    "how",
    [
        "call(x, y), to_apply=body",
        "fusion(x, y), kind=kLoop, calls=body",
        "fusion(x, y), kind=kInput, calls=body",
        "fusion(x, y), kind=kOutput, calls=body",
        "fusion(x, y), kind=kCustom, calls=body",
    ],
)
@given(n=st.integers(0, 5), chooser=seeds)
@settings(max_examples=8)
def test_calls_and_fusions_are_their_computations(how, n, chooser):
    """The parameters are the operands, the value is that of the root; of every kind of fusion."""
    pair = f"(s32[{n}], s32[{n}])"
    body = f"""
  x = s32[{n}] parameter(0)
  y = s32[{n}] parameter(1)
  ROOT r = {pair} {how}"""
    x, y = values("s32", (n,), chooser), values("s32", (n,), chooser)
    product = np.empty(n, np.int32)
    rest = np.empty(n, np.int32)
    for i in range(n):
        product[i] = stored(int(x[i]) * int(y[i]), "s32")
        rest[i] = stored(int(product[i]) - int(y[i]), "s32")
    check(program(body, BODY.format(name="body", n=n)), [x, y], [rest, product])


BRANCHES = """
add1 {{ x = {s} parameter(0) c = s32[] constant(1) b = {s} broadcast(c), dimensions={{}} ROOT r = {s} add(x, b) }}
double {{ x = {s} parameter(0) ROOT r = {s} add(x, x) }}
negative {{ x = {s} parameter(0) ROOT r = {s} negate(x) }}
squared {{ x = {s} parameter(0) ROOT r = {s} multiply(x, x) }}
"""
MEANINGS = (
    ("add1", lambda x: x + 1),
    ("double", lambda x: 2 * x),
    ("negative", lambda x: -x),
    ("squared", lambda x: x * x),
)


@given(
    st.integers(1, 4),
    st.one_of(st.integers(-3, 6), st.sampled_from([-(2**31), 2**31 - 1])),
    drawn_dims(max_rank=2),
    seeds,
)
@settings(max_examples=examples(60))
def test_conditional_takes_the_last_branch_for_an_index_out_of_range(count, index, dims, chooser):
    """The branch of that number, each with an operand of its own; negative and large indices the last."""
    taken = index if 0 <= index < count else count - 1
    shape = shape_of("s32", dims)
    arrays = [values("s32", dims, chooser) for _ in range(count)]
    want = np.empty(dims, np.int32)
    for at in np.ndindex(*dims):
        want[at] = stored(MEANINGS[taken][1](int(arrays[taken][at])), "s32")
    lines = ["  i = s32[] parameter(0)"]
    lines += [f"  p{k} = {shape} parameter({k + 1})" for k in range(count)]
    operands = ", ".join(f"p{k}" for k in range(count))
    listed = ", ".join(name for name, _ in MEANINGS[:count])
    lines.append(f"  ROOT r = {shape} conditional(i, {operands}), branch_computations={{{listed}}}")
    text = program("\n".join(lines), BRANCHES.format(s=shape))
    check(text, [np.array(index, np.int32), *arrays], want)


@pytest.mark.parametrize("value", [True, False])
def test_conditional_takes_the_first_branch_when_true(value):
    """The other one when false; the branches have names of their own then."""
    body = """
  i = pred[] parameter(0)
  p = s32[2] parameter(1)
  q = s32[2] parameter(2)
  ROOT r = s32[2] conditional(i, p, q), true_computation=double, false_computation=negative"""
    p, q = np.array([3, -4], np.int32), np.array([5, 6], np.int32)
    want = np.array([6, -8] if value else [-5, -6], np.int32)
    check(program(body, BRANCHES.format(s="s32[2]")), [np.array(value), p, q], want)


def test_conditional_of_branches_that_take_and_give_tuples():
    """Branches may take different shapes; they give the same one."""
    regions = """
one {
  t = (f32[], s32[2]) parameter(0)
  x = f32[] get-tuple-element(t), index=0
  y = s32[2] get-tuple-element(t), index=1
  ROOT r = (s32[2], f32[]) tuple(y, x)
}
two {
  x = f32[] parameter(0)
  c = s32[2] constant({8, 9})
  ROOT r = (s32[2], f32[]) tuple(c, x)
}"""
    body = """
  i = s32[] parameter(0)
  x = f32[] parameter(1)
  y = s32[2] parameter(2)
  t = (f32[], s32[2]) tuple(x, y)
  ROOT r = (s32[2], f32[]) conditional(i, t, x), branch_computations={one, two}"""
    x, y = np.array(2.5, np.float32), np.array([1, 2], np.int32)
    check(program(body, regions), [np.array(0, np.int32), x, y], [y, x])
    check(program(body, regions), [np.array(1, np.int32), x, y], [np.array([8, 9], np.int32), x])


LOOP = """
body {{
  s = (s32[], s32[{n}], s32[], (u8[{n}])) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s32[{n}] get-tuple-element(s), index=1
  limit = s32[] get-tuple-element(s), index=2
  t = (u8[{n}]) get-tuple-element(s), index=3
  y = u8[{n}] get-tuple-element(t), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ib = s32[{n}] broadcast(i), dimensions={{}}
  m = s32[{n}] multiply(x, x)
  a = s32[{n}] add(m, ib)
  z = u8[{n}] convert(x)
  yz = u8[{n}] add(y, z)
  u = (u8[{n}]) tuple(yz)
  ROOT r = (s32[], s32[{n}], s32[], (u8[{n}])) tuple(next, a, limit, u)
}}
condition {{
  s = (s32[], s32[{n}], s32[], (u8[{n}])) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] get-tuple-element(s), index=2
  ROOT c = pred[] compare(i, limit), direction=LT
}}"""


@given(st.integers(-2, 12), st.integers(0, 3), seeds)
@settings(max_examples=examples(40))
def test_while_runs_its_body_as_long_as_its_condition_holds(limit, n, chooser):
    """Not at all when it does not hold at first; the state is any tuple."""
    x, y = values("s32", (n,), chooser), values("u8", (n,), chooser)
    numbers, bytes_, i = [int(e) for e in x], [int(e) for e in y], 0
    while i < limit:
        new = [stored(e * e + i, "s32") for e in numbers]
        bytes_ = [(b + e) % 256 for b, e in zip(bytes_, numbers, strict=True)]
        numbers, i = new, i + 1
    body = f"""
  x = s32[{n}] parameter(0)
  y = u8[{n}] parameter(1)
  limit = s32[] parameter(2)
  zero = s32[] constant(0)
  u = (u8[{n}]) tuple(y)
  s = (s32[], s32[{n}], s32[], (u8[{n}])) tuple(zero, x, limit, u)
  ROOT w = (s32[], s32[{n}], s32[], (u8[{n}])) while(s), condition=condition, body=body"""
    want = [np.array(i, np.int32), np.array(numbers, np.int32), np.array(limit, np.int32)]
    inputs = [x, y, np.array(limit, np.int32)]
    check(program(body, LOOP.format(n=n)), inputs, [*want, np.array(bytes_, np.uint8)])


def test_while_of_an_array_and_in_a_loop():
    """A state that is no tuple; a loop in the body of another."""
    regions = """
grow { x = s64[] parameter(0) two = s64[] constant(2) ROOT r = s64[] multiply(x, two) }
small { x = s64[] parameter(0) k = s64[] constant(100) ROOT c = pred[] compare(x, k), direction=LT }
outer {
  x = s64[] parameter(0)
  three = s64[] constant(-97)
  y = s64[] while(x), condition=small, body=grow
  ROOT r = s64[] add(y, three)
}
far { x = s64[] parameter(0) k = s64[] constant(60) ROOT c = pred[] compare(x, k), direction=LT }"""
    body = "  x = s64[] parameter(0)\n  ROOT w = s64[] while(x), condition=far, body=outer"
    for start in (1, 5, 59, 60, 1000):
        x = start
        while x < 60:
            while x < 100:
                x *= 2
            x -= 97
        check(program(body, regions), [np.array(start)], np.array(x))


WRAPPED = {
    "sort": (
        "f32[4]",
        "sort(x), dimensions={0}, to_apply=less",
        [np.array([3, 1, 2, 0], np.float32)],
        np.array([0, 1, 2, 3], np.float32),
    ),
    "transpose": (
        "s8[3,2]",
        "transpose(x), dimensions={1,0}",
        [np.array([[1, 2, 3], [4, 5, 6]], np.int8)],
        np.array([[1, 4], [2, 5], [3, 6]], np.int8),
    ),
    "custom-call": (
        "f32[2]",
        'custom-call(x), custom_call_target="Sharding"',
        [np.array([1, 2], np.float32)],
        np.array([1, 2], np.float32),
    ),
    "subtract": (
        "s32[2]",
        "subtract(x, y)",
        [np.array([5, 7], np.int32), np.array([1, 9], np.int32)],
        np.array([4, -2], np.int32),
    ),
    "copy": ("bf16[]", "copy(x)", [np.array(1.5).astype(DTYPES["bf16"].numpy)], None),
}
LESS = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }"


@pytest.mark.parametrize("op", WRAPPED)
@pytest.mark.parametrize("updates", [0, 1, 3])
@pytest.mark.parametrize("words", ["", ", s32[]", ", u32[], u32[2]"])
def test_asynchronous_ops_give_what_their_computation_gives(op, updates, words):
    """Whatever op is wrapped, however many updates there are, whatever context the state has."""
    result, how, arrays, want = WRAPPED[op]
    kinds = {np.dtype(row.numpy): name for name, row in DTYPES.items() if row.is_array}
    shapes = [shape_of(kinds[x.dtype], x.shape) for x in arrays]
    each = ["x", "y"][: len(shapes)]
    parameters = "\n".join(
        f"  {n} = {s} parameter({k})" for k, (n, s) in enumerate(zip(each, shapes, strict=True))
    )
    wrapped = f"{LESS}\nwrapped {{\n{parameters}\n  ROOT r = {result} {how}\n}}"
    state = f"(({', '.join(shapes)}), {result}{words})"
    lines = [parameters, f"  a0 = {state} async-start({', '.join(each)}), calls=wrapped"]
    lines += [f"  a{k + 1} = {state} async-update(a{k})" for k in range(updates)]
    lines.append(f"  ROOT r = {result} async-done(a{updates})")
    check(program("\n".join(lines), wrapped), arrays, arrays[0] if want is None else want)


LATE = """
wrapped {
  x = s32[] parameter(0)
  y = s32[] parameter(1)
  z = s32[] parameter(2)
  ROOT r = s32[] clamp(x, y, z)
}"""
LATE_LINES = """
  x = s32[] parameter(0)
  y = s32[] parameter(1)
  z = s32[] parameter(2)
  a = ((s32[]), s32[], u32[]) async-start(x), calls=wrapped
  b = ((s32[], s32[]), s32[], u32[]) async-update(a, y)
"""


def test_an_async_update_may_bring_the_operands_that_were_left_open():
    """They are the computation's next parameters."""
    body = (
        LATE_LINES
        + """
  c = ((s32[], s32[], s32[]), s32[], u32[]) async-update(b, z)
  d = ((s32[], s32[], s32[]), s32[], u32[]) async-update(c)
  ROOT r = s32[] async-done(d)"""
    )
    inputs = [np.array(number, np.int32) for number in (7, 15, 9)]
    check(program(body, LATE), inputs, np.array(9, np.int32))


def test_an_asynchronous_call_that_never_has_its_operands_is_refused():
    """Before anything runs, at its end."""
    module = hloopt.parse(program(LATE_LINES + "  ROOT r = s32[] async-done(b)", LATE))
    inputs = [np.array(1, np.int32)] * 3
    for run in (lambda: hloopt.evaluate(module, inputs), lambda: hloopt.compile(module)):
        with pytest.raises(UnsupportedError) as error:
            run()
        assert error.value.message == "r: 2 operands for a computation of 3 parameters"
        assert (error.value.line, error.value.column) == (16, 8)


@given(names, drawn_dims(), seeds)
@settings(max_examples=examples(40))
def test_copies_that_are_started_and_ended_give_the_value(name, dims, chooser):
    """The state is (copy, source, context)."""
    x, shape = values(name, dims, chooser), shape_of(name, dims)
    body = f"""
  x = {shape} parameter(0)
  s = ({shape}, {shape}, u32[]) copy-start(x)
  ROOT r = {shape} copy-done(s)"""
    check(program(body), [x], x)


def test_collective_sugar_of_asynchronous_ops_is_what_it_stands_for():
    """``slice-start`` and ``slice-done`` are an async pair around a slice."""
    body = """
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[2], u32[]) slice-start(x), slice={[1:3]}
  ROOT r = f32[2] slice-done(s)"""
    x = np.array([1, 2, 3, 4], np.float32)
    check(program(body), [x], np.array([2, 3], np.float32))
