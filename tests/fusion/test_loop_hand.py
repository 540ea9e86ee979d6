"""The user's hand on loops: rules, lock files, options, and what explain tells."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import hloopt
from hloopt.analysis.parallel_loop import fused_loop
from hloopt.errors import UsageError
from hloopt.fusion.advice import advised
from hloopt.fusion.lock_adviser import LockWatcher
from hloopt.fusion.lock_file import Decisions, decisions_text, head_text, read_decisions
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.user_rules import rule_of
from hloopt.ir import Instruction, Module
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Controls
from tests.helpers.support import invoke

TEXT = """HloModule m

body {
  state = (s32[], f32[4096]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(trip, one)
  x = f32[4096] get-tuple-element(state), index=1
  y = f32[4096] cosine(x)
  ROOT result = (s32[], f32[4096]) tuple(next, y)
}

condition {
  state = (s32[], f32[4096]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  most = s32[] constant(100)
  ROOT goes_on = pred[] compare(trip, most), direction=LT
}

ENTRY main {
  x = f32[4096] parameter(0)
  zero = s32[] constant(0)
  start = f32[4096] negate(x)
  first = f32[4096] abs(start)
  init = (s32[], f32[4096]) tuple(zero, first)
  loop = (s32[], f32[4096]) while(init), condition=condition, body=body
  last = f32[4096] get-tuple-element(loop), index=1
  a = f32[4096] exponential(last)
  ROOT b = f32[4096] add(a, x)
}
"""
# A product of a weight matrix for few work items in each trip: the whole device is faster than a few blocks.
SLOW = """HloModule slow

body {
  state = (s32[], f32[64,64], f32[64,2048]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(trip, one)
  x = f32[64,64] get-tuple-element(state), index=1
  w = f32[64,2048] get-tuple-element(state), index=2
  wide = f32[64,2048] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  back = f32[64,64] dot(wide, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  y = f32[64,64] tanh(back)
  ROOT result = (s32[], f32[64,64], f32[64,2048]) tuple(next, y, w)
}

condition {
  state = (s32[], f32[64,64], f32[64,2048]) parameter(0)
  trip = s32[] get-tuple-element(state), index=0
  most = s32[] constant(100)
  ROOT goes_on = pred[] compare(trip, most), direction=LT
}

ENTRY main {
  zero = s32[] constant(0)
  x = f32[64,64] parameter(0)
  w = f32[64,2048] parameter(1)
  init = (s32[], f32[64,64], f32[64,2048]) tuple(zero, x, w)
  loop = (s32[], f32[64,64], f32[64,2048]) while(init), condition=condition, body=body
  ROOT r = f32[64,64] get-tuple-element(loop), index=1
}
"""
PASSES = "loop-fusion,priority-fusion,cse,dce,multi-output-fusion,rename-fusions"


def is_kernel(module: Module) -> bool:
    """Whether the loop of a module is one kernel."""
    return any(fused_loop(entry) is not None for entry in module.instructions())


def run(module: Module, passes: str, decisions: Decisions | None = None) -> tuple[str, list[str]]:
    """What a lock file would hold after the passes, and the notes; the module is changed."""
    pipeline, advice = advised(parse_pipeline(passes), (), decisions)
    watcher = LockWatcher(advice.histories)
    report = pipeline.run(
        module, controls=Controls(advice=advice, verify_each=True), watchers=(watcher,)
    )
    return decisions_text(watcher.groups, watcher.unfused, watcher.loops), report.notes


def read(folder: Path, text: str) -> Decisions:
    """The decisions of a file with this text after its head."""
    path = folder / "d.toml"
    path.write_text(head_text({}) + text)
    return read_decisions(str(path))


def test_a_loop_that_would_be_slower_stays() -> None:
    """The refusal has both times; `always` overrules it."""
    plan = LoopFusion().fuse(hloopt.parse(SLOW))
    (refusal,) = plan.refusals
    assert refusal.decision.code == "loop-slower"
    times = refusal.decision.comparison
    assert times is not None
    assert times.gain_us < 0
    (facts,) = plan.loops
    assert (facts.fusion, [bool(way.problem) for way in facts.mappings]) == ("", [True, False])
    assert facts.mappings[1].time_us == pytest.approx(times.fused_us)
    assert LoopFusion(always=True).fuse(hloopt.parse(SLOW)).steps


def test_a_rule_forbids_and_forces() -> None:
    """It is asked about the loop as producer and consumer at once."""
    asked: list[tuple[str, str]] = []

    def answer(wanted: bool) -> Callable[[Instruction, Instruction], bool]:
        def rule(producer: Instruction, consumer: Instruction) -> bool:
            asked.append((producer.opcode, consumer.opcode))
            return wanted

        return rule

    assert not is_kernel(
        hloopt.optimize(hloopt.parse(TEXT), "loop-fusion", fusion_rules=[answer(wanted=False)])
    )
    assert is_kernel(
        hloopt.optimize(hloopt.parse(SLOW), "loop-fusion", fusion_rules=[answer(wanted=True)])
    )
    assert asked == [("while", "while")] * 2


def test_a_refusal_by_a_rule_has_its_reason() -> None:
    """In the plan and in remarks."""
    pipeline, advice = advised(parse_pipeline("loop-fusion"), [rule_of(lambda a, b: (False, "no"))])
    report = pipeline.run(hloopt.parse(TEXT), controls=Controls(advice=advice, remarks=True))
    ((plan,),) = [run.records for run in report.runs]
    (refusal,) = plan.refusals  # type: ignore[attr-defined]
    assert refusal.decision.code == "advised"
    assert refusal.decision.reason.startswith("the user wants it so: no (")


@pytest.mark.parametrize(
    ("key", "text", "kernel"), [("nofuse", TEXT, False), ("fuse", SLOW, True), ("nofuse", SLOW, False)]
)  # fmt: skip
def test_a_line_of_a_file_forbids_and_forces(
    key: str, text: str, kernel: bool, tmp_path: Path
) -> None:
    """The loop is producer and consumer, by its name or another pattern."""
    rows = f'[[{key}]]\nproducer = "loop"\nconsumer = "op:while"\n'
    module = hloopt.parse(text)
    _, notes = run(module, "loop-fusion", read(tmp_path, rows))
    assert is_kernel(module) is kernel
    assert notes == []


def test_a_lock_file_makes_the_same_again(tmp_path: Path) -> None:
    """Module and file come out as they were, what joins the kernel included."""
    module = hloopt.parse(TEXT)
    text, _ = run(module, PASSES)
    assert '[[loop]]\nmodule = "m"\ncomputation = "main"\nname = "loop"\n' in text
    assert 'prologue = ["zero", "start", "first"]' in text
    assert "unfused" not in text  # nothing in the body stands by itself
    again = hloopt.parse(TEXT)
    other, notes = run(again, PASSES, read(tmp_path, text))
    assert (again.to_text(), other, notes) == (module.to_text(), text, [])


def test_a_lock_file_says_what_joins(tmp_path: Path) -> None:
    """A shorter prologue leaves the rest outside."""
    text, _ = run(hloopt.parse(TEXT), "loop-fusion")
    module = hloopt.parse(TEXT)
    shorter = text.replace('"zero", "start", "first"', '"zero", "first"')
    run(module, "loop-fusion", read(tmp_path, shorter))
    assert "start" in module.entry.by_name
    assert "first" not in module.entry.by_name


def test_a_loop_that_is_none_in_the_file_stays(tmp_path: Path) -> None:
    """Without a kernel in its row it runs step by step, whatever the strategy thinks."""
    rows = '[[loop]]\nmodule = "m"\ncomputation = "main"\nname = "loop"\n'
    module = hloopt.parse(TEXT)
    text, _ = run(module, "loop-fusion", read(tmp_path, rows))
    assert not is_kernel(module)
    assert rows in text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cosine(x)", "sine(x)", "%loop: the loop has changed"),
        ("  loop = ", "  round = ", "main has no while named %loop"),
    ],
)
def test_a_file_that_does_not_suit_says_so(old: str, new: str, words: str, tmp_path: Path) -> None:
    """A note, or an error where the file is frozen; the strategy decides then."""
    text, _ = run(hloopt.parse(TEXT), "loop-fusion")
    changed = TEXT.replace(old, new)
    if "round" in new:
        changed = changed.replace("element(loop)", "element(round)")
    module = hloopt.parse(changed)
    decisions = read(tmp_path, text)
    _, notes = run(module, "loop-fusion", decisions)
    assert len(notes) == 1
    assert words in notes[0]
    assert is_kernel(module)
    pipeline, advice = advised(parse_pipeline("loop-fusion"), (), decisions, frozen=True)
    with pytest.raises(UsageError, match="does not suit this module"):
        pipeline.run(hloopt.parse(changed), controls=Controls(advice=advice))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('[[loop]]\nmodule = "m"\ncomputation = "main"\n', r"loop\[0\]: 'name' has to be a text"),
        ('[[loop]]\nmodule = "m"\ncomputation = "main"\nname = "l"\nprologue = "a"\n', "'prologue' is a list of names"),
        ('[[loop]]\nmodule = "m"\ncomputation = "main"\nname = "l"\nkernal = "a"\n', "'kernal' means nothing here"),
    ],
)  # fmt: skip
def test_rows_that_make_no_sense(row: str, words: str, tmp_path: Path) -> None:
    """The entry and the key are named."""
    with pytest.raises(UsageError, match=words):
        read(tmp_path, row)


def test_explain_tells_whose_kernel_the_body_is() -> None:
    """What runs within a loop's kernel is in that, together with the ops before it."""
    told = json.loads(invoke("explain", "--passes", PASSES, "--json", "-", "y", stdin=TEXT).stdout)
    (row,) = told["modules"][0]["fusion"]["instructions"]
    assert [kernel["name"] for kernel in row["kernels"]] == ["loop_fusion"]
    assert (row["loop"]["name"], row["loop"]["fusion"]) == ("loop", "loop_fusion")
    both = json.loads(
        invoke("explain", "--passes", PASSES, "--json", "-", "y", "start", stdin=TEXT).stdout
    )
    assert both["modules"][0]["fusion"]["pairs"][0]["together"]


def test_explain_has_both_ways_with_their_numbers() -> None:
    """Fit or not, each way is there; what was refused says what would change it."""
    told = json.loads(
        invoke("explain", "--passes", "loop-fusion", "--json", "-", "loop", stdin=SLOW).stdout
    )
    (row,) = told["modules"][0]["fusion"]["instructions"]
    ways = row["loop"]["ways"]
    assert [(way["kernel"], way["fits"]) for way in ways] == [
        ("while-per-thread", False),
        ("while-per-block", True),
    ]
    assert ways[0]["problem"]
    assert ways[1]["time_us"] > 0
    assert row["loop"]["fusion"] is None
    (word,) = row["refusals"]
    assert word["code"] == "loop-slower"
    shown = invoke("explain", "--passes", "loop-fusion", "-", "loop", stdin=SLOW).stdout
    assert "loop-fusion{always=true} would let it through" in shown


@pytest.mark.parametrize("command", ["stats", "diff", "kernels", "run", "check", "hash", "defuse"])
def test_commands_take_a_module_with_a_fused_loop(command: str, tmp_path: Path) -> None:
    """As they take every other fusion, in words and as JSON."""
    path, before = tmp_path / "fused.hlo", tmp_path / "before.hlo"
    path.write_text(hloopt.optimize(hloopt.parse(TEXT), PASSES).to_text())
    before.write_text(TEXT)
    files = [str(before), str(path)] if command == "diff" else [str(path)]
    for options in ([], ["--json"]):
        result = invoke(command, *files, *options)
        assert result.exit_code in ((0, 1) if command == "diff" else (0,)), result.stderr
        assert result.stdout
