"""Producers that stand for their twins among the operands of a wide concatenate."""

from __future__ import annotations

import hloopt
from hloopt.fusion.priority.twins import Twins
from hloopt.ir import Instruction

COUNT = 40


def module() -> hloopt.Module:
    """A fusion that concatenates what forty equal instructions compute."""
    inside = [f"  q{at} = f32[8] parameter({at})" for at in range(COUNT)]
    outside = [f"  p{at} = f32[8] parameter({at})" for at in range(COUNT)]
    outside += [f"  n{at} = f32[8] negate(p{at})" for at in range(COUNT)]
    pieces = ", ".join(f"q{at}" for at in range(COUNT))
    operands = ", ".join(f"n{at}" for at in range(COUNT))
    return hloopt.parse(
        "HloModule m\n\nwide {\n"
        + "\n".join(inside)
        + f"\n  ROOT k = f32[{8 * COUNT}] concatenate({pieces}), dimensions={{0}}\n}}\n\nENTRY e {{\n"
        + "\n".join(outside)
        + f"\n  ROOT f = f32[{8 * COUNT}] fusion({operands}), kind=kLoop, calls=wide\n}}\n"
    )


def test_one_stands_for_all_and_another_when_it_is_gone() -> None:
    """What joined another kernel as a consumer is no producer any more; its twins sleep on behind the next."""
    fusion = module().entry.root
    numbers: dict[Instruction, int] = {one: at for at, one in enumerate(fusion.operands)}
    twins = Twins(numbers, lambda _: {"concatenate"})
    assert len(twins.put_to_sleep(fusion)) == COUNT - 1
    (first,) = twins.awake(fusion)
    assert first is fusion.operands[-1]
    del numbers[first]
    for other in fusion.operands[:12]:
        twins.wake(other)
    twins.put_to_sleep(fusion)
    awake = set(twins.awake(fusion)) & numbers.keys()
    assert awake == {fusion.operands[11]}
    assert {one for one in fusion.operands if one in twins.asleep} == {*fusion.operands} - {
        first
    } - awake
