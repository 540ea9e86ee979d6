"""``hloopt run --kernels`` and ``--trace`` on cpu and native: the table, JSON, and traces that are read again."""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from hloopt.errors import FileError
from hloopt.profiles import read_profile
from hloopt.proto import read_proto
from hloopt.report.kernel_times import KernelTimes
from hloopt.report.measured import measured
from tests.helpers.support import invoke
from tests.runtime.test_clocks import LOOPS, RING, programs

DEVICES = pytest.mark.parametrize("device", ["cpu", "native"])
LINED = LOOPS.replace(
    "exponential(y)", 'exponential(y), metadata={op_name="jit(f)/exp" source_file="/home/me/f.py" source_line=7}'
)  # fmt: skip


@pytest.fixture
def module(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    if "native" in request.node.name:
        programs(LOOPS, "native")
    path = tmp_path / "m.hlo"
    path.write_text(LINED)
    return str(path)


@DEVICES
def test_a_row_a_kernel(device: str, module: str) -> None:
    options = ("--device", device, "--kernels", "--repeat", "2", "-O0")
    done = invoke("run", module, *options, columns=80)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("instruction"))
    assert {"measured", "predicted", "share"} <= set(lines[start].split())
    assert max(map(len, lines[start : start + 8])) <= 80
    rows = {line.split()[0]: line for line in lines[start + 1 :] if line}
    assert "f.py:7" in rows["final"]
    assert {"outer", "inner", "inner.dot", "final"} <= rows.keys()
    assert "2 runs with a clock around each" in done.stdout


@DEVICES
def test_json_has_what_the_table_has(device: str, module: str) -> None:
    done = invoke("run", module, "--device", device, "--kernels", "--repeat", "2", "-O0", "--json")
    (row,) = json.loads(done.stdout)["modules"]
    found = row["timed"]
    assert (found["device"], found["runs"], found["participants"]) == (device, 2, 1)
    kernels = {kernel["name"]: kernel for kernel in found["kernels"]}
    assert sum(kernel["share"] for kernel in found["kernels"]) == pytest.approx(1.0)
    outer, dot = kernels["outer"], kernels["inner.dot"]
    assert dot["executions"] == 4 * outer["iterations"] == kernels["inner"]["iterations"]
    assert dot["flops"] == 2 * 8 * 8 * 8
    assert dot["bytes"] == 3 * 8 * 8 * 4
    assert dot["predicted_seconds"] > 0
    assert outer["predicted_seconds"] is None
    assert kernels["final"]["lines"] == ["/home/me/f.py:7"]
    assert [source["name"] for source in found["sources"] if source["name"]] == ["/home/me/f.py:7"]
    assert sum(kernel["seconds"] for kernel in found["kernels"]) <= found["timed_seconds"] * 1.5


@DEVICES
def test_without_the_option_nothing_is_timed(device: str, module: str) -> None:
    done = invoke("run", module, "--device", device, "--repeat", "1", "--json")
    assert "timed" not in json.loads(done.stdout)["modules"][0]


def trace_of(module: str, path: Path, device: str, *options: str) -> dict[str, Any]:
    done = invoke(
        "run", module, "--device", device, "--trace", str(path), "--repeat", "1", *options
    )
    assert done.exit_code == 0, done.output
    raw = path.read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return found


@DEVICES
def test_a_trace_is_what_perfetto_reads(device: str, module: str, tmp_path: Path) -> None:
    """Complete events with numbers for times, nested, with the names that XLA gives their arguments."""
    trace = trace_of(module, tmp_path / "t.json.gz", device, "-O0")
    events = trace["traceEvents"]
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {f"hloopt, {device}", device}
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == len(events) - 2
    around: list[float] = []
    for event in spans:
        assert event["ts"] >= 0.0
        assert event["dur"] >= 0.0
        assert event["cat"]
        end = event["ts"] + event["dur"]
        while around and around[-1] <= event["ts"] + 1e-3:
            around.pop()
        assert not around or end <= around[-1] + 2e-3  # times are written to the nanosecond
        around.append(end)
    (final,) = (event for event in spans if event["name"] == "final")
    wanted = {"hlo_op": "final", "hlo_module": "m", "source": "/home/me/f.py:7"}
    assert wanted.items() <= final["args"].items()
    assert {"program_id", "run_id", "bytes_accessed", "flops", "tf_op"} <= final["args"].keys()
    iterations = [event for event in spans if event["name"] == "iteration"]
    assert {event["args"]["loop"] for event in iterations} == {"outer", "inner"}
    assert not any("hlo_op" in event["args"] for event in iterations)
    module_text = read_proto(b64decode(trace["metadata"]["hloopt"]["module"]), "t").to_text()
    assert "inner.dot" in module_text


@DEVICES
def test_a_trace_is_read_again(device: str, module: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    trace_of(module, path, device)
    shown = invoke("stats", "--profile", str(path)).stdout
    assert "joined to instructions: 100% by name\n" in shown
    given = invoke("stats", module, "--profile", str(path), "--json")
    (row,) = json.loads(given.stdout)["modules"]
    assert row["measured"]["joined"] >= (0.95 if device == "cpu" else 0.8)  # there are copies here
    assert row["measured"]["module_in_trace"]
    explained = invoke("explain", module, "final", "--profile", str(path))
    assert explained.exit_code == 0, explained.output
    assert f"measured in {path}" in explained.stdout


def test_what_has_no_event_is_in_the_sums(tmp_path: Path) -> None:
    """A trace of more executions than events is read with the times of all."""
    from hloopt.backends.numpy.clock import LineClock
    from hloopt.backends.numpy.program import NumpyProgram
    from hloopt.runtime.timing import Timing

    program, given = programs(LOOPS, "cpu")
    clock = LineClock(most_spans=2)
    NumpyProgram(program.module, clock=clock).run(given)
    brief = Timing((1.0,))
    times = KernelTimes(
        "cpu", program.module, clock.steps, [clock.taken()], brief, brief, list(clock.spans()),
        clock.left_out, {}, "host",
    )  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(json.dumps(times.trace()))
    found = measured(program.module, read_profile(path))
    rows = {row.name: row for row in found.measured.rows}
    for row in times.rows:
        assert rows[row["name"]].executions == row["executions"]
        assert rows[row["name"]].median == pytest.approx(row["seconds"])
    assert found.measured.runs == 1


def test_participants_have_a_row_each(tmp_path: Path) -> None:
    path = tmp_path / "ring.hlo"
    path.write_text(RING)
    trace = trace_of(str(path), tmp_path / "t.json", "cpu", "--kernels")
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names == ["hloopt, cpu", "participant 0", "participant 1"]
    times = read_profile(tmp_path / "t.json").programs[0].times
    assert {one.executions for one in times} == {2}
    shown = invoke("run", str(path), "--kernels", "--repeat", "1").stdout
    assert "median of 2 participants" in shown


@pytest.mark.parametrize(
    "damage", [{"module": "?"}, {"left_out": 1, "times": [["x"]]}, {"program": None}]
)
def test_damaged_metadata_is_named(damage: dict[str, Any], module: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    trace = trace_of(module, path, "cpu")
    own = trace["metadata"]["hloopt"]
    own.update(damage)
    if damage == {"program": None}:
        del own["program"]
    path.write_text(json.dumps(trace))
    with pytest.raises(FileError, match="'metadata' of this trace is damaged"):
        read_profile(path)
