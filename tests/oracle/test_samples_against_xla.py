"""XLA reads what hloopt prints, and computes from it what it computed before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.runtime.compare import compare
from hloopt.runtime.inputs import load_expected, load_inputs
from oracle import ask, available
from support import sample_table

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


def test_xla_reads_the_printed_samples(tmp_path: Path) -> None:
    """As dumped, optimised, and optimised with fusions taken apart."""
    paths = []
    for name in SAMPLES:
        module = module_of(name)
        better = hloopt.optimize(module, "O2")
        forms = {"plain": module, "o2": better, "xla": hloopt.optimize(better, "defuse")}
        for form, entry in forms.items():
            paths.append(tmp_path / f"{name}.{form}.hlo")
            paths[-1].write_text(entry.to_text())
    answers = [json.loads(line) for line in ask("accepts", *map(str, paths)).splitlines()]

    assert {path.name: said for path, said in zip(paths, answers, strict=True) if said} == {}


@pytest.mark.parametrize("name", SAMPLES)
def test_xla_computes_the_same_from_the_optimised_text(name: str, tmp_path: Path) -> None:
    """What ``optimize --emit xla`` prints compiles in XLA and gives the recorded outputs."""
    module = module_of(name)
    text = hloopt.optimize(hloopt.optimize(module, "O2"), "defuse").to_text()
    (tmp_path / "m.hlo").write_text(text)
    inputs = load_inputs(FOLDER / f"{name}.npz", module)
    np.savez(tmp_path / "in.npz", **{f"in_{index}": value for index, value in enumerate(inputs)})
    ask("run", str(tmp_path / "m.hlo"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))

    got = load_expected(tmp_path / "out.npz", module)
    wanted = load_expected(FOLDER / f"{name}.npz", module)
    for left, right in zip(got, wanted, strict=True):
        # XLA may sum in another order from another text: wider than the defaults, by the same rule.
        assert compare(left, right, rtol=2e-3, atol=1e-3 * largest(right)).passed


def largest(values: np.ndarray) -> float:
    """The largest finite magnitude."""
    wide = np.abs(values.astype(np.float64)) if values.dtype.kind != "c" else np.abs(values)
    return float(wide[np.isfinite(wide)].max(initial=0.0))
