"""All passes by name, and the named pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from hloopt.errors import UsageError
from hloopt.fusion.strategies import has_strategy
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.lazy_table import attributes
from hloopt.rewrite import Controls, Fix, Pass, Pipeline
from hloopt.rewrite.entries import make_entries, with_options
from hloopt.rewrite.plugins import installed, installed_names, load_file
from hloopt.rewrite.spec import Spec, parse

if TYPE_CHECKING:
    from hloopt.fusion.advice import Advice
    from hloopt.fusion.user_rules import FusionRule

__all__ = [
    "ABOUT",
    "PASSES",
    "PIPELINES",
    "SIMPLIFICATION",
    "Given",
    "all_names",
    "find_pass",
    "for_target",
    "load_passes",
    "make_pipeline",
    "optimize_module",
    "parse_pipeline",
    "pipeline_of",
    "read_pipeline",
]

# Where each is; a pass is loaded when a pipeline has it.
_OWN: Final[Mapping[str, str]] = {
    "call-inliner": "passes.call_inliner.CallInliner",
    "flatten-call-graph": "passes.flatten_call_graph.FlattenCallGraph",
    "map-inliner": "passes.map_inliner.MapInliner",
    "reduce-window-rewriter": "passes.expand.reduce_window_rewriter.ReduceWindowRewriter",
    "rng-expander": "passes.expand.rng_expander.RngExpander",
    "select-and-scatter-expander": "passes.expand.select_and_scatter_expander.SelectAndScatterExpander",
    "batch-norm-expander": "passes.expand.batch_norm_expander.BatchNormExpander",
    "bitcast-dtypes-expander": "passes.expand.bitcast_dtypes_expander.BitcastDtypesExpander",
    "cholesky-expander": "passes.expand.cholesky_expander.CholeskyExpander",
    "comparison-expander": "passes.expand.comparison_expander.ComparisonExpander",
    "dynamic-index-splitter": "passes.expand.dynamic_index_splitter.DynamicIndexSplitter",
    "logistic-expander": "passes.expand.logistic_expander.LogisticExpander",
    "ragged-dot-expander": "passes.expand.ragged_dot_expander.RaggedDotExpander",
    "stable-sort-expander": "passes.expand.stable_sort_expander.StableSortExpander",
    "stochastic-convert-expander": "passes.expand.stochastic_convert_expander.StochasticConvertExpander",
    "topk-expander": "passes.expand.topk_expander.TopkExpander",
    "triangular-solve-expander": "passes.expand.triangular_solve_expander.TriangularSolveExpander",
    "tuple-simplifier": "passes.tuple_simplifier.TupleSimplifier",
    "zero-sized": "passes.zero_sized.ZeroSized",
    "simplify": "simplify.Simplify",
    "broadcast-sinking": "passes.broadcast_sinking.BroadcastSinking",
    "reshape-mover": "passes.reshape_mover.ReshapeMover",
    "convert-pairs": "passes.convert_pairs.ConvertPairs",
    "gather-to-slice": "passes.indexing.gather_to_slice.GatherToSlice",
    "scatter-to-slice": "passes.indexing.scatter_to_slice.ScatterToSlice",
    "scatter-to-select": "passes.indexing.scatter_to_select.ScatterToSelect",
    "gather-simplifier": "passes.indexing.gather_simplifier.GatherSimplifier",
    "scatter-simplifier": "passes.indexing.scatter_simplifier.ScatterSimplifier",
    "sort-simplifier": "passes.sorting.sort_simplifier.SortSimplifier",
    "permutation-sort": "passes.sorting.permutation_sort.PermutationSort",
    "concat-removal": "passes.concat_removal.ConcatRemoval",
    "conditional-simplifier": "passes.conditional_simplifier.ConditionalSimplifier",
    "scan-recognition": "passes.scan_recognition.ScanRecognition",
    "transpose-folding": "passes.dots.transpose_folding.TransposeFolding",
    "dot-dimension-sorter": "passes.dots.dimension_sorter.DotDimensionSorter",
    "dot-dimension-merger": "passes.dots.dimension_merger.DotDimensionMerger",
    "dot-precision": "passes.dots.precision.DotPrecision",
    "dot-merger": "passes.dots.merger.DotMerger",
    "linear-algebra": "linear_algebra.LinearAlgebra",
    "linear-systems": "linear_algebra.systems.LinearSystems",
    "dot-strength-reduction": "passes.dots.strength_reduction.DotStrengthReduction",
    "splitk-rewriter": "passes.dots.split_k_rewriter.SplitKRewriter",
    "dot-decomposer": "passes.dots.decomposer.DotDecomposer",
    "constant-folding": "passes.constant_folding.ConstantFolding",
    "while-constant-sinking": "passes.loops.constant_sinking.WhileConstantSinking",
    "while-loop-simplifier": "passes.loops.simplifier.WhileLoopSimplifier",
    "while-invariant-motion": "passes.loops.invariant_motion.WhileInvariantMotion",
    "while-chain-folding": "linear_algebra.chain_folding.WhileChainFolding",
    "while-output-sinking": "linear_algebra.output_sinking.WhileOutputSinking",
    "while-product-hoisting": "linear_algebra.product_hoisting.WhileProductHoisting",
    "while-product-sinking": "linear_algebra.product_sinking.WhileProductSinking",
    "while-reduce-sinking": "passes.loops.reduce_sinking.WhileReduceSinking",
    "while-unroll": "passes.loops.unroll.WhileUnroll",
    "trip-count": "passes.loops.trip_count.TripCount",
    "cse": "passes.cse.CommonSubexpressionElimination",
    "dce": "passes.dce.DeadCodeElimination",
    "reduction-degenerate-dim-remover": "passes.reduction_degenerate_dim_remover.ReductionDegenerateDimRemover",
    "reduction-dimension-grouper": "passes.reductions.dimension_grouper.ReductionDimensionGrouper",
    "reduction-splitter": "passes.reductions.splitter.ReductionSplitter",
    "tree-reduction-rewriter": "passes.reductions.tree_rewriter.TreeReductionRewriter",
    "variadic-op-splitter": "passes.variadic_op_splitter.VariadicOpSplitter",
    "sort-iota-fusion": "fusion.sort_iota_fusion.SortIotaFusion",
    "gemm-fusion": "fusion.gemm_fusion.GemmFusion",
    "triton-softmax-rewriter": "fusion.triton_softmax_rewriter.TritonSoftmaxRewriter",
    "attention-recognition": "kernels.attention_recognition.AttentionRecognition",
    "row-fusion": "kernels.row_fusion.RowFusion",
    "loop-along-fusion": "kernels.loop_along_fusion.LoopAlongFusion",
    "product-fusion": "kernels.product_fusion.ProductFusion",
    "loop-fusion": "fusion.loop_fusion.LoopFusion",
    "instruction-fusion": "fusion.instruction_fusion.InstructionFusion",
    "fusion-merger": "fusion.fusion_merger.FusionMerger",
    "priority-fusion": "fusion.priority_fusion.PriorityFusion",
    "multi-output-fusion": "fusion.multi_output_fusion.MultiOutputFusion",
    "horizontal-loop-fusion": "fusion.horizontal_loop_fusion.HorizontalLoopFusion",
    "horizontal-input-fusion": "fusion.horizontal_input_fusion.HorizontalInputFusion",
    "rename-fusions": "fusion.rename_fusions.RenameFusions",
    "copy-fusion": "fusion.copy_fusion.CopyFusion",
    "fusion-wrapper": "fusion.fusion_wrapper.FusionWrapper",
    "defuse": "passes.defuse.Defuse",
    "bf16-propagation": "passes.bf16_propagation.Bf16Propagation",
    "layout-assignment": "passes.layout_assignment.LayoutAssignment",
    "layout-normalization": "passes.layout_normalization.LayoutNormalization",
    "sole-participant": "passes.sole_participant.SoleParticipant",
    "views-to-bitcasts": "passes.views_to_bitcasts.ViewsToBitcasts",
    "schedule": "passes.schedule.Schedule",
    "rematerialize": "passes.rematerialize.Rematerialize",
    "copy-insertion": "passes.copy_insertion.CopyInsertion",
    "drop-kernels": "kernels.drop_kernels.DropKernels",
    "native-loop-fusion": "backends.native.loop_fusion.NativeLoopFusion",
    "native-row-fusion": "backends.native.row_fusion.NativeRowFusion",
    "native-splitter": "backends.native.splitter.NativeSplitter",
    "nested-reduction-splitter": "kernels.nested_reduction_splitter.NestedReductionSplitter",
    "kernel-selection": "kernels.selection.selection.KernelSelection",
}
# Needs a file to do anything: --lock puts it into pipelines.
_ON_DEMAND: Final[Mapping[str, str]] = {"locked-fusion": "fusion.locked_fusion.LockedFusion"}


PASSES: Final[Mapping[str, type[Pass]]] = attributes("hloopt", _OWN)
_TOOLS: Final[Mapping[str, type[Pass]]] = attributes("hloopt", _ON_DEMAND)

# What O1 and O2 repeat: calls and state first, since they bring the rest together; what makes work for others
# before them.  Selects for branches, which compute both, and all that trades one cost for another, are O3's.
_QUICK = (
    "fix(call-inliner,tuple-simplifier,while-constant-sinking,while-loop-simplifier,simplify,"
    "constant-folding,cse,dce)"
)
# Equal instructions are merged first: a rule for what is used once must not find two of it.
SIMPLIFICATION: Final = (
    "call-inliner,cse,fix(call-inliner,map-inliner,tuple-simplifier,conditional-simplifier{ops=0},"
    "while-constant-sinking,"
    "while-loop-simplifier,while-invariant-motion,zero-sized,simplify,transpose-folding,reshape-mover,"
    "convert-pairs,sort-simplifier,gather-to-slice,scatter-to-slice,constant-folding,cse,dce)"
)
# After the rest is simple: what it leaves is cheaper, not simpler; in loops it makes products that can leave.
_ALGEBRA = (
    "while-product-hoisting,while-output-sinking,while-product-sinking,linear-systems,linear-algebra,linear-systems,"
    "while-invariant-motion,fix(while-loop-simplifier,simplify,cse,dce),while-chain-folding"
)
# A dot with a vector, and a reduction in parts, join what is around them where a device runs them as code.
_SUMS = "dot-strength-reduction,reduction-splitter"
# Fusion as XLA has it today: producers into all their users by cost, then these: kernels with several results,
# by XLA's names.  A body may hold what several producers brought along, the same constants above all: cse
# takes one of each.  In O3 loops that run as one kernel come before: XLA has none.
_JOINING = "cse,dce,multi-output-fusion{bounded_code=true},cse,dce,rename-fusions,tuple-simplifier"

# What makes a module ready for a device: every op has a kernel, every buffer an order.  Calls go first, since
# nothing is planned across them; then ops for which there is no kernel; then layouts, for kernels see row-major
# arrays only; then fusions that would compute reductions again and again are cut; then what moves no byte
# becomes a bitcast, so that buffers are known before the order of instructions is chosen by how many live
# at once.  Copies come last: which are needed follows from the order.
_ORDER = "views-to-bitcasts,dce,flatten-call-graph,schedule,copy-insertion"
# Sums and elementwise ops fuse, so that one kernel of a batch norm would be no faster; sort has kernels for
# top-k, dot for ragged products; what is converted stochastically is plain arithmetic.  One block factors
# matrices, and solves systems, of so many rows as it has room for (``Limits.linear_system_size``): larger ones
# are loops of small kernels.  A kernel computes each running sum from its first element on, n * n steps: up to
# 256 these take less time than the launches of a few small kernels.  Other reductions add floats up in an order
# of their own, too.
_DEVICE = (
    "call-inliner,sole-participant,batch-norm-expander,topk-expander,ragged-dot-expander,"
    "stochastic-convert-expander,cholesky-expander{above=1024},triangular-solve-expander{above=1024},"
    "reduce-window-rewriter{fast_math=true,above=256,narrow=false},layout-normalization,"
    f"nested-reduction-splitter,{_ORDER}"
)
_GPU = f"drop-kernels,{_DEVICE},kernel-selection"
# What else no loop computes has kernels of its own, such as linear systems and transforms, or the NumPy
# executor runs it: top-k of long rows, eigenvalues by LAPACK, ragged products by BLAS, running sums in one go.
_NATIVE = (
    "native-loop-fusion,drop-kernels{device=native},call-inliner,sole-participant,batch-norm-expander,"
    "stochastic-convert-expander,topk-expander{most=256},layout-normalization,native-row-fusion,native-splitter,"
    f"{_ORDER},kernel-selection{{device=native}}"
)

_TEXTS: Final[Mapping[str, str]] = {
    "O0": "",
    "O1": _QUICK,
    "O2": f"{SIMPLIFICATION},{_ALGEBRA},{_SUMS},priority-fusion{{bounded_code=true}},{_JOINING}",
    "O3": f"rng-expander,{SIMPLIFICATION},{_ALGEBRA},"
    "scatter-to-select,fix(conditional-simplifier,concat-removal,simplify,tuple-simplifier,constant-folding,cse,dce),"
    "while-reduce-sinking,fix(while-loop-simplifier,simplify,cse,dce),"
    f"loop-fusion,attention-recognition,{_SUMS}{{rows=true}},row-fusion,product-fusion,"
    f"priority-fusion{{bounded_code=true,short_reductions=true}},{_JOINING},loop-along-fusion,"
    "horizontal-input-fusion{cost_model=xla-2026},"
    "horizontal-loop-fusion{instructions=256,cost_model=xla-2026},tuple-simplifier,cse,dce,rename-fusions",
    "device": _DEVICE,
    "device-cpu": "",
    "device-native": _NATIVE,
    "device-gpu": _GPU,
    "device-emulator": _GPU,
}

ABOUT: Final[Mapping[str, str]] = {
    "O0": "nothing",
    "O1": "calls inlined, what is known folded, equal and unused instructions removed; nothing is fused",
    "O2": "O1 with every rewrite that costs nothing elsewhere, then fused by the rules and the cost model of"
    " XLA's GPU compiler; XLA's own order of passes is xla-gpu-2026",
    "O3": "O2 with rewrites that trade work for fewer kernels, and loops made one kernel each",
    "device": "what makes a module ready for a GPU, before kernels are chosen",
    "device-cpu": "what a run on the device cpu begins with: nothing",
    "device-native": "what a run on the device native begins with",
    "device-gpu": "what a run on the device gpu begins with",
    "device-emulator": "what a run on the emulator begins with: the same as on a GPU",
}
"""A sentence on each level, and on what each device runs before it compiles."""


class _Pipelines(Mapping[str, str]):
    """Texts by name: the optimisation levels, those of devices, and XLA's orders, loaded on demand."""

    def __getitem__(self, name: str) -> str:
        return _TEXTS[name] if name in _TEXTS else self._presets()[name]

    def __contains__(self, name: object) -> bool:
        # Every entry of a pipeline is looked for here first.
        return name in _TEXTS or (name not in PASSES and name in self._presets())

    def __iter__(self) -> Iterator[str]:
        return iter((*_TEXTS, *self._presets()))

    def __len__(self) -> int:
        return len(tuple(iter(self)))

    def _presets(self) -> Mapping[str, str]:
        from hloopt.presets import XLA_PRESETS, preset_text

        return {name: preset_text(rows) for name, rows in XLA_PRESETS.items()}


PIPELINES: Final[Mapping[str, str]] = _Pipelines()


Given: TypeAlias = "Pipeline | Pass | Fix | str | Path | Sequence[Given]"
"""What a pipeline can be made of: texts, TOML files (a ``Path``), pass objects, and lists of all these."""


def all_names() -> tuple[str, ...]:
    """The names of all passes that can be had: hloopt's own and those of installed packages."""
    return (*PASSES, *(name for name in installed_names() if name not in PASSES))


def find_pass(name: str, extra: Mapping[str, type[Pass]] | None = None) -> type[Pass] | None:
    """The pass of a name: hloopt's own, one of ``extra``, or one of an installed package.

    Raises ``UsageError`` when the installed package's cannot be loaded.
    """
    found = PASSES.get(name) or (extra or {}).get(name) or _TOOLS.get(name)
    return found if found is not None else installed(name)


def load_passes(path: str) -> Mapping[str, type[Pass]]:
    """The passes that a Python file defines, by name; runs the file.  Raises ``UsageError``."""
    return load_file(path, {*PASSES, *PIPELINES, "fix"})


def parse_pipeline(text: str, extra: Mapping[str, type[Pass]] | None = None) -> Pipeline:
    """A pipeline from text, named pipelines and passes of ``extra`` included; raises ``UsageError``."""
    return pipeline_of(parse(text), extra)


def read_pipeline(path: str | Path, extra: Mapping[str, type[Pass]] | None = None) -> Pipeline:
    """A pipeline from a TOML file (see ``rewrite/toml_form.py``), which says what is raised."""
    from hloopt.rewrite.toml_form import read_toml

    try:
        return pipeline_of(read_toml(str(path)), extra)
    except UsageError as error:
        start = "" if error.message.startswith(str(path)) else f"{path}: "
        raise UsageError(f"{start}{error.message}") from error


def make_pipeline(given: Given) -> Pipeline:
    """A pipeline of texts, files, pass objects and lists of them.  Raises ``UsageError``."""
    if isinstance(given, Pipeline):
        return given
    if isinstance(given, str):
        return parse_pipeline(given)
    if isinstance(given, Path):
        return read_pipeline(given)
    if isinstance(given, (Pass, Fix)):
        return Pipeline((given,))
    if isinstance(given, Sequence):
        return Pipeline(tuple(entry for part in given for entry in make_pipeline(part).entries))
    raise UsageError(f"a pipeline is made of texts and passes, not of {type(given).__name__}")


def pipeline_of(specs: tuple[Spec, ...], extra: Mapping[str, type[Pass]] | None = None) -> Pipeline:
    """A pipeline of what a text or a TOML file says, as ``parse_pipeline``.  Raises ``UsageError``."""

    def find(name: str) -> type[Pass] | None:
        return find_pass(name, extra)

    def names() -> tuple[str, ...]:
        return (*all_names(), *(extra or {}))

    return Pipeline(tuple(make_entries(specs, find, names, PIPELINES)))


def optimize_module(
    module: Module,
    pipeline: Given = "O2",
    target: str | None = None,
    *,
    fusion_rules: Sequence[FusionRule] = (),
    lock: str | Path | None = None,
) -> Module:
    """Run a pipeline over a copy of the module; ``target`` is for passes that ask for a device.

    ``fusion_rules`` and ``lock`` are for passes that fuse.  Raises ``UsageError`` for a target that is not
    known, whether a pass reads it or not, and for rules and a lock file that no pass reads.
    """
    made = make_pipeline(pipeline)
    if target is not None:
        made = for_target(made, target)
    advice = None
    if has_strategy(made) or fusion_rules or lock is not None:
        made, advice = _advised(made, fusion_rules, lock)
    copy = clone_module(module)
    made.run(copy, controls=Controls(advice=advice))
    return copy


def _advised(
    pipeline: Pipeline, fusion_rules: Sequence[FusionRule], lock: str | Path | None
) -> tuple[Pipeline, Advice | None]:
    """Fusion reads the user's rules, the lock file and what is installed."""
    from hloopt.fusion.advice import advised
    from hloopt.fusion.user_rules import rule_of

    rules = [rule_of(rule) for rule in fusion_rules]
    decisions = None
    if lock is not None:
        from hloopt.fusion.lock_file import read_decisions

        decisions = read_decisions(str(lock))
    if has_strategy(pipeline):
        return advised(pipeline, rules, decisions)
    if rules or decisions:
        raise UsageError("fusion_rules and lock: no pass of the pipeline fuses anything")
    return pipeline, None


def for_target(pipeline: Pipeline, target: str) -> Pipeline:
    """The pipeline with every option ``target`` set.  Raises ``UsageError`` for a target that is not known."""
    from hloopt.targets import find_target

    find_target(target)
    if not any(hasattr(instance, "target") for instance in pipeline.passes()):
        return pipeline
    return Pipeline(with_options(pipeline.entries, "the pipeline", (("target", target),)))
