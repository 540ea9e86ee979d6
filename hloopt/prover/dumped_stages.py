"""The stages of a dump's module: which pass made each, who wrote them, and reading one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.dumps import OWN, DumpModule, Stage
from hloopt.errors import EvaluationError, HlooptError, UnsupportedError, UsageError
from hloopt.interpret import participant_counts
from hloopt.interpret.partitioning import is_partitioned
from hloopt.ir import Module
from hloopt.proto import read_snapshot
from hloopt.proto.snapshot import Snapshot
from hloopt.prover.pass_classes import Compiler
from hloopt.reading import bytes_of, read_file
from hloopt.verifier import verify_module

__all__ = [
    "DumpStage",
    "compiler_of",
    "is_about_running",
    "read_stage",
    "snapshot_of",
    "stages_of",
    "starts_whole",
]

_PASS: Final = re.compile(r"\d+\.(?P<pipeline>[^.]+)\.after_(?P<name>.+)\.before_.+")
_STEP: Final = re.compile(r"\d+\.(?P<name>[^.]+)\.(?P<step>.+)")
_START: Final = "pipeline-start"
_PARTITIONERS: Final = frozenset({"spmd-partitioning", "spmd-partitioner"})


@dataclass(frozen=True)
class DumpStage:
    """A stage of a dump.

    label      what its file is called, without the module's name and the format
    pass_name  the pass that made it; empty for the first, the last and the start of a pipeline
    pipeline   the pipeline that the pass belongs to
    file       the text or the protocol buffer; ``twin`` is a protocol buffer of the same stage
    """

    label: str
    pass_name: str
    pipeline: str
    file: Path
    twin: Path | None = None


def stages_of(module: DumpModule, picked: Sequence[Stage] | None = None) -> list[DumpStage]:
    """The stages of a module, or those ``picked``, in the order of compilation.

    Those whose place in it is not known are left out, and what the frontend wrote before any pass (StableHLO).
    """
    stages = module.stages if picked is None else picked
    return [
        _stage_of(stage)
        for stage in stages
        if stage.kind in ("before", "pass", "after") and (stage.file("text") or stage.file("proto"))
    ]


def snapshot_of(module: DumpModule) -> Snapshot | None:
    """The first snapshot of a module's runs in its dump.  Raises ``ParseError`` for one that is damaged."""
    for stage in module.stages:
        file = stage.file("snapshot")
        if file is not None:
            return read_snapshot(bytes_of(file.path), str(file.path))
    return None


def _stage_of(stage: Stage) -> DumpStage:
    text, proto = stage.file("text"), stage.file("proto")
    file = text or proto
    assert file is not None, "a stage has a file"
    match = _PASS.fullmatch(stage.label) or _STEP.fullmatch(stage.label)
    name = match["name"] if match and stage.kind == "pass" else ""
    pipeline = match.groupdict().get("pipeline", "") if match else ""
    twin = proto.path if proto is not None and proto is not file else None
    return DumpStage(stage.label, "" if name == _START else name, pipeline, file.path, twin)


def compiler_of(stages: Sequence[DumpStage]) -> Compiler:
    """Who wrote a dump, by what its pipelines are called."""
    pipelines = {stage.pipeline for stage in stages if stage.pipeline}
    ours = pipelines and all(pipeline.startswith(OWN) for pipeline in pipelines)
    return "hloopt" if ours else "xla"


def read_stage(stage: DumpStage) -> Module:
    """The module of a stage, verified.

    Raises ``ParseError``, ``VerifyError``, and ``UsageError`` where the file cannot be read.
    """
    module = read_file(stage.file, stage.twin).module
    verify_module(module)
    return module


def starts_whole(stages: Sequence[DumpStage], first: Module) -> bool:
    """Whether ``first``, of the first stage, is for whole arrays and a later stage for their parts.

    Where no stage is the partitioner's, the last one that can be read decides by its shapes.
    """
    if participant_counts(first)[1] == 1 or _is_partitioner(stages[0]):
        return False
    if any(_is_partitioner(stage) for stage in stages[1:]):
        return True
    for stage in reversed(stages[1:]):
        try:
            return is_partitioned(first, read_stage(stage))
        except HlooptError:
            continue
    return False


def _is_partitioner(stage: DumpStage) -> bool:
    return stage.pass_name in _PARTITIONERS or stage.pipeline == "spmd-cleanup"


def is_about_running(error: HlooptError) -> bool:
    """Whether a stage can be read, but not run on the inputs."""
    return isinstance(error, UnsupportedError | EvaluationError | UsageError)
