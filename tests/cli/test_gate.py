"""``hloopt gate``: which modules it judges beside which, what it writes, and the action that calls it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import hloopt
from tests.helpers.support import invoke

ROOT = Path(__file__).parents[2]
DUMP = ROOT / "samples" / "dump"

CHAIN = """HloModule {name}
ENTRY e {{
  x = f32[{size}] parameter(0)
  y = f32[{size}] negate(x)
  ROOT z = f32[{size}] exponential(y), metadata={{op_name="exp" source_file="f.py" source_line=7}}
}}
"""


def chain(name: str = "step", size: int = 1000, *, more: bool = False) -> str:
    text = CHAIN.format(name=name, size=size)
    if more:
        text = text.replace("ROOT z", "z").replace(
            "\n}",
            f'\n  ROOT w = f32[{size}] sine(z), metadata={{source_file="f.py" source_line=9}}\n}}',
        )
    return text


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Two modules of one name on either side; the second grew."""
    for side, more in (("base", False), ("head", True)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "a.hlo").write_text(chain())
        (tmp_path / side / "b.hlo").write_text(chain(size=4000, more=more))
    return tmp_path / "base", tmp_path / "head"


def gated(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke("gate", *map(str, words), "--json").stdout)
    return found


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        ("kernels<=3", 0), ("kernels<=2", 6), ("kernels<=+1", 0), ("kernels<=+0", 6), ("time<=+0", 6),
        ("time<=1ms", 0), ("flops<=+4k", 0), ("peak<=32000", 0), ("peak<=31999", 6), ("peak<=+0%", 0),
    ],
)  # fmt: skip
def test_exit_codes(sides: tuple[Path, Path], limits: str, code: int) -> None:
    """6 when a limit is exceeded, 0 otherwise, in JSON as in tables."""
    for words in ((), ("--json",)):
        files = [str(side / "b.hlo") for side in sides]
        assert invoke("gate", *files, "--max", limits, "--target", "h200", *words).exit_code == code


def test_modules_of_directories_belong_together_by_their_files(sides: tuple[Path, Path]) -> None:
    """Each is judged by itself: what one saves does not pay for another."""
    base, head = sides
    (head / "a.hlo").write_text("HloModule step\nENTRY e {\n  ROOT x = f32[1000] parameter(0)\n}\n")
    found = gated(*sides, "--max", "kernels<=+0")
    rows = {Path(row["head_file"]).name: row for row in found["modules"]}
    assert [rows[name]["gates"][0]["passed"] for name in ("a.hlo", "b.hlo")] == [True, False]
    (costly,) = rows["b.hlo"]["costlier"]["kernels"]
    assert (costly["kernel"], costly["line"], costly["lines"]) == ("w", 6, ["f.py:9"])
    (total,) = gated(*sides, "--max", "kernels<=+0", "--total")["modules"]
    assert (total["before"]["kernels"], total["after"]["kernels"]) == (4, 3)
    assert total["gates"][0]["passed"]
    assert found == {
        "schema": 1,
        "command": "gate",
        **hloopt.gate(base, head, "kernels<=+0").to_json(),
    }


def test_new_and_removed_modules(sides: tuple[Path, Path]) -> None:
    """A new one has nothing that a relative limit could be relative to."""
    base, head = sides
    (base / "b.hlo").unlink()
    (head / "a.hlo").unlink()
    (head / "b.hlo").write_text(chain("another", more=True).replace('"exp"', '"log"'))
    (head / "c.hlo").write_text(chain("other", 8, more=True).replace('exp"', 'log"'))
    assert gated(base, head, "--max", "kernels<=+0")["passed"]
    found = gated(base, head, "--max", "kernels<=+0,kernels<=2")
    assert [(row["base_file"], len(row["gates"])) for row in found["modules"]] == [(None, 1)] * 2
    assert found["gone"] == [str(base / "a.hlo")]
    assert "new" in invoke("gate", str(base), str(head), "--max", "kernels<=2").stdout


def test_times_are_predicted_without_a_target(sides: tuple[Path, Path]) -> None:
    """For the device that other commands take, too, which is said."""
    result = invoke("gate", *map(str, sides), "--max", "time<=+0", "--json")
    assert "note: times are predicted for h200; --target names another" in result.stderr
    named = gated(*map(str, sides), "--max", "time<=+0", "--target", "h200")
    assert json.loads(result.stdout)["modules"] == named["modules"]
    assert hloopt.gate(*sides, "time<=+0").to_json()["modules"] == named["modules"]


def test_a_dump_is_judged_as_it_was_compiled(tmp_path: Path) -> None:
    """The stage after optimisation, unless another is asked for or there is none."""
    words = (DUMP, DUMP, "--max", "kernels<=+0")
    assert all("after_optimizations" in row["head_file"] for row in gated(*words)["modules"])
    for path in Path(DUMP).glob("*before_optimizations.txt"):
        (tmp_path / path.name).write_text(path.read_text())
    given = gated(str(tmp_path), str(tmp_path), "--max", "kernels<=+0")
    assert len(given["modules"]) == 2
    assert all("before_optimizations" in row["head_file"] for row in given["modules"])
    turned = gated(*words, "--stage", "after", "--stage", "before")
    assert not turned["passed"]
    assert all("before_optimizations" in row["head_file"] for row in turned["modules"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--max", "kernels<=1", "--cost-model", "roofline"), "it needs --target DEVICE"),
        (
            ("--max", "kernels<=1", "-o", "gate.txt"),
            "-o gate.txt: the name must end with one of .md, ",
        ),
        ((), "Missing option '--max'"),
    ],
)
def test_usage_errors(sides: tuple[Path, Path], words: tuple[str, ...], message: str) -> None:
    result = invoke("gate", *map(str, sides), *words)
    assert (result.exit_code, message in result.stderr) == (2, True)


def test_reports_for_hosts(sides: tuple[Path, Path], tmp_path: Path) -> None:
    """Markdown keeps a module's own marks from being any; SARIF has places in the text."""
    text = chain(size=4000, more=True).replace('"f.py"', '"<img src=x>|`_f_`.py"')
    (sides[1] / "b.hlo").write_text(text)
    outputs = [tmp_path / f"out.{end}" for end in ("md", "sarif", "json")]
    words = [word for path in outputs for word in ("-o", str(path))]
    assert invoke("gate", *map(str, sides), "--max", "kernels<=+0", *words).exit_code == 6
    summary, sarif, as_json = (path.read_text() for path in outputs)
    assert "| step | kernels\\<=\\+0 | 2 | 3 | 2 | EXCEEDED |" in summary
    assert "sine, \\<img src=x\\>\\|\\`\\_f\\_\\`.py:9" in summary
    (result,) = json.loads(sarif)["runs"][0]["results"]
    assert result["message"]["text"] == "step: kernels 2 -> 3, at most 2 (kernels<=+0)"
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 6}
    assert result["relatedLocations"][0]["message"]["text"].startswith("+1  %w (came): sine")
    assert json.loads(as_json) == gated(*sides, "--max", "kernels<=+0")


def test_a_summary_stays_below_what_a_host_takes(tmp_path: Path) -> None:
    """GitHub drops a summary of more than 1 MiB."""
    for side, more in (("base", False), ("head", True)):
        (tmp_path / side).mkdir()
        for number in range(510):
            text = chain(f"step{number}", 4, more=more)
            (tmp_path / side / f"{number}.hlo").write_text(text)
    found = hloopt.gate(tmp_path / "base", tmp_path / "head", "kernels<=+0")
    summary = found.markdown()
    assert "510 of 510 modules exceed a limit" in summary
    assert "and 10 rows more" in summary
    assert len(summary.encode()) < 1 << 17


def test_the_action(sides: tuple[Path, Path], tmp_path: Path) -> None:
    """Its last step, as a workflow runs it: summary, outputs and exit code, whatever the names hold."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    install, step = action["runs"]["steps"]
    assert install["run"] == 'python -m pip install "$GITHUB_ACTION_PATH"'
    assert "${{" not in step["run"], "an input in the script's text would be run"
    head = sides[1].rename(tmp_path / "my head; touch run")
    given = {"base": str(sides[0]), "head": str(head)}

    def run(limits: str) -> tuple[int, str, dict[str, str]]:
        given["max"] = limits
        inputs = {
            name: given.get(name, row.get("default")) for name, row in action["inputs"].items()
        }
        env = {
            name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: inputs[found[1]], value)
            for name, value in step["env"].items()
        }
        files = {
            "GITHUB_STEP_SUMMARY": "summary",
            "GITHUB_OUTPUT": "outputs",
            "RUNNER_TEMP": "temp",
        }
        (tmp_path / "temp").mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env |= {name: str(tmp_path / file) for name, file in files.items()} | {"PATH": path}
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        code = subprocess.run(
            shell, env=env, cwd=tmp_path, capture_output=True, check=False
        ).returncode
        rows = (tmp_path / "outputs").read_text().splitlines()
        return code, (tmp_path / "summary").read_text(), dict(row.split("=", 1) for row in rows)

    code, summary, outputs = run("kernels<=+0")
    assert (code, outputs["passed"]) == (6, "false")
    assert "1 of 2 modules exceeds a limit" in summary
    assert json.loads(Path(outputs["sarif"]).read_text())["runs"][0]["results"]
    code, summary, outputs = run("kernels<=+1")
    assert (code, outputs["passed"]) == (0, "true")
    assert summary.count("### hloopt gate") == 2
    assert not (tmp_path / "run").exists()


def test_the_hook_of_pre_commit(sides: tuple[Path, Path]) -> None:
    """What it calls passes good files and fails at bad ones."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert re.search(hook["files"], "a/b.hlo")
    words = hook["entry"].split()[1:]
    files = [str(path) for side in sides for path in side.iterdir()]
    assert invoke(*words, *files).exit_code == 0
    (sides[0] / "a.hlo").write_text(chain().replace("negate(x)", "negate(q)"))
    assert invoke(*words, *files).exit_code == 3
