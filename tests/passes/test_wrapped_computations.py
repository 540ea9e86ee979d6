"""What an async-start wraps is one op; what a call says of itself decides whether it is inlined."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.ir.canonical import fingerprint
from hloopt.ir.walk import wrapped_computations
from hloopt.pipelines import optimize_module

ASYNCHRONOUS = """HloModule m
wrapped {{
{body}
}}
ENTRY main {{
  x = f32[4]{{0}} parameter(0)
  s = ((f32[4]{{0}}), f32[4]{{0}}, s32[]) async-start(x), calls=wrapped
  u = ((f32[4]{{0}}), f32[4]{{0}}, s32[]) async-update(s)
  ROOT d = f32[4]{{0}} async-done(u)
}}
"""

FOLDABLE = """  a = f32[4]{0} parameter(0)
  c = f32[4]{0} constant({1, 2, 3, 4})
  n = f32[4]{0} negate(c)
  ROOT r = f32[4]{0} add(a, n)"""
PACKED = """  a = f32[4]{0} parameter(0)
  t = (f32[4]{0}) tuple(a)
  g = f32[4]{0} get-tuple-element(t), index=0
  ROOT r = f32[4]{0} negate(g)"""
NOTHING = """  a = f32[4]{0} parameter(0)
  b = f32[4]{0} reverse(a), dimensions={0}
  ROOT r = f32[4]{0} reverse(b), dimensions={0}"""


@pytest.mark.parametrize(
    ("name", "body"),
    [("constant-folding", FOLDABLE), ("tuple-simplifier", PACKED), ("simplify", NOTHING)],
)
def test_what_is_wrapped_is_left_alone(name: str, body: str) -> None:
    """The same instructions outside of an asynchronous call are changed."""
    module = hloopt.parse(ASYNCHRONOUS.format(body=body))
    assert fingerprint(optimize_module(module, name)) == fingerprint(module)
    plain = hloopt.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n")
    assert fingerprint(optimize_module(plain, name)) != fingerprint(plain)


def test_which_computations_are_wrapped() -> None:
    """Bodies of fusions and of asynchronous calls; not what is called or looped over."""
    module = hloopt.parse(
        """HloModule m
wrapped { a = f32[] parameter(0) ROOT n = f32[] negate(a) }
fused { a = f32[] parameter(0) ROOT n = f32[] negate(a) }
called { a = f32[] parameter(0) ROOT n = f32[] negate(a) }
ENTRY e { x = f32[] parameter(0)
  s = ((f32[]), f32[], s32[]) async-start(x), calls=wrapped
  d = f32[] async-done(s)
  f = f32[] fusion(d), kind=kLoop, calls=fused
  ROOT c = f32[] call(f), to_apply=called }
"""
    )
    assert {one.name for one in wrapped_computations(module)} == {"wrapped", "fused"}


CALLED = """HloModule m
body {{
{body}
}}
ENTRY main {{
  x = f32[4]{{0}} parameter(0)
  ROOT r = f32[4]{{0}} call(x), to_apply=body{attributes}
}}
"""
TWICE = "  a = f32[4]{0} parameter(0)\n  ROOT s = f32[4]{0} add(a, a)"


@pytest.mark.parametrize(
    ("attributes", "inlined"),
    [
        (', frontend_attributes={_xla_stream_annotation="1"}', False),
        (', frontend_attributes={_xla_compute_type="host"}', False),
        (', frontend_attributes={inlineable="false"}', False),
        (', frontend_attributes={inlineable="true"}', True),
        (', backend_config={"a":1}', False),
        (", output_to_operand_aliasing={{}: (0, {})}", False),
        ("", True),
    ],
)
def test_what_a_call_says_of_itself(attributes: str, inlined: bool) -> None:
    """A call for a stream or a device, or that means something as a whole, stays."""
    module = hloopt.parse(CALLED.format(body=TWICE, attributes=attributes))
    after = optimize_module(module, "call-inliner")
    assert (after.entry.root.opcode == "add") == inlined
    x = np.arange(4, dtype=np.float32)
    assert hloopt.evaluate(after, [x])[0].tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize(
    ("body", "sharding"),
    [
        (TWICE, "{replicated}"),
        (TWICE + ", sharding={maximal device=0}", "{maximal device=0}"),
        ("  ROOT a = f32[4]{0} parameter(0)", None),
    ],
)
def test_the_sharding_of_an_inlined_call(body: str, sharding: str | None) -> None:
    """It goes to the result that was made in the body and says nothing itself, not to an operand."""
    module = hloopt.parse(CALLED.format(body=body, attributes=", sharding={replicated}"))
    root = optimize_module(module, "call-inliner").entry.root
    assert root.opcode != "call"
    found = root.attributes.get("sharding")
    assert (None if found is None else found.text) == sharding
