"""Which loops of a module are kernels of the host: those that gain by it, and no others."""

from __future__ import annotations

from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.loop_host import open_other_loops
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.passes.call_inliner import CallInliner
from hloopt.rewrite.pass_ import PassLog
from hloopt.targets.host import HOST

__all__ = ["with_whole_loops"]


def with_whole_loops(module: Module) -> Module:
    """A copy of a module, in which those loops are fusions that a kernel of the host runs as a whole.

    Others are plain loops again, whatever device they were fused for.
    """
    copy = clone_module(module)
    if open_other_loops(copy):
        CallInliner().run(copy, PassLog())
    LoopFusion(target=HOST.name).fuse(copy, last=True)
    return copy
