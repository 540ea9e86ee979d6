"""Bisecting the stages of dumps: what is named, what is excused, what is left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.dumps import read_dump
from hloopt.errors import UsageError
from hloopt.prover.bisection import Bisection
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.stages import compiler_of, stages_of
from hloopt.prover.trials import TrialOptions

BEFORE = """HloModule jit_f

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[8,8] parameter(0)
  zero = f32[] constant(0)
  e = f32[8,8] exponential(x)
  r = f32[8] reduce(e, zero), dimensions={1}, to_apply=add
  c = f32[8,8] broadcast(r), dimensions={0}
  ROOT q = f32[8,8] divide(e, c)
}
"""


def dump(folder: Path, *stages: tuple[str, str]) -> DumpBisect:
    for label, text in (("before_optimizations", BEFORE), *stages):
        (folder / f"module_0001.jit_f.{label}.txt").write_text(text)
    (module,) = read_dump(folder).modules
    return DumpBisect(module.label, str(folder), stages_of(module))


def outcomes(found: Bisection) -> list[str]:
    return [one.outcome for one in found.examined]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("divide(e, c)", "divide(c, e)", "q"),
        ("dimensions={1}, to", "dimensions={0}, to", "r"),
        ("constant(0)", "constant(1)", "zero"),
        ("dimensions={0}\n", "dimensions={1}\n", "c"),
        ("ROOT s = f32[] add(a, b)", "ROOT s = f32[] maximum(a, b)", "r"),
    ],
)
def test_a_wrong_rewrite_is_named(tmp_path: Path, old: str, new: str, named: str) -> None:
    wrong = BEFORE.replace(old, new)
    found = dump(
        tmp_path,
        ("0001.simplification.after_cse.before_algsimp", BEFORE.replace("  c =", "  c  =")),
        ("0002.simplification.after_algsimp.before_dce", wrong),
        ("0003.simplification.after_dce.before_cse", wrong),
    ).run()
    (culprit,) = found.culprits
    assert found.exit_code == 1
    assert (culprit.name, culprit.where[:4]) == ("algsimp", "0002")
    assert named in {one.name for one in culprit.rewritten if one.is_first}
    assert culprit.remedy == "--xla_disable_hlo_passes=algsimp"


def test_an_exact_pass_may_write_a_sum_otherwise(tmp_path: Path) -> None:
    """A reduce of a transposed array adds up the same terms, perhaps in another order."""
    moved = BEFORE.replace(
        "  r = f32[8] reduce(e, zero), dimensions={1}",
        "  t = f32[8,8] transpose(e), dimensions={1,0}\n  r = f32[8] reduce(t, zero), dimensions={0}",
    )
    found = dump(tmp_path, ("0001.a.after_reshape-mover.before_x", moved)).run()
    assert not found.culprits
    assert outcomes(found)[1] in ("equal", "within")


def test_a_pass_that_cannot_be_switched_off_says_so(tmp_path: Path) -> None:
    wrong = BEFORE.replace("divide(e, c)", "divide(c, e)")
    (culprit,) = dump(tmp_path, ("0001.a.after_dot_decomposer.before_x", wrong)).run().culprits
    assert not culprit.remedy
    assert culprit.remedy_note.startswith("cannot be switched off: ")


@pytest.mark.parametrize(("last", "required"), [("cpu", False), ("sm_9.0_gpu", True)])
def test_what_gpus_need_can_be_switched_off_elsewhere(
    tmp_path: Path, last: str, required: bool
) -> None:
    wrong = BEFORE.replace("divide(e, c)", "divide(c, e)")
    stages = (("0001.a.after_conv-rewriter.before_x", wrong),)
    final = (f"{last}_after_optimizations", wrong)
    (culprit,) = dump(tmp_path, *stages, final).run().culprits
    assert culprit.remedy_note.startswith("cannot be switched off: ") is required
    assert bool(culprit.remedy) is not required


def test_nothing_is_compared_across_what_draws_anew(tmp_path: Path) -> None:
    other = BEFORE.replace("divide(e, c)", "multiply(e, c)")
    found = dump(
        tmp_path,
        ("0000.a.after_pipeline-start.before_rng-expander", BEFORE),
        ("0001.a.after_rng-expander.before_x", other),
    ).run()
    assert outcomes(found) == ["first", "same", "skipped"]
    assert found.exit_code == 0


def test_every_stage_that_changes_results_is_found_when_asked(tmp_path: Path) -> None:
    one = BEFORE.replace("divide(e, c)", "multiply(e, c)")
    search = dump(
        tmp_path,
        ("0001.a.after_cse.before_dce", one),
        ("0002.a.after_dce.before_x", one.replace("exponential", "tanh")),
    )
    search.every = True
    assert [culprit.name for culprit in search.run().culprits] == ["cse", "dce"]


def test_recorded_results_that_differ_are_code_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HLOOPT_XLA_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    search = dump(tmp_path, ("0001.a.after_cse.before_dce", BEFORE.replace("  c =", "  c  =")))
    search.recorded = [[np.zeros((8, 8), np.float32)]]
    found = search.run()
    (culprit,) = found.culprits
    assert culprit.name == "code generation"
    assert found.summary == "all 2 stages agree: code generation"
    assert "HLOOPT_XLA_PYTHON" in culprit.notes[0]


def test_recorded_results_that_agree_are_right(tmp_path: Path) -> None:
    search = dump(tmp_path, ("0001.a.after_cse.before_dce", BEFORE.replace("  c =", "  c  =")))
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    np.savez(tmp_path / "in.npz", in_0=x)
    np.savez(tmp_path / "out.npz", out_0=np.exp(x) / np.exp(x).sum(0))
    search.inputs = TrialOptions(str(tmp_path / "in.npz"))
    search.expect = tmp_path / "out.npz"
    assert search.run().exit_code == 1  # divided by the sums of the other dimension
    np.savez(tmp_path / "out.npz", out_0=np.exp(x) / np.exp(x).sum(1)[:, None])
    assert search.run().exit_code == 0


def test_a_dump_of_ours_is_known_by_its_passes(tmp_path: Path) -> None:
    own = dump(tmp_path, ("0001.O2.after_simplify.before_pipeline-end", BEFORE))
    assert compiler_of(own.stages) == "hloopt"
    xla = dump(tmp_path, ("0002.b.after_pipeline-start.before_algsimp", BEFORE))
    assert compiler_of(xla.stages) == "xla"


def test_each_change_that_results_show_is_found(tmp_path: Path) -> None:
    """Two rewrites of one pass, of results that have nothing to do with each other."""
    text = """HloModule f
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  a = f32[4] add(x, y)
  m = f32[4] multiply(x, y)
  t = f32[4] tanh(m)
  ROOT out = (f32[4], f32[4], f32[4]) tuple(a, t, m)
}
"""
    wrong = text.replace("add(x", "subtract(x").replace("tanh(m)", "negate(m)")
    for label, own in (("before_optimizations", text), ("0001.a.after_algsimp.before_x", wrong)):
        (tmp_path / f"module_0001.jit_f.{label}.txt").write_text(own)
    (module,) = read_dump(tmp_path).modules
    (culprit,) = DumpBisect(module.label, str(tmp_path), stages_of(module)).run().culprits
    assert {found.after.name for found in culprit.differences} == {"a", "t"}
    assert {found.after.opcode for found in culprit.differences} == {"subtract", "negate"}


def test_python_bisects_a_dump_as_the_command_does(tmp_path: Path) -> None:
    wrong = BEFORE.replace("divide(e, c)", "divide(c, e)")
    dump(tmp_path, ("0001.a.after_cse.before_x", wrong))
    assert [one.name for one in hloopt.bisect(tmp_path).culprits] == ["cse"]
    (tmp_path / "module_0002.jit_g.before_optimizations.txt").write_text(BEFORE)
    (tmp_path / "module_0002.jit_g.cpu_after_optimizations.txt").write_text(BEFORE)
    with pytest.raises(UsageError, match="it has 2 modules"):
        hloopt.bisect(tmp_path)
    assert not hloopt.bisect(tmp_path, dumped="jit_g").culprits
