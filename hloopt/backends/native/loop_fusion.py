"""Fusing the loops of a module that are faster as one kernel of the host."""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.parallel_loop import fused_loop
from hloopt.dataclass import dataclass
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.loop_host import judge_host
from hloopt.ir import Computation, Module, build, edit
from hloopt.passes.call_inliner import CallInliner
from hloopt.rewrite import Pass, PassLog
from hloopt.targets.target import HOST

__all__ = ["NativeLoopFusion"]


@dataclass(frozen=True)
class NativeLoopFusion(Pass):
    """Make each loop that is faster so on the host one kernel, and all others plain loops.

    Loops that were made kernels for a GPU are dissolved where the host is faster iteration by iteration.  What
    stays a loop is priced as it stands, since nothing is fused afterwards.
    """

    example: ClassVar[str] = LoopFusion.example

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each fused loop, then each loop."""
        opened = _open_other_loops(module, log)
        if opened:
            CallInliner().run(module, PassLog())
        plan = LoopFusion(target=HOST.name).fuse(module, log, last=True)
        return opened or any(loop.fusion for loop in plan.loops)


def _open_other_loops(module: Module, log: PassLog) -> bool:
    """Turn fused loops that are not kernels of the host into calls, which inlining dissolves."""
    opened = False
    for computation in list(module):
        for fusion in [one for one in computation if one.opcode == "fusion"]:
            inner = fused_loop(fusion)
            if inner is None:
                continue
            verdict = judge_host(inner.loop, always=False).decision
            if verdict or not log.allows():
                continue
            log.hit("open a fused loop", fusion, verdict.reason)
            called: Computation = fusion.attributes["calls"]
            call = build.make(
                fusion, "call", fusion.operands, {"to_apply": called}, shape=fusion.shape
            )
            edit.replace_instruction(fusion, call)
            opened = True
    return opened
