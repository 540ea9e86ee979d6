"""What passes did to an instruction before anything was fused, for people and for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from hloopt.fusion.rewritten import Rewrite
from hloopt.fusion.trail import Given, Node

__all__ = ["rewrites_json", "show_rewrites"]

_MOST = 8


def show_rewrites(
    node: Node, origin: Given | None, touched: Sequence[Rewrite], console: Console
) -> None:
    """What the instruction was in the file, which rules of which passes touched it, what would leave it."""
    if not touched:
        return
    lines = [f"  {_was(node, origin)}"]
    for rewrite in touched[:_MOST]:
        lines.append(f"    run {rewrite.run}: {_told(rewrite)}")
        lines.append(f"      without it: {', '.join(rewrite.ways)}")
    if len(touched) > _MOST:
        lines.append(f"    and {len(touched) - _MOST} more rewrites")
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _was(node: Node, origin: Given | None) -> str:
    if origin is None:
        return f"%{node.name} is not in the file: passes made it"
    if (origin.opcode, origin.shape) == (node.opcode, node.shape):
        return f"%{origin.name} was rewritten before anything was fused"
    return (
        f"%{origin.name} = {origin.shape} {origin.opcode} of the file became "
        f"{node.shape} {node.opcode} before anything was fused"
    )


def _told(rewrite: Rewrite) -> str:
    told = f"{rewrite.pass_name}"
    if rewrite.rule:
        told += f": {rewrite.rule}"
    if rewrite.made and rewrite.instruction:
        told += f" for %{rewrite.instruction} ({rewrite.opcode})"
    return f"{told}: {rewrite.reason}" if rewrite.reason else told


def rewrites_json(origin: Given | None, touched: Sequence[Rewrite]) -> dict[str, Any]:
    """The same as JSON values; ``given`` is null for what is not in the file."""
    given = (
        {"name": origin.name, "opcode": origin.opcode, "shape": origin.shape} if origin else None
    )
    return {"given": given, "rewrites": [_rewrite_json(rewrite) for rewrite in touched]}


def _rewrite_json(rewrite: Rewrite) -> dict[str, Any]:
    return {
        "pass": rewrite.pass_name,
        "run": rewrite.run,
        "rule": rewrite.rule or None,
        "reason": rewrite.reason,
        "instruction": rewrite.instruction or None,
        "opcode": rewrite.opcode or None,
        "made": rewrite.made,
        "ways": list(rewrite.ways),
    }
