"""Modules of one loop, written short."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["loop_module"]

_REDUCERS = "\n".join(
    f"""{name} {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT r = {kind}[] {opcode}(a, b)
}}"""
    for name, kind, opcode in (
        ("add", "f32", "add"),
        ("most", "f32", "maximum"),
        ("most_s", "s32", "maximum"),
        ("least_s", "s32", "minimum"),
        ("count", "s32", "add"),
        ("minus", "f32", "subtract"),
        ("any", "pred", "or"),
        ("every", "pred", "and"),
    )
)


def loop_module(
    state: Sequence[str],
    body: str,
    following: Sequence[str],
    *,
    iterations: int = 5,
    condition: str = "",
    called: str = "",
    results: Sequence[int] = (),
) -> str:
    """A loop with a counter as element 0 of its state.

    The other elements have the shapes ``state`` and are ``x1``, ``x2`` ... in body and condition; ``following``
    names their next values.  ``i`` is the counter, ``zero`` and ``one`` are s32 numbers, ``nought`` is 0.0.
    ``condition`` ends in a root; by default the loop runs ``trips`` times.  ``results`` are the elements that
    are read after the loop; none: all.
    """
    shape = f"(s32[], {', '.join(state)})"
    reads = f"""  s = {shape} parameter(0)
  i = s32[] get-tuple-element(s), index=0
""" + "\n".join(f"  x{n} = {one} get-tuple-element(s), index={n}" for n, one in enumerate(state, 1))
    numbers = """  zero = s32[] constant(0)
  one = s32[] constant(1)
  nought = f32[] constant(0)
  yes = pred[] constant(true)
  no = pred[] constant(false)"""
    counted = f"""  n = s32[] constant({iterations})
  ROOT r = pred[] compare(i, n), direction=LT"""
    parameters = "\n".join(f"  p{n} = {one} parameter({n - 1})" for n, one in enumerate(state, 1))
    first = ", ".join(f"p{n}" for n in range(1, len(state) + 1))
    kinds = ["s32[]", *state]
    shown = list(results) or list(range(1, len(state) + 1))
    ends = "\n".join(f"  r{n} = {kinds[n]} get-tuple-element(w), index={n}" for n in shown)
    return f"""HloModule loop
{_REDUCERS}
{called}
condition {{
{reads}
{numbers}
{condition or counted}
}}
body {{
{reads}
{numbers}
  k = s32[] add(i, one)
{body}
  ROOT r = {shape} tuple(k, {", ".join(following)})
}}
ENTRY main {{
{parameters}
  begin = s32[] constant(0)
  first = {shape} tuple(begin, {first})
  w = {shape} while(first), condition=condition, body=body
{ends}
  ROOT all = ({", ".join(kinds[n] for n in shown)}) tuple({", ".join(f"r{n}" for n in shown)})
}}
"""
