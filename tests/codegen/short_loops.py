"""Modules with one loop, written shortly, and the same with the loop as a fusion."""

from __future__ import annotations

import re
from collections.abc import Mapping

import hloopt
from hloopt.analysis.parallel_loop import LoopMapping
from hloopt.analysis.parallel_loop.thread_mapping import thread_mapping
from hloopt.fusion.loop_wrap import wrap_loop
from hloopt.ir import Instruction
from hloopt.targets import find_target

__all__ = ["fused", "mapping_of", "network", "only_loop", "program"]

TARGET = find_target("h200")

REDUCERS = """
add_f32 { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] add(x, y) }
add_s32 { x = s32[] parameter(0) y = s32[] parameter(1) ROOT r = s32[] add(x, y) }
max_f32 { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] maximum(x, y) }
add_bf16 { x = bf16[] parameter(0) y = bf16[] parameter(1) ROOT r = bf16[] add(x, y) }
or_pred { x = pred[] parameter(0) y = pred[] parameter(1) ROOT r = pred[] or(x, y) }
"""


def program(
    state: Mapping[str, str],
    body: str,
    following: str,
    *,
    iterations: int | str = 4,
    init: Mapping[str, str] | None = None,
    results: str = "",
    more: str = "",
) -> str:
    """A loop over ``state`` (names with shapes) behind a counter ``i``.

    Elements begin as parameters, or as ``init`` says (lines, the last one the value); ``following`` are the
    names of the next ones; ``trips`` a count, or the lines of the condition, the last one its root.
    ``results`` are names, all that change if empty.
    """
    init = init or {}
    names = list(state)
    whole = f"(s32[], {', '.join(state.values())})"
    reads = [f"  {name} = {shape} get-tuple-element(s), index={at}"
             for at, (name, shape) in enumerate(state.items(), 1)]  # fmt: skip
    given = [name for name in names if name not in init]
    entry = [f"  {name}_0 = {state[name]} parameter({at})" for at, name in enumerate(given)]
    first = []
    for name in names:
        if name in init:
            *lines, last = init[name].strip().split("\n")
            entry += [*lines, f"  {name}_0 = {state[name]} {last.strip()}"]
        first.append(f"{name}_0")
    nexts = [one.strip() for one in following.split(",")]
    wanted = [one.strip() for one in results.split(",")] if results else [
        name for name, after in zip(names, nexts, strict=True) if name != after
    ]  # fmt: skip
    outs = [f"  {name}_1 = {state.get(name, 's32[]')} get-tuple-element(w), index={[*['i'], *names].index(name)}"
            for name in wanted]  # fmt: skip
    condition = (
        f"  most = s32[] constant({iterations})\n  c = pred[] compare(i, most), direction=LT"
    )
    lines = iterations if isinstance(iterations, str) else condition
    *before, last = lines.rstrip().split("\n")
    used = [read for read in reads if re.search(rf"\b{read.split()[0]}\b", lines)]
    kinds = ", ".join(state.get(name, "s32[]") for name in wanted)
    return "\n".join([
        "HloModule m", REDUCERS, more,
        "body {", f"  s = {whole} parameter(0)", "  i = s32[] get-tuple-element(s), index=0", *reads,
        "  one = s32[] constant(1)", "  zero = s32[] constant(0)", "  fz = f32[] constant(0)",
        "  i1 = s32[] add(i, one)", body,
        f"  ROOT next_state = {whole} tuple(i1, {', '.join(nexts)})", "}",
        "cond {", f"  s = {whole} parameter(0)", "  i = s32[] get-tuple-element(s), index=0", *used,
        *before, f"  ROOT {last.strip()}", "}",
        "ENTRY main {", "  start = s32[] constant(0)", *entry,
        f"  first = {whole} tuple(start, {', '.join(first)})",
        f"  w = {whole} while(first), condition=cond, body=body", *outs,
        f"  ROOT out = ({kinds}) tuple({', '.join(f'{name}_1' for name in wanted)})", "}",
    ])  # fmt: skip


def only_loop(module: hloopt.Module) -> Instruction:
    """The loop of the entry."""
    return next(one for one in module.entry if one.opcode == "while")


def mapping_of(text: str) -> LoopMapping:
    """How a thread would run the units of a module's loop."""
    return thread_mapping(only_loop(hloopt.parse(text)), TARGET)


def fused(text: str) -> str:
    """The module with its loop as a fusion."""
    module = hloopt.parse(text)
    mapping = thread_mapping(only_loop(module), TARGET)
    assert not mapping.problem, mapping.problem
    wrap_loop(mapping.parallel, "loop", 64)
    hloopt.verify(module)
    return module.to_text()


def network(units: int, hidden: int) -> str:
    """A loop in which a small network of two hidden layers moves each unit."""
    h, n = hidden, units
    return program(
        {"x": f"f32[{n},4]", "w0": f"f32[4,{h}]", "w1": f"f32[{h},{h}]", "w2": f"f32[{h},4]"},
        f"""
  a = f32[{n},{h}] dot(x, w0), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ta = f32[{n},{h}] tanh(a)
  b = f32[{n},{h}] dot(ta, w1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  tb = f32[{n},{h}] tanh(b)
  x1 = f32[{n},4] dot(tb, w2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}""",
        "x1, w0, w1, w2",
        iterations=3,
    )
