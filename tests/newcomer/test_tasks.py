"""The forty tasks: each is typed as its page says, and some are run; ``make tasks`` runs all, in a new environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.newcomer.tasks import Task, problem, tasks

TASKS = tasks()
QUICK = [task for task in TASKS if task.type.startswith(("hloopt why --", "hloopt help", "hloopt hash", "hloopt diff", "head", "hloopt ls", "hloopt explain ranker", "hloopt optimize", "hloopt bisect"))]  # fmt: skip


def test_there_are_forty_and_none_twice() -> None:
    assert len({task.ask for task in TASKS}) == len({task.type for task in TASKS}) == 40
    assert len({task.page for task in TASKS}) >= 10
    assert all(task.shows for task in TASKS)


@pytest.mark.parametrize("task", TASKS, ids=[task.ask for task in TASKS])
def test_the_page_has_all_that_is_typed(task: Task) -> None:
    """A user who read nothing else could not have typed another option."""
    assert [word for word in sorted(task.words()) if word not in task.text] == []


@pytest.mark.parametrize("task", QUICK, ids=[task.ask for task in QUICK])
def test_a_task_succeeds(task: Task, programs: Path, tmp_path: Path) -> None:
    assert problem(task, programs, tmp_path / "programs") == ""


def test_a_task_that_shows_something_else_fails(programs: Path, tmp_path: Path) -> None:
    """So does one whose exit code is another."""
    task = Task("?", "README.md", "hloopt check entropy.hlo", ("entropy.hlo: ok",))
    assert problem(task, programs, tmp_path / "right") == ""
    for other in (
        Task("?", "README.md", task.type, ("entropy.hlo: wrong",)),
        Task("?", "README.md", task.type, task.shows, code=1),
    ):
        assert "exit 0" in problem(other, programs, tmp_path / str(other.code))
