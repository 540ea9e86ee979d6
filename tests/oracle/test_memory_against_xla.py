"""The memory of what XLA compiles is what XLA's own buffer assignment says: to the byte, but for few modules."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import hloopt
from hloopt.analysis.assignment import assign_buffers
from hloopt.dumps.content import assigned_bytes
from tests.oracle.oracle import available, python

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*.hlo"))
COMPILE = """
import os, pathlib, sys
os.environ["XLA_FLAGS"] = f"--xla_dump_to={sys.argv[1]} --xla_dump_hlo_as_text"
import jax, jaxlib._hlo as hlo, jaxlib._jax as backend
from jaxlib import xla_client
jax.config.update("jax_enable_x64", True)
device = jax.devices("cpu")[0]
for path in map(pathlib.Path, sys.argv[2:]):
    module = hlo.hlo_module_from_text(path.read_text())
    computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    text = backend.mlir.xla_computation_to_mlir_module(computation)
    device.client.compile_and_load(text, backend.DeviceList((device,)), xla_client.CompileOptions())
"""


def test_samples(tmp_path: Path) -> None:
    """All within 2 %, nine of ten to the byte."""
    command = [python(), "-c", COMPILE, str(tmp_path), *map(str, SAMPLES)]
    subprocess.run(command, check=True, capture_output=True)
    ratios = {}
    for path in sorted(tmp_path.glob("*after_optimizations.txt")):
        theirs = assigned_bytes(path)
        assert theirs is not None
        ratios[path.name] = assign_buffers(hloopt.read(path)).byte_size / theirs
    assert len(ratios) >= len(SAMPLES)
    assert {name: one for name, one in ratios.items() if abs(one - 1) > 0.02} == {}
    assert sum(one == 1 for one in ratios.values()) >= 0.9 * len(ratios)
