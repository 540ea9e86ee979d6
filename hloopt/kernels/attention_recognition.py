"""Attention, and its gradients, as kernels that write no scores, from plain products and reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import ClassVar, Final

from hloopt.analysis.backend_config import written_name
from hloopt.analysis.region import region_of
from hloopt.cost_models.attention import ATTENTION
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import find_model
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.multi_output_fusion import MultiOutputFusion
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.recorder import FusionRecorder
from hloopt.ir import Computation, Instruction, edit
from hloopt.ir.canonical import fingerprint
from hloopt.kernels import is_kernel
from hloopt.kernels.attention_clusters import (
    AttentionCluster,
    attention_clusters,
    may_be_kernels,
)
from hloopt.kernels.attention_growth import AttentionGroup, UnfitGroup, attention_groups
from hloopt.kernels.cluster_bodies import apart_from, place_cluster, whole_of
from hloopt.kernels.cluster_fusion import ClusterFusion
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.kernels.row_fusion import RowFusion
from hloopt.targets import names

__all__ = ["AttentionRecognition"]

_NAME: Final = "attention"


@dataclass(frozen=True)
class AttentionRecognition(ClusterFusion):
    """Make one kernel of products, what is computed from them place by place, and products with that.

        s = q . k;  e = exp(s - max s);  o = (e / sum e) . v    =>    o = fusion(q, k, v), the kernel attention

    The scores are never written: the kernel has a tile of them at a time, and scales what it found when it
    meets a greater one.  Whatever is computed element by element between the products belongs to it: scales,
    masks, biases, caps, casts, dropout; and so does what becomes of the result.  Of a gradient the products
    with the same scores become two more kernels, which compute the scores again, from greatest scores and sums
    that the first one writes.  All kernels of a group are compared with what row-fusion, priority-fusion and
    multi-output-fusion make of it.

    target      the device; one without blocks and threads is left alone, and so is ``host``
    """

    what: ClassVar[str] = "products"
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
  q = bf16[2,32,16] parameter(0)
  k = bf16[2,32,16] parameter(1)
  v = bf16[2,32,16] parameter(2)
  s = f32[2,32,32] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={2}
  least = f32[] constant(-inf)
  m = f32[2,32] reduce(s, least), dimensions={2}, to_apply=max
  mb = f32[2,32,32] broadcast(m), dimensions={0,1}
  d = f32[2,32,32] subtract(s, mb)
  e = f32[2,32,32] exponential(d)
  zero = f32[] constant(0)
  l = f32[2,32] reduce(e, zero), dimensions={2}, to_apply=add
  lb = f32[2,32,32] broadcast(l), dimensions={0,1}
  p = f32[2,32,32] divide(e, lb)
  w = bf16[2,32,32] convert(p)
  ROOT o = bf16[2,32,16] dot(w, v), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}
}
"""

    def _visitor(self, model: CostModel, recorder: FusionRecorder) -> Callable[[Computation], bool]:
        return _Rewriter(self, model, recorder).visit_all


@dataclass(frozen=True)
class _Rewriter:
    options: AttentionRecognition
    model: CostModel
    recorder: FusionRecorder
    unfused: dict[str, float] = field(default_factory=dict)

    def visit_all(self, computation: Computation) -> bool:
        """Fuse the groups of a computation; whether there were any."""
        made = [self.visit(group) for group in attention_groups(computation)]
        return any(made)

    def visit(self, group: AttentionGroup | UnfitGroup) -> bool:
        """Decide about one group, and fuse it; whether it was."""
        if isinstance(group, UnfitGroup):
            if group.user.computation is not None and group.first.computation is not None:
                unfit = forbid("attention-unfit", words=group.words)
                self.recorder.refused(group.first, group.user, unfit)
            return False
        # Refusals stand between neighbours, where they are looked for.
        first, user = group.scores[0], next(iter(group.scores[0].users))
        if any(one.computation is None for one in (*group.members, *group.contexts)):
            return False  # a kernel made since computes them
        if not (spent := self.recorder.allows()):
            self.recorder.refused(first, user, spent)
            return False
        clusters = attention_clusters(group, first.home)
        if isinstance(clusters, str):
            self.recorder.refused(first, user, forbid("attention-unfit", words=clusters))
            return False
        decision, comparison = self._decide(clusters, first, user)
        if not decision:
            self.recorder.refused(first, user, decision)
            return False
        for cluster in clusters:
            fusion = place_cluster(cluster, _NAME, ATTENTION)
            self._record(cluster, fusion, comparison)
        members = {one for cluster in clusters for one in cluster.members}
        _remove_unused(members, first.home)
        return True

    def _decide(
        self, clusters: Sequence[AttentionCluster], first: Instruction, user: Instruction
    ) -> tuple[Decision, Comparison | None]:
        """Whether the kernels take their clusters, what the user wants, and which takes longer."""
        advised = self.recorder.advice.decide(first, user)
        if not advised:
            return advised, None
        if not may_be_kernels(clusters, first.home):
            words = "what one kernel reads is computed from its own results"
            return forbid("attention-unfit", words=words), None
        predictor, kernel = (
            Predictor(find_model(self.model.name)(self.model.target)),
            find_kernel(ATTENTION),
        )
        fused = 0.0
        for cluster in clusters:
            whole = _whole(cluster)
            fits = kernel.fits(Site(region_of(whole), self.model.target, Limits()))
            if not fits:
                return forbid("attention-unfit", words=fits.reason), None
            fused += predictor.predict(whole).seconds
        comparison = Comparison(self._unfused(clusters) * 1e6, fused * 1e6)
        if not (advised.wanted or self.options.always) and comparison.gain_us < 0:
            return forbid("attention-slower", comparison=comparison), comparison
        return advised, comparison

    def _unfused(self, clusters: Sequence[AttentionCluster]) -> float:
        """Seconds of what becomes of the clusters otherwise."""
        apart = apart_from(_together(clusters), _NAME)
        target = self.model.target
        key = fingerprint(apart)
        found = self.unfused.get(key)
        if found is None:
            name = self.model.name
            RowFusion(cost_model=name).fuse(apart, device=target)
            PriorityFusion(cost_model=name).fuse(apart, device=target)
            if target.name in names():
                MultiOutputFusion(cost_model=name, target=target.name).fuse(apart)
            predictor = Predictor(find_model(name)(target))
            found = sum(predictor.predict(one).seconds for one in apart.entry if is_kernel(one))
            self.unfused[key] = found
        return found

    def _record(
        self, cluster: AttentionCluster, fusion: Instruction, comparison: Comparison | None
    ) -> None:
        last, name, count = cluster.last, cluster.last.name, 1
        for one in reversed(cluster.members):
            if one is not last:
                self.recorder.fused(
                    one,
                    (name, last.opcode),
                    fusion,
                    duplicated=len(one.users) > 1,
                    multi_output=one in cluster.results,
                    comparison=comparison,
                    count=count,
                )
                name, count = fusion.name, 0


def _remove_unused(members: Iterable[Instruction], home: Computation) -> None:
    """Take out what nothing reads any more."""
    inside = set(members)
    for one in reversed(list(home)):
        if one in inside and not one.users and not one.is_root:
            edit.remove(one)


def _together(clusters: Sequence[AttentionCluster]) -> AttentionCluster:
    """What clusters of one computation compute, as one."""
    members = {one for cluster in clusters for one in cluster.members}
    order = (one for one in clusters[0].last.home if one in members)
    return AttentionCluster(
        tuple(order), tuple(one for cluster in clusters for one in cluster.results)
    )


def _whole(cluster: AttentionCluster) -> Instruction:
    """A fusion, in no module, of a cluster."""
    fusion = whole_of(apart_from(cluster, _NAME), cluster, _NAME)
    edit.set_attribute(fusion, "backend_config", written_name(fusion, ATTENTION))
    return fusion
