"""XLA reads a module whose loops are kernels, and computes the same once they are taken apart again."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.ir import build
from hloopt.kernels.selection import KernelSelection
from hloopt.rewrite import PassLog
from hloopt.runtime.inputs import load_expected, load_inputs
from hloopt.runtime.judge import Judge
from hloopt.runtime.xla_form import make_for_xla
from tests.oracle.oracle import ask, available
from tests.oracle.test_printing_against_xla import as_xla_reads_it

FOLDER = Path(__file__).resolve().parents[2] / "samples"
NAMES = ["cartpole/separate", "loops/kalman_tracks", "loops/nbody", "loops/viterbi"]

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]


@cache
def optimised(name: str) -> hloopt.Module:
    """A sample after O3; one of its loops at least is a kernel."""
    module = hloopt.optimize(hloopt.parse((FOLDER / f"{name}.hlo").read_text(), name), "O3")
    assert any(fused_loop(entry) is not None for entry in module.instructions())
    return module


@pytest.mark.parametrize("name", NAMES)
def test_xla_reads_the_fused_loop(name: str, tmp_path: Path) -> None:
    """The loop stands in its fusion as we have written it, our kernel's name and choice included."""
    module = hloopt.optimize(optimised(name), "device")
    KernelSelection().run(module, PassLog())
    read, _ = as_xla_reads_it(module.to_text(), tmp_path)
    for ours in module.instructions():
        if fused_loop(ours) is None:
            continue
        home = ours.computation
        assert home is not None
        theirs = next(one for one in read.instructions() if one.name == ours.name)
        found = fused_loop(theirs)
        assert found is not None
        assert custom_name(theirs) == custom_name(ours) != ""
        assert json.loads(str(theirs.attributes["backend_config"])) == json.loads(
            str(ours.attributes["backend_config"])
        )


@pytest.mark.parametrize("name", [name for name in NAMES if (FOLDER / f"{name}.npz").exists()])
def test_xla_computes_the_same_from_the_loop_taken_apart(name: str, tmp_path: Path) -> None:
    """The form for XLA, without fusions and bitcasts, compiles there and gives the recorded results."""
    module = hloopt.parse((FOLDER / f"{name}.hlo").read_text(), name)
    apart = build.clone_module(optimised(name))
    make_for_xla(apart)
    (tmp_path / "m.hlo").write_text(apart.to_text())
    inputs = load_inputs(FOLDER / f"{name}.npz", module)
    np.savez(tmp_path / "in.npz", **{f"in_{index}": value for index, value in enumerate(inputs)})
    ask("run", str(tmp_path / "m.hlo"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))
    got = load_expected(tmp_path / "out.npz", module)
    wanted = load_expected(FOLDER / f"{name}.npz", module)
    judge = Judge.of(module, [inputs], [hloopt.evaluate(module, inputs)])
    compared = judge.compare_all([got], [wanted])
    assert [one for one in compared if not one.passed] == []
