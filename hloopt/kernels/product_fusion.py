"""A matrix product as one kernel with what its operands are computed from and what follows it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from hloopt.analysis.backend_config import written_name
from hloopt.analysis.region import region_of
from hloopt.cost_models.matrix_units import MATRIX_UNITS, SPLIT_UNITS
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.cost_models.predictor import Predictor
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.priority.rules import is_native_fusible
from hloopt.fusion.priority_fusion import PriorityFusion
from hloopt.fusion.recorder import FusionRecorder
from hloopt.ir import Computation, Instruction, edit, walk
from hloopt.kernels import is_kernel
from hloopt.kernels.cluster_bodies import KernelCluster, apart_from, fuse_cluster, whole_of
from hloopt.kernels.cluster_fusion import ClusterFusion
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.product_clusters import ProductCluster, product_clusters
from hloopt.kernels.registry import find_kernel, kernels

__all__ = ["ProductFusion"]

_NAME: Final = "product_fusion"
_MOST_BESIDE: Final = 4  # dots of one left side that are looked at beside each
_MOST_BEFORE: Final = 32
"""Instructions before a cluster that are planned with it."""


@dataclass(frozen=True, eq=False)
class _Planned:
    """What is planned together, in topological order; see ``KernelCluster``."""

    members: tuple[Instruction, ...]
    results: tuple[Instruction, ...]
    last: Instruction
    absorbed: tuple[Instruction, ...] = ()


@dataclass(frozen=True)
class ProductFusion(ClusterFusion):
    """Make one kernel of a dot that matrix units multiply and of what is around it.

        p = dot(x, w); y = gelu(p + b) + r    =>    y = fusion(x, w, b, r), the kernel dot-mma

    A library's product ends where the product does: what follows reads it from memory and writes it again, and
    operands that are computed (weights of bytes with their scales, masks) are written for it.  Here they are
    part of one kernel where that takes less time than the library's product and the kernels around it; so are
    two products of one left side, as gated layers have them, with what reads both.  That is mostly where memory
    is what a product waits for, few rows times large weights, and on devices whose units reach their rate by
    such instructions.  What others read in its middle, or could compute of its end, is left to
    the strategies that follow.
    """

    what: ClassVar[str] = "products"
    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = bf16[64,128] parameter(0)
  q = s8[128,256] parameter(1)
  s = bf16[256] parameter(2)
  w = bf16[128,256] convert(q)
  sb = bf16[128,256] broadcast(s), dimensions={1}
  scaled = bf16[128,256] multiply(w, sb)
  ROOT y = bf16[64,256] dot(x, scaled), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""

    def _visitor(self, model: CostModel, recorder: FusionRecorder) -> Callable[[Computation], bool]:
        return _Rewriter(self, model, recorder).visit_all


class _Rewriter:
    def __init__(self, options: ProductFusion, model: CostModel, recorder: FusionRecorder) -> None:
        self.options = options
        self.model = model
        self.recorder = recorder
        self.predictor = Predictor(model)
        self.kernels: dict[ProductCluster, str] = {}

    def visit_all(self, computation: Computation) -> bool:
        """Fuse around the dots of a computation; whether there were any."""
        dots = [one for one in computation if one.opcode == "dot"]
        if not dots:
            return False
        places = {one: place for place, one in enumerate(walk.post_order(computation))}
        dots.sort(key=places.__getitem__)
        groups: defaultdict[Instruction, list[Instruction]] = defaultdict(list)
        for dot in dots:
            groups[dot.operands[0]].append(dot)
        beside = {
            dot: group[at + 1 : at + 1 + _MOST_BESIDE]
            for group in groups.values()
            for at, dot in enumerate(group)
        }
        made = [self.visit(dot, places, beside[dot]) for dot in dots]
        return any(made)

    def visit(
        self, dot: Instruction, places: dict[Instruction, int], beside: Sequence[Instruction]
    ) -> bool:
        """Decide about one dot, and fuse what gains most; whether that was done."""
        is_read = bool(dot.users) or dot.is_root
        if not is_read or dot.has_control_edges or dot.shape.is_dynamic:
            return False
        best: tuple[ProductCluster, Comparison] | None = None
        last: tuple[ProductCluster, Decision] | None = None
        for cluster in product_clusters(dot, places, beside):
            decision, comparison = self._decide(cluster, places)
            if not decision or comparison is None:
                last = last or (cluster, decision)
            elif best is None or comparison.gain_us > best[1].gain_us:
                best = cluster, comparison
        if best is None:
            if last is not None:
                self.recorder.refused(dot, last[0].last, last[1])
            return False
        if not (spent := self.recorder.allows()):
            self.recorder.refused(dot, best[0].last, spent)
            return False
        fusion = fuse_cluster(best[0], _NAME, self.kernels[best[0]], self.recorder, best[1])
        places[fusion] = places[best[0].last]
        for user in fusion.users:
            places.setdefault(user, places[fusion])
        return True

    def _decide(
        self, cluster: ProductCluster, places: Mapping[Instruction, int]
    ) -> tuple[Decision, Comparison | None]:
        """Whether the kernel takes the cluster, what the user wants, and which takes longer."""
        advised = self.recorder.advice.decide(cluster.dot, cluster.last)
        if not advised:
            return advised, None
        whole = whole_of(apart_from(cluster, _NAME), cluster, _NAME)
        site = Site(region_of(whole), self.model.target, Limits())
        fits = find_kernel(MATRIX_UNITS).fits(site)
        if not fits:
            return forbid("product-unfit", words=fits.reason), None
        first = next((one.name for one in kernels() if one.fits(site) and one.wanted(site)), "")
        if first not in (MATRIX_UNITS, SPLIT_UNITS):
            return forbid("product-unfit", words=f"{first or 'no kernel'} is wanted"), None
        self.kernels[cluster] = first
        edit.set_attribute(whole, "backend_config", written_name(whole, first))
        fused = self._ns(whole)
        wanted = advised.wanted or self.options.always
        most = sum(self._ns(one) for one in (*cluster.absorbed, *cluster.members) if is_kernel(one))
        # One kernel for each op takes longer than what fusion makes of them.
        unfused = self._unfused(cluster, places) if wanted or fused < most else most
        comparison = Comparison(unfused / 1000, fused / 1000)
        if not wanted and comparison.gain_us <= 0:
            return forbid("product-slower", comparison=comparison), comparison
        return advised, comparison

    def _ns(self, kernel: Instruction) -> float:
        """Nanoseconds of a kernel with its launch."""
        return self.predictor.predict(kernel).seconds * 1e9

    def _unfused(self, cluster: ProductCluster, places: Mapping[Instruction, int]) -> float:
        """Nanoseconds of what becomes of the cluster otherwise.

        Kernels before it, which run in any case, may take parts of it in for nothing.
        """
        inside = (*cluster.absorbed, *cluster.members)
        before = _before(inside, places)
        if not before:
            return self._plan(cluster)
        read = tuple(one for one in before if any(user in inside for user in one.users))
        both = tuple(sorted({*before, *inside}, key=places.__getitem__))
        whole = self._plan(_Planned(both, cluster.results, cluster.last))
        return whole - self._plan(_Planned(before, read, before[-1]))

    def _plan(self, cluster: KernelCluster) -> float:
        """Nanoseconds of the kernels that fusion makes of a cluster."""
        apart = apart_from(cluster, _NAME)
        PriorityFusion(cost_model=self.model.name).fuse(apart, device=self.model.target)
        return sum(self._ns(one) for one in apart.entry if is_kernel(one))


def _before(
    inside: Sequence[Instruction], places: Mapping[Instruction, int]
) -> tuple[Instruction, ...]:
    """What loops compute of what a cluster reads, and nothing else reads; none where that is much."""
    found: dict[Instruction, None] = {}
    pending = [operand for one in inside for operand in one.operands]
    known = {*inside}
    while pending:
        one = pending.pop()
        if one in known or one not in places or not is_native_fusible(one):
            continue
        if one.is_root or one.has_control_edges or not all(user in known for user in one.users):
            continue
        known.add(one)
        found[one] = None
        pending += one.operands
        if len(found) > _MOST_BEFORE:
            return ()
    return tuple(sorted(found, key=places.__getitem__))
