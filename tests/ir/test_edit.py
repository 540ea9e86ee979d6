"""The one place that changes the graph keeps both ends of every link in step."""

from __future__ import annotations

import pytest

from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.ir.canonical import fingerprint
from hloopt.types import Literal, array

F32 = array("f32", (4,))


def make(computation: Computation, name: str, opcode: str, *operands: Instruction) -> Instruction:
    attributes = {"parameter_number": len(computation.parameters)} if opcode == "parameter" else {}
    return edit.append(computation, Instruction(name, opcode, F32, operands, attributes))


def diamond() -> tuple[Module, Computation, dict[str, Instruction]]:
    """p -> a, b -> c (root)."""
    module = Module("m")
    computation = edit.add_computation(module, Computation("main"))
    p = make(computation, "p", "parameter")
    a = make(computation, "a", "negate", p)
    b = make(computation, "b", "abs", p)
    c = make(computation, "c", "add", a, b)
    computation.root = c
    module.entry = computation
    return module, computation, {"p": p, "a": a, "b": b, "c": c}


def check_links(module: Module) -> None:
    """Every operand lists its user as often as it is used, positions and names agree."""
    for computation in module:
        seen = list(computation)
        assert len(seen) == len(computation)
        assert list(reversed(computation)) == seen[::-1]
        assert computation.by_name == {entry.name: entry for entry in seen}
        counted: dict[Instruction, dict[Instruction, int]] = {entry: {} for entry in seen}
        for entry in seen:
            assert entry.computation is computation
            for operand in entry.operands:
                counted[operand][entry] = counted[operand].get(entry, 0) + 1
            for before in entry.control_predecessors:
                assert entry in before.control_successors
        assert {entry: dict(entry.users) for entry in seen} == counted


def names(computation: Computation) -> list[str]:
    return [entry.name for entry in computation]


def test_append_registers_users_once_per_operand() -> None:
    """An instruction that uses a value twice is one user with count two."""
    module, computation, at = diamond()
    square = make(computation, "square", "multiply", at["c"], at["c"])

    assert at["c"].users == {square: 2}
    check_links(module)


def test_insert_before_keeps_the_order() -> None:
    """A new instruction stands right before the one named."""
    module, computation, at = diamond()
    new = edit.insert_before(at["b"], Instruction("n", "negate", F32, (at["p"],)))

    assert names(computation) == ["p", "a", "n", "b", "c"]
    assert new.users == {}
    check_links(module)


def test_move_after_keeps_the_rest_in_order() -> None:
    """An instruction moves right behind another, to the end too; behind itself or where it is it stays."""
    module, computation, at = diamond()
    edit.move_after(at["p"], at["b"])
    assert names(computation) == ["p", "b", "a", "c"]
    edit.move_after(at["p"], at["b"])
    edit.move_after(at["b"], at["b"])
    assert names(computation) == ["p", "b", "a", "c"]
    check_links(module)
    loose = make(computation, "loose", "negate", at["p"])
    edit.move_after(at["p"], loose)
    edit.move_after(at["c"], loose)
    assert names(computation) == ["p", "b", "a", "c", "loose"]
    check_links(module)


def test_an_instruction_cannot_be_attached_twice() -> None:
    """Attaching again would break the list: refused."""
    _, computation, at = diamond()
    with pytest.raises(ValueError, match="a is already in main"):
        edit.append(computation, at["a"])


def test_names_are_made_unique_on_the_way_in() -> None:
    """A second ``a`` becomes ``a.1``; a name ending in a number counts on from its stem."""
    _, computation, at = diamond()
    assert make(computation, "a", "negate", at["p"]).name == "a.1"
    assert make(computation, "a", "negate", at["p"]).name == "a.2"
    assert make(computation, "a.1", "negate", at["p"]).name == "a.3"


def test_replace_uses_moves_users_and_root() -> None:
    """All users and the root follow; the old instruction stays, unused."""
    module, computation, at = diamond()
    new = make(computation, "new", "negate", at["p"])
    edit.replace_uses(at["c"], new)

    assert computation.root is new
    assert at["c"].users == {}
    check_links(module)


def test_replace_many_moves_all_users_and_the_root() -> None:
    """Both operands of one user at once, and the root; control edges and the old ones stay where they are."""
    module, computation, at = diamond()
    d, e = make(computation, "d", "sine", at["p"]), make(computation, "e", "cosine", at["p"])
    f = make(computation, "f", "subtract", d, e)

    edit.replace_many({at["a"]: d, at["b"]: e, at["c"]: f})

    assert at["c"].operands == (d, e)
    assert computation.root is f
    assert not at["a"].users
    check_links(module)


def test_replace_uses_leaves_the_replacement_alone() -> None:
    """Wrapping a value (``new = f(old)``) does not make ``new`` its own operand."""
    module, _, at = diamond()
    wrapped = edit.insert_before(at["b"], Instruction("w", "copy", F32, (at["a"],)))
    edit.replace_uses(at["a"], wrapped)

    assert at["c"].operands == (wrapped, at["b"])
    assert wrapped.operands == (at["a"],)
    assert at["a"].users == {wrapped: 1}
    check_links(module)


def test_operands_are_added_and_left_out() -> None:
    """Whoever stays an operand keeps its place among the users; an operand may be there twice."""
    module, computation, at = diamond()
    other = make(computation, "other", "sine", at["a"])
    edit.add_operands(at["c"], (at["a"], at["p"]))
    assert at["c"].operands == (at["a"], at["b"], at["a"], at["p"])
    assert list(at["a"].users.items()) == [(at["c"], 2), (other, 1)]
    check_links(module)

    edit.remove_operands(at["c"], {at["b"], at["p"]})
    assert at["c"].operands == (at["a"], at["a"])
    assert list(at["a"].users) == [at["c"], other]
    assert not at["b"].users
    check_links(module)


def test_remove_refuses_used_instructions() -> None:
    """Neither an operand nor the root can be taken out."""
    _, _, at = diamond()
    for name in ("a", "c"):
        with pytest.raises(ValueError, match=f"{name} is still used"):
            edit.remove(at[name])


def test_remove_bridges_control_edges() -> None:
    """x before y before z stays x before z when y goes."""
    module, computation, at = diamond()
    middle = edit.insert_before(at["c"], Instruction("y", "negate", F32, (at["p"],)))
    edit.add_control_edge(at["a"], middle)
    edit.add_control_edge(middle, at["b"])
    edit.remove(middle)

    assert at["b"].control_predecessors == (at["a"],)
    assert at["a"].control_successors == (at["b"],)
    assert names(computation) == ["p", "a", "b", "c"]
    check_links(module)


def test_replace_instruction_hands_over_name_and_control_edges() -> None:
    """A new instruction takes the place, the known name and the edges of the one it replaces."""
    module, computation, at = diamond()
    at["b"].offset = 7
    edit.add_control_edge(at["a"], at["b"])
    new = edit.insert_before(at["b"], Instruction("negate", "negate", F32, (at["p"],)))
    edit.replace_instruction(at["b"], new)

    assert names(computation) == ["p", "a", "b", "c"]
    assert computation.by_name["b"] is new
    assert new.control_predecessors == (at["a"],)
    assert new.offset == 7
    check_links(module)


def test_replace_instruction_keeps_parameters() -> None:
    """A parameter is part of the signature: it stays, unused."""
    module, computation, at = diamond()
    new = build.splat(at["a"], F32, 1.0)
    edit.replace_instruction(at["p"], new)

    assert computation.parameters == [at["p"]]
    assert at["p"].users == {}
    check_links(module)


def test_removing_a_parameter_renumbers_the_rest() -> None:
    """Parameter numbers stay dense."""
    module = Module("m")
    computation = edit.add_computation(module, Computation("main"))
    p, q, r = (make(computation, name, "parameter") for name in "pqr")
    computation.root = r
    module.entry = computation
    edit.remove(q)

    assert [entry.parameter_number for entry in computation.parameters] == [0, 1]
    assert computation.parameters == [p, r]


def test_parameters_are_kept_in_number_order() -> None:
    """A text may define parameter 1 before parameter 0."""
    computation = Computation("main")
    one = edit.append(computation, Instruction("b", "parameter", F32, (), {"parameter_number": 1}))
    zero = edit.append(computation, Instruction("a", "parameter", F32, (), {"parameter_number": 0}))

    assert computation.parameters == [zero, one]


def test_calls_and_callers_follow_each_other() -> None:
    """Setting and clearing ``to_apply`` registers and forgets the caller."""
    module, computation, at = diamond()
    callee = edit.add_computation(module, Computation("callee"))
    callee.root = make(callee, "x", "parameter")
    call = make(computation, "call", "call", at["p"])
    edit.set_attribute(call, "to_apply", callee)
    assert callee.callers == {call: 1}
    with pytest.raises(ValueError, match="callee is still used"):
        edit.remove_computation(callee)

    edit.remove(call)
    assert callee.callers == {}
    edit.remove_computation(callee)
    assert list(module) == [computation]


def test_callees_come_first_however_they_were_added() -> None:
    """The order of a text is found from the calls."""
    module, computation, at = diamond()
    inner, outer = Computation("inner"), Computation("outer")
    for entry in (outer, inner):
        edit.add_computation(module, entry)
        entry.root = make(entry, "x", "parameter")
    edit.set_attribute(make(outer, "c", "call", outer.root), "to_apply", inner)
    edit.set_attribute(make(computation, "c", "call", at["p"]), "to_apply", outer)

    assert walk.callees_first(module) == [inner, outer, computation]


def test_clone_is_equal_and_independent() -> None:
    """A clone has the fingerprint of its original until one of them changes."""
    module, _, at = diamond()
    copy = build.clone_module(module)
    assert fingerprint(copy) == fingerprint(module)

    edit.replace_uses(at["b"], at["a"])
    assert fingerprint(copy) != fingerprint(module)
    check_links(copy)
    check_links(module)


def test_fingerprint_ignores_names() -> None:
    """Renaming changes nothing that matters."""
    module, _, at = diamond()
    before = fingerprint(module)
    edit.rename(at["a"], "zebra")

    assert fingerprint(module) == before
    assert at["a"].name == "zebra"


def test_fingerprint_of_an_elided_constant_is_stable() -> None:
    """Reading the same text twice gives equal fingerprints, though nobody knows the values."""
    marks = []
    for _ in range(2):
        module, computation, _at = diamond()
        build.constant(computation, Literal(F32, elided=True))
        marks.append(fingerprint(module))
    assert marks[0] == marks[1]


def test_replacing_many_uses_takes_time_in_proportion() -> None:
    """100,000 users, and a user with 100,000 operands, are replaced without rescans.

    No clock is asserted: quadratic work would take hours and hit the suite's time limit.
    """
    module = Module("m")
    computation = edit.add_computation(module, Computation("main"))
    p, q = make(computation, "p", "parameter"), make(computation, "q", "parameter")
    for index in range(100_000):
        make(computation, f"n{index}", "negate", p)
    computation.root = make(computation, "t", "tuple", *([p] * 100_000))
    module.entry = computation
    edit.replace_uses(p, q)

    assert not p.users
    assert len(q.users) == 100_001


def test_post_order_respects_control_edges() -> None:
    """A control predecessor comes first even where no operand says so."""
    _, computation, at = diamond()
    edit.add_control_edge(at["b"], at["a"])

    order = walk.post_order(computation)
    assert order.index(at["b"]) < order.index(at["a"])
