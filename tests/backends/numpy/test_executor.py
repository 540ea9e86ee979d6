"""The NumPy executor agrees with the interpreter, counts what it launches, and owns its results."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import EvaluationError, UnsupportedError, UsageError
from hloopt.interpret import plugins
from hloopt.runtime.inputs import generate
from tests.helpers.planned import assert_planned
from tests.helpers.rarely import examples


def bits(array: np.ndarray[Any, Any]) -> list[int]:
    """The bytes of an array: -0.0 differs from 0.0, NaN payloads count."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tolist()


def agree(text: str, seed: int = 0, *, excess_precision: bool = False) -> Any:
    """Run a module both ways on the same inputs; the results have the same bytes."""
    module = hloopt.parse(text)
    hloopt.verify(module)
    inputs = generate(module, seed)
    program = hloopt.compile(module, excess_precision=excess_precision)
    wanted = hloopt.evaluate(module, inputs, excess_precision=excess_precision)
    for _ in range(2):  # a second run must not see the first one's buffers
        got = program.run(inputs)
        assert [bits(array) for array in got] == [bits(array) for array in wanted]
    return program


UNARY = (
    "abs",
    "negate",
    "sqrt",
    "exponential",
    "floor",
    "ceil",
    "round-nearest-even",
    "sign",
    "copy",
)
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "power")
TYPES = ("f32", "f64", "f16", "bf16", "s32", "u8", "s64")


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A random straight line of elementwise ops over one type, some results used several times."""
    kind = draw(st.sampled_from(TYPES))
    rank = draw(st.integers(0, 2))
    shape = f"{kind}[{','.join(['3', '5'][:rank])}]"
    lines = [f"v0 = {shape} parameter(0)", f"v1 = {shape} parameter(1)"]
    for number in range(2, draw(st.integers(3, 10))):
        values = st.integers(0, number - 1).map(lambda at: f"v{at}")
        unary = {"s": ("abs", "negate", "sign", "copy", "not"), "u": ("negate", "copy", "not")}.get(
            kind[0], UNARY
        )
        if draw(st.booleans()):
            operands, opcode = draw(values), draw(st.sampled_from(unary))
        else:
            operands, opcode = f"{draw(values)}, {draw(values)}", draw(st.sampled_from(BINARY))
        lines.append(f"v{number} = {shape} {opcode}({operands})")
    kept = sorted(draw(st.sets(st.integers(0, number), min_size=1, max_size=3)))
    shapes = ", ".join([shape] * len(kept))
    lines.append(f"ROOT t = ({shapes}) tuple({', '.join(f'v{at}' for at in kept)})")
    return "HloModule m\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"


@settings(max_examples=examples(150), deadline=None)
@given(programs(), st.booleans())
def test_random_lines_agree_bit_for_bit(text: str, excess: bool) -> None:
    """Fast paths, in-place reuse and shared results change no bit."""
    agree(text, excess_precision=excess)


LOOP = """HloModule m
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  y = f32[4] add(x, x)
  z = f32[4] negate(y)
  ROOT r = (s32[], f32[4]) tuple(next, z)
}
condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  x = f32[4] parameter(0)
  start = (s32[], f32[4]) tuple(zero, x)
  ROOT loop = (s32[], f32[4]) while(start), condition=condition, body=body
}
"""


def test_launches_count_trips() -> None:
    """Three kernels a trip and one for each of the eight conditions; the program has four."""
    program = agree(LOOP)

    assert program.kernels == 4
    assert program.launches == 7 * 3 + 8


def test_fusions_and_calls_are_inlined() -> None:
    """A fusion is one kernel; a called computation's instructions are kernels of their own."""
    program = agree("""HloModule m
fused {
  p = f32[8] parameter(0)
  q = f32[8] negate(p)
  ROOT r = f32[8] multiply(q, q)
}
callee {
  p = f32[8] parameter(0)
  a = f32[8] abs(p)
  ROOT s = f32[8] sqrt(a)
}
ENTRY e {
  x = f32[8] parameter(0)
  f = f32[8] fusion(x), kind=kLoop, calls=fused
  ROOT c = f32[8] call(f), to_apply=callee
}
""")
    assert program.kernels == 3
    assert program.launches == 3


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 9])
def test_conditionals_choose_the_last_branch_out_of_range(index: int) -> None:
    """As the interpreter does."""
    text = f"""HloModule m
a {{
  p = f32[2] parameter(0)
  ROOT r = f32[2] negate(p)
}}
b {{
  p = (f32[2], f32[2]) parameter(0)
  x = f32[2] get-tuple-element(p), index=0
  y = f32[2] get-tuple-element(p), index=1
  ROOT r = f32[2] multiply(x, y)
}}
c {{
  ROOT p = f32[2] parameter(0)
}}
ENTRY e {{
  i = s32[] constant({index})
  x = f32[2] parameter(0)
  t = (f32[2], f32[2]) tuple(x, x)
  ROOT r = f32[2] conditional(i, x, t, x), branch_computations={{a, b, c}}
}}
"""
    agree(text)


def test_results_of_several_leaves_are_unpacked() -> None:
    """A variadic reduce gives two slots."""
    agree("""HloModule m
arg {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GE
  v = f32[] select(g, a, b)
  k = s32[] select(g, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k)
}
ENTRY e {
  x = f32[6,9] parameter(0)
  n = s32[6,9] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  zero = s32[] constant(0)
  ROOT r = (f32[6], s32[6]) reduce(x, n, low, zero), dimensions={1}, to_apply=arg
}
""")


@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
@pytest.mark.parametrize("dimensions", ["", "0", "1", "0,1"])
@pytest.mark.parametrize("init", ["0", "-0.0", "-1", "1"])
def test_the_sign_of_a_zero_that_is_the_largest_element(
    opcode: str, dimensions: str, init: str
) -> None:
    """+0 is larger than -0 in a reduction, too, whichever comes first."""
    kept = {"": "3,2", "0": "2", "1": "3", "0,1": ""}[dimensions]
    text = f"""
m {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] {opcode}(a, b)
}}
ENTRY e {{
  x = f32[3,2] parameter(0)
  i = f32[] constant({init})
  ROOT r = f32[{kept}] reduce(x, i), dimensions={{{dimensions}}}, to_apply=m
}}
"""
    module = hloopt.parse(text)
    nan = np.nan
    for values in (
        [0, -0.0, -0.0, 0, -0.0, -0.0],
        [-0.0, -1, 0, 1, nan, -0.0],
        [-1, -2, 0, 3, 4, 5],
    ):
        x = np.array(values, np.float32).reshape(3, 2)
        (wanted,), (got,) = hloopt.evaluate(module, [x]), hloopt.compile(module).run([x])
        assert bits(got) == bits(wanted)


@pytest.mark.parametrize(
    "body",
    [
        "ROOT x = f32[3] parameter(0)",
        "x = f32[3] parameter(0)\n ROOT r = f32[3] reshape(x)",
        "x = f32[3] parameter(0)\n ROOT c = f32[3] constant({1, 2, 3})",
        "x = f32[3] parameter(0)\n ROOT i = f32[3] iota(), iota_dimension=0",
        "x = f32[3] parameter(0)\n z = f32[] constant(2)\n ROOT b = f32[3] broadcast(z), dimensions={}",
    ],
)
def test_results_are_the_callers_own(body: str) -> None:
    """Writing into a result changes neither the inputs nor the next run."""
    program = hloopt.compile(hloopt.parse(f"HloModule m\nENTRY e {{\n {body}\n}}\n"))
    given = np.array([1, 2, 3], np.float32)
    first = program.run([given])[0]
    kept = first.copy()
    first[...] = 99

    assert given.tolist() == [1, 2, 3]
    assert program.run([given])[0].tolist() == kept.tolist()


def test_threads_wait_for_each_other() -> None:
    """Each run has the generator's state and the count of launches to itself."""
    program = hloopt.compile(
        hloopt.parse("""HloModule m
test { s = (s32[], u64[2]) parameter(0) i = s32[] get-tuple-element(s), index=0
  k = s32[] constant(50) ROOT c = pred[] compare(i, k), direction=LT }
next { s = (s32[], u64[2]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = u64[2] get-tuple-element(s), index=1 o = s32[] constant(1) n = s32[] add(i, o)
  r = u64[2] rng-get-and-update-state(), delta=1 y = u64[2] xor(x, r)
  ROOT t = (s32[], u64[2]) tuple(n, y) }
ENTRY e { x = u64[2] parameter(0) z = s32[] constant(0) t = (s32[], u64[2]) tuple(z, x)
  ROOT w = (s32[], u64[2]) while(t), condition=test, body=next }""")
    )
    inputs = [np.array([1, 2], np.uint64)]
    alone, launches = program.run(inputs)[1].tolist(), program.launches
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(lambda _: program.run(inputs)[1].tolist(), range(150)))
    finally:
        sys.setswitchinterval(interval)
    assert all(values == alone for values in together)
    assert program.launches == launches


def test_inputs_are_not_changed() -> None:
    """No step writes into a parameter's array."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n x = f32[3] parameter(0)\n y = f32[3] add(x, x)\n"
        " ROOT z = f32[3] multiply(y, x)\n}\n"
    )
    given = np.array([1, 2, 3], np.float32)
    assert hloopt.compile(module).run([given])[0].tolist() == [2, 8, 18]
    assert given.tolist() == [1, 2, 3]


def test_wrong_inputs_are_refused() -> None:
    """Number and shape are checked before anything runs."""
    program = hloopt.compile(
        hloopt.parse("HloModule m\nENTRY e {\n ROOT x = f32[3] parameter(0)\n}\n")
    )
    with pytest.raises(EvaluationError, match="1 parameter array, but 0 inputs"):
        program.run([])
    with pytest.raises(EvaluationError, match=r"dimensions \[3\], but the input has \[4\]"):
        program.run([np.ones(4, np.float32)])


def test_what_cannot_run_is_refused_before_it_runs() -> None:
    """An elided constant stops the compilation with its name and line."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  big = f32[100] constant({...})\n  ROOT n = f32[100] negate(big)\n}\n",
        "m.hlo",
    )
    with pytest.raises(UnsupportedError, match="big") as caught:
        hloopt.compile(module)
    assert (caught.value.line, caught.value.exit_code) == (3, 4)


def test_devices() -> None:
    """An unknown word is the user's mistake, and told as such."""
    module = hloopt.parse("HloModule m\nENTRY e {\n ROOT x = f32[3] parameter(0)\n}\n")
    with pytest.raises(UsageError, match="did you mean 'cpu'"):
        hloopt.compile(module, "cpuu")


MARKED = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] add(x, x)
  z = f32[4] custom-call(y), custom_call_target="Sharding", sharding={replicated}
  ROOT r = f32[4] multiply(z, z)
}
"""


def test_a_marker_is_its_operand_unless_the_user_says_what_it_does(monkeypatch):
    x = np.arange(4, dtype=np.float32)
    assert_planned(MARKED, [x])
    monkeypatch.setitem(plugins._GIVEN, "Sharding", lambda instruction, y: y + 1)
    (got,) = assert_planned(MARKED, [x], evaluated=["custom-call"])
    assert got.tolist() == [1.0, 9.0, 25.0, 49.0]
