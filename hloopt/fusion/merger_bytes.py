"""The criterion of XLA's FusionMerger up to 2022: what the kernels move, before and after."""

from __future__ import annotations

from hloopt.analysis.layout import major_to_minor, true_rank
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.duplication import Duplication
from hloopt.fusion.fusible import is_expensive, reused_operands
from hloopt.fusion.kinds import is_input_reduction
from hloopt.fusion.limits import CodeLimits, fused_ops
from hloopt.ir import Instruction
from hloopt.types import ArrayShape

__all__ = [
    "bytes_read",
    "decide_bytes",
    "decide_costly",
    "decide_emissions",
    "decide_plain_loop",
    "decide_user",
]


def decide_user(producer: Instruction, user: Instruction) -> Decision:
    """Up to 2021: users are loop fusions, or fusions of a reduction that reads memory as the producer does."""
    if user.opcode != "fusion":
        return forbid("consumer-no-fusion")
    if is_input_reduction(user):
        return ALLOWED if _read_alike(producer, user) else forbid("breaks-coalescing")
    return ALLOWED if user.attributes["kind"] == "kLoop" else forbid("consumer-no-fusion")


def decide_plain_loop(producer: Instruction) -> Decision:
    """Up to 2021: a producer computes nothing that is expensive; an earlier pass left it where it is."""
    for entry in fused_ops(producer):
        if is_expensive(entry):
            return forbid("holds-expensive", words=entry.opcode)
    return ALLOWED


def decide_costly(producer: Instruction, much_less: int, trivial_bytes: int) -> Decision:
    """In 2022: expensive ops are computed again where that saves much.

    So they are for one user, or where the kernels move less than ``much_less`` percent of the bytes they move
    now and these are more than ``trivial_bytes``; never where a user reads elements several times.
    """
    now, merged = _moved(producer)
    pays = len(producer.users) == 1 or (merged * 100 < much_less * now and now > trivial_bytes)
    if pays and not any(producer in reused_operands(user) for user in producer.users):
        return ALLOWED
    return decide_plain_loop(producer)


def decide_emissions(producer: Instruction, user: Instruction, limits: CodeLimits) -> Decision:
    """In 2022: whether a loop kernel of both would write the code of some instruction too often.

    XLA's ``IsFusedIrEmitterInefficient``; an op in the place of ``user`` reads the producer once.
    """
    if user.opcode != "fusion":
        return ALLOWED
    body = user.calls
    times = Duplication(body).count(body.parameters[user.operands.index(producer)])
    return Duplication(producer.calls, times).decide_all(limits)


def decide_bytes(producer: Instruction, max_percent: int) -> Decision:
    """Whether the kernels would move more than ``max_percent`` of the bytes they move now."""
    now, merged = _moved(producer)
    if merged * 100 > max_percent * max(now, 1):
        return forbid("more-bytes", limit=max_percent, actual=-(-merged * 100 // max(now, 1)))
    return ALLOWED


def _moved(producer: Instruction) -> tuple[int, int]:
    """The bytes moved now and merged.

    Now the producer reads and writes, and each user reads what it wrote; merged each user reads what the
    producer reads.  What users move beside is on neither side.
    """
    read = bytes_read(producer)
    users = len(producer.users)
    return read + producer.shape.byte_size * (users + 1), read * users


def bytes_read(fusion: Instruction) -> int:
    """Bytes of the operands: all of each, or what slices of it take where nothing else reads it."""
    return sum(map(_bytes_of, fusion.calls.parameters))


def _bytes_of(value: Instruction) -> int:
    users = value.users
    if users and all(user.opcode == "get-tuple-element" for user in users):
        return sum(map(_bytes_of, users))
    slices = all(user.opcode in ("slice", "dynamic-slice") for user in users)
    if slices and all(user.operands[0] is value for user in users):
        return sum(user.shape.byte_size for user in users)
    return value.shape.byte_size


def _read_alike(producer: Instruction, user: Instruction) -> bool:
    """Whether the largest arrays that both read lie in memory alike.

    XLA's ``LayoutsAreReduceInputFusionFriendly``: arrays with the most dimensions of more than one element,
    and the order of those in memory.
    """
    shapes = [
        parameter.shape
        for fusion in (producer, user)
        for parameter in fusion.calls.parameters
        if isinstance(parameter.shape, ArrayShape)
    ]
    rank = max(map(true_rank, shapes), default=0)
    return len({_order(shape) for shape in shapes if true_rank(shape) == rank}) <= 1


def _order(shape: ArrayShape) -> tuple[int, ...]:
    """The dimensions of more than one element, renumbered, slowest first."""
    wide = [dimension for dimension, size in enumerate(shape.dims) if size > 1]
    return tuple(wide.index(entry) for entry in major_to_minor(shape) if entry in wide)
