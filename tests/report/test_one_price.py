"""One count and one time: every command that shows what a kernel costs shows the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.support import invoke

SAMPLES = Path(__file__).parents[2] / "samples"
_LARGE = 20_000
FILES = ("attention", "while_loop", "kalman_scan", "softmax_cross_entropy", "mlp_train_step")

BOUNDED = """HloModule bounded

condition {
  state = (s32[], f32[1024], f32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  last = f32[] get-tuple-element(state), index=2
  thirty = s32[] constant(30)
  small = f32[] constant(0.001)
  more = pred[] compare(i, thirty), direction=LT
  far = pred[] compare(last, small), direction=GT
  ROOT both = pred[] and(more, far)
}

plus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}

body {
  state = (s32[], f32[1024], f32[]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[1024] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ordered = f32[1024] sort(x), dimensions={0}, to_apply=less
  y = f32[1024] exponential(ordered)
  zero = f32[] constant(0)
  total = f32[] reduce(y, zero), dimensions={0}, to_apply=plus
  ROOT out = (s32[], f32[1024], f32[]) tuple(next, y, total)
}

ENTRY main {
  x = f32[1024] parameter(0)
  zero = s32[] constant(0)
  one = f32[] constant(1)
  start = (s32[], f32[1024], f32[]) tuple(zero, x, one)
  loop = (s32[], f32[1024], f32[]) while(start), condition=condition, body=body
  ROOT y = f32[1024] get-tuple-element(loop), index=1
}
"""


def of(command: str, *words: str) -> dict[str, Any]:
    """What a command says of its one module."""
    rows = json.loads(invoke(command, *words, "--json").stdout)["modules"]
    found: dict[str, Any] = rows[0]
    return found


def _texts() -> Iterator[Path]:
    yield from (SAMPLES / f"{name}.hlo" for name in FILES)
    corpus = os.environ.get("HLOOPT_CORPUS")
    if corpus:
        yield from sorted(Path(corpus, "jax").glob("*.before.hlo"))[::6]


def _slow_if_large(path: Path) -> pytest.ParameterSet:
    marks = [pytest.mark.slow] * (path.stat().st_size > _LARGE)
    return pytest.param(path, marks=marks, id=path.stem)


@pytest.mark.parametrize("target", ["h200", "host"])
@pytest.mark.parametrize("path", [*map(_slow_if_large, _texts())])
def test_times_agree_kernel_by_kernel(path: Path, target: str, tmp_path: Path) -> None:
    """Of what ``kernels`` makes ready, ``stats``, ``explain`` and ``study`` predict the same times."""
    listed = of("kernels", str(path), "--target", target, "--plan")
    ready = tmp_path / "ready.hlo"
    ready.write_text(listed["hlo"])
    stats = of("stats", str(ready), "--target", target)["prediction"]
    theirs = {(row["computation"], row["name"]): row for row in stats["kernels"]}
    mine = {(row["computation"], row["instruction"]): row["predicted"] for row in listed["choices"]}
    for place, row in theirs.items():
        assert (mine[place]["seconds"], mine[place]["total_seconds"], mine[place]["by"]) == (
            row["seconds"], row["total_seconds"], row["by"],
        )  # fmt: skip
    assert {place for place, cost in mine.items() if cost is not None} == set(theirs)
    assert listed["seconds"] == pytest.approx(stats["seconds"])
    told = of("explain", str(path), "--target", target)["summary"]
    assert sum(row["seconds"] for row in told) == pytest.approx(stats["seconds"])


def test_a_study_predicts_what_stats_does(tmp_path: Path) -> None:
    """The same module, the same device: the sum of all kernels."""
    path = str(SAMPLES / "attention.hlo")
    words = ("--strategy", "O2", "--device", "h200", "--no-verify", "--json")
    study = json.loads(invoke("study", path, *words).stdout)
    (cell,) = (cell for cell in study["cells"] if cell["device"] == "h200")
    better = tmp_path / "better.hlo"
    better.write_text(invoke("optimize", "-O2", path, "--target", "h200").stdout)
    stats = of("stats", str(better), "--target", "h200")["prediction"]
    assert cell["predicted"]["seconds"] == pytest.approx(stats["seconds"])


def test_one_count_of_flops_and_bytes() -> None:
    """``stats`` and ``diff`` count the same, loops and transcendental functions too."""
    for name in FILES:
        path = str(SAMPLES / f"{name}.hlo")
        stats = of("stats", path)
        diff = json.loads(invoke("diff", path, path, "--json").stdout)["before"]
        for figure in ("kernels", "flops", "transcendentals", "bytes_read", "bytes_written"):
            assert stats[figure] == diff[figure], (name, figure)


def test_a_bound_of_a_loop_counts_everywhere(tmp_path: Path) -> None:
    """30 trips at most are 30 trips in every report, and said to be at most."""
    path = tmp_path / "bounded.hlo"
    path.write_text(BOUNDED)
    stats = of("stats", str(path), "--target", "h200")["prediction"]
    counts = {row["name"]: row["launches"] for row in stats["kernels"]}
    assert (counts["y"], counts["both"]) == (30, 31)
    assert (stats["launches_known"], stats["launches_bounded"]) == (False, True)
    shown = invoke("stats", str(path), "--target", "h200").stdout
    assert "predicted at most " in shown
    assert "<=30" in shown
    assert "an upper bound, each of these loops counts as often as it may run" in shown
    choices = of("kernels", str(path), "-O0")["choices"]
    assert {row["predicted"]["launches"] for row in choices if row["computation"] == "body"} == {30}
    loops = of("explain", str(path), "-O3")["fusion"]["loops"]
    assert "at most 30 iterations" in loops[0]["trips"]
    words = " ".join(refusal["reason"] for refusal in loops[0]["refusals"])
    assert "100 iterations" not in words
    assert of("stats", str(path))["flops"] >= 30 * 1023


def test_what_is_lost_in_a_loop_is_lost_in_every_trip(tmp_path: Path) -> None:
    """A refusal in a body of 30 trips costs thirty times what one trip loses."""
    (tmp_path / "rule.py").write_text("def never(producer, consumer):\n    return (False, 'no')\n")
    rule = f"{tmp_path / 'rule.py'}:never"
    path = tmp_path / "bounded.hlo"
    path.write_text(BOUNDED.replace("ordered = f32[1024] sort(x), dimensions={0}, to_apply=less",
                                    "ordered = f32[1024] tanh(x)"))  # fmt: skip
    words = (str(path), "--passes", "priority-fusion", "--fusion-rule", rule)
    rows = [
        row for row in of("explain", *words)["fusion"]["refusals"] if row["computation"] == "body"
    ]
    assert rows
    for row in rows:
        gain = row["unfused_us"] - row["fused_us"]
        assert (row["runs"], row["lost_us"]) == (30, pytest.approx(30 * gain))
    assert ", in each of 30 runs" in " ".join(invoke("explain", *words).stdout.split())
