"""``hloopt run --device``: the emulator, the GPU that is not there, and what only devices take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from hloopt.cli.main import cli
from tests.helpers.support import invoke

SOFTMAX = """HloModule m

max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}

ENTRY e {
  x = f32[40,33] parameter(0)
  low = f32[] constant(-inf)
  m = f32[40] reduce(x, low), dimensions={1}, to_apply=max
  b = f32[40,33] broadcast(m), dimensions={0}
  d = f32[40,33] subtract(x, b)
  ROOT z = f32[40,33] exponential(d)
}
"""

FACTOR = """HloModule m

ENTRY e {
  a = f32[4,4] parameter(0)
  f = (f32[4,4], f32[4]) custom-call(a), custom_call_target="lapack_sgeqrf_ffi", api_version=API_VERSION_TYPED_FFI
  q = f32[4,4] get-tuple-element(f), index=0
  ROOT r = f32[4,4] negate(q)
}
"""


@pytest.fixture
def softmax(tmp_path: Path) -> str:
    path = tmp_path / "softmax.hlo"
    path.write_text(SOFTMAX)
    return str(path)


@pytest.fixture
def factor(tmp_path: Path) -> str:
    path = tmp_path / "factor.hlo"
    path.write_text(FACTOR)
    return str(path)


def _row(stdout: str, name: str) -> dict[str, object]:
    (module,) = json.loads(stdout)["modules"]
    return next(row for row in module["rows"] if row["name"] == name)


def test_the_emulator_runs_both_forms_of_a_module(softmax: str) -> None:
    """Kernels are executed, with a look at every access, and their results compared."""
    result = invoke("run", softmax, "--device", "emulator", "--repeat", "1", "--json")

    assert result.exit_code == 0, result.stderr
    given, better = (_row(result.stdout, f"{form}, emulator") for form in ("given", "O2"))
    assert given["kernels"] == 4  # a constant is part of the code
    assert better["kernels"] == 2
    assert all(entry["passed"] for row in (given, better) for entry in row["comparisons"])


def test_a_lock_file_suits_the_next_run(softmax: str, tmp_path: Path) -> None:
    """What the user asked for is in the file, which the run takes as it is."""
    lock = str(tmp_path / "kernels.toml")
    wish = ("--kernel", "op:reduce=split-reduction")
    first = invoke("kernels", softmax, *wish, "--write-lock", lock)
    assert first.exit_code == 0, first.stderr
    assert 'kernel = "split-reduction"' in Path(lock).read_text()
    words = ("run", softmax, "--device", "emulator", "--repeat", "1", "--json")
    second = invoke(*words, "--lock", lock)
    assert second.exit_code == 0, second.stderr
    assert json.loads(second.stdout)["modules"][0]["notes"] == []


def test_a_stale_lock_file_is_told_beside_the_results(softmax: str, tmp_path: Path) -> None:
    """Without --frozen the program runs, by other kernels than the file says: the report tells."""
    lock = tmp_path / "kernels.toml"
    made = invoke("kernels", softmax, "--write-lock", str(lock))
    assert made.exit_code == 0, made.stderr
    words = ("run", softmax, "--device", "emulator", "--repeat", "1", "--json", "--lock", str(lock))
    (fresh,) = json.loads(invoke(*words).stdout)["modules"]
    assert fresh["notes"] == []
    lock.write_text(lock.read_text().replace('instruction = "', 'instruction = "not_'))
    (stale,) = json.loads(invoke(*words).stdout)["modules"]
    assert stale["passed"]
    (note,) = stale["notes"]
    assert note.startswith(f"kernel-selection: {lock} does not suit this module: ")


def test_a_kernel_that_fits_nothing_is_the_users_error(softmax: str) -> None:
    """The message says which instruction and why."""
    result = invoke("run", softmax, "--device", "emulator", "--kernel", "op:reduce=bitonic-sort")

    assert result.exit_code == 2
    assert "the results are not those of one sort" in result.stderr


def test_what_has_no_kernel_is_refused_with_its_line(factor: str) -> None:
    """Nothing runs; the place is the instruction's."""
    result = invoke("run", factor, "--device", "emulator")

    assert result.exit_code == 4
    assert (
        f"{factor}:5:3: error: f: custom-call to lapack_sgeqrf_ffi fits no kernel" in result.stderr
    )
    assert "note: hloopt run --allow-host lets the interpreter evaluate" in result.stderr


def test_the_host_may_take_what_has_no_kernel(factor: str) -> None:
    """With --allow-host the interpreter evaluates it, and the report says so."""
    result = invoke("run", factor, "--device", "emulator", "--allow-host", "--repeat", "1")

    assert result.exit_code == 0, result.stderr
    assert "1 of 2 kernels are run by the interpreter, not by the device: %f" in result.stdout


@pytest.mark.parametrize(
    ("words", "devices"),
    [
        (("--allow-host",), "gpu and emulator"),
    ],
)
def test_options_of_devices_are_none_of_the_cpus(
    softmax: str, words: tuple[str, ...], devices: str
) -> None:
    """They would be ignored, so they are refused."""
    result = invoke("run", softmax, *words)

    assert result.exit_code == 2
    assert f"{words[0]} is for --device {devices}, not for cpu" in result.stderr


def test_without_a_gpu_one_line_says_what_is_missing(softmax: str) -> None:
    """Exit code 5 before anything else is done."""
    try:
        import cupy

        if cupy.cuda.is_available():
            pytest.skip("there is a GPU")
    except ImportError:
        pass
    result = invoke("run", softmax, "--device", "gpu")

    assert result.exit_code == 5
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_a_device_runs_one_participant(softmax: str) -> None:
    """Several are the CPU executor's."""
    result = invoke("run", softmax, "--device", "emulator", "--participants", "2")

    assert result.exit_code == 2
    assert "one participant" in result.stderr


def test_a_shell_completes_devices() -> None:
    """Those that begin so; all without a beginning."""
    complete = ShellComplete(cli, {}, "hloopt", "_HLOOPT_COMPLETE")
    found = complete.get_completions(["run", "--device"], "e")
    assert [item.value for item in found] == ["emulator"]
    assert len(complete.get_completions(["run", "--device"], "")) == 4


def test_a_shell_completes_kernels() -> None:
    """Those of the device."""
    complete = ShellComplete(cli, {}, "hloopt", "_HLOOPT_COMPLETE")
    found = complete.get_completions(["run", "--device", "native", "--kernel"], "op:dot=native-d")
    assert [item.value for item in found] == ["op:dot=native-dot"]
    found = complete.get_completions(["run", "--kernel"], "op:dot=dot-mat")
    assert [item.value for item in found] == ["op:dot=dot-matrix-vector"]
    assert not complete.get_completions(["run", "--kernel"], "op:dot=native-d")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("h200", "run --device emulator --target h200"),
        ("A100", "run --device emulator --target a100"),
        ("tpu-v4", "stats --target tpu-v4"),
        ("Natve", "did you mean 'native'?"),
        ("xla-cpu", "hloopt compare, bisect, reduce and study"),
        ("abacus", "(known: cpu, native, gpu, emulator)\n"),
    ],
)
def test_a_name_that_is_no_device(softmax: str, name: str, told: str) -> None:
    """A target is told from a device, a slip from both."""
    result = invoke("run", softmax, "--device", name)
    assert result.exit_code == 2
    assert f"unknown device '{name}'" in result.stderr
    assert told in result.stderr


def test_options_of_kernels_are_not_for_numpy(softmax: str) -> None:
    """The message says which devices they are for."""
    result = invoke("run", softmax, "--kernel", "op:dot=dot-tiled")
    assert result.exit_code == 2
    assert "choose kernels are for --device native, gpu and emulator" in result.stderr


def test_the_kernels_of_all_devices_are_listed() -> None:
    """In order of preference, one device after the other."""
    rows = json.loads(invoke("kernels", "--list", "--json").stdout)["kernels"]
    devices = [row["device"] for row in rows if row["owner"] is None]
    assert list(dict.fromkeys(devices)) == ["gpu", "native"]


def test_exact(tmp_path: Path) -> None:
    """With ``--exact`` the CPU's functions are the interpreter's; other devices refuse it."""
    path = tmp_path / "log.hlo"
    path.write_text(
        "HloModule m\nENTRY e {\n  x = f32[100000] parameter(0)\n  y = f32[100000] exponential(x)\n"
        "  ROOT z = f32[100000] log(y)\n}\n"
    )

    def errs(*options: str) -> set[int]:
        result = invoke("run", str(path), "--json", "--repeat", "1", *options)
        (module,) = json.loads(result.stdout)["modules"]
        return {found["ulp"] for row in module["rows"] for found in row["comparisons"]}

    assert errs("--rounding", "exact") == {0}
    assert max(errs()) > 0
    blamed = "--device cpu --rounding exact computes them as the interpreter does"
    strict = ("run", str(path), "--tolerance", "rtol=0,atol=0", "--repeat", "1")
    differs = invoke(*strict)
    assert differs.exit_code == 1
    assert "f32 functions such as exponential" in differs.stdout
    assert blamed in " ".join(differs.stdout.split())
    assert blamed not in " ".join(invoke(*strict, "--rounding", "exact").stdout.split())
    refused = invoke("run", str(path), "--rounding", "exact", "--device", "native")
    assert refused.exit_code == 2
    assert "--rounding exact is for --device cpu" in refused.stderr
