"""What an elementwise op takes: a row with its function of NumPy, and its C; everything else follows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hloopt
from hloopt.ops import OPS

PACKAGE = Path(hloopt.__file__).parent

ROW = """    _unary(
        "softsign",
        _FLOAT,
        plain(lambda x: x / (1 + np.abs(x))),
        "x / (1 + |x|)",
        monotone=True,
        within_one=True,
    ),
"""
C = """        "softsign": lambda kind, uses, x: narrow(
            (wide := widen(x, kind, uses)) / (Call("fabs", (wide,), wide.type) + 1), kind, uses
        ),
"""
EDITS = {
    "ops/elementwise.py": ("_ARITHMETIC = (\n", ROW),
    "codegen/scalars/floats.py": ('        "abs": _absolute,\n', C),
}

MODULE = """HloModule m

sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY e {
  x = f32[64,33] parameter(0)
  y = f32[64,33] parameter(1)
  p = f32[64,33] softsign(x)
  q = f32[64,33] softsign(y)
  m = f32[64,33] maximum(p, q)
  one = f32[] constant(1)
  ones = f32[64,33] broadcast(one), dimensions={}
  r = f32[64,33] minimum(m, ones)
  z = f32[] constant(0)
  ROOT s = f32[64] reduce(r, z), dimensions={1}, to_apply=sum
}
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product with an op more: all its files, by links, but for the two that have the op."""
    root = tmp_path_factory.mktemp("product")
    for path in PACKAGE.rglob("*"):
        relative = path.relative_to(PACKAGE.parent)
        if path.is_dir():
            (root / relative).mkdir(parents=True, exist_ok=True)
        elif "__pycache__" not in relative.parts:
            (root / relative.parent).mkdir(parents=True, exist_ok=True)
            (root / relative).symlink_to(path)
    for name, (before, row) in EDITS.items():
        place = root / "hloopt" / name
        text = place.read_text()
        assert text.count(before) == 1
        place.unlink()
        place.write_text(text.replace(before, before + row))
    return root


def run(root: Path, *words: str) -> str:
    """What a command of the copied product answers; it fails the test where it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "hloopt", *words],
        input=MODULE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return done.stdout + done.stderr


def test_two_files_have_the_op(copied: Path) -> None:
    """The others are links to those of the product, which does not know it."""
    files = [path for path in (copied / "hloopt").rglob("*") if path.is_file()]
    own = [path for path in files if not path.is_symlink()]
    assert {str(path.relative_to(copied / "hloopt")) for path in own} == set(EDITS)
    assert "softsign" not in OPS
    assert "softsign" in run(copied, "ops")


@pytest.mark.parametrize("device", ["cpu", "emulator", "native"])
def test_every_executor_runs_it(copied: Path, device: str) -> None:
    """As given and optimised, and the interpreter agrees."""
    assert "ok 1 result" in run(copied, "run", "--device", device)


def test_passes_take_it(copied: Path) -> None:
    """By what its row says: it never falls and is 1 at most, so that one is left, without a bound."""
    text = run(copied, "optimize", "--passes", "simplify{fast_math=true}")
    assert text.count("softsign(") == 1
    assert "minimum(" not in text


def test_it_is_fused_and_priced(copied: Path) -> None:
    table = run(copied, "kernels", "--target", "h200")
    assert "1 kernel, " in table
    assert "row-reduction" in table
    assert "predicted by" in table
