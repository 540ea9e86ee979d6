"""Rules for collectives in which every participant is alone."""

from __future__ import annotations

from hloopt.ir import Instruction
from hloopt.ops.traits import COLLECTIVE, DONES, STARTS
from hloopt.rewrite import Match, Rule, op, same_layout
from hloopt.types import ArrayShape, parts_of

__all__ = ["RULES"]

_GROUPED = (
    COLLECTIVE
    - STARTS
    - DONES
    - {"collective-broadcast", "collective-permute", "ragged-all-to-all"}
)


def _all_alone(root: Instruction) -> bool:
    """Whether each group that is written has one member, and that is one device."""
    # What reads groups comes with the interpreter and the verifier; few modules have any.
    from hloopt.interpret.groups import listed_groups
    from hloopt.verifier.devices import group_mode, replica_groups

    mode = group_mode(root)
    groups = replica_groups(root)
    if not mode or not groups:
        # Without groups all participants meet, and how many there are the text need not say.
        return False
    if mode == "cross_replica_and_partition":
        module = root.computation.module if root.computation is not None else None
        if module is None or module.attributes.get("num_partitions") != 1:
            return False
    try:
        return all(len(group) == 1 for group in listed_groups(groups))
    except ValueError:
        # The verifier reports a mesh that cannot be cut.
        return False


def _alone(match: Match) -> Instruction | None:
    """A participant that is alone keeps what it has."""
    root = match.root
    parts = parts_of(root.shape)
    if len(parts) != len(root.operands) or not _all_alone(root):
        return None
    for part, operand in zip(parts, root.operands, strict=True):
        if not isinstance(part, ArrayShape) or part.dims != operand.array.dims:
            return None
        if not same_layout(part, operand.shape):
            return match.refuse(f"operand {operand.name} has another layout")
    return match.results(root.operands)


def _permutes_nothing(match: Match) -> Instruction | None:
    """Every participant sends to itself."""
    root = match.root
    pairs = root.attributes.get("source_target_pairs", ())
    module = root.computation.module if root.computation is not None else None
    if module is None or len(root.operands) != 1 or not root.is_array:
        return None
    count = "num_partitions" if "channel_id" in root.attributes else "replica_count"
    wanted = module.attributes.get(count)
    if wanted is None or not isinstance(pairs, tuple):
        return None
    if sorted(pairs) != [(device, device) for device in range(wanted)]:
        return None
    return root.operands[0]


RULES = (
    Rule("all-reduce(A) of single participants => A", op(_GROUPED), _alone),
    Rule(
        "collective-permute(A) of each to itself => A", op("collective-permute"), _permutes_nothing
    ),
)
