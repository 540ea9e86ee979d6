"""Loops that update what they carry: what is copied in a trip, on every device whose plans have buffers."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.aliasing import analyze_aliasing
from hloopt.analysis.overwriting import overwrites, readers_first
from hloopt.backends.emulator.toolchain import check_emulator
from hloopt.backends.native import check_native
from hloopt.errors import DeviceError
from hloopt.ir import Instruction, Module
from hloopt.pipelines import PIPELINES
from hloopt.runtime.inputs import generate
from tests.helpers.joined_modules import joined

STATE = "(s32[], f32[], f32[64]{0}, f32[64]{0})"


def loop(body: str, result: str, more: str = "") -> str:
    """A loop of 20 trips over two arrays; ``result`` names what the body goes on with after the trip."""
    return f"""HloModule m
most {{
  u = f32[] parameter(0)
  v = f32[] parameter(1)
  ROOT w = f32[] maximum(u, v)
}}
{more}
body {{
  state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  s = f32[] get-tuple-element(state), index=1
  x = f32[64]{{0}} get-tuple-element(state), index=2
  y = f32[64]{{0}} get-tuple-element(state), index=3
  one = s32[] constant(1)
  zero = f32[] constant(0)
  half = f32[] constant(0.5)
  j = s32[] add(i, one)
  p = f32[1]{{0}} broadcast(s), dimensions={{}}
  {body}
  ROOT next = {STATE} tuple(j, {result})
}}
goes_on {{
  state = {STATE} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant(20)
  ROOT less = pred[] compare(i, most), direction=LT
}}
ENTRY e {{
  zero = s32[] constant(0)
  s = f32[] parameter(0)
  x = f32[64]{{0}} parameter(1)
  y = f32[64]{{0}} parameter(2)
  first = {STATE} tuple(zero, s, x, y)
  w = {STATE} while(first), condition=goes_on, body=body
  a = f32[] get-tuple-element(w), index=1
  b = f32[64]{{0}} get-tuple-element(w), index=2
  c = f32[64]{{0}} get-tuple-element(w), index=3
  ROOT r = (f32[], f32[64]{{0}}, f32[64]{{0}}) tuple(a, b, c)
}}
"""


UPDATE = "n = f32[64]{0} dynamic-update-slice(x, p, i)\n"
READ = "d = f32[1]{0} dynamic-slice(x, j), dynamic_slice_sizes={1}  t = f32[] reshape(d)\n"
SUM = "t = f32[] reduce(x, zero), dimensions={0}, to_apply=most\n"
AFTER = "k = f32[64]{0} subtract(n, x)  t = f32[] reduce(k, zero), dimensions={0}, to_apply=most\n"
RECURRENCE = """FUSED {
  q = f32[64]{0} parameter(0)
  i = s32[] parameter(1)
  o = s32[] constant(1)
  h = s32[] subtract(i, o)
  half = f32[1]{0} constant({0.5})
  d = f32[1]{0} dynamic-slice(q, h), dynamic_slice_sizes={1}
  e = f32[1]{0} dynamic-slice(q, i), dynamic_slice_sizes={1}
  m = f32[1]{0} multiply(d, half)
  a = f32[1]{0} add(m, e)
  ROOT u = f32[64]{0} dynamic-update-slice(q, a, i)
}
"""
BRANCHES = """yes {
  g = (f32[64]{0}, f32[1]{0}, s32[]) parameter(0)
  x = f32[64]{0} get-tuple-element(g), index=0
  p = f32[1]{0} get-tuple-element(g), index=1
  i = s32[] get-tuple-element(g), index=2
  ROOT u = f32[64]{0} dynamic-update-slice(x, p, i)
}
no {
  g = (f32[64]{0}, f32[1]{0}, s32[]) parameter(0)
  ROOT x = f32[64]{0} get-tuple-element(g), index=0
}
"""
CHOICE = """g = (f32[64]{0}, f32[1]{0}, s32[]) tuple(x, p, i)
  b = pred[] compare(s, half), direction=LT
  n = f32[64]{0} conditional(b, g, g), true_computation=yes, false_computation=no
"""
SCATTER = """k = s32[1]{0} reshape(i)
  n = f32[64]{0} scatter(x, k, s), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=most
"""
FUSED = "n = f32[64]{0} fusion(x, i), kind=kLoop, calls=FUSED\n"
INNER = """turn {
  state = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[64]{0} get-tuple-element(state), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  p = f32[1]{0} constant({2})
  n = f32[64]{0} dynamic-update-slice(x, p, j)
  d = f32[1]{0} dynamic-slice(x, i), dynamic_slice_sizes={1}
  m = f32[64]{0} dynamic-update-slice(n, d, i)
  ROOT next = (s32[], f32[64]{0}) tuple(j, m)
}
turns {
  state = (s32[], f32[64]{0}) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  most = s32[] constant(3)
  ROOT less = pred[] compare(i, most), direction=LT
}
"""
NESTED = """o = s32[] constant(0)  f = (s32[], f32[64]{0}) tuple(o, x)
  w = (s32[], f32[64]{0}) while(f), condition=turns, body=turn
  n = f32[64]{0} get-tuple-element(w), index=1
"""

COPIES = {
    "read, then update": (loop(READ + UPDATE, "t, n, y"), 0),
    "update, then read": (loop(UPDATE + READ, "t, n, y"), 0),
    "update, then reduce": (loop(UPDATE + SUM, "t, n, y"), 0),
    "scatter, then read": (loop(SCATTER + READ, "t, n, y"), 0),
    "read after the update": (loop(UPDATE + AFTER, "t, n, y"), 1),
    "a fusion reads and writes": (loop(FUSED, "s, n, y", RECURRENCE), 0),
    "a fusion, then a read": (loop(FUSED + READ, "t, n, y", RECURRENCE), 0),
    "two updates": (
        loop(
            "d = f32[1]{0} dynamic-slice(y, i), dynamic_slice_sizes={1}\n"
            "e = f32[1]{0} dynamic-slice(x, j), dynamic_slice_sizes={1}\n"
            "n = f32[64]{0} dynamic-update-slice(x, d, i)\n"
            "m = f32[64]{0} dynamic-update-slice(y, e, i)",
            "s, n, m",
        ),
        0,
    ),
    "two updates of one array": (
        loop(UPDATE + "m = f32[64]{0} dynamic-update-slice(x, p, j)", "s, n, m"),
        3,
    ),
    "one after the other": (
        loop(UPDATE + READ + "m = f32[64]{0} dynamic-update-slice(n, d, j)", "t, m, y"),
        0,
    ),
    "a branch updates": (loop(CHOICE + READ, "t, n, y", BRANCHES), 0),
    "a branch updates what is read after": (loop(CHOICE + AFTER, "t, n, y", BRANCHES), 1),
    "a loop updates": (loop(NESTED + SUM, "t, n, y", INNER), 0),
    "a loop updates what is read after": (loop(NESTED + AFTER, "t, n, y", INNER), 1),
    "arrays change places": (loop(UPDATE, "s, y, n"), 3),
    "made anew, and read": (
        loop("n = f32[64]{0} reverse(y), dimensions={0}\n" + SUM, "t, n, y"),
        0,
    ),
}


def copies(module: Module) -> list[Instruction]:
    """Copies of arrays that are made in loops."""
    return [
        one
        for computation in module
        if computation is not module.entry
        for one in computation
        if one.opcode == "copy" and one.shape.byte_size >= 256
    ]


@pytest.mark.parametrize("pipeline", ["device-native", "device"])
@pytest.mark.parametrize("name", COPIES)
def test_an_array_is_copied_only_where_no_order_would_do(name: str, pipeline: str) -> None:
    """Readers go before who writes over what they read, where they can."""
    text, count = COPIES[name]
    loops_stay = PIPELINES[pipeline].removeprefix("native-loop-fusion,")
    assert len(copies(hloopt.optimize(hloopt.parse(text), loops_stay))) == count


@pytest.mark.parametrize("device", ["native", "emulator"])
def test_results_stay_what_they_are(device: str) -> None:
    """Bit by bit, with all that is written over."""
    try:
        check_emulator() if device == "emulator" else check_native()
    except DeviceError as error:
        pytest.skip(str(error))
    modules = [hloopt.parse(text) for text, _ in COPIES.values()]
    program = hloopt.compile(joined(modules), device=device)
    given = [generate(module, seed) for seed, module in enumerate(modules)]
    got = iter(program.run([array for arrays in given for array in arrays]))
    for name, module, arrays in zip(COPIES, modules, given, strict=True):
        for wanted in hloopt.evaluate(module, arrays):
            assert (next(got) == wanted).all(), name


def test_nothing_is_searched_twice() -> None:
    """Twice the updates that some late reader holds up take about twice the steps."""

    def work(size: int) -> int:
        lines = [
            "x0 = f32[8]{0} parameter(0)",
            "p = f32[1]{0} constant({1})",
            "i = s32[] constant(3)",
        ]
        lines += [f"x{k + 1} = f32[8]{{0}} dynamic-update-slice(x{k}, p, i)" for k in range(size)]
        lines += [f"y{k} = f32[8]{{0}} subtract(x{size}, x{k})" for k in range(size)]
        lines += [f"z{k} = f32[8]{{0}} negate(x{k})" for k in range(size)]
        names = ", ".join(f"y{k}, z{k}" for k in range(size))
        shapes = ", ".join(["f32[8]{0}"] * (2 * size))
        text = "\n".join(lines) + f"\nROOT r = ({shapes}) tuple({names})"
        entry = hloopt.parse(f"HloModule m\nENTRY e {{\n{text}\n}}\n").entry
        found = [one for one in overwrites(entry, analyze_aliasing(entry.module)) if one.readers]
        instructions = list(entry)
        number = {one: at for at, one in enumerate(instructions)}
        before = [[number[operand] for operand in one.operands] for one in instructions]
        after: list[list[int]] = [[] for _ in instructions]
        looked = 0

        class Counted(list[int]):
            def __iter__(self):  # type: ignore[no-untyped-def]
                nonlocal looked
                looked += len(self)
                return super().__iter__()

        for at, sources in enumerate(before):
            for source in sources:
                after[source].append(at)
        order = readers_first(found, instructions, before, [Counted(users) for users in after])
        assert sorted(order) == list(range(len(instructions)))
        return looked

    assert work(800) < 2.3 * work(400)
