"""What a loop computes again and again, computed once before it."""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.effects import Effects, visit_loops
from hloopt.analysis.trip_count import iteration_bounds
from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.signatures import own_fusion_bodies
from hloopt.ops.traits import NOT_MERGEABLE, REARRANGING, TUPLES
from hloopt.passes.loops import elements
from hloopt.passes.loops.carried import CarriedState, growth_obstacle, remove_unused
from hloopt.rewrite import Pass, PassLog
from hloopt.types import ArrayShape, Shape, leaves

__all__ = ["MAYBE_COSTLY", "InvariantSearch", "WhileInvariantMotion"]

_STEP = "move work out of a loop"
_ARRANGING = REARRANGING - {"slice"} | {"iota"}
MAYBE_COSTLY = ("control", "custom")
"""Families of ops that may cost more than all of a program."""


@dataclass(frozen=True)
class WhileInvariantMotion(Pass):
    """Compute before a loop what is the same in every iteration, and carry it.

    1. Invariant are elements that the body passes through, constants, and what follows from these alone.
    2. Work is moved: all but what only arranges values (reshape, broadcast, transpose, tuple, and
       fusions of these alone), which moves where work that moves needs it.  Constants move with what they
       belong to.
    3. What the rest of the loop reads of the moved values becomes an element of the state.

    Both body and condition lose their work, inner loops first, so that it leaves all loops it does not
    depend on.  A call, loop, conditional or custom-call moves only out of a loop that runs at least once:
    it may cost more than anything the program would do.  Never moved: side effects, collectives, random
    numbers, control edges, barriers, tokens, what has a sharding or dynamic dimensions; nor anything out of
    a loop whose sharding is given element by element: a new element would have none.

    constants    whether to move constants that the loop reads by themselves, too
    reshapes     whether to move reshape, broadcast, transpose and the like for their own sake
    size_ratio   the most bytes of a moved result for each byte of its operands; 0 for no limit
    """

    example: ClassVar[str] = """HloModule example

less {
  s = (s32[], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT
}

next {
  s = (s32[], f32[8,8], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,8] get-tuple-element(s), index=1
  w = f32[8,8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  v = f32[8,8] tanh(w)
  y = f32[8,8] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (s32[], f32[8,8], f32[8,8]) tuple(j, y, w)
}

ENTRY main {
  x = f32[8,8] parameter(0)
  w = f32[8,8] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[8,8], f32[8,8]) tuple(zero, x, w)
  loop = (s32[], f32[8,8], f32[8,8]) while(t), condition=less, body=next
  ROOT y = f32[8,8] get-tuple-element(loop), index=1
}
"""

    constants: bool = False
    reshapes: bool = False
    size_ratio: float = 0.0

    def __post_init__(self) -> None:
        if self.size_ratio < 0:
            raise UsageError(f"{self.name}: size_ratio is a number of bytes a byte, or 0")

    def run(self, module: Module, log: PassLog) -> bool:
        """Inner loops first: callees come before their callers."""
        return visit_loops(module, lambda loop, effects: self.hoist(loop, effects, log))

    def hoist(self, loop: Instruction, effects: Effects, log: PassLog) -> bool:
        """Move what is invariant out of one loop's body and condition."""
        if not loop.is_tuple:
            return False
        changed = False
        for name in ("body", "condition"):
            if not InvariantSearch(self, loop, name, effects, log).leaving():
                continue
            reason = growth_obstacle(loop)
            if reason:
                log.miss(_STEP, loop, reason)
                break
            if not log.allows():
                break
            carried = CarriedState(loop)
            search = InvariantSearch(self, loop, name, effects, PassLog())
            chosen: list[Instruction] = []
            for value in search.leaving():
                if not log.allows():
                    break
                log.hit(_STEP, value, f"invariant in {loop.name}")
                chosen.append(value)
            search.move(carried, chosen)
            changed = True
        return changed

    def is_work(self, instruction: Instruction) -> bool:
        """Whether an invariant instruction moves for its own sake; what has no elements never does."""
        if isinstance(instruction.shape, ArrayShape) and 0 in instruction.shape.dims:
            return False
        if instruction.opcode == "constant":
            return self.constants
        if instruction.opcode in _ARRANGING:
            return self.reshapes
        if instruction.opcode == "fusion":  # moves as what is in it would
            body = instruction.calls
            return any(self.is_work(one) for one in body if one.opcode != "parameter")
        if instruction.opcode == "get-tuple-element":
            source = instruction.operands[0]
            return source.opcode not in ("parameter", "tuple") and self.is_work(source)
        return instruction.opcode not in TUPLES


class InvariantSearch:
    """What is invariant in the body or the condition of a loop, and what of it moves."""

    def __init__(
        self,
        options: WhileInvariantMotion,
        loop: Instruction,
        name: str,
        effects: Effects,
        log: PassLog,
    ) -> None:
        self.options = options
        self.loop = loop
        self.called: Computation = loop.attributes[name]
        self.state = self.called.parameters[0]
        self.is_body = name == "body"
        self.effects = effects
        self.log = log
        self._runs: bool | None = None
        self.invariant: dict[Instruction, None] = {}
        for instruction in self.called:
            if self.is_invariant(instruction):
                self.invariant[instruction] = None

    def is_invariant(self, instruction: Instruction) -> bool:
        """Whether an instruction, its operands examined before, is the same in every iteration."""
        if instruction.is_element_of(self.state):
            index = instruction.tuple_index
            return elements.is_passed_through(self.loop.body, index)
        return (
            instruction.opcode not in NOT_MERGEABLE
            and all(operand in self.invariant for operand in instruction.operands)
            and self.may_move(instruction)
        )

    def may_move(self, instruction: Instruction) -> bool:
        """Whether nothing but its operands ties an instruction to its place."""
        if (
            instruction.has_control_edges
            or "sharding" in instruction.attributes
            or instruction.shape.is_dynamic
            or self.effects.has(instruction)
            or _has_token(instruction.shape)
        ):
            return False
        if instruction.is_tuple and not _is_read_by_element(instruction):
            return False
        if not self.options.is_work(instruction) or instruction.opcode in TUPLES:
            return True
        ratio = self.options.size_ratio
        read = sum(operand.shape.byte_size for operand in instruction.operands)
        written = instruction.shape.byte_size
        if ratio and read and written > ratio * read:
            reason = f"{written} bytes out of {read}, more than size_ratio={ratio:g} times"
            self.log.miss(_STEP, instruction, reason)
            return False
        if instruction.op.family in MAYBE_COSTLY or instruction.opcode == "fusion":
            return instruction.opcode == "fusion" or self.runs(instruction)
        return True

    def runs(self, instruction: Instruction) -> bool:
        """Whether the instruction is run at all: the condition always is, the body of a loop may not be."""
        if not self.is_body:
            return True
        if self._runs is None:
            self._runs = iteration_bounds(self.loop).least > 0
        if not self._runs:
            self.log.miss(_STEP, instruction, "it may be costly, and the loop may not run at all")
        return self._runs

    def moving(self) -> set[Instruction]:
        """Work, and what it is made of."""
        pending = [one for one in self.invariant if self.options.is_work(one) and self.is_made(one)]
        found = set(pending)
        while pending:
            for operand in pending.pop().operands:
                if operand not in found and self.is_made(operand):
                    found.add(operand)
                    pending.append(operand)
        return found

    def is_made(self, instruction: Instruction) -> bool:
        """Whether an invariant instruction is computed here: it is not an element of the state itself."""
        return not (instruction.is_element_of(self.state))

    def leaving(self) -> list[Instruction]:
        """Work whose results the rest of the loop reads, in order."""
        moving = self.moving()
        return [
            one
            for one in self.invariant
            if one in moving
            and self.options.is_work(one)
            and not one.is_tuple
            and (one.is_root or any(user not in moving for user in one.users))
        ]

    def move(self, carried: CarriedState, leaving: list[Instruction]) -> None:
        """Copy values, and what they are made of, to before the loop; read them from the state."""
        needed = _made_of(leaving, self)
        mapped: dict[Instruction, Instruction] = {}
        for instruction in self.invariant:
            if not self.is_made(instruction):
                mapped[instruction] = carried.init.operands[instruction.tuple_index]
            elif instruction in needed:
                operands = tuple(mapped[operand] for operand in instruction.operands)
                mapped[instruction] = build.clone(instruction, carried.init, operands)
        added = carried.add([mapped[value] for value in leaving])
        for value, index in zip(leaving, added, strict=True):
            edit.replace_instruction(value, build.element(value, self.state, index))
        remove_unused(needed)
        own_fusion_bodies(mapped.values())


def _made_of(values: list[Instruction], search: InvariantSearch) -> dict[Instruction, None]:
    found, pending = dict.fromkeys(values), list(values)
    while pending:
        for operand in pending.pop().operands:
            if operand not in found and search.is_made(operand):
                found[operand] = None
                pending.append(operand)
    return found


def _has_token(shape: Shape) -> bool:
    return any(isinstance(leaf, ArrayShape) and not leaf.dtype.is_array for leaf in leaves(shape))


def _is_read_by_element(instruction: Instruction) -> bool:
    """Whether only get-tuple-elements, or other instructions of the same kind, read a tuple."""
    return not instruction.is_root and all(
        user.opcode == "get-tuple-element" or instruction.opcode == "tuple"
        for user in instruction.users
    )
