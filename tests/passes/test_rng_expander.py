"""``rng-expander``: random bits as plain integer HLO, to the same bits as the op, the call and the loop."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.ir import Module, build, edit
from hloopt.passes.call_inliner import CallInliner
from hloopt.passes.expand.rng_expander import RngExpander
from hloopt.passes.expand.rolled_threefry import _MOST_INSTRUCTIONS
from hloopt.passes.tuple_simplifier import TupleSimplifier
from hloopt.rewrite import PassLog
from hloopt.types import DTYPES
from tests.helpers.rarely import examples
from tests.passes.proof import check, identical

TYPES = [
    name
    for name, kind in DTYPES.items()
    if (kind.is_integer or kind.is_float) and f"u{kind.bits}" in DTYPES
]
STATES = [
    ("rng_three_fry", 2),
    ("rng_philox", 2),
    ("rng_philox", 3),
    ("rng_default", 2),
    ("rng_default", 3),
]
LAST = (1 << 64) - 1


def bits_text(algorithm: str, words: int, shape: str) -> str:
    return f"""HloModule bits
ENTRY main {{
  state = u64[{words}]{{0}} parameter(0)
  ROOT bits = (u64[{words}]{{0}}, {shape}) rng-bit-generator(state), algorithm={algorithm}
}}
"""


def opcodes(module: Module) -> set[str]:
    return {instruction.opcode for instruction in module.instructions()}


def misses(text: str) -> list[str]:
    log = PassLog(kinds=frozenset({"missed"}))
    module = hloopt.parse(text, "text")
    assert not RngExpander().run(module, log)
    return [remark.reason for remark in log.remarks]


@st.composite
def shapes(draw: st.DrawFn) -> str:
    element = draw(st.sampled_from(TYPES))
    dims = draw(st.lists(st.sampled_from([0, 1, 2, 3, 5, 6]), max_size=3))
    order = draw(st.permutations(range(len(dims))))
    layout = "{" + ",".join(map(str, order)) + "}" if dims else ""
    return f"{element}[{','.join(map(str, dims))}]{layout}"


@settings(max_examples=examples(40))
@given(st.sampled_from(STATES), shapes(), st.booleans(), st.integers(0, LAST), st.data())
def test_bits_and_state_are_those_of_the_op(
    state: tuple[str, int], shape: str, concatenate: bool, key: int, data: st.DataObject
) -> None:
    """Every algorithm, state, type, shape and layout gives the same bits and the same next state."""
    algorithm, words = state
    counter = data.draw(
        st.lists(
            st.sampled_from([0, 1, (1 << 32) - 2, 1 << 32, LAST - 1, LAST]),
            min_size=words - 1,
            max_size=words - 1,
        )
    )
    given_state = np.array([key, *counter], np.uint64)
    module, log = check(
        bits_text(algorithm, words, shape), RngExpander(concatenate), given=[[given_state]]
    )
    assert log.hits == {"expand rng-bit-generator": 1}
    assert "rng-bit-generator" not in opcodes(module)
    if not concatenate:
        assert "concatenate" not in opcodes(module)


@pytest.mark.parametrize("concatenate", [True, False])
def test_bits_alone(concatenate: bool) -> None:
    """The older form, whose result is the bits without the state, is expanded too."""
    text = """HloModule bits
ENTRY main {
  state = u64[3]{0} parameter(0)
  ROOT bits = u32[2,3]{0,1} rng-bit-generator(state), algorithm=rng_default
}
"""
    check(text, RngExpander(concatenate))


def test_a_block_is_computed_once_when_words_are_concatenated() -> None:
    """Half as many elements go through the rounds of Threefry, a quarter through those of Philox."""
    for algorithm, size in (("rng_three_fry", 500), ("rng_philox", 250)):
        text = bits_text(algorithm, 2, "u32[1000]{0}")
        for concatenate, wanted in ((True, size), (False, 1000)):
            module, _ = check(text, RngExpander(concatenate), draws=1)
            widest = {one.array.dims for one in module.instructions() if one.opcode == "xor"}
            assert max(widest) == (wanted,)


@pytest.mark.every_value
@pytest.mark.parametrize(
    "target",
    ["cu_threefry2x32", "cu_threefry2x32_ffi", "hip_threefry2x32", "hip_threefry2x32_ffi"],
)
@pytest.mark.parametrize("shape", ["u32[]", "u32[0]{0}", "u32[7]{0}", "u32[3,2]{0,1}"])
def test_calls_of_the_block_function(target: str, shape: str) -> None:
    """The custom calls of JAX on GPUs become the 20 rounds, a key for each element."""
    parameters = "\n".join(f"  p{at} = {shape} parameter({at})" for at in range(4))
    text = f"""HloModule call
ENTRY main {{
{parameters}
  ROOT r = ({shape}, {shape}) custom-call(p0, p1, p2, p3), custom_call_target="{target}"
}}
"""
    module, log = check(text, RngExpander())
    assert log.hits == {f"expand {target}": 1}
    assert "custom-call" not in opcodes(module)


def test_operands_of_a_call_in_other_layouts_are_copied() -> None:
    """Layouts of operands and results of a call may differ; logical elements stay together."""
    text = """HloModule call
ENTRY main {
  a = u32[2,3]{1,0} parameter(0)
  b = u32[2,3]{0,1} parameter(1)
  ROOT r = (u32[2,3]{0,1}, u32[2,3]{1,0}) custom-call(a, b, b, a), custom_call_target="cu_threefry2x32"
}
"""
    check(text, RngExpander())


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ("custom_call_has_side_effect=true", "the call has custom_call_has_side_effect"),
        (
            "output_to_operand_aliasing={{0}: (2, {})}",
            "the call has output_to_operand_aliasing",
        ),
    ],
)
def test_calls_with_marks_stay(mark: str, reason: str) -> None:
    """A call that does more than compute its result is left alone, and says so."""
    text = f"""HloModule call
ENTRY main {{
  a = u32[2]{{0}} parameter(0)
  ROOT r = (u32[2]{{0}}, u32[2]{{0}}) custom-call(a, a, a, a), custom_call_target="cu_threefry2x32", {mark}
}}
"""
    assert misses(text) == [reason]


def test_calls_that_are_something_else_stay() -> None:
    """A target of that name with other operands is not what the interpreter knows, and stays."""
    text = """HloModule call
ENTRY main {
  a = s32[2]{0} parameter(0)
  ROOT r = (s32[2]{0}, s32[2]{0}) custom-call(a, a, a, a), custom_call_target="cu_threefry2x32"
}
"""
    (reason,) = misses(text)
    assert "it has four operands of type u32" in reason


@pytest.mark.parametrize(
    "line",
    [
        "f32[4]{0} rng(a, b), distribution=rng_uniform",
        "f32[4]{0} rng(a, b), distribution=rng_normal",
        "u64[2]{0} rng-get-and-update-state(), delta=1",
    ],
)
def test_numbers_of_the_device_stay(line: str) -> None:
    """What comes from a state outside of the module has no expansion with the same numbers."""
    text = f"""HloModule device
ENTRY main {{
  a = f32[] constant(0)
  b = f32[] constant(1)
  ROOT r = {line}
}}
"""
    assert misses(text) == ["its numbers come from a state of the device that no instruction reads"]


def test_types_without_an_integer_of_their_width_stay() -> None:
    """There is no u6 to hold the bits of the floats of 6 bits."""
    (reason,) = misses(bits_text("rng_philox", 2, "f6e3m2fn[4]{0}"))
    assert reason == "there is no integer type of 6 bits to make f6e3m2fn of"


ROLLED = """HloModule rolled

four_rounds {
  i = s32[] parameter(0)
  x = $X parameter(1)
  y = $X parameter(2)
  k1 = $K parameter(3)
  k2 = $K parameter(4)
  k0 = $K parameter(5)
  first = u32[4]{0} parameter(6)
  second = u32[4]{0} parameter(7)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  width = u32[] constant(32)
$ROUNDS
  kx = $X broadcast(k1), dimensions=$D
  ky = $X broadcast(k2), dimensions=$D
  group = u32[] convert(next)
  groups = $X broadcast(group), dimensions={}
  xk = $X add(x4, kx)
  yk = $X add(y4, ky)
  yg = $X add(yk, groups)
  ROOT r = (s32[], $X, $X, $K, $K, $K, u32[4]{0}, u32[4]{0}) tuple(next, xk, yg, k2, k0, k1, second, first)
}

body {
  state = ($S) parameter(0)
  j = s32[] get-tuple-element(state), index=0
  one = s32[] constant($STEP)
  next = s32[] add(j, one)
$PARTS
  called = (s32[], $X, $X, $K, $K, $K, u32[4]{0}, u32[4]{0}) call(g1, g2, g3, g4, g5, g6, g7, g8), to_apply=four_rounds
$CALLED
  ROOT r = ($S) tuple(next, c0, c1, c2, c3, c4, c5, c6, c7)
}

condition {
  state = ($S) parameter(0)
  j = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(5)
  ROOT r = pred[] compare(j, limit), direction=LT
}

ENTRY main {
  k0 = $K parameter(0)
  k1 = $K parameter(1)
  a = $X parameter(2)
  b = $X parameter(3)
  kx = $X broadcast(k0), dimensions=$D
  ky = $X broadcast(k1), dimensions=$D
  x = $X add(a, kx)
  y = $X add(b, ky)
  k = $K xor(k0, k1)
  parity = u32[] constant(466688986)
  parities = $K broadcast(parity), dimensions={}
  k2 = $K xor(k, parities)
  zero = s32[] constant(0)
  first = u32[4]{0} constant({13, 15, 26, 6})
  second = u32[4]{0} constant({17, 29, 16, 24})
  start = ($S) tuple(zero, zero, x, y, k1, k2, k0, first, second)
  loop = ($S) while(start), condition=condition, body=body
  c = s32[] get-tuple-element(loop), index=1
  u = $X get-tuple-element(loop), index=2
  v = $X get-tuple-element(loop), index=3
  r = u32[4]{0} get-tuple-element(loop), index=8
  ROOT result = (s32[], $X, $X, u32[4]{0}) tuple(c, u, v, r)
}
"""

ROUND = """\
  one{0} = u32[1]{{0}} slice(first), slice={{[{0}:{1}]}}
  r{0} = u32[] reshape(one{0})
  rr{0} = $X broadcast(r{0}), dimensions={{}}
  left{0} = $X shift-left({y}, rr{0})
  w{0} = u32[] subtract(width, r{0})
  ww{0} = $X broadcast(w{0}), dimensions={{}}
  right{0} = $X shift-right-logical({y}, ww{0})
  turned{0} = $X or(left{0}, right{0})
  x{1} = $X add({x}, {y})
  y{1} = $X xor(x{1}, turned{0})"""


def rolled(
    block: str = "u32[5]{0}", key: str = "u32[]", dimensions: str = "{}", step: int = 1
) -> str:
    """Threefry as JAX lowers it on CPU: 5 trips of 4 rounds, keys and rotations taking turns."""
    state = ["s32[]", "s32[]", block, block, key, key, key, "u32[4]{0}", "u32[4]{0}"]
    rounds = [
        ROUND.format(at, at + 1, x=f"x{at}" if at else "x", y=f"y{at}" if at else "y")
        for at in range(4)
    ]
    parts = [
        f"  g{at} = {shape} get-tuple-element(state), index={at}"
        for at, shape in enumerate(state)
        if at
    ]
    called = [
        f"  c{at} = {shape} get-tuple-element(called), index={at}"
        for at, shape in enumerate(state[1:])
    ]
    pieces = {
        "$ROUNDS": "\n".join(rounds),
        "$PARTS": "\n".join(parts),
        "$CALLED": "\n".join(called),
        "$STEP": str(step),
        "$S": ", ".join(state),
        "$X": block,
        "$K": key,
        "$D": dimensions,
    }
    return re.sub(
        r"\$[A-Z]+", lambda found: pieces[found[0]], re.sub(r"\$ROUNDS", pieces["$ROUNDS"], ROLLED)
    )


@pytest.mark.parametrize(
    ("block", "key", "dimensions"),
    [
        ("u32[5]{0}", "u32[]", "{}"),
        ("u32[]", "u32[]", "{}"),
        ("u32[3,4]{1,0}", "u32[3]{0}", "{0}"),
        ("u32[3,4]{0,1}", "u32[]", "{}"),
    ],
)
def test_the_loop_of_jax_is_unrolled(block: str, key: str, dimensions: str) -> None:
    """5 trips become 20 rounds in a row, each rotating by a constant, and the state ends as it did."""
    text = rolled(block, key, dimensions)
    module, log = check(text, RngExpander())
    assert log.hits == {"unroll Threefry": 1}
    assert not opcodes(module) & {"while", "call", "slice"}
    assert len(module.computations) == 1
    for shift in (one for one in module.instructions() if one.opcode.startswith("shift")):
        amount = shift.operands[1]
        assert (amount.operands[0] if amount.operands else amount).opcode == "constant"


def test_the_loop_is_threefry() -> None:
    """The loop of these tests gives the words of the block function, and so does what it becomes."""
    module = hloopt.parse(rolled(), "text")
    call = """HloModule call
ENTRY main {
  k0 = u32[] parameter(0)
  k1 = u32[] parameter(1)
  a = u32[5]{0} parameter(2)
  b = u32[5]{0} parameter(3)
  x = u32[5]{0} broadcast(k0), dimensions={}
  y = u32[5]{0} broadcast(k1), dimensions={}
  ROOT r = (u32[5]{0}, u32[5]{0}) custom-call(x, y, a, b), custom_call_target="cu_threefry2x32"
}
"""
    rng = np.random.default_rng(7)
    arrays = [rng.integers(0, 1 << 32, dims, np.uint32) for dims in ((), (), 5, 5)]
    _, x, y, _ = hloopt.evaluate(module, arrays)
    u, v = hloopt.evaluate(hloopt.parse(call, "call"), arrays)
    assert identical(x, u)
    assert identical(y, v)


def test_the_loop_is_found_after_inlining() -> None:
    """Other passes may have been there before: the call gone, tuples looked through."""
    check(rolled(), CallInliner(), TupleSimplifier(), RngExpander(), TupleSimplifier())


def test_a_loop_of_other_length_stays() -> None:
    """Only 5 trips are Threefry; whoever wants other loops unrolled has another pass."""
    assert misses(rolled(step=2)) == ["it runs 3 times, not 5"]


def test_a_loop_with_other_rotations_is_none_of_it() -> None:
    """Without both lists of rotations nothing says that a loop is Threefry."""
    assert misses(rolled().replace("{17, 29, 16, 24}", "{17, 29, 16, 25}")) == []


def test_a_loop_that_does_more_stays() -> None:
    """A body with a side effect is not unrolled, and the reason names the instruction."""
    text = rolled().replace(
        "  j = s32[] get-tuple-element(state), index=0\n  one",
        "  j = s32[] get-tuple-element(state), index=0\n"
        '  told = () custom-call(j), custom_call_target="tell", custom_call_has_side_effect=true\n'
        "  one",
    )
    assert misses(text) == ["its body does more than arithmetic in told"]


def test_a_long_body_stays() -> None:
    """A body far longer than 4 rounds is not written down 5 times."""
    module = hloopt.parse(rolled(), "text")
    body = module.computations["body"]
    (counter,) = (one for one in body if one.name == "j")
    for _ in range(_MOST_INSTRUCTIONS):
        build.make(body.root, "negate", (counter,))
    log = PassLog(kinds=frozenset({"missed"}))
    assert not RngExpander().run(module, log)
    assert [remark.reason for remark in log.remarks] == [
        f"its body has more than {_MOST_INSTRUCTIONS} instructions"
    ]


def test_marks_and_edges_go_over_to_the_result() -> None:
    """Name, metadata, sharding and control edges stay; all that is new says where it comes from."""
    text = """HloModule marks
ENTRY main {
  state = u64[2]{0} parameter(0)
  before = u64[2]{0} negate(state)
  bits = u32[6]{0} rng-bit-generator(state), algorithm=rng_three_fry, sharding={replicated}, frontend_attributes={a="b"}, control-predecessors={before}, metadata={op_name="draw"}
  after = u64[2]{0} not(state), control-predecessors={bits}
  ROOT r = (u32[6]{0}, u64[2]{0}, u64[2]{0}) tuple(bits, before, after)
}
"""
    module, _ = check(text, RngExpander())
    entry = module.entry
    bits = entry.by_name["bits"]
    assert str(bits.attributes["sharding"]) == "{replicated}"
    assert "frontend_attributes" in bits.attributes
    new = [one for one in entry if one.offset < 0 or one is bits]
    assert len(new) > 100
    assert {str(one.metadata) for one in new} == {'{op_name="draw"}'}
    assert entry.by_name["after"].control_predecessors == (bits,)
    first = [one for one in new if set(one.operands).isdisjoint(new)]
    assert all(entry.by_name["before"] in one.control_predecessors for one in first)


def test_fuel_stops_it() -> None:
    """No more rewrites are made than there is fuel for."""
    module = hloopt.parse(bits_text("rng_philox", 2, "u32[4]{0}"), "text")
    assert not RngExpander().run(module, PassLog(fuel=0))


def test_a_wrapped_op_stays() -> None:
    """What an asynchronous call wraps is a single op and stays one."""
    module = hloopt.parse(bits_text("rng_philox", 2, "u32[4]{0}"), "text")
    wrapped = build.clone_computation(module.entry, "wrapped")
    edit.add_computation(module, wrapped)
    entry = module.entry
    operand = entry.parameters[0]
    fusion = build.make(
        entry,
        "fusion",
        (operand,),
        {"kind": "kLoop", "calls": wrapped},
        shape=entry.root.shape,
    )
    old = entry.root
    edit.set_root(entry, fusion)
    edit.remove(old)
    assert not RngExpander().run(module, PassLog())
