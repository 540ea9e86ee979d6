"""Softmax, norms and their gradients as one kernel each, from plain reductions and elementwise ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from hloopt.analysis.backend_config import written_name
from hloopt.analysis.region import region_of
from hloopt.cost_models.fused_along import own_ns
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.cost_models.registry import find_model
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.multi_output_fusion import MultiOutputFusion
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.recorder import FusionRecorder
from hloopt.ir import Computation, Instruction, edit
from hloopt.kernels import is_kernel
from hloopt.kernels.cluster_bodies import apart_from, fuse_cluster, whole_of
from hloopt.kernels.cluster_fusion import ClusterFusion
from hloopt.kernels.families.reductions import folds_alone
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.row_clusters import (
    RowCluster,
    row_clusters,
    row_forms,
    running_clusters,
)
from hloopt.targets import names

__all__ = ["RowFusion"]

_NAME: Final = "row_fusion"
_SHORT_GAIN: Final = 0.05
"""Of the time apart what has to be gained where each thread could fold rows by itself."""
_FEW: Final = 1024
"""Elements that are cheap to compute again in each kernel that reads them: one block has room for all."""


@dataclass(frozen=True)
class RowFusion(ClusterFusion):
    """Make one kernel of reductions of the same rows and of what is elementwise around them.

        m = max(x); e = exp(x - m); s = sum(e); y = e / s    =>    y = fusion(x), the kernel whole-row

    XLA ends a kernel at each reduction, or takes one diamond of a value and its reduction to Triton.  Here a
    cluster grows from the reductions over all that has an element a place of the row or a value a row: several
    reductions one after the other or beside each other, residuals, scales, casts, gradients.  What others read,
    too, becomes a further result of the kernel, or stays where it is, if computing it from what they read
    moves fewer bytes.  The ``topk`` of rows, as a router's, joins what it picks from and what goes on with the
    few values that it leaves.  A running sum along rows is a kernel, too, with what is elementwise around it: a
    loop would fold each element from the first one on.  Both are compared with what priority-fusion and
    multi-output-fusion make of the cluster.

    target      the device; one without blocks and threads is left alone, and so is ``host``, for which
                native-row-fusion joins rows
    """

    what: ClassVar[str] = "rows"
    example: ClassVar[str] = """HloModule example

max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

ENTRY main {
  x = f32[128,1024] parameter(0)
  least = f32[] constant(-inf)
  m = f32[128] reduce(x, least), dimensions={1}, to_apply=max
  mb = f32[128,1024] broadcast(m), dimensions={0}
  d = f32[128,1024] subtract(x, mb)
  e = f32[128,1024] exponential(d)
  zero = f32[] constant(0)
  s = f32[128] reduce(e, zero), dimensions={1}, to_apply=add
  sb = f32[128,1024] broadcast(s), dimensions={0}
  ROOT y = f32[128,1024] divide(e, sb)
}
"""

    def _visitor(self, model: CostModel, recorder: FusionRecorder) -> Callable[[Computation], bool]:
        return _Rewriter(self, model, recorder).visit_all


@dataclass(frozen=True)
class _Rewriter:
    options: RowFusion
    model: CostModel
    recorder: FusionRecorder

    def visit_all(self, computation: Computation) -> bool:
        """Fuse the clusters of a computation; whether there were any."""
        made = [
            self.visit(cluster.as_it_is())
            for form in row_forms(computation)
            for cluster in row_clusters(computation, form)
        ]
        made += [self.visit(one.as_it_is()) for one in running_clusters(computation)]
        return any(made)

    def visit(self, cluster: RowCluster) -> bool:
        """Decide about one cluster, and fuse it; whether it was."""
        if not cluster.heroes:
            return False
        first, last = cluster.heroes[0], cluster.last
        if not (spent := self.recorder.allows()):
            self.recorder.refused(first, last, spent)
            return False
        decision, comparison = self._decide(cluster)
        if not decision and cluster.columns and (rows := cluster.without_columns()).heroes:
            cluster = rows
            decision, comparison = self._decide(cluster)
        if not decision:
            self.recorder.refused(first, last, decision)
            return False
        fuse_cluster(cluster, _NAME, cluster.kernel, self.recorder, comparison)
        return True

    def _decide(self, cluster: RowCluster) -> tuple[Decision, Comparison | None]:
        """Whether the kernel takes the cluster, what the user wants, and which takes longer."""
        advised = self.recorder.advice.decide(cluster.heroes[0], cluster.last)
        if not advised:
            return advised, None
        wanted = advised.wanted or self.options.always
        is_short = all(one.opcode == "reduce" and folds_alone(one) for one in cluster.heroes)
        few = is_short and cluster.rows * cluster.minor <= _FEW
        if few and not wanted and cluster.is_one_stage:
            return forbid("rows-short"), None
        apart = apart_from(cluster, _NAME)
        whole = whole_of(apart, cluster, _NAME)
        kernel = find_kernel(cluster.kernel)
        fits = kernel.fits(Site(region_of(whole), self.model.target, Limits()))
        if not fits:
            return forbid("rows-unfit", words=fits.reason), None
        launch = self.model.launch_ns
        fused = self._rows_time(whole, cluster.kernel) + launch
        comparison = Comparison(self._unfused(cluster) / 1000, fused / 1000)
        # What a loop computes as well can join more around it.
        least = _SHORT_GAIN * comparison.unfused_us if is_short else 0.0
        if not wanted and comparison.gain_us < least:
            return forbid("rows-slower", comparison=comparison), comparison
        return advised, comparison

    def _rows_time(self, whole: Instruction, kernel: str) -> float:
        """Nanoseconds of the kernel."""
        edit.set_attribute(whole, "backend_config", written_name(whole, kernel))
        return find_model(self.model.name)(self.model.target).run_time(whole).exec_ns

    def _unfused(self, cluster: RowCluster) -> float:
        """Nanoseconds of what becomes of the cluster otherwise."""
        apart, target = apart_from(cluster, _NAME), self.model.target
        PriorityFusion(cost_model=self.model.name).fuse(apart, device=target)
        if target.name in names():
            MultiOutputFusion(cost_model=self.model.name, target=target.name).fuse(apart)
        model = find_model(self.model.name)(target)
        kernels = [one for one in apart.entry if is_kernel(one)]
        return sum(own_ns(model, one) + model.launch_ns for one in kernels)
