"""``hloopt diff``: where its modules come from, what it answers scripts, and its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import hloopt
from tests.helpers.support import invoke

SAMPLES = Path(__file__).parents[2] / "samples"
DUMP = SAMPLES / "dump"
ONE = "HloModule one\nENTRY e {\n  x = f32[1000] parameter(0)\n  ROOT y = f32[1000] negate(x)\n}\n"
TWO = (
    ONE.replace("Module one", "Module two")
    .replace("ROOT y", "y")
    .replace("negate(x)\n", "negate(x)\n  ROOT z = f32[1000] exponential(y)\n")
)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "one.hlo").write_text(ONE)
    (tmp_path / "two.hlo").write_text(TWO)
    return str(tmp_path / "one.hlo"), str(tmp_path / "two.hlo")


def test_python_gets_what_the_command_prints(files: tuple[str, str]) -> None:
    for target in ((), ("--target", "h200")):
        printed = json.loads(invoke("diff", *files, *target, "--json").stdout)
        given = hloopt.diff(*files, *target[1:])
        assert not given.equal
        assert given.to_json().items() <= printed.items()
    assert given.totals[0].seconds is not None
    assert hloopt.diff(hloopt.parse(ONE), files[0]).equal
    assert "exponential" in hloopt.diff(*files)._repr_mimebundle_()["text/html"]
    dumps = hloopt.diff(DUMP, DUMP)
    assert dumps.equal
    assert dumps.to_json()["pairs"][0]["equal"]
    with pytest.raises(hloopt.UsageError, match="No such file"):
        hloopt.diff(files[0], "nowhere.hlo")
    for why in (False, True):
        with pytest.raises(hloopt.UsageError, match=r"two modules|give two"):
            hloopt.diff(files[0], why_recompile=why)


def found(*words: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(invoke("diff", *words, "--json").stdout)
    return read


def test_json_has_figures_and_kernels(files: tuple[str, str]) -> None:
    """Everything the tables show, as values."""
    got = found(*files, "--target", "h200")
    assert [row["module"] for row in got["modules"]] == ["one", "two"]
    assert not got["equal"]
    assert (got["before"]["kernels"], got["after"]["kernels"]) == (1, 2)
    assert (got["before"]["bytes_read"], got["after"]["bytes_written"]) == (4000, 8000)
    assert got["after"]["seconds"] > got["before"]["seconds"] >= 1e-6
    assert got["opcodes"]["exponential"] == {"before": 0, "after": 1}
    assert [row["status"] for row in got["kernels"]] == ["same", "came"]
    assert got["kernels"][1]["after"][0]["name"] == "z"


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_modules_that_differ_exit_with_1(tmp_path: Path, words: tuple[str, ...]) -> None:
    """0 for what is equal but for metadata."""
    texts = {
        "one": ONE,
        "noted": ONE.replace("(x)\n}", '(x), metadata={op_name="f"}\n}'),
        "two": TWO,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)

    def code(after: str) -> int:
        return invoke("diff", str(tmp_path / "one"), str(tmp_path / after), *words).exit_code

    assert texts["noted"] != ONE
    assert (code("noted"), code("two")) == (0, 1)


def test_what_differs_is_named_with_its_lines(files: tuple[str, str], tmp_path: Path) -> None:
    """The instruction, its line in either file, both values; in JSON as fields."""
    (tmp_path / "abs.hlo").write_text("\n" + ONE.replace("negate", "abs"))
    words = (files[0], str(tmp_path / "abs.hlo"))
    (row,) = found(*words)["differences"]
    assert (row["what"], row["old"], row["new"]) == ("opcode", "negate", "abs")
    assert (row["before"]["name"], row["before"]["line"], row["after"]["line"]) == ("y", 4, 5)
    shown = invoke("diff", *words, columns=80).stdout
    assert "the modules differ: 1 changed\n  %y, line 4, after: line 5, in %e\n" in shown
    assert "      opcode: negate before, abs after\n" in shown


def test_a_kernel_with_other_operands_is_told_apart(tmp_path: Path) -> None:
    """It computes the same of what it is given, which is no longer the same."""
    text = (
        "HloModule m\nENTRY e {\n  x = f32[8] parameter(0)\n  y = f32[8] parameter(1)\n"
        "  ROOT z = f32[8] subtract(x, y)\n}\n"
    )
    (tmp_path / "a").write_text(text)
    (tmp_path / "b").write_text(text.replace("(x, y)", "(y, x)"))
    words = (str(tmp_path / "a"), str(tmp_path / "b"))
    assert [row["other_operands"] for row in found(*words)["kernels"]] == [True]
    assert "kernels: 1 same (1 of them with other operands)" in invoke("diff", *words).stdout
    assert [row["other_operands"] for row in found(words[0], words[0])["kernels"]] == [False]


def test_modules_with_little_in_common_are_counted(files: tuple[str, str], tmp_path: Path) -> None:
    """What differs is listed with --all then."""
    lines = "\n".join(f"  n{n} = f32[{n}] iota(), iota_dimension=0" for n in range(100, 120))
    (tmp_path / "other.hlo").write_text(ONE.replace("  ROOT", f"{lines}\n  ROOT"))
    words = ("diff", files[0], str(tmp_path / "other.hlo"))
    assert invoke(*words).stdout.endswith("the modules differ: 20 only after\n  --all lists them\n")
    assert "  + %n100 = iota(), line 4, in %e\n" in invoke(*words, "--all").stdout


def test_the_same_computation_in_another_kernel(tmp_path: Path) -> None:
    """Kind and configuration of a fusion are no computation: the kernel is the same, and told."""
    text = (
        "HloModule m\nf {\n  p = f32[1000] parameter(0)\n  ROOT r = f32[1000] negate(p)\n}\nENTRY e {\n"
        "  x = f32[1000] parameter(0)\n  ROOT y = f32[1000] fusion(x), kind=kLoop, calls=f\n}\n"
    )
    (tmp_path / "a.hlo").write_text(text)
    (tmp_path / "b.hlo").write_text(text.replace("kLoop", "kInput"))
    (tmp_path / "c.hlo").write_text(text.replace("calls=f", 'calls=f, backend_config={"a":1}'))
    paths = [str(tmp_path / name) for name in ("a.hlo", "b.hlo", "c.hlo")]
    (kind,) = found(paths[0], paths[1])["kernels"]
    assert (kind["status"], kind["kernel"]) == ("same", "kLoop before, kInput after")
    (config,) = found(paths[0], paths[2])["kernels"]
    assert (config["status"], config["kernel"]) == ("same", "another backend_config")
    assert "kLoop before, kInput after" in invoke("diff", paths[0], paths[1]).stdout


def test_a_dump_directory_and_standard_input() -> None:
    """A stage of a dump beside a text from a pipe."""
    after = next(DUMP.glob("*jit_normalize.cpu_after_optimizations.txt")).read_text()
    words = ("diff", str(DUMP), "-", "--module", "jit_normalize", "--stage", "after", "--json")
    same = json.loads(invoke(*words, stdin=after).stdout)
    assert same["equal"]
    assert {row["status"] for row in same["kernels"]} == {"same"}
    before = next(DUMP.glob("*jit_normalize.before_optimizations.hlo.pb"))
    assert not found(str(before), str(DUMP), "--module", "normalize", "--stage", "after")["equal"]


def test_directories_are_compared_module_by_module() -> None:
    """With themselves they are equal; a text has one partner, the other modules have none."""
    same = found(str(DUMP), str(DUMP))
    assert (same["equal"], len(same["pairs"])) == (True, 2)
    text = next(DUMP.glob("*jit_normalize.before_optimizations.txt"))
    for sides, rest in (
        ((str(text), str(DUMP)), "only_after"),
        ((str(DUMP), str(text)), "only_before"),
    ):
        got = found(*sides)
        assert [(row["module"], row["equal"]) for row in got["pairs"]] == [("jit_normalize", True)]
        assert ["jit_smooth" in name for name in got[rest]] == [True]
        assert invoke("diff", *sides).exit_code == 1
    assert "only after: jit_smooth" in invoke("diff", str(text), str(DUMP)).stdout


def test_the_module_that_loses_most_is_first(tmp_path: Path) -> None:
    """With the kernel in which it does; many equal modules are one row, unless no time is predicted."""
    program = (
        "HloModule jit_{0}\n\nENTRY main {{\n  x = f32[{1},4096] parameter(0)\n"
        "  y = f32[{1},4096] exponential(x)\n{2}  ROOT z = f32[{1},4096] add({3}, x)\n}}\n"
    )
    turned = "  w = f32[4096,4096] transpose(y), dimensions={1,0}\n"
    for side in ("before", "after"):
        folder = tmp_path / side
        folder.mkdir()
        texts = [program.format(f"helper{n}", n + 1, "", "y") for n in range(9)]
        texts.append(
            program.format("step", 4096, *((turned, "w") if side == "after" else ("", "y")))
        )
        for number, text in enumerate(texts):
            name = text.split()[1]
            (folder / f"module_{number:04d}.{name}.before_optimizations.txt").write_text(text)
    words = [str(tmp_path / "before"), str(tmp_path / "after")]
    lines = invoke("diff", *words, "--target", "h200").stdout.splitlines()
    assert lines[1].startswith("jit_step")
    assert lines[2].startswith("9 modules")
    assert any(
        re.match(r"jit_step takes \S+ us longer, most of it in %w \(came\): ", line)
        for line in lines
    )
    assert "longer" not in invoke("diff", *words[::-1], "--target", "h200").stdout
    assert "longer" not in invoke("diff", *words).stdout


def test_stages_of_either_side() -> None:
    """``--stage`` twice compares before with after of one dump; once it is for both sides."""
    words = (str(DUMP), str(DUMP), "--stage", "before", "--stage", "after", "--target", "h200")
    got = found(*words)
    assert [row["module"] for row in got["pairs"]] == ["jit_smooth", "jit_normalize"]
    for row in got["pairs"]:
        assert "before_optimizations" in row["before_file"]
        assert "after_optimizations" in row["after_file"]
        assert row["after"]["kernels"] < row["before"]["kernels"]
    shown = invoke("diff", *words)
    assert shown.exit_code == 1
    kernels = [row["before"]["kernels"] for row in got["pairs"]]
    after = [row["after"]["kernels"] for row in got["pairs"]]
    assert f"{sum(kernels)} -> {sum(after)}" in shown.stdout
    assert found(str(DUMP), str(DUMP), "--stage", "after")["equal"]
    third = invoke("diff", *words, "--stage", "after")
    assert (third.exit_code, "may be given twice" in third.stderr) == (2, True)


def test_modules_whose_numbers_have_shifted(tmp_path: Path) -> None:
    """Equal ones belong together whatever they are called; then those of the same ops, though they differ."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()

    def put(folder: str, number: int, name: str, op: str, shape: str = "f32[8]") -> None:
        text = (
            f"HloModule {name}\nENTRY e {{\n  x = {shape} parameter(0)\n  ROOT y = {shape} {op}(x), "
            f'metadata={{op_name="jit({name})/{op}"}}\n}}\n'
        )
        (tmp_path / folder / f"module_{number:04d}.{name}.before_optimizations.txt").write_text(
            text
        )

    put("old", 1, "jit_f", "exponential")
    put("old", 2, "jit_g", "negate")
    put("old", 3, "jit_g", "abs")
    put("new", 4, "jit_g", "abs", "f32[16]")
    put("new", 5, "jit_g", "negate")
    put("new", 6, "jit_f", "exponential")
    got = found(str(tmp_path / "old"), str(tmp_path / "new"))
    numbers = [
        [row[side].split("module_")[1][:4] for side in ("before_file", "after_file")]
        for row in got["pairs"]
    ]
    assert numbers == [["0001", "0006"], ["0002", "0005"], ["0003", "0004"]]
    assert [row["equal"] for row in got["pairs"]] == [True, True, False]


def test_standard_input_is_read_once() -> None:
    """Both sides cannot be '-'."""
    result = invoke("diff", "-", "-", stdin=ONE)
    assert (result.exit_code, "only once" in result.stderr) == (2, True)


def test_a_side_that_cannot_be_read(files: tuple[str, str], tmp_path: Path) -> None:
    """The message has its place; nothing is compared."""
    broken = tmp_path / "broken.hlo"
    broken.write_text(ONE.replace("negate(x)", "negate(q)"))
    result = invoke("diff", files[0], str(broken))
    assert result.exit_code == 3
    assert result.stdout == ""
    assert result.stderr.startswith(f"{broken}:4:29: error:")


def test_many_groups_are_cut_and_all_of_them_shown_on_demand(tmp_path: Path) -> None:
    """Of a hundred new kernels the largest are listed, and every one with --all."""
    lines = "\n".join(
        f"  n{size} = f32[{size}] iota(), iota_dimension=0" for size in range(100, 200)
    )
    (tmp_path / "few.hlo").write_text(ONE)
    (tmp_path / "many.hlo").write_text(ONE.replace("  ROOT", f"{lines}\n  ROOT"))
    words = ("diff", str(tmp_path / "few.hlo"), str(tmp_path / "many.hlo"))
    cut, whole = invoke(*words).stdout, invoke(*words, "--all").stdout
    assert "and 75 groups whose bytes change less (--all)" in cut
    assert ("n199 " in cut, "n100 " in cut) == (True, False)
    assert all(f"n{size} " in whole for size in range(100, 200))
    assert "same" in whole
