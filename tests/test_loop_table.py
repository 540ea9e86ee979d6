"""Whole loops as one kernel at O3: how many launches, the recorded results, and what is refused and why."""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends.device_compile import prepare
from hloopt.backends.emulator import EmulatorDevice
from hloopt.errors import UnsupportedError
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.pipelines import PIPELINES
from hloopt.runtime.inputs import load_inputs
from hloopt.runtime.judge import Judge, Tolerance
from tests.codegen.harness import compile_somewhere
from tests.helpers.loop_programs import SAMPLES, Array, emulated, kernel_of, resized, text_of
from tests.helpers.support import Sample, mismatch, recorded, sample_table

LOOPS = sample_table(SAMPLES / "loops")
BOARD = Path(__file__).with_name("loop_board.json")


@cache
def fused(name: str) -> tuple[hloopt.Module, hloopt.Module]:
    """A sample as it is, and after O3."""
    module = hloopt.parse(text_of(name), name)
    return module, hloopt.optimize(module, "O3")


def record(name: str, module: hloopt.Module) -> tuple[list[Array], list[Array]]:
    """Inputs and outputs as XLA recorded them."""
    path = SAMPLES / f"{name}.npz"
    with np.load(path) as arrays:
        outputs = [arrays[f"out_{n}"] for n in range(sum(key[:4] == "out_" for key in arrays))]
    return load_inputs(path, module), outputs


def hold(
    got: list[Array],
    want: list[Array],
    module: hloopt.Module | None = None,
    inputs: Sequence[Array] = (),
    *,
    atol: float | None = None,
) -> None:
    """Results agree within ``atol``, or by what rounding allows those of a module."""
    judge = Judge(tolerance=Tolerance(rtol=2e-5, atol=atol))
    if module is not None:
        judge = Judge.of(module, [inputs], [hloopt.evaluate(module, inputs)])
    for number, found in enumerate(judge.compare_all([got], [want])):
        assert found.passed, f"result {number}: {found}"


def decided(text: str, name: str) -> FusionPlan:
    """What loop-fusion does with a module that O3's passes before it have prepared."""
    before, _, _ = PIPELINES["O3"].partition(",loop-fusion")
    return LoopFusion().fuse(hloopt.optimize(hloopt.parse(text, name), before))


def test_pages_list_what_lies_beside_them() -> None:
    """samples/loops/README.md names every dump with inputs, in the order of the folder."""
    recorded = sorted(path.stem for path in (SAMPLES / "loops").glob("*.npz"))
    assert [row.name for row in LOOPS] == recorded


@pytest.mark.usefixtures("optimised_on_the_emulator")
def test_the_naive_program_is_launched_once() -> None:
    """All 1,000 steps of 2,048 environments are one launch, and nothing else is; results are XLA's."""
    module, better = fused("cartpole/naive")
    inputs, outputs = record("cartpole/naive", module)
    ran = emulated(better, inputs, mode="fast")
    assert ran.kernels == ("while-per-thread",)
    assert ran.launches == 1
    hold(ran.results, outputs, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["naive_65536", "gymnax_random", "gymnax_network"])
def test_programs_of_cartpole_are_one_kernel(name: str) -> None:
    """More environments, and gymnax's step with a random policy and with a network."""
    module, better = fused(f"cartpole/{name}")
    plan = prepare(better).plan
    assert [kernel_of(step) for step in plan.steps] == ["while-per-thread"]
    if name.startswith("gymnax"):
        inputs, outputs = record(f"cartpole/{name}", module)
        hold(emulated(better, inputs).results, outputs, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["naive_1000003", "random_before", "separate", "unrolled_10"])
def test_the_loop_is_one_kernel_among_others(name: str) -> None:
    """Rows that do not begin at even places are put together by a launch of their own; so are numbers drawn before."""
    _, better = fused(f"cartpole/{name}")
    kernels = [kernel_of(step) for step in prepare(better).plan.steps]
    assert kernels.count("while-per-thread") == 1
    assert "WhileStep" not in kernels
    assert len(kernels) <= (2 if name == "naive_1000003" else 9)


# To optimise these takes a second and more each.
LARGE = ("heston_paths", "ising_chains", "tsit5_lorenz")
each_loop = pytest.mark.parametrize(
    "loop",
    [
        pytest.param(row, id=row.name, marks=[pytest.mark.slow] * (row.name in LARGE))
        for row in LOOPS
    ],
)


@each_loop
def test_loop_is_one_kernel_with_the_recorded_results(loop: Sample) -> None:
    """Each access is checked, and NVRTC spills nothing; each loop of the file is one kernel, none the host's."""
    module, better = fused(f"loops/{loop.name}")
    inputs, outputs = record(f"loops/{loop.name}", module)
    ran = emulated(better, inputs)
    assert len(ran.loops) == sum(entry.opcode == "while" for entry in module.entry)
    assert "WhileStep" not in ran.kernels
    hold(ran.results, outputs, module, inputs)
    compile_somewhere(prepare(better).source)


REFUSED = {
    "gray_scott_wide": ("loop-mixes", "slice slice.2 mixes the 1024 elements of dimension 0"),
    "nbody_many": ("loop-mixes", "mixes the 65536 elements of dimension 1"),
    "feeding": ("loop-side-effect", "infeed infeed runs outside of kernels"),
    "in_order": ("loop-side-effect", "element 2 of its state is a token"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_reason(name: str) -> None:
    """A loop of the host stays one; the reason names the instruction."""
    code, words = REFUSED[name]
    plan = decided(text_of(f"loops/{name}"), name)
    assert not plan.steps
    (refusal,) = plan.refusals
    assert refusal.decision.code == code
    assert words in refusal.decision.words
    better = hloopt.optimize(hloopt.parse(text_of(f"loops/{name}")), "O3")
    assert any(entry.opcode == "while" for entry in better.entry)


# Elements (48 in the file) and trips (256) of the bank of filters, whose steps write results as they go.
SIZES = [
    (1, 300), (31, 1), (33, 0), (2048, 2), *(
        pytest.param(*sizes, marks=pytest.mark.slow)
        for sizes in [(1, 10_000), (33, 10_000), (2048, 100), (1_000_003, 2), (1_000_003, 0)]
    )
]  # fmt: skip


@pytest.mark.parametrize(("elements", "iterations"), SIZES)
def test_counts_of_elements_and_trips(elements: int, iterations: int) -> None:
    """No thread reads or writes beside what it owns, whatever the count of elements or trips."""
    text = resized("loops/filter_bank", {48: elements, 256: max(iterations, 1)}, {256: iterations})
    module = hloopt.parse(text, "filter_bank")
    hloopt.verify(module)
    rng = np.random.default_rng(elements)
    shapes = [entry.array.dims for entry in module.entry.parameters]
    inputs = [rng.uniform(0.5, 0.9, dims).astype(np.float32) for dims in shapes]
    ran = emulated(hloopt.optimize(module, "O3"), inputs)
    # A loop that is known not to run, or to run once, needs no kernel of its own.
    assert len(ran.loops) == (iterations > 1)
    hold(ran.results, hloopt.evaluate(module, inputs), module, inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("elements", "iterations"), [(1, 10_000), (31, 100), (33, 10_000), (2048, 100), (1_000_003, 3)]
)
def test_counts_of_environments_and_steps(elements: int, iterations: int) -> None:
    """The naive program of Cartpole at other sizes, its keys and its numbers included, beside the kernel by hand."""
    module = hloopt.parse(resized("cartpole/naive", {2048: elements, 1000: iterations}), "naive")
    hloopt.verify(module)
    key = np.array([1, 2], np.uint32)
    ran = emulated(hloopt.optimize(module, "O3"), [key])
    assert len(ran.loops) == 1
    assert ran.launches <= 2
    with closing(EmulatorDevice()) as device:
        by_hand = runpy.run_path(str(SAMPLES / "cartpole" / "yardstick.py"))["Yardstick"]
        yardstick = by_hand(device, key, elements, iterations)
        yardstick.launch()
        hold(ran.results, yardstick.read(), atol=1e-3)


@pytest.mark.parametrize(
    "elements", [1, 31, 33, 2048, pytest.param(1_000_003, marks=pytest.mark.slow)]
)
def test_trips_by_element(elements: int) -> None:
    """Each orbit stops by itself, the last one of a block that is not full too."""
    module = hloopt.parse(resized("loops/kepler_bisection", {1000: elements}), "kepler")
    hloopt.verify(module)
    rng = np.random.default_rng(elements)
    inputs: list[Any] = [
        rng.uniform(0, 0.95, elements).astype(np.float32),
        rng.uniform(0.01, 6.2, elements).astype(np.float32),
    ]
    ran = emulated(hloopt.optimize(module, "O3"), inputs)
    assert len(ran.loops) == 1
    hold(ran.results, hloopt.evaluate(module, inputs), module, inputs)


@pytest.mark.slow
@pytest.mark.corpus
def test_loops_of_the_corpus_are_judged_as_recorded() -> None:
    """Which loops of real programs are kernels, and the codes of those that are not: `loop_board.json`.

    HLOOPT_LOOP_BOARD=write writes the file anew.
    """
    folder = Path(os.environ["HLOOPT_CORPUS"]) / "jax"
    found = {}
    for path in sorted(folder.glob("*.before.hlo")):
        text = path.read_text()
        if " while(" in text:
            plan = decided(text, path.name)
            refused = {entry.producer: entry.decision.code for entry in plan.refusals}
            verdicts = ["kernel" if loop.kernel else refused[loop.loop] for loop in plan.loops]
            found[path.name.removesuffix(".before.hlo")] = verdicts
    if os.environ.get("HLOOPT_LOOP_BOARD") == "write":
        BOARD.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(BOARD.read_text())


def corpus_loops() -> list[Path]:
    """Recorded programs of the corpus with a loop that is a kernel."""
    folder = Path(os.environ.get("HLOOPT_CORPUS", "nowhere")) / "jax"
    board = json.loads(BOARD.read_text())
    stems = [folder / name for name, verdicts in board.items() if "kernel" in verdicts]
    return [stem for stem in stems if stem.with_name(f"{stem.name}.npz").exists()]


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.parametrize("stem", corpus_loops(), ids=lambda stem: stem.name)
def test_loops_of_the_corpus_give_what_xla_recorded(stem: Path) -> None:
    """Each access is checked; results are within the recorded tolerances."""
    module = hloopt.parse(stem.with_name(f"{stem.name}.before.hlo").read_text(), stem.name)
    record = recorded(stem)
    assert record is not None
    try:
        ran = emulated(hloopt.optimize(module, "O3"), record.inputs)
    except UnsupportedError as error:
        pytest.skip(str(error).splitlines()[0])  # what is beside the loop has no kernel
    assert ran.loops
    if mismatch(ran.results, record):
        # XLA's sines are not the interpreter's: a pole may fall a step later.
        want = hloopt.evaluate(module, record.inputs)
        hold(ran.results, want, module, record.inputs)
