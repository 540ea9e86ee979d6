"""Fusing kernels that traverse the same rows, one after the other, for the native device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from hloopt.analysis.region import region_of
from hloopt.backends.native.kernels.reduction import runs_whole
from hloopt.dataclass import dataclass
from hloopt.fusion.apply import fuse_multi_output
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.kernels.backend_config import read_choice
from hloopt.kernels.families.row_phases import continues_rows, row_phases
from hloopt.rewrite import Pass, PassLog

__all__ = ["NativeRowFusion"]


@dataclass(frozen=True)
class NativeRowFusion(Pass):
    """Let one kernel do all work on a row while the row is in the cache.

        fusion: x => max(x);  fusion: x, m => exp(x - m)     =>     fusion: x => exp(x - max(x))

    Fusions for GPUs end at reductions, whose results other blocks need.  A processor's core traverses a row
    as often as needed: the kernel for rows reduces it, and continues with the result.  A fusion joins the
    one that reduces rows for it where it needs no more than those rows and their reductions.
    """

    example: ClassVar[str] = """HloModule example

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}

sums {
  x = f32[64,64] parameter(0)
  zero = f32[] constant(0)
  ROOT s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
}

shares {
  x = f32[64,64] parameter(0)
  s = f32[64] parameter(1)
  across = f32[64,64] broadcast(s), dimensions={0}
  ROOT q = f32[64,64] divide(x, across)
}

ENTRY main {
  x = f32[64,64] parameter(0)
  s = f32[64] fusion(x), kind=kInput, calls=sums
  ROOT r = f32[64,64] fusion(x, s), kind=kLoop, calls=shares
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each fusion that is a kernel, with what it reads."""
        changed = False
        for computation in walk.top_level_computations(module):
            order = _order(computation)
            for instruction in list(computation):
                consumer = instruction
                while consumer.computation is computation and consumer.opcode == "fusion":
                    producer = next(_producers(consumer, order), None)
                    if producer is None or not log.allows():
                        break
                    log.hit("went on with a row", consumer, f"that {producer.name} reduces")
                    consumer = fuse_multi_output(producer, consumer)
                    # The producer's other users follow both now.
                    order = _order(computation)
                    changed = True
        return changed


def _order(computation: Computation) -> dict[Instruction, int]:
    return {one: at for at, one in enumerate(computation)}


def _producers(consumer: Instruction, order: Mapping[Instruction, int]) -> Iterator[Instruction]:
    """The fusions that reduce rows which ``consumer`` also reads, and that nothing in between uses."""
    if _is_fixed(consumer):
        return
    sources = dict.fromkeys(_source(operand) for operand in consumer.operands)
    for producer in sources:
        if (
            producer.opcode != "fusion"
            or producer.computation is not consumer.computation
            or _is_fixed(producer)
            or not runs_whole(region_of(producer))
            or _in_between(producer, consumer, order)
        ):
            continue
        body = consumer.attributes["calls"]
        made = [
            parameter
            for parameter, operand in zip(body.parameters, consumer.operands, strict=True)
            if _source(operand) is producer
        ]
        if continues_rows(region_of(consumer), row_phases(region_of(producer)), made):
            yield producer


def _source(operand: Instruction) -> Instruction:
    return operand.operands[0] if operand.opcode == "get-tuple-element" else operand


def _is_fixed(fusion: Instruction) -> bool:
    return bool(read_choice(fusion) is not None or fusion.has_control_edges)


def _in_between(
    producer: Instruction, consumer: Instruction, order: Mapping[Instruction, int]
) -> bool:
    """Whether the consumer also depends on the producer through a third instruction."""
    first = order.get(producer, 0)
    pending = [operand for operand in consumer.operands if _source(operand) is not producer]
    seen = set(pending)
    while pending:
        one = pending.pop()
        for operand in one.operands:
            if operand is producer:
                return True
            # What precedes the producer does not use it.
            if operand not in seen and order.get(operand, first) >= first:
                seen.add(operand)
                pending.append(operand)
    return False
