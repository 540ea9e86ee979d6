"""Edits of fusions leave valid modules that compute the same and lose nothing."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.analysis.reachability import Reachability
from hloopt.fusion import apply
from hloopt.ir import Instruction, Module
from hloopt.passes.defuse import Defuse
from hloopt.rewrite.pass_ import PassLog
from tests.helpers.programs import programs, results
from tests.helpers.rarely import examples
from tests.helpers.support import count_calls

NEVER = frozenset({"parameter", "tuple", "get-tuple-element"})


def _fusible(module: Module) -> list[Instruction]:
    return [entry for entry in module.entry if entry.opcode not in NEVER and entry.users]


def _fuse_some(module: Module, draw: st.DrawFn) -> bool:
    """One random edit that is legal; False where the pair drawn allows none."""
    candidates = _fusible(module)
    if len(candidates) < 2:
        return False
    first, second = (draw(st.sampled_from(candidates)) for _ in range(2))
    reachability = Reachability(module.entry)
    if first is second:
        return False
    if not reachability.connected(first, second):
        apply.merge_siblings(first, second)
        return True
    producer, consumer = (first, second) if reachability.reaches(first, second) else (second, first)
    values = [producer, *(user for user in producer.users if user.opcode == "get-tuple-element")]
    if not any(value in consumer.operands for value in values):
        return False
    if draw(st.booleans()):
        apply.fuse(producer, consumer)
        apply.remove_producer(producer)
        return True
    middle = [
        user
        for value in values
        for user in value.users
        if user is not consumer and user not in values
    ]
    if any(reachability.reaches(user, consumer) for user in middle):
        with pytest.raises(ValueError, match="through another instruction"):
            apply.fuse_multi_output(producer, consumer)
        return False
    apply.fuse_multi_output(producer, consumer)
    return True


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), text=programs())
def test_random_edits_keep_every_bit(data: st.DataObject, text: str) -> None:
    """Fusions of ops and of fusions, with one result and with several, and siblings, in any order."""
    module = hloopt.parse(text)
    before = results(module)
    for _ in range(8):
        _fuse_some(module, data.draw)
    bodies = [entry.attributes["calls"] for entry in module.entry if entry.opcode == "fusion"]
    apply.number_parameter_names(bodies)
    hloopt.verify(module)
    assert results(module) == before
    for body in bodies:
        names = [parameter.name for parameter in body.parameters]
        assert names == [f"param_{number}" for number in range(len(names))]
    for entry in module.entry:
        assert entry.opcode != "fusion" or len(set(entry.operands)) == len(entry.operands)
    again = hloopt.parse(module.to_text())
    assert again.to_text() == module.to_text()
    Defuse().run(module, PassLog())
    hloopt.verify(module)
    assert results(module) == before


HEAD = """HloModule m, is_scheduled=true
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
"""


def _module(body: str, more: str = "") -> Module:
    return hloopt.parse(f"{HEAD}{more}ENTRY e {{\n{body}\n}}\n")


def _named(module: Module, *names: str) -> list[Instruction]:
    return [module.entry.by_name[name] for name in names]


def test_operands_are_shared_and_parameters_numbered() -> None:
    """A producer's operands that the consumer has already become no second parameter."""
    module = _module("""
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  p = f32[8] multiply(x, y)
  ROOT c = f32[8] add(p, y)""")
    fusion = apply.fuse(*_named(module, "p", "c"))
    assert apply.remove_producer(module.entry.by_name["p"])
    body = fusion.attributes["calls"]
    apply.number_parameter_names([body])
    assert [operand.name for operand in fusion.operands] == ["y", "x"]
    assert [parameter.name for parameter in body.parameters] == ["param_0", "param_1"]
    assert body.name == "fused_computation"
    assert (fusion.name, fusion.attributes["kind"]) == ("fusion", "kLoop")
    assert "is_scheduled" not in module.attributes


FUSED = """
f {
  a = f32[8] parameter(0)
  b = f32[8] parameter(1)
  ROOT s = f32[8] subtract(a, b)
}
g {
  a = f32[8] parameter(0)
  b = f32[8] negate(a)
  c = f32[8] abs(a)
  d = f32[8] sine(a)
  ROOT t = (f32[8], f32[8], f32[8]) tuple(b, c, d)
}
"""


def test_a_fusion_is_merged_with_its_body() -> None:
    """The producer's body joins the consumer's; afterwards neither it nor its computation is left."""
    module = _module(
        """
  x = f32[8] parameter(0)
  p = f32[8] fusion(x, x), kind=kLoop, calls=f
  ROOT c = f32[8] negate(p)""",
        FUSED,
    )
    p, c = _named(module, "p", "c")
    fusion = apply.fuse(p, c, kind="kInput")
    assert apply.remove_producer(p)
    assert [entry.opcode for entry in fusion.attributes["calls"]] == [
        "parameter", "subtract", "negate",
    ]  # fmt: skip
    assert fusion.attributes["kind"] == "kInput"
    assert "f" not in module.computations


def test_a_producer_with_other_users_becomes_a_result() -> None:
    """Its users read the fusion, and the consumer's users read result 0."""
    module = _module("""
  x = f32[8] parameter(0)
  p = f32[8] exponential(x)
  q = f32[8] negate(p)
  c = f32[8] abs(p), metadata={op_name="the one"}
  ROOT r = (f32[8], f32[8], f32[8]) tuple(q, c, p)""")
    before = module.entry.by_name["q"]
    fusion = apply.fuse_multi_output(*_named(module, "p", "c"))
    hloopt.verify(module)
    line = "%fusion = (f32[8], f32[8]) fusion(%x), kind=kLoop, calls=%fused_computation, "
    assert line + 'metadata={op_name="the one"}' in module.to_text()
    elements = {user.name: user.attributes["index"] for user in fusion.users}
    assert sorted(elements.values()) == [0, 1]
    assert before.operands[0].attributes["index"] == 1
    order = [entry.name for entry in module.entry]
    assert order.index("fusion") < order.index("q")


def test_a_producer_of_the_consumer_alone_becomes_no_result() -> None:
    """Nobody else reads it."""
    module = _module("""
  x = f32[8] parameter(0)
  p = f32[8] exponential(x)
  ROOT c = f32[8] abs(p)""")
    fusion = apply.fuse_multi_output(*_named(module, "p", "c"))
    assert str(fusion.shape) == "f32[8]"
    assert fusion.is_root


def test_a_result_keeps_its_number_when_it_joins() -> None:
    """A fusion that hands its operand on has the producer of that as a result already."""
    module = _module(
        """
  x = f32[8] parameter(0)
  p = f32[8] exponential(x)
  c = (f32[8], f32[8]) fusion(p), kind=kLoop, calls=h
  c0 = f32[8] get-tuple-element(c), index=0
  c1 = f32[8] get-tuple-element(c), index=1
  ROOT r = (f32[8], f32[8], f32[8]) tuple(c0, c1, p)""",
        """
h {
  a = f32[8] parameter(0)
  b = f32[8] negate(a)
  ROOT t = (f32[8], f32[8]) tuple(a, b)
}
""",
    )
    fusion = apply.fuse_multi_output(*_named(module, "p", "c"))
    assert str(fusion.shape) == "(f32[8], f32[8])"
    assert [operand.attributes["index"] for operand in module.entry.root.operands] == [0, 1, 0]


def test_several_results_join_several_without_those_nobody_reads() -> None:
    """The tuple stays flat."""
    module = _module(
        """
  x = f32[8] parameter(0)
  p = (f32[8], f32[8], f32[8]) fusion(x), kind=kLoop, calls=g
  p0 = f32[8] get-tuple-element(p), index=0
  p2 = f32[8] get-tuple-element(p), index=2
  c = f32[8] add(p0, p2)
  ROOT r = (f32[8], f32[8]) tuple(c, p2)""",
        FUSED,
    )
    fusion = apply.fuse_multi_output(*_named(module, "p", "c"))
    hloopt.verify(module)
    body = fusion.attributes["calls"]
    assert [entry.opcode for entry in body.root.operands] == ["add", "sine"]
    assert str(fusion.shape) == "(f32[8], f32[8])"
    assert "g" not in module.computations


def test_siblings_become_one_fusion_at_the_later_place() -> None:
    """Results of the first come first; users of the earlier one move behind the fusion."""
    module = _module("""
  x = f32[8,8] parameter(0)
  z = f32[] constant(0)
  a = f32[8] reduce(x, z), dimensions={1}, to_apply=sum
  u = f32[8] negate(a)
  y = f32[8,8] parameter(1)
  m = f32[8,8] add(x, y)
  b = f32[8] reduce(m, z), dimensions={1}, to_apply=sum
  ROOT r = (f32[8], f32[8]) tuple(u, b)""")
    before_a, before_b = _named(module, "a", "b")
    fusion = apply.merge_siblings(before_b, before_a, kind="kInput")
    hloopt.verify(module)
    assert module.entry.root.operands[1].attributes["index"] == 0
    assert module.entry.by_name["u"].operands[0].attributes["index"] == 1
    assert fusion.attributes["kind"] == "kInput"


def test_one_that_needs_the_other_is_no_sibling() -> None:
    """It would need its own result."""
    module = _module("""
  x = f32[8] parameter(0)
  a = f32[8] negate(x)
  b = f32[8] abs(a)
  c = f32[8] add(b, x)
  ROOT r = (f32[8], f32[8]) tuple(a, c)""")
    with pytest.raises(ValueError, match="c needs a through another instruction"):
        apply.merge_siblings(*_named(module, "a", "c"))
    with pytest.raises(ValueError, match="c needs a through another instruction"):
        apply.merge_siblings(*_named(module, "c", "a"))


def test_the_reader_of_a_whole_tuple_gets_it_put_together() -> None:
    """A fusion with several results that is the root grows, and the root keeps its shape."""
    module = _module(
        """
  x = f32[8] parameter(0)
  p = f32[8] exponential(x)
  q = f32[8] negate(p)
  after = token[] after-all()
  ROOT c = (f32[8], f32[8], f32[8]) fusion(p), kind=kLoop, calls=g""",
        FUSED,
    )
    fusion = apply.fuse_multi_output(*_named(module, "p", "c"))
    hloopt.verify(module)
    assert module.entry.root.opcode == "tuple"
    assert len(fusion.attributes["calls"].root.operands) == 4


def test_control_edges_and_attributes_survive() -> None:
    """Edges of both go to the fusion; shardings go to the results they are of."""
    module = _module("""
  x = f32[8] parameter(0)
  first = f32[8] sine(x)
  p = f32[8] exponential(x), control-predecessors={first}, sharding={replicated}
  last = f32[8] cosine(x), control-predecessors={p}
  c = f32[8] abs(p), sharding={maximal device=0}, frontend_attributes={k="v"}
  ROOT r = (f32[8], f32[8], f32[8], f32[8]) tuple(first, p, last, c)""")
    fusion = apply.fuse_multi_output(*_named(module, "p", "c"))
    hloopt.verify(module)
    first, last = _named(module, "first", "last")
    assert first.control_successors == (fusion,)
    assert last.control_predecessors == (fusion,)
    assert "sharding" not in fusion.attributes
    assert str(fusion.attributes["frontend_attributes"]) == '{k="v"}'
    shardings = {
        user.attributes["index"]: str(user.attributes["sharding"]) for user in fusion.users
    }
    assert shardings == {0: "{maximal device=0}", 1: "{replicated}"}


def test_buffers_that_results_share_with_operands_follow_both() -> None:
    """Numbers of operands and of results are those after the edit."""
    module = _module(
        """
  x = f32[8] parameter(0)
  y = f32[8] parameter(1)
  p = f32[8] exponential(x)
  c = f32[8] fusion(p, y), kind=kLoop, calls=f, output_to_operand_aliasing={{}: (1, {})}
  ROOT r = (f32[8], f32[8]) tuple(p, c)""",
        FUSED,
    )
    fusion = apply.fuse_multi_output(*_named(module, "p", "c"))
    assert [operand.name for operand in fusion.operands] == ["y", "x"]
    assert str(fusion.attributes["output_to_operand_aliasing"]) == "{{0}: (0, {})}"
    first = hloopt.parse(module.to_text())
    assert first.to_text() == module.to_text()


def test_a_shared_buffer_goes_with_its_operand() -> None:
    """What is computed inside has no buffer any more."""
    module = _module(
        """
  x = f32[8] parameter(0)
  p = f32[8] exponential(x)
  ROOT c = f32[8] fusion(p, x), kind=kLoop, calls=f, output_to_operand_aliasing={{}: (0, {})}""",
        FUSED,
    )
    fusion = apply.fuse(*_named(module, "p", "c"))
    assert "output_to_operand_aliasing" not in fusion.attributes


def test_the_order_is_restored_after_many_edits() -> None:
    """A strategy may leave instructions where they stood and mend the order once."""
    module = _module("""
  x = f32[8] parameter(0)
  p = f32[8] exponential(x)
  q = f32[8] negate(p)
  w = f32[8] sine(q)
  c = f32[8] abs(p)
  ROOT r = (f32[8], f32[8]) tuple(w, c)""")
    apply.fuse_multi_output(*_named(module, "p", "c"), keep_order=False)
    order = [entry.name for entry in module.entry]
    assert order.index("q") < order.index("fusion")
    apply.restore_order(module.entry)
    hloopt.verify(module)
    order = [entry.name for entry in module.entry]
    assert order.index("fusion") < order.index("q") < order.index("w") < order.index("r")


def test_a_fusion_of_ops_without_a_module_is_refused() -> None:
    """There is no place for its body."""
    alone = Instruction("a", "negate", hloopt.parse(f"{HEAD}ENTRY e {{ ROOT x = f32[] constant(1) }}").entry.root.shape)  # fmt: skip
    with pytest.raises(ValueError, match="a is in no module"):
        apply.fuse(alone, alone)


def test_the_cost_of_an_edit_is_that_of_what_moves() -> None:
    """However long the consumer's body is."""

    def calls(length: int) -> int:
        chain = "".join(f"step{at + 1} = f32[8] negate(step{at})\n" for at in range(length))
        body = f"long {{ step0 = f32[8] parameter(0)\n{chain}ROOT r = f32[8] abs(step{length}) }}\n"
        module = _module(
            """
  x = f32[8] parameter(0)
  p = f32[8] fusion(x, x), kind=kLoop, calls=f
  q = f32[8] sine(x)
  c = f32[8] fusion(p), kind=kLoop, calls=long
  ROOT r = (f32[8], f32[8]) tuple(q, c)""",
            FUSED + body,
        )
        p, q, c = _named(module, "p", "q", "c")

        def edits() -> None:
            apply.fuse_multi_output(p, c)
            apply.merge_siblings(c, q)

        return count_calls(edits)

    assert calls(10) == calls(400)


def test_what_an_element_waits_for_comes_before_the_fusion() -> None:
    """Control edges of the ``get-tuple-element`` between the two are those of the fusion."""
    module = _module(
        """
  x = f32[8] parameter(0)
  before = f32[8] cosine(x)
  p = (f32[8], f32[8], f32[8]) fusion(x), kind=kLoop, calls=g
  e = f32[8] get-tuple-element(p), index=1, control-predecessors={before}
  c = f32[8] negate(e)
  ROOT r = (f32[8], f32[8]) tuple(before, c)""",
        FUSED,
    )
    p, c, before = _named(module, "p", "c", "before")
    fusion = apply.fuse(p, c)
    assert apply.remove_producer(p)
    hloopt.verify(module)
    assert fusion.control_predecessors == (before,)
    assert [entry.opcode for entry in fusion.attributes["calls"]] == ["parameter", "abs", "negate"]
