"""Small tables computed by the one kernel that reads them: angles of rotary embeddings, schedules of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import ClassVar, Final

from hloopt.analysis.along import loop_along_of
from hloopt.analysis.backend_config import custom_name, written_name
from hloopt.analysis.elementwise import is_elementwise, tells_apart
from hloopt.analysis.region import region_of
from hloopt.cost_models.fused_along import LOOP_ALONG, own_ns
from hloopt.cost_models.model import Comparison, CostModel
from hloopt.cost_models.registry import find_model
from hloopt.dataclass import dataclass
from hloopt.fusion import apply
from hloopt.fusion.decision import ALLOWED, Decision, forbid
from hloopt.fusion.history import root_opcode
from hloopt.fusion.recorder import FusionRecorder
from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.kernels.cluster_fusion import ClusterFusion
from hloopt.kernels.kernel import Site
from hloopt.kernels.limits import Limits
from hloopt.kernels.registry import find_kernel
from hloopt.types import leaves

__all__ = ["LoopAlongFusion"]

_MOST_TABLES: Final = 16
_MOST_READERS: Final = 16
_SMALLER: Final = 8
"""How many times larger than a table what reads it is at least."""
_LOOPS: Final = frozenset({"kLoop", "kInput"})


@dataclass(frozen=True)
class LoopAlongFusion(ClusterFusion):
    """Let elementwise kernels compute the small tables that only such read, once a thread.

        angles = fusion(); y = fusion(x, angles)    =>    y = fusion(x), the kernel loop-along

    A thread of that kernel goes along a dimension which the tables lack, such as the heads that are turned by
    the same angles.  It comes after the strategies, which compute a table wherever it is read, or leave it a
    kernel.  Halves that are concatenated share what they read.
    """

    what: ClassVar[str] = "tables"
    example: ClassVar[str] = """HloModule example

angles {
  places = f32[64,64] iota(), iota_dimension=0
  ROOT c = f32[64,64] cosine(places)
}

turned {
  x = f32[64,8,64] parameter(0)
  c = f32[64,64] parameter(1)
  cb = f32[64,8,64] broadcast(c), dimensions={0,2}
  ROOT y = f32[64,8,64] multiply(x, cb)
}

ENTRY main {
  x = f32[64,8,64] parameter(0)
  table = f32[64,64] fusion(), kind=kLoop, calls=angles
  ROOT y = f32[64,8,64] fusion(x, table), kind=kLoop, calls=turned
}
"""

    def _visitor(self, model: CostModel, recorder: FusionRecorder) -> Callable[[Computation], bool]:
        return _Rewriter(self, model, recorder).visit_all


@dataclass(frozen=True)
class _Rewriter:
    options: LoopAlongFusion
    model: CostModel
    recorder: FusionRecorder

    def visit_all(self, computation: Computation) -> bool:
        """Fuse the tables of a computation; the order stays."""
        # What reads a table before the table, which may be one of others.
        for instruction in reversed(list(computation)):
            is_there = instruction.computation is not None
            if is_there and instruction.opcode == "fusion" and _is_loop(instruction):
                self.visit(instruction)
        return False

    def visit(self, fusion: Instruction) -> None:
        """Decide about one kernel, the tables that it reads and what else reads these, and fuse them."""
        tables = _tables(fusion)
        if not tables and not _has_parts(fusion):
            return
        others = (reader for table in tables for reader in _readers(table))
        readers = list(dict.fromkeys([fusion, *(one for one in others if one not in tables)]))
        if any(set(_tables(reader)) != set(tables) for reader in readers):
            return  # a table would be written for some of them anyway
        wholes = [_together(tables, reader) for reader in readers]
        for whole in wholes:
            found = loop_along_of(region_of(whole))
            if isinstance(found, str) or (not tables and found.parts == 1):
                return  # nothing is computed, or read, less often
        first = tables[-1] if tables else fusion.operands[0]
        if not (spent := self.recorder.allows()):
            self.recorder.refused(first, fusion, spent)
            return
        decision, comparison = self._decide(tables, readers, wholes)
        if not decision:
            self.recorder.refused(first, fusion, decision)
            return
        for reader in readers:
            self._fuse(tables, reader, comparison)

    def _decide(
        self,
        tables: Sequence[Instruction],
        readers: Sequence[Instruction],
        wholes: Sequence[Instruction],
    ) -> tuple[Decision, Comparison]:
        target, launch = self.model.target, self.model.launch_ns
        unfused = sum(own_ns(self.model, one) + launch for one in (*tables, *readers))
        fused = 0.0
        for whole in wholes:
            edit.set_attribute(whole, "backend_config", written_name(whole, LOOP_ALONG))
            fused += find_model(self.model.name)(target).run_time(whole).exec_ns + launch
        comparison = Comparison(unfused / 1000, fused / 1000)
        wanted = self.options.always
        for reader in readers:
            for table in tables:
                advised = self.recorder.advice.decide(table, reader)
                if not advised:
                    return advised, comparison
                wanted = wanted or advised.wanted
        for whole in wholes:
            fits = find_kernel(LOOP_ALONG).fits(Site(region_of(whole), target, Limits()))
            if not fits:
                return forbid("along-unfit", words=fits.reason), comparison
        if comparison.gain_us < 0 and not wanted:
            return forbid("along-slower", comparison=comparison), comparison
        return ALLOWED, comparison

    def _fuse(
        self, tables: Sequence[Instruction], reader: Instruction, comparison: Comparison
    ) -> None:
        for number, table in enumerate(tables):
            before = (reader.name, root_opcode(reader))
            apply.fuse(table, reader)
            self.recorder.fused(
                table,
                before,
                reader,
                duplicated=any(one is not reader for one in _readers(table)),
                comparison=comparison,
                count=int(not number),
            )
            apply.remove_producer(table)
        edit.set_attribute(reader, "kind", "kCustom")
        edit.set_attribute(reader, "backend_config", written_name(reader, LOOP_ALONG))


def _is_loop(fusion: Instruction) -> bool:
    """Whether a fusion computes element by element, and nothing calls for another kernel."""
    if fusion.attributes.get("kind") not in _LOOPS or custom_name(fusion):
        return False
    if fusion.has_control_edges or fusion.shape.is_dynamic or len(fusion.calls.callers) > 1:
        return False
    return not any([*walk.called_computations(one)] or tells_apart(one) for one in fusion.calls)


def _has_parts(fusion: Instruction) -> bool:
    return any(inner.opcode in ("concatenate", "pad") for inner in fusion.calls)


def _tables(fusion: Instruction) -> list[Instruction]:
    """Small kernels that the fusion reads, or others of them; readers before what they read.

    What else reads one is a loop that may compute it, too.
    """
    most = max((leaf.byte_size for leaf in leaves(fusion.shape)), default=0) // _SMALLER
    found: dict[Instruction, None] = {}
    pending = list(fusion.operands)
    while pending and len(found) < _MOST_TABLES:
        one = pending.pop(0)
        source = one.operands[0] if one.opcode == "get-tuple-element" else one
        if source in found or not _is_table(source, most):
            continue
        readers = list(islice(_readers(source), _MOST_READERS + 1))
        if len(readers) > _MOST_READERS:
            continue  # each would compute it
        if all(reader in found or _may_compute(reader) for reader in readers):
            found[source] = None
            pending += source.operands
    return list(found)


def _readers(source: Instruction) -> Iterator[Instruction]:
    for user in source.users:
        if user.opcode == "get-tuple-element":
            yield from user.users
        else:
            yield user


def _may_compute(reader: Instruction) -> bool:
    return reader.opcode == "fusion" and _is_loop(reader)


def _is_table(source: Instruction, most: int) -> bool:
    elements = [user for user in source.users if user.opcode == "get-tuple-element"]
    if any(one.is_root for one in (source, *elements)):
        return False
    if source.opcode == "fusion":
        if source.attributes.get("kind") != "kLoop" or not _is_loop(source):
            return False
    elif not is_elementwise(source) or source.has_control_edges or not source.operands:
        return False
    sizes = [leaf.byte_size for part in (source, *source.operands) for leaf in leaves(part.shape)]
    return all(size <= most for size in sizes)


def _together(tables: Sequence[Instruction], fusion: Instruction) -> Instruction:
    """A fusion of all of them, in a module of its own."""
    apart = Module("along", fusion.home.module.source if fusion.home.module else None)
    entry = apart.entry = edit.add_computation(apart, Computation("entry"))
    copies: dict[Instruction, Instruction] = {}
    for one in (*reversed(tables), fusion):
        for operand in one.operands:
            if operand not in copies:
                copies[operand] = _operand(entry, operand, copies)
        parts = tuple(copies[operand] for operand in one.operands)
        copies[one] = build.clone(one, entry, parts)
        if one.opcode == "fusion":
            body = edit.add_computation(apart, build.clone_computation(one.calls))
            edit.set_attribute(copies[one], "calls", body)
    entry.root = copies[fusion]
    for table in tables:
        apply.fuse(copies[table], copies[fusion])
        apply.remove_producer(copies[table])
    return copies[fusion]


def _operand(
    entry: Computation, operand: Instruction, copies: dict[Instruction, Instruction]
) -> Instruction:
    """A table's result, or a parameter."""
    if operand.opcode == "get-tuple-element" and operand.operands[0] in copies:
        return build.clone(operand, entry, (copies[operand.operands[0]],))
    number = len(entry.parameters)
    return edit.append(
        entry,
        Instruction(f"p_{number}", "parameter", operand.shape, (), {"parameter_number": number}),
    )
