"""The verifier: one broken constraint a test, with the message, the instruction and the line."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import VerifyError
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.build import clone_module
from hloopt.report.stats import module_stats
from hloopt.types import (
    AliasEntry,
    ArrayShape,
    IotaList,
    Layout,
    Literal,
    Text,
    Verbatim,
    array,
    dtype,
)
from hloopt.verifier import verify_module, violations

TEXT = """HloModule m, entry_computation_layout={(f32[2,3]{1,0}, s32[])->(f32[3,2]{1,0}, f32[2]{0})}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

ENTRY %main (x: f32[2,3], n: s32[]) -> (f32[3,2], f32[2]) {
  %x = f32[2,3]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %zero = f32[] constant(0)
  %t = f32[3,2]{1,0} transpose(%x), dimensions={1,0}
  %r = f32[2]{0} reduce(%x, %zero), dimensions={1}, to_apply=%sum
  ROOT %out = (f32[3,2]{1,0}, f32[2]{0}) tuple(%t, %r)
}
"""


@pytest.fixture
def module() -> Module:
    return hloopt.parse(TEXT, "m.hlo")


def at(module: Module, name: str) -> Instruction:
    return module.entry.by_name[name]


def messages(module: Module) -> list[str]:
    return [error.message for error in violations(module)]


def test_a_valid_module_has_no_violations(module: Module) -> None:
    assert messages(module) == []
    verify_module(module)


def test_the_error_names_file_line_column_instruction_and_constraint() -> None:
    text = TEXT.replace("dimensions={1,0}", "dimensions={0,0}")
    with pytest.raises(VerifyError) as raised:
        hloopt.verify(hloopt.parse(text, "m.hlo"))
    error = raised.value
    assert (error.name, error.line) == ("m.hlo", 13)
    assert error.message == "%t: transpose: dimensions={0,0} is not a permutation of rank 2"
    shown = str(error).splitlines()
    assert shown[0] == f"m.hlo:13:{error.column}: error: {error.message} [shape]"
    assert shown[1].lstrip().startswith("%t = f32[3,2]{1,0} transpose(%x)")
    assert shown[2].index("^") == error.column - 1


def test_all_violations_are_told_and_the_first_is_raised(module: Module) -> None:
    at(module, "t").attributes["dimensions"] = (0, 0)
    at(module, "r").attributes["dimensions"] = (7,)
    assert len(messages(module)) == 2
    with pytest.raises(VerifyError, match="%t: transpose"):
        verify_module(module)


def test_an_instruction_made_here_is_named_without_a_line(module: Module) -> None:
    module.source = None
    at(module, "t").attributes["dimensions"] = (0, 0)
    (error,) = violations(module)
    assert (error.line, error.column) == (0, 0)
    assert str(error) == (
        "m: error: %t: transpose: dimensions={0,0} is not a permutation of rank 2 [shape]"
    )


# ---- rows of the op table ---------------------------------------------------------------------------


def test_an_unknown_opcode_is_held_to_nothing_but_sound_values(module: Module) -> None:
    instruction = at(module, "t")
    instruction.opcode = "transmogrify"
    assert messages(module) == ["%t: transmogrify: has no attribute dimensions"]
    instruction.attributes["dimensions"] = Verbatim("{1,0}")
    assert messages(module) == []


def test_too_few_and_too_many_operands(module: Module) -> None:
    x, t, r = at(module, "x"), at(module, "t"), at(module, "r")
    edit.set_operands(t, (x, x))
    edit.set_operands(r, (x,))
    assert messages(module) == [
        "%t: transpose: takes 1 operands, not 2",
        "%r: reduce: takes 2 or more operands, not 1",
    ]


@pytest.mark.parametrize(
    ("name", "attribute", "value", "message"),
    [
        ("t", "dimensions", [1, 0], "attribute dimensions=[1, 0] is not a list of integers"),
        ("t", "dimensions", (1, True), "attribute dimensions=(1, True) is not a list of integers"),
        ("t", "colour", 3, "has no attribute colour"),
        ("t", "to_apply", 3, "has no attribute to_apply"),
        ("t", "sharding", "x", "attribute sharding='x' is not text kept as it was"),
        ("n", "parameter_number", 1.0, "attribute parameter_number=1.0 is not an integer"),
        ("r", "to_apply", "sum", "attribute to_apply='sum' is not a computation"),
        ("zero", "literal", 0, "attribute literal=0 is not a literal"),
    ],
)
def test_an_attribute_of_the_wrong_type(
    module: Module, name: str, attribute: str, value: Any, message: str
) -> None:
    instruction = at(module, name)
    if attribute == "to_apply" and name == "r":
        edit.set_attribute(instruction, attribute, None)
    instruction.attributes[attribute] = value
    assert messages(module) == [f"%{name}: {instruction.opcode}: {message}"]


def test_a_missing_attribute(module: Module) -> None:
    edit.set_attribute(at(module, "t"), "dimensions", None)
    edit.set_attribute(at(module, "r"), "to_apply", None)
    assert messages(module) == [
        "%t: transpose: attribute dimensions= is missing",
        "%r: reduce: attribute to_apply= is missing",
    ]


def one(line: str, parameter: str = "f32[4]", extra: str = "") -> Module:
    """A module of one parameter %p and one instruction."""
    text = (
        f"HloModule m\n{extra}\nENTRY %e {{\n  %p = {parameter} parameter(0)\n  ROOT {line}\n}}\n"
    )
    return hloopt.parse(text)


def test_words_are_those_of_the_schema() -> None:
    module = one("%c = pred[4] compare(%p, %p), direction=LT")
    module.entry.root.attributes["direction"] = "BELOW"
    assert messages(module) == [
        "%c: compare: attribute direction=BELOW is not one of EQ, NE, GE, GT, LE, LT"
    ]
    module.entry.root.attributes["direction"] = Text("LT")
    assert messages(module) == ["%c: compare: attribute direction='LT' is not a word"]


def test_groups_may_be_lists_iota_or_mesh_text() -> None:
    module = one("%c = f32[8] all-gather(%p), dimensions={0}, replica_groups={{0,1}}")
    for groups in (((0, 1), (2, 3)), IotaList((4, 2), (8,)), Verbatim("mesh['x'=2] {'x'}"), ()):
        module.entry.root.attributes["replica_groups"] = groups
        assert messages(module) == []
    module.entry.root.attributes["replica_groups"] = ((0, 1, 2),)
    assert "groups of 3 do not make that" in messages(module)[0]
    module.entry.root.attributes["replica_groups"] = (0, 1)
    assert "is not a list of lists of integers" in messages(module)[0]


# ---- shapes -----------------------------------------------------------------------------------------


def test_the_result_shape_is_that_of_inference() -> None:
    assert messages(one("%s = f32[5] negate(%p)")) == [
        "%s: negate: the result shape is f32[5], its operands give f32[4]"
    ]
    assert messages(one("%s = s32[4] negate(%p)")) == [
        "%s: negate: the result shape is s32[4], its operands give f32[4]"
    ]


def test_layouts_and_bounds_may_differ_from_inference() -> None:
    assert messages(one("%s = f32[2,4]{0,1} negate(%p)", "f32[2,4]{1,0}")) == []
    assert messages(one("%s = f32[<=4] negate(%p)")) == []


def test_unbounded_dimensions_agree_with_any_size() -> None:
    assert messages(one("%s = f32[?] negate(%p)")) == []
    assert messages(one("%s = f32[4] negate(%p)", "f32[?]")) == []


def test_a_layout_is_a_permutation(module: Module) -> None:
    t = at(module, "t")
    t.shape = ArrayShape(dtype("f32"), (3, 2), Layout((1, 1)))
    assert messages(module) == [
        "%t: transpose: layout {1,1} of f32[3,2]{1,1} is not a permutation of rank 2"
    ]
    t.shape = ArrayShape(dtype("f32"), (3, 2), Layout((0,)))
    assert messages(module) == [
        "%t: transpose: layout {0} of f32[3,2]{0} is not a permutation of rank 2"
    ]


def test_sizes_are_not_negative(module: Module) -> None:
    at(module, "x").shape = ArrayShape(dtype("f32"), (2, -3))
    assert messages(module)[0] == "%x: parameter: shape f32[2,-3] has a negative size"


def test_there_is_one_dynamic_mark_a_dimension(module: Module) -> None:
    module.attributes.clear()
    at(module, "n").shape = ArrayShape(dtype("s32"), (), None, (True,))
    assert messages(module) == ["%n: parameter: a shape has 1 dynamic marks for rank 0"]


def test_a_literal_has_the_type_and_dimensions_of_its_shape(module: Module) -> None:
    zero = at(module, "zero")
    zero.attributes["literal"] = Literal(array("f32"), np.zeros(1, np.float32))
    assert messages(module) == [
        "%zero: constant: literal of shape f32[] has values of type float32 and dimensions [1]"
    ]
    zero.attributes["literal"] = Literal(array("f32"), np.zeros((), np.int8))
    assert messages(module) == [
        "%zero: constant: literal of shape f32[] has values of type int8 and dimensions []"
    ]
    zero.attributes["literal"] = Literal(array("f32", (2,)), np.zeros(2, np.float32))
    assert messages(module) == [
        "%zero: constant: the literal has shape f32[2]{0}, the result f32[]"
    ]
    zero.attributes["literal"] = Literal(array("f32"))
    assert messages(module) == ["%zero: constant: literal of shape f32[] has no values"]


def test_an_elided_literal_is_valid(module: Module) -> None:
    at(module, "zero").attributes["literal"] = Literal(array("f32"), elided=True)
    assert messages(module) == []


def test_a_tuple_literal_is_checked_in_its_elements() -> None:
    module = one("%c = (f32[], s32[2]) constant((1, {2, 3}))")
    assert messages(module) == []
    literal = module.entry.root.attributes["literal"]
    short = Literal(literal.shape, None, literal.elements[:1])
    module.entry.root.attributes["literal"] = short
    assert messages(module) == ["%c: constant: literal of shape (f32[], s32[2]) has 1 elements"]


# ---- signatures of called computations --------------------------------------------------------------

SUM = (
    "%f {\n  %a = f32[] parameter(0)\n  %b = f32[] parameter(1)\n  ROOT %r = f32[] add(%a, %b)\n}\n"
)
LESS = SUM.replace("f32[] add(%a, %b)", "pred[] compare(%a, %b), direction=LT")


@pytest.mark.parametrize(
    ("line", "called", "message"),
    [
        (
            "%o = f32[4] sort(%p), dimensions={0}, to_apply=%f",
            SUM,
            "%o: sort: to_apply= returns f32[], not pred[]",
        ),
        (
            "%o = f32[4] map(%p), dimensions={0}, to_apply=%f",
            SUM,
            "%o: map: to_apply= takes 2 parameters, 1 are passed",
        ),
        (
            "%o = f32[] call(%p, %p), to_apply=%f",
            SUM,
            "%o: call: to_apply=: parameter 0 has shape f32[], f32[4] is passed",
        ),
        (
            "%o = f32[4] fusion(%p), kind=kLoop, calls=%f",
            SUM,
            "%o: fusion: calls= takes 2 parameters, 1 are passed",
        ),
        (
            "%o = f32[4] while(%p), condition=%f, body=%f",
            LESS,
            "%o: while: condition= takes 2 parameters, 1 are passed",
        ),
    ],
)
def test_a_called_computation_fits_its_caller(line: str, called: str, message: str) -> None:
    assert messages(one(line, extra=called)) == [message]


# ---- the graph --------------------------------------------------------------------------------------


def test_a_root_that_is_not_there(module: Module) -> None:
    module.entry.root = module.computations["sum"].root
    assert "computation %main: has no root among its instructions" in messages(module)
    del module.entry.root
    assert messages(module) == ["computation %main: has no root among its instructions"]


def test_parameters_are_dense(module: Module) -> None:
    at(module, "n").attributes["parameter_number"] = 2
    assert messages(module)[0] == "%n: has parameter number 2, parameters must be dense: 1"


def test_the_parameter_list_is_the_parameters(module: Module) -> None:
    module.entry.parameters.pop()
    assert messages(module)[0] == "computation %main: lists 1 parameters and has 2"


def test_users_are_in_step(module: Module) -> None:
    x, t = at(module, "x"), at(module, "t")
    del x.users[t]
    assert messages(module) == [
        "%t: uses %x 1 times, which lists it as a user 0 times",
        "%x: lists 1 uses, instructions use it 2 times",
    ]
    x.users[t] = 2
    assert messages(module) == [
        "%t: uses %x 1 times, which lists it as a user 2 times",
        "%x: lists 3 uses, instructions use it 2 times",
    ]


def test_a_user_that_is_gone(module: Module) -> None:
    at(module, "n").users[Instruction("ghost", "negate", array("s32"))] = 1
    assert messages(module) == ["%n: lists 1 uses, instructions use it 0 times"]


def test_callers_are_in_step(module: Module) -> None:
    module.computations["sum"].callers.clear()
    assert messages(module) == ["%r: calls %sum 1 times, which lists it as a caller 0 times"]


def test_a_caller_outside_of_the_module(module: Module) -> None:
    ghost = Instruction("ghost", "call", array("f32"))
    module.computations["sum"].callers[ghost] = 1
    assert messages(module) == ["computation %sum: lists a caller %ghost outside of the module"]


def test_control_edges_are_in_step(module: Module) -> None:
    t, r = at(module, "t"), at(module, "r")
    r.control_predecessors = (t,)
    assert messages(module) == ["%r: is not a control successor of %t"]
    r.control_predecessors, t.control_successors = (), (r,)
    assert messages(module) == ["%r: does not list %t as its control predecessor"]


def test_names_lead_to_their_instructions(module: Module) -> None:
    at(module, "t").name = "u"
    assert messages(module) == ["%u: is not found by its name in %main"]


def test_instructions_know_their_computation(module: Module) -> None:
    at(module, "n").computation = module.computations["sum"]
    assert messages(module)[0] == "%n: is a parameter of %main but not in it"
    assert "%n: does not know that it is in computation %main" in messages(module)


def test_the_count_of_instructions_is_right(module: Module) -> None:
    module.entry._count += 1
    assert messages(module) == ["computation %main: counts 7 instructions and 6 names, and has 6"]


def test_an_operand_of_another_computation(module: Module) -> None:
    edit.set_operands(at(module, "t"), (module.computations["sum"].parameters[0],))
    found = messages(module)
    assert "%t: operand %a is not in its computation %main" in found


def test_operands_come_before_their_users(module: Module) -> None:
    edit.move_before(at(module, "x"), at(module, "t"))
    assert messages(module) == ["%t: comes before its operand %x"]


def test_control_predecessors_come_before(module: Module) -> None:
    edit.add_control_edge(at(module, "r"), at(module, "t"))
    assert messages(module) == ["%t: comes before its control predecessor %r"]


def nested(levels: int) -> str:
    """A module whose entry calls a computation that calls another one, and so on."""
    body = "{\n  p = f32[4] parameter(0)\n  ROOT r = f32[4] "
    calls = "".join(
        f"level{level} {body}call(p), to_apply=level{level - 1}\n}}\n" for level in range(1, levels)
    )
    last = f"ENTRY main {body}call(p), to_apply=level{levels - 1}\n}}\n"
    return f"HloModule m\nlevel0 {body}sine(p)\n}}\n{calls}{last}"


def test_calls_are_not_nested_without_end() -> None:
    """64 levels are fine for everything that walks them; 65 and 3000 are one message."""
    deepest = hloopt.parse(nested(64))
    value = np.ones(4, np.float32)
    assert messages(deepest) == []
    sine = np.float32(np.sin(1.0))  # rounded once, from f64
    assert hloopt.evaluate(deepest, [value])[0][0] == sine
    assert hloopt.compile(deepest, exact=True).run([value])[0][0] == sine
    assert module_stats(deepest).cost.transcendentals == 4

    assert messages(hloopt.parse(nested(65))) == [
        "computation %main: has more than 64 levels of calls below it"
    ]
    assert messages(hloopt.parse(nested(3000))) == [
        "computation %level65: has more than 64 levels of calls below it"
    ]


def test_a_cycle_of_operands_is_named(module: Module) -> None:
    t = at(module, "t")
    edit.set_operands(t, (t,))
    assert messages(module)[:2] == [
        "%t: comes before its operand %t",
        "computation %main: has a cycle among or before %t, %out",
    ]


def test_a_cycle_through_a_control_edge_is_named(module: Module) -> None:
    edit.add_control_edge(at(module, "out"), at(module, "t"))
    assert messages(module) == [
        "%t: comes before its control predecessor %out",
        "computation %main: has a cycle among or before %t, %out",
    ]


def test_recursion(module: Module) -> None:
    called = module.computations["sum"]
    inner = Instruction(
        "again", "call", array("f32"), tuple(called.parameters), {"to_apply": called}
    )
    edit.append(called, inner)
    assert messages(module) == ["%again: calls %sum, which calls it again: HLO has no recursion"]


def test_a_called_computation_outside_of_the_module(module: Module) -> None:
    del module.computations["sum"]
    assert messages(module) == ["%r: calls %sum, which is not in the module"]


def test_a_computation_registered_under_another_name(module: Module) -> None:
    module.computations["sum"].name = "total"
    found = messages(module)
    assert found[0] == "computation %total: is not registered in its module under its name"


def test_an_entry_that_is_not_there(module: Module) -> None:
    module.entry = Computation("elsewhere")
    assert messages(module) == ["module m: has no entry computation among its computations"]


# ---- the header -------------------------------------------------------------------------------------


def test_the_entry_layout_fits_the_entry(module: Module) -> None:
    parameters, result = module.attributes["entry_computation_layout"]
    module.attributes["entry_computation_layout"] = (parameters[:1], result)
    assert messages(module) == [
        "module m: entry_computation_layout has 1 parameters, the entry has 2"
    ]
    module.attributes["entry_computation_layout"] = ((parameters[0], array("u8")), parameters[0])
    assert messages(module) == [
        "module m: entry_computation_layout gives parameter 1 the shape u8[], it has s32[]",
        (
            "module m: entry_computation_layout gives the result the shape f32[2,3]{1,0}, it has "
            "(f32[3,2]{1,0}, f32[2]{0})"
        ),
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (AliasEntry((2,), 0), "{2} is not in the result (f32[3,2]{1,0}, f32[2]{0})"),
        (AliasEntry((0, 1), 0), "{0,1} is not in the result (f32[3,2]{1,0}, f32[2]{0})"),
        (AliasEntry((0,), 2), "there is no parameter 2 among 2"),
        (AliasEntry((0,), 0, (0,)), "{0} is not in parameter 0 of shape f32[2,3]{1,0}"),
    ],
)
def test_aliases_name_what_exists(module: Module, entry: AliasEntry, message: str) -> None:
    module.attributes["input_output_alias"] = (AliasEntry((0,), 0, (), "may-alias"),)
    assert messages(module) == []
    module.attributes["input_output_alias"] = (entry,)
    assert messages(module) == [f"module m: input_output_alias: {message}"]


def test_donors_name_what_exists(module: Module) -> None:
    module.attributes["buffer_donor"] = ((0, ()), (1, ()))
    assert messages(module) == []
    module.attributes["buffer_donor"] = ((3, ()),)
    assert messages(module) == ["module m: buffer_donor: there is no parameter 3 among 2"]


# ---- cost -------------------------------------------------------------------------------------------


def seconds(count: int) -> float:
    lines = "\n".join(
        f"  %i{index} = f32[4]{{0}} add(%i{index - 1}, %i{index - 1})" for index in range(1, count)
    )
    text = f"HloModule m\nENTRY %e {{\n  %i0 = f32[4]{{0}} parameter(0)\n{lines}\n}}\n"
    module = hloopt.parse(text)
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        verify_module(module)
        best = min(best, time.process_time() - start)
    return best


def test_the_cost_is_linear_in_the_instructions() -> None:
    """Ten times the instructions take about ten times as long; a quadratic check takes a hundred."""
    assert seconds(20_000) < 30 * seconds(2_000)


CALLER = """HloModule m

inner {
  p = f32[4] parameter(0)
  ROOT r = f32[4] negate(p)
}

other {
  p = f32[4] parameter(0)
  ROOT r = f32[4] sine(p)
}

ENTRY main {
  x = f32[4] parameter(0)
  a = f32[4] call(x), to_apply=inner
  ROOT b = f32[4] call(a), to_apply=other
}
"""


def test_what_a_copy_has_unchanged_is_not_verified_again() -> None:
    """But what has changed is, and what calls it."""
    module = hloopt.parse(CALLER)
    wrong = ArrayShape(module.entry.root.array.dtype, (5,))
    same = clone_module(module)
    edit.set_shape(module.computations["other"].root, wrong)
    edit.set_shape(same.computations["other"].root, wrong)
    verify_module(same, like=module)
    with pytest.raises(VerifyError, match="sine: the result shape is"):
        verify_module(same)
    edit.set_shape(same.computations["inner"].root, wrong)
    with pytest.raises(VerifyError, match="negate: the result shape is"):
        verify_module(same, like=module)


def test_the_caller_of_what_has_changed_is_verified() -> None:
    """Its result has another shape than the call."""
    module = hloopt.parse(CALLER)
    copy = clone_module(module)
    inner = copy.computations["inner"]
    wider = ArrayShape(copy.entry.root.array.dtype, (5,))
    for one in inner:
        edit.set_shape(one, wider)
    with pytest.raises(VerifyError, match="call") as caught:
        verify_module(copy, like=module)
    assert caught.value.line == 15
