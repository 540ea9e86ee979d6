"""Lock files: the same plan again, and what has changed since."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import hloopt
from hloopt.errors import FileError, UsageError
from hloopt.kernels import registry
from hloopt.kernels.lock import LockEntry, entry_of, lock_text, read_lock
from hloopt.kernels.selection import KernelSelection, choose, selection
from hloopt.kernels.standalone import signature, standalone
from hloopt.rewrite import Pipeline
from hloopt.verifier import verify_module
from tests.helpers.support import invoke
from tests.kernels.selecting import DEVICE, MADE_UP, TEXT, by_name

NESTED = """HloModule m

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

body {
  p = f32[8,16] parameter(0)
  z = f32[] constant(0)
  e = f32[8,16] exponential(p)
  ROOT r = f32[8] reduce(e, z), dimensions={1}, to_apply=add
}

ENTRY main {
  x = f32[8,16] parameter(0)
  f = f32[8] fusion(x), kind=kInput, calls=body
  ROOT d = f32[8] add(f, f)
}
"""


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels and the device of ``selecting``."""
    monkeypatch.setattr(registry, "_own", lambda: MADE_UP)
    monkeypatch.setattr(selection, "find_gpu", lambda _: DEVICE)


@pytest.mark.parametrize(
    "options",
    [
        ("-O0",),
        ("-O0", "--kernel", "op:*=loop{threads=64}"),
        ("--passes", "kernel-selection{selector=cost}"),
    ],
)
def test_a_lock_file_reproduces_the_plan_byte_for_byte(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """What ``kernels --json`` prints of launches, and the lock file itself, whatever chose them at first."""
    module, lock, again = tmp_path / "m.hlo", tmp_path / "a.toml", tmp_path / "b.toml"
    module.write_text(TEXT)
    first = invoke("kernels", str(module), *options, "--write-lock", str(lock), "--json")
    assert first.exit_code == 0, first.output
    locked = ("--lock", str(lock), "--frozen", "--write-lock", str(again), "--json")
    second = invoke("kernels", str(module), "-O0", *locked)
    assert second.exit_code == 0, second.output
    assert again.read_bytes() == lock.read_bytes()
    assert plan(second.stdout) == plan(first.stdout)
    assert {row["by"] for row in rows(second.stdout)} == {f"lock {lock}"}


def rows(output: str) -> list[dict[str, Any]]:
    (module,) = json.loads(output)["modules"]
    found: list[dict[str, Any]] = module["choices"]
    assert found
    return found


def plan(output: str) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if key not in ("by", "reason")}
        for row in rows(output)
    ]


@pytest.mark.usefixtures("made_up")
def test_a_lock_file_wins_over_rules_and_loses_to_wishes(tmp_path: Path) -> None:
    """Both instructions are locked to the slow kernel; one wish takes one of them back."""
    lock = locked(tmp_path, "slow", {"threads": 8})
    module = hloopt.parse(TEXT)
    Pipeline((KernelSelection(lock=lock, kernel=("sum=quick",)),)).run(module)
    names = ("sum", "minus")
    chosen = {name: choose(by_name(module, name), DEVICE)[1] for name in names}
    assert {name: spec.kernel for name, spec in chosen.items()} == {"sum": "quick", "minus": "slow"}
    assert dict(chosen["minus"].tile) == {"threads": 8}


def locked(folder: Path, kernel: str, tile: dict[str, int], text: str = TEXT) -> str:
    """A lock file for both instructions of ``TEXT``."""
    module = hloopt.parse(text)
    entries = [entry_of(by_name(module, name), kernel, tile) for name in ("sum", "minus")]
    path = folder / "kernels.toml"
    path.write_text(lock_text(entries, DEVICE.name, "gpu"))
    return str(path)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("negate(sum)", "cosine(sum)"),
            "%minus: it has changed since slow was chosen",
        ),
        (("minus", "other"), "%other: it has no entry (and 1 more)"),
        (("1024", "1000"), "%sum: it has changed since slow was chosen (and 1 more)"),
    ],
)
def test_what_has_changed_is_noticed(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    """A note, and the rules decide; with ``frozen`` an error that names the first of them."""
    lock = locked(tmp_path, "slow", {})
    text = TEXT.replace(*change)
    report = Pipeline((KernelSelection(lock=lock),)).run(hloopt.parse(text))
    told = f"{lock} does not suit this module: {message}"
    assert report.notes == [f"kernel-selection: {told}"]
    with pytest.raises(UsageError) as caught:
        Pipeline((KernelSelection(lock=lock, frozen=True),)).run(hloopt.parse(text))
    assert caught.value.message == told


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("kernel", "tile", "message"),
    [
        ("gone", {}, "%sum: no kernel is called 'gone'"),
        ("never", {}, "%sum: never does not fit: 1024 elements are more than loop_unroll, 4"),
        ("slow", {"threads": 0}, "%sum: slow: threads=0; a tile's sizes are 1 or more"),
    ],
)
def test_a_kernel_that_cannot_be_had_is_noticed(
    tmp_path: Path, kernel: str, tile: dict[str, int], message: str
) -> None:
    """With its reason; the rules decide instead, unless the lock is frozen."""
    lock = locked(tmp_path, kernel, tile)
    (note,) = Pipeline((KernelSelection(lock=lock),)).run(hloopt.parse(TEXT)).notes
    assert message in note
    with pytest.raises(UsageError, match="does not suit this module"):
        Pipeline((KernelSelection(lock=lock, frozen=True),)).run(hloopt.parse(TEXT))


@pytest.mark.usefixtures("made_up")
def test_another_target_is_noticed(tmp_path: Path) -> None:
    """A lock file says which device it was made for."""
    lock = Path(locked(tmp_path, "slow", {}))
    lock.write_text(lock.read_text().replace('target = "d1"', 'target = "d2"'))
    with pytest.raises(UsageError, match="it is for d2, not for d1"):
        Pipeline((KernelSelection(lock=str(lock), frozen=True),)).run(hloopt.parse(TEXT))


@pytest.mark.usefixtures("made_up")
def test_frozen_without_a_lock_is_a_usage_error() -> None:
    """There is nothing to be frozen."""
    with pytest.raises(UsageError, match="none is given by lock"):
        Pipeline((KernelSelection(frozen=True),)).run(hloopt.parse(TEXT))


def test_names_of_any_kind_survive() -> None:
    """Quotes, backslashes and control characters are escaped as TOML wants them; tiles are in order."""
    name = 'a"b\\c\n\x01\x7f\u00e9\U0001f600'
    entry = LockEntry(name, name, name, "0", "loop", {"z": 1, "a": -2})
    text = lock_text([entry], "h200", "gpu")
    found = tomllib.loads(text)
    assert found["kernel"] == [
        {
            "module": name, "computation": name, "instruction": name, "signature": "0",
            "kernel": "loop", "tile": {"z": 1, "a": -2},
        }
    ]  # fmt: skip
    assert "tile = { a = -2, z = 1 }" in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version = =", ":1:11: error: Invalid value"),
        ("version = 2", "version is 2; this hloopt reads 1"),
        ("", "'version' is missing; this hloopt reads 1"),
        ("version = 1\nplan = 3", "'plan' means nothing here"),
        ("version = 1\nkernel = 3", "'kernel' is a list of tables: [[kernel]]"),
        ("version = 1\ntarget = 3\ndevice = 'gpu'", "'target' has to be a text"),
        ("version = 1\n[[kernel]]\nkernels = 'x'", "kernel[0]: 'kernels' means nothing here"),
        ("version = 1\n[[kernel]]\nmodule = 'm'", "kernel[0]: 'computation' has to be a text"),
        ("version = 1\n[[kernel]]\ntile = {a = 1.5}", "kernel[0]: 'tile' is a table of integers"),
        ("version = 1\n[[kernel]]\ntile = {a = true}", "kernel[0]: 'tile' is a table of integers"),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path: Path, text: str, message: str) -> None:
    """A usage error with the file's name and the place or the key."""
    path = tmp_path / "kernels.toml"
    path.write_text(text)
    with pytest.raises((UsageError, FileError)) as caught:
        read_lock(str(path))
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_an_entry_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """One of the two would be lost."""
    path = Path(locked(tmp_path, "slow", {}))
    text = path.read_text()
    path.write_text(text + text[text.index("[[kernel]]") :])
    with pytest.raises(UsageError, match=r"kernel\[2\]: sum stands there twice"):
        read_lock(str(path))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Not there, and not UTF-8."""
    with pytest.raises(UsageError, match="No such file"):
        read_lock(str(tmp_path / "gone.toml"))
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"a = '\xff'")
    with pytest.raises(UsageError, match="byte 5 is not UTF-8"):
        read_lock(str(path))


def test_an_instruction_by_itself() -> None:
    """A valid module with a parameter for each operand, those that repeat once, and what is called."""
    module = hloopt.parse(NESTED)
    for name, parameters in (("f", 1), ("d", 1)):
        alone = standalone(by_name(module, name))
        verify_module(alone)
        assert len(alone.entry.parameters) == parameters
        assert alone.entry.root.name == name
    assert module.to_text() == hloopt.parse(NESTED).to_text()


def test_a_signature_knows_structure_and_no_names() -> None:
    """Other names and metadata give the same digest; shapes, attributes and bodies another."""
    digest = signature(by_name(hloopt.parse(NESTED), "f"))
    renamed = NESTED.replace("exponential(p)", 'exponential(p), metadata={op_name="x"}')
    renamed = renamed.replace("e = ", "other = ").replace("reduce(e,", "reduce(other,")
    assert signature(by_name(hloopt.parse(renamed), "f")) == digest
    chosen = NESTED.replace("calls=body", 'calls=body, backend_config={"hloopt":{"kernel":"loop"}}')
    assert signature(by_name(hloopt.parse(chosen), "f")) == digest
    for old, new in (("16]", "17]"), ("exponential", "cosine"), ("add(a, b)", "multiply(a, b)")):
        assert signature(by_name(hloopt.parse(NESTED.replace(old, new)), "f")) != digest
