"""The corpus by part, and what is asked of each part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.corpus.beside import FIGURES
from tests.corpus.emulated import EMULATED_STAGES
from tests.corpus.fusion_stages import (
    FUSED,
    LOG,
    PARTITION_STAGES,
    PIPELINE_STAGES,
    PREFUSION,
    REFUSED_STAGES,
    TIMES_STAGES,
)
from tests.corpus.loop_stages import LOOP_STAGES, has_loop
from tests.corpus.memory import LARGE
from tests.corpus.native_stages import NATIVE_STAGES
from tests.corpus.pipeline_beside import BEFORE, FINAL
from tests.corpus.records import WEAK, flags
from tests.corpus.stages import (
    GOLDEN_STAGES,
    READING_STAGES,
    REFUSAL_STAGES,
    RESULT_STAGES,
    TEXT_STAGES,
)

__all__ = [
    "COMPILED",
    "EMULATED",
    "NATIVE",
    "XLA_STAGES",
    "Task",
    "emulated_tasks",
    "native_tasks",
    "tasks",
]

COMPILED = "compiled"
XLA_STAGES = ("reread", "same", COMPILED)
EMULATED = "emulated."
NATIVE = "native."


@dataclass(frozen=True)
class Task:
    """A file of a part, and the stages it goes through.

    ``said`` is what XLA's parser says of a text that it refuses; ``others`` are the files it is held against.
    """

    part: str
    path: Path
    stages: tuple[str, ...]
    said: str = ""
    others: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """What the file is called in the part."""
        return self.path.name


def tasks(corpus: Path, xla: bool) -> list[Task]:
    """Everything to examine; ``xla`` adds the stages that ask XLA."""
    return [
        *_dumps(corpus, xla),
        *_fusion(corpus / "jax"),
        *_pipeline(corpus / "jax"),
        *_loops(corpus / "jax"),
        *_models(corpus, xla),
        *_tests(corpus, xla),
    ]


def emulated_tasks(corpus: Path) -> list[Task]:
    """The files whose kernels are executed: their parts are called as those they are from, with a prefix.

    Of XLA's own tests, which are of single ops mostly, the modules are run as they are only.
    """
    kept = {
        "jax.before": EMULATED_STAGES,
        "jax.h200": EMULATED_STAGES,
        "xla-golden": EMULATED_STAGES[: len(EMULATED_STAGES) // 2],
    }
    return [
        replace(task, part=EMULATED + task.part, stages=kept[task.part])
        for task in tasks(corpus, xla=False)
        if task.part in kept
    ]


def native_tasks(corpus: Path) -> list[Task]:
    """The files that are compiled for the host's processor: whatever can be run, with recorded results or without.

    What is recorded for a text is asked once.
    """
    kept = ("jax.before", "jax.after", "jax.h200", "xla-golden", "xla-golden.weak", "xla-tests")
    found: dict[Path, Task] = {}
    for task in tasks(corpus, xla=False):
        if task.part in kept:
            found[task.path] = replace(task, part=NATIVE + task.part, stages=NATIVE_STAGES)
    return list(found.values())


def _dumps(corpus: Path, xla: bool) -> Iterator[Task]:
    for stage in ("before", "after", "h200", "prefusion", "fused"):
        recorded = RESULT_STAGES if stage in ("before", "after", "h200") else ()
        for path in sorted((corpus / "jax").glob(f"*.{stage}.hlo")):
            stages = TEXT_STAGES + recorded
            if stage == "before":
                stages += ("alone", *_before(path, xla))
            yield Task(f"jax.{stage}", path, _stages(path, stages, xla))


def _fusion(folder: Path) -> Iterator[Task]:
    """What XLA's fusion did for an H200: its log's times and verdicts, and the module it left."""
    for before in sorted(folder.glob(f"*{PREFUSION}")):
        stem = before.name.removesuffix(PREFUSION)
        log, after = (before.with_name(f"{stem}{end}") for end in (LOG, FUSED))
        if log.exists():
            yield Task("fusion.times", log, TIMES_STAGES)
            yield Task("fusion.refusals", log, REFUSED_STAGES, others=(before,))
        if after.exists():
            yield Task("fusion.partition", before, PARTITION_STAGES, others=(after,))


def _pipeline(folder: Path) -> Iterator[Task]:
    """What a user has of a program, and what XLA made of it in the end."""
    for final in sorted(folder.glob(f"*{FINAL}")):
        before = final.with_name(f"{final.name.removesuffix(FINAL)}{BEFORE}")
        yield Task("fusion.pipeline", before, PIPELINE_STAGES, others=(final,))


def _loops(folder: Path) -> Iterator[Task]:
    """What XLA was given that has loops."""
    for path in sorted(folder.glob("*.before.hlo")):
        if has_loop(path):
            yield Task("loops", path, LOOP_STAGES)


def _before(path: Path, xla: bool) -> tuple[str, ...]:
    stem = path.name.removesuffix(".before.hlo")
    beside = path.with_name(f"{stem}.prefusion.hlo").exists()
    recorded = path.with_name(f"{stem}.npz").exists()
    return (FIGURES if beside else ()) + ((COMPILED,) if xla and recorded else ())


def _models(corpus: Path, xla: bool) -> Iterator[Task]:
    for path in sorted((corpus / "models").glob("*.hlo")):
        yield Task("models", path, _stages(path, TEXT_STAGES, xla))


def _stages(path: Path, stages: tuple[str, ...], xla: bool) -> tuple[str, ...]:
    measured = ("memory",) if path.stat().st_size >= LARGE else ()
    return stages + (("reread", "same") if xla else ()) + measured


def _tests(corpus: Path, xla: bool) -> Iterator[Task]:
    """The texts of XLA's own tests; those that its parser refuses for their syntax are a part of their own.

    A text that is refused for another reason, or that ends XLA's process, says nothing about ours.
    """
    folder = corpus / "xla-tests"
    texts = {path.stem: path for path in folder.rglob("*.hlo")}
    with (folder / "index.jsonl").open() as index:
        rows = sorted(map(json.loads, index), key=lambda row: str(row["id"]))
    for row in rows:
        path = texts.get(row["id"])
        if path is None:
            continue
        if row["accepted"] is True:
            yield Task("xla-tests", path, _stages(path, READING_STAGES, xla))
            if row.get("golden"):
                weak = flags(folder / "golden" / f"{path.stem}.json") & WEAK
                part = "xla-golden.weak" if weak else "xla-golden"
                yield Task(part, path, GOLDEN_STAGES)
        elif row["accepted"] is False and "was parsing" in (said := _said(row["error"])):
            yield Task("xla-tests.refused", path, REFUSAL_STAGES, said)


def _said(error: str | list[str]) -> str:
    return error if isinstance(error, str) else "\n".join(error)
