"""What the judge finds, and what it lets through: programs in which one thing is wrong, beside ways to be right.

Each program has an element that is small beside others, or whose sum cancels; each mistake is of a kind that
passes make: an addend is missing, a row is scaled, a sign or an index is another.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.interpret import evaluate_participants
from hloopt.runtime.judge import Judge, OutputComparison, judged
from tests.helpers.support import invoke

Array = np.ndarray[Any, Any]

ADD = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
"""

MASK = """HloModule mask
ENTRY e {
  q = f32[8,16] parameter(0)
  k = f32[8,16] parameter(1)
  m = pred[8,8] parameter(2)
  z = f32[8,8] parameter(3)
  d = f32[8,8] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  c = f32[] constant(-1e30)
  far = f32[8,8] broadcast(c), dimensions={}
  x = f32[8,8] add(d, z)
  ROOT s = f32[8,8] select(m, x, far)
}
"""

SOFTMAX = f"""{ADD}ENTRY e {{
  x = f32[6,40] parameter(0)
  m = pred[6,40] parameter(1)
  none = f32[] constant(-inf)
  far = f32[6,40] broadcast(none), dimensions={{}}
  y = f32[6,40] select(m, x, far)
  top = f32[6] reduce(y, none), dimensions={{1}}, to_apply=max
  tops = f32[6,40] broadcast(top), dimensions={{0}}
  s = f32[6,40] subtract(y, tops)
  p = f32[6,40] exponential(s)
  zero = f32[] constant(0)
  t = f32[6] reduce(p, zero), dimensions={{1}}, to_apply=add
  ts = f32[6,40] broadcast(t), dimensions={{0}}
  ROOT r = f32[6,40] divide(p, ts)
}}
"""

NORM = f"""{ADD}ENTRY e {{
  x = f32[5,64] parameter(0)
  zero = f32[] constant(0)
  n = f32[] constant(64)
  ns = f32[5] broadcast(n), dimensions={{}}
  t = f32[5] reduce(x, zero), dimensions={{1}}, to_apply=add
  mean = f32[5] divide(t, ns)
  means = f32[5,64] broadcast(mean), dimensions={{0}}
  d = f32[5,64] subtract(x, means)
  q = f32[5,64] multiply(d, d)
  v = f32[5] reduce(q, zero), dimensions={{1}}, to_apply=add
  var = f32[5] divide(v, ns)
  w = f32[5] rsqrt(var)
  ws = f32[5,64] broadcast(w), dimensions={{0}}
  y = f32[5,64] multiply(d, ws)
  ROOT r = (f32[5,64], f32[5,64]) tuple(y, d)
}}
"""

ATTENTION = f"""{ADD}ENTRY e {{
  q = f32[8,16] parameter(0)
  k = f32[8,16] parameter(1)
  v = f32[8,4] parameter(2)
  row = s32[8,8] iota(), iota_dimension=0
  column = s32[8,8] iota(), iota_dimension=1
  seen = pred[8,8] compare(column, row), direction=LE
  d = f32[8,8] dot(q, k), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  c = f32[] constant(-1e9)
  far = f32[8,8] broadcast(c), dimensions={{}}
  y = f32[8,8] select(seen, d, far)
  none = f32[] constant(-inf)
  top = f32[8] reduce(y, none), dimensions={{1}}, to_apply=max
  tops = f32[8,8] broadcast(top), dimensions={{0}}
  s = f32[8,8] subtract(y, tops)
  p = f32[8,8] exponential(s)
  zero = f32[] constant(0)
  t = f32[8] reduce(p, zero), dimensions={{1}}, to_apply=add
  ts = f32[8,8] broadcast(t), dimensions={{0}}
  w = f32[8,8] divide(p, ts)
  ROOT r = f32[8,4] dot(w, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""

LONG = f"""{ADD}ENTRY e {{
  x = f32[3,20000] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[3] reduce(x, zero), dimensions={{1}}, to_apply=add
}}
"""

RUNNING = f"""{ADD}ENTRY e {{
  x = f32[500] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[500] reduce-window(x, zero), window={{size=500 pad=499_0}}, to_apply=add
}}
"""

NARROW = """HloModule m
ENTRY e {
  x = bf16[16,32] parameter(0)
  y = bf16[32,16] parameter(1)
  b = bf16[16,16] parameter(2)
  d = bf16[16,16] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = bf16[16,16] add(d, b)
  t = bf16[16,16] tanh(s)
  ROOT r = bf16[16,16] multiply(t, b)
}
"""

LOOP = """HloModule m
body {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  h = f32[] constant(0.01)
  hs = f32[8] broadcast(h), dimensions={}
  f = f32[8] sine(x)
  g = f32[8] multiply(f, hs)
  y = f32[8] subtract(x, g)
  ROOT r = (s32[], f32[8]) tuple(n, y)
}
condition {
  s = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(50)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  x = f32[8] parameter(0)
  s = (s32[], f32[8]) tuple(zero, x)
  w = (s32[], f32[8]) while(s), condition=condition, body=body
  ROOT y = f32[8] get-tuple-element(w), index=1
}
"""

SOLVE = """HloModule m
ENTRY e {
  a = f32[6,6] parameter(0)
  b = f32[6,2] parameter(1)
  l = f32[6,6] cholesky(a), lower=true
  ROOT r = f32[6,2] triangular-solve(l, b), left_side=true, lower=true, unit_diagonal=false, transpose_a=NO_TRANSPOSE
}
"""


def drawn(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def inputs_of(text: str) -> list[Array]:
    """Numbers of many sizes side by side."""
    rng = np.random.default_rng(3)
    if text == MASK:
        q, k, z = drawn((8, 16), (8, 16), (8, 8))
        return [q, k, rng.random((8, 8)) < 0.5, z]
    if text == SOFTMAX:
        return [drawn((6, 40))[0] * 8, (rng.random((6, 40)) < 0.7) | (np.arange(40) == 0)]
    if text == NORM:
        (x,) = drawn((5, 64))
        return [x * np.float32([1e6, 1, 1e-3, 30, 1e-6])[:, None] + np.float32(1e-3)]
    if text == ATTENTION:
        q, k, v = drawn((8, 16), (8, 16), (8, 4))
        return [q, k, v * np.float32([1e8, 1, 1e-4, 1])]
    if text == LONG:
        (x,) = drawn((3, 20000))
        return [x * np.float32([1e10, 1, 1e-5])[:, None] + np.float32([0, 1, 0])[:, None]]
    if text == RUNNING:
        (x,) = drawn((500,))
        return [np.where(np.arange(500) == 300, np.float32(1e8), np.abs(x))]
    if text == NARROW:
        from ml_dtypes import bfloat16

        x, y, b = drawn((16, 32), (32, 16), (16, 16))
        b[0, 0] = 1e20
        return [x.astype(bfloat16), y.astype(bfloat16), b.astype(bfloat16)]
    if text == LOOP:
        return [np.float32([1e-3, 0.5, 3, 1, 2, -1, 40, 0.1])]
    (a, b) = drawn((6, 6), (6, 2))
    return [a @ a.T + np.eye(6, dtype=np.float32), b]


def found(text: str, broken: str, **way: Any) -> list[OutputComparison]:
    module, inputs = hloopt.parse(text), inputs_of(text)
    want = hloopt.evaluate(module, inputs)
    other = hloopt.parse(broken)
    got = hloopt.compile(other, device="cpu").run(inputs) if way else hloopt.evaluate(other, inputs)
    return judged(module, inputs, got, want)


PROGRAMS = {
    "mask": MASK,
    "softmax": SOFTMAX,
    "norm": NORM,
    "attention": ATTENTION,
    "long": LONG,
    "running": RUNNING,
    "narrow": NARROW,
    "loop": LOOP,
    "solve": SOLVE,
}


@pytest.mark.every_value
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("pipeline", ["", "O2", "O3", "simplify{fast_math=true},O2"])
def test_right_results_are_right(name: str, pipeline: str) -> None:
    """Functions of NumPy, sums in another order, fast math: rounding is no mistake."""
    module = hloopt.parse(PROGRAMS[name])
    better = hloopt.optimize(module, pipeline) if pipeline else module
    results = found(PROGRAMS[name], better.to_text(), cpu=True)
    assert [one.reason for one in results if not one.passed] == []


@pytest.mark.parametrize(
    ("name", "right", "wrong", "count"),
    [
        ("mask", "f32[8,8] add(d, z)", "f32[8,8] copy(z)", 20),
        ("mask", "f32[8,8] add(d, z)", "f32[8,8] subtract(d, z)", 20),
        ("softmax", "f32[6,40] divide(p, ts)", "f32[6,40] divide(p, tops)", 20),
        ("softmax", "to_apply=add", "to_apply=max", 100),
        ("norm", "constant(64)", "constant(63)", 100),
        ("attention", "direction=LE", "direction=LT", 8),
        ("long", "constant(0)", "constant(9)", 2),
        ("running", "pad=499_0", "pad=498_1", 250),
        ("narrow", "tanh(s)", "tanh(d)", 40),
        ("narrow", "multiply(t, b)", "divide(t, b)", 100),
        ("loop", "subtract(x, g)", "subtract(x, hs)", 6),
        ("loop", "constant(50)", "constant(49)", 6),
        ("solve", "NO_TRANSPOSE", "TRANSPOSE", 6),
    ],
)
def test_wrong_results_are_wrong(name: str, right: str, wrong: str, count: int) -> None:
    """One op is another; a large number in the same array hides none of it."""
    text = PROGRAMS[name]
    assert right in text
    broken = text.replace(right, wrong)
    assert sum(one.mismatches for one in found(text, broken)) >= count


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("how", ["halved", "negated", "dropped", "swapped"])
def test_one_small_element_is_enough(name: str, how: str) -> None:
    """Of what is finite and no sum that cancels, the element that is smallest but not zero."""
    text = PROGRAMS[name]
    module, inputs = hloopt.parse(text), inputs_of(text)
    want = hloopt.evaluate(module, inputs)
    got = [array.copy() for array in want]
    flat = got[0].reshape(-1)
    wide = np.abs(flat.astype(np.float64))
    order = np.argsort(np.where(wide > wide[wide > 0].min() * 100, wide, np.inf))
    at, other = order[0], order[-1]
    if how == "swapped":
        other = next(place for place in order if abs(wide[place] - wide[at]) > 0.01 * wide[at])
        flat[[at, other]] = flat[[other, at]]
    else:
        flat[at] = {"halved": flat[at] / 2, "negated": -flat[at], "dropped": 0}[how]
    comparison = judged(module, inputs, got, want)[0]
    assert not comparison.passed


def test_an_index_that_rounding_decides() -> None:
    """Two sums that are equal but for their rounding: either may be the largest, a third may not."""
    text = """HloModule m
better { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  p = pred[] compare(a, b), direction=GE
  v = f32[] select(p, a, b)
  k = s32[] select(p, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k) }
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  s = f32[4] multiply(x, y)
  i = s32[4] iota(), iota_dimension=0
  none = f32[] constant(-inf)
  zero = s32[] constant(0)
  ROOT r = (f32[], s32[]) reduce(s, i, none, zero), dimensions={0}, to_apply=better
}
"""
    module = hloopt.parse(text)
    near = [np.float32([1.1, 1.3, 0.1, 0.2]), np.float32([1.3, 1.1 + 1.2e-7, 0.3, 0.1])]
    value, index = hloopt.evaluate(module, near)
    other = np.asarray(1 - index, np.int32)
    assert all(one.passed for one in judged(module, near, [value, other], [value, index]))
    apart = [np.float32([1.1, 1.4, 0.1, 0.2]), np.float32([1.3, 1.2, 0.3, 0.1])]
    value, index = hloopt.evaluate(module, apart)
    wrong = np.asarray(1 - index, np.int32)
    assert not judged(module, apart, [value, wrong], [value, index])[1].passed


BREAK = """
from dataclasses import dataclass
from typing import ClassVar
from hloopt import Module, Pass, PassLog
from hloopt.ir import edit

@dataclass(frozen=True)
class Break(Pass):
    \"\"\"Replace a sum by one of its operands, which is wrong.\"\"\"
    name: ClassVar[str] = "break-sum"

    def run(self, module: Module, log: PassLog) -> bool:
        for one in list(module.entry):
            if one.opcode == "add" and log.allows():
                log.hit("break", one)
                edit.replace_instruction(one, one.operands[1])
                return True
        return False
"""


@pytest.fixture
def broken(tmp_path: Any) -> tuple[str, ...]:
    (tmp_path / "mask.hlo").write_text(MASK)
    (tmp_path / "broken.py").write_text(BREAK)
    words = (
        "--pass-file",
        str(tmp_path / "broken.py"),
        "--passes",
        "break-sum,dce",
        "--repeat",
        "1",
    )
    return ("run", str(tmp_path / "mask.hlo"), *words)


def test_run_finds_a_pass_that_deletes_a_product(broken: tuple[str, ...]) -> None:
    """Beside -1e30 in the same array, and says that rounding does not explain it."""
    result = invoke(*broken)
    assert result.exit_code == 1
    assert "times what rounding allows" in result.stdout
    assert "--rounding" not in result.stdout
    assert "note" not in result.stdout


def test_expected_results_have_no_large_neighbours(tmp_path: Any) -> None:
    """790 beside 1e30 is found."""
    (tmp_path / "m.hlo").write_text("HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }")
    np.savez(tmp_path / "in.npz", in_0=np.float32([1e30, 10]))
    np.savez(tmp_path / "out.npz", out_0=np.float32([1e30, 800]))
    files = ("--inputs", str(tmp_path / "in.npz"), "--expect", str(tmp_path / "out.npz"))
    result = invoke("run", str(tmp_path / "m.hlo"), *files, "--repeat", "1")
    assert result.exit_code == 1
    assert "out_0[1]" in result.stdout
    assert invoke("run", str(tmp_path / "m.hlo"), *files, "--tolerance", "atol=790").exit_code == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nothing_is_verified_without_a_number(value: float, tmp_path: Any) -> None:
    """All results are NaN or infinite: a word of its own, and no success."""
    (tmp_path / "m.hlo").write_text(
        "HloModule m\nENTRY e { x = f32[4] parameter(0) ROOT y = f32[4] add(x, x) }"
    )
    np.savez(tmp_path / "in.npz", in_0=np.full(4, value, np.float32))
    words = ("run", str(tmp_path / "m.hlo"), "--inputs", str(tmp_path / "in.npz"), "--repeat", "1")
    result = invoke(*words)
    assert result.exit_code == 1
    assert "nothing verified: out_0 holds no finite number" in result.stdout
    assert "\nok " not in result.stdout
    assert '"verdict": "nothing verified"' in invoke(*words, "--json").stdout


def test_some_results_without_a_number(tmp_path: Any) -> None:
    """What was verified is said, and what was not; the word is another one, and it is no failure."""
    (tmp_path / "m.hlo").write_text(
        "HloModule m\nENTRY e { x = f32[2] parameter(0) y = f32[2] parameter(1)\n"
        "  e = f32[0] slice(x), slice={[0:0]}\n"
        "  ROOT t = (f32[2], f32[2], f32[0]) tuple(x, y, e) }"
    )
    np.savez(tmp_path / "in.npz", in_0=np.float32([1, 2]), in_1=np.float32([np.nan, np.nan]))
    words = ("run", str(tmp_path / "m.hlo"), "--inputs", str(tmp_path / "in.npz"), "--repeat", "1")
    result = invoke(*words)
    assert result.exit_code == 0
    told = "nothing verified: out_1 holds no finite number; out_2 has no elements"
    assert f"partly verified 3 results: equal; {told}" in result.stdout
    (row,) = json.loads(invoke(*words, "--json").stdout)["modules"]
    found = row["verdict"], row["unverified"], row["passed"]
    assert found == ("partly verified", ["out_1"], False)


def test_a_result_without_elements_is_verified_by_its_shape(tmp_path: Any) -> None:
    """It has nothing that could be wrong: beside numbers the verdict is ok."""
    (tmp_path / "m.hlo").write_text(
        "HloModule m\nENTRY e { x = f32[2] parameter(0) e = f32[0] slice(x), slice={[0:0]}\n"
        "  ROOT t = (f32[2], f32[0]) tuple(x, e) }"
    )
    result = invoke("run", str(tmp_path / "m.hlo"), "--seed", "1", "--repeat", "1", "--json")
    (row,) = json.loads(result.stdout)["modules"]
    assert (result.exit_code, row["verdict"], row["unverified"]) == (0, "ok", [])


def test_participants_round_alike() -> None:
    """What all have the same of, all have the same of in each evaluation; sums of participants may be off."""
    text = """HloModule m, num_partitions=4
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[64] parameter(0)
  y = f32[64] all-reduce(x), replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true, to_apply=add
  ROOT z = f32[64] tanh(y)
}
"""
    module = hloopt.parse(text)
    inputs = [[array] for array in drawn(*[(64,)] * 4)]
    counts = (1, 4)
    want = evaluate_participants(module, inputs, *counts)
    judge = Judge.of(module, inputs, want, counts=counts)
    for rounding in (1, 2):
        got = evaluate_participants(module, inputs, *counts, rounding=rounding)
        assert len({one[0].tobytes() for one in got}) == 1
        assert got[0][0].tobytes() != want[0][0].tobytes()
    order = [np.tanh(inputs[3][0] + (inputs[2][0] + (inputs[1][0] + inputs[0][0])))]
    assert all(one.passed for one in judge.compare_all([order] * 4, want))
    lost = [np.tanh(inputs[3][0] + inputs[2][0] + inputs[1][0])]
    assert not any(one.passed for one in judge.compare_all([lost] * 4, want))


def test_no_more_evaluations_than_they_are_worth() -> None:
    """Where bits are equal none, where own magnitudes suffice none, where all is wrong a few, else 16."""
    module, inputs = hloopt.parse(SOFTMAX), inputs_of(SOFTMAX)
    (want,) = hloopt.evaluate(module, inputs)
    asked: list[int] = []

    def sample(number: int) -> dict[Hashable, Array]:
        asked.append(number)
        (array,) = evaluate_participants(module, [inputs], rounding=number)[0]
        return {"r": array}

    for factor, count in ((1.0, 0), (1 + 2e-7, 0), (2.0, 4)):
        asked.clear()
        Judge({"r": want}, sample).compare("r", (want * np.float32(factor)), want)
        assert len(asked) == count
    one = want.copy()
    one.reshape(-1)[7] *= 2
    asked.clear()
    assert not Judge({"r": want}, sample).compare("r", one, want).passed
    assert len(asked) == 16
