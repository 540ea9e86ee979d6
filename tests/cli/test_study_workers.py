"""``hloopt study --workers``: real processes that are killed, a run that goes on, files that are refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from hloopt.cli import study_cells, study_worker
from hloopt.workers.pool import answers
from hloopt.workers.records import NoAnswer, TaskAnswer, WorkerFunction, WorkerTask
from tests.helpers.rarely import one_in
from tests.helpers.support import invoke

Answers: TypeAlias = Iterator[TaskAnswer]

MODULE = """HloModule m

ENTRY main {
  x = f32[64] parameter(0)
  a = f32[64] NAME(x)
  b = f32[64] NAME(x)
  ROOT sum = f32[64] add(a, b)
}
"""
OPS = ("exponential", "tanh", "negate", "cosine", "sine", "abs")
WORDS = ("--strategy", "O0", "--strategy", "O2", "--device", "h200", "--cells", "cells.jsonl")
TROUBLE = '''
import os
import time
from dataclasses import dataclass
from typing import ClassVar

from hloopt import Module, Pass, PassLog


@dataclass(frozen=True)
class Trouble(Pass):
    """Do what a defect may."""

    name: ClassVar[str] = "trouble"
    how: str = "wait"

    def run(self, module: Module, log: PassLog) -> bool:
        if self.how == "wait":
            time.sleep(60)
        elif self.how == "crash":
            os.abort()
        else:
            os._exit(3)
        return False
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to be in, with six modules."""
    for op in OPS:
        (tmp_path / f"{op}.hlo").write_text(MODULE.replace("NAME", op))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def study(*words: str, code: int = 0) -> dict[str, Any]:
    """What the command says as JSON."""
    result = invoke("study", *words, "--json")
    assert result.exit_code == code, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def lines() -> list[dict[str, Any]]:
    """The rows of the file of cells."""
    return [json.loads(line) for line in Path("cells.jsonl").read_text().splitlines()[1:]]


def complete(found: dict[str, Any]) -> None:
    """Every module by every strategy, once, all verified; and the file has the same."""
    names = [(cell["module"], cell["strategy"]) for cell in found["cells"]]
    assert names == [(op, level) for op in OPS for level in ("O0", "O2")]
    assert {cell["results"] for cell in found["cells"]} == {"equal"}
    kept = [(row["row"]["cell"]["module"], row["row"]["cell"]["strategy"]) for row in lines()]
    assert sorted(kept) == sorted(names)


def test_a_sweep_loses_nothing_when_workers_and_the_run_are_killed(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two workers, then the whole run in the middle of a line; the next run makes the rest."""
    files = [f"{op}.hlo" for op in OPS]
    command = [sys.executable, "-m", "hloopt", "study", *files, *WORDS, "--workers", "2", "--json"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as run:
        wait_for(run, 2)
        os.kill(children(run.pid)[0], signal.SIGKILL)
        wait_for(run, 6)
        run.kill()
    path = Path("cells.jsonl")
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rfind(b"\n") - 9])
    before = len(whole.splitlines()) - 2
    made: list[str] = []

    def counting(*given: Any, **more: Any) -> Iterator[Any]:
        for answer in answers(*given, **more):
            made.append(answer.task.key)
            yield answer

    monkeypatch.setattr("hloopt.workers.pool.answers", counting)
    found = study(*files, *WORDS, "--workers", "1")
    assert len(made) == 12 - before
    complete(found)
    assert study(*files, *WORDS) == found, "nothing is left to be made, here or by workers"
    alone = study(*files, *WORDS[:-2])
    assert found["cells"] == alone["cells"]


def wait_for(run: subprocess.Popen[bytes], count: int) -> None:
    """Until so many rows are in the file."""
    path, end = Path("cells.jsonl"), time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") <= count:
        assert run.poll() is None
        assert time.monotonic() < end
        time.sleep(0.01)


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    found = [int(word) for word in text.split()]
    if not found:  # those that threads have started are theirs
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
    return found


@pytest.mark.parametrize(
    ("how", "problem", "code"),
    one_in(
        3,
        [
            ("crash", "the process died of SIGABRT", 5),
            ("exit", "the process died with exit code 3", 5),
            ("wait", "no answer in time (8 s)", 4),
        ],
    ),
)
def test_a_worker_that_fails_names_its_cell(here: Path, how: str, problem: str, code: int) -> None:
    """However it ends; the others are made."""
    (here / "trouble.py").write_text(TROUBLE)
    words = ["tanh.hlo", "--pass-file", "trouble.py", "--strategy", "O0", "--no-verify"]
    words += ["--strategy", f"bad=trouble{{how={how}}}", "--device", "h200", "--timeout", "8"]
    found = study(*words, code=code)
    problems = {cell["strategy"]: cell["problem"] for cell in found["cells"]}
    assert problems == {"O0": None, "bad": problem}


def by_hand(function: WorkerFunction, tasks: Sequence[WorkerTask], *_: object) -> Answers:
    """What workers do, in this process, whose folder may not change."""
    answer = study_worker.prepared(json.loads(json.dumps(function.setup)))
    for task in tasks:
        yield TaskAnswer(task, answer(json.loads(json.dumps(task.payload))))


def test_a_cell_whose_worker_failed_is_made_again(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a run goes on; what is made stays."""

    def killed(*given: Any) -> Answers:
        for number, answer in enumerate(by_hand(*given)):
            failure = NoAnswer("the process died of SIGKILL") if number == 1 else None
            yield TaskAnswer(answer.task, answer.value, failure)

    monkeypatch.setattr(study_cells, "spread", killed)
    words = ("tanh.hlo", "--device", "h200", "--cells", "cells.jsonl")
    result = invoke("study", *words, "--workers", "2")
    assert result.exit_code == 5
    assert "failed: tanh: O1 for h200: the process died of SIGKILL" in result.stdout + result.stderr
    assert [row["row"]["again"] for row in lines()] == [False, True, False, False]
    found = study(*words)
    assert {cell["results"] for cell in found["cells"]} == {"equal"}
    assert [row["row"]["cell"]["strategy"] for row in lines()] == ["O0", "O1", "O2", "O3", "O1"]


def test_what_cannot_be_workers_is_refused(here: Path) -> None:
    """A number that is none, a scheme that is unknown."""
    for value, told in (("0", "not '0'"), ("ray://h:10001", "not 'ray://h:10001'")):
        result = invoke("study", "tanh.hlo", "--workers", value)
        assert result.exit_code == 2
        assert f"--workers takes a number from 1, or dask://HOST:PORT, {told}" in result.stderr


def test_cells_of_another_study_are_refused(here: Path) -> None:
    """With what is different; more modules, strategies and devices are added to the same file."""
    words = ("--device", "h200", "--cells", "cells.jsonl", "--strategy", "O0")
    assert len(study("tanh.hlo", *words)["cells"]) == 1
    assert len(study("tanh.hlo", "abs.hlo", *words, "--strategy", "O2")["cells"]) == 4
    assert len(lines()) == 4
    (here / "abs.hlo").write_text(MODULE.replace("NAME", "sqrt"))
    study("abs.hlo", *words)
    assert len(lines()) == 5, "of another text it is another cell"
    result = invoke("study", "tanh.hlo", *words, "--seed", "3")
    assert result.exit_code == 2
    assert "made otherwise: --seed was not given and is 3" in result.stderr
    Path("notes.jsonl").write_text("{}\n")
    result = invoke("study", "tanh.hlo", "--cells", "notes.jsonl")
    assert (result.exit_code, Path("notes.jsonl").read_text()) == (2, "{}\n")
    assert "notes.jsonl holds no rows of hloopt" in result.stderr


def test_a_pass_file_that_has_changed_is_another_study(here: Path) -> None:
    """What the cells would be then is not what they are."""
    (here / "trouble.py").write_text(TROUBLE)
    words = ("tanh.hlo", "--pass-file", "trouble.py", "--device", "h200", "--cells", "cells.jsonl")
    study(*words, "--strategy", "O0")
    (here / "trouble.py").write_text(TROUBLE + "\n")
    result = invoke("study", *words, "--strategy", "O0")
    assert result.exit_code == 2
    assert "made otherwise: --pass-file trouble.py was of content" in result.stderr


def made_cells(*words: str) -> list[dict[str, Any]]:
    """The cells without their times, which differ from run to run."""
    found = study(*words, code=4)["cells"]
    times = ("measured", "over_baseline", "over_baseline_clear", "bought", "bought_clear")
    return [{key: one for key, one in cell.items() if key not in times} for cell in found]


def test_what_workers_make_is_what_is_made_here(here: Path) -> None:
    """Arrays in an .npz and in a snapshot are compared, an error has its place in the file, and files are the
    same; a run that goes on knows them, and makes again what is gone."""
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    np.savez("tanh.npz", in_0=x, out_0=2 * np.tanh(x))
    made = invoke("run", "abs.hlo", "--save", "snapshot.pb")
    assert made.exit_code == 0, made.stderr
    call = 'custom-call(a, b), custom_call_target="no"'
    odd = MODULE.replace("NAME", "tanh").replace("add(a, b)", call)
    Path("odd.hlo").write_text(f"\n\n{odd}")
    words = ("tanh.hlo", "snapshot.pb", "odd.hlo", "--strategy", "O2", "--repeat", "1")
    words += ("--device", "h200", "--device", "cpu")
    alone = made_cells(*words, "--out", "alone")
    cells = made_cells(*words, "--out", "kept", "--workers", "1", "--cells", "cells.jsonl")
    assert cells == alone
    for cell in cells[:4]:
        assert cell["checked"]["against"] == ["interpreter", "recorded results"]
    assert cells[-1]["problem"].startswith("odd.hlo:9:")

    def texts(folder: str) -> dict[str, str]:
        found = Path(folder)
        return {str(path.relative_to(found)): path.read_text() for path in found.rglob("*.*")}

    assert texts("alone") == texts("kept")
    gone = Path("kept/tanh/O2.hlo")
    gone.unlink()
    study(*words, "--out", "kept", "--html", "page.html", "--cells", "cells.jsonl", code=4)
    assert texts("alone") == texts("kept")
    assert gone.as_posix() in Path("page.html").read_text()


def test_the_file_of_a_strategy_may_not_change_meanwhile(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that reads another study file than the run began with says so."""
    text = '[[strategy]]\nname = "s"\npasses = "O1"\n'
    (here / "s.toml").write_text(text)

    def changed(*given: Any) -> Answers:
        (here / "s.toml").write_text(text.replace("O1", "O2"))
        yield from by_hand(*given)

    monkeypatch.setattr(study_cells, "spread", changed)
    words = ("tanh.hlo", "--strategies", "s.toml", "--device", "h200", "--workers", "1")
    result = invoke("study", *words)
    assert result.exit_code == 2
    assert "the files of strategy 's' have changed" in result.stderr


def test_ctrl_c_leaves_a_file_from_which_the_next_run_goes_on(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was made is shown, what was not is marked."""

    def interrupted(*given: Any) -> Answers:
        for number, answer in enumerate(by_hand(*given)):
            if number == 3:
                raise KeyboardInterrupt
            yield answer

    monkeypatch.setattr(study_cells, "spread", interrupted)
    words = ("tanh.hlo", "abs.hlo", "--device", "h200", "--cells", "cells.jsonl")
    result = invoke("study", *words, "--workers", "1", "--json")
    assert result.exit_code == 130
    assert "interrupted: 3 of 8 cells are done" in result.stderr
    assert "the same command goes on from cells.jsonl" in result.stderr
    assert len(lines()) == 3
    assert {cell["results"] for cell in study(*words)["cells"]} == {"equal"}
    assert len(lines()) == 8
