"""Dump directories: what names of files tell, which modules and stages a directory holds, what is picked."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

import hloopt
from hloopt.dumps import (
    DumpModule,
    DumpName,
    Stage,
    counts,
    gunzip,
    matching_modules,
    matching_stages,
    parse_name,
    pick,
    planned_elsewhere,
    read_dump,
)
from hloopt.dumps.names import side_kind
from hloopt.errors import UsageError
from tests.helpers.support import invoke

TEXT = "HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] negate(x)\n}\n"

NAMES = {
    "module_0001.jit_f.before_optimizations.txt": DumpName(
        "", 1, "jit_f", "before", "before_optimizations", -1, "text"
    ),
    "module_4561.before_optimizations.txt": DumpName(
        "", 4561, "", "before", "before_optimizations", -1, "text"
    ),
    "module_0006.jit_f.before_optimizations.hlo.pb.gz": DumpName(
        "", 6, "jit_f", "before", "before_optimizations", -1, "proto"
    ),
    "module_0012.jit__lambda_.1234.before_optimizations.txt": DumpName(
        "", 12, "jit__lambda_.1234", "before", "before_optimizations", -1, "text"
    ),
    "1795248602880495.module_0006.jit_f.cpu_after_optimizations.txt": DumpName(
        "1795248602880495", 6, "jit_f", "after", "cpu_after_optimizations", -1, "text"
    ),
    "module_0016.SyncTensorsGraph.105381.sm_8.0_gpu_after_optimizations.txt": DumpName(
        "", 16, "SyncTensorsGraph.105381", "after", "sm_8.0_gpu_after_optimizations", -1, "text"
    ),
    "module_0001.jit_f.gfx942_gpu_after_optimizations.hlo.pb": DumpName(
        "", 1, "jit_f", "after", "gfx942_gpu_after_optimizations", -1, "proto"
    ),
    "module_0267.jit_step.cl_854318611.after_optimizations.txt": DumpName(
        "", 267, "jit_step", "after", "after_optimizations", -1, "text"
    ),
    "module_0001.a__.1083.sm_8.0_gpu_after_optimizations_before_buffer_assignment.txt": DumpName(
        "",
        1,
        "a__.1083",
        "other",
        "sm_8.0_gpu_after_optimizations_before_buffer_assignment",
        -1,
        "text",
    ),
    "module_0016.a__.1083.0007.simplification.after_cse.before_algsimp.txt": DumpName(
        "", 16, "a__.1083", "pass", "0007.simplification.after_cse.before_algsimp", 7, "text"
    ),
    "module_0000.jit_f.0016.copy-insertion.after_adding_copies.txt": DumpName(
        "", 0, "jit_f", "pass", "0016.copy-insertion.after_adding_copies", 16, "text"
    ),
    "module_0000.jit_f.execution_0003.hlo_snapshot.pb": DumpName(
        "", 0, "jit_f", "snapshot", "execution_0003", -1, "snapshot"
    ),
    "module_0000.jit_f.execution_0001.hlo_unoptimized_snapshot.pb": DumpName(
        "", 0, "jit_f", "snapshot", "execution_0001", -1, "snapshot"
    ),
    "module_0000.jit_f.snapshot.-501283987.pb": DumpName(
        "", 0, "jit_f", "snapshot", "snapshot.-501283987", -1, "snapshot"
    ),
    "hlo.before_optimizations.txt": DumpName(
        "", None, "hlo", "before", "before_optimizations", -1, "text"
    ),
    "model.hlo": DumpName("", None, "model", format="text"),
    ".txt": DumpName("", None, ".txt"),
    "module_0001.jit_f.ir-with-opt.ll": DumpName("", 1, "jit_f.ir-with-opt.ll"),
    "module_0001.jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment.txt": DumpName(
        "", 1, "jit_f.sm_9.0_gpu_after_optimizations-buffer-assignment"
    ),
    "rank0.module_0001.jit_f.before_optimizations.txt": DumpName(
        "rank0", 1, "jit_f", "before", "before_optimizations", -1, "text"
    ),
}


@pytest.mark.parametrize(
    ("label", "target_kind", "expected"),
    [
        ("cpu_after_optimizations", "cuda", "CPU"),
        ("cpu_after_optimizations", "cpu", ""),
        ("sm_9.0a_gpu_after_optimizations", "cpu", "GPU"),
        ("gfx942_gpu_after_optimizations", "cpu", "GPU"),
        ("gpu_after_optimizations", "cuda", ""),
        ("after_optimizations", "cpu", ""),  # of a TPU, or of whatever else
        ("before_optimizations", "cpu", ""),
    ],
)
def test_plans_for_another_kind_of_device(label: str, target_kind: str, expected: str) -> None:
    assert planned_elsewhere(label, target_kind) == expected


def test_prices_of_plans_for_another_kind_of_device_are_noted(samples: Path) -> None:
    """By all commands that price final modules; not where modules are planned by hloopt, or the device is right."""
    dump, note = str(samples / "dump"), "note: XLA planned these modules for a CPU; --target host"
    assert note in invoke("ls", dump, "--sort", "time", "--stage", "after").stderr
    assert note not in invoke("ls", dump, "--sort", "time").stderr
    done = invoke("ls", dump, "--sort", "time", "--stage", "after", "--target", "host")
    assert note not in done.stderr
    assert note in invoke("why", dump, dump).stderr
    assert note in invoke("gate", dump, dump, "--max", "time<=+0").stderr
    assert note not in invoke("gate", dump, dump, "--max", "kernels<=+0").stderr


@pytest.mark.parametrize("name", NAMES)
def test_names_of_files_tell_module_stage_and_format(name: str) -> None:
    """Names that XLA, TensorFlow, PyTorch/XLA and TPU compilers have given since 2022."""
    assert parse_name(name) == NAMES[name]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("module_0001.f.cpu_after_optimizations-buffer-assignment-values.txt", "buffer assignment"),
        ("module_0001.f.cpu_after_optimizations-memory-usage-report.pb.gz", "memory usage"),
        ("module_0001.f.cpu_after_optimizations-live-range.txt", "live ranges"),
        ("module_0001.f.priority_fusion_dump.txt.gz", "fusion log"),
        ("module_0001.f.thunk_sequence_after_thunk_passes.txt", "thunks"),
        ("module_0001.f.thunk_metadata.textproto", "thunks"),
        ("module_0001.f.non_default_debug_options", "options"),
        ("module_0001.f.cl_1.execution_options.txt", "options"),
        ("module_0001.f.autotune_results.pbtxt", "autotuning"),
        ("module_0001.f.before_optimizations.dot", "graphs"),
        ("module_0001.f.ir-no-opt.ll", "LLVM IR"),
        ("module.mlir", "MLIR"),
        ("module_0001.f.ptx", "PTX"),
        ("module_0001.f.cubin", "device code"),
        ("module_0001.f.obj-file.k.o", "object code"),
        ("module_0001.f.gpu_target_config.pbtxt", "protos as text"),
        ("module_0001.f.before_optimizations.txt", ""),
    ],
)
def test_files_beside_modules_have_kinds(name: str, kind: str) -> None:
    """By the ends of their names, whatever the module is called."""
    assert side_kind(name) == kind


def fill(folder: Path, *names: str, text: str = TEXT) -> Path:
    """A directory with a small module in each of some files."""
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def labels(modules: list[DumpModule] | tuple[DumpModule, ...]) -> dict[str, list[str]]:
    """The labels of stages by those of modules."""
    return {entry.label: [stage.label for stage in entry.stages] for entry in modules}


def test_stages_are_in_the_order_of_compilation(tmp_path: Path) -> None:
    """Before, passes by number, stages of other names, after, snapshots; modules by number."""
    dump = read_dump(
        fill(
            tmp_path,
            "module_0010.jit_g.before_optimizations.txt",
            "module_0002.jit_f.0010.p.after_a.before_b.txt",
            "module_0002.jit_f.0009.p.after_c.before_d.txt",
            "module_0002.jit_f.after_codegen.txt",
            "module_0002.jit_f.cpu_after_optimizations.txt",
            "module_0002.jit_f.before_optimizations.txt",
            "module_0002.jit_f.snapshot.5.pb",
        )
    )
    assert labels(dump.modules) == {
        "module_0002.jit_f": [
            "before_optimizations",
            "0009.p.after_c.before_d",
            "0010.p.after_a.before_b",
            "after_codegen",
            "cpu_after_optimizations",
            "snapshot.5",
        ],
        "module_0010.jit_g": ["before_optimizations"],
    }


def test_formats_of_a_stage_are_together(tmp_path: Path) -> None:
    """A text and a proto of one stage are one stage with two files."""
    (module,) = read_dump(
        fill(
            tmp_path,
            "module_0001.f.before_optimizations.txt",
            "module_0001.f.before_optimizations.hlo.pb",
        )
    ).modules
    (stage,) = module.stages
    assert {entry.format for entry in stage.files} == {"text", "proto"}
    assert stage.file("proto") is not None
    assert stage.file("snapshot") is None


def test_other_files_belong_to_the_module_whose_name_they_begin_with(tmp_path: Path) -> None:
    """The longest such name; without the timestamp too, where only one module can be meant."""
    fill(
        tmp_path,
        "17.module_0001.f.before_optimizations.txt",
        "18.module_0001.f.g.before_optimizations.txt",
        "module_0003.h.before_optimizations.txt",
    )
    fill(
        tmp_path,
        "module_0001.f.g.ir-no-opt.ll",
        "module_0001.f.kernel.ir-no-opt.ll",
        "module_0001.f/module.mlir",
        "module_0003.metadata.textproto",
        "module_0007.k.thunk_sequence.txt",
        "notes.txt",
        "rank0/x.txt",
        text="no module",
    )
    dump = read_dump(tmp_path)
    found = {entry.label: sorted(entry.others) for entry in dump.modules}
    assert found == {
        "17.module_0001.f": ["LLVM IR", "MLIR"],
        "18.module_0001.f.g": ["LLVM IR"],
        "module_0003.h": ["protos as text"],
        "module_0007.k": ["thunks"],
    }
    assert [path.path.name for path in dump.others["unknown"]] == ["notes.txt"]
    assert dump.folders == ("rank0",)


def test_a_file_of_two_possible_modules_makes_one_of_its_own(tmp_path: Path) -> None:
    """Two processes wrote modules of one number and name; who wrote this cannot be told."""
    fill(
        tmp_path,
        "17.module_0001.f.before_optimizations.txt",
        "18.module_0001.f.before_optimizations.txt",
    )
    fill(tmp_path, "module_0001.f.ir-no-opt.ll", text="; LLVM")
    dump = read_dump(tmp_path)
    assert [(entry.label, list(entry.others)) for entry in dump.modules] == [
        ("module_0001.f", ["LLVM IR"]),
        ("17.module_0001.f", []),
        ("18.module_0001.f", []),
    ]


def test_what_is_not_called_as_xla_does_is_judged_by_its_content(tmp_path: Path) -> None:
    """A text that begins as a module does, whatever it is called; ``.hlo`` whatever it holds."""
    fill(tmp_path, "a.txt", "module_0001.f.some_later_stage.txt", text="// a comment\n" + TEXT)
    fill(tmp_path, "b.txt", "c.hlo", "module_0001.f.report.txt", text="a report\n")
    (tmp_path / "d.txt.gz").write_bytes(gzip.compress(TEXT.encode()))
    (tmp_path / "dangling.hlo").symlink_to(tmp_path / "nowhere")
    dump = read_dump(tmp_path)
    assert labels(dump.modules) == {
        "module_0001.f": ["some_later_stage"],
        "a.txt": [""],
        "c.hlo": [""],
        "dangling.hlo": [""],  # reported when it is read
        "d.txt.gz": [""],
    }
    assert dump.modules[0].others["unknown"][0].path.name == "module_0001.f.report.txt"


def test_pick_takes_what_was_before_optimisation(tmp_path: Path) -> None:
    """A module without it is taken in its first stage, unless a stage is asked for."""
    dump = read_dump(
        fill(
            tmp_path,
            "module_0001.jit_f.before_optimizations.txt",
            "module_0001.jit_f.cpu_after_optimizations.txt",
            "module_0002.jit_g.0001.p.after_a.before_b.txt",
            "module_0002.jit_g.cpu_after_optimizations.txt",
        )
    )

    def found(module: str | None, stage: str | None) -> list[tuple[int | None, str]]:
        return [
            (entry.number, one.label)
            for entry, one in pick(dump, module, () if stage is None else (stage,))
        ]

    assert found(None, None) == [(1, "before_optimizations"), (2, "0001.p.after_a.before_b")]
    assert found(None, "before") == [(1, "before_optimizations")]
    assert found(None, "after") == [(1, "cpu_after_optimizations"), (2, "cpu_after_optimizations")]
    assert found("_g$", "after_") == [
        (2, "0001.p.after_a.before_b"),
        (2, "cpu_after_optimizations"),
    ]
    assert found("module_0001", None) == [(1, "before_optimizations")]


@pytest.mark.parametrize(
    ("module", "stage", "message"),
    [
        (
            "jit_h",
            None,
            "no module matches 'jit_h'; did you mean 'jit_f'? there are\n  module_0001",
        ),
        (
            "jit_f",
            "after",
            "no stage of module_0001.jit_f matches 'after'; there are\n  before_opt",
        ),
        (None, "xyz", "no stage of 2 modules matches 'xyz'; there are\n  before_optimizations"),
    ],
)
def test_pick_names_the_candidates(
    tmp_path: Path, module: str | None, stage: str | None, message: str
) -> None:
    """What is not there is answered with what is."""
    fill(
        tmp_path,
        "module_0001.jit_f.before_optimizations.txt",
        "module_0002.g.before_optimizations.txt",
    )
    with pytest.raises(UsageError) as caught:
        pick(read_dump(tmp_path), module, () if stage is None else (stage,))
    assert message in str(caught.value)


def test_long_lists_of_candidates_are_cut(tmp_path: Path) -> None:
    """Twelve are shown, the rest is a number."""
    fill(tmp_path, *(f"module_{number:04d}.f.before_optimizations.txt" for number in range(15)))
    with pytest.raises(UsageError) as caught:
        pick(read_dump(tmp_path), "g")
    assert str(caught.value).endswith("  module_0011.f\n  and 3 more")


def test_an_empty_directory_says_so(tmp_path: Path) -> None:
    """With the directories in it: a dump of several processes has one for each."""
    fill(tmp_path, "rank0/module_0001.f.before_optimizations.txt")
    dump = read_dump(tmp_path)
    assert matching_modules(dump, None) == []
    with pytest.raises(UsageError, match="no HLO modules in this directory; there are directories"):
        pick(dump, None)


@pytest.mark.parametrize("sample", ["attention", "sort", "while_loop", "adam"])
def test_counts_are_those_of_the_module(sample: str, samples: Path) -> None:
    """Without parsing: XLA prints an instruction a line."""
    path = samples / f"{sample}.hlo"
    module = hloopt.parse(path.read_text(), path.name)
    (stage,) = (
        one
        for entry in read_dump(samples).modules
        for one in entry.stages
        if one.files[0].path == path
    )
    assert counts(stage) == (module.instruction_count(), len(module.computations))


def test_what_cannot_be_read_has_no_counts(tmp_path: Path) -> None:
    """It is listed all the same."""
    (tmp_path / "module_0001.f.before_optimizations.txt.gz").write_bytes(b"\x1f\x8bno")
    (module,) = read_dump(tmp_path).modules
    assert counts(module.stages[0]) is None
    assert counts(Stage("snapshot", "execution_0000", -1, ())) is None


def test_gunzip_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may hold more than the machine; several parts in one file are fine."""
    whole = gzip.compress(b"x" * 600) + gzip.compress(b"y" * 400)
    assert gunzip(whole) == b"x" * 600 + b"y" * 400
    for damaged in (whole[:-3], b"\x1f\x8b\x08\x00\x00"):
        with pytest.raises(ValueError, match=r"not a whole \.gz file"):
            gunzip(damaged)
    monkeypatch.setattr("hloopt.dumps.content._LARGEST", 999)
    with pytest.raises(ValueError, match="compressed in it"):
        gunzip(whole)


def test_several_stages_are_taken_in_the_order_of_compilation(samples: Path) -> None:
    """Each once, however often it is asked for."""
    wanted = ("after", "before", "before_opt")
    for module in read_dump(samples / "dump").modules:
        assert [stage.kind for stage in matching_stages(module, wanted)] == ["before", "after"]
