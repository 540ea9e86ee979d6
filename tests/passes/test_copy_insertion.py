"""Copies for shared buffers: right on a machine that shares them, few, and none too many left out."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.errors import UnsupportedError
from hloopt.ir import Instruction, Module, edit
from hloopt.ir.build import clone_module
from hloopt.passes.copy_insertion import CopyInsertion
from hloopt.rewrite import PassLog
from tests.helpers.growing import doubled_calls
from tests.helpers.rarely import one_in
from tests.helpers.support import count_calls
from tests.passes import proof
from tests.passes.shared_storage import ClobberedError, run
from tests.properties.random_modules import module_text

LOOP = """cond {{ s = ({state}) parameter(0) i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3) ROOT c = pred[] compare(i, n), direction=LT }}
body {{
  s = ({state}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[4]{{0}} get-tuple-element(s), index=1
  y = f32[4]{{0}} get-tuple-element(s), index=2
  {body}
}}
ENTRY e {{
  p = f32[4]{{0}} parameter(0)
  zero = s32[] constant(0)
  a = f32[4]{{0}} negate(p)
  b = f32[4]{{0}} cosine(p)
  t = ({state}) tuple(zero, a, b)
  w = ({state}) while(t), condition=cond, body=body
  f = f32[4]{{0}} get-tuple-element(w), index=1
  g = f32[4]{{0}} get-tuple-element(w), index=2
  ROOT r = (f32[4]{{0}}, f32[4]{{0}}) tuple(f, g)
}}
"""
STATE = "s32[], f32[4]{0}, f32[4]{0}"


def loop(body: str) -> str:
    return "HloModule m\n" + LOOP.format(state=STATE, body=body)


def wrong(module: Module, original: Module, seeds: tuple[int, ...] = (0, 3, 17)) -> str:
    """Why a module is not what the original is on the machine with shared buffers; empty if it is."""
    for seed in seeds:
        given = proof.inputs(original, seed)
        try:
            got = run(module, given)
        except ClobberedError as error:
            return str(error)
        if not all(map(proof.identical, hloopt.evaluate(original, given), got)):
            return f"other results on {given}"
    return ""


def inserted(module: Module, original: Module) -> list[Instruction]:
    known = {(one.name, entry.name) for one in original for entry in one}
    return [
        entry
        for one in module
        for entry in one
        if entry.opcode == "copy" and (one.name, entry.name) not in known
    ]


def without(module: Module, copy: Instruction) -> Module:
    """The module with one copy left out."""
    assert copy.computation is not None
    less = clone_module(module)
    there = less.computations[copy.computation.name].by_name[copy.name]
    edit.replace_uses(there, there.operands[0])
    edit.remove(there)
    return less


def check(text: str, copies: int, *, needed: bool = True) -> Module:
    """The pass makes so many copies, results are right with shared buffers, and wrong without any of them."""
    original = hloopt.parse(text)
    changes = copies > 0
    module, log = proof.check(text, CopyInsertion(), changes=changes)
    found = inserted(module, original)
    assert len(found) == copies == log.hits["copy"], module.to_text()
    assert not wrong(module, original), module.to_text()
    assert bool(wrong(clone_module(original), original)) is changes
    for copy in found:
        assert not needed or wrong(without(module, copy), original), copy
    return module


def test_an_operand_read_later_is_copied() -> None:
    """The example: an update of an array that is needed, and a parameter that is returned."""
    check(CopyInsertion.example, 2)


def test_updates_one_after_the_other_need_no_copy() -> None:
    """Each update takes over the buffer of the one before."""
    check(
        """HloModule m
ENTRY e {
  p = f32[8]{0} parameter(0)
  v = f32[2]{0} parameter(1)
  i = s32[] constant(1)
  a = f32[8]{0} negate(p)
  b = f32[8]{0} dynamic-update-slice(a, v, i)
  c = f32[8]{0} abs(b)
  d = f32[8]{0} dynamic-update-slice(b, v, i)
  ROOT r = (f32[8]{0}, f32[8]{0}) tuple(c, d)
}
""",
        0,
    )


def test_constants_and_parameters_of_others_are_copied() -> None:
    """Neither may be written: an update of a parameter, and one of a constant."""
    check(
        """HloModule m
ENTRY e {
  p = f32[8]{0} parameter(0)
  v = f32[2]{0} parameter(1)
  k = f32[4]{0} constant({1, 2, 3, 4})
  i = s32[] constant(1)
  b = f32[8]{0} dynamic-update-slice(p, v, i)
  c = f32[4]{0} dynamic-update-slice(k, v, i)
  ROOT r = (f32[8]{0}, f32[4]{0}) tuple(b, c)
}
""",
        2,
    )


def test_a_donated_parameter_is_written() -> None:
    """The result lies in the parameter; where that is still read, the result is copied into it."""
    head = "HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }\n"
    body = """ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  v = f32[2]{{0}} parameter(1)
  i = s32[] constant(1)
  {lines}
  ROOT r = (f32[8]{{0}}, f32[8]{{0}}) tuple(b, c)
}}
"""
    check(
        head
        + body.format(lines="c = f32[8]{0} abs(p) b = f32[8]{0} dynamic-update-slice(p, v, i)"),
        0,
    )
    check(head + body.format(lines="b = f32[8]{0} negate(p) c = f32[8]{0} exponential(p)"), 1)
    check(
        head
        + body.format(lines="c = f32[8]{0} reverse(p), dimensions={0} b = f32[8]{0} negate(p)"),
        0,
    )
    check(
        head + body.format(lines="c = f32[8]{0} abs(p) b = f32[8]{0} reverse(p), dimensions={0}"), 1
    )


def test_results_have_buffers_of_their_own() -> None:
    """Constants, parameters and what is returned twice are copied."""
    check(
        """HloModule m
ENTRY e {
  p = f32[8]{0} parameter(0)
  k = f32[] constant(1)
  a = f32[8]{0} negate(p)
  ROOT r = (f32[8]{0}, f32[], f32[8]{0}, f32[8]{0}) tuple(p, k, a, a)
}
""",
        3,
    )


def test_a_loop_that_swaps_needs_three_copies() -> None:
    """Two results that change places wait for each other: one in a further buffer."""
    check(loop(f"ROOT r = ({STATE}) tuple(j, y, x)"), 3 + 1)


def test_a_loop_that_computes_in_place_needs_none() -> None:
    """The counter starts as a constant, which is copied; elementwise results replace what they are made of."""
    check(
        loop(
            f"u = f32[4]{{0}} add(x, y) v = f32[4]{{0}} negate(y) ROOT r = ({STATE}) tuple(j, u, v)"
        ),
        1,
    )


def test_a_result_made_too_early_is_copied() -> None:
    """The next ``y`` is made while this one is still read."""
    check(
        loop(
            f"v = f32[4]{{0}} negate(y) u = f32[4]{{0}} add(x, y) ROOT r = ({STATE}) tuple(j, u, v)"
        ),
        2,
    )


def test_a_result_that_reads_other_places_is_copied() -> None:
    """A reversal cannot be made in place."""
    check(
        loop(f"v = f32[4]{{0}} reverse(y), dimensions={{0}} ROOT r = ({STATE}) tuple(j, x, v)"), 2
    )


def test_what_a_loop_hands_on_is_not_copied() -> None:
    """An element that stays the same may be read before, in and after the loop."""
    text = loop(f"u = f32[4]{{0}} add(x, y) ROOT r = ({STATE}) tuple(j, u, y)")
    check(text.replace("tuple(f, g)", "tuple(f, b)"), 1)


def test_one_value_for_two_elements_is_copied() -> None:
    """A loop that starts twice from one array, and one that ends twice with one."""
    check(
        loop(f"u = f32[4]{{0}} add(x, y) v = f32[4]{{0}} negate(y) ROOT r = ({STATE}) tuple(j, u, v)")
        .replace("tuple(zero, a, b)", "tuple(zero, a, a)"), 3, needed=False,
    )  # fmt: skip
    check(loop(f"u = f32[4]{{0}} add(x, y) ROOT r = ({STATE}) tuple(j, u, u)"), 2)


CONDITIONAL = """HloModule m
yes {{
  s = (f32[4]{{0}}, f32[2]{{0}}) parameter(0)
  x = f32[4]{{0}} get-tuple-element(s), index=0
  v = f32[2]{{0}} get-tuple-element(s), index=1
  i = s32[] constant(1)
  {yes}
}}
no {{
  s = (f32[4]{{0}}, f32[2]{{0}}) parameter(0)
  x = f32[4]{{0}} get-tuple-element(s), index=0
  v = f32[2]{{0}} get-tuple-element(s), index=1
  {no}
}}
ENTRY e {{
  p = f32[4]{{0}} parameter(0)
  v = f32[2]{{0}} parameter(1)
  q = pred[] parameter(2)
  a = f32[4]{{0}} negate(p)
  t = (f32[4]{{0}}, f32[2]{{0}}) tuple(a, v)
  c = f32[4]{{0}} conditional(q, t, t), true_computation=yes, false_computation=no
  {after}
}}
"""
UPDATE = "ROOT y = f32[4]{0} dynamic-update-slice(x, v, i)"
NOTHING = "ROOT r = f32[4]{0} get-tuple-element(s), index=0"


def test_a_branch_may_update_what_nobody_reads_afterwards() -> None:
    """One branch updates its operand, the other hands it on: the same buffer, no copy."""
    text = CONDITIONAL.format(yes=UPDATE, no=NOTHING, after="ROOT r = f32[4]{0} abs(c)")
    check(text, 0)


def test_a_branch_copies_what_is_read_afterwards() -> None:
    """Both branches then give a buffer of its own."""
    text = CONDITIONAL.format(yes=UPDATE, no=NOTHING, after="ROOT r = f32[4]{0} add(a, c)")
    check(text, 2)


def test_branches_that_give_constants_copy_them() -> None:
    """Two constants cannot be one buffer."""
    constant = "ROOT k = f32[4]{{0}} constant({{{0}, 2, 3, 4}})"
    text = CONDITIONAL.format(
        yes=constant.format(1), no=constant.format(5), after="ROOT r = f32[4]{0} add(a, c)"
    )
    check(text, 2, needed=False)


def test_a_computation_called_twice_is_cloned() -> None:
    """What it updates belongs to one caller; metadata and results stay."""
    text = """HloModule m
put {
  x = f32[4]{0} parameter(0)
  v = f32[2]{0} parameter(1)
  i = s32[] constant(1)
  ROOT y = f32[4]{0} dynamic-update-slice(x, v, i)
}
ENTRY e {
  p = f32[4]{0} parameter(0)
  v = f32[2]{0} parameter(1)
  a = f32[4]{0} negate(p)
  b = f32[4]{0} call(a, v), to_apply=put
  c = f32[4]{0} abs(b)
  d = f32[4]{0} call(b, v), to_apply=put
  f = f32[4]{0} call(c, v), to_apply=put
  ROOT r = (f32[4]{0}, f32[4]{0}) tuple(d, f)
}
"""
    module, log = proof.check(text, CopyInsertion())
    assert log.hits == {"clone a computation": 2}
    assert not wrong(module, hloopt.parse(text))


def test_an_update_beside_others_gets_an_operand_of_its_own() -> None:
    """The body of an asynchronous call stays one op; its operand is copied unless nobody else reads it."""
    text = """HloModule m
put {
  x = f32[4]{0} parameter(0)
  v = f32[2]{0} parameter(1)
  i = s32[] parameter(2)
  ROOT y = f32[4]{0} dynamic-update-slice(x, v, i)
}
ENTRY e {
  p = f32[4]{0} parameter(0)
  v = f32[2]{0} parameter(1)
  i = s32[] parameter(2)
  a = f32[4]{0} negate(p)
  s = ((f32[4]{0}, f32[2]{0}, s32[]), f32[4]{0}, u32[]) async-start(a, v, i), calls=put
  b = f32[4]{0} abs(a)
  d = f32[4]{0} async-done(s)
  ROOT r = (f32[4]{0}, f32[4]{0}) tuple(b, d)
}
"""
    module, log = proof.check(text, CopyInsertion())
    assert log.hits == {"copy": 1}
    assert len(module.computations["put"]) == 4
    proof.check(text.replace("abs(a)", "abs(p)"), CopyInsertion(), changes=False)


def test_the_copies_take_metadata_and_place() -> None:
    """A copy stands right before the update and says where its array came from."""
    text = CopyInsertion.example.replace("negate(p)", 'negate(p), metadata={op_name="user"}')
    module = hloopt.parse(text)
    CopyInsertion().run(module, PassLog())
    update = module.entry.by_name["x"]
    assert update.operands[0].opcode == "copy"
    assert str(update.operands[0].metadata) == '{op_name="user"}'


def test_without_fuel_nothing_is_copied() -> None:
    """Fuel for one copy makes one."""
    for fuel in (0, 1):
        module = hloopt.parse(CopyInsertion.example)
        assert CopyInsertion().run(module, PassLog(fuel=fuel)) is bool(fuel)
        assert sum(entry.opcode == "copy" for entry in module.entry) == fuel


@pytest.mark.parametrize("block", one_in(3, range(12)))
def test_random_modules_are_right_with_shared_buffers(block: int) -> None:
    """Loops in loops, branches, calls, updates and tuples; nearly all of them are wrong without copies."""
    spoilt = 0
    for seed in range(6 * block, 6 * block + 6):
        text = module_text(random.Random(seed))
        original, module = hloopt.parse(text), hloopt.parse(text)
        CopyInsertion().run(module, PassLog())
        hloopt.verify(module)
        assert not wrong(module, original, (0, 17)), module.to_text()
        assert not CopyInsertion().run(module, PassLog())
        spoilt += bool(wrong(clone_module(original), original, (0,)))
    assert spoilt >= 4


def test_time_is_in_proportion_to_the_module() -> None:
    """Four times the updates take no more than five times the calls."""

    def chain(length: int) -> Module:
        lines = ["p = f32[8]{0} parameter(0)", "v = f32[1]{0} parameter(1)", "i = s32[] constant(2)",
                 "x0 = f32[8]{0} negate(p)"]  # fmt: skip
        for at in range(1, length):
            lines.append(f"y{at} = f32[8]{{0}} dynamic-update-slice(x{at - 1}, v, i)")
            lines.append(f"x{at} = f32[8]{{0}} add(y{at}, x{at - 1})")
        return hloopt.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")

    modules = [chain(100), chain(400)]
    calls = [
        count_calls(lambda module=module: CopyInsertion().run(module, PassLog()))
        for module in modules
    ]
    assert calls[1] < 5 * calls[0]


def test_a_cloned_computation_has_fusions_of_its_own() -> None:
    """A fusion's body is that of one fusion, also where its computation is called twice."""
    text = """HloModule m

fused {
  a = f32[4] parameter(0)
  b = f32[4] exponential(a)
  ROOT c = f32[4] negate(b)
}

f {
  x = f32[4] parameter(0)
  ROOT y = f32[4] fusion(x), kind=kLoop, calls=fused
}

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] call(x), to_apply=f
  z = f32[4] call(y), to_apply=f
  ROOT r = f32[4] add(y, z)
}
"""
    module, _ = proof.check(text, CopyInsertion())
    fusions = [entry for entry in module.instructions() if entry.opcode == "fusion"]
    assert len({entry.attributes["calls"] for entry in fusions}) == len(fusions) == 2


def test_what_is_sent_while_a_loop_goes_on_is_copied() -> None:
    """The send of one turn is done in the next: until then nobody else writes what it reads."""
    text = """HloModule m
condition {
  p = (f32[4]{0}, (f32[4]{0}, u32[], token[])) parameter(0)
  ROOT c = pred[] constant(false)
}
body {
  p = (f32[4]{0}, (f32[4]{0}, u32[], token[])) parameter(0)
  x = f32[4]{0} get-tuple-element(p), index=0
  t = (f32[4]{0}, u32[], token[]) get-tuple-element(p), index=1
  done = token[] send-done(t), channel_id=1
  after = token[] after-all()
  sent = (f32[4]{0}, u32[], token[]) send(x, after), channel_id=1
  a = f32[4]{0} add(x, x)
  ROOT r = (f32[4]{0}, (f32[4]{0}, u32[], token[])) tuple(a, sent)
}
ENTRY e {
  x = f32[4]{0} parameter(0)
  after = token[] after-all()
  sent = (f32[4]{0}, u32[], token[]) send(x, after), channel_id=1
  t = (f32[4]{0}, (f32[4]{0}, u32[], token[])) tuple(x, sent)
  w = (f32[4]{0}, (f32[4]{0}, u32[], token[])) while(t), condition=condition, body=body
  last = (f32[4]{0}, u32[], token[]) get-tuple-element(w), index=1
  done = token[] send-done(last), channel_id=1
  ROOT r = f32[4]{0} get-tuple-element(w), index=0
}
"""
    module = hloopt.parse(text)
    CopyInsertion().run(module, PassLog())
    hloopt.verify(module)
    for name in ("e", "body"):
        assert module.computations[name].by_name["sent"].operands[0].opcode == "copy"
    assert not CopyInsertion().run(module, PassLog())


def test_calls_that_stand_for_too_much_are_refused() -> None:
    """Two to the power of 40 copies are not made: the first call that is too much is named with its line."""
    module = hloopt.parse(doubled_calls(41), "deep.hlo")
    with pytest.raises(UnsupportedError) as caught:
        CopyInsertion().run(module, PassLog())
    told = str(caught.value)
    assert told.startswith("deep.hlo:18:73:")
    assert "error: r: each call gets code of its own: that is more than 100000 instructions" in told
    assert CopyInsertion().run(hloopt.parse(doubled_calls(8)), PassLog())


def test_what_the_writer_itself_gives_is_not_copied_before_it() -> None:
    """A branch hands on what it was given: who reads that behind the conditional reads its result."""
    text = """HloModule m
same { p = (pred[3], pred[3]) parameter(0)
  a = pred[3] get-tuple-element(p), index=0
  b = pred[3] get-tuple-element(p), index=1
  ROOT t = (pred[3], pred[3]) tuple(a, b) }
other { p = (pred[3], pred[3]) parameter(0)
  a = pred[3] get-tuple-element(p), index=0
  b = pred[3] get-tuple-element(p), index=1
  n = pred[3] not(a)
  ROOT t = (pred[3], pred[3]) tuple(n, b) }
condition { p = (pred[3], pred[3], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=2
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT }
body { p = (pred[3], pred[3], s32[]) parameter(0)
  x = pred[3] get-tuple-element(p), index=0
  y = pred[3] get-tuple-element(p), index=1
  i = s32[] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  even = pred[] compare(i, one), direction=EQ
  given = (pred[3], pred[3]) tuple(x, y)
  c = (pred[3], pred[3]) conditional(even, given, given), true_computation=same, false_computation=other
  first = pred[3] get-tuple-element(c), index=0
  second = pred[3] get-tuple-element(c), index=1
  wide = pred[2,3] broadcast(second), dimensions={1}
  narrow = pred[1,3] slice(wide), slice={[1:2], [0:3]}
  back = pred[3] reshape(narrow)
  both = pred[3] xor(first, back)
  ROOT t = (pred[3], pred[3], s32[]) tuple(x, both, next) }
ENTRY e {
  x = pred[3] parameter(0)
  zero = s32[] constant(0)
  t = (pred[3], pred[3], s32[]) tuple(x, x, zero)
  w = (pred[3], pred[3], s32[]) while(t), condition=condition, body=body
  ROOT r = pred[3] get-tuple-element(w), index=1
}
"""
    proof.check(text, CopyInsertion())
