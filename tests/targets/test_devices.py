"""The devices that ship: names, figures, sources, and what follows from them."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hloopt.errors import UsageError
from hloopt.targets import (
    Rate,
    Target,
    find_target,
    load_target,
    names,
    target,
    targets,
)

CUDA = ("a100", "a6000", "b200", "h100", "h200", "v100")
PREDICTED = ("a10", "l4", "l40s", "rtx-4090", "t4")  # CUDA, never held against measurements
TPUS = ("tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e")


def test_names() -> None:
    """NVIDIA's, AMD's and Google's and the host, in the order of the alphabet."""
    assert names() == tuple(sorted((*CUDA, *PREDICTED, *TPUS, "host", "mi200", "mi300x")))
    assert tuple(targets()) == names()


@pytest.mark.parametrize("name", names())
def test_every_number_has_a_source(name: str) -> None:
    """A document's title, or the file of XLA's that says it."""
    device = target(name)
    assert device.name == name
    assert device.title
    for entry in dataclasses.fields(Target):
        assert device.source(entry.name)
    for kind in ("scalar_peaks", "matrix_peaks"):
        if getattr(device, kind):
            for dtype in getattr(device, kind):
                assert "specs/" not in device.source(f"{kind}.{dtype}")


@pytest.mark.parametrize("name", [*CUDA, *PREDICTED])
def test_gpus_are_whole(name: str) -> None:
    """No number of a CUDA device that kernels are laid out by is missing."""
    device = target(name)
    assert device.kind == "cuda"
    assert device.calibrated == (name in CUDA)
    may_miss = {"blocks_per_core", "reserved_shared_per_block", "memory_clock_ghz", "calibrated"}
    may_miss |= {"pcie_bandwidth", "interconnect_links"}
    for entry in dataclasses.fields(Target):
        value = getattr(device, entry.name)
        if isinstance(value, int | float) and entry.name not in may_miss:
            assert value > 0, entry.name
    assert device.warp_size == 32
    assert device.registers_per_block == device.registers_per_core == 65536
    assert device.shared_per_block <= device.shared_per_block_optin <= device.shared_per_core
    assert device.threads_per_core % device.warp_size == 0
    assert (device.grid_limit, device.block_limit) == ((2**31 - 1, 65535, 65535), (1024, 1024, 64))
    assert (device.l1_per_core, device.dram_transaction, device.core_transaction) == (2048, 64, 32)


@pytest.mark.parametrize("name", ["mi200", "mi300x", *PREDICTED, *TPUS])
def test_others_only_predict(name: str) -> None:
    """They say so, and have what a roofline needs."""
    device = target(name)
    assert not device.calibrated
    assert device.memory_bandwidth > 0
    assert device.peak_flops("f16" if name == "t4" else "bf16", "matrix")


@pytest.mark.parametrize(
    ("name", "capability", "cores", "fpus", "clock", "bandwidth", "l2", "optin", "threads"),
    [
        ("v100", (7, 0), 80, 64, 1.53, 898_048_000_000, 6.0, 98304, 2048),
        ("a100", (8, 0), 108, 64, 1.41, 2_039_040_000_000, 40.0, 166912, 2048),
        ("a6000", (8, 6), 84, 128, 1.8, 768_096_000_000, 6.0, 101376, 1536),
        ("h100", (9, 0), 132, 128, 1.98, 3_352_320_000_000, 50.0, 232448, 2048),
        ("h200", (9, 0), 132, 128, 1.98, 4_800_000_000_000, 50.0, 232448, 2048),
        ("b200", (10, 0), 148, 128, 1.965, 7_672_320_000_000, 126.5, 232448, 2048),
        ("mi200", (0, 0), 110, 128, 1.7, 1_638_400_000_000, 8.0, 65536, 2048),
    ],
)
def test_figures(
    name: str,
    capability: tuple[int, int],
    cores: int,
    fpus: int,
    clock: float,
    bandwidth: int,
    l2: float,
    optin: int,
    threads: int,
) -> None:
    """Those of XLA's descriptions."""
    device = target(name)
    assert (device.capability, device.cores, device.fpus_per_core) == (capability, cores, fpus)
    assert (device.clock_ghz, device.memory_bandwidth) == (clock, bandwidth)
    assert device.l2_size == l2 * 2**20
    assert (device.shared_per_block_optin, device.threads_per_core) == (optin, threads)


@pytest.mark.parametrize(
    ("name", "dtype", "unit", "teraflops"),
    [
        # clock * cores * units * ops * 2
        ("h200", "f32", "scalar", 66.9),
        ("h200", "f16", "scalar", 133.8),
        ("h200", "f64", "scalar", 33.5),
        ("h200", "f16", "matrix", 989.2),
        ("h200", "f32", "matrix", 494.6),
        ("h200", "f8e4m3fn", "matrix", 1978.3),
        ("h200", "f64", "matrix", 66.9),
        ("b200", "bf16", "matrix", 2225.2),
        # the vendor's, where XLA has none
        ("v100", "f16", "matrix", 125.0),
        ("a100", "bf16", "matrix", 312.0),
        ("a100", "f64", "scalar", 9.7),
        ("tpu-v4", "bf16", "matrix", 275.0),
        # no unit for matrices: the scalar one
        ("v100", "f64", "matrix", 7.8),
        ("h200", "s32", "matrix", 33.5),
        # lanes
        ("mi200", "f32", "scalar", 47.9),
        ("v100", "bf16", "matrix", 15.7),
        ("host", "f32", "matrix", 0.096),
        ("host", "f64", "matrix", 0.048),
    ],
)
def test_peak_flops(name: str, dtype: str, unit: str, teraflops: float) -> None:
    """Of rates first, then of documents, then of lanes."""
    got = target(name).peak_flops(dtype, unit)  # type: ignore[arg-type]
    assert got == pytest.approx(teraflops * 1e12, rel=1e-2)


@pytest.mark.parametrize("name", [*CUDA, *PREDICTED, "mi300x"])
def test_peaks_are_lanes_times_clock(name: str) -> None:
    """What a data sheet says of f32 is what its cores and clock come to."""
    device = target(name)
    lanes = device.clock_ghz * 1e9 * device.cores * device.fpus_per_core * 2
    assert device.peak_flops("f32") == pytest.approx(lanes, rel=0.02)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("tpu-v3", "f32"),
        ("mi200", "f64"),
        ("a6000", "f64"),
        ("v100", "s8"),
        ("h200", "c64"),
    ],
)
def test_nothing_is_made_up(name: str, dtype: str) -> None:
    """Where nobody says how fast a type is, there is no figure, and memory alone bounds the time."""
    device = target(name)
    assert device.peak_flops(dtype) is None
    assert device.roofline(device.memory_bandwidth, 10**18, dtype) == 1.0


def test_roofline() -> None:
    """The longer of moving and computing, in seconds."""
    device = dataclasses.replace(
        target("h200"), memory_bandwidth=1000, cores=2, scalar_rates={"f32": Rate(1e-9, 5, 1)}
    )
    assert device.peak_flops("f32") == 20
    assert device.roofline(2000, 20, "f32") == 2.0
    assert device.roofline(2000, 60, "f32") == 3.0
    assert device.roofline(0, 0, "f32") == 0.0


def test_names_and_paths(tmp_path: Path) -> None:
    """Capitals do not matter; what has an ending or a slash is a file."""
    assert find_target("H200") is target("h200")
    assert find_target("a100_sxm_80") is target("a100")
    assert find_target("h100_sxm") is target("h100")
    assert load_target(Path("hloopt/targets/devices/h200.toml").absolute()) == target("h200")
    with pytest.raises(
        UsageError,
        match=r"^unknown target 'h20'; did you mean 'h200'\? \(valid: a10, a100, a6000",
    ):
        find_target("h20")
    with pytest.raises(UsageError, match=r"^unknown target 'zzz' \(valid: "):
        target("zzz")
    with pytest.raises(UsageError, match=r"gone\.toml: No such file or directory"):
        find_target("gone.toml")
    with pytest.raises(UsageError, match=r"gone\.txtpb: No such file"):
        find_target(str(tmp_path / "gone.txtpb"))
    other = tmp_path / "device.json"
    other.write_text("{}")
    with pytest.raises(UsageError, match=r"ends in one of \.toml, \.pbtxt, \.textpb, "):
        find_target(str(other))
    other = tmp_path / "latin.toml"
    other.write_bytes(b"title = '\xe9'")
    with pytest.raises(UsageError, match=r"latin\.toml: byte 9 is not UTF-8"):
        find_target(str(other))


def test_importing_reads_no_file() -> None:
    """Descriptions are read when one is asked for, and only that one."""
    program = (
        "import builtins, io, sys, pathlib\n"
        "import hloopt.targets as t\n"
        "assert 'tomllib' not in sys.modules\n"
        "before = pathlib.Path.read_text\n"
        "read = []\n"
        "def counted(self, *a, **k):\n    read.append(self.name)\n    return before(self, *a, **k)\n"
        "pathlib.Path.read_text = counted\n"
        "t.target('h200')\n"
        "assert read == ['h200.toml'], read\n"
        "assert not any(name.startswith('google') for name in sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": "."}
    )


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("v100", "v100"), ("a100", "a100_sxm_80"), ("a6000", "a6000"), ("h100", "h100_sxm"),
        ("h200", "h200"), ("b200", "b200"), ("mi200", "mi200"),
    ],
)  # fmt: skip
def test_xlas_descriptions_say_the_same(name: str, file: str) -> None:
    """Every number both have is one number."""
    folder = os.environ.get("HLOOPT_CORPUS")
    if folder is None:
        pytest.skip("HLOOPT_CORPUS is not set")
    theirs = load_target(Path(folder) / "gpu_specs" / f"{file}.txtpb")
    ours = target(name)
    for entry in dataclasses.fields(Target):
        if entry.name not in (
            "name",
            "title",
            "sources",
            "calibrated",
            "scalar_peaks",
            "matrix_peaks",
        ):
            assert getattr(ours, entry.name) == getattr(theirs, entry.name), entry.name
