"""How long the kernel ``attention`` takes: products, and then what follows them element by element.

::

    time = products / rate + issued instructions,  or memory where that takes longer

A block's rows wait for their scores before they weight them, and only another block of the core multiplies
meanwhile.  Published times of FlashAttention-2 on H100 fit such a sum (forward, long sequences: 1/T = 1/431 +
1/(20.4 D) in TFLOP/s with D elements a row): products at 0.44 of the peak with ``mma.sync``, and 22 scores a
clock and core, which is what some six instructions a score take.  On A100 it reached 0.5 to 0.73 of the peak
(Dao: FlashAttention-2, 2023).  Of tiles that a mask takes away only their tests are paid, and one launch that
finds how large operands are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.analysis.attention import (
    Attention,
    Masking,
    attention_form,
    masking_of,
    matrix_kind,
    matrix_unit,
)
from hloopt.analysis.backend_config import custom_name
from hloopt.analysis.region import region_of
from hloopt.cost_models.device_times import L2_SPEEDUP, LAUNCH_NS, DeviceTimes
from hloopt.cost_models.instructions import issued_ns
from hloopt.cost_models.model import RunTime
from hloopt.ir import Instruction
from hloopt.targets import Target
from hloopt.types import elements_of, leaves

__all__ = ["ATTENTION", "attention_run_time", "launches_of_attention"]

ATTENTION: Final = "attention"
"""The name of the kernel, in the configuration of such a fusion."""

_ROWS: Final = 128
"""Of a block, which reads all columns."""
_WARP_ROWS: Final = 16
"""Of a warp: fewer take as long."""
_COLUMNS: Final = 64
"""Of a tile."""
_TEST: Final = 0.05
"""Of a tile: what it takes to find that nothing needs it."""
_THREADS: Final = 256
_SHARE: Final = 0.85
"""Of the peak of matrix units."""
_SHARE_FROM: Final = {9: 0.44, 10: 0.44}
"""The same where only asynchronous products of four warps come near the peak, by major capability."""
_SCALAR_SHARE: Final = 0.35
"""Of the peak of f32 lanes, which take both factors from shared memory."""


def attention_run_time(fusion: Instruction, times: DeviceTimes) -> RunTime | None:
    """As ``CostModel.run_time`` has it; None for every other instruction."""
    if fusion.opcode != "fusion" or custom_name(fusion) != ATTENTION:
        return None
    form = attention_form(region_of(fusion))
    return None if isinstance(form, str) else _run_time(fusion, form, times)


def launches_of_attention(fusion: Instruction) -> int:
    """How many launches such a fusion has: where tiles are left out, one finds how large operands are."""
    form = attention_form(region_of(fusion))
    masking = None if isinstance(form, str) else _masking(form)
    return 1 if masking is None or not masking.sizes else 2


def _masking(form: Attention) -> Masking | None:
    found = masking_of(form)
    return found if found is not None and found.is_worth_it(_ROWS, _COLUMNS) else None


def _run_time(fusion: Instruction, form: Attention, times: DeviceTimes) -> RunTime | None:
    target = times.target
    batch, rows = form.count(form.batch), form.count(form.rows)
    blocks = batch * -(-rows // _ROWS)
    masking = _masking(form)
    shares = [1.0] * len(form.sweeps)
    sized = 0
    if masking is not None:
        shares = [share + _TEST * (1 - share) for share in masking.shares(_ROWS, _COLUMNS)]
        sized = sum(one.array.byte_size for one in masking.sizes)
    columns = {product.contraction.rhs.instruction for product in (*form.scores, *form.contexts)}
    again = sum(one.array.byte_size for one in columns) * (blocks // max(1, batch) - 1)
    again = round(again * sum(shares))
    read_bytes = sum(operand.shape.byte_size for operand in dict.fromkeys(fusion.operands))
    written = sum(leaf.byte_size for leaf in leaves(fusion.shape))
    # Blocks of one batch run at the same time, and read the same columns.
    at_once = min(batch, -(-target.cores * max(1, batch) // blocks) + 1)
    each = read_bytes // max(1, batch) * at_once
    speed = L2_SPEEDUP if each <= target.l2_size else 1.0
    read = read_bytes / target.memory_bandwidth + again / (target.memory_bandwidth * speed)
    write = times.write(written)
    products = _products_ns(form, target, shares)
    scores = batch * rows * form.count(form.columns)
    often = [
        (op, count)
        for op, count in _executed(form, target, shares)
        if elements_of(op.shape) == scores
    ]
    issued = issued_ns(often, target)
    if products is None or issued is None:
        return None
    # A block has too few warps to fill a core, and the last blocks leave cores idle.
    waves = -(-blocks // target.cores) * target.cores / blocks
    idle = -(-rows // _WARP_ROWS) * _WARP_ROWS / rows
    compute = (products + issued) * waves * idle
    moving = read * 1e9 + write
    flops = 2 * form.multiply_adds + len(often) * scores
    first = sized / target.memory_bandwidth * 1e9 + (LAUNCH_NS if sized else 0.0)
    return RunTime(
        flops,
        read_bytes + again + sized,
        written,
        read * 1e9 + first,
        write,
        compute,
        times.together(compute, moving) + first,
        blocks,
        _THREADS,
    )


def _executed(
    form: Attention, target: Target, shares: Sequence[float]
) -> Iterator[tuple[Instruction, float]]:
    """What is computed for each score, and how often."""
    late, divisions = form.late_factors(), form.row_divisions()
    unit = matrix_unit(form, target)
    packed = {
        one.contraction.lhs.instruction
        for one in form.contexts
        if unit and matrix_kind(one.contraction) == (unit, 1)
    }
    for op in form.along:
        own = zip(form.sweeps, shares, strict=True)
        often = sum(share for sweep, share in own if op in sweep.computed)
        if op in divisions and divisions[op] in late:
            continue
        if op in divisions:
            yield Instruction(op.name, "multiply", op.shape, op.operands), 2 * often
        elif op.opcode == "convert" and op in packed:
            # Two are rounded and packed by one instruction.
            yield Instruction(op.name, "add", op.shape, (op, op)), 0.5 * often
        elif op.opcode != "dot":
            yield op, often


def _products_ns(form: Attention, target: Target, shares: Sequence[float]) -> float | None:
    """Nanoseconds of all products with every core at work; ``shares`` of its tiles each sweep computes."""
    total = 0.0
    unit = matrix_unit(form, target)
    own = [
        (product, share)
        for sweep, share in zip(form.sweeps, shares, strict=True)
        for product in (*sweep.scores, *sweep.contexts)
    ]
    for product, often in own:
        contraction = product.contraction
        flops = 2 * contraction.multiply_adds * often
        terms = 1
        if unit:
            peak = target.peak_flops(unit, "matrix")
            share = _SHARE_FROM.get(target.capability[0], _SHARE)
            terms = 1 if unit == "f32" else matrix_kind(contraction)[1]
        else:
            peak, share = target.peak_flops("f32"), _SCALAR_SHARE
        if not peak:
            return None
        total += flops * terms / (peak * share) * 1e9
    return total
