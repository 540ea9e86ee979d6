"""Reducing: each delta alone, the search, failures that stay of their kind, the command."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.cli.main import cli
from hloopt.driver.reducing import ReduceOptions
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Module
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.children import asked
from hloopt.prover.reduction.deltas import (
    attributes,
    bodies,
    dimensions,
    results,
    values,
    whole,
)
from hloopt.prover.reduction.questions import CaseOutcome, CommandQuestion, Differs
from hloopt.prover.reduction.recording import Delta, ValueRecorder
from hloopt.prover.reduction.search import Search, SearchLimits
from hloopt.prover.trials import Trial, made
from hloopt.types import Array
from tests.properties.random_modules import module_text

BROKEN = Path(__file__).with_name("broken_rewrites.py")

LOOP = """
HloModule loop

body {
  p = (s32[], f32[8,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,4] get-tuple-element(p), index=1
  k = f32[8,4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  e = f32[8,4] tanh(x)
  y = f32[8,4] add(e, k)
  z = f32[8,4] negate(k)
  ROOT t = (s32[], f32[8,4], f32[8,4]) tuple(j, y, z)
}

cond {
  p = (s32[], f32[8,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}

ENTRY main {
  x = f32[8,4] parameter(0), metadata={op_name="x"}
  y = f32[4,3] parameter(1)
  z = s32[] constant(0)
  s = (s32[], f32[8,4], f32[8,4]) tuple(z, x, x)
  w = (s32[], f32[8,4], f32[8,4]) while(s), condition=cond, body=body
  v = f32[8,4] get-tuple-element(w), index=1
  d = f32[8,3] dot(v, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,3] tanh(d)
  ROOT r = (f32[8,3], f32[8,4]) tuple(t, v)
}
"""


def case_of(text: str) -> Case:
    module = hloopt.parse(text)
    hloopt.verify(module)
    return Case(module, made(module, Trial()))


def applied(delta: Delta, case: Case, *sites: tuple[object, ...]) -> Case:
    """The case after a delta, which has these sites; it is valid, and so is its text."""
    assert set(sites) <= set(delta.sites(case)), delta.sites(case)
    draft = CaseDraft(case)
    delta.apply(draft, sites, ValueRecorder(case))
    found = draft.finish()
    assert found is not None
    hloopt.verify(hloopt.parse(found.module.to_text()))
    return found


def run(case: Case) -> list[Array]:
    return hloopt.evaluate(case.module, case.inputs.arrays[0])


def opcodes(case: Case) -> list[str]:
    return [one.opcode for one in case.module.entry]


def test_values_become_parameters_with_what_they_were() -> None:
    case = case_of(LOOP)
    found = applied(values.PARAMETERS, case, ("main", "d"))
    assert "dot" not in opcodes(found)
    for one, other in zip(run(found), run(case), strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_beginning_of_the_entry_is_given() -> None:
    case = case_of(LOOP)
    sites = values.FRONT.sites(case)
    found = applied(values.FRONT, case, *sites[:-1])
    assert opcodes(found) == ["parameter", "parameter", "tanh", "tuple"][0:1] + opcodes(found)[1:]
    assert not {"while", "dot"} & set(opcodes(found))
    np.testing.assert_array_equal(run(found)[0], run(case)[0])


def test_the_end_of_the_entry_is_cut_off() -> None:
    case = case_of(LOOP)
    found = applied(results.BACK, case, ("r",), ("t",), ("d",))
    assert "dot" not in opcodes(found)
    np.testing.assert_array_equal(run(found)[-1], run(case)[1])


def test_results_are_dropped_and_a_single_one_is_bare() -> None:
    case = case_of(LOOP)
    found = applied(results.RESULTS, case, (0, 2))
    assert found.module.entry.root.name == "v"
    np.testing.assert_array_equal(run(found)[0], run(case)[1])


def test_the_root_becomes_its_operand() -> None:
    case = applied(results.RESULTS, case_of(LOOP), (1, 2))
    found = applied(results.ROOT, case, ("t", 0))
    assert found.module.entry.root.opcode == "dot"


def test_values_become_operands_and_constants() -> None:
    case = case_of(LOOP)
    assert "tanh" not in opcodes(applied(values.OPERANDS, case, ("main", "t", 0)))
    found = applied(values.CONSTANTS, case, ("main", "t", "0"))
    assert not run(found)[0].any()
    found = applied(values.CONSTANTS, case, ("main", "d", "first"))
    first = run(case)[0].reshape(-1)[0]
    np.testing.assert_array_equal(run(found)[0], np.full((8, 3), first))
    assert ("body", "j", 0) not in values.OPERANDS.sites(case), "the loop would not end"


def test_a_loop_is_its_body_once_or_fewer_iterations() -> None:
    case = case_of(LOOP)
    once = applied(bodies.LOOPS, case, ("main", "w", "once", 0))
    one_trip = applied(bodies.LOOPS, case, ("cond", "n", "number", 1))
    assert "while" not in opcodes(once)
    assert "while" in opcodes(one_trip)
    np.testing.assert_array_equal(run(once)[1], run(one_trip)[1])


def test_elements_of_a_state_stay_or_go() -> None:
    case = case_of(LOOP)
    kept = applied(bodies.LOOPS, case, ("main", "w", "keep", 2))
    assert "negate" not in [one.opcode for one in kept.module.instructions()]
    gone = applied(bodies.LOOPS, kept, ("main", "w", "drop", 2))
    assert len(gone.module.entry.by_name["w"].elements) == 2


def test_a_state_of_one_element_is_bare() -> None:
    text = LOOP.replace(
        "ROOT c = pred[] compare(i, n), direction=LT", "ROOT c = pred[] constant(false)"
    )
    case = case_of(text)
    case = applied(bodies.LOOPS, case, ("main", "w", "drop", 0), ("main", "w", "drop", 2))
    found = applied(bodies.LOOPS, case, ("main", "w", "bare", 0))
    assert found.module.entry.by_name["w"].is_array
    np.testing.assert_array_equal(run(found)[1], run(case)[1])


CALLS = """
HloModule calls

fused {
  a = f32[4] parameter(0)
  b = f32[4] exponential(a)
  ROOT c = f32[4] negate(b)
}

left { p = f32[4] parameter(0)
  ROOT n = f32[4] sine(p) }

right { p = f32[4] parameter(0)
  ROOT n = f32[4] cosine(p) }

ENTRY main {
  x = f32[4] parameter(0)
  q = pred[] parameter(1)
  f = f32[4] fusion(x), kind=kLoop, calls=fused
  ROOT w = f32[4] conditional(q, f, x), true_computation=left, false_computation=right
}
"""


def test_called_computations_take_the_place_of_calls() -> None:
    case = case_of(CALLS)
    found = applied(bodies.BODIES, case, ("main", "f", 0), ("main", "w", 1))
    assert opcodes(found) == ["parameter", "cosine"], "what only the other branch read is gone"
    opened = applied(bodies.BODIES, case, ("main", "f", 0))
    np.testing.assert_array_equal(run(opened)[0], run(case)[0])


def test_values_of_a_fusion_are_handed_in() -> None:
    case = case_of(CALLS)
    found = applied(values.PARAMETERS, case, ("fused", "b"))
    assert len(found.module.entry.by_name["f"].operands) == 1
    np.testing.assert_array_equal(run(found)[0], run(case)[0])


def test_dimensions_shrink_through_all_shapes() -> None:
    case = case_of(LOOP)
    sites = [site for site in dimensions.DIMENSIONS.sites(case) if site[-1] == 1]
    assert len(sites) == 3, sites
    for site in sites:
        assert applied(dimensions.DIMENSIONS, case, site).size < case.size
    shapes = {str(one.shape) for one in applied(dimensions.DIMENSIONS, case, *sites).module.entry}
    assert {"f32[1,1]", "s32[]"} <= shapes
    assert not any("8" in shape or "4" in shape for shape in shapes)


SHAPES = """
HloModule shapes

ENTRY main {
  x = f32[6,10] parameter(0)
  c = f32[10] constant({1,2,3,4,5,6,7,8,9,10})
  b = f32[6,10] broadcast(c), dimensions={1}
  m = f32[6,10] multiply(x, b)
  r = f32[60] reshape(m)
  s = f32[20] slice(r), slice={[30:50]}
  i = f32[20] iota(), iota_dimension=0
  a = f32[20] add(s, i)
  z = f32[] constant(0)
  ROOT p = f32[24] pad(a, z), padding=1_3
}
"""


def test_slices_reshapes_and_paddings_follow() -> None:
    case = case_of(SHAPES)
    found = case
    for _ in range(8):
        for site in dimensions.DIMENSIONS.sites(found):
            draft = CaseDraft(found)
            try:
                dimensions.DIMENSIONS.apply(draft, [site], ValueRecorder(found))
            except hloopt.ShapeError:
                continue
            smaller = draft.finish()
            if smaller is not None and smaller.size < found.size:
                found = smaller
                break
    assert found.module.entry.by_name["r"].array.dims == (1,)
    assert found.module.entry.root.array.dims == (5,)
    assert run(found)


def test_element_types_become_usual_ones() -> None:
    case = case_of(LOOP.replace("f32", "bf16").replace("s32", "s64"))
    found = applied(whole.ELEMENT_TYPES, case, ("s64", "s32"), ("bf16", "f32"))
    assert "bf16" not in found.module.to_text()
    assert run(found)[0].dtype == np.float32


def test_attributes_go() -> None:
    text = LOOP.replace("HloModule loop", "HloModule loop, is_scheduled=true")
    found = applied(attributes.ATTRIBUTES, case_of(text), ("metadata",), ("header", "is_scheduled"))
    assert "metadata" not in found.module.to_text()
    assert not found.module.attributes


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


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_wrong_pass_is_reduced_to_the_same_for_any_number_of_jobs(jobs: int) -> None:
    found = hloopt.reduce(hloopt.parse(LOOP), options=broken("in_loops"), jobs=jobs)
    assert found.outcome.kind == "differs"
    assert found.module.instruction_count() <= 16
    assert "while" in [one.opcode for one in found.module.entry]
    again = hloopt.reduce(found.module, inputs=found.inputs, options=broken("in_loops"), jobs=1)
    assert again.text == found.text


def test_what_does_not_fail_is_not_reduced() -> None:
    with pytest.raises(UsageError, match="loop: nothing to reduce: the results do not differ"):
        hloopt.reduce(hloopt.parse(LOOP), pipeline="O1")
    with pytest.raises(UsageError, match="it is not interesting"):
        hloopt.reduce(hloopt.parse(LOOP), feeds("sine", "sine"))
    text = 'HloModule m\nENTRY e {\n  ROOT x = f32[] custom-call(), custom_call_target="f"\n}\n'
    with pytest.raises(UnsupportedError, match=r"m does not run as it is: .*custom-call"):
        hloopt.reduce(hloopt.parse(text), pipeline="O1")


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
    (found,) = asked(_Sleeps(), [case], 0.05)
    assert found.kind == "timeout"


def test_a_command_decides() -> None:
    case = case_of(CALLS)
    for command, kind in (
        ("grep -q exponential {}", "yes"),
        ("grep -q exponential", "yes"),
        ("grep -q tanh", "no"),
        ("test -s {inputs} && cmp {inputs} $HLOOPT_REDUCE_INPUTS", "yes"),
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
    from hloopt.prover.reduction.questions import Asked

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
        ([], "say what fails: --differs, --oracle xla-cpu, or --check CMD"),
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
