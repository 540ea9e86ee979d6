"""Which instruction the first NaN or infinity is made by, as ``hloopt run`` says it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.support import invoke

CASES = {
    "a logarithm of a negative number": (
        "  a = f32[2] abs(x)\n  n = f32[2] negate(a)\n  l = f32[2] log(n)\n  ROOT r = f32[2] add(l, x)\n",
        "the first NaN is made by %l (line 6)",
    ),
    "bf16": (
        "  b = bf16[2] convert(x)\n  a = bf16[2] abs(b)\n  n = bf16[2] negate(a)\n  ROOT q = bf16[2] sqrt(n)\n",
        "the first NaN is made by %q (line 7)",
    ),
    "an infinity that is no NaN": (
        (
            "  big = f32[] constant(1e30)\n  b = f32[2] broadcast(big), dimensions={}\n"
            "  m = f32[2] multiply(b, b)\n  ROOT r = f32[2] subtract(m, x)\n"
        ),
        "the first infinity is made by %m (line 6)",
    ),
    "an infinite constant that becomes NaN": (
        (
            "  i = f32[] constant(-inf)\n  b = f32[2] broadcast(i), dimensions={}\n"
            "  ROOT d = f32[2] subtract(b, b)\n"
        ),
        "the first NaN is made by %d (line 6)",
    ),
    "in a fusion, with a line of the program": (
        "  ROOT f = f32[2] fusion(x), kind=kLoop, calls=fused\n",
        "the first NaN is made by %s (line 5, step.py:7)",
    ),
}
FUSED = (
    "fused {\n  p = f32[2] parameter(0)\n  a = f32[2] abs(p)\n"
    '  s = f32[2] acosh(a), metadata={source_file="lib/step.py" source_line=7}\n'
    "  ROOT t = f32[2] negate(s)\n}\n"
)


@pytest.mark.parametrize(("body", "told"), CASES.values(), ids=CASES)
def test_it_is_named(tmp_path: Path, body: str, told: str) -> None:
    """With its line, in the text and in the program."""
    fused = FUSED if "calls=" in body else ""
    path = tmp_path / "m.hlo"
    path.write_text(f"HloModule m\n{fused}ENTRY e {{\n  x = f32[2] parameter(0)\n{body}}}\n")
    np.savez(tmp_path / "in.npz", in_0=np.array([0.25, 0.5], np.float32))
    result = invoke("run", str(path), "--inputs", str(tmp_path / "in.npz"), "--repeat", "1")
    assert told in result.stdout, result.stdout + result.stderr


def test_what_was_given_is_not_made(tmp_path: Path) -> None:
    """NaN in the inputs, and constants of infinity, are no instruction's doing."""
    path = tmp_path / "m.hlo"
    path.write_text(
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] negate(x)\n}\n"
    )
    np.savez(tmp_path / "in.npz", in_0=np.array([np.nan, 0.5], np.float32))
    result = invoke("run", str(path), "--inputs", str(tmp_path / "in.npz"), "--repeat", "1")
    assert "1 of 2 elements of out_0\n" in result.stdout
    assert "made by" not in result.stdout
