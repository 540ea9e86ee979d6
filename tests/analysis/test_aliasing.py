"""Values, positions and must-alias sets."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.analysis.aliasing import Aliasing, analyze_aliasing
from hloopt.ir import Instruction, Module
from tests.helpers.support import count_calls

LOOP = """HloModule m
cond { c = (s32[], f32[4]{0}, f32[4]{0}) parameter(0) ci = s32[] get-tuple-element(c), index=0
  n = s32[] constant(3) ROOT ok = pred[] compare(ci, n), direction=LT }
body {
  s = (s32[], f32[4]{0}, f32[4]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[4]{0} get-tuple-element(s), index=1
  y = f32[4]{0} get-tuple-element(s), index=2
  u = f32[1]{0} slice(y), slice={[0:1]}
  z = f32[4]{0} dynamic-update-slice(x, u, i)
  ROOT r = (s32[], f32[4]{0}, f32[4]{0}) tuple(j, z, y)
}
ENTRY e {
  p = f32[4]{0} parameter(0)
  zero = s32[] constant(0)
  a = f32[4]{0} negate(p)
  t = (s32[], f32[4]{0}, f32[4]{0}) tuple(zero, a, p)
  w = (s32[], f32[4]{0}, f32[4]{0}) while(t), condition=cond, body=body
  f = f32[4]{0} get-tuple-element(w), index=1
  ROOT g = f32[2,2]{1,0} bitcast(f)
}
"""


def named(module: Module, name: str) -> Instruction:
    return next(entry for entry in module.instructions() if entry.name == name)


def members(aliasing: Aliasing, instruction: Instruction, *index: int) -> set[str]:
    """Names of the definitions that must lie in the buffer of a position."""
    found = aliasing.alias_set(aliasing.value(instruction, index))
    return {value.defined.instruction.name for value in found.values}


def test_what_a_loop_changes_is_one_buffer() -> None:
    """Initial value, parameter, update in place and result; a view of the result has the same value."""
    module = hloopt.parse(LOOP)
    aliasing = analyze_aliasing(module)
    assert members(aliasing, named(module, "f")) == {"a", "c", "z", "w"}
    assert aliasing.value(named(module, "g")) is aliasing.value(named(module, "w"), (1,))
    assert members(aliasing, named(module, "i")) == {"zero", "c", "j", "w"}
    assert members(aliasing, named(module, "u")) == {"u"}


def test_what_a_loop_hands_on_is_one_value() -> None:
    """The operand itself is in the body and behind the loop."""
    module = hloopt.parse(LOOP)
    aliasing = analyze_aliasing(module)
    value = aliasing.value(named(module, "y"))
    assert value is aliasing.value(named(module, "p"))
    assert value is aliasing.value(named(module, "w"), (2,))
    assert value.kind == "parameter"
    places = {(entry.instruction.name, entry.index) for entry in value.positions}
    assert places == {("p", ()), ("t", (2,)), ("w", (2,)), ("s", (2,)), ("y", ()), ("r", (2,)),
                      ("c", (2,))}  # fmt: skip


def test_branches_give_one_buffer() -> None:
    """Results of a conditional alias those of its branches; what all hand on is the operand's value."""
    module = hloopt.parse("""HloModule m
yes { s = (f32[4]{0}, f32[4]{0}) parameter(0) x = f32[4]{0} get-tuple-element(s), index=0
  y = f32[4]{0} get-tuple-element(s), index=1 n = f32[4]{0} negate(x)
  ROOT r = (f32[4]{0}, f32[4]{0}) tuple(n, y) }
no { other = (f32[4]{0}, f32[4]{0}) parameter(0) xx = f32[4]{0} get-tuple-element(other), index=0
  yy = f32[4]{0} get-tuple-element(other), index=1
  ROOT rr = (f32[4]{0}, f32[4]{0}) tuple(xx, yy) }
ENTRY e {
  p = f32[4]{0} parameter(0)
  o = f32[4]{0} parameter(1)
  q = pred[] parameter(2)
  t = (f32[4]{0}, f32[4]{0}) tuple(p, o)
  ROOT c = (f32[4]{0}, f32[4]{0}) conditional(q, t, t), true_computation=yes, false_computation=no
}
""")
    aliasing = analyze_aliasing(module)
    conditional = named(module, "c")
    assert members(aliasing, conditional, 0) == {"n", "p", "c"}
    assert aliasing.value(conditional, (1,)) is aliasing.value(named(module, "o"))


def test_calls_donations_and_custom_calls() -> None:
    """A call hands on values; donation and output_to_operand_aliasing join buffers."""
    module = hloopt.parse("""HloModule m, input_output_alias={ {1}: (0, {}, may-alias) }
f { x = f32[4]{0} parameter(0) ROOT y = f32[4]{0} negate(x) }
ENTRY e {
  p = f32[4]{0} parameter(0)
  b = f32[4]{0} abs(p)
  c = f32[4]{0} call(b), to_apply=f
  d = (f32[4]{0}, s32[]) custom-call(c), custom_call_target="t", output_to_operand_aliasing={{0}: (0, {})}
  g = f32[4]{0} get-tuple-element(d), index=0
  h = f32[4]{0} cosine(p)
  ROOT r = (f32[4]{0}, f32[4]{0}) tuple(g, h)
}
""")
    aliasing = analyze_aliasing(module)
    value = aliasing.value(named(module, "c"))
    assert value.defined.instruction.name == "y"
    assert aliasing.value(named(module, "x")) is aliasing.value(named(module, "b"))
    assert members(aliasing, named(module, "g")) == {"y", "d"}
    assert members(aliasing, named(module, "h")) == {"h", "p"}


def test_asynchronous_pairs_hand_on_operands_and_results() -> None:
    """The start holds its operand; the done is the start's result."""
    module = hloopt.parse("""HloModule m
ENTRY e {
  p = f32[4]{0} parameter(0)
  a = f32[4]{0} negate(p)
  s = (f32[4]{0}, f32[4]{0}, u32[]) copy-start(a)
  ROOT d = f32[4]{0} copy-done(s)
}
""")
    aliasing = analyze_aliasing(module)
    start = named(module, "s")
    assert aliasing.value(start, (1,)) is aliasing.value(named(module, "a"))
    assert aliasing.value(named(module, "d")) is aliasing.value(start, (0,))


def test_sets_have_the_bytes_of_their_largest_value() -> None:
    """And every value is in one set."""
    aliasing = analyze_aliasing(hloopt.parse(LOOP))
    assert sorted(value.number for entry in aliasing.sets for value in entry.values) == list(
        range(len(aliasing.values))
    )
    assert all(
        entry.byte_size == max(value.byte_size for value in entry.values) for entry in aliasing.sets
    )


def test_a_position_that_is_none_is_an_error() -> None:
    """A tuple as a whole is no leaf, and nor is an element that it has not."""
    module = hloopt.parse(LOOP)
    aliasing = analyze_aliasing(module)
    for index in ((), (7,)):
        with pytest.raises(KeyError, match="t has no leaf"):
            aliasing.value(named(module, "t"), index)


def test_time_is_in_proportion_to_the_module() -> None:
    """Four times the instructions take no more than five times the calls."""

    def chain(length: int) -> Module:
        lines = ["p = f32[8]{0} parameter(0)", "x0 = f32[8]{0} negate(p)"]
        lines += [f"x{at} = f32[8]{{0}} add(x{at - 1}, p)" for at in range(1, length)]
        return hloopt.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")

    calls = [
        count_calls(lambda module=module: analyze_aliasing(module))
        for module in (chain(200), chain(800))
    ]
    assert calls[1] < 5 * calls[0]


def test_operands_that_come_by_an_update_join_those_of_the_start() -> None:
    """An asynchronous call may get its operands later."""
    module = hloopt.parse("""HloModule m
body { x = f32[4]{0} parameter(0) ROOT y = f32[4]{0} negate(x) }
ENTRY e {
  p = f32[4]{0} parameter(0)
  a = f32[4]{0} abs(p)
  s = ((), f32[4]{0}, u32[]) async-start(), calls=body
  u = ((f32[4]{0}), f32[4]{0}, u32[]) async-update(s, a)
  ROOT d = f32[4]{0} async-done(u)
}
""")
    aliasing = analyze_aliasing(module)
    assert aliasing.value(named(module, "x")) is aliasing.value(named(module, "a"))
    assert aliasing.value(named(module, "u"), (0, 0)) is aliasing.value(named(module, "a"))
    assert aliasing.value(named(module, "d")) is aliasing.value(named(module, "y"))
