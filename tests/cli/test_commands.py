"""Every command: what it prints where, its exit codes, files, pipes and JSON."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hloopt.cli import files
from hloopt.cli.files import Input, InputText, read_input
from hloopt.cli.main import COMMANDS, GROUPS, cli
from hloopt.extras import jaxlib_python
from tests.helpers.support import invoke

SOFTMAX = """HloModule m

max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}

ENTRY e {
  x = f32[4,8] parameter(0)
  low = f32[] constant(-inf)
  m = f32[4] reduce(x, low), dimensions={1}, to_apply=max
  b = f32[4,8] broadcast(m), dimensions={0}
  d = f32[4,8] subtract(x, b)
  one = f32[] constant(1)
  ones = f32[4,8] broadcast(one), dimensions={}
  y = f32[4,8] multiply(d, ones)
  ROOT z = f32[4,8] exponential(y)
}
"""
BROKEN = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT y = f32[4] negate(q)\n}\n"
INVALID = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT y = f32[5] negate(x)\n}\n"


READING = (
    "check", "compare", "defuse", "diff", "explain", "gate", "graph", "hash", "kernels", "optimize", "report",
    "run", "stats", "study", "why",
)  # fmt: skip


@pytest.fixture
def softmax(tmp_path: Path) -> Path:
    path = tmp_path / "softmax.hlo"
    path.write_text(SOFTMAX)
    return path


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(name: str) -> None:
    """The help names the command, says what it does and shows a line to type."""
    result = invoke(name, "--help")

    assert result.exit_code == 0
    assert "Example:" in result.stdout
    assert f"hloopt {name}" in result.stdout or "| hloopt" in result.stdout


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"completion", "lsp"}))
def test_every_command_speaks_json(name: str, softmax: Path, tmp_path: Path) -> None:
    """One object with the schema number and the command's name."""
    reads = name in READING
    both = [str(softmax), "-"]
    given = {
        "diff": both,
        "compare": both,
        "bisect": [str(tmp_path / "stages")],
        "build": [str(softmax), "-o", str(tmp_path / "libsoftmax.so")],
        "gate": [*both, "--max", "kernels<=+0"],
        "report": ["-o", str(tmp_path / "page.html")],
        "export": [str(softmax), "m", "-O0", "--as", "cuda"],
        "reduce": [str(softmax), "--check", "true", "--tests", "3"],
    }
    words = given.get(name, [])
    if name == "bisect":
        assert invoke("optimize", str(softmax), "--dump-dir", words[0]).exit_code == 0
    result = invoke(name, *words, "--json", stdin=SOFTMAX if reads else "")
    found = json.loads(result.stdout)

    assert result.exit_code == 0
    assert (found["schema"], found["command"]) == (1, name)


def test_the_list_of_commands_is_that_of_the_group() -> None:
    """Each listed command can be loaded, and its one line is the start of its help."""
    for name, (_, line) in COMMANDS.items():
        command = cli.get_command(None, name)  # type: ignore[arg-type]
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(200).startswith(line.rstrip(".")[:15])


def test_every_command_is_in_one_group_of_the_help() -> None:
    """The groups hold all of them, once."""
    assert sorted(name for names in GROUPS.values() for name in names) == sorted(COMMANDS)
    shown = invoke("--help").stdout
    assert [title for title in GROUPS if f"\n{title}:\n" not in shown] == []


def test_the_rules_as_json() -> None:
    """Each with its meaning, as in the table."""
    content = json.loads(invoke("check", "--rules", "--json").stdout)
    assert (content["schema"], content["command"]) == (1, "check")
    assert "async-chain" in content["rules"]
    table = invoke("check", "--rules").stdout
    assert all(name in table for name in content["rules"])


def test_defuse_counts_what_it_takes_apart(tmp_path: Path, softmax: Path) -> None:
    """Fused, and taken apart again, a module says the same as before; the JSON counts both sides."""
    plain, fused, apart = (str(tmp_path / name) for name in ("plain", "fused", "apart"))
    invoke("optimize", str(softmax), "--passes", "fix(simplify,cse,dce)", "-o", plain)
    invoke("optimize", plain, "--passes", "instruction-fusion", "-o", fused)
    result = invoke("defuse", fused, "--simplify", "--json", "-o", apart)
    (row,) = json.loads(result.stdout)["modules"]
    digests = {invoke("hash", name).stdout.split()[0] for name in (plain, apart)}

    assert row["fusions"] > 0
    assert row["instructions"]["before"] > row["instructions"]["after"]
    assert len(digests) == 1


def test_check_says_ok(softmax: Path) -> None:
    """A line per file."""
    result = invoke("check", str(softmax), str(softmax))
    assert result.stdout == f"{softmax}: ok\n" * 2


def test_check_shows_place_line_and_caret() -> None:
    """An undefined operand: message, excerpt, caret, exit 3; nothing on stdout."""
    result = invoke("check", stdin=BROKEN)

    assert result.exit_code == 3
    assert result.stdout == ""
    first, line, caret = result.stderr.splitlines()[:3]
    assert first.startswith("<stdin>:4:26: error: ")
    assert "q" in first
    assert line.index("q") == caret.index("^")


def test_check_reports_violations_of_a_module_that_parses() -> None:
    """The verifier names the instruction, its line and the constraint."""
    result = invoke("check", stdin=INVALID)

    assert result.exit_code == 3
    assert result.stderr.startswith("<stdin>:4:")
    assert "y" in result.stderr
    assert "f32[5]" in result.stderr


def test_check_goes_on_after_a_bad_file(tmp_path: Path, softmax: Path) -> None:
    """The second file is still checked; the exit code tells of the first."""
    bad = tmp_path / "bad.hlo"
    bad.write_text(BROKEN)
    result = invoke("check", str(bad), str(softmax), "--json")
    found = json.loads(result.stdout)

    assert result.exit_code == 3
    assert [row["ok"] for row in found["files"]] == [False, True]
    assert found["files"][0]["errors"][0]["line"] == 4


def test_check_warns_of_a_negative_zero_xla_misreads() -> None:
    """``-0`` is read as -0.0 here and as +0 by XLA: said, not an error."""
    text = "HloModule m\nENTRY e {\n  ROOT c = f32[] constant(-0)\n}\n"
    result = invoke("check", stdin=text)

    assert result.exit_code == 0
    assert result.stderr.startswith("<stdin>:3:27: warning: ")


def test_optimize_prints_hlo_and_nothing_else() -> None:
    """stdout is a module that reads back; tables go to stderr."""
    result = invoke("optimize", "--time-passes", "--stats", stdin=SOFTMAX)

    assert result.stdout.startswith("HloModule m")
    assert "A * 1 => A" in result.stderr
    assert "simplify" in result.stderr
    again = invoke("optimize", "-O0", stdin=result.stdout)
    assert again.stdout == result.stdout


def test_optimize_levels_and_passes_exclude_each_other() -> None:
    """Two pipelines are one too many: usage error."""
    result = invoke("optimize", "-O1", "--passes", "dce", stdin=SOFTMAX)
    assert result.exit_code == 2
    assert "give one of them" in result.stderr


def test_a_misspelt_pass_gets_a_suggestion() -> None:
    """Exit 2, the nearest name."""
    result = invoke("optimize", "--passes", "simplfy", stdin=SOFTMAX)
    assert result.exit_code == 2
    assert "simplify" in result.stderr


def test_a_misspelt_option_of_a_pass_gets_a_suggestion() -> None:
    """The options are the pass's fields."""
    result = invoke("optimize", "--passes", "instruction-fusion{may_duplicte=true}", stdin=SOFTMAX)
    assert result.exit_code == 2
    assert "may_duplicate" in result.stderr


def test_a_misspelt_command_gets_a_suggestion() -> None:
    """``optimise`` is a good guess."""
    result = invoke("optimise")
    assert result.exit_code == 2
    assert "Did you mean 'optimize'?" in result.stderr


def test_print_changed_says_where_nothing_changed() -> None:
    """Silence could be a mistake in the name of a pass; a module that changes shows that it does."""
    note = "note: no pass changed anything"
    for how in ("--print-changed", "--print-changed=diff"):
        assert note in invoke("optimize", "--passes", "cse", how, stdin=SMALL).stderr
        assert note not in invoke("optimize", "--passes", "dce", how, stdin=DEAD).stderr
    assert note not in invoke("optimize", "--passes", "cse", stdin=SMALL).stderr


SMALL = "HloModule m\nENTRY e {\n  ROOT a = f32[4] parameter(0)\n}\n"
DEAD = "HloModule m\nENTRY e {\n  ROOT a = f32[4] parameter(0)\n  b = f32[4] negate(a)\n}\n"
WRONG = "HloModule m\nENTRY e {\n  a = f32[4] parameter(0)\n  b = f32[5] add(a, a)\n  ROOT c = f32[4] add(a, b)\n}\n"


def test_an_error_names_the_help_that_explains_its_code() -> None:
    """One line, whatever the number of errors; none where no error has a code."""
    one = invoke("check", stdin=WRONG.replace("f32[5] add(a, a)", "f32[5] parameter(1)"))
    assert "hloopt help" not in invoke("check", stdin=SMALL.replace("ROOT", "ROOOT")).stderr
    several = invoke("check", stdin=WRONG).stderr.splitlines()
    last = several[-1]
    assert re.fullmatch(
        r"hloopt help [a-z-]+ explains this|hloopt help CODE explains each: .*", last
    )
    assert sum(line.startswith("hloopt help") for line in several) == 1
    code = re.search(r"\[([a-z-]+)\]", one.stderr)
    assert code is not None
    assert one.stderr.endswith(f"hloopt help {code[1]} explains this\n")
    assert invoke("help", code[1]).exit_code == 0


MODEL = """
from hloopt.cost_models.roofline import Roofline

class Mine(Roofline):
    name = "mine"

class Nameless(Roofline):
    name = "roofline"
"""


def test_a_cost_model_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It prices, and has a name that a pipeline may use; what is none is refused."""
    # Other tests do not see what this one names.
    monkeypatch.setattr("hloopt.cost_models.registry._GIVEN", {})
    file = tmp_path / "models.py"
    file.write_text(MODEL + "MODEL = 'm'\n")
    sample = str(Path(__file__).parents[2] / "samples" / "attention.hlo")
    priced = invoke("stats", sample, "--target", "h200", "--cost-model", f"{file}:Mine")
    assert " by mine: " in priced.stdout
    for name, told in (
        ("Nameless", "is called 'roofline', as one of hloopt's own"),
        ("Other", "has no class 'Other'"),
        ("Namless", "has no class 'Namless'; did you mean 'Nameless'?"),
        ("MODEL", f"'MODEL' of '{file}' is of type str, not a class"),
    ):
        result = invoke("stats", sample, "--target", "h200", "--cost-model", f"{file}:{name}")
        assert result.exit_code == 2
        assert told in result.stderr
    result = invoke("stats", sample, "--target", "h200", "--cost-model", "json:JSONDecoder")
    assert "is not a cost model" in result.stderr
    result = invoke("stats", sample, "--target", "h200", "--cost-model", "json:dumps")
    assert "'dumps' of 'json' is of type function, not a class" in result.stderr


def test_print_after_shows_the_module_on_stderr() -> None:
    """Only after the pass that was named, and only when it changed something."""
    result = invoke(
        "optimize", "--passes", "dce,simplify", "--print-after", "simplify", stdin=SOFTMAX
    )
    assert result.stderr.count("HloModule") == 1
    unknown = invoke("optimize", "--passes", "dce", "--print-after", "cse", stdin=SOFTMAX)
    assert unknown.exit_code == 2


def test_verify_each_accepts_the_pipelines() -> None:
    """Every pass leaves a valid module and tells the truth about changing it."""
    assert invoke("optimize", "-O3", "--verify-each", stdin=SOFTMAX).exit_code == 0


def test_emit_xla_takes_fusions_apart() -> None:
    """O2 fuses; the form for XLA has no fusion."""
    assert "fusion(" in invoke("optimize", stdin=SOFTMAX).stdout
    assert "fusion(" not in invoke("optimize", "--emit", "xla", stdin=SOFTMAX).stdout


def test_emit_xla_warns_of_values_that_are_not_there() -> None:
    """XLA would fill ``{...}`` with values of its own making."""
    text = "HloModule m\nENTRY e {\n  ROOT big = f32[100] constant({...})\n}\n"
    result = invoke("optimize", "--emit", "xla", stdin=text)

    assert result.exit_code == 0
    assert "warning: the value of %big is left out" in result.stderr
    assert "warning" not in invoke("optimize", "--emit", "xla", stdin=SOFTMAX).stderr


def test_output_files_are_written_whole(tmp_path: Path, softmax: Path) -> None:
    """One file, or a directory with one file a module; no temporary file stays."""
    out = tmp_path / "out.hlo"
    assert invoke("optimize", str(softmax), "-o", str(out)).stdout == ""
    assert out.read_text().startswith("HloModule m")
    other = tmp_path / "other.hlo"
    other.write_text(SOFTMAX)
    folder = tmp_path / "made"
    assert invoke("optimize", str(softmax), str(other), "-o", f"{folder}/").exit_code == 0
    assert sorted(path.name for path in folder.iterdir()) == ["other.hlo", "softmax.hlo"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "made", "other.hlo", "out.hlo", "softmax.hlo",
    ]  # fmt: skip


def test_several_modules_do_not_fit_one_file(tmp_path: Path, softmax: Path) -> None:
    """Refused before anything is written."""
    out = tmp_path / "out.hlo"
    result = invoke("optimize", str(softmax), str(softmax), "-o", str(out))
    assert result.exit_code == 2
    assert not out.exists()


def test_a_failing_input_leaves_the_old_output(tmp_path: Path) -> None:
    """Nothing is lost when the input is bad."""
    out, bad = tmp_path / "out.hlo", tmp_path / "bad.hlo"
    out.write_text("old")
    bad.write_text(BROKEN)
    assert invoke("optimize", str(bad), "-o", str(out)).exit_code == 3
    assert out.read_text() == "old"


def test_gz_and_directories_are_read(tmp_path: Path) -> None:
    """A dump directory stands for its modules; XLA's other files are passed over."""
    with gzip.open(tmp_path / "a.before_optimizations.txt.gz", "wt") as stream:
        stream.write(SOFTMAX)
    (tmp_path / "b.hlo").write_text("// made by hand\n" + SOFTMAX)
    (tmp_path / "b.memory-usage-report.txt").write_text("Total bytes used: 12")
    (tmp_path / "b.ll").write_text("; LLVM")
    result = invoke("check", str(tmp_path))

    assert result.exit_code == 0
    assert [Path(line.split(":")[0]).name for line in result.stdout.splitlines()] == [
        "a.before_optimizations.txt.gz",
        "b.hlo",
    ]


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (b"", 3, "error: "),
        (b"\x00\x01\x02HloModule", 3, "binary file"),
        ("HloModule m".encode("utf-16"), 3, "UTF-16"),
        (b"HloModule m\nENTRY e {\n  \xff", 3, "3:3: error: byte 0xff is not UTF-8"),
        (b"\x1f\x8b\x08\x00trunc", 3, "not a whole .gz file"),
        (b"module @m { func.func @main() }", 3 if jaxlib_python() else 5, "error: "),
    ],
)
def test_files_that_are_no_hlo(tmp_path: Path, content: bytes, code: int, message: str) -> None:
    """A message that says what the file is, and no traceback."""
    path = tmp_path / "x.hlo"
    path.write_bytes(content)
    result = invoke("check", str(path))

    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_missing_files_and_empty_directories(tmp_path: Path) -> None:
    """Usage errors that name the path."""
    assert "no such file" in invoke("stats", str(tmp_path / "none")).stderr
    result = invoke("stats", str(tmp_path))
    assert result.exit_code == 2
    assert "no HLO modules" in result.stderr


def test_run_compares_and_times() -> None:
    """One table with the interpreter, the module as given and the optimised one."""
    result = invoke("run", "--seed", "3", "--repeat", "2", stdin=SOFTMAX)

    assert result.exit_code == 0
    rows = [line.split("  ")[0] for line in result.stdout.splitlines()]
    assert {"interpreter", "given, cpu", "O2, cpu"} <= set(rows)
    assert "ok 1 result: worst error 0.2 of what rounding allows" in result.stdout


def test_run_json_has_the_figures() -> None:
    """Kernels, launches, seconds of every run, errors by result."""
    result = invoke("run", "--repeat", "3", "--json", stdin=SOFTMAX)
    (module,) = json.loads(result.stdout)["modules"]
    rows = {row["name"]: row for row in module["rows"]}

    assert module["passed"] is True
    assert rows["O2, cpu"]["kernels"] < rows["given, cpu"]["kernels"]
    assert len(rows["O2, cpu"]["seconds"]) == 3
    assert rows["O2, cpu"]["comparisons"][0]["passed"] is True


def test_run_tells_memory_and_what_is_alive() -> None:
    """Bytes: resident at most while it ran, and by liveness."""
    text = """HloModule m
ENTRY e {
  x = f32[1000,1000] parameter(0)
  a = f32[1000,1000] negate(x)
  ROOT r = f32[1000,1000] multiply(a, x)
}
"""
    result = invoke("run", "--repeat", "1", "-O0", "--json", stdin=text)
    (module,) = json.loads(result.stdout)["modules"]
    assert module["notes"] == []
    for row in module["rows"]:
        assert row["bytes_alive"] == 12_000_000
        if Path("/proc/self/clear_refs").exists():
            # The executor writes r over a, which liveness counts beside it.
            assert 7_000_000 < row["peak_memory"] < 60_000_000


def test_run_tells_of_results_that_are_not_finite() -> None:
    """All agree that they are NaN, which shows little."""
    text = """HloModule m
ENTRY e {
  x = f32[2,3] parameter(0)
  n = f32[] constant(nan)
  y = f32[6] constant({1, inf, nan, 2, 3, -inf})
  i = s32[] constant(1)
  ROOT t = (f32[2,3], f32[6], s32[], f32[]) tuple(x, y, i, n)
}
"""
    result = invoke("run", "--repeat", "1", stdin=text)
    assert result.exit_code == 0
    assert "note 2 of 4 results hold NaN or infinity: 3 of 6 elements of out_1\n" in result.stdout


@pytest.mark.parametrize(("options", "runs"), [([], 3), (["--repeat", "5"], 5)])
def test_slow_programs_run_less_often_unless_told(
    monkeypatch: pytest.MonkeyPatch, options: list[str], runs: int
) -> None:
    """No run of 4 seconds is begun after 10 of them; the first needs no warm-up."""
    now = [0.0]

    def clock() -> float:
        now[0] += 4.0
        return now[0]

    monkeypatch.setattr("hloopt.runtime.timing.time.perf_counter", clock)
    result = invoke("run", "--json", *options, stdin=SOFTMAX)
    (module,) = json.loads(result.stdout)["modules"]
    assert [len(row["seconds"]) for row in module["rows"]] == [1, runs, runs]


def test_run_with_other_expectations_exits_with_1(tmp_path: Path, softmax: Path) -> None:
    """The place of the worst difference is named."""
    arrays = {"in_0": np.zeros((4, 8), np.float32), "out_0": np.ones((4, 8), np.float32)}
    arrays["out_0"][2, 5] = 7
    np.savez(tmp_path / "x.npz", **arrays)
    path = str(tmp_path / "x.npz")
    result = invoke("run", str(softmax), "--inputs", path, "--expect", path)

    assert result.exit_code == 1
    assert "worst at [2,5]" in result.stdout
    tolerant = invoke(
        "run", str(softmax), "--inputs", path, "--expect", path, "--tolerance", "atol=6.5"
    )
    assert tolerant.exit_code == 0


def test_run_refuses_what_it_cannot_run() -> None:
    """An unknown custom call stops with its target, name and line, exit 4, before anything runs."""
    text = (
        "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n"
        '  ROOT c = f32[4] custom-call(x), custom_call_target="my_kernel"\n}\n'
    )
    result = invoke("run", stdin=text)

    assert result.exit_code == 4
    assert result.stderr.startswith("<stdin>:4:")
    assert "my_kernel" in result.stderr


@pytest.mark.parametrize(("device", "code"), [("gpu", 5), ("emulator", 5), ("cpux", 2)])
def test_devices_that_are_not_there(
    device: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without CuPy, and without a C++ compiler, it is exit 5; no such word is a usage error."""
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    result = invoke("run", "--device", device, stdin=SOFTMAX)
    assert result.exit_code == code
    assert device in result.stderr


def test_run_inputs_belong_to_one_module(tmp_path: Path, softmax: Path) -> None:
    """Two modules cannot share an input file by accident."""
    result = invoke("run", str(softmax), str(softmax), "--inputs", str(tmp_path / "x.npz"))
    assert result.exit_code == 2


def test_stats_lists_opcodes_and_buffers() -> None:
    """What is in the module, in tables."""
    result = invoke("stats", stdin=SOFTMAX)
    assert "exponential" in result.stdout
    assert "largest buffers" in result.stdout
    (module,) = json.loads(invoke("stats", "--json", stdin=SOFTMAX).stdout)["modules"]
    assert module["opcodes"]["broadcast"] == 2
    assert module["transcendentals"] == 32


def test_passes_lists_and_explains() -> None:
    """All passes with one line each; one with its options and defaults."""
    listed = invoke("passes").stdout
    assert "constant-folding" in listed
    assert "O2" in listed
    one = invoke("passes", "constant-folding").stdout
    assert "limit" in one
    assert "1024" in one
    assert invoke("passes", "O1").stdout.startswith("fix(")
    assert "did you mean" in invoke("passes", "dcee").stderr.lower()


def test_passes_lists_the_rules_that_can_be_disabled() -> None:
    """By the names that the option takes, with those that need fast_math marked."""
    shown = invoke("passes", "simplify").stdout
    rules = json.loads(invoke("passes", "simplify", "--json").stdout)["pass"]["rules"]

    assert all(rule["name"] in " ".join(shown.split()) for rule in rules)
    assert all(len(line) <= 81 for line in shown.splitlines() if "=>" in line)
    assert {rule["fast_math"] for rule in rules} == {False, True}
    words = ",".join(f'"{rule["name"]}"' for rule in rules)
    result = invoke("optimize", "--passes", f"simplify{{disable=[{words}]}}", stdin=SOFTMAX)
    assert result.exit_code == 0, result.stderr
    wrong = invoke("optimize", "--passes", "simplify{disable=[qqq]}", stdin=SOFTMAX)
    assert wrong.exit_code == 2
    assert wrong.stderr.endswith(f"no rule is called 'qqq' ({len(rules)} are valid)\n")


def test_a_pipeline_written_out_names_no_row() -> None:
    """It is said once, above the table."""
    result = invoke("run", "--repeat", "1", "--passes", "dce,cse", stdin=SOFTMAX)
    assert result.stdout.partition("\n")[0].endswith("  passes: dce,cse")
    assert "\npasses, cpu " in result.stdout


def test_every_option_of_every_pass_has_a_meaning() -> None:
    """Name, type, default and a phrase, read from the pass itself."""
    rows = json.loads(invoke("passes", "--json").stdout)["passes"]
    options = [(row["name"], option) for row in rows for option in row["options"]]

    assert len(options) >= 10
    assert [f"{name}.{option['name']}" for name, option in options if not option["meaning"]] == []
    assert all(option["type"] and option["default"] for _, option in options)


def test_ops_lists_every_opcode() -> None:
    """Opcodes without an evaluation are a part of the table."""
    every = json.loads(invoke("ops", "--json").stdout)["ops"]
    lacking = json.loads(invoke("ops", "--unsupported", "--json").stdout)["ops"]

    assert len(every) > 120
    assert lacking == [row for row in every if not row["evaluation"]]
    told = f"note: all {len(every)} opcodes can be evaluated\n"
    assert (invoke("ops", "--unsupported").stderr == told) == (not lacking)


def test_ops_lists_the_opcodes_that_are_named() -> None:
    rows = json.loads(invoke("ops", "sort", "add", "--json").stdout)["ops"]
    assert [row["opcode"] for row in rows] == ["add", "sort"]
    (row,) = json.loads(invoke("ops", "tuple", "--device", "native", "--json").stdout)["ops"]
    assert row["opcode"] == "tuple"
    wrong = invoke("ops", "scater", "--device", "gpu")
    assert wrong.exit_code == 2
    assert wrong.stderr.endswith("there is no opcode 'scater'; did you mean 'scatter'?\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(shell: str) -> None:
    """Sourcing the script completes ``hloopt``."""
    result = invoke("completion", shell)
    assert result.exit_code == 0
    assert "_HLOOPT_COMPLETE" in result.stdout


def shell(command: str, stdin: str = "", **options: object) -> subprocess.CompletedProcess[str]:
    """A line typed in a shell, with ``hloopt`` on the path."""
    python = sys.executable
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", f'hloopt() {{ {python} -m hloopt "$@"; }}; {command}'],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def test_commands_fit_a_pipe() -> None:
    """``optimize | run`` works, and grep finds the fusion."""
    result = shell("hloopt optimize | hloopt run --device cpu --repeat 1", SOFTMAX)
    assert result.returncode == 0, result.stderr
    assert "ok 1 result" in result.stdout
    assert "kind=kLoop" in shell("cat | hloopt optimize | grep fusion", SOFTMAX).stdout


def test_a_closed_pipe_is_no_error() -> None:
    """``| head -1`` ends quietly."""
    body = "\n".join(f"  v{n} = f32[4] negate(x)" for n in range(20000))
    text = f"HloModule m\nENTRY e {{\n  x = f32[4] parameter(0)\n{body}\n  ROOT r = f32[4] abs(x)\n}}\n"
    result = shell("set +o pipefail; hloopt optimize -O0 - | head -1", text)

    assert result.stdout.startswith("HloModule m")
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("hloopt --version", 0),
        ("hloopt --help", 0),
        ("hloopt check nofile 2>&1", 2),
        ("hloopt run --nothing 2>&1", 2),
        ("hloopt optimize - --print-changed=diff -o /dev/null 2>&1", 0),
        ("hloopt check nofile 2> /dev/full", 2),
    ],
)
def test_what_no_one_reads_changes_no_exit_code(command: str, code: int) -> None:
    """Neither 1, which says that results differ, nor Python's 120."""
    closed = shell(f"exec 3>&1; {{ sleep 0.2; {command}; echo $? >&3; }} | true", SOFTMAX)

    assert closed.stdout == f"{code}\n"
    assert closed.stderr == ""


def test_an_unexpected_exception_is_one_message(tmp_path: Path) -> None:
    """A defect shows what to report, without a traceback, exit 70."""
    code = (
        "import hloopt.cli.files as f, hloopt.cli.main as m, sys\n"
        "def broken(text): raise RuntimeError('boom')\n"
        "f.read_input = broken\n"
        "sys.argv = ['hloopt', 'stats', '-']\n"
        "m.main()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], input=SOFTMAX, capture_output=True, text=True, check=False
    )
    assert result.returncode == 70
    assert "internal error: RuntimeError: boom" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("order", [("bad", "good", "unread"), ("unread", "good", "bad")])
def test_a_defect_in_one_of_several_modules_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    """The others have their rows, the message names its file, and the exit code is 70 wherever it is."""
    for name, text in (("good", SOFTMAX), ("bad", SOFTMAX), ("unread", BROKEN)):
        (tmp_path / f"{name}.hlo").write_text(text)

    def read(text: InputText) -> Input:
        if text.name.endswith("bad.hlo"):
            raise RuntimeError("boom")
        return read_input(text)

    monkeypatch.setattr(files, "read_input", read)
    result = invoke("stats", "--json", *(str(tmp_path / f"{name}.hlo") for name in order))
    assert result.exit_code == 70
    rows = {Path(row["file"]).stem: row for row in json.loads(result.stdout)["modules"]}
    assert list(rows) == list(order)
    assert rows["bad"]["error"] == {"kind": "RuntimeError", "message": "boom"}
    assert "error" not in rows["good"]
    assert rows["unread"]["error"]["line"] == 4
    assert f"{tmp_path / 'bad.hlo'}: internal error: RuntimeError: boom" in result.stderr
    assert "Traceback" not in result.stderr
