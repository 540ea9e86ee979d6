"""Protocol buffers and snapshots on the command line: in by content, out by name."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import hloopt
from hloopt.cli import outputs
from hloopt.cli.files import InputText
from hloopt.dumps import counts, read_dump
from hloopt.errors import UsageError
from hloopt.proto import is_proto, read_proto, read_snapshot, write_module, write_snapshot
from tests.helpers.support import invoke

TEXT = """HloModule m, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

ENTRY e {
  x = f32[4]{0} parameter(0)
  c = f32[4]{0} constant({1, 2, 3, 4}), metadata={op_name="constant"}
  s = f32[4]{0} add(x, c), metadata={op_name="sum"}
  ROOT r = f32[4]{0} negate(s)
}
"""
ELIDED = TEXT.replace("{1, 2, 3, 4}", "{...}")
CONSTANT = np.array([1, 2, 3, 4], np.float32)
STAGE = "module_0001.m.before_optimizations"


@pytest.fixture
def proto() -> bytes:
    """The module as XLA's HloProto or HloModuleProto."""
    return write_module(hloopt.parse(TEXT, "m.hlo"))


@pytest.fixture
def snapshot() -> bytes:
    """The module with one run."""
    inputs = [np.arange(4, dtype=np.float32)]
    results = [np.array([-1, -3, -5, -7], np.float32)]
    return write_snapshot(hloopt.parse(TEXT, "m.hlo"), inputs, results)


@pytest.mark.parametrize("command", ["check", "hash", "optimize", "run", "stats"])
@pytest.mark.parametrize("form", ["proto", "snapshot"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_every_command_reads_protos(
    command: str, form: str, packed: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """From standard input and from a file of any name: the content decides."""
    content = request.getfixturevalue(form)
    content = gzip.compress(content, mtime=0) if packed else content
    (tmp_path / "m").write_bytes(content)
    once = ("--repeat", "1") if command == "run" else ()
    assert invoke(command, *once, stdin=content).exit_code == 0
    result = invoke(command, *once, str(tmp_path / "m"))
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""


def test_a_proto_is_the_module_of_its_text(proto: bytes) -> None:
    """The digests are equal."""
    digests = {invoke("hash", stdin=content).stdout.split()[0] for content in (TEXT, proto)}
    assert len(digests) == 1


@pytest.mark.parametrize("name", ["m.hlo.pb", "m.pb", "m.hlo.pb.gz"])
def test_a_file_called_pb_gets_a_proto(tmp_path: Path, name: str) -> None:
    """Which reads back as the module that was optimised."""
    path = tmp_path / name
    result = invoke("optimize", "-O0", "-o", str(path), stdin=TEXT)
    assert (result.exit_code, result.stdout) == (0, "")
    content = path.read_bytes()
    content = gzip.decompress(content) if name.endswith(".gz") else content
    assert is_proto(content) in {"module", "hlo"}
    text = invoke("optimize", "-O0", stdin=TEXT).stdout
    assert invoke("optimize", "-O0", str(path)).stdout == text


def test_emit_proto_writes_bytes_to_a_pipe() -> None:
    """``hloopt optimize --emit proto | hloopt run`` works."""
    result = invoke("optimize", "--emit", "proto", stdin=TEXT)
    assert result.exit_code == 0, result.stderr
    assert is_proto(result.stdout_bytes) in {"module", "hlo"}
    assert invoke("run", "--repeat", "1", stdin=result.stdout_bytes).exit_code == 0


def test_a_proto_is_printed_as_asked_for(tmp_path: Path) -> None:
    """--no-metadata and --canonical hold for it too."""
    path = tmp_path / "m.hlo.pb"
    invoke("optimize", "-O0", "-o", str(path), stdin=TEXT)
    assert "op_name" in read_proto(path.read_bytes(), "m").to_text()
    invoke("optimize", "-O0", "--no-metadata", "-o", str(path), stdin=TEXT)
    assert "op_name" not in read_proto(path.read_bytes(), "m").to_text()
    canonical = invoke("optimize", "-O0", "--canonical", stdin=TEXT).stdout
    invoke("optimize", "-O0", "--canonical", "-o", str(path), stdin=TEXT)
    assert invoke("optimize", "-O0", "--canonical", str(path)).stdout == canonical


def test_a_terminal_gets_no_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one stream get several protos."""
    one = InputText("<stdin>", None)
    with pytest.raises(UsageError, match="one protocol buffer cannot hold several modules"):
        outputs.check_output(None, [one, one], form="proto")
    terminal = SimpleNamespace(stdout=SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(outputs, "sys", terminal)
    for output in (None, "-"):
        with pytest.raises(UsageError, match="not printed to a terminal"):
            outputs.check_output(output, [one], form="proto")
        outputs.check_output(output, [one])


def test_json_holds_no_bytes(tmp_path: Path) -> None:
    """A place for them has to be given."""
    result = invoke("optimize", "--emit", "proto", "--json", stdin=TEXT)
    assert result.exit_code == 2
    assert "give -o OUT" in result.stderr
    out = str(tmp_path / "m.pb")
    result = invoke("optimize", "--emit", "proto", "--json", "-o", out, stdin=TEXT)
    assert result.exit_code == 0
    assert "text" not in json.loads(result.stdout)["modules"][0]


def test_files_in_a_directory_are_called_what_they_are(tmp_path: Path, proto: bytes) -> None:
    """No text is called .pb, no proto .txt."""
    (tmp_path / "a.txt").write_text(TEXT)
    (tmp_path / "b.hlo.pb").write_bytes(proto)
    names = [str(tmp_path / "a.txt"), str(tmp_path / "b.hlo.pb")]
    assert invoke("optimize", *names, "-o", f"{tmp_path}/texts/").exit_code == 0
    assert invoke("optimize", *names, "--emit", "proto", "-o", f"{tmp_path}/protos/").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "texts").iterdir()) == ["a.txt", "b.hlo"]
    assert sorted(path.name for path in (tmp_path / "protos").iterdir()) == ["a.hlo.pb", "b.hlo.pb"]


@pytest.mark.parametrize("command", ["check", "hash", "optimize", "run", "stats"])
def test_values_that_a_text_leaves_out_are_taken_from_the_proto(
    command: str, tmp_path: Path, proto: bytes
) -> None:
    """And that is said, with both names."""
    (tmp_path / f"{STAGE}.txt").write_text(ELIDED)
    (tmp_path / f"{STAGE}.hlo.pb").write_bytes(proto)
    once = ("--repeat", "1") if command == "run" else ()
    result = invoke(command, str(tmp_path), "--json", *once)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    rows = found["files" if command == "check" else "modules"]
    assert [Path(row["file"]).name for row in rows] == [f"{STAGE}.hlo.pb"]
    note = f"note: {tmp_path}/{STAGE}.txt leaves out values; {tmp_path}/{STAGE}.hlo.pb is read instead\n"
    assert result.stderr == note


@pytest.mark.parametrize(("text", "name"), [(TEXT, f"{STAGE}.txt"), ("", f"{STAGE}.hlo.pb")])
def test_a_complete_text_is_read_and_an_empty_one_not(
    tmp_path: Path, proto: bytes, text: str, name: str
) -> None:
    """A text has places to tell."""
    (tmp_path / f"{STAGE}.txt").write_text(text)
    (tmp_path / f"{STAGE}.hlo.pb").write_bytes(proto)
    result = invoke("check", str(tmp_path))
    assert (result.stdout, result.stderr) == (f"{tmp_path / name}: ok\n", "")


def test_a_text_that_is_named_is_read_with_a_hint(tmp_path: Path, proto: bytes) -> None:
    """Nobody's choice of a file is overruled."""
    (tmp_path / f"{STAGE}.txt").write_text(ELIDED)
    (tmp_path / f"{STAGE}.hlo.pb").write_bytes(proto)
    result = invoke("run", str(tmp_path / f"{STAGE}.txt"))
    assert result.exit_code == 4
    assert f"leaves out values, {STAGE}.hlo.pb beside it has them" in result.stderr


def rows_of(*words: str, code: int = 0) -> tuple[dict[str, object], list[tuple[str, bool]]]:
    """The module's row of ``run``, and what its results were compared with."""
    result = invoke("run", *words, "--repeat", "1", "--json")
    assert result.exit_code == code, result.stderr
    (module,) = json.loads(result.stdout)["modules"]
    compared = [
        (row["against"], all(entry["passed"] for entry in row["comparisons"]))
        for row in module["rows"]
    ]
    return module, compared


def test_a_snapshot_brings_inputs_and_results(tmp_path: Path, snapshot: bytes) -> None:
    """And the output says so."""
    path = tmp_path / "snap.pb"
    path.write_bytes(snapshot)
    module, compared = rows_of(str(path))
    assert module["inputs"] == "snapshot"
    assert compared == [("snapshot", True), ("interpreter", True), ("interpreter", True), ("snapshot", True)]  # fmt: skip
    shown = invoke("run", str(path), "--repeat", "1").stdout
    assert "inputs: snapshot" in shown
    assert "  snapshot  " in shown


def test_a_result_unlike_the_snapshot_s_is_seen(tmp_path: Path) -> None:
    """Exit 1, with the place of the worst difference."""
    module = hloopt.parse(TEXT, "m.hlo")
    path = tmp_path / "snap.pb"
    results = [np.array([-1, -3, -5, 7], np.float32)]
    path.write_bytes(write_snapshot(module, [np.arange(4, dtype=np.float32)], results))
    result = invoke("run", str(path), "--repeat", "1")
    assert result.exit_code == 1
    assert "out_0 against snapshot: 1 of 4 elements of f32" in result.stdout
    assert "worst at [3]" in result.stdout


def test_options_take_the_place_of_a_snapshot_s_arrays(tmp_path: Path, snapshot: bytes) -> None:
    """Its results belong to its own inputs, and are not compared with those of others."""
    path, arrays = tmp_path / "snap.pb", str(tmp_path / "x.npz")
    path.write_bytes(snapshot)
    ones = np.ones(4, np.float32)
    np.savez(arrays, in_0=ones, out_0=-(ones + CONSTANT))
    module, compared = rows_of(str(path), "--inputs", arrays)
    assert module["inputs"] == arrays
    assert {name for name, _ in compared} == {"", "interpreter"}
    _, compared = rows_of(str(path), "--inputs", arrays, "--expect", arrays)
    assert ("expected", True) in compared
    module, compared = rows_of(str(path), "--seed", "0")
    assert module["inputs"] == "seed 0"
    assert "snapshot" not in {name for name, _ in compared}


def test_a_run_is_saved_as_a_snapshot(tmp_path: Path) -> None:
    """Module, inputs and the interpreter's results, which the next run finds again."""
    source, path = tmp_path / "m.hlo", tmp_path / "snap.pb"
    source.write_text(TEXT)
    rows_of(str(source), "--seed", "5", "--save", str(path))
    content = path.read_bytes()
    assert is_proto(content) == "snapshot"
    found = read_snapshot(content, "snap.pb")
    np.testing.assert_array_equal(found.results[0], -(found.inputs[0] + CONSTANT))
    _, compared = rows_of(str(path))
    assert compared[0] == ("snapshot", True)


@pytest.mark.parametrize("name", ["", "-", "."])
def test_a_snapshot_is_a_file(name: str) -> None:
    """Standard output has the report."""
    result = invoke("run", "--save", name, stdin=TEXT)
    assert result.exit_code == 2
    assert "the file of results ends in .npz, that of a snapshot in .pb" in result.stderr


@pytest.mark.parametrize("command", ["check", "run", "stats"])
def test_a_damaged_proto_is_an_error_of_its_file(
    command: str, tmp_path: Path, proto: bytes
) -> None:
    """Cut off, or something else that is called so."""
    path = tmp_path / "m.hlo.pb"
    for content in (proto[: len(proto) // 2], b"\x0a\xff\xff"):
        path.write_bytes(content)
        result = invoke(command, str(path))
        assert result.exit_code == 3
        assert result.stderr.startswith(f"{path}: error: ")


def test_protos_of_a_directory_are_known_by_their_content(
    tmp_path: Path, proto: bytes, snapshot: bytes
) -> None:
    """What is called .pb may be anything."""
    (tmp_path / "model.pb").write_bytes(proto)
    (tmp_path / "run.pb.gz").write_bytes(gzip.compress(snapshot))
    (tmp_path / "topology.pb").write_bytes(b"\x1a\x03cpu")
    dump = read_dump(tmp_path)
    found = {entry.name: entry.stages[0].files[0].format for entry in dump.modules}
    assert found == {"model.pb": "proto", "run.pb.gz": "snapshot"}
    assert [entry.path.name for entry in dump.others["protos"]] == ["topology.pb"]


def test_counts_of_a_proto_are_those_of_its_module(tmp_path: Path, samples: Path) -> None:
    """Without reading it."""
    module = hloopt.parse((samples / "while_loop.hlo").read_text(), "while_loop.hlo")
    (tmp_path / f"{STAGE}.hlo.pb").write_bytes(write_module(module))
    (tmp_path / "module_0002.m.before_optimizations.hlo.pb").write_bytes(b"\x0a\xff\xff")
    stages = [entry.stages[0] for entry in read_dump(tmp_path).modules]
    assert counts(stages[0]) == (module.instruction_count(), len(module.computations))
    assert counts(stages[1]) is None


@pytest.mark.parametrize("name", ["jit_smooth", "jit_normalize"])
@pytest.mark.parametrize("stage", ["before", "snapshot"])
def test_the_sample_dump_runs(name: str, stage: str, samples: Path) -> None:
    """As XLA wrote it, with its constants, and with the results it had."""
    words = ("--module", name, "--stage", stage)
    module, compared = rows_of(str(samples / "dump"), *words)
    assert module["passed"] is True
    assert ("snapshot", True) in compared or stage == "before"


def test_a_strict_reading_refuses_opcodes_that_xla_does_not_have(tmp_path: Path) -> None:
    """As of texts; otherwise they are kept, with a warning."""
    path = tmp_path / "m.pb"
    path.write_bytes(write_module(hloopt.parse(TEXT.replace("negate(", "frobnicate("), "m")))
    strict = invoke("check", str(path))
    assert strict.exit_code == 3
    assert strict.stderr == f"{path}: error: %r: unknown opcode 'frobnicate'\n"
    kept = invoke("check", "--no-strict", str(path))
    assert kept.exit_code == 0
    assert kept.stderr.startswith(f"{path}: warning: unknown opcode 'frobnicate'")


def test_what_has_no_form_in_a_proto_is_refused_with_its_place(tmp_path: Path) -> None:
    """And nothing is written."""
    source, path = tmp_path / "m.hlo", tmp_path / "m.pb"
    source.write_text(TEXT.replace("add(x, c)", "add(x, c), tomorrows_attribute={1}"))
    result = invoke("optimize", "-O0", str(source), "-o", str(path))
    assert result.exit_code == 4
    assert "m.hlo:6:3: error: add has no field for tomorrows_attribute" in result.stderr
    assert not path.exists()
