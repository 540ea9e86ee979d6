"""Streams of the host in files: infeed_0 of ``--inputs``, outfeed_0 of ``--save``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.support import invoke

FEED = """HloModule feed

step {
  s = (s32[], f32[2], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  t = token[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  fed = ((f32[2], bf16[2]), token[]) infeed(t)
  data = (f32[2], bf16[2]) get-tuple-element(fed), index=0
  y = f32[2] get-tuple-element(data), index=0
  b = bf16[2] get-tuple-element(data), index=1
  t2 = token[] get-tuple-element(fed), index=1
  z = f32[2] add(x, y)
  c = s4[2] convert(z)
  out = (bf16[2], s4[2]) tuple(b, c)
  t3 = token[] outfeed(out, t2)
  up = (f32[2], u32[], token[]) send(z, t3), channel_id=5, is_host_transfer=true
  t4 = token[] send-done(up), channel_id=5, is_host_transfer=true
  ROOT r = (s32[], f32[2], token[]) tuple(n, z, t4)
}

more {
  s = (s32[], f32[2], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  e = s32[] constant(2)
  ROOT c = pred[] compare(i, e), direction=LT
}

ENTRY e {
  x = f32[2] parameter(0)
  zero = s32[] constant(0)
  t = token[] after-all()
  s = (s32[], f32[2], token[]) tuple(zero, x, t)
  w = (s32[], f32[2], token[]) while(s), condition=more, body=step
  ROOT r = f32[2] get-tuple-element(w), index=1
}
"""

ONE = np.array([0x3F80, 0xC000], np.uint16)  # bf16: 1 and -2


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    """The module in a file."""
    path = tmp_path / "feed.hlo"
    path.write_text(FEED)
    return path


def save(path: Path, count: int, **others: Any) -> str:
    """A stream of ``count`` arrays, f32 and bf16 in turns; and other arrays."""
    arrays = [np.full(2, at, np.float32) if at % 2 == 0 else ONE for at in range(count)]
    np.savez(path, **others, **{f"infeed_{at}": array for at, array in enumerate(arrays)})
    return str(path)


def test_streams_come_from_a_file_and_go_to_one(feed: Path, tmp_path: Path) -> None:
    """Types that NumPy lacks as their bits; every form is compared; the file can be given back."""
    given = save(tmp_path / "stream.npz", 4, in_0=np.array([1, 2], np.float32))
    out = tmp_path / "new" / "out.npz"
    words = ("run", str(feed), "--inputs", given, "--repeat", "2", "--save", str(out))
    result = invoke(*words)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert "ok 1 result, and 6 arrays written to the host: equal" in result.stdout
    with np.load(out) as written:
        found = {name: (written[name].dtype.name, written[name].tolist()) for name in written}
    assert found.pop("out_0")
    assert found == {
        "outfeed_0": ("uint16", ONE.tolist()),
        "outfeed_1": ("int8", [1, 2]),
        "send_5_0": ("float32", [1, 2]),
        "outfeed_2": ("uint16", ONE.tolist()),
        "outfeed_3": ("int8", [3, 4]),
        "send_5_1": ("float32", [3, 4]),
    }
    before = out.read_bytes()
    assert invoke(*words).exit_code == 0
    assert out.read_bytes() == before


def test_json_has_what_was_written(feed: Path) -> None:
    """By name, beside the results; without a file the streams are made from the seed."""
    result = invoke("run", str(feed), "--repeat", "1", "--json", "--seed", "3")
    (module,) = json.loads(result.stdout)["modules"]
    rows = {row["name"]: row for row in module["rows"]}
    assert rows["interpreter"]["written"] == []
    for name in ("given, cpu", "O2, cpu"):
        written = rows[name]["written"]
        assert [entry["name"] for entry in written[:3]] == ["outfeed_0", "outfeed_1", "send_5_0"]
        assert all(entry["passed"] for entry in written)


def test_what_nobody_reads_is_told(feed: Path, tmp_path: Path) -> None:
    """A warning; the run goes on."""
    given = save(tmp_path / "long.npz", 6)
    result = invoke("run", str(feed), "--repeat", "1", "--inputs", given)
    assert result.exit_code == 0
    assert result.stderr == f"{given}: warning: never read: infeed_4, infeed_5\n"


def test_a_stream_that_ends_names_the_instruction(feed: Path, tmp_path: Path) -> None:
    """With its place in the text, as exit code 3."""
    given = save(tmp_path / "short.npz", 3)
    result = invoke("run", str(feed), "--inputs", given)
    assert result.exit_code == 3
    assert result.stderr.startswith(
        f"{feed}:10:3: error: fed: infeed_3 is not given: the stream ends after infeed_2\n"
    )
    assert result.stderr.endswith("\n  ^\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--inputs", "no.npz"), "no.npz: no such file or directory"),
        (("--save", "-"), "--save -: the file of results ends in .npz, that of a snapshot in .pb"),
        (("--save", "folder/"), "of a snapshot in .pb"),
        (("--save", "out.txt"), "of a snapshot in .pb"),
    ],
)
def test_files_that_cannot_be_are_usage_errors(feed: Path, words, message: str) -> None:
    """Before anything runs."""
    result = invoke("run", str(feed), *words)
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(message)


def test_a_name_that_is_none_is_refused_with_its_file(feed: Path, tmp_path: Path) -> None:
    """Streams are counted."""
    given = tmp_path / "in.npz"
    np.savez(given, infeed_first=ONE)
    result = invoke("run", str(feed), "--inputs", str(given))
    assert result.exit_code == 2
    assert f"{given}: 'infeed_first' is not the name of an array for the host" in result.stderr


def test_the_forms_of_a_module_are_compared_in_what_they_write(feed: Path, monkeypatch) -> None:
    """A program that writes something more does not go unnoticed, nor what that shifts."""
    from hloopt.backends.numpy.program import NumpyProgram

    plain = NumpyProgram.run_participants
    other = np.full(2, 99, np.float32)

    def run(self, inputs, host):
        host.send(5, other)
        return plain(self, inputs, host)

    monkeypatch.setattr(NumpyProgram, "run_participants", run)
    result = invoke("run", str(feed), "--repeat", "1")
    assert result.exit_code == 1
    assert "given, cpu: send_5_0 against interpreter: 2 of 2 elements" in result.stdout
    assert "given, cpu: send_5_2 against interpreter: is written, too" in result.stdout


def test_expected_results_of_rng_get_a_note(tmp_path: Path) -> None:
    """What XLA drew when it made them nobody can know."""
    path = tmp_path / "noise.hlo"
    path.write_text(
        "HloModule m\nENTRY e { a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        "ROOT noise = f32[4] rng(a, b), distribution=rng_uniform }\n"
    )
    ends = {"in_0": np.array(0, np.float32), "in_1": np.array(1, np.float32)}
    np.savez(tmp_path / "io.npz", **ends, out_0=np.full(4, 0.5, np.float32))
    words = ("run", str(path), "--repeat", "1", "--inputs", str(tmp_path / "io.npz"))
    note = "XLA does not define the numbers of rng (noise)"
    assert note not in invoke(*words).stdout
    result = invoke(*words, "--expect", str(tmp_path / "io.npz"))
    assert result.exit_code == 1
    assert note in result.stdout
