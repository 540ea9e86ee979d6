"""reshape-mover computes before reshapes and transposes."""

from __future__ import annotations

import random

import pytest

from hloopt.ir import Module
from hloopt.passes.reshape_mover import ReshapeMover
from hloopt.simplify import Simplify
from tests.passes.proof import check
from tests.properties.random_modules import module_text


def module(entry: str) -> str:
    return f"HloModule m\nENTRY e {{\n{entry}\n}}\n"


def opcodes(better: Module) -> list[str]:
    return [entry.opcode for entry in better.entry if entry.opcode not in ("parameter", "constant")]


def test_the_example() -> None:
    """Two reshapes of the operands become one of the result, which stands before another."""
    better, log = check(ReshapeMover.example, ReshapeMover())
    assert opcodes(better) == ["add", "tanh", "reshape", "reshape"]
    assert sum(log.hits.values()) == 1


def test_transposes_with_broadcasts_constants_and_iotas() -> None:
    """What can be had in the order before the transpose is made there: a row is a column."""
    text = module(
        "x = f32[2,3] parameter(0)\n b = f32[3] parameter(1)\n"
        "t = f32[3,2] transpose(x), dimensions={1,0}\n"
        "r = f32[3,2] broadcast(b), dimensions={0}\n i = f32[3,2] iota(), iota_dimension=1\n"
        "c = f32[3,2] constant({{1, 2}, {3, 4}, {5, 6}})\n two = f32[] constant(2)\n"
        "k = f32[3,2] broadcast(two), dimensions={}\n a = f32[3,2] add(t, r)\n"
        "m = f32[3,2] multiply(a, i)\n s = f32[3,2] subtract(m, c)\n"
        "ROOT d = f32[3,2] divide(s, k)"
    )
    better, _ = check(text, ReshapeMover())
    assert opcodes(better)[-1] == "transpose"
    assert opcodes(better).count("transpose") == 1
    assert better.entry.root.name == "d"
    assert better.entry.by_name["m"].array.dims == (2, 3)


def test_a_tree_with_several_results() -> None:
    """Two results of two moves need two moves, and everything between is computed before them."""
    text = module(
        "x = f32[6] parameter(0)\n y = f32[6] parameter(1)\n a = f32[2,3] reshape(x)\n"
        "b = f32[2,3] reshape(y)\n s = f32[2,3] add(a, b)\n e = f32[2,3] exponential(s)\n"
        "n = f32[2,3] negate(s)\n ROOT r = (f32[2,3], f32[2,3]) tuple(e, n)"
    )
    better, _ = check(text, ReshapeMover())
    assert opcodes(better).count("reshape") == 2
    assert better.entry.by_name["s"].array.dims == (6,)


def test_moves_that_go_back() -> None:
    """A result that is only taken back to the old sizes needs no move, and nor does its user."""
    text = module(
        "x = f32[6] parameter(0)\n a = f32[2,3] reshape(x)\n e = f32[2,3] exponential(a)\n"
        "n = f32[2,3] negate(e)\n b = f32[6] reshape(e)\n c = f32[6] reshape(n)\n"
        "ROOT r = (f32[6], f32[6], f32[2,3]) tuple(b, c, n)"
    )
    better, _ = check(text, ReshapeMover())
    assert opcodes(better) == ["exponential", "negate", "reshape", "tuple"]


def test_a_move_between_two_trees() -> None:
    """What goes back behind one tree and begins the next is there for both."""
    text = module(
        "x = f32[6] parameter(0)\n a = f32[2,3] reshape(x)\n e = f32[2,3] exponential(a)\n"
        "b = f32[6] reshape(e)\n n = f32[6] negate(b)\n t = f32[6] tanh(b)\n"
        "c = f32[2,3] reshape(n)\n ROOT r = (f32[2,3], f32[6]) tuple(c, t)"
    )
    check(text, ReshapeMover())
    better, _ = check(text, ReshapeMover(), Simplify(), ReshapeMover(), Simplify())
    assert opcodes(better).count("reshape") == 1


def test_fewer_bytes_are_moved() -> None:
    """A move goes behind a conversion to a narrower type, not to a wider one."""
    text = "x = {0}[2,3] parameter(0)\n t = {0}[3,2] transpose(x), dimensions={{1,0}}\n"
    text += "ROOT c = {1}[3,2] convert(t)"
    better, _ = check(module(text.format("f32", "bf16")), ReshapeMover())
    assert opcodes(better) == ["convert", "transpose"]
    check(module(text.format("bf16", "f32")), ReshapeMover(), changes=False)


def test_a_broadcast_takes_in_ones() -> None:
    """Ones in front of a row need no reshape where a broadcast follows, though bytes grow on the way."""
    text = module(
        "x = bf16[6] parameter(0)\n a = bf16[1,1,6] reshape(x)\n c = f32[1,1,6] convert(a)\n"
        "ROOT b = f32[2,1,1,6] broadcast(c), dimensions={1,2,3}"
    )
    better, _ = check(text, ReshapeMover(), Simplify())
    assert opcodes(better) == ["convert", "broadcast"]


def test_layouts_stay() -> None:
    """The ops lie as what the moves read, the result as it did."""
    text = module(
        "x = f32[2,3]{0,1} parameter(0)\n y = f32[2,3]{0,1} parameter(1)\n"
        "a = f32[6]{0} reshape(x)\n b = f32[6]{0} reshape(y)\n ROOT s = f32[6]{0} add(a, b)"
    )
    better, _ = check(text, ReshapeMover())
    assert "{0,1} add" in better.to_text()
    check(text.replace("y = f32[2,3]{0,1}", "y = f32[2,3]{1,0}"), ReshapeMover(), changes=False)


@pytest.mark.parametrize(
    "entry",
    [
        (
            "x = f32[6] parameter(0)\n y = f32[2,3] parameter(1)\n a = f32[2,3] reshape(x)\n"
            "ROOT s = f32[2,3] add(a, y)"
        ),
        (
            "x = f32[6] parameter(0)\n y = f32[3,2] parameter(1)\n a = f32[2,3] reshape(x)\n"
            "b = f32[2,3] reshape(y)\n ROOT s = f32[2,3] add(a, b)"
        ),
        (
            "x = f32[6] parameter(0)\n y = f32[2] parameter(1)\n a = f32[2,3] reshape(x)\n"
            "b = f32[2,3] broadcast(y), dimensions={0}\n ROOT s = f32[2,3] add(a, b)"
        ),
        (
            "x = f32[6] parameter(0)\n a = f32[2,3] reshape(x)\n e = f32[2,3] exponential(a)\n"
            "n = f32[2,3] negate(a)\n ROOT r = (f32[2,3], f32[2,3]) tuple(e, n)"
        ),
        (
            "x = f32[6] parameter(0)\n a = f32[2,3] reshape(x)\n e = f32[2,3] exponential(a)\n"
            "ROOT r = (f32[2,3], f32[2,3]) tuple(e, a)"
        ),
        (
            "x = f32[6] parameter(0)\n a = f32[2,3] reshape(x)\n"
            "ROOT s = f32[2,3] exponential(a), sharding={replicated}"
        ),
        (
            "x = f32[6] parameter(0)\n a = f32[2,3] reshape(x)\n"
            "ROOT s = f32[2,3] exponential(a), control-predecessors={a}"
        ),
    ],
    ids=[
        "another operand",
        "other sizes before",
        "a broadcast across",
        "two results of one move",
        "a move that stays",
        "a sharding",
        "a control edge",
    ],
)
def test_left_alone(entry: str) -> None:
    """Where no move is saved, or something would be lost, nothing changes."""
    check(module(entry), ReshapeMover(), changes=False)


@pytest.mark.parametrize("seed", range(8))
def test_random_modules(seed: int) -> None:
    """Whatever a module is made of, its results stay."""
    text = module_text(random.Random(seed))
    check(text, ReshapeMover(), draws=2, changes=None)


def test_as_xla_moves() -> None:
    """own=false moves behind one op, and only where all that reads a move is such an op."""
    head = "HloModule m\nENTRY e { x = f32[4,6] parameter(0)\n y = f32[4,6] parameter(1)\n"
    pair = "a = f32[24] reshape(x)\n b = f32[24] reshape(y)\n p = f32[24] add(a, b)\n"
    mover = ReshapeMover(own=False)
    moved, log = check(head + pair + "ROOT r = f32[24] reverse(p), dimensions={0} }", mover)
    assert sum(log.hits.values()) == 1
    assert moved.entry.root.operands[0].opcode == "reshape"
    for rest in (
        "ROOT r = (f32[24], f32[24]) tuple(p, a) }",
        "q = f32[24] multiply(p, a)\n ROOT r = f32[24] reverse(q), dimensions={0} }",
    ):
        check(head + pair + rest, mover, changes=False)
    uniform = "c = f32[4,6] broadcast(z), dimensions={}\n a = f32[24] reshape(c)\n"
    check(
        head + "z = f32[] constant(2)\n" + uniform + "ROOT n = f32[24] negate(a) }",
        mover,
        changes=False,
    )


def test_as_xla_moves_what_a_chain_of_users_frees() -> None:
    """Whether an op is moved depends on the readers of all its moves, through each of them in turn."""
    text = (
        "HloModule m\nENTRY e { x = f32[4,6] parameter(0)\n y = f32[4,6] parameter(1)\n"
        "z = f32[4,6] parameter(2)\n a = f32[24] reshape(x)\n b = f32[24] reshape(y)\n"
        "c = f32[24] reshape(z)\n p = f32[24] add(a, b)\n q = f32[24] add(b, c)\n"
        "ROOT r = (f32[24], f32[24]%s) tuple(p, q%s) }"
    )
    _, log = check(text % ("", ""), ReshapeMover(own=False))
    assert sum(log.hits.values()) == 2
    check(text % (", f32[24]", ", a"), ReshapeMover(own=False), changes=False)
