"""Dump directories of XLA: which modules are in them, in which stages, and what else there is.

XLA calls a file ``[TIMESTAMP.]module_NUMBER.NAME.REST``.  For a module, REST is one of

    before_optimizations                            as the frontend made it
    0007.PIPELINE.after_PASS.before_PASS            between two passes (--xla_dump_hlo_pass_re)
    0007.PASS.STEP                                  within a pass
    TARGET_after_optimizations                      TARGET is cpu, gpu, sm_9.0_gpu, gfx942_gpu or nothing
    execution_0000.hlo_snapshot, snapshot.NUMBER    with the inputs and results of one run

and ``.txt``, ``.hlo.pb`` or ``.pb``, each perhaps with ``.gz``.  ``module_NUMBER.NAME/module.mlir`` is the
frontend's program, which stands for the module where there is nothing else of it.  Names of modules hold dots
and numbers, so the ends of names decide; a file with any other end (a report, LLVM IR, whatever a later version
adds) belongs to the module whose name it begins with.  Files that are not called so are modules by their
content.
"""

from __future__ import annotations

import re

from hloopt.dataclass import dataclass

__all__ = ["OWN", "DumpName", "parse_name", "planned_elsewhere", "side_kind", "stage_maker"]

OWN = "hloopt-"
"""How the pipelines are called of stages that hloopt dumps."""


_NUMBERED = re.compile(
    r"(?:(?P<prefix>.+?)\.)?module_(?P<number>\d+)(?:\.(?P<rest>.+))?", re.DOTALL
)
_FORMATS = (
    (".hlo_snapshot.pb", "snapshot"),
    (".hlo_unoptimized_snapshot.pb", "snapshot"),
    (".hlo.pb", "proto"),
    (".hlo", "text"),
    (".txt", "text"),
    (".pb", "proto"),
)
_SNAPSHOT = r"(?P<label>execution_\d+|snapshot\.-?\d+)"
_AFTER = r"(?:sm_\d+\.)?(?:[^.]+_)?after_optimizations"
# Kinds of stages, and the ends that name them: the first that fits.  The number of a pass is the last that
# the end leaves, for the name of a module may hold such numbers as well.
_STAGES = tuple(
    (kind, re.compile(rf"(?:(?P<name>{name})\.)?{end}", re.DOTALL))
    for kind, name, end in (
        ("pass", ".+", r"(?P<label>(?P<step>\d{4,})\.[^.]+\.after_.+\.before_.+)"),
        ("before", ".+", r"(?P<label>before_optimizations)"),
        ("after", ".+?", rf"(?P<label>{_AFTER})"),
        ("other", ".+?", rf"(?P<label>{_AFTER}_\w+)"),
        ("snapshot", ".+", _SNAPSHOT),
        ("pass", ".+", r"(?P<label>(?P<step>\d{4})\.[^.]+\.[^.]+)"),
    )
)
_MADE = re.compile(
    r"\d{4,}\.(?P<pipeline>[^.]+)\.(?:after_(?P<made>.+?)(?:\.before_.+)?|.+)", re.DOTALL
)
_START = "pipeline-start"
# TPU compilers put the number of a change of their own sources between name and stage.
_CHANGE = re.compile(r"(?:^|\.)cl_\d+$")

# What else is in a dump, by the end of its name (without .gz).
_KINDS = tuple(
    (re.compile(rf"(?:{end})\Z"), kind)
    for end, kind in (
        (r"-buffer-assignment(-values)?\.(txt|pb)", "buffer assignment"),
        (r"-memory-usage-report\.(txt|pb)", "memory usage"),
        (r"-live-range\.txt", "live ranges"),
        (r"\.?priority_fusion_dump\.txt", "fusion log"),
        (r"\.thunk_\w+\.\w+", "thunks"),
        (r"(_options|tpu_comp_env|flagfile)(\.\w+)?", "options"),
        (r"\.autotun\w*\.\w+", "autotuning"),
        (r"\.(html|dot|svg|url)", "graphs"),
        (r"\.(ll|bc)", "LLVM IR"),
        (r"\.mlir", "MLIR"),
        (r"\.ptx", "PTX"),
        (r"\.(cubin|hsaco|fatbin)", "device code"),
        (r"\.o", "object code"),
        (r"\.(s|asm)", "assembly"),
        (r"\.(textproto|pbtxt)", "protos as text"),
    )
)


@dataclass(frozen=True, slots=True)
class DumpName:
    """What a file's name says.

    ``kind`` is that of a stage, or empty; ``label`` what stands between the module's name and the format.
    Without a stage ``name`` has all of it.  ``format`` is text, proto, snapshot, or empty for what holds no
    module; ``prefix`` is the timestamp, or whatever else precedes ``module_``.
    """

    prefix: str
    number: int | None
    name: str
    kind: str = ""
    label: str = ""
    step: int = -1
    format: str = ""


def planned_elsewhere(label: str, target_kind: str) -> str:
    """CPU or GPU, where a final module's label names that and the target is of the other kind; else empty."""
    found = re.match(r"(?P<cpu>cpu_)|(?:sm_\d|gfx\d|gpu_|cuda_|rocm_)", label)
    if found is None or bool(found["cpu"]) == (target_kind == "cpu"):
        return ""
    return "CPU" if found["cpu"] else "GPU"


def parse_name(file_name: str) -> DumpName:
    """What a file's name says."""
    plain = file_name.removesuffix(".gz")
    suffix, format = next(
        (row for row in _FORMATS if plain.endswith(row[0]) and plain != row[0]), ("", "")
    )
    match = _NUMBERED.fullmatch(plain.removesuffix(suffix))
    prefix, number, rest = "", None, plain.removesuffix(suffix)
    if match:
        prefix, number, rest = match["prefix"] or "", int(match["number"]), match["rest"] or ""
    if not format or side_kind(plain):
        return DumpName(prefix, number, rest)
    for kind, end in _STAGES:
        staged = end.fullmatch(rest)
        if staged and (kind == "snapshot") <= (format != "text"):
            name = _CHANGE.sub("", staged["name"] or "")
            step = int(staged["step"]) if kind == "pass" else -1
            format = "snapshot" if kind == "snapshot" else format
            return DumpName(prefix, number, name, kind, staged["label"], step, format)
    return DumpName(prefix, number, rest, format=format)


def stage_maker(label: str) -> tuple[str, str]:
    """The pipeline and the pass that made a stage, by its label; empty where that names none.

    No pass is named where XLA wrote the module at the start of a pipeline.
    """
    found = _MADE.fullmatch(label)
    if found is None:
        return "", ""
    made = found["made"] or ""
    return found["pipeline"], "" if made == _START else made


def side_kind(file_name: str) -> str:
    """The kind of a file that holds no module, by its name; empty where that does not say."""
    plain = file_name.removesuffix(".gz")
    return next((kind for end, kind in _KINDS if end.search(plain)), "")
