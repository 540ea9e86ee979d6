"""Random loops that ask their elements whether to go on, in one of many ways, and mask in one of many."""

from __future__ import annotations

from tests.analysis.parallel_loop.random_bodies import REDUCERS, Body, Choose, Dims, kind

__all__ = ["random_stop"]

_ASKING = (
    "ask = pred[] reduce(more, no), dimensions={0}, to_apply=or",
    "ask = pred[] reduce(more, no), dimensions={0}, to_apply=or",
    """all = pred[] reduce(done, yes), dimensions={0}, to_apply=and
  ask = pred[] not(all)""",
    "ask = pred[] reduce(more, yes), dimensions={0}, to_apply=and",
    """ones = s32[4] convert(more)
  count = s32[] reduce(ones, zero), dimensions={0}, to_apply=add
  ask = pred[] compare(count, zero), direction=GT""",
    """top = s32[] reduce(x1, least), dimensions={0}, to_apply=max
  ask = pred[] compare(top, b), direction=GT""",
    """top = s32[] reduce(x1, least), dimensions={0}, to_apply=max
  ask = pred[] compare(b, top), direction=GT""",
)


def random_stop(choose: Choose) -> str:
    """A loop that asks its elements whether to go on, in one of many ways, and masks in one of many.

    The state is a counter, and three arrays of 4 elements, of which the first is compared with a number.
    """
    body = Body(choose)
    dims: Dims = (4,)
    bound = choose(3)
    less = ("GT", "NE", "GE", "LT")[choose(4)]

    def mask(direction: str) -> str:
        limit = body.constant(bound)
        limits = body.emit(dims, f"broadcast({limit}), dimensions={{}}")
        return body.emit(dims, f"compare(x1, {limits}), direction={direction}", "pred")

    opposite = {"GT": "LE", "NE": "EQ", "GE": "LT", "LT": "GE"}[less]
    one = body.emit(dims, "broadcast(one), dimensions={}")
    following = []
    for name in ("x1", "x2", "x3"):
        step = body.emit(
            dims, f"{('add', 'subtract', 'multiply')[choose(3)]}({name}, x{1 + choose(3)})"
        )
        less_one = body.emit(dims, f"subtract({name}, {one})")
        new = (step, less_one, one)[choose(3)]
        how = choose(8)
        if how < 3:
            following.append(body.emit(dims, f"select({mask(less)}, {new}, {name})"))
        elif how < 5:
            following.append(body.emit(dims, f"select({mask(opposite)}, {name}, {new})"))
        elif how == 5:
            more = body.emit(dims, f"convert({mask(less)})")
            following.append(body.emit(dims, f"{('add', 'subtract')[choose(2)]}({name}, {more})"))
        else:
            following.append((new, name)[choose(2)])
    state = "(s32[], s32[4], s32[4], s32[4])"
    shown = (0, 1, 2, 3) if choose(4) == 0 else (1, 2, 3)
    types = [kind(()) if number == 0 else kind(dims) for number in shown]
    reads = "\n".join(
        f"  r{number} = {shape} get-tuple-element(w), index={number}"
        for number, shape in zip(shown, types, strict=True)
    )
    return f"""HloModule random_stop
{REDUCERS}
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x1 = s32[4] get-tuple-element(s), index=1
  most = s32[] constant(6)
  early = pred[] compare(i, most), direction=LT
  b = s32[] constant({bound})
  bs = s32[4] broadcast(b), dimensions={{}}
  more = pred[4] compare(x1, bs), direction={less}
  done = pred[4] not(more)
  no = pred[] constant(false)
  yes = pred[] constant(true)
  zero = s32[] constant(0)
  least = s32[] constant(-2147483648)
  {_ASKING[choose(len(_ASKING))]}
  ROOT r = pred[] and(early, ask)
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x1 = s32[4] get-tuple-element(s), index=1
  x2 = s32[4] get-tuple-element(s), index=2
  x3 = s32[4] get-tuple-element(s), index=3
  one = s32[] constant(1)
  k = s32[] add(i, one)
{chr(10).join(body.lines)}
  ROOT r = {state} tuple(k, {", ".join(following)})
}}
ENTRY main {{
  p1 = s32[4] parameter(0)
  p2 = s32[4] parameter(1)
  p3 = s32[4] parameter(2)
  zero = s32[] constant(0)
  first = {state} tuple(zero, p1, p2, p3)
  w = {state} while(first), condition=condition, body=body
{reads}
  ROOT all = ({", ".join(types)}) tuple({", ".join(f"r{number}" for number in shown)})
}}
"""
