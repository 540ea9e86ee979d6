"""Constants that a loop only passes through."""

from __future__ import annotations

from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Instruction, Module, build, edit
from hloopt.ir.walk import callees, of_opcode, wrapped_computations
from hloopt.passes.loops import elements
from hloopt.passes.loops.carried import CarriedState, obstacle, reads, whole_uses
from hloopt.rewrite import Pass, PassLog

__all__ = ["WhileConstantSinking"]


@dataclass(frozen=True)
class WhileConstantSinking(Pass):
    """Put a constant that a loop passes through unchanged into its body and its condition.

    What stands there is the constant itself, or a broadcast of one; simplify and constant-folding can then
    work with it, and while-loop-simplifier drops the element.  Outer loops come first, so that a constant
    reaches the innermost loop that reads it.

    limit    the most elements of a constant; broadcasts of a scalar may have more
    scalar   whether to move scalars and their broadcasts only
    """

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
  three = s32[] constant(3)
  j = s32[] add(i, three)
  ROOT r = (s32[], s32[]) tuple(j, n)
}

ENTRY main {
  zero = s32[] constant(0)
  n = s32[] constant(10)
  t = (s32[], s32[]) tuple(zero, n)
  ROOT loop = (s32[], s32[]) while(t), condition=less, body=next
}
"""

    limit: int = 1024
    scalar: bool = False

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise UsageError(f"{self.name}: limit must be at least 1, got {self.limit}")

    def run(self, module: Module, log: PassLog) -> bool:
        """Follow the calls from the entry inwards."""
        wrapped = wrapped_computations(module)
        changed = False
        pending, seen = [module.entry], {module.entry}
        while pending:
            computation = pending.pop()
            for loop in of_opcode(computation, "while") if computation not in wrapped else ():
                changed |= self.sink(loop, log)
            for called in callees(computation):
                if called not in seen:
                    seen.add(called)
                    pending.append(called)
        return changed

    def sink(self, loop: Instruction, log: PassLog) -> bool:
        """Move the constants of one loop."""
        name = "constant that the body passes through"
        source = loop.operands[0]
        if source.opcode != "tuple" or not loop.is_tuple:
            return False
        found, chosen = _inner_uses(loop), []
        for index in range(len(loop.elements)):
            value = source.operands[index]
            if not _is_constant(value) or not elements.is_passed_through(loop.body, index):
                continue
            if not found[index]:
                continue
            reason = obstacle(loop) or self.too_large(value) or _unlike(found[index], value)
            if reason:
                log.miss(name, loop, f"element {index}: {reason}")
            elif log.allows():
                log.hit(name, loop, f"element {index}")
                chosen.append(index)
        if chosen:
            CarriedState(loop, keeps_state=True)
            found = _inner_uses(loop)
            _replace(loop, {index: source.operands[index] for index in chosen}, found)
        return bool(chosen)

    def too_large(self, value: Instruction) -> str:
        """Why the options do not let a constant be written twice, or an empty string."""
        size = (value.operands[0] if value.opcode == "broadcast" else value).array.elements
        if self.scalar and size > 1:
            return f"{size} elements, and scalar=true"
        return f"{size} elements, more than limit={self.limit}" if size > self.limit else ""


def _is_constant(value: Instruction) -> bool:
    if value.opcode == "broadcast":
        value = value.operands[0]
    return value.constant_array is not None


def _inner_uses(loop: Instruction) -> dict[int, list[Instruction]]:
    """What reads each element in condition and body and does more than pass it on."""
    found: dict[int, list[Instruction]] = {index: [] for index in range(len(loop.elements))}
    for called in (loop.condition, loop.body):
        state, root = called.parameters[0], called.root
        if any(one is not root for one in whole_uses(state)):
            for group in found.values():
                group.append(state)
        for index, group in reads(state).items():
            for read in group:
                if read.is_root or sum(read.users.values()) > _passes_through(root, index, read):
                    found[index].append(read)
    return found


def _passes_through(root: Instruction, index: int, read: Instruction) -> bool:
    return root.opcode == "tuple" and root.operands[index] is read


def _unlike(found: list[Instruction], value: Instruction) -> str:
    for use in found:
        if use.opcode == "get-tuple-element" and not elements.may_replace(use, value):
            return f"layout, sharding or control edges of {use.name} say more than its value"
    return ""


def _replace(
    loop: Instruction, values: dict[int, Instruction], found: dict[int, list[Instruction]]
) -> None:
    """Give users of elements in condition and body copies of constants; the body passes them on as before."""
    body = loop.body
    root = body.root
    copies: dict[Instruction, Instruction] = {}
    for index, value in values.items():
        for read in found[index]:
            copy, name = _copied(value, read), read.name
            if read.computation is not body or not _passes_through(root, index, read):
                edit.replace_instruction(read, copy)
                edit.rename(copy, name)
                continue
            copies[read] = copy
            for user in list(read.users):
                if user is not root:
                    edit.replace_operand(user, read, copy)
    # All elements of the root at once: one by one, each would cost as much as the root is wide.
    now = tuple(
        one if one not in copies or one.tuple_index == index else copies[one]
        for index, one in enumerate(root.operands)
    )
    edit.set_operands(root, now)


def _copied(value: Instruction, position: Instruction) -> Instruction:
    operands = tuple(_copied(operand, position) for operand in value.operands)
    return build.clone(value, position, operands)
