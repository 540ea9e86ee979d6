"""Why instructions are or are not in one kernel, as JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from hloopt.cost_models.model import Comparison
from hloopt.fusion.barriers import FusionBarrier
from hloopt.fusion.explained import (
    Around,
    Edge,
    ExplainedRefusal,
    ExplainedStep,
    KernelFacts,
    Lost,
    Pair,
)
from hloopt.fusion.history import LoopFacts
from hloopt.fusion.provenance import FusionNode

__all__ = ["around_json", "barriers_json", "loops_json", "lost_json", "pair_json"]


def pair_json(pair: Pair) -> dict[str, Any]:
    """A pair as JSON values."""
    return {
        "first": _node_json(pair.first),
        "second": _node_json(pair.second),
        "together": bool(pair.common),
        "relation": pair.relation,
        "kernels": [_kernel_json(kernel) for kernel in pair.common],
        "shared": list(pair.shared),
        "edges": [_edge_json(edge) for edge in pair.edges],
        "refusals": [_word_json(word) for word in pair.words],
    }


def around_json(around: Around) -> dict[str, Any]:
    """An instruction with its kernels and neighbours as JSON values."""
    return {
        "instruction": _node_json(around.node),
        "kernels": [_kernel_json(kernel) for kernel in around.kernels],
        "joined": [_joined_json(step) for step in around.joined],
        "apart": [_edge_json(edge) for edge in around.apart],
        "refusals": [_word_json(word) for word in around.words],
        "loop": _loop_json(around.loop) if around.loop is not None else None,
    }


def lost_json(rows: Iterable[Lost]) -> list[dict[str, Any]]:
    """Refusals by what they cost as JSON values."""
    return [
        {
            "computation": row.computation,
            "producer_now": row.producer or None,
            "consumer_now": row.consumer or None,
            "lost_us": row.lost_us,
            "runs": row.runs,
            "others": row.others,
            "source": row.source,
            "place": row.place,
            **_word_json(row.word),
        }
        for row in rows
    ]


def loops_json(
    rows: Iterable[tuple[LoopFacts, tuple[ExplainedRefusal, ...]]],
) -> list[dict[str, Any]]:
    """The loops that were examined as JSON values; ``kernel`` is null for a loop that is not one."""
    return [
        {
            "computation": loop.computation,
            "loop": loop.loop,
            "trips": loop.iterations,
            "kernel": loop.kernel or None,
            "refusals": [_word_json(word) for word in words],
        }
        for loop, words in rows
    ]


def barriers_json(rows: Iterable[FusionBarrier]) -> list[dict[str, Any]]:
    """The barriers that no kernel spans as JSON values."""
    return [
        {"code": row.code, "reason": row.reason, "instructions": list(row.names)} for row in rows
    ]


def _loop_json(loop: LoopFacts) -> dict[str, Any]:
    return {
        "computation": loop.computation,
        "name": loop.loop,
        "fusion": loop.fusion or None,
        "kernel": loop.kernel or None,
        "trips": loop.iterations,
        "predicted": loop.profit or None,
        "ways": [
            {**asdict(mapping), "fits": not mapping.problem, "problem": mapping.problem or None}
            for mapping in loop.mappings
        ],
    }


def _node_json(node: FusionNode) -> dict[str, Any]:
    return {
        "computation": node.computation,
        "name": node.name,
        "opcode": node.opcode,
        "shape": node.shape,
        "op_name": node.op_name,
        "place": node.place,
        "source": next(iter(node.sources), ""),
        "sources": list(node.sources),
    }


def _kernel_json(kernel: KernelFacts) -> dict[str, Any]:
    return {
        "computation": kernel.computation,
        "name": kernel.name,
        "kind": kernel.kind or None,
        "members": list(kernel.members),
        "outputs": list(kernel.outputs),
        "now": kernel.now or None,
    }


def _edge_json(edge: Edge) -> dict[str, Any]:
    return {
        "producer": edge.producer.name,
        "consumer": edge.consumer.name,
        "together": bool(edge.common),
        "producer_kernels": [kernel.name for kernel in edge.producer_kernels],
        "consumer_kernels": [kernel.name for kernel in edge.consumer_kernels],
        "joined": [_joined_json(step) for step in edge.joined],
        "refusals": [_word_json(word) for word in edge.words],
    }


def _joined_json(joined: ExplainedStep) -> dict[str, Any]:
    step = joined.step
    return {
        "pass": joined.pass_name,
        "run": joined.run,
        "producer": step.producer,
        "consumer": step.consumer,
        "fusion": step.fusion,
        "duplicated": step.duplicated,
        "multi_output": step.multi_output,
        **_times_json(joined.comparison),
    }


def _word_json(word: ExplainedRefusal) -> dict[str, Any]:
    decision = word.decision
    return {
        "pass": word.pass_name,
        "run": word.run,
        "producer": word.producer,
        "consumer": word.consumer or None,
        "code": decision.code,
        "reason": decision.reason,
        "limit": decision.limit,
        "actual": decision.actual,
        "options": list(word.options),
        "advisable": word.advisable,
        "model": word.model or None,
        **_times_json(word.comparison),
    }


def _times_json(comparison: Comparison | None) -> dict[str, Any]:
    if comparison is None:
        return {"unfused_us": None, "fused_us": None}
    times = {"unfused_us": comparison.unfused_us, "fused_us": comparison.fused_us}
    return {**times, "unfused_at_least": True} if comparison.at_least else times
