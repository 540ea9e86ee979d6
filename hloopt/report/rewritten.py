"""What passes did to an instruction before anything was fused, for people and for scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from hloopt.fusion.provenance import FusionNode, GivenInstruction, TracedRewrite
from hloopt.report.console import say

__all__ = ["brief_shape", "rewrites_json", "show_rewrites"]

_MOST = 8
_MOST_ELEMENTS = 6
_NUMBERS = re.compile(r"/\*index=\d+\*/")


def brief_shape(shape: str) -> str:
    """``(s32[], f32[8], ... of 9)``: a tuple of many by its first elements; any other shape as it is."""
    if not shape.startswith("("):
        return shape
    shape = _NUMBERS.sub("", shape)
    depth, ends = 0, []
    for at, char in enumerate(shape):
        depth += char in "([{"
        depth -= char in ")]}"
        if char == "," and depth == 1:
            ends.append(at)
    if len(ends) < _MOST_ELEMENTS:
        return shape
    return f"{shape[: ends[_MOST_ELEMENTS - 3]]}, ... of {len(ends) + 1})"


def show_rewrites(
    node: FusionNode,
    origin: GivenInstruction | None,
    touched: Sequence[TracedRewrite],
    console: Console,
) -> None:
    """What the instruction was in the file, which rules of which passes touched it, how to prevent that."""
    if not touched:
        return
    lines = [f"  {_was(node, origin)}"]
    groups: dict[TracedRewrite, list[str]] = {}
    for rewrite in touched:
        groups.setdefault(replace(rewrite, reason=""), []).append(rewrite.reason)
    for rewrite, reasons in list(groups.items())[:_MOST]:
        reason = "; ".join(filter(None, dict.fromkeys(reasons)))
        lines.append(f"    run {rewrite.run}: {_told(replace(rewrite, reason=reason))}")
        lines.append(f"      without it: {', '.join(rewrite.ways)}")
    hidden = sum(map(len, list(groups.values())[_MOST:]))
    if hidden:
        lines.append(f"    and {hidden} more rewrites")
    for line in lines:
        say(console, line)


def _was(node: FusionNode, origin: GivenInstruction | None) -> str:
    if origin is None:
        return f"%{node.name} is not in the file: passes made it"
    if (origin.opcode, origin.shape) == (node.opcode, node.shape):
        return f"%{origin.name} was rewritten before anything was fused"
    return (
        f"%{origin.name} = {brief_shape(origin.shape)} {origin.opcode} of the file became "
        f"{brief_shape(node.shape)} {node.opcode} before anything was fused"
    )


def _told(rewrite: TracedRewrite) -> str:
    line = f"{rewrite.pass_name}"
    if rewrite.rule:
        line += f": {rewrite.rule}"
    if rewrite.made and rewrite.instruction:
        line += f" for %{rewrite.instruction} ({rewrite.opcode})"
    return f"{line}: {rewrite.reason}" if rewrite.reason else line


def rewrites_json(
    origin: GivenInstruction | None, touched: Sequence[TracedRewrite]
) -> dict[str, Any]:
    """The same as JSON values; ``given`` is null for what is not in the file."""
    given = (
        {"name": origin.name, "opcode": origin.opcode, "shape": origin.shape} if origin else None
    )
    return {"given": given, "rewrites": [_rewrite_json(rewrite) for rewrite in touched]}


def _rewrite_json(rewrite: TracedRewrite) -> dict[str, Any]:
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
