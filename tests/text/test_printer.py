"""Writing HLO text: complete, in XLA's layout, and a fixed point of reading and writing."""

from __future__ import annotations

import numpy as np
import pytest

from hloopt.ir import Module, build, edit
from hloopt.ir.canonical import fingerprint
from hloopt.text.parser import parse_module
from hloopt.text.printer import (
    PrintOptions,
    print_instruction,
    print_module,
)
from hloopt.types import DTYPES, Literal, Text, Verbatim, array
from tests.helpers.graphs import graph_difference

CANONICAL = """HloModule jit_f, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias), {1}: (1, {2, 0}) }, entry_computation_layout={(f32[2,3]{1,0}, s32[])->(f32[2]{0}, s32[])}, buffer_donor={ (1, {}) }, allow_spmd_sharding_propagation_to_output={true,false}, num_partitions=2, frontend_attributes={a={"b": 1}}

FileNames
1 "a \\"b\\".py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=30 end_line=31 column=4 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a, %b), metadata={op_name="a" stack_frame_id=1}
}, execution_thread="host"

%branch (p: f32[2,3]) -> f32[2,3] {
  ROOT %p = f32[2,3]{1,0} parameter(0)
}

ENTRY %main (p0: f32[2,3], p1: s32[], c.3: (s8[2], (c64[], token[]))) -> (f32[2], s32[]) {
  %p0 = f32[2,3]{1,0:T(8,128)S(5)} parameter(0), sharding={devices=[2,1]<=[2]}, metadata={op_name="x"}
  %p1 = s32[] parameter(1)
  %zero = f32[] constant(-0.0)
  %c.1 = f32[2,3]{1,0} constant({ { 1, -inf, 2.5 }, { nan, -nan, nan(0x7) } })
  %c.2 = pred[2,1]{1,0} constant({ {1}, {0} })
  %c.3 = (s8[2]{0}, (c64[], token[])) parameter(2)
  %t = (f32[2,3]{1,0}, s32[], f32[], f32[2,3]{1,0}, pred[2,1]{1,0}, /*index=5*/f32[]) tuple(%p0, %p1, %zero, %c.1, %c.2, /*index=5*/%zero)
  %s = f32[1,2]{1,0} slice(%p0), slice={[0:1:1], [0:3:2]}
  %q = f32[4,5]{1,0} pad(%p0, %zero), padding=1_1_0x-1_2_1
  %w = f32[2,3]{1,0} reduce-window(%p0, %zero), window={size=1x2 stride=2x1 pad=0_1x-1_0 lhs_dilate=1x3 rhs_reversal=0x1}, to_apply=%sum
  %k = f32[1,3,4,7]{3,2,1,0} convolution(%q, %q), window={size=2x2}, dim_labels=b01f_01io->b01f
  %d = f32[2,3]{1,0} conditional(%p1, %p0, %p0), branch_computations={%branch, %branch}
  %ar = f32[2,3]{1,0} all-reduce(%p0), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), use_global_device_ids=true, to_apply=%sum
  %cp = f32[2,3]{1,0} collective-permute(%p0), source_target_pairs={{0,1},{1,0}}
  %cc = f32[2]{0} custom-call(%p0, %zero), custom_call_target="a\\"b\\'c\\n", operand_layout_constraints={f32[2,3]{1,0}, f32[]}, literal=s32[2]{0} {1, 2}, api_version=API_VERSION_TYPED_FFI, control-predecessors={%ar, %cp}, metadata={op_name="z"}, backend_config={"a": [1, {}]}
  %r = f32[2]{0} reduce(%p0, %zero), dimensions={1}, to_apply=%sum
  ROOT %out = (f32[2]{0}, s32[]) tuple(%r, %p1)
}

"""


def test_canonical_text_is_a_fixed_point() -> None:
    """Text in the printer's own form comes back byte for byte."""
    assert print_module(parse_module(CANONICAL)) == CANONICAL


def test_printing_keeps_the_module() -> None:
    """What was printed reads as an equal module, and prints as the same text."""
    module = parse_module(CANONICAL.replace("%", "").replace("    ", " "))
    text = print_module(module)
    again = parse_module(text)
    assert graph_difference(module, again) == ""
    assert fingerprint(module) == fingerprint(again)
    assert print_module(again) == text


def test_inline_and_nested_forms_become_plain() -> None:
    """Computations in place, operands in place and asynchronous sugar get lines of their own."""
    module = parse_module(
        "ENTRY e { p = f32[2] parameter(0) "
        "a = f32[2] call(p), to_apply={ q = f32[2] parameter(0) ROOT n = f32[2] negate(f32[2] negate(q)) } "
        "s = ((f32[2]), f32[2], s32[]) negate-start(a) ROOT d = f32[2] negate-done(s) }"
    )
    assert print_module(module).splitlines() == [
        "HloModule module_e",
        "",
        "%a.to_apply (q: f32[2]) -> f32[2] {",
        "  %q = f32[2] parameter(0)",
        "  %negate = f32[2] negate(%q)",
        "  ROOT %n = f32[2] negate(%negate)",
        "}",
        "",
        "%s.computation (param_0: f32[2]) -> f32[2] {",
        "  %param_0 = f32[2] parameter(0)",
        "  ROOT %negate = f32[2] negate(%param_0)",
        "}",
        "",
        "ENTRY %e (p: f32[2]) -> f32[2] {",
        "  %p = f32[2] parameter(0)",
        "  %a = f32[2] call(%p), to_apply=%a.to_apply",
        "  %s = ((f32[2]), f32[2], s32[]) async-start(%a), calls=%s.computation",
        "  ROOT %d = f32[2] async-done(%s)",
        "}",
        "",
    ]


def test_computations_come_after_those_they_call() -> None:
    """Whatever the order in the module: definition before use."""
    module = parse_module(CANONICAL)
    late = edit.add_computation(
        module, build.clone_computation(module.computations["branch"], "late")
    )
    conditional = module.entry.by_name["d"]
    edit.set_attribute(conditional, "branch_computations", (late, late))
    text = print_module(module)
    assert text.index("\n%late (") < text.index("ENTRY %main")
    parse_module(text)


def test_one_instruction() -> None:
    """An instruction is one line without indentation."""
    module = parse_module(CANONICAL)
    assert print_instruction(module.entry.root) == "ROOT %out = (f32[2]{0}, s32[]) tuple(%r, %p1)"


def test_a_literal_in_an_attribute_gets_a_layout() -> None:
    """Without one, the brace of the literal would be read as the layout."""
    module = parse_module(
        'e { ROOT a = f32[] custom-call(), custom_call_target="x", literal=s32[2]{0} {1, 2} }'
    )
    assert "literal=s32[2]{0} {1, 2}" in print_module(module)


def test_made_instructions_print() -> None:
    """Instructions made by code print like those that were read."""
    module: Module = parse_module("e { p = f32[2] parameter(0) }")
    made = build.make(
        module.entry,
        "custom-call",
        (module.entry.root,),
        {"custom_call_target": Text("\x01é"), "custom_call_has_side_effect": True},
        shape=array("f32", (2,)),
    )
    assert print_instruction(made) == (
        '%custom-call = f32[2]{0} custom-call(%p), custom_call_target="\\001\\303\\251", '
        "custom_call_has_side_effect=true"
    )
    again = parse_module(print_module(module)).entry.by_name["custom-call"]
    assert again.attributes == made.attributes


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "q\"u\\o'te",
        "line\nbreak\ttab\r",
        "\x00\x7f\x1b",
        "\x011 \x7f0",  # digits after an octal escape
        "grüße 你好 😀",
        bytes(range(256)).decode("utf-8", "surrogateescape"),
        "/* no comment */ // {}[]() %",
        "x" * 100_000,
        "",
    ],
    ids=range(10),
)
def test_strings_survive(text: str) -> None:
    """Any string comes back as it was."""
    module = parse_module('e { ROOT p = f32[] custom-call(), custom_call_target="x" }')
    edit.set_attribute(module.entry.root, "custom_call_target", Text(text))
    printed = print_module(module)
    assert printed.isascii()
    assert parse_module(printed).entry.root.attributes["custom_call_target"] == text


UNKNOWN = """HloModule m, new_header={a=[1,2] "x}"}, other=7

ENTRY %e (x: f32[4]) -> (f32[4], token[]) {
  %x = f32[4] parameter(0), shiny="a\\"b"
  %y = f32[4] negate(%x), ordering={ {1,2}, "}" , deep={{{}}} }, flag=true, number=-3, word=kFast, sized=f32[2]{0}, iota=[2,2]<=[4], metadata={op_name="y" novel="z" level=3}
  ROOT %z = (f32[4], token[]) frobnicate(%x, %y), mode=some, backend_config={"a":1}
}

"""


def test_unknown_attributes_and_opcodes_come_back_as_they_were() -> None:
    """What this version does not know is printed word for word, in the header, too."""
    module = parse_module(UNKNOWN)
    assert print_module(module) == UNKNOWN
    assert module.entry.by_name["y"].attributes["sized"] == Verbatim("f32[2]{0}")
    assert graph_difference(module, parse_module(print_module(module))) == ""


@pytest.mark.parametrize(
    "options",
    [
        PrintOptions(metadata=metadata, layouts=layouts, canonical=canonical)
        for metadata in (True, False)
        for layouts in (True, False)
        for canonical in (True, False)
    ],
    ids=str,
)
@pytest.mark.parametrize("text", [CANONICAL, UNKNOWN], ids=["known", "unknown"])
def test_any_choice_of_options_is_a_fixed_point(text: str, options: PrintOptions) -> None:
    """What is left out stays out, and what is printed is read back as it is."""
    module = parse_module(text)
    printed = print_module(module, options)
    again = parse_module(printed)
    assert print_module(again, options) == printed
    if not options.canonical:
        assert print_module(again) == printed
    shown = options.metadata and not options.canonical
    assert ("metadata=" in printed) is shown
    assert ("StackFrames" in printed) is (shown and text is CANONICAL)
    if options.layouts:
        assert fingerprint(again) == fingerprint(module)
    else:
        shapes = [instruction.shape for instruction in again.instructions()]
        assert not any("{" in str(shape) for shape in shapes)


def test_to_text_takes_the_options() -> None:
    """``Module.to_text`` passes its keywords on."""
    module = parse_module(CANONICAL)
    for options in (PrintOptions(), PrintOptions(False, False), PrintOptions(canonical=True)):
        text = module.to_text(
            metadata=options.metadata, layouts=options.layouts, canonical=options.canonical
        )
        assert text == print_module(module, options)


def test_a_sharding_loses_its_metadata_only() -> None:
    """Without metadata, that in a sharding or a domain goes, and nothing else of it."""
    module = parse_module(
        'e { p = f32[2] parameter(0), sharding={devices=[2]<=[2] metadata={{op_name="}"}, {op_name="b"}}}'
        ' q = (f32[2], f32[2]) tuple(p, p), sharding={{replicated metadata={op_name="a"}}, {maximal device=1}}'
        ' ROOT d = f32[2] domain(p), domain={kind="sharding",'
        ' entry={maximal device=0 metadata={op_name="a"}}, exit={replicated}} }'
    )
    text = module.to_text(metadata=False)
    assert "sharding={devices=[2]<=[2]}\n" in text
    assert "sharding={{replicated},{maximal device=1}}\n" in text
    assert 'domain={kind="sharding",entry={maximal device=0},exit={replicated}}' in text
    parse_module(text, strict=True)


def test_a_value_that_many_share_is_printed_for_each() -> None:
    """Texts are kept by identity: instructions with one attribute value between them print alike."""
    module = parse_module(
        "e { x = f32[3,3] parameter(0) y = f32[3,3] transpose(x), dimensions={1,0} }"
    )
    first = module.entry.root
    for _ in range(3):
        made = build.clone(first, module.entry, (module.entry.root,))
        edit.set_root(module.entry, made)
    lines = [line for line in print_module(module).splitlines() if "transpose" in line]
    assert len(lines) == 4
    assert all(line.endswith("dimensions={1,0}") for line in lines)
    edit.set_attribute(made, "dimensions", (0, 1))
    assert print_instruction(made).endswith("dimensions={0,1}")


@pytest.mark.parametrize(
    "name", ["f32", "bf16", "f8e4m3fn", "f4e2m1fn", "s4", "u64", "c64", "pred"]
)
def test_very_long_lines(name: str) -> None:
    """A constant of 50,000 elements is one line, and comes back bit by bit."""
    row = DTYPES[name]
    values = (np.arange(50_000) % 7).astype(np.int32).astype(row.numpy)
    module = parse_module("e { x = f32[] parameter(0) }")
    literal = Literal(array(name, values.shape), values)
    build.constant(module.entry, literal, "big")
    text = print_module(module)
    assert max(map(len, text.splitlines())) > 100_000
    assert parse_module(text).entry.by_name["big"].literal == literal
