"""Constants that a loop only hands on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import called_computations, wrapped_computations
from hloopt.passes.loops import elements
from hloopt.passes.loops.carried import Carried, obstacle, reads, whole_uses
from hloopt.rewrite import Pass, PassLog
from hloopt.types import TupleShape

__all__ = ["WhileConstantSinking"]


@dataclass(frozen=True)
class WhileConstantSinking(Pass):
    """Put a constant that a loop hands on unchanged into its body and its condition.

    What stands there is the constant itself, or a broadcast of one; simplify and constant-folding can then
    work with it, and while-loop-simplifier drops the element.  Outer loops come first, so that a constant
    gets to the innermost loop that reads it.

    limit    the most elements of a constant; broadcasts of a scalar may have more
    scalar   whether to move scalars and their broadcasts only
    """

    name: ClassVar[str] = "while-constant-sinking"
    example: ClassVar[str] = """HloModule example

less {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(i, n), direction=LT
}

next {
  s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  j = s32[] add(i, i)
  ROOT r = (s32[], s32[]) tuple(j, n)
}

ENTRY main {
  i = s32[] parameter(0)
  n = s32[] constant(10)
  t = (s32[], s32[]) tuple(i, n)
  ROOT loop = (s32[], s32[]) while(t), condition=less, body=next
}
"""

    limit: int = 1024
    scalar: bool = False

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UsageError(f"{self.name}: limit counts elements and is at least 1")

    def run(self, module: Module, log: PassLog) -> bool:
        """Follow the calls from the entry inwards."""
        wrapped = wrapped_computations(module)
        changed = False
        pending, seen = [module.entry], {module.entry}
        while pending:
            computation = pending.pop()
            for instruction in computation:
                if instruction.opcode == "while" and computation not in wrapped:
                    changed |= self.sink(instruction, log)
                for called in called_computations(instruction):
                    if called not in seen:
                        seen.add(called)
                        pending.append(called)
        return changed

    def sink(self, loop: Instruction, log: PassLog) -> bool:
        """Move the constants of one loop."""
        name = "constant that the body hands on"
        source = loop.operands[0]
        if source.opcode != "tuple" or not isinstance(loop.shape, TupleShape):
            return False
        changed = False
        for index in range(elements.count(loop)):
            value = loop.operands[0].operands[index]
            if not _is_constant(value) or not elements.is_handed_on(loop.attributes["body"], index):
                continue
            if not _inner_uses(loop, index):
                continue
            reason = obstacle(loop) or self.too_large(value) or _unlike(loop, index, value)
            if reason:
                log.miss(name, loop, f"element {index}: {reason}")
                continue
            if not log.allows():
                break
            log.hit(name, loop, f"element {index}")
            Carried(loop, keeps_state=True)
            _replace(loop, index, value)
            changed = True
        return changed

    def too_large(self, value: Instruction) -> str:
        """Why the options do not let a constant be written twice, or an empty string."""
        size = (value.operands[0] if value.opcode == "broadcast" else value).array.elements
        if self.scalar and size > 1:
            return f"{size} elements, and scalar=true"
        return f"{size} elements, more than limit={self.limit}" if size > self.limit else ""


def _is_constant(value: Instruction) -> bool:
    if value.opcode == "broadcast":
        value = value.operands[0]
    literal = value.literal
    return literal is not None and literal.array is not None


def _inner_uses(loop: Instruction, index: int) -> list[Instruction]:
    """Reads of an element in condition and body that do more than hand it on."""
    found = []
    for called in (loop.attributes["condition"], loop.attributes["body"]):
        state, root = called.parameters[0], called.root
        found += [one for one in whole_uses(state) if one is not root]
        for read in reads(state, index):
            handed_on = root.opcode == "tuple" and root.operands[index] is read
            if read.is_root or sum(read.users.values()) > handed_on:
                found.append(read)
    return found


def _unlike(loop: Instruction, index: int, value: Instruction) -> str:
    for use in _inner_uses(loop, index):
        if use.opcode == "get-tuple-element" and not elements.may_replace(use, value):
            return f"layout, sharding or control edges of {use.name} say more than its value"
    return ""


def _replace(loop: Instruction, index: int, value: Instruction) -> None:
    """Give users of an element in condition and body copies of a constant; the body hands it on as before."""
    body = loop.attributes["body"]
    for called in (loop.attributes["condition"], body):
        for read in reads(called.parameters[0], index):
            handed_on = called is body and body.root.operands[index] is read
            if read.is_root or sum(read.users.values()) > handed_on:
                copy = _copied(value, read)
                if handed_on:
                    edit.replace_uses(read, copy)
                    edit.set_operand(body.root, index, read)
                else:
                    name = read.name
                    edit.replace_instruction(read, copy)
                    edit.rename(copy, name)


def _copied(value: Instruction, position: Instruction) -> Instruction:
    operands = tuple(_copied(operand, position) for operand in value.operands)
    return build.clone(value, position, operands)
