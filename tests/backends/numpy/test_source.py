"""What a line is written as: loops and conditionals in place, scalars as operators, no calls between."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloopt
from hloopt.backends.numpy.program import NumpyProgram
from tests.helpers.planned import assert_planned
from tests.helpers.python_code import PythonCode


def loop(state: str, body: str, condition: str, entry: str) -> str:
    """A while over ``(s32[], state)`` with elements ``i`` and ``x``; the body names ``next`` and ``y``."""
    parts = (
        f"  s = (s32[], {state}) parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        f"  x = {state} get-tuple-element(s), index=1\n  one = s32[] constant(1)\n"
    )
    return (
        f"HloModule m\nbody {{\n{parts}  next = s32[] add(i, one)\n{body}\n"
        f"  ROOT r = (s32[], {state}) tuple(next, y)\n}}\n"
        f"condition {{\n{parts}{condition}\n}}\nENTRY e {{\n{entry}\n"
        f"  t = (s32[], {state}) tuple(i, x)\n"
        f"  ROOT w = (s32[], {state}) while(t), condition=condition, body=body\n}}\n"
    )


COUNTED = "  n = s32[] constant(7)\n  ROOT c = pred[] compare(i, n), direction=LT"
BEGINNING = "  i = s32[] constant(0)\n  x = f32[3] parameter(0)"


def test_a_counted_loop_asks_for_no_condition() -> None:
    text = loop("f32[3]", "  y = f32[3] multiply(x, x)", COUNTED, BEGINNING)
    code = PythonCode.of(text)
    (over,) = (ast.unparse(one.iter) for one in code.nodes(ast.For))
    assert over in [
        ast.unparse(one.targets[0])
        for one in code.assigned(ast.Name, ast.Call)
        if isinstance(one.value, ast.Call) and "7" in map(ast.unparse, one.value.args)
    ]
    assert len(code.operators(ast.Add)) == 1  # the counter
    assert not code.exits()
    assert not code.elements()
    assert_planned(text, [np.array([1, -1, 0.5], np.float32)])


def test_another_loop_asks_in_place() -> None:
    text = loop("f32[3]", "  y = f32[3] multiply(x, x)", COUNTED, BEGINNING)
    text = text.replace("i = s32[] constant(0)", "i = s32[] parameter(1)")
    body = PythonCode.of(text).loop()
    (compared,) = body.assigned(ast.Name, ast.Compare)
    (end,) = body.exits()
    assert ast.unparse(end.test) == f"not {ast.unparse(compared.targets[0])}"
    for start in (-3, 0, 6, 7, 100):
        assert_planned(text, [np.array([1, -1, 0.5], np.float32), np.array(start, np.int32)])


def test_what_trips_hand_on_unchanged_is_no_state() -> None:
    body = "  y = f32[3] multiply(x, x)"
    text = loop("f32[3]", body, COUNTED, BEGINNING).replace("tuple(next, y)", "tuple(next, x)")
    assert PythonCode.of(text).loop().assigned(ast.Name, ast.Name)
    assert_planned(text, [np.array([1, -1, 0.5], np.float32)])


def test_a_scalar_fills_one_array_again_and_again() -> None:
    """Where a ufunc stretches it; the array is made once, outside the loop."""
    body = (
        "  f = f32[] convert(i)\n  b = f32[3] broadcast(f), dimensions={}\n  y = f32[3] add(x, b)"
    )
    text = loop("f32[3]", body, COUNTED, BEGINNING)
    code = PythonCode.of(text)
    filled = [one.targets[0] for one in code.loop().assigned(ast.Subscript, ast.Name)]
    assert filled
    assert all(one in code.loop().elements() for one in filled)
    made = [
        [step for step in part.steps() if ast.unparse(step.args[0]) == "()"]
        for part in (code, code.loop())
    ]
    assert [len(part) for part in made] == [len(filled), 0]
    assert_planned(text, [np.array([1, -1, 0.5], np.float32)])


def test_slices_at_computed_places_are_written_in_place() -> None:
    body = (
        "  p = f32[1] dynamic-slice(x, i), dynamic_slice_sizes={1}\n"
        "  q = f32[1] add(p, p)\n  y = f32[3] dynamic-update-slice(x, q, next)"
    )
    text = loop("f32[3]", body, COUNTED, BEGINNING)
    body = PythonCode.of(text).loop()
    (taken,) = body.assigned(ast.Name, ast.Subscript)
    name = ast.unparse(taken.targets[0])
    assert f"{name} + {name}" in map(ast.unparse, body.operators(ast.Add))
    assert body.assigned(ast.Subscript, ast.Name)
    assert not body.methods("copy")
    assert_planned(text, [np.array([1, -1, 0.5], np.float32)])


ROWS = "  z = s32[] constant(0)\n  p = f32[1,4] dynamic-slice(x, i, z), dynamic_slice_sizes={1,4}\n"


def test_a_row_is_copied_only_where_something_writes() -> None:
    """Of an array that is written into, for as long as the row may be needed."""
    entry = "  i = s32[] constant(0)\n  x = f32[8,4] parameter(0)"
    updated = ROWS + "  q = f32[1,4] negate(p)\n  y = f32[8,4] dynamic-update-slice(x, q, next, z)"
    added = ROWS + "  q = f32[4] reshape(p)\n  b = f32[8,4] broadcast(q), dimensions={1}\n"
    added += "  y = f32[8,4] add(x, b)"
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    for body, copied in ((updated, True), (added, False)):
        text = loop("f32[8,4]", body, COUNTED, entry)
        copies = [one.func for one in PythonCode.of(text).methods("copy")]
        assert [
            isinstance(one, ast.Attribute) and isinstance(one.value, ast.Subscript)
            for one in copies
        ] == ([True] * copied)
        assert_planned(text, [x])


def test_a_row_that_becomes_state_that_is_updated_is_copied() -> None:
    """The next trip writes over it, not over the array it was taken from."""
    text = """HloModule m
body {
  s = (s32[], f32[4], f32[20,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  rows = f32[20,4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  z = s32[] constant(0)
  first = f32[1] slice(x), slice={[0:1]}
  y = f32[4] dynamic-update-slice(x, first, one)
  p = f32[1,4] dynamic-slice(rows, i, z), dynamic_slice_sizes={1,4}
  row = f32[4] reshape(p)
  more = f32[] constant(2)
  factors = f32[4] broadcast(more), dimensions={}
  again = pred[] compare(i, one), direction=EQ
  y2 = f32[4] multiply(y, factors)
  ROOT r = (s32[], f32[4], f32[20,4]) tuple(next, row, rows)
}
condition {
  s = (s32[], f32[4], f32[20,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  i = s32[] constant(0)
  x = f32[4] parameter(0)
  rows = f32[20,4] parameter(1)
  t = (s32[], f32[4], f32[20,4]) tuple(i, x, rows)
  ROOT w = (s32[], f32[4], f32[20,4]) while(t), condition=condition, body=body
}
"""
    kept = text.replace("tuple(next, row, rows)", "tuple(next, y3, rows)").replace(
        "  more =", "  y3 = f32[4] dynamic-update-slice(row, first, one)\n  more ="
    )
    rows = np.arange(80, dtype=np.float32).reshape(20, 4)
    for version in (text, kept):
        assert_planned(version, [np.ones(4, np.float32), rows])


def nested(depth: int) -> str:
    """Loops inside one another, each of two trips, the innermost of which adds 1 to its state."""
    parts = ["HloModule m"]
    state = "(s32[], s32[3])"
    opened = (
        f"  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        "  x = s32[3] get-tuple-element(s), index=1\n  one = s32[] constant(1)\n"
    )
    for level in range(depth):
        parts.append(
            f"again{level} {{\n{opened}  n = s32[] constant(2)\n"
            "  ROOT c = pred[] compare(i, n), direction=LT\n}"
        )
        inner = "  ones = s32[3] broadcast(one), dimensions={}\n  y = s32[3] add(x, ones)\n"
        if level:
            inner = (
                f"  z = s32[] constant(0)\n  t = {state} tuple(z, x)\n  w = {state} while(t),"
                f" condition=again{level - 1}, body=body{level - 1}\n"
                "  y = s32[3] get-tuple-element(w), index=1\n"
            )
        parts.append(
            f"body{level} {{\n{opened}{inner}  next = s32[] add(i, one)\n"
            f"  ROOT r = {state} tuple(next, y)\n}}"
        )
    parts.append(
        f"ENTRY e {{\n  i = s32[] parameter(0)\n  x = s32[3] parameter(1)\n  t = {state} tuple(i, x)\n"
        f"  ROOT w = {state} while(t), condition=again{depth - 1}, body=body{depth - 1}\n}}\n"
    )
    return "\n".join(parts)


@pytest.mark.parametrize("depth", [1, 3, 8, 9, 11])
def test_loops_inside_one_another(depth: int) -> None:
    """As deep as Python allows in one function, deeper ones in functions of their own."""
    text = nested(depth)
    (count, found) = assert_planned(text, [np.array(0, np.int32), np.array([5, 6, 7], np.int32)])
    assert count == 2
    assert found.tolist() == [value + 2**depth for value in (5, 6, 7)]


def branching(count: int) -> str:
    """A conditional in which branch n multiplies by n and takes the sum with its own operand."""
    parts = ["HloModule m"]
    parts += [
        f"b{n} {{\n  s = (f32[3], f32[]) parameter(0)\n  x = f32[3] get-tuple-element(s), index=0\n"
        f"  c = f32[] get-tuple-element(s), index=1\n  n = f32[] constant({n})\n"
        f"  m = f32[] multiply(c, n)\n  w = f32[3] broadcast(m), dimensions={{}}\n"
        f"  y = f32[3] add(x, w)\n  ROOT r = (f32[3], f32[]) tuple(y, m)\n}}"
        for n in range(count)
    ]
    names = ", ".join(f"b{n}" for n in range(count))
    operands = ", ".join("t" for _ in range(count))
    parts.append(
        "ENTRY e {\n  k = s32[] parameter(0)\n  x = f32[3] parameter(1)\n  c = f32[] parameter(2)\n"
        "  t = (f32[3], f32[]) tuple(x, c)\n"
        f"  ROOT r = (f32[3], f32[]) conditional(k, {operands}), branch_computations={{{names}}}\n}}\n"
    )
    return "\n".join(parts)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_branches_are_written_in_place(count: int) -> None:
    """Found by halves; out of range is the last."""
    text = branching(count)
    chosen = [one for one in PythonCode.of(text).nodes(ast.If) if isinstance(one.test, ast.Compare)]
    assert len(chosen) == count - 1
    for index in range(-1, count + 2):
        inputs = [np.array(index, np.int32), np.ones(3, np.float32), np.array(2, np.float32)]
        assert_planned(text, inputs)


def test_equal_steps_are_made_once() -> None:
    text = (
        "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  a = f32[4] add(x, x)\n"
        "  b = f32[4] add(x, x)\n  c = f32[4] subtract(x, x)\n"
        "  ROOT t = (f32[4], f32[4], f32[4]) tuple(a, b, c)\n}\n"
    )
    program = hloopt.compile(hloopt.parse(text))
    assert isinstance(program, NumpyProgram)
    asked = [[ast.unparse(one) for one in step.args] for step in PythonCode.of(text).steps()]
    assert asked == [["v1", "v1"]] * 2
    assert_planned(text, [np.arange(4, dtype=np.float32)])


KINDS = ("s32", "u32", "u8", "s8", "f32", "f64")


@st.composite
def scalar_loops(draw: st.DrawFn) -> tuple[str, list[int]]:
    """Loops over three scalars of one type, with a slice at a place that they compute."""
    kind = draw(st.sampled_from(KINDS))
    names = ["x", "y"]
    lines = []
    for number in range(draw(st.integers(1, 8))):
        left, right = (draw(st.sampled_from(names)) for _ in range(2))
        choice = draw(
            st.sampled_from(
                ["add", "subtract", "multiply", "maximum", "minimum", "select", "table"]
            )
        )
        name = f"n{number}"
        if choice == "select":
            lines.append(f"  p{number} = pred[] compare({left}, {right}), direction=LT")
            lines.append(f"  {name} = {kind}[] select(p{number}, {right}, {left})")
        elif choice == "table":
            lines.append(
                f"  d{number} = {kind}[1] dynamic-slice(rows, i), dynamic_slice_sizes={{1}}"
            )
            lines.append(f"  {name} = {kind}[] reshape(d{number})")
        else:
            lines.append(f"  {name} = {kind}[] {choice}({left}, {right})")
        names.append(name)
    state = f"(s32[], {kind}[], {kind}[], {kind}[5])"
    opened = (
        f"  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        f"  x = {kind}[] get-tuple-element(s), index=1\n"
        f"  y = {kind}[] get-tuple-element(s), index=2\n"
        f"  rows = {kind}[5] get-tuple-element(s), index=3\n  one = s32[] constant(1)\n"
    )
    first, second = (draw(st.sampled_from(names)) for _ in range(2))
    text = (
        f"HloModule m\nbody {{\n{opened}"
        + "\n".join(lines)
        + f"\n  q = {kind}[1] reshape({first})\n"
        f"  after = {kind}[5] dynamic-update-slice(rows, q, i)\n  next = s32[] add(i, one)\n"
        f"  ROOT r = {state} tuple(next, {second}, {first}, after)\n}}\n"
        f"again {{\n{opened}  n = s32[] constant({draw(st.integers(0, 7))})\n"
        "  ROOT c = pred[] compare(i, n), direction=LT\n}\n"
        f"ENTRY e {{\n  i = s32[] constant(-1)\n  x = {kind}[] parameter(0)\n  y = {kind}[] parameter(1)\n"
        f"  rows = {kind}[5] parameter(2)\n  t = {state} tuple(i, x, y, rows)\n"
        f"  ROOT w = {state} while(t), condition=again, body=body\n}}\n"
    )
    return text, draw(st.lists(st.integers(0, 127), min_size=7, max_size=7))


@given(drawn=scalar_loops())
def test_random_loops_of_scalars(drawn: tuple[str, list[int]]) -> None:
    text, numbers = drawn
    kind = hloopt.parse(text).entry.parameters[0].array.dtype.numpy
    x, y, *rows = (np.array(number, kind) for number in numbers)
    assert_planned(text, [x, y, np.array(rows, kind)])


@pytest.mark.parametrize("kind", ["f32", "s32", "bf16"])
def test_small_selects_are_assignments(kind: str) -> None:
    """Into the array that is kept elsewhere, unless somebody else needs it."""
    shape = f"{kind}[6]"
    opened = (
        f"HloModule m\nENTRY e {{\n  p = pred[6] parameter(0)\n  x = {shape} parameter(1)\n"
        f"  y = {shape} parameter(2)\n  z = {shape} reverse(y), dimensions={{0}}\n"
        f"  w = {shape} negate(z)\n"
        f"  s = {shape} select(p, x, w)\n"
    )
    alone = f"{opened}  ROOT r = {shape} copy(s)\n}}\n"
    needed = f"{opened}  ROOT r = ({shape}, {shape}) tuple(s, w)\n}}\n"
    input_ = alone.replace("select(p, x, w)", "select(p, x, y)")
    numbers = (np.arange(12) % 5).astype(hloopt.parse(alone).entry.parameters[1].array.dtype.numpy)
    inputs = [np.arange(6) % 2 == 0, numbers[:6], numbers[6:]]
    for text, copies in ((alone, 0), (needed, 1), (input_, 1)):
        code = PythonCode.of(text)
        assert len(code.methods("copy")) == copies
        assert "where" in code.keywords()
        assert_planned(text, inputs)


def test_a_quotient_and_a_rest_share_what_they_need() -> None:
    text = (
        "HloModule m\nENTRY e {\n  x = s32[6] parameter(0)\n  c = s32[] constant(3)\n"
        "  y = s32[6] broadcast(c), dimensions={}\n  q = s32[6] divide(x, y)\n"
        "  r = s32[6] remainder(x, y)\n  ROOT t = (s32[6], s32[6]) tuple(q, r)\n}\n"
    )
    assert len(PythonCode.of(text).steps()) == 3
    assert_planned(text, [np.array([-(2**31), -4, -3, 0, 5, 2**31 - 1], np.int32)])


def test_leading_dimensions_of_one_element_cost_nothing() -> None:
    """Reshapes that add or take them away are no steps, but for results."""
    text = (
        "HloModule m\nENTRY e {\n  x = f32[4,30] parameter(0)\n"
        "  p = f32[1,30] slice(x), slice={[2:3], [0:30]}\n  q = f32[30] reshape(p)\n"
        "  a = f32[30] add(q, q)\n  b = f32[1,1,30] reshape(a)\n  ROOT c = f32[1,1,30] negate(b)\n}\n"
    )
    assert len(PythonCode.of(text).methods("reshape")) == 1  # of the result
    (found,) = assert_planned(text, [np.arange(120, dtype=np.float32).reshape(4, 30)])
    assert found.shape == (1, 1, 30)


@pytest.mark.parametrize(
    ("opcode", "start", "counted"),
    [("or", "false", True), ("or", "true", False), ("and", "true", True), ("and", "false", False)],
)
def test_whether_any_or_all_is_counted(opcode: str, start: str, counted: bool) -> None:
    text = (
        f"HloModule m\nc {{\n  a = pred[] parameter(0)\n  b = pred[] parameter(1)\n"
        f"  ROOT r = pred[] {opcode}(a, b)\n}}\nENTRY e {{\n  x = pred[2,3] parameter(0)\n"
        f"  s = pred[] constant({start})\n"
        "  ROOT r = pred[] reduce(x, s), dimensions={0,1}, to_apply=c\n}\n"
    )
    program = hloopt.compile(hloopt.parse(text))
    assert isinstance(program, NumpyProgram)
    assert (np.count_nonzero in program._entry.__globals__.values()) == counted
    for ones in range(7):
        assert_planned(text, [(np.arange(6) < ones).reshape(2, 3)])


def test_a_condition_that_does_more_is_asked_however_often_the_body_runs() -> None:
    """Here it tells the host of each trip."""
    text = loop("f32[3]", "  y = f32[3] multiply(x, x)", COUNTED, BEGINNING)
    telling = (
        "  k = token[] after-all()\n  o = token[] outfeed(i, k), outfeed_shape=s32[]\n  n = s32"
    )
    told = text.replace("  n = s32", telling)
    assert PythonCode.of(told).exits()
    module = hloopt.parse(told)
    host = hloopt.Host()
    hloopt.compile(module).run([np.ones(3, np.float32)], host)
    written = host.written
    assert [int(written[f"outfeed_{trip}"]) for trip in range(8)] == list(range(8))
    assert len(written) == 8


def test_a_predicate_is_not_written_over_while_it_selects() -> None:
    """One that is its own value, and one that is that value reversed."""
    text = (
        "HloModule m\nENTRY e {\n  a = pred[9] parameter(0)\n  x = pred[9] parameter(1)\n"
        "  p = pred[9] not(a)\n  q = pred[9] reverse(p), dimensions={0}\n"
        "  s = pred[9] select(q, x, p)\n  ROOT t = pred[9] xor(s, x)\n}\n"
    )
    bits = np.array([1, 1, 0, 1, 0, 0, 0, 1, 0], bool)
    for version in (text, text.replace("select(q", "select(p")):
        assert len(PythonCode.of(version).methods("copy")) == 1
        assert_planned(version, [bits, ~bits[::-1].copy()])


@pytest.mark.parametrize("stretched", ["p", "x", "xy"])
def test_large_selects_blend_in_place_where_the_arrays_have_all_elements(stretched: str) -> None:
    """Not where the predicate alone has them."""
    names = {"p": "pred", "x": "f32", "y": "f32"}
    lines = []
    for at, (name, kind) in enumerate(names.items()):
        if name in stretched:
            lines += [
                f"  {name}0 = {kind}[300] parameter({at})",
                f"  {name} = {kind}[4,300] broadcast({name}0), dimensions={{1}}",
            ]
        else:
            lines.append(f"  {name} = {kind}[4,300] parameter({at})")
    lines.append("  ROOT s = f32[4,300] select(p, x, y)")
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
    asked = [[ast.unparse(one) for one in step.args] for step in PythonCode.of(text).steps()]
    assert any(len(one) == 3 and one[0] == one[2] for one in asked) == (stretched != "xy")
    random = np.random.default_rng(2)
    sizes = [(300,) if name in stretched else (4, 300) for name in names]
    predicate = random.random(sizes[0]) < 0.5
    floats = [random.standard_normal(size).astype(np.float32) for size in sizes[1:]]
    assert_planned(text, [predicate, *floats])


def test_what_is_made_of_constants_alone_is_made_once_for_all_runs() -> None:
    text = (
        "HloModule m\nENTRY e {\n  x = s32[4] parameter(0)\n  n = s32[4] iota(), iota_dimension=0\n"
        "  two = s32[] constant(2)\n  b = s32[4] broadcast(two), dimensions={}\n"
        "  p = pred[4] compare(n, b), direction=LT\n  s = s32[4] select(p, b, n)\n"
        "  ROOT r = s32[4] add(x, s)\n}\n"
    )
    assert len(PythonCode.of(text).assigned(ast.Name, ast.Call)) == 1
    assert_planned(text, [np.array([5, -6, 7, 2**31 - 1], np.int32)])


def test_large_results_of_constants_are_made_by_each_run() -> None:
    text = (
        "HloModule m\nENTRY e {\n  n = s32[4096] iota(), iota_dimension=0\n"
        "  ROOT r = s32[4096] add(n, n)\n}\n"
    )
    assert len(PythonCode.of(text).assigned(ast.Name, ast.Call)) == 1
    assert_planned(text, [])


def test_equal_constants_of_two_fusions_let_equal_steps_be_made_once() -> None:
    fused = (
        "{\n  p = f32[8] parameter(0)\n  c = f32[] constant(-0.5)\n"
        "  b = f32[8] broadcast(c), dimensions={}\n  m = f32[8] multiply(p, b)\n"
    )
    text = (
        f"HloModule m\none {fused}  ROOT r = f32[8] negate(m)\n}}\n"
        f"two {fused}  ROOT r = f32[8] abs(m)\n}}\nENTRY e {{\n  x = f32[8] parameter(0)\n"
        "  a = f32[8] fusion(x), kind=kLoop, calls=one\n"
        "  b = f32[8] fusion(x), kind=kLoop, calls=two\n"
        "  ROOT t = (f32[8], f32[8]) tuple(a, b)\n}\n"
    )
    assert len(PythonCode.of(text).assigned(ast.Name, ast.Call)) == 3
    assert_planned(text, [np.linspace(-1, 1, 8).astype(np.float32)])


def test_zeros_of_either_sign_are_constants_of_their_own() -> None:
    text = (
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  a = f32[] constant(0)\n"
        "  b = f32[] constant(-0)\n  c = f32[2] broadcast(a), dimensions={}\n"
        "  d = f32[2] broadcast(b), dimensions={}\n  m = f32[2] multiply(x, c)\n"
        "  n = f32[2] multiply(x, d)\n  ROOT t = (f32[2], f32[2]) tuple(m, n)\n}\n"
    )
    assert_planned(text, [np.array([1, -1], np.float32)])


def test_selects_by_one_predicate_share_its_mask() -> None:
    text = (
        "HloModule m\nENTRY e {\n  p = pred[1000] parameter(0)\n  x = f32[1000] parameter(1)\n"
        "  y = f32[1000] parameter(2)\n  one = f32[] constant(1)\n  zero = f32[] constant(0)\n"
        "  o = f32[1000] broadcast(one), dimensions={}\n  z = f32[1000] broadcast(zero), dimensions={}\n"
        "  s = f32[1000] select(p, x, y)\n  u = f32[1000] select(p, o, z)\n"
        "  ROOT t = (f32[1000], f32[1000]) tuple(s, u)\n}\n"
    )
    assert len(PythonCode.of(text).methods("astype")) == 1
    draw = np.random.default_rng(0)
    pred = draw.random(1000) < 0.5
    assert_planned(text, [pred, *(draw.standard_normal((2, 1000)).astype(np.float32))])
