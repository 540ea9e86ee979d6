"""What XLA evaluates while it compiles, on one core, element by element."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Final

from hloopt.analysis.effects import Effects
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import open_computations
from hloopt.numbers import byte_size
from hloopt.types import ArrayShape, DotDims, parts_of

__all__ = ["elements_read", "folded"]

_MOST: Final = 45_000_000
"""Elements of a result that XLA still folds (hlo_constant_folding.cc, ``kMaximumConstantSizeElements``)."""
_LEAST: Final = 1_000_000
"""Elements read from which on the compilation is visibly slower; XLA warns after a second of it."""
_FAMILIES: Final = ("elementwise", "movement", "indexing", "reduction", "sort")
_NEVER: Final = frozenset({"broadcast", "iota", "copy"})
"""What XLA's evaluator is not asked for, since the constant would be larger or no cheaper."""


def folded(subject: Subject) -> Iterator[FindingCandidate]:
    """Instructions of constants alone whose evaluation is long, those together that feed the same one."""
    known = _folded(subject.module)
    for instruction in known:
        if any(user in known for user in instruction.users):
            continue
        chain = _chain(instruction, known)
        total = sum(known[one] for one in chain)
        if total < _LEAST:
            continue
        heavy = max(chain, key=lambda one: known[one])
        first = chain[0]
        since = subject.module.user_line(first.metadata)
        yield FindingCandidate(
            (heavy, *(one for one in chain if one is not heavy)),
            f"All operands of %{heavy.name} are constant{f' since {since}' if since else ''} "
            f"(%{first.name}), so XLA computes it while it compiles: {total:,} elements are read by its "
            "interpreter on one core, and the result is a constant of "
            f"{byte_size(instruction.shape.byte_size)} in the program.",
            (
                FindingRemedy(
                    "model",
                    "pass the array as an argument of the jitted function, or hold it back with "
                    "jax.lax.optimization_barrier: then the device computes it",
                ),
                FindingRemedy("flag", "--xla_disable_hlo_passes=constant_folding"),
            ),
            _held_back,
            (first,),
            counted=elements_read,
        )


def elements_read(module: Module) -> float:
    """The elements that the evaluations read, in all."""
    return float(sum(_folded(module).values()))


def _folded(module: Module) -> dict[Instruction, int]:
    """What XLA's constant folding replaces by constants, each with the elements it reads.

    An operand at least is a constant or folded, and all others are, or broadcasts of such, or iotas.
    """
    effects = Effects(module)
    found: dict[Instruction, int] = {}
    for computation in open_computations(module):
        for instruction in computation:
            if not _is_evaluated(instruction) or effects.has(instruction):
                continue
            if not all(_is_known(one, found) for one in instruction.operands):
                continue
            if not any(one.opcode == "constant" or one in found for one in instruction.operands):
                continue
            if instruction.opcode == "reduce-window" and _is_running(instruction):
                continue
            shapes = parts_of(instruction.shape)
            if any(not isinstance(one, ArrayShape) or one.elements > _MOST for one in shapes):
                continue
            found[instruction] = _work(instruction)
    return found


def _is_evaluated(instruction: Instruction) -> bool:
    op = instruction.op
    return bool(instruction.operands) and (
        op.opcode == "dot" or (op.family in _FAMILIES and op.opcode not in _NEVER)
    )


def _is_running(instruction: Instruction) -> bool:
    """Whether a window is as long as a dimension: XLA rewrites running sums before it folds anything."""
    shape = instruction.operands[0].shape
    sizes = shape.dims if isinstance(shape, ArrayShape) else ()
    window = instruction.window.dims
    return any(one.size == size > 1 for one, size in zip(window, sizes, strict=True))


def _is_known(operand: Instruction, found: dict[Instruction, int]) -> bool:
    if operand.opcode == "broadcast":
        inner = operand.operands[0]
        return inner.opcode == "constant" or inner in found
    return operand.opcode in ("constant", "iota") or operand in found


def _work(instruction: Instruction) -> int:
    """Elements read; of a dot and of windows as often as they are."""
    if instruction.opcode == "dot":
        lhs, dims = instruction.operands[0].array, DotDims.of(instruction.attributes)
        return instruction.array.elements * prod(lhs.dims[dim] for dim in dims.lhs_contracting)
    if instruction.opcode in ("reduce-window", "convolution"):
        return instruction.window.size * max(
            part.elements for part in parts_of(instruction.shape) if isinstance(part, ArrayShape)
        )
    return max(
        part.elements
        for one in (*instruction.operands, instruction)
        for part in parts_of(one.shape)
        if isinstance(part, ArrayShape)
    )


def _chain(last: Instruction, known: dict[Instruction, int]) -> list[Instruction]:
    """What is folded for the last of a chain, in the order of the text."""
    chain = {last}
    pending = [last]
    while pending:
        for operand in pending.pop().operands:
            for one in (
                (operand, *operand.operands) if operand.opcode == "broadcast" else (operand,)
            ):
                if one in known and one not in chain:
                    chain.add(one)
                    pending.append(one)
    return [one for one in last.home if one in chain]


def _held_back(module: Module, places: Sequence[Instruction]) -> bool:
    """Put a barrier behind the largest constant operand of each start of the chain."""
    chain = set(places)
    for instruction in places:
        if any(operand in chain for operand in instruction.operands):
            continue
        operand = max(instruction.operands, key=lambda one: one.shape.byte_size)
        barrier = build.make(instruction, "opt-barrier", (operand,), {}, shape=operand.shape)
        edit.replace_operand(instruction, operand, barrier)
    return True
