"""JAX's Threefry for GPUs against the same hash in plain ops, and against what JAX has recorded of it."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.errors import UnsupportedError

TARGETS = ["cu_threefry2x32", "cu_threefry2x32_ffi", "hip_threefry2x32", "hip_threefry2x32_ffi"]


def call(target: str, shape: str = "u32[4]") -> str:
    """The call alone, of four parameters."""
    return f"""HloModule m

ENTRY e {{
  a = {shape} parameter(0)
  b = {shape} parameter(1)
  c = {shape} parameter(2)
  d = {shape} parameter(3)
  ROOT r = ({shape}, {shape}) custom-call(a, b, c, d), custom_call_target="{target}"
}}
"""


def plain(shape: str) -> str:
    """Threefry2x32-20 written out as JAX lowers it elsewhere."""
    lines = [f"  p{at} = {shape} parameter({at})" for at in range(4)]
    count = 0

    def add(opcode: str, *operands: str) -> str:
        nonlocal count
        count += 1
        lines.append(f"  v{count} = {shape} {opcode}({', '.join(operands)})")
        return f"v{count}"

    def word(value: int) -> str:
        nonlocal count
        count += 2
        lines.append(f"  v{count - 1} = u32[] constant({value})")
        lines.append(f"  v{count} = {shape} broadcast(v{count - 1}), dimensions={{}}")
        return f"v{count}"

    keys = ["p0", "p1", add("xor", add("xor", "p0", "p1"), word(0x1BD11BDA))]
    last = {"x": add("add", "p2", keys[0]), "y": add("add", "p3", keys[1])}
    for step in range(20):
        distance = (13, 15, 26, 6, 17, 29, 16, 24)[step % 8]
        last["x"] = add("add", last["x"], last["y"])
        left = add("shift-left", last["y"], word(distance))
        right = add("shift-right-logical", last["y"], word(32 - distance))
        last["y"] = add("xor", add("or", left, right), last["x"])
        if step % 4 == 3:
            turn = step // 4 + 1
            last["x"] = add("add", last["x"], keys[turn % 3])
            more = add("add", keys[(turn + 1) % 3], word(turn))
            last["y"] = add("add", last["y"], more)
    lines.append(f"  ROOT r = ({shape}, {shape}) tuple({last['x']}, {last['y']})")
    return "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dims", [(), (4,), (2, 3), (0,)])
def test_the_call_is_the_hash_in_plain_ops(target: str, dims: tuple[int, ...]) -> None:
    """Every element with its own key and counter."""
    shape = f"u32[{','.join(map(str, dims))}]"
    rng = np.random.default_rng(5)
    inputs = [rng.integers(0, 2**32, dims, np.uint32) for _ in range(4)]
    want = hloopt.evaluate(hloopt.parse(plain(shape)), inputs)
    module = hloopt.parse(call(target, shape))
    hloopt.verify(module)
    for got in (hloopt.evaluate(module, inputs), hloopt.compile(module).run(inputs)):
        assert [array.tolist() for array in got] == [array.tolist() for array in want]
        assert all(array.dtype == np.uint32 and array.shape == dims for array in got)


def test_operands_are_in_the_order_of_jax() -> None:
    """``jax.random.uniform(key, (2, 4))`` of the key [42, 43], as JAX keeps it for its compatibility tests."""
    text = """HloModule uniform

ENTRY e {
  key = u32[2] parameter(0)
  first = u32[1] slice(key), slice={[0:1]}
  second = u32[1] slice(key), slice={[1:2]}
  k0 = u32[] reshape(first)
  k1 = u32[] reshape(second)
  counts = u32[8] iota(), iota_dimension=0
  x0 = u32[4] slice(counts), slice={[0:4]}
  x1 = u32[4] slice(counts), slice={[4:8]}
  b0 = u32[4] broadcast(k0), dimensions={}
  b1 = u32[4] broadcast(k1), dimensions={}
  words = (u32[4], u32[4]) custom-call(b0, b1, x0, x1), custom_call_target="cu_threefry2x32_ffi"
  y0 = u32[4] get-tuple-element(words), index=0
  y1 = u32[4] get-tuple-element(words), index=1
  both = u32[8] concatenate(y0, y1), dimensions={0}
  bits = u32[2,4] reshape(both)
  nine = u32[] constant(9)
  shift = u32[2,4] broadcast(nine), dimensions={}
  mantissa = u32[2,4] shift-right-logical(bits, shift)
  exponent = u32[] constant(1065353216)
  ones = u32[2,4] broadcast(exponent), dimensions={}
  float = u32[2,4] or(mantissa, ones)
  value = f32[2,4] bitcast-convert(float)
  one = f32[] constant(1)
  less = f32[2,4] broadcast(one), dimensions={}
  ROOT u = f32[2,4] subtract(value, less)
}
"""
    (got,) = hloopt.evaluate(hloopt.parse(text), [np.array([42, 43], np.uint32)])
    want = [
        [0.42591238, 0.076994896, 0.44370103, 0.72904015],
        [0.17879379, 0.81439507, 0.0019190311, 0.68608475],
    ]
    assert got.tolist() == np.array(want, np.float32).tolist()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "ROOT r = (u32[4], u32[4]) custom-call(a, b, c), custom_call_target=",
            "cu_threefry2x32_ffi of (u32[4]{0}, u32[4]{0}, u32[4]{0}); it has four operands of type u32",
        ),
        (
            "ROOT r = (u32[4], u32[4]) custom-call(s, s, s, s), custom_call_target=",
            f"cu_threefry2x32_ffi of ({', '.join(['s32[4]{0}'] * 4)}); it has four operands of type u32",
        ),
        (
            "ROOT r = (u32[4], u32[4]) custom-call(a, b, c, e), custom_call_target=",
            "cu_threefry2x32_ffi of u32[4]{0} and u32[5]{0}; its operands have one shape",
        ),
        (
            "ROOT r = (u32[4], u32[5]) custom-call(a, b, c, a), custom_call_target=",
            "cu_threefry2x32_ffi with the result (u32[4]{0}, u32[5]{0}); it has two arrays of u32[4]{0}",
        ),
        (
            "ROOT r = u32[4] custom-call(a, b, c, a), custom_call_target=",
            "cu_threefry2x32_ffi with the result u32[4]{0}; it has two arrays of u32[4]{0}",
        ),
    ],
)
def test_other_operands_and_results_are_refused(line: str, message: str) -> None:
    """Before anything runs, by line."""
    shapes = {"a": "u32[4]", "b": "u32[4]", "c": "u32[4]", "s": "s32[4]", "e": "u32[5]"}
    text = "HloModule m\n\nENTRY e {\n"
    for number, (name, shape) in enumerate(shapes.items()):
        text += f"  {name} = {shape}{{0}} parameter({number})\n"
    line = line.replace("u32[4])", "u32[4]{0})").replace("(u32[4],", "(u32[4]{0},")
    line = line.replace("u32[5])", "u32[5]{0})").replace("= u32[4] ", "= u32[4]{0} ")
    text += f'  {line}"cu_threefry2x32_ffi"\n}}\n'
    with pytest.raises(UnsupportedError) as error:
        hloopt.evaluate(hloopt.parse(text), [])
    assert error.value.message == f"r: {message}"
    assert error.value.line == 9
