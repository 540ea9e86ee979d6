"""Writing HLO text: complete, in XLA's layout, and a fixed point of reading and writing."""

from __future__ import annotations

import pytest

from hloopt.ir import Module, build, edit, fingerprint
from hloopt.text.parser import parse_module
from hloopt.text.printer import print_computation, print_instruction, print_module
from hloopt.types import Text, array

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
    assert fingerprint(module) == fingerprint(again)
    assert module.attributes == again.attributes
    assert module.stack_tables.locations == again.stack_tables.locations
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


def test_one_computation() -> None:
    """A computation is printed from its name to its closing brace."""
    module = parse_module(CANONICAL)
    assert print_computation(module.computations["branch"]) == (
        "%branch (p: f32[2,3]) -> f32[2,3] {\n  ROOT %p = f32[2,3]{1,0} parameter(0)\n}"
    )


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
    "text", ["a", "q\"u\\o'te", "line\nbreak\ttab\r", "\x00\x7f\x1b", "grüße 你好"]
)
def test_strings_survive(text: str) -> None:
    """Any string comes back as it was."""
    module = parse_module('e { ROOT p = f32[] custom-call(), custom_call_target="x" }')
    edit.set_attribute(module.entry.root, "custom_call_target", Text(text))
    printed = print_module(module)
    assert printed.isascii()
    assert parse_module(printed).entry.root.attributes["custom_call_target"] == text
