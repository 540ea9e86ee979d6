"""The order in which XLA's GPU compiler runs its passes, and what hloopt has of each.

Presets are data: ``xla-gpu-2022`` is the order of XLA up to early 2023, ``xla-gpu-2026`` that of 2026.  A row
names passes of XLA and the entry of a pipeline that does their work, or says why there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from hloopt.dataclass import dataclass

__all__ = ["XLA_PRESETS", "Row", "Rows", "Step", "preset_rows", "preset_text"]


@dataclass(frozen=True, slots=True)
class Step:
    """A pass of XLA, the entry that stands for it, and why there is none or it does less."""

    xla: str
    entry: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """Passes that XLA repeats until nothing changes."""

    xla: str
    steps: tuple[Step, ...]


Row: TypeAlias = Step | Rows

_LIBRARIES = "calls of cuBLAS, cuDNN and CUB are made by XLA from the text it gets back"
_TEXT = "a schedule with asynchronous pairs is made by XLA from the text it gets back"
_KERNELS = "how a reduction is cut into kernels is decided with its kernel, not in the text"

_LIMITS_OF_2022 = "max_operands=64,column_bytes=2112"

_CALLS: tuple[Row, ...] = (
    Step("FlattenCallGraph", "flatten-call-graph"),
    Step("CallInliner", "call-inliner"),
    Step("MapInliner", "map-inliner"),
    Step("ZeroSizedHloElimination", "zero-sized"),
)
_PARTITIONING: tuple[Row, ...] = (
    Step("SpmdPartitioner", "", "shardings are kept for XLA, which knows the mesh of devices"),
)
_EXPANDERS: tuple[Row, ...] = (
    Step("DotDecomposer", "dot-decomposer{matrices=false}"),
    Step("ResultCaster, OperandUpcaster", "", "ops take operands of mixed types as they are"),
    Step("RngBitGeneratorExpander", "rng-expander{loops=false}"),
    Step("SortRewriter", "", _LIBRARIES),
    Step("ComparisonExpander", "comparison-expander"),
    Step("SelectAndScatterExpander", "select-and-scatter-expander"),
    Step("CholeskyExpander", "cholesky-expander"),
    Step("TriangularSolveExpander", "triangular-solve-expander"),
    Step(
        "QrExpander, EighExpander", "", "both arrive as custom calls, which are kept by their names"
    ),
    Step(
        "ScatterDeterminismExpander",
        "",
        "updates are combined in their order by every executor here",
    ),
    Step("DynamicIndexSplitter", "dynamic-index-splitter"),
    Step("StochasticConvertDecomposer", "stochastic-convert-expander"),
    Step("BatchNormExpander", "batch-norm-expander"),
    Step("LogisticExpander", "logistic-expander"),
    Step("DynamicPadder", "", "arrays have their actual sizes here: there is nothing to mask"),
    Step("ReduceWindowRewriter", "reduce-window-rewriter"),
)
_STABLE_SORTS = Step("StableSortExpander", "stable-sort-expander")
_LAYOUTS: tuple[Row, ...] = (
    Step(
        "GpuLayoutAssignment", "", "the text says the layouts: those of the frontend, or XLA's own"
    ),
)
_REDUCTIONS: tuple[Row, ...] = (
    Step("ReductionDegenerateDimRemover", "reduction-degenerate-dim-remover"),
    Step("AlgebraicSimplifier", "simplify"),
    Step("ReductionDimensionGrouper, ReductionSplitter, TreeReductionRewriter", "", _KERNELS),
)

XLA_PRESETS: Final[Mapping[str, tuple[Row, ...]]] = {
    "xla-gpu-2022": (
        *_CALLS,
        *_PARTITIONING,
        *_EXPANDERS,
        _STABLE_SORTS,
        Rows(
            "simplification",
            (
                Step("ZeroSizedHloElimination", "zero-sized"),
                Step("GatherExpander", "gather-to-slice"),
                Step("ScatterExpander", "scatter-to-slice"),
                Step("AlgebraicSimplifier", "simplify"),
                Step("DotDecomposer", "dot-decomposer{matrices=false}"),
                Step("TupleSimplifier", "tuple-simplifier"),
                Step("WhileLoopConstantSinking", "while-constant-sinking"),
                Step("WhileLoopSimplifier", "while-loop-simplifier"),
                Step(
                    "WhileLoopSimplifier",
                    "call-inliner",
                    "a loop that runs once becomes a call first",
                ),
                Step("ReshapeMover", "reshape-mover"),
                Step("HloConstantFolding", "constant-folding"),
                Step("ConditionalSimplifier", "conditional-simplifier"),
                Step("HloCSE", "cse"),
                Step("HloDCE", "dce"),
            ),
        ),
        Step("TransposeFolding", "transpose-folding"),
        Step("GpuConvRewriter, CudnnFusedConvRewriter", "", _LIBRARIES),
        *_LAYOUTS,
        Step("GemmRewriter", "", _LIBRARIES),
        *_REDUCTIONS,
        Rows(
            "fusion",
            (
                Step("VariadicOpSplitter", "variadic-op-splitter"),
                Step(
                    "InstructionFusion(may_duplicate=false)",
                    f"instruction-fusion{{may_duplicate=false,{_LIMITS_OF_2022}}}",
                ),
                Step(
                    "InstructionFusion(may_duplicate=true)",
                    f"instruction-fusion{{{_LIMITS_OF_2022}}}",
                ),
                Step("FusionMerger", "fusion-merger"),
                Step(
                    "GpuMultiOutputFusion",
                    f"multi-output-fusion{{era=2023,cost_model=xla-2023,{_LIMITS_OF_2022}}}",
                ),
                Step("HloCSE", "cse"),
                Step("HloDCE", "dce"),
            ),
        ),
        Rows(
            "horizontal fusion",
            (
                Step("GpuHorizontalLoopFusion", "horizontal-loop-fusion{era=2020}"),
                Step("GpuHorizontalInputFusion", f"horizontal-input-fusion{{{_LIMITS_OF_2022}}}"),
                Step("HloCSE", "cse"),
                Step("HloDCE", "dce"),
            ),
        ),
        Step("CopyInsertion", "copy-insertion"),
        Step("GpuHorizontalLoopFusion", "horizontal-loop-fusion{era=2020,prefix=copy_}"),
        Step("GpuHloSchedule", "schedule"),
    ),
    "xla-gpu-2026": (
        *_CALLS,
        Step(
            "ConditionalCanonicalizer", "", "conditionals with results of any shape run as they are"
        ),
        Step("TopkSpecializer, TopkDecomposer", "topk-expander{library=true}"),
        *_PARTITIONING,
        Step("RaggedDotRewriter", "ragged-dot-expander"),
        Step("RaggedDotRewriter", "ragged-dot-expander"),
        Step("DotDimensionSorter", "dot-dimension-sorter"),
        *_EXPANDERS,
        Step("PermutationSortSimplifier", "permutation-sort"),
        _STABLE_SORTS,
        Rows(
            "simplification",
            (
                Step("ZeroSizedHloElimination", "zero-sized"),
                Step("GatherSimplifier", "gather-simplifier"),
                Step("GatherExpander", "gather-to-slice{limit=1}"),
                Step("ScatterSimplifier", "scatter-simplifier"),
                Step("ScatterExpander", "scatter-to-slice{limit=1}"),
                Step("DotStrengthReduction", "dot-strength-reduction"),
                Step("AlgebraicSimplifier", "simplify{own=false}"),
                Step("SortSimplifier", "sort-simplifier"),
                Step("TupleSimplifier", "tuple-simplifier"),
                Step("WhileLoopConstantSinking", "while-constant-sinking"),
                Step("WhileLoopSimplifier", "while-loop-simplifier"),
                Step(
                    "WhileLoopSimplifier",
                    "call-inliner",
                    "a loop that runs once becomes a call first",
                ),
                Step(
                    "SliceSinker", "", "slices move towards parameters here, by rules of simplify"
                ),
                Step("ReshapeMover", "reshape-mover{own=false}"),
                Step("HloConstantFolding", "constant-folding"),
                Step("ConditionalSimplifier", "conditional-simplifier{own=false}"),
                Step("HloCSE", "cse"),
                Step("HloDCE", "dce"),
            ),
        ),
        Step("DotMerger", "dot-merger{twins=true}"),
        Step("TransposeFolding", "transpose-folding{matrices=true}"),
        Rows(
            "simplification-2",
            (
                Step("ConvertMover", "convert-pairs"),
                Step("AlgebraicSimplifier", "simplify{own=false}"),
            ),
        ),
        Step("HloComputationDeduplicator", "cse{computations=true}"),
        Step(
            "collective-optimizations", "", "other devices take part in collectives: they are kept"
        ),
        Step("ConvRewriter, CudnnFusedConvRewriter", "", _LIBRARIES),
        Step("GpuLayoutAssignment", "layout-assignment"),
        Step("LayoutNormalization", "layout-normalization{gathers=false}"),
        Step("DotDimensionMerger", "dot-dimension-merger"),
        Step("AlgebraicSimplifier", "simplify{own=false}"),
        Step(
            "AlgebraicSimplifier",
            "views-to-bitcasts",
            "what moves no byte is a bitcast from here on",
        ),
        Step("BitcastDtypesExpander", "bitcast-dtypes-expander"),
        Step("SplitkRewriter", "splitk-rewriter"),
        Step("GemmFusion", "gemm-fusion"),
        Step("GemmRewriter", "", _LIBRARIES),
        _REDUCTIONS[0],
        Step("AlgebraicSimplifier", "simplify{own=false}"),
        Step("SoftmaxRewriterTriton", "triton-softmax-rewriter"),
        Step("ReductionDimensionGrouper", "reduction-dimension-grouper"),
        Step("ReductionSplitter", "reduction-splitter"),
        Step("TreeReductionRewriter", "tree-reduction-rewriter"),
        Step("FloatNormalization", "", "every executor here computes in all element types"),
        Step("SimplifyFPConversions", "convert-pairs"),
        Step("ReshapeDecomposer", "views-to-bitcasts"),
        Step("HloCSE", "cse"),
        Step("DynamicSliceFusion", "", "it wraps library calls, which XLA makes"),
        Step("VariadicOpSplitter", "variadic-op-splitter"),
        Step("SortIotaFusion", "sort-iota-fusion"),
        Step("PriorityFusion", "priority-fusion"),
        Step("HloCSE", "cse"),
        Step("HloDCE", "dce"),
        Step("MultiOutputFusion", "multi-output-fusion"),
        Step("HloCSE", "cse"),
        Step("HloDCE", "dce"),
        Step("RenameFusions", "rename-fusions"),
        Step("TupleSimplifier", "tuple-simplifier"),
        Step("AllReduceCombiner, AsyncCollectiveCreator", "", _TEXT),
        Step("Autotuner", "", "a choice among library kernels is made where they are"),
        Step("CopyInsertion", "copy-insertion"),
        Step("CopyFusion", "copy-fusion"),
        Step("FusionWrapper", "fusion-wrapper"),
        Step("LatencyHidingScheduler", "schedule"),
        Step(
            "HloRematerialization",
            "",
            "it is told the bytes of a device: add rematerialize{bytes=N}",
        ),
    ),
}


def preset_text(rows: tuple[Row, ...]) -> str:
    """The pipeline text of a preset."""
    return ",".join(filter(None, map(_text, rows)))


def _text(row: Row) -> str:
    if isinstance(row, Step):
        return row.entry
    inner = ",".join(step.entry for step in row.steps if step.entry)
    return f"fix({inner})" if inner else ""


def preset_rows(rows: tuple[Row, ...]) -> Iterator[tuple[str, Step]]:
    """Every step with the name of the group it is in, empty outside of one."""
    for row in rows:
        if isinstance(row, Step):
            yield "", row
        else:
            for step in row.steps:
                yield row.xla, step
