"""Strings of a protocol buffer that would be something else in a text: refused, renamed or quoted, never printed raw."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import hloopt
from hloopt.errors import ParseError
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from hloopt.proto import read_proto, write_module

# Something in every field that is a text.
TEXT = """HloModule marker, frontend_attributes={key_one="value_one"}

FileNames
1 "file_one.py"

FunctionNames
1 "function_one"

FileLocations
1 {file_name_id=1 function_name_id=1 line=10 end_line=10 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}

%region (qa: f32[], qb: f32[]) -> f32[] {
  %qa = f32[] parameter(0)
  %qb = f32[] parameter(1)
  ROOT %qs = f32[] add(%qa, %qb)
}

%wrapped (wp: f32[4]) -> f32[4] {
  %wp = f32[4] parameter(0)
  ROOT %wn = f32[4] negate(%wp)
}, execution_thread="otherthread"

ENTRY %entrycomp (pp: f32[4], rr: f32[4]) -> (f32[4], pred[4], f32[4], f32[]) {
  %pp = f32[4] parameter(0), sharding={replicated}, metadata={op_name="opname_x" op_type="optype_x" source_file="source_x.py" source_line=3 deduplicated_name="dedup_x" scheduling_name="sched_x"}
  %rr = f32[4] parameter(1), frontend_attributes={fkey="fvalue"}
  %cc = f32[4] custom-call(%pp), custom_call_target="target_name", backend_config="opaque_text", api_version=API_VERSION_STATUS_RETURNING
  %c2 = f32[4] custom-call(%cc), custom_call_target="target_two", backend_config={"a":"jsonvalue"}, custom_call_has_side_effect=true
  %cm = pred[4] compare(%c2, %rr), direction=LT, type=TOTALORDER
  %co = f32[4] convert(%cc), backend_config={"known":"value_text"}
  %zz = f32[] constant(0), origin={{"origin_name" {0,1}}}, statistics={visualizing_index=0,statname=1.5}
  %re = f32[] reduce(%co, %zz), dimensions={0}, to_apply=%region
  %ar = f32[4] all-reduce(%co), channel_id=1, replica_groups={{0}}, to_apply=%region
  %ca = f32[4] call(%ar), to_apply=%wrapped
  ROOT %tt = (f32[4], pred[4], f32[4], f32[]) tuple(%ca, %cm, %rr, %re)
}
"""
HOSTILE = (
    '")\n  %evil = f32[] constant(1)\n ', "a\nb", "\x1b]0;x\x07", '"', "\\", "}, {", ")", "/*", ", a=1",
    "__a", "\0", "\u202e", "1a", "f32", "ROOT ", '{"a":1}', "{maximal device=0}",
)  # fmt: skip


def strings(data: bytes) -> Iterator[tuple[int, int]]:
    """Where a length and as many printable characters stand: every string, and some that are none."""
    for match in re.finditer(rb"[\x20-\x7e]+", data):
        for at in range(max(match.start(), 1), match.end()):
            length = data[at - 1]
            if 0 < length <= match.end() - at:
                yield at, length


def fitted(text: str, length: int) -> bytes:
    """As many bytes of a text, or of it and the letter a."""
    return (text.encode()[:length] + b"a" * length)[:length]


@pytest.fixture(scope="module")
def data() -> bytes:
    return write_module(hloopt.parse(TEXT))


def read(data: bytes) -> Module | None:
    try:
        return read_proto(data, "m.hlo.pb")
    except ParseError:
        return None


@pytest.mark.every_value
@pytest.mark.parametrize("turn", range(3))
@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_read_is_what_is_printed(data: bytes, hostile: str, turn: int) -> None:
    """Each string in turn is hostile: the module, printed and read back, is the same."""
    kept = 0
    for at, length in list(strings(data))[turn::3]:
        module = read(data[:at] + fitted(hostile, length) + data[at + length :])
        if module is None:
            continue
        text = module.to_text()
        again = hloopt.parse(text)
        assert again.to_text() == text
        assert fingerprint(again) == fingerprint(module)
        kept += 1
    assert kept > 13


def changed(old: bytes, new: bytes) -> bytes:
    """The module with one string, which has another of the same length in its place."""
    content = write_module(hloopt.parse(TEXT))
    assert content.count(old) >= 1
    return content.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b"all-reduce", b"add(%a)\n%q=", "opcode: 'add(%a)\\n%q' is not an opcode"),
        (b"custom-call", b"custom call", "opcode: 'custom call' is not an opcode"),
        (b"negate", b"-egate", "opcode: '-egate' is not an opcode"),
        (b"TOTALORDER", b"SOMEORDERS", "type cannot be 'SOMEORDERS'"),
        (b"LT", b"L)", "direction cannot be 'L)'"),
        (b"fkey", b'f"ey', "'f\"ey' cannot precede a value"),
        (b"statname", b"stat=am}", "'stat=am}' cannot precede a value"),
    ],
)
def test_what_has_no_quotes_in_a_text_is_refused(old: bytes, new: bytes, told: str) -> None:
    """With the instruction and the field."""
    with pytest.raises(ParseError, match=re.escape(told)) as found:
        read_proto(changed(old, new[: len(old)]), "m.hlo.pb")
    assert found.value.name == "m.hlo.pb"


def test_two_underscores_in_front_become_one() -> None:
    """XLA keeps such names for itself, and no text with one can be read."""
    module = read_proto(changed(b"region", b"__gion"), "m.hlo.pb")
    assert "_gion" in module.computations
    assert any(
        "'__gion' cannot be the name of a computation" in told for _, told in module.warnings
    )
    hloopt.parse(module.to_text())
