"""XLA reads what hloopt prints, and computes from it what it computed before."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hloopt
from oracle import ask, available
from support import as_type, sample_table

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
    with np.load(FOLDER / f"{name}.npz") as arrays:
        inputs = [
            as_type(arrays[f"in_{index}"], parameter.array.dtype.name)
            for index, parameter in enumerate(module.entry.parameters)
        ]
        wanted = [arrays[f"out_{index}"] for index in range(len(arrays) - len(inputs))]
    np.savez(tmp_path / "in.npz", **{f"in_{index}": value for index, value in enumerate(inputs)})
    ask("run", str(tmp_path / "m.hlo"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))

    with np.load(tmp_path / "out.npz") as got:
        for index, want in enumerate(wanted):
            value = got[f"out_{index}"]
            if value.dtype.kind == "V":  # ml_dtypes types are saved as raw bytes
                value = value.view(want.dtype)
            if want.dtype.kind == "f":
                scale = float(np.nanmax(np.abs(want), initial=0.0))
                np.testing.assert_allclose(value, want, rtol=2e-3, atol=1e-4 * scale)
            else:
                assert (value != want).mean() <= 0.02
