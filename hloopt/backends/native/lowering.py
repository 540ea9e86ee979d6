"""What makes a module ready for the native device; its order is that of ``kernels/lowering.py``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from hloopt.backends.native.row_fusion import NativeRowFusion
from hloopt.backends.native.splitter import NativeSplitter
from hloopt.passes.call_inliner import CallInliner
from hloopt.passes.copy_insertion import CopyInsertion
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.expand.batch_norm_expander import BatchNormExpander
from hloopt.passes.expand.expander import Expander
from hloopt.passes.expand.stochastic_convert_expander import StochasticConvertExpander
from hloopt.passes.flatten_call_graph import FlattenCallGraph
from hloopt.passes.layout_normalization import LayoutNormalization
from hloopt.passes.schedule import Schedule
from hloopt.passes.sole_participant import SoleParticipant
from hloopt.passes.views_to_bitcasts import ViewsToBitcasts
from hloopt.rewrite import Pipeline

__all__ = ["NATIVE", "NATIVE_EXPANDERS"]

NATIVE_EXPANDERS: Final[Mapping[type[Expander], str]] = MappingProxyType(
    {
        BatchNormExpander: "sums and elementwise ops become loops",
        StochasticConvertExpander: "plain arithmetic",
    }
)
"""The expanders for the native device, each with the reason why.

What else no loop computes has kernels of its own, such as linear systems and transforms, or the NumPy executor
runs it: top-k by partitions, eigenvalues by LAPACK, ragged products by BLAS, running sums in one go.
"""

NATIVE: Final = Pipeline(
    (
        CallInliner(),
        SoleParticipant(),
        *(expander() for expander in NATIVE_EXPANDERS),
        LayoutNormalization(),
        NativeRowFusion(),
        NativeSplitter(),
        ViewsToBitcasts(),
        DeadCodeElimination(),
        FlattenCallGraph(),
        Schedule(),
        CopyInsertion(),
    )
)
"""The pipeline ``native``."""
