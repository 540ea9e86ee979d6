"""Taking fusions apart."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.ir import Module
from hloopt.passes.defuse import Defuse
from hloopt.rewrite.pass_ import PassLog


def _defused(text: str) -> Module:
    module = hloopt.parse(text)
    Defuse().run(module, PassLog())
    hloopt.verify(module)
    assert all(entry.opcode != "fusion" for entry in module.instructions())
    return module


def test_a_fusion_becomes_its_instructions() -> None:
    """Names are made unique, layouts and metadata stay, the body goes, the schedule is dropped."""
    module = _defused("""HloModule m, is_scheduled=true
f { a = f32[4,8]{0,1} parameter(0) n = f32[4,8]{0,1} negate(a), metadata={op_name="x"}
  ROOT r = f32[4,8]{0,1} abs(n) }
ENTRY e { n = f32[4,8]{0,1} parameter(0)
  ROOT w = f32[4,8]{0,1} fusion(n), kind=kLoop, calls=f, metadata={op_name="y"} }
""")
    assert [(entry.name, str(entry.shape)) for entry in module.entry] == [
        ("n", "f32[4,8]{0,1}"), ("n.1", "f32[4,8]{0,1}"), ("r", "f32[4,8]{0,1}"),
    ]  # fmt: skip
    assert list(module.computations) == ["e"]
    assert "is_scheduled" not in module.attributes
    assert [str(entry.metadata) for entry in module.entry][1:] == [
        'op_name="x"',
        'op_name="y"',
    ] or (module.entry.by_name["n.1"].metadata is not None)


def test_several_outputs_are_read_where_they_are_made() -> None:
    """No tuple is left when only single outputs are read."""
    module = _defused("""HloModule m
f { a = f32[8] parameter(0) n = f32[8] negate(a) m = f32[8] abs(a)
  ROOT t = (f32[8], f32[8]) tuple(n, m) }
ENTRY e { p = f32[8] parameter(0)
  w = (f32[8], f32[8]) fusion(p), kind=kLoop, calls=f
  x = f32[8] get-tuple-element(w), index=0
  y = f32[8] get-tuple-element(w), index=1
  ROOT r = f32[8] add(x, y) }
""")
    assert [entry.opcode for entry in module.entry] == ["parameter", "negate", "abs", "add"]


def test_users_of_the_whole_keep_the_tuple() -> None:
    """A tuple-shaped fusion as result."""
    module = _defused("""HloModule m
f { a = f32[8] parameter(0) n = f32[8] negate(a) ROOT t = (f32[8], f32[8]) tuple(n, a) }
ENTRY e { p = f32[8] parameter(0) ROOT w = (f32[8], f32[8]) fusion(p), kind=kLoop, calls=f }
""")
    assert [entry.opcode for entry in module.entry] == ["parameter", "negate", "tuple"]
    assert module.entry.root.operands[1] is module.entry.parameters[0]


def test_fusions_in_fusions_and_shared_bodies() -> None:
    """Inside out; one body called twice is copied twice."""
    module = _defused("""HloModule m
g { a = f32[8] parameter(0) ROOT n = f32[8] negate(a) }
f { a = f32[8] parameter(0) n = f32[8] fusion(a), kind=kLoop, calls=g ROOT m = f32[8] abs(n) }
ENTRY e { p = f32[8] parameter(0)
  v = f32[8] fusion(p), kind=kLoop, calls=f
  ROOT w = f32[8] fusion(v), kind=kCustom, calls=f, backend_config={"x":1} }
""")
    opcodes = [entry.opcode for entry in module.entry]
    assert opcodes == ["parameter", "negate", "abs", "negate", "abs"]
    assert list(module.computations) == ["e"]


def test_a_body_that_hands_its_parameter_through() -> None:
    """Users read the operand itself, and the order of control edges stays."""
    module = _defused("""HloModule m
f { ROOT a = f32[8] parameter(0) }
ENTRY e { p = f32[8] parameter(0)
  c = f32[8] custom-call(p), custom_call_target="x", custom_call_has_side_effect=true
  w = f32[8] fusion(p), kind=kLoop, calls=f, control-predecessors={c}
  d = f32[8] custom-call(p), custom_call_target="x", custom_call_has_side_effect=true, control-predecessors={w}
  ROOT r = f32[8] add(w, d) }
""")
    names = module.entry.by_name
    assert names["r"].operands[0] is names["p"]
    assert names["d"].control_predecessors == (names["c"],)


def test_control_edges_go_to_what_makes_the_outputs() -> None:
    """Both of them."""
    module = _defused("""HloModule m
f { a = f32[8] parameter(0) n = f32[8] negate(a) m = f32[8] abs(a)
  ROOT t = (f32[8], f32[8]) tuple(n, m) }
ENTRY e { p = f32[8] parameter(0)
  c = f32[8] custom-call(p), custom_call_target="x", custom_call_has_side_effect=true
  w = (f32[8], f32[8]) fusion(p), kind=kLoop, calls=f, control-predecessors={c}
  ROOT r = (f32[8], (f32[8], f32[8])) tuple(c, w) }
""")
    names = module.entry.by_name
    assert names["n"].control_predecessors == names["m"].control_predecessors == (names["c"],)


def test_nothing_to_take_apart() -> None:
    """No change is reported."""
    module = hloopt.parse("HloModule m\nENTRY e { ROOT p = f32[8] parameter(0) }\n")
    assert not Defuse().run(module, PassLog())


@pytest.mark.parametrize(("thread", "fusions"), [(', execution_thread="host"', 1), ("", 0)])
def test_what_applies_a_computation_of_another_thread_stays(thread: str, fusions: int) -> None:
    """The entry may not call what runs on another thread; the body of a fusion may."""
    text = f"""HloModule m

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}{thread}

body {{
  p = f32[8] parameter(0)
  ROOT r = f32[8] all-reduce(p), replica_groups={{}}, to_apply=add
}}

ENTRY main {{
  x = f32[8] parameter(0)
  ROOT f = f32[8] fusion(x), kind=kLoop, calls=body
}}
"""
    module = hloopt.optimize(hloopt.parse(text), "defuse")
    hloopt.verify(module)
    assert sum(entry.opcode == "fusion" for entry in module.entry) == fusions
