"""What a fusion looks like in the graph: names, parameters, metadata, order, users."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.fusion.duplication import Duplication, RealUsers
from hloopt.fusion.fusible import (
    is_expensive_to_repeat,
    repeats_reads,
    reused_operands,
    reused_parameters,
)
from hloopt.fusion.instruction_fusion import InstructionFusion
from hloopt.fusion.strategies import fusible_computations
from hloopt.ir import Instruction, Module
from hloopt.rewrite.pass_ import PassLog


def _fused(text: str) -> tuple[Module, Instruction]:
    module = hloopt.parse(text)
    InstructionFusion().fuse(module)
    hloopt.verify(module)
    return module, next(entry for entry in module.entry if entry.opcode == "fusion")


CHAIN = """HloModule m, is_scheduled=true
ENTRY e {
  p = f32[8] parameter(0)
  q = f32[8] parameter(1)
  a = f32[8] multiply(p, q), metadata={op_name="first"}
  b = f32[8] add(a, p), metadata={op_name="second"}
  ROOT c = f32[8] subtract(b, b), metadata={op_name="third"}
}
"""


def test_names_and_parameters() -> None:
    """XLA's names; an operand that is read several times is one parameter."""
    module, fusion = _fused(CHAIN)
    body = fusion.attributes["calls"]
    assert fusion.name == "add_subtract_fusion"
    assert body.name == "fused_computation"
    assert [operand.name for operand in fusion.operands] == ["p", "q"]
    assert [parameter.name for parameter in body.parameters] == ["param_0", "param_1"]
    assert [entry.name for entry in body] == ["param_0", "param_1", "a", "b", "c"]
    assert body.root.name == "c"
    assert module.entry.root is fusion
    assert fusion.attributes["kind"] == "kLoop"


def test_metadata_stays_with_its_op() -> None:
    """The fusion tells where its root came from; each op inside keeps its own."""
    _, fusion = _fused(CHAIN)
    assert fusion.metadata is not None
    assert fusion.metadata.fields["op_name"] == "third"
    inner = fusion.attributes["calls"].by_name["a"].metadata
    assert inner is not None
    assert inner.fields["op_name"] == "first"


def test_a_schedule_does_not_survive() -> None:
    """The order of the text is no longer that of the scheduler."""
    module, _ = _fused(CHAIN)
    assert "is_scheduled" not in module.attributes


def test_nothing_to_fuse_changes_nothing() -> None:
    """Also the schedule stays."""
    module = hloopt.parse(
        "HloModule m, is_scheduled=true\nENTRY e { ROOT p = f32[8] parameter(0) }\n"
    )
    assert not InstructionFusion().run(module, PassLog())
    assert "is_scheduled" in module.attributes


def test_the_log_counts_and_keeps_the_plan() -> None:
    """Statistics by opcodes, and the whole plan for whoever explains it."""
    log = PassLog()
    assert InstructionFusion().run(hloopt.parse(CHAIN), log)
    assert log.hits == {"fuse add into subtract": 1, "fuse multiply into subtract": 1}
    (plan,) = log.records
    assert [step.producer for step in plan.steps] == ["b", "a"]
    assert not any(step.duplicated for step in plan.steps)


def test_layouts_go_inside() -> None:
    """A body's ops and parameters keep their layouts."""
    text = """HloModule m
ENTRY e {
  p = f32[4,8]{0,1} parameter(0)
  a = f32[4,8]{0,1} negate(p)
  ROOT b = f32[4,8]{0,1} abs(a)
}
"""
    _, fusion = _fused(text)
    assert {str(entry.shape) for entry in fusion.attributes["calls"]} == {"f32[4,8]{0,1}"}


def test_a_duplicated_producer_stays_for_the_others() -> None:
    """One copy inside, one outside, users in step."""
    text = """HloModule m
ENTRY e {
  p = f32[8] parameter(0)
  n = f32[8] floor(p)
  a = f32[8] negate(n)
  ROOT t = (f32[8], f32[8]) tuple(n, a)
}
"""
    module, fusion = _fused(text)
    assert fusion.operands == (module.entry.by_name["p"],)
    assert list(module.entry.by_name["n"].users) == [module.entry.root]


LOOP = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) d = f32[] add(a, b) ROOT c = f32[] negate(d) }
cond { s = f32[8] parameter(0) z = f32[] constant(0)
  r = f32[] reduce(s, z), dimensions={0}, to_apply=sum ROOT c = pred[] compare(r, z), direction=LT }
body { s = f32[8] parameter(0) n = f32[8] negate(s) ROOT m = f32[8] abs(n) }
branch { s = f32[8] parameter(0) n = f32[8] negate(s) ROOT m = f32[8] abs(n) }
callee { s = f32[8] parameter(0) n = f32[8] negate(s) ROOT m = f32[8] abs(n) }
ENTRY e {
  p = f32[8] parameter(0)
  q = pred[] parameter(1)
  w = f32[8] while(p), condition=cond, body=body
  c = f32[8] conditional(q, w, w), true_computation=branch, false_computation=branch
  ROOT r = f32[8] call(c), to_apply=callee
}
"""


def test_control_flow_is_fused_inside_and_regions_are_not() -> None:
    """Bodies of loops, branches and calls; never the region of a reduce."""
    module = hloopt.parse(LOOP)
    names = {computation.name for computation in fusible_computations(module)}
    assert names == {"e", "cond", "body", "branch", "callee"}
    InstructionFusion().fuse(module)
    hloopt.verify(module)
    assert len(module.computations["sum"]) == 4
    assert module.computations["body"].root.opcode == "fusion"


def test_emission_counts() -> None:
    """Two slices under an addition write their operand twice; same shapes share one index."""
    text = """HloModule m
f { p = f32[8] parameter(0) q = f32[8] parameter(1) n = f32[8] negate(p) m = f32[8] add(n, p)
  s = f32[4] slice(m), slice={[0:4]} t = f32[4] slice(m), slice={[4:8]}
  u = f32[4] slice(q), slice={[4:8]}
  v = f32[4] add(s, t) ROOT w = f32[4] add(u, v) }
ENTRY e { p = f32[8] parameter(0) q = f32[8] parameter(1)
  ROOT r = f32[4] fusion(p, q), kind=kLoop, calls=f }
"""
    module = hloopt.parse(text)
    body = module.computations["f"]
    counts = Duplication(body)
    assert [counts.count(parameter) for parameter in body.parameters] == [2, 1]
    users = RealUsers()
    assert users.of(module.entry.by_name["p"]) == 2
    assert users.of(module.entry.by_name["q"]) == 1


def test_reuse_is_found_along_paths() -> None:
    """Behind a broadcast every operand is read again and again; elementwise reads are single."""
    text = """HloModule m
f { p = f32[8] parameter(0) q = f32[8,8] parameter(1) n = f32[8] negate(p)
  b = f32[8,8] broadcast(n), dimensions={0} ROOT w = f32[8,8] add(b, q) }
ENTRY e { p = f32[8] parameter(0) q = f32[8,8] parameter(1)
  ROOT r = f32[8,8] fusion(p, q), kind=kLoop, calls=f }
"""
    module = hloopt.parse(text)
    assert [entry.name for entry in reused_parameters(module.computations["f"])] == ["p"]
    assert reused_operands(module.entry.root) == {module.entry.by_name["p"]}


def test_large_computations_are_fused_step_by_step() -> None:
    """Twenty thousand additions over ninety inputs: a step costs what its operands cost.

    No clock is asserted: a quadratic pass would take minutes and hit the suite's time limit.
    """
    lines = [f"p{at} = f32[8]{{0}} parameter({at})" for at in range(90)]
    lines.append("x0 = f32[8]{0} negate(p0)")
    lines += [f"x{at} = f32[8]{{0}} add(x{at - 1}, p{at % 90})" for at in range(1, 20_000)]
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines[:-1]) + "\nROOT " + lines[-1] + "\n}\n"
    module = hloopt.parse(text)
    plan = InstructionFusion().fuse(module)
    assert len(plan.steps) == 19_999


def test_a_fusion_of_the_text_may_take_an_operand_twice() -> None:
    """The producer takes the place of both parameters."""
    _, fusion = _fused("""HloModule m
f { p = f32[8] parameter(0) q = f32[8] parameter(1) r = f32[8] parameter(2)
  s = f32[8] multiply(p, q) ROOT t = f32[8] subtract(s, r) }
ENTRY e { p = f32[8] parameter(0) n = f32[8] negate(p)
  ROOT r = f32[8] fusion(n, p, n), kind=kLoop, calls=f }
""")
    body = fusion.attributes["calls"]
    assert [operand.name for operand in fusion.operands] == ["p"]
    assert [parameter.parameter_number for parameter in body.parameters] == [0]
    assert [entry.opcode for entry in body] == ["parameter", "negate", "multiply", "subtract"]


def test_a_fusion_of_the_text_may_compute_nothing() -> None:
    """A body of parameters only, whose root is one of them, takes producers in as well."""
    module, fusion = _fused("""HloModule m
f { p = f32[8] parameter(0) ROOT q = f32[8] parameter(1) }
ENTRY e { p = f32[8] parameter(0) n = f32[8] multiply(p, p)
  ROOT r = f32[8] fusion(p, n), kind=kLoop, calls=f }
""")
    body = fusion.attributes["calls"]
    assert [operand.name for operand in fusion.operands] == ["p"]
    assert [entry.opcode for entry in body] == ["parameter", "multiply"]
    assert hloopt.evaluate(module, [np.full(8, 3, np.float32)])[0].tolist() == [9.0] * 8


def test_a_fusion_of_parameters_gets_the_operands_of_what_it_takes_in() -> None:
    """There is no instruction in its body that a new parameter could stand before."""
    module, fusion = _fused("""HloModule m
f { p = f32[8] parameter(0) ROOT q = f32[8] parameter(1) }
ENTRY e { p = f32[8] parameter(0) w = f32[8] parameter(1) n = f32[8] subtract(p, w)
  ROOT r = f32[8] fusion(p, n), kind=kLoop, calls=f }
""")
    assert [operand.name for operand in fusion.operands] == ["p", "w"]
    body = fusion.attributes["calls"]
    assert [entry.opcode for entry in body] == ["parameter", "parameter", "subtract"]
    values = hloopt.evaluate(module, [np.full(8, 3, np.float32), np.full(8, 1, np.float32)])
    assert values[0].tolist() == [2.0] * 8


def test_a_fused_body_holds_equal_instructions_once() -> None:
    """A fusion of the text may take in what it has already; O2 leaves one of each."""
    module = hloopt.parse("""HloModule m
f { p = f32[8] parameter(0) q = f32[8] parameter(1) c = f32[] constant(3)
  b = f32[8] broadcast(c), dimensions={} s = f32[8] add(p, q) ROOT m = f32[8] multiply(s, b) }
ENTRY e { p = f32[8] parameter(0) c = f32[] constant(3) b = f32[8] broadcast(c), dimensions={}
  ROOT r = f32[8] fusion(p, b), kind=kLoop, calls=f }
""")
    body = hloopt.optimize(module, "O2").entry.root.attributes["calls"]
    opcodes = sorted(entry.opcode for entry in body)
    assert opcodes == ["add", "broadcast", "constant", "multiply", "parameter"]


@pytest.mark.parametrize("window", ["", ", window={}", ", window={size=1x1}"])
def test_a_window_left_out_is_cheap(window: str) -> None:
    """It reads each element once, so that repeating it costs little."""
    module = hloopt.parse(f"""HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
ENTRY e {{ p = f32[8,2] parameter(0) z = f32[] parameter(1)
  ROOT w = f32[8,2] reduce-window(p, z){window}, to_apply=sum }}
""")
    assert not is_expensive_to_repeat(module.entry.root, 1)
    assert not repeats_reads(module.entry.root)


@pytest.mark.parametrize("window", ["", "window={}, "])
def test_a_window_may_be_left_out(window: str) -> None:
    """It is one of single elements then, which repeats no reads."""
    module, fusion = _fused(f"""HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
ENTRY e {{ p = f32[8,2] parameter(0) z = f32[] parameter(1) n = f32[8,2] exponential(p)
  w = f32[8,2] reduce-window(n, z), {window}to_apply=sum
  ROOT r = f32[8,2] negate(w) }}
""")
    assert {entry.opcode for entry in fusion.attributes["calls"]} >= {"reduce-window", "negate"}
    values = hloopt.evaluate(module, [np.zeros((8, 2), np.float32), np.float32(2)])
    assert values[0].tolist() == [[-3.0] * 2] * 8
