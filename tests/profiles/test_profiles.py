"""Traces in three formats: the same times from each, and clear messages for what is damaged or hostile."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloopt.errors import FileError, UsageError
from hloopt.profiles import read_profile
from hloopt.profiles.spans import Span, SpanRow, TraceProfile, summed
from hloopt.profiles.xplane import is_xspace, read_xplane
from hloopt.proto.messages import new
from tests.profiles.traces import Made, chrome, nsight, xplane

SPANS = [
    Made(0, 900, "while.1"),
    Made(100, 300, "dot.2"),
    Made(500, 300, "dot.2"),
    Made(1000, 50, "copy"),
    Made(2000, 100, "copy", run=2),
    Made(2200, 70, "copy", run=2, thread="tf_XLA/2"),
]
FLAT = [made for made in SPANS if made.op != "while.1"]


def times(profile: TraceProfile) -> dict[str, tuple[int, list[int]]]:
    (program,) = profile.programs
    assert program.name == "jit_f"
    return {
        row.instruction: (row.executions, [round(part * 1e9) for part in row.seconds.values()])
        for row in program.times
    }


EXPECTED = {"while.1": (1, [300]), "dot.2": (2, [600]), "copy": (3, [50, 170])}


def test_an_xplane_has_each_instruction_without_what_ran_inside(tmp_path: Path) -> None:
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(xplane(SPANS, {"jit_f(6)": b"module"}))
    profile = read_profile(path)
    assert profile.form == "xplane"
    assert times(profile) == EXPECTED
    assert (profile.programs[0].label, profile.programs[0].module) == ("jit_f(6)", b"module")


@pytest.mark.parametrize("packed", [False, True])
def test_chromes_json_says_the_same(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(chrome(SPANS)) if packed else chrome(SPANS))
    profile = read_profile(path)
    assert profile.form == "chrome"
    assert times(profile) == EXPECTED


def test_nsights_ranges_say_whose_kernels_are(tmp_path: Path) -> None:
    path = nsight(tmp_path / "t.sqlite", [made._replace(kernel=f"k_{made.op}") for made in FLAT])
    profile = read_profile(path)
    assert profile.form == "nsight"
    assert times(profile) == {name: EXPECTED[name] for name in ("dot.2", "copy")}
    assert profile.programs[0].label == "jit_f(6)"


def test_nsight_without_ranges_has_the_names_of_kernels(tmp_path: Path) -> None:
    path = nsight(tmp_path / "t.sqlite", [Made(0, 10, "", kernel="copy_1")], ranges=False)
    (program,) = read_profile(path).programs
    assert (program.name, program.times[0].kernel, program.times[0].instruction) == (
        "",
        "copy_1",
        "",
    )


def test_a_kernel_in_no_range_belongs_to_no_program(tmp_path: Path) -> None:
    path = nsight(tmp_path / "t.sqlite", FLAT[:1])
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0, 5, 0, 13, 99, 1)")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (9, 5, 0, 13, 1, 1)")
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ('x', 5, 0, 13, 1, 1)")
    labels = {program.label: program.times for program in read_profile(path).programs}
    assert set(labels) == {"jit_f(6)", "(no program)"}
    assert labels["jit_f(6)"][0].executions == 1  # what ends before it begins is no time


def test_the_rows_of_a_device_that_are_instructions_count_alone() -> None:
    """Streams beside ``XLA Ops`` repeat it; modules say which program and run a span is of."""
    modules = SpanRow("XLA Modules", [Span(0, 100, "jit_f(6)"), Span(200, 300, "jit_f(6)")])
    ops = SpanRow("XLA Ops", [Span(10, 20, "dot"), Span(210, 240, "dot"), Span(150, 160, "stray")])
    stream = SpanRow("Stream 13", [Span(10, 20, "dot")])
    first, second = summed("t", "xplane", [[stream, modules, ops]]).programs
    assert (first.label, second.label) == ("jit_f(6)", "(no program)")
    (dot,) = first.times
    assert [round(part * 1e9) for part in dot.seconds.values()] == [10, 30]


def test_begin_and_end_events_are_spans(tmp_path: Path) -> None:
    arguments = {"hlo_op": "dot", "hlo_module": "m"}
    events = [
        {"ph": "B", "pid": 1, "tid": 1, "ts": 1, "name": "dot", "args": arguments},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 3},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 4},
        "no event",
        {"ph": "X", "ts": 1e300, "dur": "x", "args": arguments},
        {"ph": "X", "ts": True, "args": []},
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(events))
    (program,) = read_profile(path).programs
    assert [round(row.total * 1e9) for row in program.times] == [2000]


def test_unknown_fields_of_later_versions_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(xplane(SPANS) + b"\xaa\x3e\x02ab")
    assert times(read_profile(path)) == EXPECTED


def test_what_is_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "t"
    for content, said in {
        b"": "this is no trace",
        b"HloModule m": "this is no trace",
        b"\x0a\x02\x08\x01": "this is no trace",
        b'{"a": 1}': "no list 'traceEvents'",
        b'{"traceEvents": []}': "no event of this trace",
        b"[" * 100_000: "cannot be read",
        b'[{"pid": ' + b"9" * 5000 + b"}]": "cannot be read",
        b'["\xff"]': "cannot be read",
        b"\x1f\x8b\x08": "not a whole .gz file",
        b"SQLite format 3\0" + b"x" * 200: "damaged",
    }.items():
        path.write_bytes(content)
        with pytest.raises(FileError) as caught:
            read_profile(path)
        assert said in caught.value.message, content[:20]
    for missing in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError):
            read_profile(missing)


def test_a_mistake_in_json_has_its_line_and_column(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [\n  {"ph" "X"}]}')
    with pytest.raises(FileError) as caught:
        read_profile(path)
    assert (caught.value.line, caught.value.column) == (2, 9)


def test_a_truncated_xspace_names_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "t.xplane.pb"
    path.write_bytes(xplane(SPANS)[:-30])
    with pytest.raises(FileError, match="this trace is damaged: field 1 needs"):
        read_profile(path)


def test_a_database_without_kernels(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER)")
    with pytest.raises(FileError, match="record with nsys profile -t cuda,nvtx"):
        read_profile(path)


def test_a_view_in_the_place_of_a_table_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"
    endless = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT n FROM c"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER)")
        database.execute(f"CREATE VIEW StringIds AS {endless}")
    with pytest.raises(FileError, match="no event of this trace"):
        read_profile(path)


def test_an_index_cannot_make_reading_long(tmp_path: Path) -> None:
    """A column that SQLite computes from others is computed within the budget."""
    path = tmp_path / "t.sqlite"
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER AS (length("
            "replace(hex(zeroblob(100000)), '0', 'abcdefgh'))))"
        )
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?)", [(0,)] * 10)
    with pytest.raises(FileError):
        read_profile(path)


@given(st.binary(max_size=200))
def test_no_bytes_are_a_traceback(data: bytes) -> None:
    """Behind the beginning of a plane, too."""
    for content in (data, b"\x0a" + data, xplane(SPANS)[: len(data)] + data):
        if is_xspace(content):
            with suppress(FileError):
                read_xplane(content, "t")


def test_an_hlo_proto_is_no_xspace() -> None:
    hlo = new("Hlo")
    module = new("Module")
    module.name = b"/host:m"
    hlo.hlo_module = module.SerializeToString()
    assert not is_xspace(hlo.SerializeToString())
    assert is_xspace(xplane(SPANS))
