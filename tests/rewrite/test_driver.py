"""Patterns and the worklist driver, on graphs built by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.rewrite import PassLog, Rule, RuleSet, apply_rules, constant, op, splat, var
from hloopt.rewrite.history import OSCILLATION_LIMIT
from hloopt.rewrite.pattern import match
from hloopt.types import ArrayShape, Layout, Literal, Metadata, Verbatim, array, scalar
from tests.helpers.support import count_calls

A, B, C = var("A"), var("B"), var("C")
F32 = array("f32", (4,))


def rule(name: str, pattern: Any, rewrite: Any, **options: Any) -> Rule:
    return Rule(name, pattern, rewrite, **options)


class Graph:
    """An entry computation with parameters x and y."""

    def __init__(self) -> None:
        self.module = Module("m")
        self.entry = edit.add_computation(self.module, Computation("entry"))
        self.module.entry = self.entry
        self.x, self.y = (
            build.make(
                self.entry, "parameter", (), {"parameter_number": n}, shape=F32, name="xy"[n]
            )
            for n in range(2)
        )

    def make(self, opcode: str, *operands: Instruction, **attributes: Any) -> Instruction:
        made = build.make(self.entry, opcode, operands, attributes, shape=F32)
        self.entry.root = made
        return made

    def splat(self, value: float) -> Instruction:
        single = build.constant(self.entry, scalar("f32", value))
        return self.make("broadcast", single, dimensions=())

    def opcodes(self) -> list[str]:
        return [instruction.opcode for instruction in self.entry]


def bindings(pattern: Any, instruction: Instruction) -> list[dict[str, str]]:
    return [
        {name: bound.name for name, bound in found.items()} for found in match(pattern, instruction)
    ]


def test_a_commutative_pattern_matches_in_either_order() -> None:
    """Both orders are tried, and both are found when both fit."""
    graph = Graph()
    total = graph.make("add", graph.x, graph.y)
    assert bindings(A + B, total) == [{"A": "x", "B": "y"}, {"A": "y", "B": "x"}]
    negated = graph.make("add", graph.make("negate", graph.x), graph.y)
    assert bindings(A + (-B), negated) == [{"A": "y", "B": "x"}]


def test_an_ordered_pattern_matches_in_its_order_only() -> None:
    """subtract is not commutative."""
    graph = Graph()
    difference = graph.make("subtract", graph.make("negate", graph.x), graph.y)
    assert bindings((-A) - B, difference)
    assert not bindings(A - (-B), difference)


def test_a_repeated_variable_is_the_same_instruction() -> None:
    """A - A needs one instruction twice."""
    graph = Graph()
    assert bindings(A - A, graph.make("subtract", graph.x, graph.x)) == [{"A": "x"}]
    assert not bindings(A - A, graph.make("subtract", graph.x, graph.y))


def test_a_splat_is_a_scalar_constant_or_a_broadcast_of_one() -> None:
    """Arrays of constants and broadcasts of other things are not."""
    graph = Graph()
    assert bindings(splat(2, "C"), graph.splat(2))
    assert not bindings(splat(3), graph.splat(2))
    assert bindings(splat(0), graph.splat(-0.0))
    assert not bindings(splat(), graph.make("broadcast", graph.x, dimensions=(0,)))
    many = build.constant(graph.entry, Literal(F32, np.ones(4, np.float32)))
    assert not bindings(splat(1), many)
    assert bindings(constant(), many)


def test_an_elided_constant_has_no_value() -> None:
    """Neither constant() nor splat() matches a constant whose value the text leaves out."""
    graph = Graph()
    elided = build.constant(graph.entry, Literal(F32, elided=True))
    assert not bindings(constant(), elided)
    assert not bindings(splat(), elided)


def test_attributes_must_be_equal() -> None:
    """op(..., direction='EQ') does not match another direction."""
    graph = Graph()
    compare = graph.make("compare", graph.x, graph.y, direction="LT")
    assert bindings(op("compare", A, B, direction="LT"), compare)
    assert not bindings(op("compare", A, B, direction="EQ"), compare)


def test_one_use_counts_operand_slots() -> None:
    """An instruction used twice by one user is used twice; a result is used from outside."""
    graph = Graph()
    once = graph.make("negate", graph.x)
    graph.make("abs", once)
    assert bindings((-A).one_use, once)
    twice = graph.make("negate", graph.x)
    assert not bindings((-A).one_use, twice)
    graph.make("add", twice, twice)
    assert not bindings((-A).one_use, twice)


DOUBLE_NEGATION = rule("-(-A) => A", op("negate", -A), A)
ZERO = rule("A + 0 => A", A + 0, A)


def test_rewrites_until_nothing_matches_and_cleans_up() -> None:
    """A chain collapses in one run; what it leaves unused is gone."""
    graph = Graph()
    last = graph.x
    for _ in range(6):
        last = graph.make("negate", last)
    graph.make("add", graph.make("add", last, graph.splat(0)), graph.y)
    log = PassLog()
    assert apply_rules(graph.entry, RuleSet((DOUBLE_NEGATION, ZERO)), log)
    assert graph.opcodes() == ["parameter", "parameter", "add"]
    assert graph.entry.root.operands == (graph.x, graph.y)
    assert log.hits == {"-(-A) => A": 3, "A + 0 => A": 1}
    assert not apply_rules(graph.entry, RuleSet((DOUBLE_NEGATION, ZERO)), PassLog())


def test_new_instructions_are_looked_at_again() -> None:
    """A rule applies to what another rule built, and to users above it."""
    graph = Graph()
    graph.make("abs", graph.make("subtract", graph.splat(0), graph.make("negate", graph.x)))
    rules = RuleSet((rule("0 - A => -A", op("subtract", splat(0), A), -A), DOUBLE_NEGATION))
    assert apply_rules(graph.entry, rules, PassLog())
    assert graph.opcodes() == ["parameter", "parameter", "abs"]


def test_a_use_that_goes_away_lets_one_use_match() -> None:
    """When the second user is removed, the first is looked at again."""
    graph = Graph()
    shared = graph.make("exponential", graph.x)
    first = graph.make("log", shared)
    dead = graph.make("add", graph.make("abs", shared), graph.splat(0))
    zero = rule("abs(A) + 0 => A", op("abs", op("exponential", A)) + 0, A)
    log_exp = rule("log(exp(A)) => A", op("log", op("exponential", A).one_use), A)
    graph.make("multiply", first, dead)
    assert apply_rules(graph.entry, RuleSet((log_exp, zero)), PassLog())
    assert graph.opcodes() == ["parameter", "parameter", "multiply"]


def test_metadata_name_and_sharding_stay() -> None:
    """What is built carries the metadata, the known name and the sharding of what it replaces."""
    graph = Graph()
    root = graph.make("add", graph.make("negate", graph.x), graph.y)
    edit.rename(root, "my_sum")
    root.offset = 7
    root.metadata = Metadata('{op_name="f"}', lambda text: {})
    edit.set_attribute(root, "sharding", Verbatim("{replicated}"))
    rules = RuleSet((rule("A + (-B) => A - B", A + (-B), A - B),))
    assert apply_rules(graph.entry, rules, PassLog())
    new = graph.entry.root
    assert (new.opcode, new.name, new.offset) == ("subtract", "my_sum", 7)
    assert new.metadata is root.metadata
    assert new.attributes == {"sharding": Verbatim("{replicated}")}


def test_a_sharding_annotation_is_not_lost() -> None:
    """An instruction with a sharding is not replaced by an existing one without."""
    graph = Graph()
    root = graph.make("add", graph.x, graph.splat(0))
    edit.set_attribute(root, "sharding", Verbatim("{replicated}"))
    assert not apply_rules(graph.entry, RuleSet((ZERO,)), PassLog())


def test_control_edges_keep_an_instruction() -> None:
    """Neither end of a control edge is rewritten."""
    graph = Graph()
    inner = graph.make("negate", graph.x)
    outer = graph.make("negate", inner)
    other = graph.make("abs", graph.y)
    edit.add_control_edge(other, outer)
    graph.make("add", outer, other)
    assert not apply_rules(graph.entry, RuleSet((DOUBLE_NEGATION,)), PassLog())
    assert outer.control_predecessors == (other,)


def test_another_layout_is_another_value() -> None:
    """A replacement in another layout is refused; no layout is row-major."""
    graph = Graph()
    column = ArrayShape(F32.dtype, (2, 2), Layout((0, 1)))
    row = ArrayShape(F32.dtype, (2, 2), None)
    x = build.make(graph.entry, "parameter", (), {"parameter_number": 2}, shape=row)
    inner = build.make(graph.entry, "negate", (x,), shape=column)
    graph.entry.root = build.make(graph.entry, "negate", (inner,), shape=column)
    assert not apply_rules(graph.entry, RuleSet((DOUBLE_NEGATION,)), PassLog())
    edit.set_shape(graph.entry.root, array("f32", (2, 2)))
    assert apply_rules(graph.entry, RuleSet((DOUBLE_NEGATION,)), PassLog())


def test_a_dynamic_shape_is_left_alone() -> None:
    """Rules are proven for static shapes."""
    graph = Graph()
    shape = ArrayShape(F32.dtype, (4,), F32.layout, (True,))
    x = build.make(graph.entry, "parameter", (), {"parameter_number": 2}, shape=shape)
    inner = build.make(graph.entry, "negate", (x,), shape=shape)
    graph.entry.root = build.make(graph.entry, "negate", (inner,), shape=shape)
    assert not apply_rules(graph.entry, RuleSet((DOUBLE_NEGATION,)), PassLog())


FLIP = rule("-abs(A) => abs(-A)", -op("abs", A), op("abs", -A))
FLOP = rule("abs(-A) => -abs(A)", op("abs", -A), -op("abs", A))


def test_rules_that_fight_are_stopped_and_named() -> None:
    """An instruction rewritten over and over is left valid, with a note that names exactly those rules."""
    graph = Graph()
    graph.make("negate", graph.make("abs", graph.make("add", graph.x, graph.splat(0))))
    log = PassLog()
    assert apply_rules(graph.entry, RuleSet((ZERO, FLIP, FLOP)), log)
    (note,) = log.notes
    assert f"stopped after {OSCILLATION_LIMIT + 1} rewrites of %negate: " in note
    assert note.endswith("undo each other")
    assert sorted(note.split("'")[1::2]) == ["-abs(A) => abs(-A)", "abs(-A) => -abs(A)"]
    assert len(graph.entry) == 4


def test_three_rules_that_go_round_are_named_in_order() -> None:
    """A cycle of any length; what came before it is not part of it."""
    graph = Graph()
    graph.make("cosine", graph.x)
    turns = [
        rule(f"{old}(A) => {new}(A)", op(old, A), op(new, A))
        for old, new in (("cosine", "sine"), ("sine", "tan"), ("tan", "tanh"), ("tanh", "sine"))
    ]
    log = PassLog()
    assert apply_rules(graph.entry, RuleSet(turns), log)
    (note,) = log.notes
    assert "cosine(A)" not in note
    for part in ("'sine(A) => tan(A)'", "'tan(A) => tanh(A)'", "'tanh(A) => sine(A)'"):
        assert part in note


def test_a_fight_is_told_with_its_line_and_once() -> None:
    """Place in the text and the user's line; of many such instructions the first."""
    text = """HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] abs(x), metadata={source_file="train.py" source_line=12}
  b = f32[4] negate(a), metadata={source_file="train.py" source_line=12}
  c = f32[4] abs(y)
  d = f32[4] negate(c)
  ROOT r = f32[4] add(b, d)
}
"""
    log = PassLog()
    module = hloopt.parse(text, "m.hlo")
    apply_rules(module.entry, RuleSet((FLIP, FLOP)), log)
    (note,) = log.notes
    assert note.startswith("m.hlo:6:3 (train.py:12): stopped after ")
    assert "rewrites of %b (and so with 1 more): " in note
    hloopt.verify(module)


def test_a_rule_that_grows_forever_is_stopped() -> None:
    """A rule that matches inside of what it builds is named too."""
    graph = Graph()
    graph.make("abs", graph.x)
    grow = rule("abs(A) => -abs(A)", op("abs", A), -op("abs", A))
    log = PassLog()
    assert apply_rules(graph.entry, RuleSet((grow,)), log)
    assert log.notes[0].endswith("'abs(A) => -abs(A)' applies to its own result")


def test_a_long_way_is_no_fight() -> None:
    """One instruction may be rewritten any number of times while the computation gets smaller."""
    graph = Graph()
    last = graph.x
    for _ in range(5 * OSCILLATION_LIMIT):
        last = graph.make("abs", last)
    graph.make("negate", last)
    sink = rule("-abs(A) => -A", -op("abs", A), -A)
    log = PassLog()
    assert apply_rules(graph.entry, RuleSet((sink,)), log)
    assert log.hits["-abs(A) => -A"] == 5 * OSCILLATION_LIMIT
    assert not log.notes


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ('frontend_attributes={a="b"}', "its frontend_attributes would be lost"),
        ("sharding={replicated}", "its sharding would be lost"),
    ],
)
def test_what_is_said_of_an_instruction_is_not_lost(attributes: str, reason: str) -> None:
    """An instruction that was there cannot stand for one of which more is said: a near miss."""
    text = f"""HloModule m
ENTRY e {{
  x = f32[4] parameter(0)
  a = f32[4] negate(x)
  b = f32[4] negate(a), {attributes}
  ROOT r = f32[4] abs(b)
}}
"""
    log = PassLog(kinds=frozenset({"missed"}))
    assert not apply_rules(hloopt.parse(text).entry, RuleSet((DOUBLE_NEGATION,)), log)
    (remark,) = log.remarks
    assert (remark.instruction, remark.reason) == ("b", reason)


def test_refusals_are_remarks_once() -> None:
    """A rule that says why not is a near miss; coming by again does not repeat it; no match is none."""
    graph = Graph()
    graph.make("negate", graph.make("abs", graph.make("add", graph.y, graph.splat(0))))

    def refuse(found: Any) -> Any:
        return found.refuse("4 elements, limit 2")

    shy = rule("-abs(A) => A", -op("abs", A), refuse)
    other = rule("-cosine(A) => A", -op("cosine", A), refuse)
    log = PassLog(kinds=frozenset({"missed"}))
    apply_rules(graph.entry, RuleSet((shy, other, ZERO)), log)
    assert [(remark.rule, remark.reason) for remark in log.remarks] == [
        ("-abs(A) => A", "4 elements, limit 2")
    ]


@pytest.mark.parametrize("fuel", [0, 1, 2])
def test_fuel_stops_the_driver(fuel: int) -> None:
    """After so many rewrites nothing more is looked at."""
    graph = Graph()
    last = graph.x
    for _ in range(4):
        last = graph.make("add", last, graph.splat(0))
    log = PassLog(fuel=fuel)
    assert apply_rules(graph.entry, RuleSet((ZERO,)), log) is (fuel > 0)
    assert log.hits["A + 0 => A"] == fuel
    assert sum(entry.opcode == "add" for entry in graph.entry) == 4 - fuel


def test_a_rule_that_changes_the_shape_is_a_bug() -> None:
    """The driver stops instead of making an invalid module."""
    graph = Graph()
    graph.make("abs", graph.x)
    wrong = rule("wrong", op("abs", A), lambda found: build.constant(found.root, scalar("f32", 1)))
    with pytest.raises(AssertionError, match="rule 'wrong' makes"):
        apply_rules(graph.entry, RuleSet((wrong,)), PassLog())


def test_what_a_declined_rule_built_is_removed() -> None:
    """A rule may build first and say no afterwards."""
    graph = Graph()
    graph.make("abs", graph.x)

    def decline(found: Any) -> None:
        found.make("negate", found.A)

    before = graph.opcodes()
    assert not apply_rules(graph.entry, RuleSet((rule("no", op("abs", A), decline),)), PassLog())
    assert graph.opcodes() == before


def test_rule_sets_can_be_cut_down() -> None:
    """Rules are dropped by name and by fast_math; an unknown name is a mistake with a hint."""
    fast = rule("log(exp(A)) => A", op("log", op("exponential", A)), A, fast_math=True)
    rules = RuleSet((ZERO, DOUBLE_NEGATION, fast))
    assert rules.without(("A + 0 => A",), fast_math=True).rules == (DOUBLE_NEGATION, fast)
    assert rules.without((), fast_math=False).rules == (ZERO, DOUBLE_NEGATION)
    with pytest.raises(UsageError, match=r"did you mean 'A \+ 0 => A'\?"):
        rules.without(("A + 0 => B",), fast_math=True)
    assert rules.without(("A+0=>A",), fast_math=False).rules == (DOUBLE_NEGATION,)
    with pytest.raises(ValueError, match="same equation"):
        RuleSet((ZERO, ZERO))


@pytest.mark.parametrize("reverse", [False, True], ids=["chain", "shared"])
def test_work_is_linear(reverse: bool) -> None:
    """Ten times the instructions take ten times the calls: counted, not timed."""

    def calls(count: int) -> int:
        graph = Graph()
        last = graph.x
        parts = []
        for _ in range(count):
            last = graph.make("add", graph.y if reverse else last, graph.splat(0))
            parts.append(last)
        groups = [graph.make("tuple", *parts[i : i + 16]) for i in range(0, count, 16)]
        graph.make("tuple", *groups)
        rules = RuleSet((DOUBLE_NEGATION, ZERO))
        made = count_calls(lambda: apply_rules(graph.entry, rules, PassLog()))
        assert len(graph.entry) == 3 + len(groups)
        return made

    assert calls(3200) < 10 * calls(320) * 1.2
