"""XLA reads what hloopt prints, and computes from it what it computed before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.runtime.inputs import load_expected, load_inputs
from hloopt.runtime.judge import Judge
from tests.helpers.support import invoke, sample_table
from tests.oracle.oracle import ask, available

FOLDER = Path(__file__).resolve().parents[2] / "samples"
SAMPLES = [row.name for row in sample_table(FOLDER)]

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]


def module_of(name: str) -> hloopt.Module:
    """A sample's module."""
    return hloopt.parse((FOLDER / f"{name}.hlo").read_text(), name)


def optimised(name: str, *words: str) -> str:
    """What the command prints for a sample."""
    result = invoke("optimize", str(FOLDER / f"{name}.hlo"), "-O2", *words)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_xla_reads_the_printed_samples(tmp_path: Path) -> None:
    """As dumped, optimised, and optimised with fusions taken apart."""
    paths = []
    for name in SAMPLES:
        forms = {
            "plain": module_of(name).to_text(),
            "o2": optimised(name),
            "xla": optimised(name, "--emit", "xla"),
        }
        for form, text in forms.items():
            paths.append(tmp_path / f"{name}.{form}.hlo")
            paths[-1].write_text(text)
    answers = [json.loads(line) for line in ask("accepts", *map(str, paths)).splitlines()]

    assert {path.name: said for path, said in zip(paths, answers, strict=True) if said} == {}


@pytest.mark.parametrize("name", SAMPLES)
def test_xla_computes_the_same_from_the_optimised_text(name: str, tmp_path: Path) -> None:
    """What ``optimize --emit xla`` prints compiles in XLA and gives the recorded outputs.

    The tolerances are those of ``hloopt run``, by element type: no wider for XLA than for ourselves.
    """
    module = module_of(name)
    (tmp_path / "m.hlo").write_text(optimised(name, "--emit", "xla"))
    inputs = load_inputs(FOLDER / f"{name}.npz", module)
    np.savez(tmp_path / "in.npz", **{f"in_{index}": value for index, value in enumerate(inputs)})
    ask("run", str(tmp_path / "m.hlo"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))

    got = load_expected(tmp_path / "out.npz", module)
    wanted = load_expected(FOLDER / f"{name}.npz", module)
    judge = Judge.of(module, [inputs], [hloopt.evaluate(module, inputs)])
    compared = judge.compare_all([got], [wanted])
    assert [one for one in compared if not one.passed] == []
