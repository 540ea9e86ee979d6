"""What XLA's parser asks of an instruction: errors in strict readings, left to the verifier otherwise."""

from __future__ import annotations

import pytest

from hloopt.errors import ParseError
from hloopt.text.parser import parse_module

HEAD = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
twice { a = f32[2] parameter(0) ROOT c = (f32[2], f32[2]) tuple(a, a) }
other { a = f32[2] parameter(0) ROOT c = (f32[2], f32[2]) tuple(a, a) }
ENTRY main {
  p = f32[2]{0} parameter(0)
  i = s32[] parameter(1)
  s = ((f32[2]), (f32[2], f32[2]), u32[]) async-start(p), calls=twice
  n = ((f32[2]), f32[2], u32[]) negate-start(p)
"""


def read(line: str, *, strict: bool = True) -> str:
    """The message for the last line of a module, empty where there is none."""
    text = f"{HEAD}  ROOT r = {line}\n}}\n"
    try:
        parse_module(text, "m", strict=strict)
    except ParseError as error:
        return f"{error.line}:{error.column}: {error.message}"
    return ""


BRANCH = "{ a = f32[2] parameter(0) }"
BOTH = f"true_computation={BRANCH}, false_computation={BRANCH}"

ACCEPTED = [
    "((f32[2]), (f32[2], f32[2]), u32[]) async-update(s)",
    "((f32[2]), (f32[2], f32[2]), f32[7]) async-update(s), calls=twice",
    "(f32[2], f32[2]) async-done(s), calls=twice",
    "f32[2] negate-done(((f32[2]), f32[2], u32[]) negate-update(n))",
    "(f32[2], f32[2]) async-done(((f32[2]), (f32[2]), u32[]) async-update(s))",
    "((), (), u32[]) async-start(), calls=twice",
    f"f32[2] conditional(pred[] constant(true), p, p), {BOTH}",
    "f32[2] conditional(i, p), branch_computations={{ a = f32[2] parameter(0) }}",
    "f32[1] all-gather(p), dimensions={0}",
    "f32[2] broadcast(f32[] constant(1))",
    "(f32[1], s32[1]) topk(p), k=1",
    'f32[2]{0:T()} negate(p), metadata={,op_name="x" ,source_line=1}, origin={}',
    'f32[] custom-call(p, i), custom_call_target="x", operand_layout_constraints={f32[2]{0}, s32[]}',
    "f32[2] collective-permute(p), source_target_pairs={{0,1},{1,0}}",
    "f32[2] parameter(2), parameter_replication={true}",
]

REFUSED = [
    (
        "(f32[2], f32[2], u32[]) async-start(p), calls=twice",
        "async-start needs a shape ((operands), result, ...), it has (f32[2], f32[2], u32[])",
    ),
    (
        "((f32[2])) async-start(p), calls=twice",
        "async-start needs a shape ((operands), result, ...), it has ((f32[2]))",
    ),
    (
        "f32[2] async-done(p)",
        "async-done needs an async-start or an async-update, %p is parameter",
    ),
    (
        "f32[2] abs-done(n)",
        "abs-done ends or updates abs, %n started negate",
    ),
    (
        "(f32[2], f32[2]) async-done(s), calls=other",
        "calls= is %other, %s calls %twice",
    ),
    (
        '(f32[2], f32[2]) async-done(s), async_execution_thread="x"',
        "async_execution_thread= is not that of %s, which is 'main'",
    ),
    (
        "((f32[3]), (f32[2], f32[2]), u32[]) async-update(s)",
        "the state has the operands (f32[3]), given are (f32[2])",
    ),
    (
        "((f32[2]), (f32[2], f32[2]), u32[]) async-update(s, i)",
        "the state has the operands (f32[2]), given are (f32[2], s32[])",
    ),
    (
        "((f32[2]), (f32[9]), u32[]) async-update(s)",
        "the state has the result (f32[9]), %twice gives (f32[2], f32[2])",
    ),
    (
        "f32[2] async-update(s)",
        "an update has the shape of what it updates, ((f32[2]), (f32[2], f32[2]), u32[]), not f32[2]",
    ),
    (
        "f32[2] conditional(p, p), branch_computations={{ a = f32[2] parameter(0) }}",
        "the first operand of conditional has shape f32[2]{0}, not a scalar",
    ),
    (
        "f32[2] conditional(pred[] constant(true), p), branch_computations={{ a = f32[2] parameter(0) }}",
        "a pred chooses between true_computation= and false_computation=",
    ),
    (
        f"f32[2] conditional(i, p, p), {BOTH}",
        "a number of type s32 chooses among branch_computations=",
    ),
    (
        "f32[2] broadcast(p)",
        "broadcast needs attribute 'dimensions' for an operand of shape f32[2]{0}",
    ),
    (
        "copy-done((f32[2], f32[2], u32[]) copy-start(p))",
        "'r' needs a shape: that of copy-done cannot be inferred",
    ),
    (
        "f32[2] copy-done(copy-start(p))",
        "'copy-start' needs a shape: that of copy-start cannot be inferred",
    ),
    ("f32[2] all-gather(p), dimensions={}", "dimensions={} of all-gather must name one dimension"),
    ("f32[2] sort(p), dimensions={0,1}, to_apply=sum", "dimensions={0,1} of sort must name one dimension"),
    (
        'f32[] custom-call(p), custom_call_target="x", operand_layout_constraints={f32[3]{0}}',
        "operand_layout_constraints= gives operand 0 the shape f32[3]{0}, it has f32[2]{0}",
    ),
    (
        'f32[] custom-call(p), custom_call_target="x", operand_layout_constraints={}',
        "operand_layout_constraints= has 0 shapes for 1 operands",
    ),
    (
        "f32[2] collective-permute(p), source_target_pairs={{0,1,2}}",
        "source_target_pairs= must be a list of pairs",
    ),
    (
        "f32[2] collective-permute(p), source_target_pairs={{0,1}}, slice_sizes={{1}}",
        "collective-permute with slice_sizes= takes 4 operands, not 1",
    ),
    ("(f32[2]) tuple(p, p)", "a tuple of 2 operands does not have the shape (f32[2])"),
    (
        "f32[] reduce(p, p, p), dimensions={0}, to_apply=sum",
        "reduce takes as many inputs as initial values, 3 operands are odd",
    ),
    (
        "f32[2] parameter(2), parameter_replication={true,false}",
        "parameter_replication= has 2 flags, f32[2] has 1 leaves",
    ),
    (
        "token[] send-done((f32[2], u32[], token[]) send(p, token[] after-all())), channel_id=3",
        "channel_id= is 3, that of %send is None",
    ),
]  # fmt: skip


@pytest.mark.parametrize("line", ACCEPTED)
def test_sound_instructions(line: str) -> None:
    """They are read strictly."""
    assert not read(line)


@pytest.mark.parametrize(("line", "expected"), REFUSED, ids=[line for line, _ in REFUSED])
def test_unsound_instructions(line: str, expected: str) -> None:
    """They are errors where strictly read, at the instruction's name, and left alone otherwise."""
    assert read(line).partition(": ")[2] == expected
    assert not read(line, strict=False)


def test_comments_around_a_module_belong_to_it() -> None:
    """The mistake is what is wrong in the module, not that something stands before and behind it."""
    text = f"// RUN: a tool\n/* more */\n{HEAD}  ROOT r = f32[2] add(p, q)\n}}\n// the end\n"
    with pytest.raises(ParseError) as caught:
        parse_module(text, "m", strict=True)
    assert (caught.value.line, caught.value.column) == (12, 26)
