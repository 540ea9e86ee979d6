"""Bodies of fusions, composites, custom calls, results that are operands: broken, and valid neighbours."""

from __future__ import annotations

import pytest

from tests.helpers.neighbours import Pair, check_pair


def fused(body: str, rest: str = "", kind: str = "kLoop") -> str:
    """A fusion in line 9 at most, whose body stands in lines 2 and on."""
    return (
        f"HloModule m\nf {{\n  p = f32[4] parameter(0)\n{body}}}\nENTRY e {{\n"
        f"  p = f32[4] parameter(0)\n{rest}  ROOT r = f32[4] fusion(p), kind={kind}, calls=f\n}}"
    )


def custom(attributes: str, shape: str = "(f32[4], s32[2])") -> str:
    """A custom call in line 5."""
    return (
        f"HloModule m\nENTRY e {{\n  p = f32[4] parameter(0)\n  q = (f32[4], s32[2]) parameter(1)\n"
        f'  ROOT r = {shape} custom-call(p, q), custom_call_target="f", {attributes}\n}}'
    )


def composite(attributes: str) -> str:
    """A composite call in line 8."""
    return (
        "HloModule m\nc {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\nENTRY e {\n"
        "  p = f32[4] parameter(0)\n"
        "  ROOT r = f32[4] call(p), to_apply=c, is_composite=true, "
        f"frontend_attributes={{{attributes}}}\n}}"
    )


ALIASING = "output_to_operand_aliasing={<>}"

PAIRS = [
    Pair(
        "what a fusion computes is used",
        "fusion",
        fused("  u = f32[4] sine(p)\n  ROOT n = f32[4] negate(<>)\n"),
        "u",
        "p",
        4,
        "%u: is in the body of %r and used by nothing",
    ),
    Pair(
        "what a fusion takes is used",
        "fusion",
        "HloModule m\nf {\n  p = f32[4] parameter(0)\n  q = f32[4] parameter(1)\n"
        "  ROOT n = f32[4] add(p, <>)\n}\nENTRY e {\n  p = f32[4] parameter(0)\n"
        "  ROOT r = f32[4] fusion(p, p), kind=kLoop, calls=f\n}",
        "q",
        "p",
        4,
        "%q: is in the body of %r and used by nothing",
    ),
    Pair(
        "what has an effect need not be used",
        "fusion",
        fused(
            '  u = f32[4] custom-call(p), custom_call_target="f"<>\n  ROOT n = f32[4] negate(p)\n'
        ),
        ", custom_call_has_side_effect=true",
        "",
        4,
        "%u: is in the body of %r and used by nothing",
    ),
    Pair(
        "the root of a fusion is its end",
        "fusion",
        fused("<>"),
        "  ROOT n = f32[4] negate(p)\n",
        "  ROOT n = f32[4] negate(p)\n  s = f32[4] sine(n)\n  c = f32[4] custom-call(s), "
        'custom_call_target="f", custom_call_has_side_effect=true\n',
        4,
        "%n: is the root of a fusion's body and used by %s",
    ),
    Pair(
        "a fusion has its own body",
        "fusion",
        "HloModule m\nf {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\n"
        "g {\n  p = f32[4] parameter(0)\n  ROOT n = f32[4] negate(p)\n}\nENTRY e {\n"
        "  p = f32[4] parameter(0)\n  q = f32[4] fusion(p), kind=kLoop, calls=f\n"
        "  ROOT r = f32[4] fusion(q), kind=kLoop, calls=<>\n}",
        "g",
        "f",
        13,
        "%r: calls= is %f, which is the body of %q",
    ),
    Pair(
        "a composite has a name",
        "composite",
        composite("composite.name=<>"),
        '"a.b"',
        '""',
        8,
        "%r: is_composite=true needs composite.name in frontend_attributes=",
    ),
    Pair(
        "the attributes of a composite are not empty",
        "composite",
        composite('composite.name="a.b",composite.attributes=<>'),
        "{}",
        '""',
        8,
        "%r: composite.attributes in frontend_attributes= is empty; none are {}",
    ),
    Pair(
        "the version of a composite is a number",
        "composite",
        composite('composite.name="a.b",composite.version="<>"'),
        "1",
        "-1",
        8,
        "%r: composite.version='-1' in frontend_attributes= is not a version number",
    ),
    Pair(
        "constraints have the operands' shapes",
        "layout-constraint",
        custom("operand_layout_constraints={f32[4]{0}, (f32[<>]{0}, s32[2]{0})}"),
        "4",
        "5",
        5,
        "%r: operand_layout_constraints= gives operand 1 the shape (f32[5]{0}, s32[2]{0}), it has "
        "(f32[4], s32[2])",
    ),
    Pair(
        "each operand has a constraint",
        "layout-constraint",
        custom("operand_layout_constraints={f32[4]{0}<>}"),
        ", (f32[4]{0}, s32[2]{0})",
        "",
        5,
        "%r: operand_layout_constraints= has 1 shapes for 2 operands",
    ),
    Pair(
        "an operand that is a result is there",
        "output-aliasing",
        custom(ALIASING),
        "{0}: (0, {})",
        "{0}: (2, {})",
        5,
        "%r: output_to_operand_aliasing=: there is no operand 2 among 2",
    ),
    Pair(
        "a part of an operand that is a result is there",
        "output-aliasing",
        custom(ALIASING),
        "{1}: (1, {1})",
        "{1}: (1, {2})",
        5,
        "%r: output_to_operand_aliasing=: {2} is not in operand 1 of shape (f32[4], s32[2])",
    ),
    Pair(
        "a result that is an operand is there",
        "output-aliasing",
        custom(ALIASING),
        "{}: (1, {})",
        "{2}: (1, {})",
        5,
        "%r: output_to_operand_aliasing=: {2} is not in the result (f32[4], s32[2])",
    ),
    Pair(
        "a result that is an operand has its shape",
        "output-aliasing",
        custom(ALIASING),
        "{1}: (1, {1})",
        "{1}: (0, {})",
        5,
        "%r: output_to_operand_aliasing=: {1} of the result is s32[2], {} of operand 0 is f32[4]",
    ),
    Pair(
        "a mark lifts the check of shapes",
        "output-aliasing",
        custom("output_to_operand_aliasing={{1}: (0, {})}, frontend_attributes={<>}"),
        'xla_skip_custom_call_alias_shape_check="true"',
        'another="true"',
        5,
        "%r: output_to_operand_aliasing=: {1} of the result is s32[2], {} of operand 0 is f32[4]",
    ),
    Pair(
        "a fusion's result that is an operand has its shape",
        "output-aliasing",
        "HloModule m\nf {\n  p = f32[4] parameter(0)\n  q = f32[] parameter(1)\n"
        "  b = f32[4] broadcast(q), dimensions={}\n  ROOT n = f32[4] add(p, b)\n}\nENTRY e {\n"
        "  p = f32[4] parameter(0)\n  q = f32[] parameter(1)\n"
        "  ROOT r = f32[4] fusion(p, q), kind=kLoop, output_to_operand_aliasing={{}: (<>, {})}, "
        "calls=f\n}",
        "0",
        "1",
        11,
        "%r: output_to_operand_aliasing=: {} of the result is f32[4], {} of operand 1 is f32[]",
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_calls(pair: Pair) -> None:
    """The neighbour passes, the broken text is refused by name and line."""
    check_pair(pair)
