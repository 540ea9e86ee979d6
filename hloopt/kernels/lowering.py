"""What makes a module ready for a device: every op has a kernel, every buffer an order.

The order of the stages matters.  Calls go first, since nothing is planned across them; then ops for which
there is no kernel; then layouts, for kernels see row-major arrays only; then fusions that would compute
reductions again and again are cut; then what moves no byte becomes a bitcast, so that buffers are told apart
before the order of instructions is chosen by how many live at once.  Copies come last: which are needed
follows from the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.kernels.limits import Limits
from hloopt.kernels.nested_reduction_splitter import NestedReductionSplitter
from hloopt.passes.call_inliner import CallInliner
from hloopt.passes.copy_insertion import CopyInsertion
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.expand.batch_norm_expander import BatchNormExpander
from hloopt.passes.expand.cholesky_expander import CholeskyExpander
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.ragged_dot_expander import RaggedDotExpander
from hloopt.passes.expand.reduce_window_rewriter import ReduceWindowRewriter
from hloopt.passes.expand.stochastic_convert_expander import StochasticConvertExpander
from hloopt.passes.expand.topk_expander import TopkExpander
from hloopt.passes.expand.triangular_solve_expander import TriangularSolveExpander
from hloopt.passes.flatten_call_graph import FlattenCallGraph
from hloopt.passes.layout_normalization import LayoutNormalization
from hloopt.passes.schedule import Schedule
from hloopt.passes.sole_participant import SoleParticipant
from hloopt.passes.views_to_bitcasts import ViewsToBitcasts
from hloopt.rewrite import Pipeline

__all__ = ["DEVICE", "EXPANDERS", "make_ready"]

EXPANDERS: Final[Mapping[type[Expander], str]] = MappingProxyType(
    {
        BatchNormExpander: "sums and elementwise ops fuse; one kernel would be no faster",
        CholeskyExpander: "more rows than a block has room for: a loop of small kernels",
        TriangularSolveExpander: "more rows than a block has room for: a loop of small kernels",
        TopkExpander: "sort has kernels",
        RaggedDotExpander: "dot has kernels",
        StochasticConvertExpander: "plain arithmetic",
    }
)
"""The expanders of ops that no kernel family runs, or not all of, each with the reason why."""

_ONE_BLOCK: Final = Limits().linear_system_size
_BOUNDED: Final = (CholeskyExpander(above=_ONE_BLOCK), TriangularSolveExpander(above=_ONE_BLOCK))
# A kernel computes each running sum from its first element on: n * n steps.  Up to here that takes less time
# than the launches of a few small kernels.  Other reductions add floats up in an order of their own, too.
_RUNNING: Final = ReduceWindowRewriter(fast_math=True, above=256, narrow=False)
_EXPAND: Final = (
    *(expander() for expander in EXPANDERS if expander not in map(type, _BOUNDED)),
    *_BOUNDED,
    _RUNNING,
)

DEVICE: Final = Pipeline(
    (
        CallInliner(),
        SoleParticipant(),
        *_EXPAND,
        LayoutNormalization(),
        NestedReductionSplitter(),
        ViewsToBitcasts(),
        DeadCodeElimination(),
        FlattenCallGraph(),
        Schedule(),
        CopyInsertion(),
    )
)
"""The pipeline ``device``."""


def make_ready(module: Module, pipeline: Pipeline = DEVICE) -> Module:
    """A copy of a module that ``plan_program`` takes: ``DEVICE`` or another such pipeline has run over it."""
    copy = clone_module(module)
    pipeline.run(copy)
    return copy
