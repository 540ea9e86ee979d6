"""An explanation whose times come from a cost model where no strategy computed them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloopt.cost_models.model import Comparison, CostModel
from hloopt.fusion.explanation import Explanation
from hloopt.fusion.fusible import may_be_fused
from hloopt.fusion.provenance import Provenance
from hloopt.ir import Instruction

__all__ = ["explained"]

_NO_KERNEL: Final = frozenset({"bitcast", "constant"})
"""Ops that may be fused and cost nothing unfused."""


def explained(provenance: Provenance, model: CostModel) -> Explanation:
    """What there is to explain after all passes; times that no strategy computed come from the model."""
    known: dict[tuple[str, str, str, bool], Comparison | None] = {}

    def times(
        computation: str, producer: str, consumer: str, multi_output: bool
    ) -> Comparison | None:
        key = computation, producer, consumer, multi_output
        if key not in known:
            first, second = (
                provenance.alive.get((computation, name)) for name in (producer, consumer)
            )
            users = [second] if consumer else list(first.users) if first is not None else []
            known[key] = _compare(model, first, users, multi_output=multi_output)
        return known[key]

    return Explanation(provenance, times, f"{model.name}, {model.target.name}")


def _compare(
    model: CostModel,
    producer: Instruction | None,
    consumers: Sequence[Instruction | None],
    *,
    multi_output: bool,
) -> Comparison | None:
    """What fusing kernels of the finished module would save; a producer with other users stays for these.

    With ``multi_output`` the kernel of the one consumer writes what others read of the producer.
    """
    users = [entry for entry in consumers if entry is not None]
    if producer is None or not users or len(users) < len(consumers):
        return None
    if not all(entry in producer.users and _is_kernel(entry) for entry in users):
        return None
    if not _is_kernel(producer):
        return None
    if multi_output:
        return model.compare(producer, users, multi_output=True) if len(users) == 1 else None
    found = model.compare(producer, users)
    if len(producer.users) == len(users) and not producer.is_root:
        return found
    stays = (model.run_time(producer).exec_ns + model.launch_ns) / 1000
    return Comparison(found.unfused_us, found.fused_us + stays)


def _is_kernel(instruction: Instruction) -> bool:
    """Whether an instruction may be fused, and costs something unfused."""
    return instruction.opcode not in _NO_KERNEL and may_be_fused(instruction)
