"""What XLA's rewrites explain, and what they do not."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.types import of_numpy
from tests.corpus import records
from tests.corpus.explanations import EXPLANATIONS, rewritten
from tests.corpus.known import excuse
from tests.corpus.records import moved, record_of, spread
from tests.corpus.stages import GOLDEN_STAGES, ORDER_OPEN, examine
from tests.helpers.support import Recorded

F32 = np.float32

ADD = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""

RECIPROCAL = """HloModule m
ENTRY e {
  x = f32[3] parameter(0)
  c = f32[] constant(3)
  d = f32[3] broadcast(c), dimensions={}
  ROOT q = f32[3] divide(x, d)
}
"""

TREE = f"""HloModule m
{ADD}
ENTRY e {{
  x = f32[70] parameter(0)
  i = f32[] parameter(1)
  ROOT r = f32[] reduce(x, i), dimensions={{0}}, to_apply=add
}}
"""

ONE_WINDOW = """HloModule m
two {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  s = f32[] add(a, c)
  p = f32[] multiply(b, d)
  ROOT t = (f32[], f32[]) tuple(s, p)
}

ENTRY e {
  x = f32[] parameter(0)
  i = f32[] parameter(1)
  w = (f32[], f32[]) reduce-window(x, x, i, i), to_apply=two
  ROOT s = f32[] get-tuple-element(w), index=0
}
"""

ONE_ELEMENT = f"""HloModule m
{ADD}
ENTRY e {{
  x = f32[1,1] parameter(0)
  i = f32[] parameter(1)
  ROOT r = f32[] reduce(x, i), dimensions={{0,1}}, to_apply=add
}}
"""

CLAMP = """HloModule m
ENTRY e {
  a = f32[] parameter(0)
  x = f32[] parameter(1)
  b = f32[] parameter(2)
  c = f32[] clamp(a, x, b)
  ROOT r = f32[] maximum(a, c)
}
"""

BF16 = ml_dtypes.bfloat16

SUM = """HloModule m
add {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT r = bf16[] add(a, b)
}

ENTRY e {
  x = bf16[20] parameter(0)
  i = bf16[] parameter(1)
  ROOT r = bf16[] reduce(x, i), dimensions={0}, to_apply=add
}
"""

QUOTIENT = """HloModule m
ENTRY e {
  x = c64[2] parameter(0)
  y = c64[2] parameter(1)
  ROOT q = c64[2] divide(x, y)
}
"""

CASES = {
    "complex quotients that lose an infinity beside a NaN": (
        QUOTIENT,
        [np.array([complex("nan+infj"), 6], np.complex64), np.array([1 + 1j, 2], np.complex64)],
        np.array([complex("nan+nanj"), 3], np.complex64),
    ),
    "sums that are rounded after every addition": (
        SUM,
        [np.ones(20, BF16), BF16(512)],
        BF16(512),
    ),
    "reciprocals of constant divisors": (
        RECIPROCAL,
        [np.array([1, 5, 7], F32)],
        np.array([1, 5, 7], F32) * (F32(1) / F32(3)),
    ),
    "reductions in two steps": (TREE, [np.ones(70, F32), F32(1)], F32(70 + 3 + 1)),
    "reductions of one element without their init": (
        ONE_ELEMENT,
        [np.full((1, 1), 2, F32), F32(1)],
        F32(2),
    ),
    "a clamp for its maximum with its lower bound": (CLAMP, [F32(5), F32(1), F32(3)], F32(3)),
}


def same(got: np.ndarray, want: np.ndarray) -> bool:
    """Element by element, NaN alike."""
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    return np.array_equal(got.astype(wide), np.asarray(want).astype(wide), equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_a_rewrite_does_what_xla_does(name: str) -> None:
    """It applies where it should, gives a valid module and XLA's results, and leaves the original alone."""
    text, inputs, want = CASES[name]
    module = hloopt.parse(text)
    before = module.to_text()
    inputs = [np.asarray(one) for one in inputs]
    copy = dict(rewritten(module))[name]
    hloopt.verify(copy)
    assert same(hloopt.evaluate(copy, inputs)[0], want)
    assert not same(hloopt.evaluate(module, inputs)[0], want)
    assert module.to_text() == before


def test_every_rewrite_is_tried() -> None:
    """A case for each, and a module to which none applies has none."""
    assert set(CASES) == {explanation.name for explanation in EXPLANATIONS}
    plain = "HloModule m\n\nENTRY e {\n  p = f32[3] parameter(0)\n  ROOT n = f32[3] negate(p)\n}\n"
    assert not list(rewritten(hloopt.parse(plain)))


def stored(values: np.ndarray) -> np.ndarray:
    """As files hold it: a type that NumPy lacks as an unsigned view."""
    return values.view(np.uint16) if values.dtype == BF16 else values


def golden(folder: Path, text: str, inputs: list[np.ndarray], output: np.ndarray) -> Path:
    """A text with a record of its results, as they lie in the corpus."""
    (folder / "texts").mkdir()
    (folder / "golden").mkdir()
    path = folder / "texts" / "g.hlo"
    path.write_text(text)
    arrays = {f"in_{index}": stored(values) for index, values in enumerate(inputs)}
    np.savez(folder / "golden" / "g.npz", **arrays, out_0=stored(output))
    names = [of_numpy(array.dtype).name for array in (*inputs, output)]
    specs = [{"dtype": name} for name in names]
    meta = {"inputs": specs[:-1], "outputs": specs[-1:], "flags": ["unstable_sort", "wrapped"]}
    (folder / "golden" / "g.json").write_text(json.dumps(meta))
    return path


@pytest.mark.parametrize("name", CASES)
def test_a_rewrite_that_explains_is_named(name: str, tmp_path: Path) -> None:
    """Every way of running the module says so, and a rule lets it off."""
    text, inputs, want = CASES[name]
    if name == "reciprocals of constant divisors":
        pytest.skip("no tolerance is as small as what this one changes")
    path = golden(tmp_path, text, [np.asarray(one) for one in inputs], np.asarray(want))
    outcome = examine(path, GOLDEN_STAGES)
    assert outcome["evaluated"].endswith(f"not so with {name}")
    results = [stage for stage in GOLDEN_STAGES if stage not in ("settled", "alone")]
    assert all(excuse(stage, outcome[stage]) for stage in results)
    assert outcome["settled"] == outcome["alone"] == "ok"


def test_a_window_of_several_operands_is_explained(tmp_path: Path) -> None:
    """As one of a single operand is."""
    inputs = [np.asarray(F32(2)), np.asarray(F32(1))]
    outcome = examine(golden(tmp_path, ONE_WINDOW, inputs, np.asarray(F32(2))), GOLDEN_STAGES)
    assert outcome["ran"].endswith("not so with reductions of one element without their init")


def test_results_that_nothing_explains_fail(tmp_path: Path) -> None:
    """A wrong number stays one."""
    path = golden(tmp_path, TREE, [np.ones(70, F32), np.asarray(F32(1))], np.asarray(F32(72)))
    outcome = examine(path, GOLDEN_STAGES)
    assert outcome["evaluated"] == "failed: AssertionError: out_0: 100.00% of the elements differ"
    assert not excuse("evaluated", outcome["evaluated"])


def test_flags_tell_what_shows_little(tmp_path: Path) -> None:
    """Among them only the weak ones count."""
    golden(tmp_path, TREE, [np.ones(70, F32), np.asarray(F32(1))], np.asarray(F32(71)))
    found = records.flags(tmp_path / "golden" / "g.json")
    assert found == {"unstable_sort", "wrapped"}
    assert found & records.WEAK == {"unstable_sort"}


def test_a_record_has_the_tolerances_of_its_types(tmp_path: Path) -> None:
    """Relative to the largest magnitude where the type has one."""
    path = golden(tmp_path, TREE, [np.ones(70, F32), np.asarray(F32(1))], np.asarray(F32(71)))
    record = record_of(path)
    assert record is not None
    assert record.specs == [{"rtol": 2e-5, "atol": pytest.approx(71 * 2e-6)}]
    assert record_of(tmp_path / "texts" / "other.hlo") is None


def test_inputs_move_by_a_few_ulps() -> None:
    """Only fractions do: integers often mean themselves."""
    values = np.array([0.5, 2.0, 0.1, np.inf], F32)
    (after,) = moved([values], 0)
    steps = np.abs(after.view(np.int32) - values.view(np.int32))
    assert steps[[1, 3]].tolist() == [0, 0]
    assert set(steps[[0, 2]]) <= {1, 2, 3, 4}
    (same,) = moved([np.arange(3)], 0)
    assert same.tolist() == [0, 1, 2]


def test_a_result_may_be_off_by_what_its_inputs_move() -> None:
    """An ill-conditioned module has a wide tolerance, another has its own."""
    record = Recorded([np.array([0.1], F32)], [np.zeros(1, F32)], [{"rtol": 0.0, "atol": 1e-9}])
    steep = spread(lambda inputs: [np.sin(np.exp(inputs[0] * 150))], record)
    assert steep.specs[0]["atol"] > 0.01
    bits = Recorded(record.inputs, [np.zeros(1, np.int32)], [{}])
    assert spread(lambda inputs: [inputs[0].view(np.int32)], bits).specs[0]["spread"] >= 6
    flat = spread(lambda inputs: [inputs[0] * 0], record)
    assert flat.specs == [{**record.specs[0], "spread": 0.0}]


def test_an_open_order_is_told(tmp_path: Path) -> None:
    """Of a sort that is not stable; one that is has no such excuse."""
    sort = """HloModule m
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}

ENTRY e {
  x = f32[2] parameter(0)
  ROOT s = f32[2] sort(x), dimensions={0}, to_apply=less
}
"""
    given, wrong = np.array([2, 1], F32), np.array([2, 1], F32)
    path = golden(tmp_path, sort, [given], wrong)
    open_order = examine(path, GOLDEN_STAGES)["ran"]
    assert open_order.endswith(ORDER_OPEN)
    assert excuse("ran", open_order)
    path.write_text(sort.replace("={0}, to", "={0}, is_stable=true, to"))
    assert examine(path, GOLDEN_STAGES)["ran"].endswith("of the elements differ")


def test_what_a_pass_has_folded_away_is_explained_by_what_was_given(tmp_path: Path) -> None:
    """A quotient of constants is a constant after O2; a result that O2 alone gives is not explained."""
    text = """HloModule m
ENTRY e {
  x = c64[] constant((nan, inf))
  y = c64[] constant((1, 1))
  ROOT q = c64[] divide(x, y)
}
"""
    path = golden(tmp_path, text, [], np.asarray(np.complex64(complex("nan+nanj"))))
    outcome = examine(path, GOLDEN_STAGES)
    assert outcome["ran_o2"].endswith("beside a NaN")
