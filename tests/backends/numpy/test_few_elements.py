"""Arrays of few elements are scalars where that takes less time, with the interpreter's bits."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.backends.numpy import few_elements
from tests.helpers.planned import assert_planned
from tests.helpers.python_code import PythonCode

# A few rounds that mix two arrays: enough to be worth reading their elements.
ROUND = """\
  a{n} = {kind}[{dims}] add(x{m}, y{m})
  l{n} = {kind}[{dims}] shift-left(y{m}, r)
  h{n} = {kind}[{dims}] shift-right-logical(y{m}, s)
  o{n} = {kind}[{dims}] or(l{n}, h{n})
  y{n} = {kind}[{dims}] xor(a{n}, o{n})
  x{n} = {kind}[{dims}] xor(y{n}, a{n})
"""


def mixed(dims: str, kind: str = "u32", rounds: int = 4) -> str:
    """A module that mixes two arrays by shifts of an amount that it is given."""
    body = "".join(ROUND.format(n=n, m=n - 1, kind=kind, dims=dims) for n in range(1, rounds + 1))
    return (
        f"HloModule m\nENTRY e {{\n  x0 = {kind}[{dims}] parameter(0)\n  y0 = {kind}[{dims}] parameter(1)\n"
        f"  p = {kind}[] parameter(2)\n  w = {kind}[] constant(32)\n  q = {kind}[] subtract(w, p)\n"
        f"  r = {kind}[{dims}] broadcast(p), dimensions={{}}\n"
        f"  s = {kind}[{dims}] broadcast(q), dimensions={{}}\n{body}"
        f"  ROOT t = ({kind}[{dims}], {kind}[{dims}]) tuple(x{rounds}, y{rounds})\n}}\n"
    )


@pytest.mark.parametrize(("dims", "few"), [("1", 1), ("2", 1), ("2,1", 1), ("3", 1), ("64", 0)])
def test_few_elements_are_scalars(dims: str, few: bool) -> None:
    text = mixed(dims, rounds=6)
    assert bool(PythonCode.of(text).operators(ast.LShift)) == bool(few)
    size = tuple(map(int, dims.split(",")))
    draw = np.random.default_rng(3)
    for amount in (0, 1, 13, 32, 40):
        state = draw.integers(0, 1 << 32, (2, *size), np.uint32)
        assert_planned(text, [state[0], state[1], np.array(amount, np.uint32)])


def test_a_single_step_stays_one() -> None:
    """Reading the elements, and making an array of them, takes longer."""
    text = "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] add(x, x)\n}\n"
    assert not PythonCode.of(text).operators(ast.Add)
    assert_planned(text, [np.array([1, -0.0], np.float32)])


def test_a_function_without_an_operator_has_an_array() -> None:
    text = mixed("2").replace(
        "ROOT t = (u32[2], u32[2]) tuple(x4, y4)",
        "c = u32[2] popcnt(x4)\n  ROOT t = (u32[2], u32[2]) tuple(c, y4)",
    )
    assert PythonCode.of(text).operators(ast.LShift)
    draw = np.random.default_rng(4).integers(0, 1 << 32, (2, 2), np.uint32)
    assert_planned(text, [*draw, np.array(5, np.uint32)])


def test_what_scalars_were_made_of_may_be_written_over() -> None:
    """The elements are read before."""
    text = mixed("2").replace(
        "ROOT t = (u32[2], u32[2]) tuple(x4, y4)",
        "z = s32[] constant(1)\n  e = u32[1] slice(y4), slice={[0:1]}\n"
        "  d = u32[2] dynamic-update-slice(x4, e, z)\n  n = u32[2] add(d, x4)\n"
        "  ROOT t = (u32[2], u32[2], u32[2]) tuple(d, y4, n)",
    )
    draw = np.random.default_rng(5).integers(0, 1 << 32, (2, 2), np.uint32)
    assert_planned(text, [*draw, np.array(7, np.uint32)])


KINDS = ("s32", "u32", "s64", "u8", "f32", "f64", "pred")
SIZES = ((1,), (2,), (3,), (2, 1), (1, 2), (2, 2))
BINARY = {
    **dict.fromkeys(
        ("s32", "u32", "s64", "u8"), ("add", "multiply", "xor", "maximum", "shift-left")
    ),
    **dict.fromkeys(("f32", "f64"), ("add", "multiply", "divide", "maximum", "minimum")),
    "pred": ("and", "or", "xor"),
}


@st.composite
def modules(draw: st.DrawFn) -> tuple[str, str, tuple[int, ...], int]:
    """Elementwise ops and moves of arrays of few elements, some in a loop."""
    kind, size = draw(st.sampled_from(KINDS)), draw(st.sampled_from(SIZES))
    shape = f"{kind}[{','.join(map(str, size))}]"
    names, lines = ["x", "y", "z"], []
    for number in range(draw(st.integers(6, 24))):
        name, left, right = f"v{number}", draw(st.sampled_from(names)), draw(st.sampled_from(names))
        form = draw(st.sampled_from(("op", "op", "op", "select", "turn", "split", "swap", "row")))
        if form == "op":
            op = draw(st.sampled_from(BINARY[kind]))
            lines.append(f"{name} = {shape} {op}({left}, {right})")
        elif form == "select":
            predicate = shape.replace(f"{kind}[", "pred[", 1)
            lines.append(f"c{name} = {predicate} compare({left}, {right}), direction=NE")
            lines.append(f"{name} = {shape} select(c{name}, {left}, {right})")
        elif form == "turn":
            lines.append(f"{name} = {shape} reverse({left}), dimensions={{{len(size) - 1}}}")
        elif form == "swap" and size == (2, 2):
            lines.append(f"{name} = {shape} transpose({left}), dimensions={{1,0}}")
        elif form == "row" and size[-1] > 1:
            part = f"{kind}[{','.join(map(str, (*size[:-1], 1)))}]"
            picks = ", ".join([f"[0:{n}]" for n in size[:-1]] + ["[1:2]"])
            rest = f"{kind}[{','.join(map(str, (*size[:-1], size[-1] - 1)))}]"
            others = ", ".join([f"[0:{n}]" for n in size[:-1]] + [f"[0:{size[-1] - 1}]"])
            lines.append(f"p{name} = {part} slice({left}), slice={{{picks}}}")
            lines.append(f"q{name} = {rest} slice({right}), slice={{{others}}}")
            axis = len(size) - 1
            lines.append(f"{name} = {shape} concatenate(p{name}, q{name}), dimensions={{{axis}}}")
        else:
            flat = f"{kind}[{np.prod(size)}]"
            lines.append(f"f{name} = {flat} reshape({left})")
            lines.append(f"{name} = {shape} reshape(f{name})")
        names.append(name)
    body = "\n  ".join(lines)
    ends = [draw(st.sampled_from(names)) for _ in range(3)]
    state = f"(s32[], {shape}, {shape}, {shape})"
    iterations = draw(st.integers(0, 3))
    text = (
        f"HloModule m\nbody {{\n  s = {state} parameter(0)\n  i = s32[] get-tuple-element(s), index=0\n"
        + "".join(
            f"  {n} = {shape} get-tuple-element(s), index={k}\n" for k, n in enumerate("xyz", 1)
        )
        + f"  one = s32[] constant(1)\n  next = s32[] add(i, one)\n  {body}\n"
        f"  ROOT t = {state} tuple(next, {', '.join(ends)})\n}}\ncondition {{\n  s = {state} parameter(0)\n"
        f"  i = s32[] get-tuple-element(s), index=0\n  n = s32[] constant({iterations})\n"
        "  ROOT c = pred[] compare(i, n), direction=LT\n}\nENTRY e {\n"
        + "".join(f"  {n} = {shape} parameter({k})\n" for k, n in enumerate("xyz"))
        + f"  i = s32[] constant(0)\n  {body}\n  t = {state} tuple(i, {', '.join(ends)})\n"
        f"  ROOT w = {state} while(t), condition=condition, body=body\n}}\n"
    )
    return text, kind, size, draw(st.integers(0, 1 << 30))


@given(modules())
def test_random_modules_of_few_elements(drawn: tuple[str, str, tuple[int, ...], int]) -> None:
    text, kind, size, seed = drawn
    draw = np.random.default_rng(seed)
    dtype = np.dtype(
        {"pred": "?", "u8": "u1"}.get(
            kind, kind.replace("s", "i").replace("64", "8").replace("32", "4")
        )
    )
    if dtype.kind == "f":
        values = draw.choice([0.0, -0.0, 1.5, -2.25, np.inf, np.nan, 1e-40, 3e38], (3, *size))
    else:
        values = draw.integers(0, 1 << 62, (3, *size))
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(few_elements, "_PART", np.inf)  # whatever it costs
        assert_planned(text, list(values.astype(dtype)))
