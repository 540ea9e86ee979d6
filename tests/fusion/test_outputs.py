"""What says something about a result's form goes with the result when a fusion gets another one."""

from __future__ import annotations

import hloopt
from hloopt.fusion import apply
from hloopt.fusion.copy_fusion import CopyFusion
from hloopt.rewrite.pass_ import PassLog

COPIES = """HloModule m
fused {
  a = f32[4] parameter(0)
  ROOT n = f32[4] negate(a)
}
ENTRY e {
  x = f32[4] parameter(0)
  f = f32[4] fusion(x), kind=kLoop, calls=fused, origin={{"n"}}
  c = f32[4] copy(f)
  d = f32[4] copy(f)
  ROOT r = (f32[4], f32[4], f32[4]) tuple(f, c, d)
}
"""

SIBLINGS = """HloModule m
first {
  a = f32[4] parameter(0)
  s = f32[4] sine(a)
  t = f32[4] tanh(a)
  ROOT r = (f32[4], f32[4]) tuple(s, t)
}
second {
  a = f32[4] parameter(0)
  ROOT n = f32[4] negate(a)
}
ENTRY e {
  x = f32[4] parameter(0)
  f = (f32[4], f32[4]) fusion(x), kind=kLoop, calls=first, origin={({"s"}, {"t"})}
  g = f32[4] fusion(x), kind=kLoop, calls=second, origin={{"n"}}
  u = f32[4] get-tuple-element(f), index=0
  v = f32[4] get-tuple-element(f), index=1
  ROOT r = (f32[4], f32[4], f32[4]) tuple(u, v, g)
}
"""


def test_the_origin_of_a_result_goes_to_its_element() -> None:
    """A fusion of one result that gets two more has an origin of one array no longer."""
    module = hloopt.parse(COPIES)
    assert CopyFusion().run(module, PassLog())
    hloopt.verify(module)
    (fusion,) = (entry for entry in module.entry if entry.opcode == "fusion")
    assert "origin" not in fusion.attributes
    origins = {user.attributes["index"]: user.attributes.get("origin") for user in fusion.users}
    assert [str(origins[index]) for index in range(3)] == ['{{"n"}}', "None", "None"]


def test_the_origin_of_a_tuple_ends_where_the_tuple_grows() -> None:
    """Two fusions become one: the tuple's own origin has too few leaves, the other's stays with its result."""
    module = hloopt.parse(SIBLINGS)
    first, second = (entry for entry in module.entry if entry.opcode == "fusion")
    fusion = apply.merge_siblings(first, second)
    hloopt.verify(module)
    assert "origin" not in fusion.attributes
    origins = {user.attributes["index"]: user.attributes.get("origin") for user in fusion.users}
    assert str(origins[2]) == '{{"n"}}'
