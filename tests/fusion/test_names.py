"""Names of fusions, fusions of what is left over, and copies that kernels write themselves."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.fusion.copy_fusion import CopyFusion
from hloopt.fusion.fusion_wrapper import FusionWrapper
from hloopt.fusion.history import FusionPlan
from hloopt.fusion.rename_fusions import RenamedFusions, RenameFusions
from hloopt.ir import Computation, edit
from hloopt.rewrite import PassLog
from hloopt.rewrite.naming import ModuleNames, name_number, name_stem
from tests.passes.proof import check

FUSED = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
BODY
ENTRY e {
  p = f32[8,64]{1,0} parameter(0)
  f = SHAPE fusion(p), kind=kLoop, calls=body
  REST
}
"""
ONE, TWO = "f32[8,64]{1,0}", "(f32[8,64]{1,0}, f32[8,64]{1,0})"
COPIED = f"""c = {ONE} copy(f)
  n = {ONE} negate(f)
  ROOT r = {TWO} tuple(c, n)"""

UPDATE = f"""v = f32[] constant(0) z = s32[] constant(1)
  u = f32[1,64]{{1,0}} broadcast(v), dimensions={{}}
  ROOT c = {ONE} dynamic-update-slice(x, u, z, z)"""
WAITS = f"""a = {ONE} abs(p)
  c = {ONE} copy(f), control-predecessors={{a}}
  n = {ONE} negate(f)
  ROOT r = {TWO} tuple(c, n)"""


def _module(body: str, rest: str, shape: str = ONE) -> str:
    body = f"body {{ x = {ONE} parameter(0) {body} }}"
    return FUSED.replace("BODY", body).replace("SHAPE", shape).replace("REST", rest)


@pytest.mark.parametrize(
    ("name", "stem", "number"),
    [("a", "a", 0), ("a.3", "a", 3), ("a.b", "a.b", 0), ("a.1.2", "a.1", 2), (".3", ".3", 0)],
)
def test_a_number_is_what_follows_the_last_dot(name: str, stem: str, number: int) -> None:
    """Where there is something before it."""
    assert (name_stem(name), name_number(name)) == (stem, number)


def test_names_are_used_once_in_a_module() -> None:
    """In all computations, and those given since as well."""
    names = ModuleNames(
        hloopt.parse(_module(f"ROOT c = {ONE} add(x, x)", f"ROOT r = {ONE} abs(f)"))
    )
    assert [names.fresh("c"), names.fresh("c"), names.fresh("new"), names.fresh("new")] == [
        "c.1", "c.2", "new", "new.1",
    ]  # fmt: skip


def test_computations_are_renamed_in_their_module() -> None:
    """Found under the new name only, which is made unique; one of no module has no name to keep free."""
    module = hloopt.parse(_module(f"ROOT c = {ONE} add(x, x)", f"ROOT r = {ONE} abs(f)"))
    body = module.computations["body"]
    edit.rename_computation(body, "sum")
    assert body.name == "sum.1"
    assert module.computations["sum.1"] is body
    assert "body" not in module.computations
    with pytest.raises(ValueError, match="in no module"):
        edit.rename_computation(Computation("x"), "y")


def test_renaming_is_told_to_who_explains() -> None:
    """By computation and old name; what keeps its name is not told."""
    log, module = (
        PassLog(),
        hloopt.parse(_module(f"ROOT c = {ONE} add(x, x)", "ROOT r = f32[] constant(0)")),
    )
    assert RenameFusions().run(module, log)
    assert log.records == [RenamedFusions({("e", "f"): "loop_add_fusion"})]
    assert module.entry.by_name["loop_add_fusion"].attributes["calls"].name == "fused_add"
    again = PassLog()
    assert not RenameFusions().run(module, again)
    assert not again.records


def test_a_fusion_keeps_what_its_op_had() -> None:
    """Metadata, control edges and the schedule; operands that occur twice are one parameter."""
    text = """HloModule m, is_scheduled=true
ENTRY e {
  p = f32[4]{0} parameter(0)
  a = f32[4]{0} negate(p)
  b = f32[4]{0} multiply(p, p), metadata={op_name="square"}, control-predecessors={a}
  ROOT c = f32[4]{0} copy(b)
}
"""
    module, _ = check(text, FusionWrapper())
    assert module.attributes["is_scheduled"]
    square = module.entry.by_name["wrapped_multiply"]
    assert str(square.metadata) == '{op_name="square"}'
    assert [one.name for one in square.control_predecessors] == ["wrapped_negate"]
    assert len(square.operands) == 1


@pytest.mark.parametrize(
    ("body", "rest", "shape"),
    [
        (
            f"t = f32[64,8]{{1,0}} transpose(x), dimensions={{1,0}} ROOT c = {ONE} reshape(t)",
            COPIED,
            ONE,
        ),
        (f"n = {ONE} abs(x) ROOT c = {ONE} copy(n)", COPIED, ONE),
        (
            "z = f32[] constant(0) ROOT c = f32[8]{0} reduce(x, z), dimensions={1}, to_apply=sum",
            "c = f32[8]{0} copy(f) n = f32[8]{0} negate(f) ROOT r = (f32[8]{0}, f32[8]{0}) tuple(c, n)",
            "f32[8]{0}",
        ),
        (
            UPDATE,
            COPIED,
            ONE,
        ),
        (f"ROOT c = {ONE} add(x, x)", COPIED.replace("} copy", "} abs"), ONE),
        (
            f"ROOT c = {ONE} add(x, x)",
            WAITS,
            ONE,
        ),
    ],
)
def test_copies_of_other_kernels_stay(body: str, rest: str, shape: str) -> None:
    """Of what moves elements, copies, reduces or updates in place; and a copy that waits for something."""
    check(_module(body, rest, shape), CopyFusion(), changes=False)


def test_a_fill_is_copied_by_its_kernel() -> None:
    """Nothing is read at all; the limit of results stops it with its figures."""
    fill = f"z = f32[] constant(3) ROOT c = {ONE} broadcast(z), dimensions={{}}"
    text = (
        _module(fill, COPIED)
        .replace(f"x = {ONE} parameter(0) z", "z")
        .replace("fusion(p)", "fusion()")
    )
    module, _ = check(text, CopyFusion())
    assert [op.opcode for op in module.computations["body"]][-2:] == ["copy", "tuple"]
    log = PassLog()
    assert not CopyFusion(max_operands=1).run(hloopt.parse(text), log)
    (plan,) = log.records
    assert isinstance(plan, FusionPlan)
    decision = plan.refusals[0].decision
    assert (decision.code, decision.limit, decision.actual) == ("operands", 1, 2)
