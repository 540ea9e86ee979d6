"""Some of JAX's programs in every form of StableHLO; stablehlo_board.py examines all."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.frameworks.stablehlo_board import judge, lower
from tests.oracle.oracle import python


@cache
def has_jax() -> bool:
    """Whether the Python that is asked has JAX as well as jaxlib."""
    probe = subprocess.run([python(), "-c", "import jax.export"], capture_output=True, check=False)
    return probe.returncode == 0


@pytest.mark.skipif("not has_jax()", reason="no JAX; HLOOPT_XLA_PYTHON names a Python that has it")
def test_programs_arrive_whole(tmp_path: Path) -> None:
    """The same module as JAX's own HLO, run equal to JAX; with open sizes, over several devices, and back."""
    names = ("dense_open_batch", "kalman_filter", "sharded_constraint", "composite_op")
    assert lower(tmp_path, *names) == sorted(names)
    for name in names:
        found = judge(tmp_path, name, back=True)
        assert found == dict.fromkeys(found, "same")
