"""``hloopt run --device native``: kernels of one's own choice, locks, and what the device does not take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hloopt.backends.native import check_native
from hloopt.cli.main import cli
from hloopt.errors import DeviceError

TEXT = """HloModule m
ENTRY e {
  x = f32[8,16] parameter(0)
  y = f32[16,8] parameter(1)
  p = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[8,8] tanh(p)
}
"""


@pytest.fixture
def module(tmp_path: Path) -> str:
    """A file with a product in it; skips where nothing can be compiled."""
    try:
        check_native()
    except DeviceError as error:
        pytest.skip(str(error))
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return str(path)


def invoke(*arguments: str) -> Result:
    """What the command answers."""
    return CliRunner().invoke(cli, ["run", "--device", "native", *arguments])


def test_runs(module: str) -> None:
    """Both forms are compared with the interpreter and timed."""
    result = invoke(module, "--repeat", "2", "--threads", "2", "--json")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["modules"]
    assert row["passed"]
    assert "O2{target=host}, native" in result.stdout
    named = invoke(module, "--repeat", "1", "--target", "h200")
    assert named.exit_code == 0, named.output
    assert "O2, native" in named.stdout


def test_kernels_and_locks(module: str, tmp_path: Path) -> None:
    """A wish is granted and written to a lock file, which is for this device."""
    lock = str(tmp_path / "k.toml")
    words = ["kernels", module, "--target", "host", "--kernel", "op:dot=native-call"]
    result = CliRunner().invoke(cli, [*words, "--write-lock", lock])
    assert result.exit_code == 0, result.output
    text = Path(lock).read_text()
    assert 'device = "native"' in text
    assert 'kernel = "native-call"' in text
    assert invoke(module, "--lock", lock).exit_code == 0
    other = CliRunner().invoke(cli, ["run", "--device", "emulator", module, "--lock", lock])
    assert other.exit_code == 2
    assert "kernels of the native" in other.stderr


def test_tiles(module: str) -> None:
    """A tile may be given where the kernel has one."""
    assert invoke(module, "--kernel", "op:tanh=native-loop{elements=16}").exit_code == 0
    wrong = invoke(module, "--kernel", "op:tanh=native-loop{rows=16}")
    assert wrong.exit_code == 2
    assert "has no 'rows'" in wrong.stderr


@pytest.mark.parametrize(
    "options",
    [("--allow-host",), ("--rounding", "exact")],
    ids=lambda options: options[0],
)
def test_what_it_does_not_take(module: str, options: tuple[str, ...]) -> None:
    """Options of GPUs are refused by name."""
    result = invoke(module, *options)
    assert result.exit_code == 2
    assert f"{' '.join(options)} is for --device " in result.stderr


@pytest.mark.parametrize("device", ["gpu", "emulator"])
def test_the_host_is_no_gpu(module: str, device: str) -> None:
    """Its target is for this device alone."""
    words = ["run", module, "--device", device, "--target", "host"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert f"--target host is for --device native, not for {device}" in result.stderr


def test_choices_for_another_device_count_for_nothing(module: str, tmp_path: Path) -> None:
    """They are made anew, and a note says so, as it does of a kernel that nobody has."""
    words = ["optimize", module, "-O0", "--kernel", "op:dot=dot-small", "--target", "a100"]
    text = CliRunner().invoke(cli, words).stdout
    assert "dot-small" in text
    path = tmp_path / "chosen.hlo"
    path.write_text(text)
    result = invoke(str(path), "-O0", "--repeat", "1")
    assert result.exit_code == 0, result.output
    assert "dot-small was chosen for gpu, so native chooses anew" in result.stdout
    path.write_text(text.replace("dot-small", "dot-tiny"))
    unknown = invoke(str(path), "-O0", "--repeat", "1")
    assert "what was written is not kept: no kernel is called 'dot-tiny'" in unknown.stdout


def test_choices_of_the_host_on_the_emulator(module: str, tmp_path: Path) -> None:
    """The other way round, too."""
    words = ["optimize", module, "-O0", "--kernel", "op:dot=native-call", "--target", "host"]
    text = CliRunner().invoke(cli, words).stdout
    assert "native-call" in text
    path = tmp_path / "chosen.hlo"
    path.write_text(text)
    result = CliRunner().invoke(cli, ["run", str(path), "-O0", "--device", "emulator"])
    assert result.exit_code == 0, result.output
    assert "native-call was chosen for native, so gpu chooses anew" in result.stdout


def test_without_a_compiler(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is that of a missing device."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    result = invoke(module)
    assert result.exit_code == 5
    assert "no-such-compiler" in result.stderr


def test_a_type_without_a_form_in_memory(tmp_path: Path, module: str) -> None:
    """Elements that fill no part of a byte are refused with name and line."""
    path = tmp_path / "six.hlo"
    path.write_text("HloModule m\nENTRY e {\n  ROOT x = f6e3m2fn[4] parameter(0)\n}\n")
    result = invoke(str(path))
    assert result.exit_code == 4
    assert "six.hlo:3:" in result.stderr
    assert "not packed into bytes" in result.stderr


def test_study(module: str) -> None:
    """A study takes its times as it takes those of the CPU."""
    words = ["study", module, "--strategy", "O2", "--device", "native", "--repeat", "2", "--json"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    assert '"device": "native"' in result.stdout
    assert '"seconds"' in result.stdout or '"measured"' in result.stdout
