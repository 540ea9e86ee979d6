"""Functions of a user that say what is fused: asked first, held to nothing but correctness, named when they fail."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.fusion import user_rules
from hloopt.fusion.advice import Advice
from hloopt.fusion.user_rules import UserRule, load_rule, rule_of
from hloopt.ir import Instruction, Module
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Controls
from tests.helpers.support import invoke

CHAIN = """HloModule chain

ENTRY main {
  x = f32[1024] parameter(0)
  y = f32[1024] parameter(1)
  a = f32[1024] multiply(x, y)
  b = f32[1024] add(a, x)
  ROOT r = f32[1024] negate(b)
}
"""

# Both users of ``e`` read each of its elements many times: XLA's rules leave it alone.
SHARED = """HloModule shared

ENTRY main {
  x = f32[64] parameter(0)
  e = f32[64] log(x)
  wide = f32[64,64] broadcast(e), dimensions={0}
  ROOT r = f32[64,64] negate(wide)
}
"""


def fused(module: Module) -> list[list[str]]:
    """What the bodies of the entry's fusions hold, parameters left out."""
    return [
        [inner.name for inner in entry.attributes["calls"] if inner.opcode != "parameter"]
        for entry in module.entry
        if entry.opcode == "fusion"
    ]


def run(text: str, passes: str, *rules: Callable[[Instruction, Instruction], Any]) -> Any:
    """The module after the passes, and the plans."""
    module = hloopt.parse(text)
    advice = Advice([rule_of(rule) for rule in rules])
    report = parse_pipeline(passes).run(module, controls=Controls(advice=advice, verify_each=True))
    return module, [record for run in report.runs for record in run.records]


@pytest.mark.parametrize("passes", ["instruction-fusion", "priority-fusion"])
def test_a_no_stands_whatever_the_strategy_thinks(passes: str) -> None:
    """The pair stays apart, and the refusal has the user's reason and who gave it."""

    def apart(producer: Instruction, consumer: Instruction) -> Any:
        return (False, "measured alone") if producer.opcode == "multiply" else None

    module, (plan,) = run(CHAIN, passes, apart)
    assert [set(names) for names in fused(module)] == [{"b", "r"}]
    (refusal,) = [row for row in plan.refusals if row.decision.code == "advised"]
    assert refusal.producer == "a"
    assert refusal.decision.words.startswith("measured alone (")
    assert "apart" in refusal.decision.reason
    without, _ = run(CHAIN, passes)
    assert [set(names) for names in fused(without)] == [{"a", "b", "r"}]


def test_a_yes_takes_the_place_of_heuristics() -> None:
    """An expensive producer whose elements are read again and again joins because the user wants it."""
    module, _ = run(SHARED, "instruction-fusion")
    assert fused(module) == [["wide", "r"]]
    module, _ = run(SHARED, "instruction-fusion", lambda producer, consumer: True)
    assert [set(names) for names in fused(module)] == [{"e", "wide", "r"}]


def test_a_yes_does_not_make_what_cannot_be() -> None:
    """A producer that has a side effect, or is the result, stays."""
    text = """HloModule m
ENTRY main {
  x = f32[8] parameter(0)
  t = token[] after-all()
  c = f32[8] custom-call(x), custom_call_target="f", custom_call_has_side_effect=true
  ROOT r = f32[8] negate(c)
}
"""
    module, _ = run(text, "instruction-fusion", lambda producer, consumer: True)
    assert fused(module) == []


def test_the_first_answer_counts() -> None:
    """A rule without an answer leaves the pair to the next, then to the strategy."""
    asked: list[str] = []

    def silent(producer: Instruction, consumer: Instruction) -> None:
        asked.append(f"{producer.name} {consumer.name}")

    module, _ = run(CHAIN, "instruction-fusion", silent, lambda producer, consumer: False)
    assert fused(module) == []
    assert "b r" in asked
    module, _ = run(CHAIN, "instruction-fusion", lambda producer, consumer: None, silent)
    assert len(fused(module)) == 1


@pytest.mark.parametrize("answer", [1, "no", (True, 2), (None, "why"), [True], (True, "a", "b")])
def test_any_other_answer_is_an_error(answer: Any) -> None:
    """It says which rule answered what for which pair."""
    with pytest.raises(
        UsageError, match=r"answers .* for %\w into %\w: True, False, None or a pair"
    ):
        run(CHAIN, "instruction-fusion", lambda producer, consumer: answer)


RULES = """
def apart(producer, consumer):
    if producer.opcode == "multiply":
        return False, "measured alone"

def broken(producer, consumer):
    return producer.weight
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module, and rules that can be imported from it."""
    (tmp_path / "m.hlo").write_text(CHAIN)
    (tmp_path / "my_fusion_rules.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("my_fusion_rules", None)


@pytest.mark.parametrize("rule", ["my_fusion_rules:apart", "my_fusion_rules.py:apart"])
@pytest.mark.usefixtures("folder")
def test_a_rule_of_the_command_line(rule: str) -> None:
    """By module or by file, on a command that runs passes; a remark tells what it said."""
    result = invoke(
        "optimize", "m.hlo", "--fusion-rule", rule, "--remarks", "missed", "-o", "out.hlo"
    )
    assert result.exit_code == 0
    assert f"the user wants it so: measured alone ({rule})" in result.stderr
    assert "%a = f32[1024] multiply" in Path("out.hlo").read_text()


@pytest.mark.usefixtures("folder")
def test_a_failing_rule_names_its_line() -> None:
    """With the pair it was asked about; exit code 2."""
    result = invoke("optimize", "m.hlo", "--fusion-rule", "my_fusion_rules:broken")
    assert result.exit_code == 2
    wanted = (
        r"hloopt: error: my_fusion_rules:broken failed on %\w into %\w \(my_fusion_rules.py:7\): "
        r"AttributeError: 'Instruction' object has no attribute 'weight'\n"
    )
    assert re.fullmatch(wanted, result.stderr)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fusion-rule", "nothing"), "'nothing' is not of the form module:function"),
        (("--fusion-rule", "not_there_at_all:f"), "'not_there_at_all' cannot be imported"),
        (("--fusion-rule", "gone.py:f"), "gone.py: no such file"),
        (("--fusion-rule", "my_fusion_rules:f"), "'my_fusion_rules' has no function 'f'"),
        (
            ("-O1", "--fusion-rule", "my_fusion_rules:apart"),
            "--fusion-rule my_fusion_rules:apart: no pass of the pipeline fuses anything",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_rules_that_cannot_be_asked(words: tuple[str, ...], message: str) -> None:
    """Exit code 2 before any module is read."""
    result = invoke("optimize", "m.hlo", *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not result.stdout


def test_rules_of_the_python_api() -> None:
    """``optimize`` takes functions; a pipeline that fuses nothing does not."""
    module = hloopt.parse(CHAIN)
    apart = hloopt.optimize(module, fusion_rules=[lambda producer, consumer: False])
    assert fused(apart) == []
    assert len(fused(hloopt.optimize(module))) == 1
    with pytest.raises(UsageError, match="no pass of the pipeline fuses anything"):
        hloopt.optimize(module, "O1", fusion_rules=[lambda producer, consumer: False])
    with pytest.raises(UsageError, match="a fusion rule is a function, not 3"):
        hloopt.optimize(module, fusion_rules=[3])  # type: ignore[list-item]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Installs a distribution with entry points of the group."""
    monkeypatch.syspath_prepend(str(tmp_path))
    info = tmp_path / "their_fusion-1.0.dist-info"

    def write(entries: str) -> None:
        (tmp_path / "their_fusion.py").write_text(RULES + "\nnumber = 3\n")
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-fusion\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[hloopt.fusion]\n{entries}\n")

    user_rules.installed_rules.cache_clear()
    yield write
    user_rules.installed_rules.cache_clear()
    sys.modules.pop("their_fusion", None)
    shutil.rmtree(info, ignore_errors=True)


def test_an_installed_rule_is_asked_last(install: Callable[[str], None]) -> None:
    """By itself it decides; a rule of the call comes before it; lists name it."""
    install("keep = their_fusion:apart")
    module = hloopt.parse(CHAIN)
    assert [set(names) for names in fused(hloopt.optimize(module))] == [{"b", "r"}]
    wanted = hloopt.optimize(module, fusion_rules=[lambda producer, consumer: True])
    assert [set(names) for names in fused(wanted)] == [{"a", "b", "r"}]
    assert invoke("passes").stdout.endswith("after all others (installed): keep\n")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("bad = their_fusion:nothing", "the entry point 'bad' of hloopt.fusion cannot be loaded"),
        ("bad = their_fusion:number", "the entry point 'bad' of hloopt.fusion is not a function"),
    ],
)
def test_an_installed_rule_that_cannot_be_loaded(
    entry: str, message: str, install: Callable[[str], None]
) -> None:
    """It is named; silence would change what is fused."""
    install(entry)
    with pytest.raises(UsageError, match=message):
        hloopt.optimize(hloopt.parse(CHAIN))


def test_a_rule_has_the_name_that_was_given(folder: Path) -> None:
    """The text of the command line, or module and name of a function."""
    assert load_rule("my_fusion_rules:apart").label == "my_fusion_rules:apart"
    assert rule_of(run).label.endswith(":run")
    assert UserRule("x", run).label == "x"


NO_EXP = """
def no_exp(producer, consumer):
    if producer.opcode == "exponential":
        return False, "I say so"

def silent(producer, consumer):
    return None
"""
SOFTMAX = """HloModule softmax

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

ENTRY main {
  x = f32[64,256] parameter(0)
  y = f32[64,256] parameter(1)
  d = f32[64,256] subtract(x, y)
  e = f32[64,256] exponential(d)
  zero = f32[] constant(0)
  s = f32[64] reduce(e, zero), dimensions={1}, to_apply=add
  w = f32[64,256] broadcast(s), dimensions={0}
  ROOT r = f32[64,256] divide(e, w)
}
"""


def test_a_refused_pair_that_is_fused_all_the_same_is_told(folder: Path) -> None:
    """An op is a fusion once it has been fused with what it reads: a rule that knows ops alone misses it."""
    (folder / "m.hlo").write_text(SOFTMAX)
    (folder / "my_fusion_rules.py").write_text(NO_EXP)
    words = (
        "optimize",
        "m.hlo",
        "--passes",
        "priority-fusion",
        "-o",
        "out.hlo",
        "--remarks",
        "missed",
    )
    told = invoke(*words, "--fusion-rule", "my_fusion_rules.py:no_exp").stderr
    note = re.search(
        r"no_exp: called \d+ times, refused (\d+) pairs, of which (\d+) are in one", told
    )
    assert note is not None, told
    assert note[1] == note[2] != "0"
    assert re.search(r"missed: %e in %main: .*I say so.*both are in one kernel anyway", told)
    silent = invoke(*words, "--fusion-rule", "my_fusion_rules.py:silent").stderr
    assert re.search(r"silent: called \d+ times, refused 0 pairs$", silent, re.MULTILINE)


def test_a_refused_pair_that_stays_apart_is_no_surprise(folder: Path) -> None:
    """Only the count is told, and the refusal once, by the strategy."""
    told = invoke(
        *(
            "optimize",
            "m.hlo",
            "-o",
            "out.hlo",
            "--remarks",
            "missed",
            "--passes",
            "priority-fusion",
        ),
        *("--fusion-rule", "my_fusion_rules.py:apart"),
    ).stderr
    assert re.search(r"apart: called \d+ times, refused 2 pairs$", told, re.MULTILINE)
    assert told.count("measured alone") == 1
    assert "all the same" not in told
