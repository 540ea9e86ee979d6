"""How long collectives take: estimates by a table of links (``links.toml``), as NCCL chooses its rings.

A ring of n devices passes a part of n in each step, and all parts in ``steps`` steps

    time = call + steps * latency of the link + share of the data that each sends / (bandwidth * share of data)

with ``2 (n - 1)`` steps of an all-reduce and ``n - 1`` of an all-gather, reduce-scatter or all-to-all, in the
protocol that takes least.  Between nodes the slowest link counts: each device of a node has an adapter of its
own.  A permutation is one step.  What waits for other devices, and for other collectives, is not in it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from hloopt.cost_models.model import RunTime
from hloopt.dataclass import dataclass
from hloopt.interpret.groups import DeviceGroup, groups_of, links, listed_groups
from hloopt.interpret.shards import meshes_of
from hloopt.ir import Instruction
from hloopt.ops.traits import COLLECTIVE, DONES, STARTS
from hloopt.targets import Target
from hloopt.types import AxisRef, MeshGroups, TupleShape

__all__ = [
    "LINKS",
    "CollectiveForm",
    "collective_form",
    "collective_opcode",
    "collective_run_time",
    "result_bytes",
]

LINKS: Final = "links"
"""The name of this model in reports."""

_REDUCING: Final = frozenset({"all-reduce", "reduce-scatter"})
_PAIRS: Final = frozenset({"collective-permute", "collective-broadcast"})
_RINGS: Final = COLLECTIVE - STARTS - DONES - _PAIRS


@dataclass(frozen=True, slots=True)
class CollectiveForm:
    """Who takes part in a collective, and over which link.

    group      one of its groups, by numbers of devices, the largest
    nodes      that a group spans
    axes       names of the axes of the module's mesh along which the groups go; empty where no mesh says
    link       ``18 NVLinks``, ``PCIe`` or ``network``
    bandwidth  bytes a second that one device sends over it
    """

    group: DeviceGroup
    axes: tuple[str, ...]
    nodes: int
    link: str
    bandwidth: float

    def __str__(self) -> str:
        """``8 devices along 'x' by 18 NVLinks``."""
        along = f" along {' and '.join(map(repr, self.axes))}" if self.axes else ""
        place = f" of {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{len(self.group)} devices{along}{place} by {self.link}"


@cache
def _tables() -> Mapping[str, Mapping[str, Any]]:
    path = Path(__file__).with_suffix("").with_name("links.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def collective_form(collective: Instruction, target: Target) -> CollectiveForm | None:
    """None for other ops, on devices whose links are not in the table, and for groups of one device."""
    generation = "" if target.capability is None else str(target.capability[0])
    tables = _tables()
    collective = _collective(collective)
    if generation not in tables["network"] or collective_opcode(collective) not in _RINGS | _PAIRS:
        return None
    groups = _groups(collective)
    group = max(groups, key=len, default=())
    if len(group) < 2:
        return None
    node = tables["network"]["devices_per_node"]
    nodes = len({device // node for device in group})
    count = target.interconnect_links or 0
    inside = tables["nvlink"][generation] * count * 1e9 if count else target.pcie_bandwidth or 0.0
    link = f"{count} NVLinks" if count else "PCIe"
    if nodes > 1:
        each = max(1, len(group) // nodes)
        inside = min(inside or float("inf"), tables["network"][generation] * each * 1e9)
        link = "network"
    return CollectiveForm(group, _axes(collective, groups), nodes, link, inside) if inside else None


def _collective(instruction: Instruction) -> Instruction:
    """What an ``async-start`` runs; every other instruction itself."""
    return instruction.calls.root if instruction.opcode == "async-start" else instruction


def collective_opcode(collective: Instruction) -> str:
    """``all-gather`` of ``all-gather-start``, and of an ``async-start`` that runs one."""
    opcode = _collective(collective).opcode
    return opcode.removesuffix("-start") if opcode in STARTS else opcode


def result_bytes(collective: Instruction) -> int:
    """The bytes of the result; starts that return their operands, too, have it second."""
    shape = collective.shape
    if collective.opcode in STARTS - {"all-reduce-start"} and isinstance(shape, TupleShape):
        shape = shape.elements[1]
    return shape.byte_size


def _groups(collective: Instruction) -> tuple[DeviceGroup, ...]:
    module = collective.module
    counts = (
        max(1, int(module.attributes.get(name) or 1))
        for name in ("replica_count", "num_partitions")
    )
    replicas, partitions = counts
    try:
        if collective_opcode(collective) == "collective-permute":
            pairs = collective.attributes.get("source_target_pairs") or ()
            first = next((one for pair in pairs for one in pair), 0)
            at = first if partitions > 1 else first * partitions
            return (links(collective, pairs, at, replicas, partitions)[0],)
        return groups_of(collective, replicas, partitions)
    except ValueError:
        return ()


def _axes(collective: Instruction, groups: tuple[DeviceGroup, ...]) -> tuple[str, ...]:
    """The fewest axes of a mesh of the module along which these groups go."""
    wanted = {frozenset(group) for group in groups}
    for mesh in meshes_of(collective.module).values():
        names = [name for name, size in mesh.axes if size > 1]
        for count in range(1, len(names) + 1):
            for chosen in combinations(names, count):
                along = MeshGroups(mesh, tuple(map(AxisRef, chosen)))
                if {frozenset(group) for group in listed_groups(along)} == wanted:
                    return chosen
    return ()


def collective_run_time(collective: Instruction, target: Target) -> RunTime | None:
    """Without the launch, which NCCL's own call contains; None as ``collective_form``.

    What a start begins is priced where it starts, as if the done came next.
    """
    form = collective_form(collective, target)
    if form is None:
        return None
    collective = _collective(collective)
    opcode = collective_opcode(collective)
    read = sum(operand.shape.byte_size for operand in collective.operands)
    written = result_bytes(collective)
    count = len(form.group)
    steps, sent = 1, float(max(read, written))
    if opcode in _RINGS:
        rounds = 2 if opcode == "all-reduce" else 1
        steps = rounds * (count - 1)
        sent *= steps / count
    between = steps // (count - 1) * (form.nodes - 1) if opcode in _RINGS else form.nodes > 1
    spent = min(
        _ring_ns(ring, form, steps, int(between), sent, opcode in _REDUCING)
        for ring in _tables()["ring"].values()
    )
    rate = target.memory_bandwidth * 1e-9
    reading, writing = read / rate, written / rate
    return RunTime(
        0, read, written, reading, writing, 0.0, max(spent, reading + writing), link_ns=spent
    )


def _ring_ns(
    ring: Mapping[str, float],
    form: CollectiveForm,
    steps: int,
    between: int,
    sent: float,
    reduces: bool,
) -> float:
    """Nanoseconds in one protocol."""
    inside = ring["pcie" if form.link == "PCIe" else "nvlink"]
    if form.nodes > 1:
        inside *= ring["other_node"]
    waiting = ring["call"] + (steps - between) * inside + between * ring["network"]
    share = ring["share_reducing" if reduces else "share"]
    return waiting * 1e3 + sent / (form.bandwidth * share) * 1e9
