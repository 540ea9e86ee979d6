"""while-constant-sinking: constants that a loop hands on stand where they are read."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module
from hloopt.passes.loops.constant_sinking import WhileConstantSinking
from hloopt.passes.loops.simplifier import WhileLoopSimplifier
from hloopt.rewrite import PassLog
from tests.passes.loop_texts import COUNT, loop_text
from tests.passes.proof import check
from tests.properties.random_modules import module_text

PASS = WhileConstantSinking()
STATE = [
    ("i", "s32[]", "zero"),
    ("v", "f32[4]", "x"),
    ("c", "f32[4]", "c"),
    ("n", "s32[]", "three"),
]
BODY = f"{COUNT}\nv1 = f32[4] multiply(v, c)"
BOUND = "ROOT b = pred[] compare(i, n), direction=LT"
ENTRY = "half = f32[] constant(0.5)\nc = f32[4] broadcast(half), dimensions={}"


def text(**changes: object) -> str:
    given: dict[str, object] = {
        "condition": BOUND, "body": BODY, "following": ["i1", "v1", "c", "n"], "entry": ENTRY,
        "results": ["v"],
    }  # fmt: skip
    return loop_text(STATE, **{**given, **changes})  # type: ignore[arg-type]


def operand_opcodes(module: Module, name: str) -> list[str]:
    (found,) = [one for one in module.instructions() if one.name == name]
    return [operand.opcode for operand in found.operands]


def test_a_scalar_and_a_broadcast_go_to_body_and_condition() -> None:
    """Both read them as constants; the body still hands the elements on."""
    module, log = check(text(), PASS)
    assert log.hits == {"constant that the body passes through": 2}
    assert operand_opcodes(module, "b") == ["get-tuple-element", "constant"]
    assert operand_opcodes(module, "v1") == ["get-tuple-element", "broadcast"]


def test_the_simplifier_then_drops_the_elements() -> None:
    """What nobody reads any more is not carried."""
    module, _ = check(text(), PASS, WhileLoopSimplifier())
    assert (
        len(
            next(one for one in module.instructions() if one.opcode == "while").operands[0].operands
        )
        == 2
    )


def test_a_constant_goes_through_to_the_inner_loop_that_reads_it() -> None:
    """Outer loops come first."""
    inner = """inner.cond { s = (f32[4], f32[4]) parameter(0)
a = f32[4] get-tuple-element(s), index=0
ROOT r = pred[] constant(false) }
inner { s = (f32[4], f32[4]) parameter(0)
a = f32[4] get-tuple-element(s), index=0
h = f32[4] get-tuple-element(s), index=1
deep = f32[4] multiply(a, h)
ROOT r = (f32[4], f32[4]) tuple(deep, h) }"""
    body = f"{COUNT}\nit = (f32[4], f32[4]) tuple(v, c)\n"
    body += "iw = (f32[4], f32[4]) while(it), condition=inner.cond, body=inner\n"
    body += "v1 = f32[4] get-tuple-element(iw), index=0"
    module, _ = check(text(body=body, more=inner), PASS)
    assert operand_opcodes(module, "deep") == ["get-tuple-element", "broadcast"]


@pytest.mark.parametrize(
    "changes",
    [
        {"entry": "c = f32[4] negate(x)", "condition": BOUND.replace("n)", "i)")},
        {"following": ["i1", "v1", "v", "i"], "body": BODY},
        {"body": COUNT, "following": ["i1", "v", "c", "n"], "condition": BOUND.replace("n)", "i)")},
    ],
)
def test_what_is_left_alone(changes: dict[str, object]) -> None:
    """No constant; not handed on; nobody reads it."""
    check(text(**changes), PASS, changes=False, draws=1 if "body" in changes else 4)


def test_another_element_that_becomes_the_constant() -> None:
    """What reads the constant to hand it on in another place has it there."""
    module, _ = check(
        text(following=["i1", "v1", "c", "n"], body=f"{COUNT}\nv1 = f32[4] copy(c)"), PASS
    )
    assert operand_opcodes(module, "v1") == ["broadcast"]


def missed(source: str, instance: WhileConstantSinking) -> list[str]:
    module, log = hloopt.parse(source), PassLog(kinds=frozenset({"missed"}))
    instance.run(module, log)
    return [remark.reason for remark in log.remarks]


def test_options_bound_what_is_written_twice() -> None:
    """A large literal stays where it is; with scalar, everything but one element does."""
    entry = "c = f32[4] constant({1, 2, 3, 4})"
    reasons = missed(text(entry=entry), WhileConstantSinking(limit=3))
    assert reasons == ["element 2: 4 elements, more than limit=3"]
    reasons = missed(text(entry=entry), WhileConstantSinking(scalar=True))
    assert reasons == ["element 2: 4 elements, and scalar=true"]
    check(text(entry=entry), PASS)
    with pytest.raises(UsageError, match="limit must be at least 1, got"):
        WhileConstantSinking(limit=0)


def test_a_read_with_a_sharding_stays() -> None:
    """The constant has none."""
    source = text().replace(
        "v1 = f32[4] multiply(v, c)",
        "cs = f32[4] get-tuple-element(s), index=2, sharding={replicated}\nv1 = f32[4] multiply(v, cs)",
    )
    assert missed(source, PASS) == [
        "element 2: layout, sharding or control edges of cs say more than its value"
    ]


def first_loop(module: Module) -> Instruction:
    return next(one for one in module.instructions() if one.opcode == "while")


def test_computations_that_loops_share_are_copied() -> None:
    """Another loop with the same body hands something else on."""
    source = text().replace("ROOT result = (f32[4]) tuple(out.v)", """
t2 = (s32[], f32[4], f32[4], s32[]) tuple(zero, x, y, one)
loop2 = (s32[], f32[4], f32[4], s32[]) while(t2), condition=cond, body=body
v2 = f32[4] get-tuple-element(loop2), index=1
ROOT result = (f32[4], f32[4]) tuple(out.v, v2)""")  # fmt: skip
    module, _ = check(source, PASS)
    assert first_loop(module).attributes["body"].name != "body"


@pytest.mark.parametrize("seed", range(100, 112))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Alone, whatever else is in the module."""
    source = module_text(random.Random(seed))
    check(source, PASS, changes=PASS.run(hloopt.parse(source), PassLog()), draws=2)
