"""Reading HLO text: every form, one small module each."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from hloopt.errors import ParseError
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from hloopt.text.parser import parse_module
from hloopt.types import (
    UNBOUNDED,
    AliasEntry,
    ArrayShape,
    BufferShape,
    IotaList,
    Layout,
    PaddingDim,
    SliceRange,
    Text,
    TupleShape,
    Verbatim,
    WindowDim,
    array,
)

SUM = """sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""


def body(*lines: str, before: str = "") -> Module:
    """A module whose entry has the parameters p (f32[2,3]) and i (s32[]) and the given lines."""
    parameters = ["%p = f32[2,3]{1,0} parameter(0)", "%i = s32[] parameter(1)"]
    return parse_module(
        f"HloModule m\n{before}ENTRY %main {{\n" + "\n".join([*parameters, *lines]) + "\n}\n"
    )


def attributes(line: str, before: str = "") -> dict[str, object]:
    return body(f"ROOT %x = {line}", before=before).entry.root.attributes


def shape(text: str) -> object:
    return parse_module(f"ENTRY e {{ ROOT x = {text} parameter(0) }}").entry.root.shape


# ---- modules and computations -----------------------------------------------------------------------


def test_a_whole_module() -> None:
    """Names, shapes, operands, users, attributes, root, entry and offsets are as in the text."""
    text = (
        f"HloModule jit_f, is_scheduled=true\n\n{SUM}\nENTRY %main.1 (x: f32[4]) -> f32[] {{\n"
        "  %x = f32[4]{0} parameter(0)\n  %zero = f32[] constant(0)\n"
        "  ROOT %r = f32[] reduce(%x, %zero), dimensions={0}, to_apply=%sum\n}\n"
    )
    module = parse_module(text, "m.hlo")
    assert module.name == "jit_f"
    assert module.attributes == {"is_scheduled": True}
    assert list(module.computations) == ["sum", "main.1"]
    entry = module.entry
    assert [instruction.name for instruction in entry] == ["x", "zero", "r"]
    root = entry.root
    assert root.opcode == "reduce"
    assert root.operands == (entry.by_name["x"], entry.by_name["zero"])
    assert entry.by_name["x"].users == {root: 1}
    assert root.attributes["to_apply"] is module.computations["sum"]
    assert module.computations["sum"].callers == {root: 1}
    assert text[root.offset :].startswith("r = f32[]")
    assert module.place(root) == "m.hlo:12:9"


def test_the_header_may_be_missing() -> None:
    """A text without a header is a module called after its entry."""
    assert parse_module("main { a = f32[] parameter(0) }").name == "module_main"


def test_the_header_may_run_over_lines() -> None:
    """The header's attributes may stand on several lines, and its name may end in a colon."""
    module = parse_module(
        "HloModule  m:, is_scheduled=true,\n  num_partitions=2,\n  replica_count=3\ne { a = f32[] parameter(0) }"
    )
    assert module.attributes == {"is_scheduled": True, "num_partitions": 2, "replica_count": 3}


def test_header_attributes() -> None:
    """Layouts, aliases, donors and flags become values; the rest keeps its text."""
    module = parse_module(
        "HloModule m, entry_computation_layout={(f32[2]{0}, /*index=1*/(s32[], pred[]))->f32[]}, "
        "input_output_alias={ {0}: (0, {}, may-alias), {1,2}: (3, {4}, must-alias), {}: (1, {}) }, "
        "buffer_donor={ (1, {0}), (2, {}) }, allow_spmd_sharding_propagation_to_parameters={true,false}, "
        'allow_spmd_sharding_propagation_to_output=true, frontend_attributes={a={"b": 1},c="d"}, '
        'origin_recovery_table={\n {"a"}: {"b"}\n}\n\nENTRY e { a = f32[] parameter(0) }'
    )
    given = module.attributes
    assert given["entry_computation_layout"] == (
        (array("f32", (2,)), TupleShape((array("s32"), array("pred")))),
        array("f32"),
    )
    assert given["input_output_alias"] == (
        AliasEntry((0,), 0, (), "may-alias"),
        AliasEntry((1, 2), 3, (4,), "must-alias"),
        AliasEntry((), 1, (), ""),
    )
    assert given["buffer_donor"] == ((1, (0,)), (2, ()))
    assert given["allow_spmd_sharding_propagation_to_parameters"] == (True, False)
    assert given["allow_spmd_sharding_propagation_to_output"] == (True,)
    assert given["frontend_attributes"] == Verbatim('{a={"b": 1},c="d"}')
    assert given["origin_recovery_table"] == Verbatim('{\n {"a"}: {"b"}\n}')


def test_stack_tables() -> None:
    """The four tables are read, and metadata's stack_frame_id leads to the user's line."""
    module = parse_module(
        'HloModule m\n\nFileNames\n1 "a.py"\n2 \'b.py\'\n\nFunctionNames\n1 "f"\n\nFileLocations\n'
        "1 {file_name_id=2function_name_id=1 line=30, end_line=31}\n\nStackFrames\n"
        "1 {file_location_id=1 parent_frame_id=1}\n\n"
        "ENTRY e { a = f32[] parameter(0), metadata={stack_frame_id=1} }"
    )
    tables = module.stack_tables
    assert tables.file_names == {1: "a.py", 2: "b.py"}
    assert tables.locations[1] == {
        "file_name_id": 2,
        "function_name_id": 1,
        "line": 30,
        "end_line": 31,
    }
    assert tables.frame(1) == ("b.py", 30, "f")
    assert module.user_line(module.entry.root.metadata) == "b.py:30"


def test_without_entry_the_last_computation_is_it() -> None:
    """No ENTRY mark: the last computation; a mark wins wherever it stands."""
    assert (
        parse_module("a { x = f32[] parameter(0) } b { x = f32[] parameter(0) }").entry.name == "b"
    )
    marked = parse_module("ENTRY a { x = f32[] parameter(0) } b { x = f32[] parameter(0) }")
    assert marked.entry.name == "a"


def test_without_root_the_last_instruction_is_it() -> None:
    """No ROOT mark: the last instruction; a mark may be anywhere, instructions may follow."""
    assert parse_module("e { a = f32[] parameter(0) b = f32[] negate(a) }").entry.root.name == "b"
    marked = parse_module("e { ROOT a = f32[] parameter(0) b = f32[] negate(a) }")
    assert marked.entry.root.name == "a"


def test_execution_thread() -> None:
    """A computation may name its thread after the closing brace."""
    module = parse_module(
        'a { x = f32[] parameter(0) }, execution_thread="host"\ne { x = f32[] parameter(0) }'
    )
    assert module.computations["a"].execution_thread == "host"
    assert module.entry.execution_thread is None


def test_parameters_in_any_order() -> None:
    """Parameters are ordered by their numbers, not by the text."""
    module = parse_module(
        "e { b = s32[] parameter(1) a = f32[] parameter(0) ROOT t = tuple(a, b) }"
    )
    assert [parameter.name for parameter in module.entry.parameters] == ["a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "e{a=f32[]parameter(0)}".replace("a=", "%a="),
        "e { %a = f32[] parameter(0) ROOT %b = f32[] negate(%a) }",
        "e\n{\n\n%a\n=\nf32[]\nparameter(\n0\n)\nROOT\n%b\n=\nf32[]\nnegate\n(\n%a\n)\n}",
        "/* x */ e /*y*/ { // z\n %a /**/ = /* ( { */ f32[] parameter( /*0*/ 0) // }\n}",
        "e {\r\n\t%a = f32[] parameter(0)\r\n}\r\n",
    ],
)
def test_blanks_and_comments_mean_nothing(text: str) -> None:
    """Instructions may share a line or spread over several; comments stand between any tokens."""
    assert parse_module(text).entry.by_name["a"].shape == array("f32")


def test_percent_signs_are_not_part_of_names() -> None:
    """``%a`` defines what ``a`` refers to, and the other way round."""
    module = parse_module(
        "e { %a = f32[] parameter(0) b = f32[] add(a, %a) ROOT %c = f32[] negate(b) }"
    )
    assert [instruction.name for instruction in module.entry] == ["a", "b", "c"]


def test_odd_names() -> None:
    """Dots and dashes are name characters, opcodes are names, keywords are with a percent sign."""
    module = parse_module(
        "e { a..b- = f32[] parameter(0) add = f32[] negate(a..b-) %true = f32[] negate(add) "
        "%ROOT = f32[] negate(%true) ROOT tuple = (f32[]) tuple(%ROOT) }"
    )
    assert [instruction.name for instruction in module.entry] == [
        "a..b-",
        "add",
        "true",
        "ROOT",
        "tuple",
    ]


# ---- shapes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f32[]", array("f32")),
        ("token[]", array("token")),
        ("f32[2,3]", ArrayShape(array("f32").dtype, (2, 3))),
        ("f32[2,3]{0,1}", ArrayShape(array("f32").dtype, (2, 3), Layout((0, 1)))),
        ("f32[2, 3] {0, 1}", ArrayShape(array("f32").dtype, (2, 3), Layout((0, 1)))),
        ("bf16[0]{0}", array("bf16", (0,))),
        ("()", TupleShape(())),
        (
            "(f32[], (s32[], ()))",
            TupleShape((array("f32"), TupleShape((array("s32"), TupleShape(()))))),
        ),
        ("b(f32[8]{0})", BufferShape(array("f32", (8,)))),
        ("f32[<=8,?]", ArrayShape(array("f32").dtype, (8, UNBOUNDED), None, (True, True))),
        ("f32[2,<=8]", ArrayShape(array("f32").dtype, (2, 8), None, (False, True))),
    ],
)
def test_shapes(text: str, expected: object) -> None:
    """Arrays, tuples, buffers, dynamic dimensions; a layout that is not written is None."""
    assert shape(text) == expected


def test_layout_suffixes_are_normal() -> None:
    """Blanks vanish, defaults vanish, memory space and element size are read out."""
    read = shape("f32[8,128]{1,0 : T(8, 128)( 2,1) L(1)E(4)S(5) SC(0:4,8)M(1)}")
    assert read.layout == Layout((1, 0), "T(8,128)(2,1)E(4)S(5)SC(0:4,8)M(1)", 5, 4)
    assert shape("f32[8]{0:S(0)}") == array("f32", (8,))
    assert str(shape("u32[]{:T(128)}")) == "u32[]{:T(128)}"
    assert (
        str(shape("f32[2]{0:T(2,*)D(C)}".replace("T(2,*)D(C)", "D(C)T(2,*)")))
        == "f32[2]{0:D(C)T(2,*)}"
    )


def test_deep_tuples_are_shapes_too() -> None:
    """Nesting beyond what one token covers is read all the same."""
    text = "(" * 12 + "f32[2]{0}" + ")" * 12
    assert str(shape(text)) == text


@pytest.mark.parametrize("levels", [2, 6, 7, 20, 500])
@pytest.mark.parametrize("end", ["\n", " ", "", "\n// the end\n"])
@pytest.mark.parametrize("key", ["backend_config", "frontend_attributes"])
def test_deep_values_may_come_last(levels: int, end: str, key: str) -> None:
    """Whatever stands between the value's last brace and that of the computation."""
    inner = '{"a":' * (levels - 1) + "1" + "}" * (levels - 1)
    value = f"{{a={inner}}}" if key == "frontend_attributes" else f'{{"a":{inner}}}'
    text = f"e {{\n  ROOT a = f32[] parameter(0), {key}={value}{end}}}\n"
    module = parse_module(text)
    assert value in module.to_text()
    assert parse_module(module.to_text()).to_text() == module.to_text()


def test_missing_shapes_are_inferred() -> None:
    """A shape that follows from operands and attributes may be left out."""
    root = body("ROOT x = add(p, p)").entry.root
    assert root.shape == array("f32", (2, 3))


def test_equal_shapes_are_one_object() -> None:
    """Every instruction with the same shape shares it."""
    module = body("a = f32[2,3]{1,0} negate(p)", "ROOT b = f32[2,3]{1,0} negate(a)")
    assert module.entry.by_name["a"].shape is module.entry.root.shape


# ---- operands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operands",
    [
        "%p, %p",
        "p, p",
        "%p,%p",
        " %p , p ",
        "f32[2,3]{1,0} %p, f32[2,3] p",
        "%p, /*index=1*/%p",
        "%p, // comment )\n %p",
    ],
)
def test_operands_in_every_spelling(operands: str) -> None:
    """With and without percent sign, shape, blanks and comments."""
    root = body(f"ROOT %x = f32[2,3]{{1,0}} add({operands})").entry.root
    assert [operand.name for operand in root.operands] == ["p", "p"]


def test_operands_in_place() -> None:
    """An instruction may stand in the place of an operand; it gets a name nobody else has."""
    module = body(
        "ROOT %x = f32[2,3] add(f32[2,3] broadcast(f32[] constant(2)), negate(f32[2,3] negate(p)))".replace(
            "broadcast(f32[] constant(2))", "negate(p)"
        ),
        "%negate = f32[2,3] negate(p)",
    )
    names = [instruction.name for instruction in module.entry]
    assert names == ["p", "i", "negate.1", "negate.2", "negate.3", "x", "negate"]
    nested = parse_module("e { ROOT a = f32[] add(f32[] constant(2), f32[] parameter(0)) }").entry
    assert [operand.opcode for operand in nested.root.operands] == ["constant", "parameter"]


# ---- attributes -------------------------------------------------------------------------------------


def test_attribute_kinds() -> None:
    """Every kind of value becomes what ``types/attrs.py`` says."""
    assert attributes("f32[3,2]{0,1} transpose(p), dimensions={1, 0}") == {"dimensions": (1, 0)}
    assert attributes("f32[1,3] slice(p), slice={[0:1], [0:3:2]}") == {
        "slice": (SliceRange(0, 1), SliceRange(0, 3, 2))
    }
    assert attributes(
        "f32[4,5] pad(p, c), padding=1_1x-1_2_1".replace("c)", "f32[] constant(0))")
    ) == {"padding": (PaddingDim(1, 1), PaddingDim(-1, 2, 1))}
    assert attributes("pred[2,3] compare(p, p), direction=LT, type=TOTALORDER") == {
        "direction": "LT",
        "type": "TOTALORDER",
    }
    custom = attributes(
        'f32[2] custom-call(p), custom_call_target="a\\"b", custom_call_has_side_effect=true, '
        'operand_layout_constraints={f32[2,3]{1,0}}, literal=s32[2]{0} {1, 2}, backend_config={"a": [1, {}]}'
    )
    assert custom["custom_call_target"] == Text('a"b')
    assert custom["custom_call_has_side_effect"] is True
    assert custom["operand_layout_constraints"] == (array("f32", (2, 3)),)
    assert custom["literal"].array.tolist() == [1, 2]
    assert custom["backend_config"] == Verbatim('{"a": [1, {}]}')


def test_window() -> None:
    """Fields in any order; what is left out is the default."""
    window = attributes(
        "f32[2,3] reduce-window(p, f32[] constant(0)), to_apply=sum, "
        "window={pad=0_1x-1_0 size=1x2 rhs_reversal=0x1 lhs_dilate=1x3}",
        before=SUM,
    )["window"]
    assert window.dims == (WindowDim(1, 1, 0, 1, 1, 1, False), WindowDim(2, 1, -1, 0, 3, 1, True))


def test_convolution_labels() -> None:
    """Labels give each dimension its part; spatial axes are in the order of the digits."""
    labels = parse_module(
        "e { a = f32[1,4,5,2] parameter(0) b = f32[2,2,2,7] parameter(1) "
        "ROOT c = f32[1,3,4,7] convolution(a, b), window={size=2x2}, dim_labels=b10f_01io->b01f }"
    ).entry.root.attributes["dim_labels"]
    assert labels.input_spatial == (2, 1)
    assert (labels.kernel_input_feature, labels.output_feature) == (2, 3)


def test_replica_groups() -> None:
    """Lists, iota lists and meshes."""
    line = "f32[2,3] all-reduce(p), replica_groups={}, to_apply=sum"
    for text, expected in (
        ("{}", ()),
        ("{{0,1},{2}}", ((0, 1), (2,))),
        ("[2,4]<=[4,2]T(1,0)", IotaList((2, 4), (4, 2), (1, 0))),
        ("mesh['a'=2,'b'=2] {'b'}", Verbatim("mesh['a'=2,'b'=2] {'b'}")),
    ):
        assert attributes(line.replace("{}", text), before=SUM)["replica_groups"] == expected


@pytest.mark.parametrize(
    "sharding",
    [
        "{replicated}",
        "{maximal device=0}",
        "{ devices=[2,1]0,1 }",
        "{devices=[2,2]<=[4] last_tile_dim_replicate}",
        "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dims={manual, replicated}}",
        '{replicated metadata={op_name="x"}}',
        "{{replicated}, {manual shard_as 1}}",
        "{}",
        "{mesh['x'=2,'y'=4], [{'x'}, {?}], replicated={'y'}}",
        "{mesh[], replicated}",
    ],
)
def test_sharding_is_checked_and_kept(sharding: str) -> None:
    """Every dialect of sharding keeps its text."""
    assert attributes(f"f32[2,3] negate(p), sharding={sharding}") == {
        "sharding": Verbatim(sharding)
    }


@pytest.mark.parametrize(
    "line",
    [
        'origin={({"a"}, ({"b" {0,1}}, {}))}',
        "origin={[synthetic_call]}",
        "statistics={visualizing_index=1,stat-1=33,stat-2=44.5}",
        "parameter_replication={true,false}",
        "result_accuracy={tolerance={atol=0.1, rtol=0.2, ulps=4}}",
        'frontend_attributes={MUST_FUSE="x",xla.sdy.sharding={"a": {"b": []}}}',
        'backend_config="opaque \\303\\251"',
    ],
)
def test_other_values_keep_their_text(line: str) -> None:
    """Values that hloopt does not interpret are checked by the grammar and printed as they were."""
    name, _, text = line.partition("=")
    assert attributes(f"f32[2,3] exponential(p), {line}") == {name: Verbatim(text)}


def test_metadata_is_decoded_when_asked_for() -> None:
    """Blanks or commas separate the fields; escapes are resolved."""
    root = body(
        'ROOT x = f32[2,3] negate(p), metadata={op_type="neg" op_name="a\\"b\\303\\251", source_line=3 '
        "profile_type={1} stack_frame_id=7}"
    ).entry.root
    assert root.attributes == {}
    assert root.metadata is not None
    assert root.metadata.fields == {
        "op_type": "neg",
        "op_name": 'a"bé',
        "source_line": 3,
        "profile_type": (1,),
        "stack_frame_id": 7,
    }


def test_control_predecessors_are_edges() -> None:
    """They are no attribute; both ends know of the edge."""
    entry = body(
        "%a = f32[2,3] negate(p)", "ROOT %x = f32[2,3] negate(p), control-predecessors={%a, i}"
    ).entry
    assert entry.root.control_predecessors == (entry.by_name["a"], entry.by_name["i"])
    assert entry.by_name["a"].control_successors == (entry.root,)
    assert entry.root.attributes == {}


def test_computations_in_place() -> None:
    """``to_apply={ ... }`` is a computation of its own, and so is a branch in a list."""
    module = body(
        "a = f32[2,3] call(p), to_apply={\n q = f32[2,3] parameter(0)\n ROOT n = f32[2,3] negate(q)\n}",
        "ROOT c = f32[2,3] conditional(i, p, a), branch_computations={\n"
        " { z = f32[2,3] parameter(0) }, { y = f32[2,3] parameter(0) ROOT w = f32[2,3] negate(y) } }",
    )
    called = module.entry.by_name["a"].attributes["to_apply"]
    assert called.root.opcode == "negate"
    assert module.source is not None
    assert module.source.text[called.root.offset :].startswith("n = f32[2,3]")
    branches = module.entry.root.attributes["branch_computations"]
    assert [branch.root.name for branch in branches] == ["z", "w"]
    assert len(module.computations) == 4


def test_attributes_keep_their_order() -> None:
    """Also those that name computations."""
    given = attributes(
        "f32[2] reduce(p, f32[] constant(0)), to_apply=sum, dimensions={1}", before=SUM
    )
    assert list(given) == ["to_apply", "dimensions"]


def test_asynchronous_sugar() -> None:
    """``negate-start`` is an async-start around a computation of one negate."""
    module = body(
        's = ((f32[2,3]), f32[2,3], s32[]) slice-start(p), slice={[0:2], [0:3]}, async_execution_thread="t"',
        "u = ((f32[2,3]), f32[2,3], s32[]) slice-update(s)",
        "ROOT d = f32[2,3] slice-done(u)",
    )
    start = module.entry.by_name["s"]
    assert [start.opcode, module.entry.by_name["u"].opcode, module.entry.root.opcode] == [
        "async-start",
        "async-update",
        "async-done",
    ]
    inner = start.attributes["calls"].root
    assert inner.opcode == "slice"
    assert inner.attributes == {"slice": (SliceRange(0, 2), SliceRange(0, 3))}
    assert start.attributes["async_execution_thread"] == "t"
    assert start.attributes["calls"].execution_thread == "t"


def test_asynchronous_sugar_takes_all_operands_at_once() -> None:
    """Newer XLA lets updates bring operands; here they would be lost, so that is an error."""
    with pytest.raises(ParseError, match="dot takes 2 operands, 's' starts it with 0") as caught:
        body("ROOT s = ((), f32[2,2], s32[]) dot-start()")
    assert caught.value.line > 1


@pytest.mark.parametrize("layout", ["{18446744073709551615,0}", "{0,0}", "{2,0}"])
def test_a_layout_orders_the_dimensions(layout: str) -> None:
    """Each dimension once; XLA reads integers that 63 bits do not hold as negative."""
    with pytest.raises(ParseError, match="not a permutation of the dimensions"):
        body(f"ROOT x = f32[2,3]{layout} negate(p)")


def test_digits_are_ascii() -> None:
    """What Unicode calls a digit as well is none here."""
    with pytest.raises(ParseError):
        parse_module("ENTRY e { x = f32[] parameter(\u0660) }")


# ---- the two ways through the grammar ---------------------------------------------------------------

PROGRAM = (
    SUM
    + """
ENTRY %main {
  %p = f32[2,3]{1,0} parameter(0), sharding={replicated}, metadata={op_name="p"}
  %c = f32[2,3]{1,0} constant({ { 1, -0.0, inf }, { nan, 2.5, 1e-5 } })
  %i = s32[] constant(-3)
  %t = (f32[2,3]{1,0}, s32[], /*index=2*/f32[2,3]{1,0}) tuple(%p, %i, %c)
  %g = f32[2,3]{1,0} get-tuple-element(%t), index=2
  %r = f32[2]{0} reduce(%g, f32[] constant(0)), dimensions={1}, to_apply=%sum, metadata={op_name="r" stack_frame_id=2}, backend_config={"a":{"b":"}"}}
  %n = f32[2]{0} negate(%r), control-predecessors={%g}
  ROOT %x = f32[4]{0} custom-call(%n, %r), custom_call_target="f", api_version=API_VERSION_TYPED_FFI
}
"""
)


def test_lines_and_rules_say_the_same() -> None:
    """An ordinary line (one token) and the same line with comments between its tokens agree."""
    plain = parse_module(PROGRAM)
    spaced = PROGRAM.replace(" = ", " /* = */ = ").replace(" (", " /**/ (")
    assert spaced.count("/* = */") == 11
    other = parse_module(spaced)
    assert fingerprint(plain) == fingerprint(other)
    names = [[i.name for i in computation] for computation in plain]
    assert names == [[i.name for i in computation] for computation in other]
    assert [i.metadata for i in plain.instructions()] == [i.metadata for i in other.instructions()]
    assert next(plain.instructions()).offset == PROGRAM.index("a = f32[] parameter")


def test_negative_zero_without_a_dot_is_reported() -> None:
    """``-0`` in a float literal is -0.0, and the module says so; in an integer it is 0."""
    module = parse_module(
        "e { a = f32[2] constant({-0, -0.0}) b = s32[] constant(-0) c = f32[] constant(-0) }"
    )
    values = module.entry.by_name["a"].literal
    assert values is not None
    assert values.array is not None
    assert np.signbit(values.array).all()
    text = "e { a = f32[2] constant({-0, -0.0}) b = s32[] constant(-0) c = f32[] constant(-0) }"
    assert [offset for offset, _ in module.warnings] == [text.index("-0,"), text.rindex("-0")]


def test_reading_twice_gives_independent_modules() -> None:
    """Shared values are frozen; nothing mutable is shared between two readings."""
    first, second = parse_module(PROGRAM), parse_module(PROGRAM)
    reduce = first.entry.by_name["r"]
    reduce.attributes["dimensions"] = (0,)
    assert second.entry.by_name["r"].attributes["dimensions"] == (1,)
    assert parse_module(PROGRAM).entry.by_name["r"].attributes["dimensions"] == (1,)


def test_elided_literals_are_not_shared() -> None:
    """Two elided constants may differ, so that they are different literals."""
    module = parse_module(
        "e { a = f32[9] constant({...}) b = f32[9] constant({...}) ROOT t = tuple(a, b) }"
    )
    left, right = module.entry.root.operands
    assert left.literal is not None
    assert left.literal.elided
    assert left.literal != right.literal


def test_the_garbage_collector_is_put_back() -> None:
    """It is off while reading, and on again afterwards, also after an error."""
    assert gc.isenabled()
    with pytest.raises(ParseError):
        parse_module("nonsense")
    assert gc.isenabled()
