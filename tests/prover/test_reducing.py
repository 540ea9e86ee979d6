"""Reducing: the search, failures that stay of their kind, the command."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.cli.main import cli
from hloopt.driver.reducing import ReduceOptions
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Module
from hloopt.prover.reduction.case import Case
from hloopt.prover.reduction.children import asked
from hloopt.prover.reduction.questions import Asked, CaseOutcome, CommandQuestion, Differs
from hloopt.prover.reduction.search import Search, SearchLimits
from hloopt.types import Array
from tests.helpers.rarely import one_in
from tests.properties.random_modules import module_text
from tests.prover.test_deltas import CALLS, LOOP, SHAPES, case_of, opcodes

BROKEN = Path(__file__).with_name("broken_rewrites.py")

# ---- the search -----------------------------------------------------------------------------------


def feeds(producer: str, consumer: str) -> Callable[[Module, list[Array]], bool]:
    """Whether some op reads another, asked of valid modules with inputs that fit."""

    def interesting(module: Module, inputs: list[Array]) -> bool:
        hloopt.verify(module)
        assert [array.shape for array in inputs] == [
            one.array.dims for one in module.entry.parameters
        ]
        return any(
            one.opcode == consumer and any(operand.opcode == producer for operand in one.operands)
            for one in module.instructions()
        )

    return interesting


def test_a_pair_of_ops_is_found() -> None:
    found = hloopt.reduce(hloopt.parse(LOOP), feeds("dot", "tanh"))
    assert [one.opcode for one in found.module.instructions()] in (
        ["parameter", "dot", "tanh"],
        ["parameter", "parameter", "dot", "tanh"],
    )
    assert found.complete
    assert found.to_json()["instructions"] == {
        "before": 23,
        "after": len(list(found.module.instructions())),
    }


@given(st.integers(0, 10_000))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_pair_in_a_random_module(seed: int) -> None:
    """Whatever is drawn: only valid modules are asked, and little is left around two instructions."""
    module = hloopt.parse(module_text(Random(seed)))
    pairs = sorted(
        (operand.opcode, one.opcode)
        for one in module.entry
        for operand in one.operands
        if one.op.is_elementwise and operand.op.is_elementwise
    )
    if not pairs or len(module.entry.parameters) == 0:
        return
    if any(not one.is_array for one in module.entry.parameters):
        return
    found = hloopt.reduce(module, feeds(*pairs[seed % len(pairs)]), limits=SearchLimits(tests=400))
    assert found.module.instruction_count() <= 12, found.text


def broken(kind: str) -> ReduceOptions:
    from hloopt.driver.options import PassOptions

    return ReduceOptions(PassOptions(passes=f"broken{{kind={kind}}}", pass_file=(str(BROKEN),)))


def test_the_earlier_name_of_workers_is_taken_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="jobs of hloopt.reduce is called workers"):
        found = hloopt.reduce(hloopt.parse(SHAPES), feeds("multiply", "reshape"), jobs=1)
    assert found.complete


@pytest.mark.parametrize("workers", one_in(2, [3, 1]))
def test_a_wrong_pass_is_reduced_to_the_same_for_any_number_of_workers(workers: int) -> None:
    found = hloopt.reduce(hloopt.parse(LOOP), options=broken("in_loops"), workers=workers)
    assert found.outcome.kind == "differs"
    assert found.module.instruction_count() <= 16
    assert "while" in [one.opcode for one in found.module.entry]
    again = hloopt.reduce(found.module, inputs=found.inputs, options=broken("in_loops"), workers=1)
    assert again.text == found.text


def test_what_does_not_fail_is_not_reduced() -> None:
    with pytest.raises(UsageError, match="loop: nothing to reduce: the results do not differ"):
        hloopt.reduce(hloopt.parse(LOOP), pipeline="O1")
    with pytest.raises(UsageError, match="it is not interesting"):
        hloopt.reduce(hloopt.parse(LOOP), feeds("sine", "sine"))
    text = 'HloModule m\nENTRY e {\n  ROOT x = f32[] custom-call(), custom_call_target="f"\n}\n'
    with pytest.raises(
        UnsupportedError, match=r"^<text>:3:8: error: x: custom call to f"
    ) as caught:
        hloopt.reduce(hloopt.parse(text), pipeline="O1")
    assert caught.value.notes[-1] == "only what runs as it is can be reduced"


def test_the_header_says_how_many_participants_options_asked_for() -> None:
    text = """
HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add
}
"""
    found = hloopt.reduce(hloopt.parse(text), options=broken("alone"), replicas=2, workers=1)
    assert found.module.attributes["replica_count"] == 2
    assert len(found.case.inputs.arrays) == 2


def test_a_failure_that_comes_and_goes() -> None:
    """Each module fails in every other run only: with two runs of each the reduction is as good as any."""
    runs = 0

    def interesting(module: Module, inputs: list[Array]) -> bool:
        nonlocal runs
        runs += 1
        return runs % 2 == 0 and feeds("dot", "tanh")(module, inputs)

    with pytest.raises(UsageError, match="it is not interesting"):
        hloopt.reduce(hloopt.parse(LOOP), interesting)
    found = hloopt.reduce(hloopt.parse(LOOP), interesting, limits=SearchLimits(repeat=2))
    assert found.fails_again
    assert found.module.instruction_count() <= 4


def test_what_does_not_fail_again_is_said() -> None:
    taken = 0

    def interesting(module: Module, inputs: list[Array]) -> bool:
        nonlocal taken
        taken += 1
        return taken <= 5

    found = hloopt.reduce(hloopt.parse(LOOP), interesting)
    assert not found.fails_again
    assert found.complete


def test_an_interrupt_keeps_the_best() -> None:
    asked_for = 0

    def interesting(module: Module, inputs: list[Array]) -> bool:
        nonlocal asked_for
        asked_for += 1
        if asked_for == 8:
            raise KeyboardInterrupt
        return True

    found = hloopt.reduce(hloopt.parse(LOOP), interesting)
    assert found.interrupted
    assert not found.complete
    assert found.module.instruction_count() < 20


def test_what_was_not_looked_at_is_asked_again() -> None:
    """Candidates behind the one that is taken were begun, but nothing is known of them."""
    found = [
        hloopt.reduce(hloopt.parse(SHAPES), feeds("multiply", "reshape"), workers=workers).text
        for workers in (1, 4)
    ]
    assert found[0] == found[1]


def test_what_quick_answers_lead_to_is_asked_thoroughly() -> None:
    """Quick answers take any dot for the failure; thorough ones want the tanh that reads it."""

    class Hasty(Asked):
        def quickly(self) -> Asked:
            return Asked(lambda module, _: "dot" in [one.opcode for one in module.instructions()])

    case = case_of(LOOP)
    search = Search(Hasty(feeds("dot", "tanh")), SearchLimits(), lambda _: None, case)
    assert search.begin().is_failure
    assert "tanh" in opcodes(search.run())
    assert search.complete
    search = Search(Hasty(lambda *_: True), SearchLimits(), lambda _: None, case)
    assert search.begin().is_failure
    assert "dot" in opcodes(search.run()), "what quick answers lead to is kept where it fails"


def test_limits_end_the_search() -> None:
    found = hloopt.reduce(hloopt.parse(LOOP), feeds("dot", "tanh"), limits=SearchLimits(tests=3))
    assert found.tests == 3
    assert not found.complete


# ---- kinds of failures ----------------------------------------------------------------------------


def test_failures_are_of_one_kind() -> None:
    wrong = CaseOutcome("differs", "a", 1000.0)
    assert CaseOutcome("differs", "b", 9.0).alike(wrong)
    assert not CaseOutcome("differs", "b", 3.0).alike(wrong), "nearly what rounding allows"
    assert CaseOutcome("differs", "b", 3.0).alike(CaseOutcome("differs", "a", 2.5))
    assert not CaseOutcome("not finite", "b", 9.0).alike(wrong)
    nan = CaseOutcome("not finite", "7 of 16 elements of f32 differ; got nan")
    assert CaseOutcome("not finite", "1 of 1 elements of f32 differs; got nan").alike(nan)
    crash = CaseOutcome("pass fails", "KeyError: no dimension 3 of %add.1")
    assert CaseOutcome("pass fails", "KeyError: no dimension 4 of %add.7").alike(crash)
    assert not CaseOutcome("pass fails", "ValueError: no dimension 4 of %add.7").alike(crash)
    assert not CaseOutcome("equal").alike(CaseOutcome("equal"))


def test_nan_is_another_kind_than_a_number() -> None:
    case = case_of(
        "HloModule m\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] negate(x)\n}\n"
    )

    def root(module: Module) -> None:
        from hloopt.ir import build, edit

        edit.set_root(module.entry, build.make(module.entry, "sqrt", (module.entry.root,)))

    case.inputs.arrays[0][0][:] = [-4, -9]
    assert Differs(after=root).ask(case, None).kind == "differs"
    case.inputs.arrays[0][0][:] = [4, -9]
    assert Differs(after=root).ask(case, None).kind == "not finite"


class _Dies(Differs):
    def ask(self, case: Case, seconds: float | None) -> CaseOutcome:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class _Sleeps(Differs):
    def ask(self, case: Case, seconds: float | None) -> CaseOutcome:
        signal.pause()
        raise AssertionError


def test_a_process_that_dies_or_does_not_end_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of(CALLS)
    (found,) = asked(_Dies(), [case], None)
    assert (found.kind, found.text) == ("crash", "ended by SIGKILL")
    monkeypatch.setattr("hloopt.prover.reduction.children._GRACE", 0.1)
    closed = []
    monkeypatch.setattr(_Sleeps, "close", lambda _: closed.append(1))
    (found,) = asked(_Sleeps(), [case], 0.05)
    assert found.kind == "timeout"
    assert closed, "what it asked of XLA is still being worked on"


def test_a_command_decides() -> None:
    case = case_of(CALLS)
    for command, kind in (
        ("grep -q exponential {}", "yes"),
        ("grep -q exponential", "yes"),
        ("grep -q tanh", "no"),
        ("test -s {inputs} && cmp {inputs} $HLOOPT_REDUCE_INPUTS", "yes"),
        ("test ! -e $(dirname {})/inputs.npz", "yes"),
        ("no-such-command-here", "refused"),
    ):
        assert CommandQuestion(command).ask(case, None).kind == kind, command


def test_dead_code_that_matters_stays() -> None:
    text = CALLS.replace("  f = f32[4]", "  dead = f32[4] tanh(x)\n  f = f32[4]")

    def interesting(module: Module, inputs: list[Array]) -> bool:
        return "tanh" in [one.opcode for one in module.entry]

    search = Search(_asked(interesting), SearchLimits(), lambda _: None, case_of(text))
    assert search.begin().is_failure
    assert sorted(opcodes(search.run())) in (
        ["parameter", "tanh"],
        ["constant", "parameter", "tanh"],
    )


def _asked(function: Callable[[Module, list[Array]], bool]) -> Differs:
    return Asked(function)  # type: ignore[return-value]


# ---- the command ----------------------------------------------------------------------------------


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["reduce", *arguments])


def test_the_command_writes_module_and_inputs(tmp_path: Path) -> None:
    source, out = tmp_path / "m.hlo", tmp_path / "small.hlo"
    source.write_text(LOOP)
    options = ["--passes", "broken{kind=in_loops}", "--pass-file", str(BROKEN), "-o", str(out)]
    found = invoke(str(source), "--differs", *options)
    assert found.exit_code == 0, found.output
    assert " -> " in found.stderr
    assert f"--inputs {tmp_path}/small.npz --differs" in found.stderr
    again = invoke(
        str(out), "--inputs", str(out.with_suffix(".npz")), "--differs", *options, "--tests", "0"
    )
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what fails: --differs, --device xla-cpu, or --check CMD"),
        (["--differs", "--check", "true"], "--check decides by itself"),
        (["--check", " "], "--check needs a command"),
        (["--check", "false"], "the command does not exit with 0"),
        (["--check", "no-such-command"], "the command cannot be run"),
        (["--differs", "--device", "cup"], "did you mean 'cpu'"),
        (["--differs", "-o", "."], "-o needs a file"),
        (["--differs", "-O1"], "nothing to reduce: the results do not differ"),
    ],
)
def test_options_that_cannot_be(arguments: list[str], message: str, tmp_path: Path) -> None:
    source = tmp_path / "m.hlo"
    source.write_text(CALLS)
    found = invoke(str(source), *arguments)
    assert found.exit_code == 2, found.output
    assert message in found.output
