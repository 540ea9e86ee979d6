"""What becomes of a cluster: a body of its own, a module to try it in, and a fusion in its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hloopt.analysis.backend_config import written_name
from hloopt.cost_models.model import Comparison
from hloopt.fusion.merge import new_parameter
from hloopt.fusion.recorder import FusionRecorder
from hloopt.ir import Computation, Instruction, Module, build, edit, walk

__all__ = [
    "KernelCluster",
    "apart_from",
    "body_of",
    "fuse_cluster",
    "operands_of",
    "place_cluster",
    "whole_of",
]


class KernelCluster(Protocol):
    """What one kernel computes.

    absorbed  what only the members read and any place can compute, and constants; in topological order
    members   in topological order
    results   members that others read, and that the kernel writes
    """

    @property
    def absorbed(self) -> tuple[Instruction, ...]: ...

    @property
    def members(self) -> tuple[Instruction, ...]: ...

    @property
    def results(self) -> tuple[Instruction, ...]: ...

    @property
    def last(self) -> Instruction:
        """The member that comes last."""
        ...


def fuse_cluster(
    cluster: KernelCluster,
    name: str,
    kernel: str,
    recorder: FusionRecorder,
    comparison: Comparison | None,
) -> Instruction:
    """Put a fusion in the place of a cluster, and take out what nothing reads any more; the fusion."""
    fusion = place_cluster(cluster, name, kernel)
    _record(cluster, fusion, recorder, comparison)
    for one in (*reversed(cluster.members), *reversed(cluster.absorbed)):
        if not one.users and not one.is_root:
            edit.remove(one)
    return fusion


def place_cluster(cluster: KernelCluster, name: str, kernel: str) -> Instruction:
    """Let a fusion, which names the kernel that computes it, make the results of a cluster; the fusion.

    The order of the computation is to be restored when all are made.
    """
    last = cluster.last
    module = last.home.module
    assert module is not None, "of a module"
    body = edit.add_computation(module, body_of(cluster, name))
    attributes = {"kind": "kCustom", "calls": body}
    operands = operands_of(cluster)
    fusion = Instruction(name, "fusion", body.root.shape, operands, attributes, last.metadata)
    fusion.offset = last.offset
    fusion = edit.insert_before(last, fusion)
    edit.set_attribute(fusion, "backend_config", written_name(fusion, kernel))
    _hand_over(cluster, fusion)
    return fusion


def _record(
    cluster: KernelCluster,
    fusion: Instruction,
    recorder: FusionRecorder,
    comparison: Comparison | None,
) -> None:
    last, name, count = cluster.last, cluster.last.name, 1
    for one in reversed((*cluster.absorbed, *cluster.members)):
        if one is not last:
            recorder.fused(
                one,
                (name, last.opcode),
                fusion,
                duplicated=one in cluster.absorbed and len(one.users) > 1,
                multi_output=one in cluster.results,
                comparison=comparison,
                count=count,
            )
            name, count = fusion.name, 0


def operands_of(cluster: KernelCluster) -> tuple[Instruction, ...]:
    """What the kernel reads, in the order of its parameters."""
    inside = {*cluster.absorbed, *cluster.members}
    read = (part for one in (*cluster.absorbed, *cluster.members) for part in one.operands)
    return tuple(dict.fromkeys(part for part in read if part not in inside))


def body_of(
    cluster: KernelCluster,
    name: str,
    region: Callable[[Computation], Computation] = lambda called: called,
) -> Computation:
    """A computation of a cluster in no module yet, which calls ``region`` of what the cluster calls."""
    body = Computation(f"{name}_computation")
    copies = {
        operand: edit.append(body, new_parameter(number, operand))
        for number, operand in enumerate(operands_of(cluster))
    }
    for one in (*cluster.absorbed, *cluster.members):
        attributes = {
            key: region(value) if isinstance(value, Computation) else value
            for key, value in one.attributes.items()
        }
        parts = tuple(copies[part] for part in one.operands)
        copy = Instruction(
            one.name, one.opcode, one.shape, parts, attributes, one.metadata, one.offset
        )
        copies[one] = edit.append(body, copy)
    results = tuple(copies[one] for one in cluster.results)
    body.root = results[0] if len(results) == 1 else build.make(body, "tuple", results)
    return body


def apart_from(cluster: KernelCluster, name: str) -> Module:
    """A module that computes the cluster of parameters."""
    apart = Module(name, cluster.last.home.module.source if cluster.last.home.module else None)
    regions = {
        called: edit.add_computation(apart, build.clone_computation(called))
        for one in cluster.members
        for called in walk.called_computations(one)
    }
    apart.entry = edit.add_computation(apart, body_of(cluster, name, regions.__getitem__))
    return apart


def whole_of(apart: Module, cluster: KernelCluster, name: str) -> Instruction:
    """A fusion, in no module, of all that a module computes."""
    body = apart.entry
    attributes = {"kind": "kCustom", "calls": body}
    return Instruction(name, "fusion", body.root.shape, operands_of(cluster), attributes)


def _hand_over(cluster: KernelCluster, fusion: Instruction) -> None:
    """Let those who read the cluster's results read the fusion's."""
    for number, one in enumerate(cluster.results):
        new = fusion
        if len(cluster.results) > 1:
            new = build.element(cluster.last, fusion, number, one.metadata)
        edit.replace_uses(one, new)
