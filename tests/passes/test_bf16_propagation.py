"""bf16 in place of f32: exact by default, by the bytes, through loops, and only where nobody sees it."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.ir import Module
from hloopt.passes.bf16_propagation import Bf16Propagation
from hloopt.rewrite import PassLog
from hloopt.types import leaves
from tests.helpers.rarely import one_in
from tests.helpers.support import count_calls
from tests.passes import proof
from tests.properties.random_modules import module_text


def narrowed(body: str, *, changes: bool = True, fast_math: bool = False) -> Module:
    text = f"HloModule m\nENTRY e {{\n{body}\n}}\n"
    run = Bf16Propagation(fast_math=fast_math)
    return proof.check(text, run, changes=changes, rtol=0.05 if fast_math else None)[0]


def types(module: Module) -> dict[str, str]:
    return {
        entry.name: leaf.dtype.name  # type: ignore[union-attr]
        for entry in module.entry
        for leaf in leaves(entry.shape)
    }


def test_the_example_has_no_convert_left() -> None:
    """Movement and sum are of bf16, and nothing else is there."""
    module, _ = proof.check(Bf16Propagation.example, Bf16Propagation())
    assert [entry.opcode for entry in module.entry] == [
        "parameter",
        "parameter",
        "transpose",
        "add",
    ]


def test_exact_values_are_moved_in_bf16_and_widened_afterwards() -> None:
    """What was converted is moved first; f32 arithmetic reads it converted back."""
    module = narrowed("""
  x = bf16[8,4] parameter(0)
  y = f32[4,8] parameter(1)
  a = f32[8,4] convert(x)
  t = f32[4,8] transpose(a), dimensions={1,0}
  ROOT s = f32[4,8] add(t, y)""")
    assert types(module)["t"] == "bf16"
    assert types(module)["s"] == "f32"


def test_rounded_values_are_rounded_before_they_are_moved() -> None:
    """A convert to bf16 goes up through movement to the value that is computed."""
    module = narrowed("""
  x = f32[8,4] parameter(0)
  a = f32[8,4] exponential(x)
  t = f32[4,8] transpose(a), dimensions={1,0}
  r = f32[32] reshape(t)
  ROOT c = bf16[32] convert(r)""")
    assert [entry.opcode for entry in module.entry] == [
        "parameter", "exponential", "convert", "transpose", "reshape",
    ]  # fmt: skip


def test_choices_between_exact_values_stay_exact() -> None:
    """Select, maximum, clamp, pad, concatenate and updates of converted values and small constants."""
    module = narrowed("""
  x = bf16[8] parameter(0)
  p = pred[8] parameter(1)
  i = s32[] parameter(2)
  k = f32[] constant(0.5)
  z = f32[] constant(-3)
  a = f32[8] convert(x)
  b = f32[8] broadcast(k), dimensions={}
  m = f32[8] maximum(a, b)
  s = f32[8] select(p, m, a)
  c = f32[8] clamp(z, s, k)
  j = f32[16] concatenate(c, m), dimensions={0}
  u = f32[16] dynamic-update-slice(j, s, i)
  w = f32[17] pad(u, z), padding=1_0
  n = f32[17] negate(w)
  ROOT r = bf16[17] convert(n)""")
    kinds = types(module)
    assert all(kinds[name] == "bf16" for name in ("m", "s", "c", "j", "u", "w", "n"))


@pytest.mark.parametrize(
    "body",
    [
        # a third reader needs all bits of the sum
        (
            "x = f32[8] parameter(0) y = f32[8] add(x, x) r = f32[8] reverse(y), dimensions={0} "
            "c = bf16[8] convert(r) ROOT t = (bf16[8], f32[8]) tuple(c, r)"
        ),
        # the sum is of values that are not exact
        "x = f32[8] parameter(0) y = f32[8] add(x, x) ROOT c = bf16[8] convert(y)",
        # rounding first might give the other zero
        (
            "x = f32[8] parameter(0) y = f32[8] parameter(1) m = f32[8] maximum(x, y) "
            "ROOT c = bf16[8] convert(m)"
        ),
        # a constant with more digits
        (
            "x = bf16[8] parameter(0) a = f32[8] convert(x) k = f32[] constant(0.1) "
            "b = f32[8] broadcast(k), dimensions={} s = f32[8] add(a, b) ROOT c = bf16[8] convert(s)"
        ),
        # one number converted is less than many
        (
            "x = bf16[] parameter(0) a = f32[] convert(x) y = f32[64] parameter(1) "
            "b = f32[64] broadcast(a), dimensions={} ROOT s = f32[64] add(b, y)"
        ),
        # f16 has digits that bf16 has not
        (
            "x = f16[8] parameter(0) a = f32[8] convert(x) r = f32[8] reverse(a), dimensions={0} "
            "s = f32[8] add(r, r) ROOT c = bf16[8] convert(s)"
        ),
        # bits are looked at
        "x = bf16[8] parameter(0) a = f32[8] convert(x) ROOT b = u32[8] bitcast-convert(a)",
    ],
)
def test_what_would_change_a_bit_or_write_more_stays(body: str) -> None:
    """Negative cases, each with its reason above."""
    narrowed(body, changes=False)


def test_fast_math_rounds_operands_too() -> None:
    """By default the sum of f32 values stays; with fast math it is one of bf16."""
    body = """
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  a = f32[8] add(x, y)
  b = f32[8] multiply(a, x)
  c = f32[8] maximum(b, y)
  ROOT r = bf16[8] convert(c)"""
    narrowed(body, changes=False)
    kinds = types(narrowed(body, fast_math=True))
    assert kinds["a"] == kinds["b"] == kinds["c"] == "bf16"


LOOP = """HloModule m
cond {{ s = (s32[], f32[64]) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3) ROOT c = pred[] compare(i, n), direction=LT }}
body {{
  s = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[64] get-tuple-element(s), index=1
  {body}
  ROOT r = (s32[], f32[64]) tuple(j, y)
}}
ENTRY e {{
  p = {source} parameter(0)
  zero = s32[] constant(0)
  {before}
  t = (s32[], f32[64]) tuple(zero, a)
  w = (s32[], f32[64]) while(t), condition=cond, body=body
  g = f32[64] get-tuple-element(w), index=1
  {after}
}}
"""


def test_a_loop_carries_bf16() -> None:
    """Exact at the start and after each turn; and one whose readers all round."""
    exact = LOOP.format(
        body="y = f32[64] reverse(x), dimensions={0}",
        source="bf16[64]",
        before="a = f32[64] convert(p)",
        after="ROOT r = f32[64] exponential(g)",
    )
    module, _ = proof.check(exact, Bf16Propagation())
    assert str(module.entry.by_name["w"].shape) == "(s32[], bf16[64])"
    rounded = LOOP.format(
        body="h = bf16[64] convert(x) k = f32[64] convert(h) y = f32[64] exponential(k)",
        source="f32[64]",
        before="a = f32[64] negate(p)",
        after="ROOT r = bf16[64] convert(g)",
    )
    module, _ = proof.check(rounded, Bf16Propagation())
    assert str(module.entry.by_name["w"].shape) == "(s32[], bf16[64])"


def test_a_loop_that_computes_in_f32_carries_f32() -> None:
    """Not exact after a turn, and read with all its bits."""
    text = LOOP.format(
        body="y = f32[64] exponential(x)",
        source="bf16[64]",
        before="a = f32[64] convert(p)",
        after="ROOT r = bf16[64] convert(g)",
    )
    proof.check(text, Bf16Propagation(), changes=False)


def mixed(seed: int) -> str:
    """A module in which values go back and forth between f32 and bf16 while they are moved and combined."""
    chooser = random.Random(seed)
    lines = ["p = f32[6] parameter(0)", "q = bf16[6] parameter(1)", "o = pred[6] parameter(2)",
             "k = f32[] constant(0.5)", "h = f32[6] broadcast(k), dimensions={}"]  # fmt: skip
    names = {"f32": ["p", "h"], "bf16": ["q"]}
    for at in range(chooser.randint(4, 16)):
        kind = chooser.choice(("f32", "f32", "bf16"))
        other = "bf16" if kind == "f32" else "f32"
        x, y = chooser.choice(names[kind][-3:]), chooser.choice(names[kind])
        op = chooser.choice((
            f"convert({chooser.choice(names[other][-3:])})", f"convert({chooser.choice(names[other])})",
            f"reverse({x}), dimensions={{0}}", f"negate({x})", f"select(o, {x}, {y})",
            f"maximum({x}, {y})", f"add({x}, {y})", f"multiply({x}, {y})", f"copy({x})",
        ))  # fmt: skip
        lines.append(f"n{at} = {kind}[6] {op}")
        names[kind].append(f"n{at}")
    results = [(kind, chooser.choice(names[kind][-2:])) for kind in ("bf16", "bf16", "f32")]
    results = results[: chooser.randint(1, 3)]
    shape = ", ".join(f"{kind}[6]" for kind, _ in results)
    lines.append(f"ROOT r = ({shape}) tuple({', '.join(name for _, name in results)})")
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def changed(text: str, *, fast_math: bool = False) -> bool:
    return Bf16Propagation(fast_math=fast_math).run(hloopt.parse(text), PassLog())


@pytest.mark.parametrize("block", one_in(3, range(8)))
def test_random_chains_keep_their_bits(block: int) -> None:
    """Values that go back and forth; a good part of the modules changes."""
    found = 0
    for seed in range(20 * block, 20 * block + 20):
        text = mixed(seed)
        changes = changed(text)
        proof.check(text, Bf16Propagation(), draws=2, changes=changes)
        found += changes
    assert found >= 3


@pytest.mark.parametrize("seed", one_in(3, range(40)))
def test_random_modules_keep_their_bits(seed: int) -> None:
    """Loops, branches, calls and fusions around such values."""
    text = module_text(random.Random(seed))
    proof.check(text, Bf16Propagation(), draws=2, changes=changed(text))


@pytest.mark.parametrize("seed", range(60))
def test_fast_math_comes_to_rest(seed: int) -> None:
    """Modules stay valid, and a second run changes nothing."""
    module = hloopt.parse(mixed(seed))
    Bf16Propagation(fast_math=True).run(module, PassLog())
    hloopt.verify(module)
    assert not Bf16Propagation(fast_math=True).run(module, PassLog())


def test_time_is_in_proportion_to_the_module() -> None:
    """Four times the instructions take no more than five times the calls."""

    def chain(length: int) -> Module:
        lines = ["p = f32[8] parameter(0)", "x0 = f32[8] negate(p)"]
        lines += [f"x{at} = f32[8] reverse(x{at - 1}), dimensions={{0}}" for at in range(1, length)]
        lines.append(f"c = bf16[8] convert(x{length - 1})")
        return hloopt.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")

    calls = [
        count_calls(lambda module=module: Bf16Propagation().run(module, PassLog()))
        for module in (chain(200), chain(800))
    ]
    assert calls[1] < 5 * calls[0]
