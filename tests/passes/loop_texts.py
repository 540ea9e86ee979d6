"""Texts of loops for the tests of the passes about them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["COUNT", "loop_text", "scan_text"]


def loop_text(
    state: Sequence[tuple[str, str, str]],
    *,
    condition: str = "n = s32[] constant(5)\nROOT c = pred[] compare(i, n), direction=LT",
    body: str = "",
    following: Sequence[str] = (),
    results: Sequence[str] = (),
    entry: str = "",
    attributes: str = "",
    more: str = "",
) -> str:
    """A while over (name, shape, initial value); ``following`` are the next values by name.

    Condition and body read each element under its name; the entry has ``x = f32[4] parameter(0)``,
    ``y = f32[4] parameter(1)`` and ``p = s32[] parameter(2)``; it returns the elements ``results``.
    """
    names = [name for name, _, _ in state]
    shapes = {name: shape for name, shape, _ in state}
    whole = f"({', '.join(shapes.values())})"
    read = "\n".join(
        f"{name} = {shapes[name]} get-tuple-element(s), index={index}"
        for index, name in enumerate(names)
    )
    out = list(results or names)
    taken = "\n".join(
        f"out.{name} = {shapes[name]} get-tuple-element(loop), index={names.index(name)}"
        for name in out
    )
    return f"""HloModule m
{more}
cond {{
s = {whole} parameter(0)
{read}
{condition}
}}
body {{
s = {whole} parameter(0)
{read}
{body}
ROOT next = {whole} tuple({", ".join(following or names)})
}}
ENTRY e {{
x = f32[4] parameter(0)
y = f32[4] parameter(1)
p = s32[] parameter(2)
zero = s32[] constant(0)
one = s32[] constant(1)
three = s32[] constant(3)
{entry}
t = {whole} tuple({", ".join(value for _, _, value in state)})
loop = {whole} while(t), condition=cond, body=body{attributes}
{taken}
ROOT result = ({", ".join(shapes[name] for name in out)}) tuple({", ".join(f"out.{name}" for name in out)})
}}
"""


COUNT = "k = s32[] constant(1)\ni1 = s32[] add(i, k)"


def scan_text(iterations: int, *, attributes: str = "") -> str:
    """A scan as JAX writes it: row by row, an input is read and an output is written."""
    rows = max(iterations, 1)
    return f"""HloModule m
cond {{
s = (s32[], f32[4], f32[{rows},4], f32[{rows},4]) parameter(0)
i = s32[] get-tuple-element(s), index=0
n = s32[] constant({iterations})
ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
s = (s32[], f32[4], f32[{rows},4], f32[{rows},4]) parameter(0)
i = s32[] get-tuple-element(s), index=0
c = f32[4] get-tuple-element(s), index=1
xs = f32[{rows},4] get-tuple-element(s), index=2
ys = f32[{rows},4] get-tuple-element(s), index=3
zero = s32[] constant(0)
one = s32[] constant(1)
row = f32[1,4] dynamic-slice(xs, i, zero), dynamic_slice_sizes={{1,4}}
x = f32[4] reshape(row), metadata={{op_name="scan/x" source_file="a.py" source_line=7}}
next = f32[4] multiply(c, x)
out = f32[1,4] reshape(next)
written = f32[{rows},4] dynamic-update-slice(ys, out, i, zero)
i1 = s32[] add(i, one)
ROOT r = (s32[], f32[4], f32[{rows},4], f32[{rows},4]) tuple(i1, next, xs, written)
}}
ENTRY e {{
c = f32[4] parameter(0)
xs = f32[{rows},4] parameter(1)
zero = s32[] constant(0)
none = f32[] constant(0)
ys = f32[{rows},4] broadcast(none), dimensions={{}}
t = (s32[], f32[4], f32[{rows},4], f32[{rows},4]) tuple(zero, c, xs, ys)
loop = (s32[], f32[4], f32[{rows},4], f32[{rows},4]) while(t), condition=cond, body=body{attributes}
carry = f32[4] get-tuple-element(loop), index=1
outs = f32[{rows},4] get-tuple-element(loop), index=3
ROOT r = (f32[4], f32[{rows},4]) tuple(carry, outs)
}}
"""
