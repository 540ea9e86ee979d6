"""Fuses a copy of a fusion's result into that fusion.

    f = fusion(a), calls={ ROOT add }          f = fusion(a), calls={ ROOT tuple(add, copy(add)) }
    c = copy(f)                        =>      c = get-tuple-element(f), index=1

Copies that keep buffers apart are made once the fusions are; each would be a launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.hero import results_of, roots
from hloopt.analysis.layout import same_layout
from hloopt.analysis.reduction import is_unnested
from hloopt.dataclass import dataclass
from hloopt.fusion.decision import Decision, forbid
from hloopt.fusion.history import root_opcode
from hloopt.fusion.limits import FusionLimits, check_counts, decide_operands
from hloopt.fusion.outputs import add_output, element_of, remove_dead_elements
from hloopt.fusion.recorder import FusionRecorder
from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.rewrite.pass_ import Pass, PassLog
from hloopt.types import ArrayShape

__all__ = ["CopyFusion"]


@dataclass(frozen=True)
class CopyFusion(Pass):
    """Let a fusion write copies of its results itself.

    The fusion reads its operands element by element only, so that its kernel is a loop over the results;
    reductions, scatters and in-place updates are left alone.  The copy changes no layout; a bitcast may
    precede it.  Only the entry computation is processed: in a loop's body a copy may have to wait for
    the buffer that it writes.

    max_operands   the most operands and results of a fusion
    """

    example: ClassVar[str] = """HloModule example

fused {
  a = f32[4] parameter(0)
  ROOT n = f32[4] negate(a)
}

ENTRY main {
  x = f32[4] parameter(0)
  f = f32[4] fusion(x), kind=kLoop, calls=fused
  c = f32[4] copy(f)
  ROOT r = (f32[4], f32[4]) tuple(f, c)
}
"""

    max_operands: int = 96

    def __post_init__(self) -> None:
        check_counts(self)

    def run(self, module: Module, log: PassLog) -> bool:
        """Visit each fusion of the entry and its readers once."""
        recorder = FusionRecorder(self, module, log)
        for fusion in walk.post_order(module.entry):
            if _writes_elementwise(fusion):
                self._fuse(fusion, recorder)
        return bool(recorder.close().steps)

    def _fuse(self, fusion: Instruction, recorder: FusionRecorder) -> None:
        for inner, chain in list(_copies(fusion)):
            copy = chain[-1]
            decision = self._decide(fusion, copy, recorder)
            if not decision:
                recorder.refused(copy, fusion, decision)
                continue
            body = fusion.calls
            copied = inner
            for entry in chain:
                if entry.opcode != "get-tuple-element":
                    copied = build.clone(entry, body, (copied,))
            before = (fusion.name, root_opcode(fusion))
            element = element_of(fusion, add_output(fusion, copied))
            element.metadata = copy.metadata
            recorder.fused(copy, before, fusion, duplicated=False, multi_output=True)
            edit.replace_uses(copy, element)
            for entry in reversed(chain):
                if not (entry.users or entry.is_root):
                    edit.remove(entry)
            remove_dead_elements(fusion)

    def _decide(self, fusion: Instruction, copy: Instruction, recorder: FusionRecorder) -> Decision:
        advised = recorder.advice.decide(copy, fusion)
        if not advised:
            return advised
        outputs = len(results_of(fusion)) + 1
        if outputs > self.max_operands:
            return forbid("operands", limit=self.max_operands, actual=outputs)
        fits = decide_operands(fusion, copy, FusionLimits(max_operands=self.max_operands))
        return fits and recorder.allows()


def _writes_elementwise(fusion: Instruction) -> bool:
    """Whether this is a fusion that a loop over its results computes, none of them in place."""
    if fusion.opcode != "fusion" or fusion.attributes["kind"] == "kCustom":
        return False
    body = fusion.calls
    results = roots(body)
    if len(results) == 1 and (results[0].opcode == "scatter" or _is_reduction(results[0])):
        return False
    if body.root.opcode == "tuple" and all(result.opcode == "slice" for result in results):
        return False
    updates = [_behind_bitcasts(result).opcode == "dynamic-update-slice" for result in results]
    return not all(updates) and _reads_elementwise(body)


def _reads_elementwise(body: Computation) -> bool:
    """Whether what parameters reach are elementwise ops, bitcasts and the tuple of results."""
    pending = list(body.parameters)
    seen = set(pending)
    while pending:
        value = pending.pop()
        for user in value.users:
            if not (user.opcode in ("bitcast", "tuple") or _is_elementwise_on(user, value)):
                return False
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return True


def _is_elementwise_on(user: Instruction, value: Instruction) -> bool:
    if user.opcode == "dynamic-update-slice":
        return user.operands[0] is value
    return user.opcode != "copy" and is_elementwise(user)


def _is_reduction(instruction: Instruction) -> bool:
    return instruction.opcode == "reduce" and is_unnested(instruction)


def _behind_bitcasts(result: Instruction) -> Instruction:
    while result.opcode == "bitcast":
        result = result.operands[0]
    return result


def _copies(fusion: Instruction) -> Iterator[tuple[Instruction, tuple[Instruction, ...]]]:
    """What is copied, in the body, and the copy with the element and the bitcast that precede it."""
    body = fusion.calls
    for user in list(fusion.users):
        inner, chain = body.root, [user]
        if user.opcode == "get-tuple-element":
            inner = body.root.operands[user.tuple_index]
            if len(user.users) != 1 or _is_reduction(inner):
                continue
            chain.append(next(iter(user.users)))
        if chain[-1].opcode == "bitcast" and len(chain[-1].users) == 1:
            chain.append(next(iter(chain[-1].users)))
        linked = any(one.has_control_edges for one in chain)
        if chain[-1].opcode == "copy" and _is_plain(chain[-1]) and not linked:
            yield inner, tuple(chain)


def _is_plain(copy: Instruction) -> bool:
    """Whether a copy changes neither layout nor memory space."""
    source, result = copy.operands[0].shape, copy.shape
    if not isinstance(source, ArrayShape) or not isinstance(result, ArrayShape):
        return False
    suffixes = {shape.layout.suffix if shape.layout else "" for shape in (source, result)}
    return same_layout(source, result) and len(suffixes) == 1
