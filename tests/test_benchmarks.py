"""What the benchmarks are made of: inputs by their rules, ratios and means.  Nothing is timed here."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.benchmarks import (
    children,
    executing,
)
from tests.benchmarks.children import Program, drawn, ours, saved

FOLDER = Path(__file__).parent / "benchmarks"

TEXT = """
HloModule m
ENTRY e {
  x = bf16[2] parameter(0)
  y = f32[2] parameter(1)
  wide = f32[2] convert(x)
  ROOT sum = f32[2] add(wide, y)
}
"""


def spec(kind: str, dtype: str = "f32", a: float = 2.0, b: float = 5.0) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1000], "rule": {"kind": kind, "a": a, "b": b, "seed": [0, 3]}}


def test_inputs_are_drawn_by_their_rule() -> None:
    """The generator of the seed, the distribution of the kind, the type that is asked for."""
    generator = np.random.default_rng([0, 3])
    wanted = (generator.standard_normal(1000) * 2.0).astype(np.float32)
    assert drawn(spec("normal")).tobytes() == wanted.tobytes()
    uniform, integers = drawn(spec("uniform", "bf16")), drawn(spec("integers", "s32"))
    assert uniform.dtype.name == "bfloat16"
    assert 2 <= float(uniform.min()) < float(uniform.max()) <= 5
    assert integers.dtype == np.int32
    assert set(integers.tolist()) == {2, 3, 4}
    with pytest.raises(ValueError, match="unknown rule 'other'"):
        drawn(spec("other"))


def test_the_samples_are_measured_without_a_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that has inputs, in the types of its parameters."""
    monkeypatch.delenv("HLOOPT_CORPUS", raising=False)
    found = {program.name: program for program in children.programs()}
    samples = Path(__file__).parent.parent / "samples"
    assert found.keys() == {path.stem for path in samples.glob("*.npz")}
    assert {array.dtype.name for array in found["f16_value_head"].inputs} >= {"float16"}


def test_a_process_of_its_own_says_how_long_each_step_took(tmp_path: Path) -> None:
    """Types that NumPy lacks come through the file of inputs; what is refused is said."""
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    x = drawn({**spec("normal", "bf16"), "shape": [2]})
    program = Program("m", path, [x, np.ones(2, np.float32)])
    before = time.monotonic()
    found = ours(path, saved(program), "O1", seconds=1e-9)
    after = time.monotonic()
    steps = [found[step] for step in ("parse", "optimize", "compile", "first")]
    assert all(step > 0 for step in steps)
    assert sum(steps) < found["whole"] < after - before
    assert 0 < found["warm"] <= found["whole"]
    path.write_text(TEXT.replace("convert(x)", 'custom-call(x), custom_call_target="who"'))
    assert "who" in ours(path, saved(program), "none")["refused"]


def test_ratios_are_to_the_figure_of_the_same_kind() -> None:
    """Cold to cold, warm to warm; a column that a program lacks has none; what is slow is named."""
    row = {
        "program": "p", "cold none": 1.0, "cold O2": 3.0, "whole O1": 8.0, "warm O1": 39.0,
        "warm native O1": None,
        "xla cold": 2.0, "xla whole": 4.0, "xla warm": 3.0,
    }  # fmt: skip
    assert executing._ratios(row) == {
        "ratio cold none": 0.5,
        "ratio cold O2": 1.5,
        "ratio whole O1": 2.0,
        "ratio warm O1": 13.0,
        "over": "12x: warm O1",
    }
    slow = {"ratio cold": 2.0, "ratio warm": 9.0, "over": ""}
    fast = {"ratio cold": 0.5, "over": ""}
    means = executing._means([slow, fast])
    assert means.pop("program") == "geometric mean"
    assert means == pytest.approx({"ratio cold": 1.0, "ratio warm": 9.0})


def test_all_tables_have_a_name_and_a_title() -> None:
    """``--json`` and ``--only`` go by the names."""
    from tests.benchmarks import bench

    assert {"starting", "executing", "memory", "models"} <= {*bench.TABLES, *bench.LONG}
    assert json.dumps([title for _, title in (*bench.TABLES.values(), *bench.LONG.values())])
