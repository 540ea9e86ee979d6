"""Bisecting the stages of dumps: what is named, what is excused, what is left out."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.dumps import read_dump
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.pipelines import make_pipeline
from hloopt.prover.bisection import Bisection
from hloopt.prover.dump_bisect import DumpBisect
from hloopt.prover.dumped_stages import compiler_of, stages_of
from hloopt.prover.executor import Executor
from hloopt.prover.trials import TrialOptions
from hloopt.report.bisect import show_bisection
from hloopt.report.console import capturing
from hloopt.report.dump_passes import DumpPasses

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


UNUSED = BEFORE.replace("  e =", "  u = f32[8,8] tanh(x)\n  e =")


def dump(folder: Path, *stages: tuple[str, str], first: str = BEFORE) -> DumpBisect:
    folder.mkdir(exist_ok=True)
    for label, text in (("before_optimizations", first), *stages):
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


def test_numbers_that_become_nan_are_found_where_rounding_explains_them(tmp_path: Path) -> None:
    """A product that overflows in the place of quotients: (a / b) / (c / d) as (a * d) / (b * c)."""
    text = """HloModule jit_f
ENTRY e {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  q = f32[4] divide(a, b)
  ROOT r = f32[4] divide(q, q)
}
"""
    other = text.replace("q = f32[4] divide", "q = f32[4] multiply")
    search = dump(tmp_path, ("0001.a.after_algsimp.before_x", other), first=text)
    np.savez(
        tmp_path / "in.npz", in_0=np.full(4, 3e38, np.float32), in_1=np.full(4, 9.0, np.float32)
    )
    assert not search.run().culprits
    search.inputs = TrialOptions(str(tmp_path / "in.npz"))
    (culprit,) = search.run().culprits
    assert culprit.name == "algsimp"
    assert {one.name for one in culprit.rewritten} >= {"q"}


def test_a_dump_of_ours_is_known_by_its_pipeline(tmp_path: Path) -> None:
    """Names of passes would not do: XLA has a cse and a dce, too."""
    own = DumpPasses(tmp_path, "O1", Module.to_text, Path.write_text)
    make_pipeline("cse,dce").run(hloopt.parse(UNUSED), watchers=[own])
    (read,) = read_dump(tmp_path).modules
    stages = stages_of(read)
    assert [stage.pass_name for stage in stages] == ["", "dce", ""]
    assert compiler_of(stages) == "hloopt"
    xla = dump(tmp_path / "xla", ("0001.simplification.after_dce.before_cse", BEFORE))
    assert compiler_of(xla.stages) == "xla"


MANY = 40


def many(folder: Path, texts: dict[int, str], unread: frozenset[int] = frozenset()) -> DumpBisect:
    """A dump in which each stage swaps operands of one more product; from some numbers on, texts change."""
    swapped, stages = BEFORE.replace("ROOT q", "q"), []
    for number in range(1, MANY):
        body = "".join(
            f"  p{n} = f32[8,8] multiply({'e, q' if n < number else 'q, e'})\n" for n in range(MANY)
        )
        last = max((at for at in texts if at <= number), default=None)
        root = "multiply(p0, p1)" if last is None else texts[last]
        text = f"{swapped.rstrip()[:-1]}{body}  ROOT z = f32[8,8] {root}\n}}\n"
        label = f"{number:04d}.simplification.after_algsimp.before_cse"
        stages.append((label, "junk" if number in unread else text))
    first = stages.pop(0)[1].replace("multiply(e, q)", "multiply(q, e)")
    return dump(folder, *stages, first=first)


def test_of_many_stages_those_between_equal_ones_are_not_run(tmp_path: Path) -> None:
    found = many(tmp_path, {27: "add(p0, p1)"}).run()
    (culprit,) = found.culprits
    assert culprit.where.startswith("0027")
    assert len(found.examined) < 10
    assert any(
        "stages between others that give the same results were not run" in one
        for one in found.notes
    )


def test_of_many_stages_the_first_is_found_across_what_may_round(tmp_path: Path) -> None:
    """The class of the first change allows it; the search goes on behind it, and around what cannot be read."""
    texts = {9: "multiply(p1, p0)", 14: "add(p0, p1)", 30: "subtract(p0, p1)"}
    found = many(tmp_path, texts, frozenset({19, 20, 13})).run()
    (culprit,) = found.culprits
    assert culprit.where.startswith("0014")
    assert culprit.name == "algsimp"
    assert culprit.notes[0].startswith("0013")
    every = many(tmp_path, texts, frozenset({19, 20, 13}))
    every.every = True
    assert [one.where[:4] for one in every.run().culprits] == ["0014", "0030"]


def test_of_many_stages_that_agree_all_are_run(tmp_path: Path) -> None:
    """Also one that is wrong and mended by a later one."""
    found = many(tmp_path, {}).run()
    assert found.summary == f"all {MANY - 1} stages agree"
    assert len(found.examined) == MANY - 1
    (culprit,) = many(tmp_path, {8: "add(p0, p1)", 9: "multiply(p0, p1)"}).run().culprits
    assert culprit.where.startswith("0008")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ("constant(0)", "w: the loop does not end: iteration 1 has not changed its state"),
        ("constant(-1)", "jit_f: the interpreter was at "),
    ],
)
def test_a_stage_whose_loop_does_not_end_is_found(tmp_path: Path, step: str, why: str) -> None:
    loop = """HloModule jit_f
c {
  i = s32[] parameter(0)
  n = s32[] constant(9)
  ROOT l = pred[] compare(i, n), direction=LT
}
b {
  i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT a = s32[] add(i, one)
}
ENTRY e {
  i = s32[] parameter(0)
  ROOT w = s32[] while(i), condition=c, body=b
}
"""
    stage = ("0001.a.after_cse.before_x", loop.replace("constant(1)", step))
    search = dump(tmp_path, stage, first=loop)
    search.executor = Executor(seconds=0.3)
    np.savez(tmp_path / "in.npz", in_0=np.int32(0))
    search.inputs = TrialOptions(str(tmp_path / "in.npz"))
    found = search.run()
    (culprit,) = found.culprits
    assert culprit.name == "cse"
    assert found.examined[-1].note.startswith(why)


def test_stages_in_processes_are_those_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is ended is a stage that cannot be run."""
    texts = {5: "add(p0, p1)", 11: "multiply(p1, p0)"}
    alone = many(tmp_path, texts, frozenset({7}))
    beside = many(tmp_path, texts, frozenset({7}))
    alone.every = beside.every = True
    want = alone.run().to_json()
    monkeypatch.setattr("hloopt.prover.stage_runs._WORTH", 0.0)
    monkeypatch.setattr("hloopt.prover.stage_runs.available_cores", lambda: 2)
    assert beside.run().to_json() == want

    def killed(path: Path) -> bytes:
        if "0012" in path.name:
            os.kill(os.getpid(), signal.SIGKILL)
        return path.read_bytes()

    monkeypatch.setattr("hloopt.prover.stage_runs.bytes_of", killed)
    rows = {one.name[:4]: one for one in beside.run().examined}
    assert rows["0012"].outcome == "not run"
    assert rows["0012"].note == "the process that ran it: ended by SIGKILL"


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


def test_what_is_printed_of_stages_fits_a_terminal(tmp_path: Path) -> None:
    """But for the name of the stage that is found, which is to be copied."""
    pipeline, following = (
        "simplification-after-layout-assignment",
        "float-normalization-f8e4m3b11fnuz",
    )
    label = f"0011.{pipeline}.after_algsimp.before_{following}"
    other = f"0012.{pipeline}.after_{following}.before_cse"
    wrong = BEFORE.replace("divide(e, c)", "divide(c, e)")
    search = dump(tmp_path, (label, wrong), (other, "junk"))
    search.every = True
    found = search.run()
    console = capturing(80)
    show_bisection(found, console, every=True)
    lines = console.export_text().splitlines()
    assert any(line.startswith("0011.after_algsimp ") for line in lines)
    assert any(line.lstrip().startswith("0011.after_algsimp:") for line in lines)
    assert [line for line in lines[1:] if len(line) > 80] == [f"  {label}"]
