"""All passes by name, and the named pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from hloopt.errors import UsageError
from hloopt.fusion.copy_fusion import CopyFusion
from hloopt.fusion.fusion_merger import FusionMerger
from hloopt.fusion.fusion_wrapper import FusionWrapper
from hloopt.fusion.hand import advised, has_strategy
from hloopt.fusion.horizontal_input_fusion import HorizontalInputFusion
from hloopt.fusion.horizontal_loop_fusion import HorizontalLoopFusion
from hloopt.fusion.instruction_fusion import InstructionFusion
from hloopt.fusion.lock_file import read_decisions
from hloopt.fusion.locked_fusion import LockedFusion
from hloopt.fusion.loop_fusion import LoopFusion
from hloopt.fusion.multi_output_fusion import MultiOutputFusion
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.rename_fusions import RenameFusions
from hloopt.fusion.sort_iota_fusion import SortIotaFusion
from hloopt.fusion.triton_softmax_rewriter import TritonSoftmaxRewriter
from hloopt.fusion.user_rules import FusionRule, rule_of
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.kernels.lowering import DEVICE
from hloopt.kernels.nested_reduction_splitter import NestedReductionSplitter
from hloopt.kernels.selection import KernelSelection
from hloopt.passes.bf16_propagation import Bf16Propagation
from hloopt.passes.broadcast_sinking import BroadcastSinking
from hloopt.passes.call_inliner import CallInliner
from hloopt.passes.concat_removal import ConcatRemoval
from hloopt.passes.conditional_simplifier import ConditionalSimplifier
from hloopt.passes.constant_folding import ConstantFolding
from hloopt.passes.convert_pairs import ConvertPairs
from hloopt.passes.copy_insertion import CopyInsertion
from hloopt.passes.cse import CommonSubexpressionElimination
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.defuse import Defuse
from hloopt.passes.dots.decomposer import DotDecomposer
from hloopt.passes.dots.dimension_sorter import DotDimensionSorter
from hloopt.passes.dots.merger import DotMerger
from hloopt.passes.dots.strength_reduction import DotStrengthReduction
from hloopt.passes.dots.transpose_folding import TransposeFolding
from hloopt.passes.expand.batch_norm_expander import BatchNormExpander
from hloopt.passes.expand.bitcast_dtypes_expander import BitcastDtypesExpander
from hloopt.passes.expand.cholesky_expander import CholeskyExpander
from hloopt.passes.expand.comparison_expander import ComparisonExpander
from hloopt.passes.expand.dynamic_index_splitter import DynamicIndexSplitter
from hloopt.passes.expand.logistic_expander import LogisticExpander
from hloopt.passes.expand.ragged_dot_expander import RaggedDotExpander
from hloopt.passes.expand.reduce_window_rewriter import ReduceWindowRewriter
from hloopt.passes.expand.rng_expander import RngExpander
from hloopt.passes.expand.select_and_scatter_expander import SelectAndScatterExpander
from hloopt.passes.expand.stochastic_convert_expander import StochasticConvertExpander
from hloopt.passes.expand.topk_expander import TopkExpander
from hloopt.passes.expand.triangular_solve_expander import TriangularSolveExpander
from hloopt.passes.flatten_call_graph import FlattenCallGraph
from hloopt.passes.indexing.gather_simplifier import GatherSimplifier
from hloopt.passes.indexing.gather_to_slice import GatherToSlice
from hloopt.passes.indexing.scatter_simplifier import ScatterSimplifier
from hloopt.passes.indexing.scatter_to_slice import ScatterToSlice
from hloopt.passes.layout_normalization import LayoutNormalization
from hloopt.passes.loops.constant_sinking import WhileConstantSinking
from hloopt.passes.loops.invariant_motion import WhileInvariantMotion
from hloopt.passes.loops.reduce_sinking import WhileReduceSinking
from hloopt.passes.loops.simplifier import WhileLoopSimplifier
from hloopt.passes.loops.trip_count import TripCount
from hloopt.passes.loops.unroll import WhileUnroll
from hloopt.passes.map_inliner import MapInliner
from hloopt.passes.reduction_degenerate_dim_remover import ReductionDegenerateDimRemover
from hloopt.passes.rematerialize import Rematerialize
from hloopt.passes.reshape_mover import ReshapeMover
from hloopt.passes.scan_recognition import ScanRecognition
from hloopt.passes.schedule import Schedule
from hloopt.passes.simplify import Simplify
from hloopt.passes.sole_participant import SoleParticipant
from hloopt.passes.sorting.permutation_sort import PermutationSort
from hloopt.passes.sorting.sort_simplifier import SortSimplifier
from hloopt.passes.tuple_simplifier import TupleSimplifier
from hloopt.passes.variadic_op_splitter import VariadicOpSplitter
from hloopt.passes.views_to_bitcasts import ViewsToBitcasts
from hloopt.passes.zero_sized import ZeroSized
from hloopt.presets import XLA_PRESETS, preset_text
from hloopt.rewrite import Controls, Fix, Pass, Pipeline
from hloopt.rewrite.entries import make_entries, with_options
from hloopt.rewrite.plugins import installed, installed_names, load_file
from hloopt.rewrite.spec import Spec, parse
from hloopt.rewrite.toml_form import read_toml
from hloopt.targets import find_target

__all__ = [
    "PASSES",
    "PIPELINES",
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

_ALL: tuple[type[Pass], ...] = (
    CallInliner,
    FlattenCallGraph,
    MapInliner,
    ReduceWindowRewriter,
    RngExpander,
    SelectAndScatterExpander,
    BatchNormExpander,
    BitcastDtypesExpander,
    CholeskyExpander,
    ComparisonExpander,
    DynamicIndexSplitter,
    LogisticExpander,
    RaggedDotExpander,
    StochasticConvertExpander,
    TopkExpander,
    TriangularSolveExpander,
    TupleSimplifier,
    ZeroSized,
    Simplify,
    BroadcastSinking,
    ReshapeMover,
    ConvertPairs,
    GatherToSlice,
    ScatterToSlice,
    GatherSimplifier,
    ScatterSimplifier,
    SortSimplifier,
    PermutationSort,
    ConcatRemoval,
    ConditionalSimplifier,
    ScanRecognition,
    TransposeFolding,
    DotDimensionSorter,
    DotMerger,
    DotStrengthReduction,
    DotDecomposer,
    ConstantFolding,
    WhileConstantSinking,
    WhileLoopSimplifier,
    WhileInvariantMotion,
    WhileReduceSinking,
    WhileUnroll,
    TripCount,
    CommonSubexpressionElimination,
    DeadCodeElimination,
    ReductionDegenerateDimRemover,
    VariadicOpSplitter,
    SortIotaFusion,
    TritonSoftmaxRewriter,
    LoopFusion,
    InstructionFusion,
    FusionMerger,
    PriorityFusion,
    MultiOutputFusion,
    HorizontalLoopFusion,
    HorizontalInputFusion,
    RenameFusions,
    CopyFusion,
    FusionWrapper,
    Defuse,
    Bf16Propagation,
    LayoutNormalization,
    SoleParticipant,
    ViewsToBitcasts,
    Schedule,
    Rematerialize,
    CopyInsertion,
    NestedReductionSplitter,
    KernelSelection,
)

PASSES: Final[Mapping[str, type[Pass]]] = {entry.name: entry for entry in _ALL}

# Needs a file to do anything: --lock puts it into pipelines.
_ON_DEMAND: Final[Mapping[str, type[Pass]]] = {LockedFusion.name: LockedFusion}

# What O1 and O2 repeat: calls and state first, since they bring the rest together; what makes work for others
# before them.  Selects for branches, which compute both, and all that trades one cost for another, are O3's.
_QUICK = (
    "fix(call-inliner,tuple-simplifier,while-constant-sinking,while-loop-simplifier,simplify,"
    "constant-folding,cse,dce)"
)
_SIMPLIFICATION = (
    "fix(call-inliner,map-inliner,tuple-simplifier,conditional-simplifier{ops=0},while-constant-sinking,"
    "while-loop-simplifier,while-invariant-motion,zero-sized,simplify,transpose-folding,reshape-mover,"
    "convert-pairs,sort-simplifier,gather-to-slice,scatter-to-slice,constant-folding,cse,dce)"
)
# Fusion as XLA has it today: producers into all their users by cost, then kernels with several results, by
# XLA's names.  A body may hold what several producers brought along, the same constants above all: cse
# takes one of each.  In O3 loops that run as one kernel come before: XLA has none.
_FUSION = "priority-fusion,cse,dce,multi-output-fusion,cse,dce,rename-fusions,tuple-simplifier"

PIPELINES: Final[Mapping[str, str]] = {
    "O0": "",
    "O1": _QUICK,
    "O2": f"{_SIMPLIFICATION},{_FUSION}",
    "O3": f"rng-expander,{_SIMPLIFICATION},"
    "fix(conditional-simplifier,concat-removal,simplify,tuple-simplifier,constant-folding,cse,dce),"
    "while-reduce-sinking,fix(while-loop-simplifier,simplify,cse,dce),"
    f"loop-fusion,{_FUSION}",
    "device": str(DEVICE),
    **{name: preset_text(rows) for name, rows in XLA_PRESETS.items()},
}


Given: TypeAlias = "Pipeline | Pass | Fix | str | Path | Sequence[Given]"
"""What a pipeline can be made of: texts, TOML files (a ``Path``), pass objects, and lists of all these."""


def all_names() -> tuple[str, ...]:
    """The names of all passes that can be had: hloopt's own and those of installed packages."""
    return (*PASSES, *(name for name in installed_names() if name not in PASSES))


def find_pass(name: str, extra: Mapping[str, type[Pass]] | None = None) -> type[Pass] | None:
    """The pass of a name: hloopt's own, one of ``extra``, or one of an installed package.

    Raises ``UsageError`` when the installed package's cannot be loaded.
    """
    found = PASSES.get(name) or (extra or {}).get(name) or _ON_DEMAND.get(name)
    return found if found is not None else installed(name)


def load_passes(path: str) -> Mapping[str, type[Pass]]:
    """The passes that a Python file defines, by name; runs the file.  Raises ``UsageError``."""
    return load_file(path, {*PASSES, *PIPELINES, "fix"})


def parse_pipeline(text: str, extra: Mapping[str, type[Pass]] | None = None) -> Pipeline:
    """A pipeline from text, named pipelines and passes of ``extra`` included; raises ``UsageError``."""
    return pipeline_of(parse(text), extra)


def read_pipeline(path: str | Path, extra: Mapping[str, type[Pass]] | None = None) -> Pipeline:
    """A pipeline from a TOML file (see ``rewrite/toml_form.py``).  Raises ``UsageError``."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from error
    try:
        return pipeline_of(read_toml(content, str(path)), extra)
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
    known, whether a pass asks for one or not, and for rules and a lock file that no pass asks for.
    """
    made = make_pipeline(pipeline)
    if target is not None:
        made = for_target(made, target)
    rules = [rule_of(rule) for rule in fusion_rules]
    decisions = read_decisions(str(lock)) if lock is not None else None
    advice = None
    if has_strategy(made):
        made, advice = advised(made, rules, decisions)
    elif rules or decisions:
        raise UsageError("fusion_rules and lock: no pass of the pipeline fuses anything")
    copy = clone_module(module)
    made.run(copy, controls=Controls(advice=advice))
    return copy


def for_target(pipeline: Pipeline, target: str) -> Pipeline:
    """The pipeline with every option ``target`` set.  Raises ``UsageError`` for a target that is not known."""
    find_target(target)
    if not any(hasattr(instance, "target") for instance in pipeline.passes()):
        return pipeline
    return Pipeline(with_options(pipeline.entries, "the pipeline", (("target", target),)))
