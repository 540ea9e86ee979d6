"""Copies that buffers need.

What must alias (``analysis/aliasing.py``) can share a buffer only where lives do not overlap.  In the order in
which the module stands:

1. Every call in control flow gets a private copy of its computation.
2. ``x = update(a, ...)`` in place: ``a`` is copied first if it is read later, if it is a constant or a
   parameter whose buffer the computation does not own.
3. What a loop changes starts in the buffer of the initial value: that is copied first under the same
   conditions, or if the loop takes it twice.  Where a loop around it carries that buffer, those that read it
   later get the copy instead: else what was written would have to be copied back at the end of the iteration.
4. A result of a loop's body must end in the buffer of the parameter of its number.  It does without a copy
   if it is made in place of it, or if it is made after the last read of the parameter, in a buffer of
   its own.  All others are copied at the end of the body, each after the readers of the buffer it goes into;
   where results change places in a circle, one waits in a further buffer.
5. Branches of a conditional give each result in one buffer: that of an operand which is not read after the
   conditional, if all branches that forward one agree on it, else one of its own.
6. Results of ENTRY lie in the parameter they are donated, else in a buffer of their own: parameters,
   constants and what is returned twice are copied.

Only the copies that these conditions call for are made; none is made first and then removed.  Example: a
loop that swaps ``(a, b)`` and changes nothing else needs three copies in its body.

Left out: copies that stood in the text stay, whether they are needed or not; another order may do with fewer
(run ``schedule`` before, not after); values that alias are taken to have one layout (run
``layout-normalization`` before, where layouts are not assigned yet).
"""

from __future__ import annotations

from typing import ClassVar

from hloopt.analysis.aliasing import Aliasing, analyze_aliasing
from hloopt.analysis.in_place import in_place_pairs
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import called_computations
from hloopt.passes.copy_insertion.flatten import flatten
from hloopt.passes.copy_insertion.results import FRESH, ResultBuffer, settle
from hloopt.passes.copy_insertion.state import BufferState, Key, SharedBuffer
from hloopt.passes.copy_insertion.tuples import (
    LeafIndex,
    indices,
    leaf_of,
    leaf_shape,
    replace_leaves,
)
from hloopt.rewrite import Pass, PassLog
from hloopt.types import BufferShape

__all__ = ["CopyInsertion"]


@dataclass(frozen=True)
class CopyInsertion(Pass):
    """Insert the copies that let loops, conditionals, updates in place and donated parameters share buffers.

    Afterwards no must-alias set holds two values that are needed at the same time, in the order in which the
    module stands.  Computations called from several places are cloned, one for each.
    """

    keeps_schedule: ClassVar[bool] = True
    example: ClassVar[str] = """HloModule update

ENTRY main {
  p = f32[8]{0} parameter(0)
  v = f32[2]{0} parameter(1)
  zero = s32[] constant(0)
  a = f32[8]{0} negate(p)
  x = f32[8]{0} dynamic-update-slice(a, v, zero)
  b = f32[8]{0} abs(a)
  ROOT r = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(x, b, p)
}
"""

    def run(self, module: Module, log: PassLog) -> bool:
        changed = log.allows() and flatten(module, log)
        inserter = _Inserter(module, analyze_aliasing(module), log)
        inserter.entry()
        for reader, operand, copied in inserter.late:
            edit.replace_operand(reader, operand, copied)
        return changed or inserter.changed


class _Inserter:
    """Looks through computations in the order in which they are run, callers on the way to callees."""

    def __init__(self, module: Module, aliasing: Aliasing, log: PassLog) -> None:
        self.module = module
        self.aliasing = aliasing
        self.log = log
        self.late: list[tuple[Instruction, Instruction, Instruction]] = []
        self.changed = False

    def entry(self) -> None:
        entry = self.module.entry
        donated: dict[LeafIndex, Key] = {}
        for alias in self.module.attributes.get("input_output_alias", ()):
            leaves = list(indices(entry.parameters[alias.parameter].shape))
            donated[alias.output_index] = (alias.parameter, leaves.index(alias.parameter_index))
        state = self.walk(entry, set(donated.values()))
        slots: dict[LeafIndex, ResultBuffer] = {
            index: donated.get(index, FRESH) for index, _ in state.leaves(entry.root)
        }
        settle(state, slots, self.copy)

    def walk(self, computation: Computation, owned: set[Key]) -> BufferState:
        """Insert the copies inside a computation; its results are not settled yet."""
        state = BufferState(computation, self.aliasing, owned)
        for position, instruction in enumerate(state.order):
            opcode = instruction.opcode
            if opcode == "parameter":
                state.take_parameter(instruction)
            elif opcode == "while":
                self.loop(state, position, instruction)
            elif opcode == "conditional":
                self.conditional(state, position, instruction)
            elif opcode == "call":
                self.call(state, position, instruction)
            else:
                if opcode == "async-start":
                    self.start(state, instruction)
                elif opcode == "send":
                    self.send(state, instruction)
                self.update(state, position, instruction)
            for number in self.aliasing.numbers(instruction):
                if number not in state.groups:
                    state.open(number, position, writable=opcode != "constant")
        return state

    # ---- updates in place ---------------------------------------------------------------------------

    def update(self, state: BufferState, position: int, instruction: Instruction) -> None:
        copies: dict[int, dict[LeafIndex, Instruction]] = {}
        for pair in in_place_pairs(instruction):
            operand = instruction.operands[pair.operand]
            source = self.aliasing.value(operand, pair.operand_index).number
            target = self.aliasing.value(instruction, pair.output_index).number
            given = [
                number for entry in instruction.operands for number in self.aliasing.numbers(entry)
            ]
            shape = leaf_shape(operand.shape, pair.operand_index)
            if isinstance(shape, BufferShape) or (
                self.gives_up(state, position, instruction, operand, source)
                and given.count(source) == 1
            ):
                state.join(target, state.groups[source])
                continue
            if given.count(source) == 1 and self.spare(state, position, instruction, source):
                state.join(target, state.groups[source])
                continue
            leaf = leaf_of(instruction, operand, pair.operand_index)
            reason = f"{instruction.name} writes into a buffer that is needed unchanged"
            copied = self.copy(instruction, leaf, instruction, reason)
            if copied is not None:
                copies.setdefault(pair.operand, {})[pair.operand_index] = copied
        for number, leaves in copies.items():
            replace_leaves(instruction, number, leaves)

    def spare(self, state: BufferState, position: int, writer: Instruction, source: int) -> bool:
        """Copy what a loop carries for those that read it later, so that what is written stays in its place."""
        group = state.groups[source]
        late = state.readers_after(source, position)
        if not (group.writable and group.parameters and late):
            return False
        reader, leaf = next(iter(late.items()))
        reason = f"{reader.name} reads a buffer after {writer.name} writes into it"
        copied = self.copy(writer, leaf, writer, reason)
        if copied is None:
            return False
        self.late += [(one, operand, copied) for one, operand in late.items()]
        state.end_at(source, position)
        return True

    def gives_up(
        self,
        state: BufferState,
        position: int,
        instruction: Instruction,
        operand: Instruction,
        source: int,
    ) -> bool:
        """Whether an instruction may write into an operand; one that runs on only if it has no other reader."""
        if instruction.op.family not in ("async", "host"):
            return state.may_give_up(source, position)
        sole = operand.users == {instruction: 1} and not operand.is_root
        return sole and state.groups[source].writable

    def start(self, state: BufferState, start: Instruction) -> None:
        """An update that runs beside others: its operand must have no other reader, then and later."""
        (called,) = called_computations(start)
        for pair in in_place_pairs(called.root):
            parameter = called.root.operands[pair.operand]
            number = parameter.parameter_number if parameter.opcode == "parameter" else -1
            if not 0 <= number < len(start.operands) or pair.operand_index:
                continue
            operand = start.operands[number]
            source = self.aliasing.value(operand).number
            if self.gives_up(state, 0, start, operand, source):
                continue
            reason = f"{called.root.name} writes into a buffer that is needed unchanged"
            copied = self.copy(start, operand, start, reason)
            if copied is not None:
                edit.set_operand(start, number, copied)

    def send(self, state: BufferState, send: Instruction) -> None:
        """What is sent while a loop goes on, or a caller does, lies in a private buffer."""
        if all(user.opcode == "send-done" for user in send.users) and not send.is_root:
            return
        operand = send.operands[0]
        source = self.aliasing.value(operand).number
        if self.gives_up(state, 0, send, operand, source):
            return
        copied = self.copy(
            send, operand, send, f"{send.name} reads a buffer after it was passed on"
        )
        if copied is not None:
            edit.set_operand(send, 0, copied)

    # ---- loops --------------------------------------------------------------------------------------

    def loop(self, state: BufferState, position: int, loop: Instruction) -> None:
        body, condition = loop.body, loop.condition
        initial = loop.operands[0]
        given = self.aliasing.numbers(initial)
        inner = self.aliasing.numbers(body.parameters[0])
        results = self.aliasing.numbers(loop)
        places = list(indices(loop.shape))
        carried = {index for index, _ in state.leaves(loop)}
        owned: set[Key] = set()
        slots: dict[LeafIndex, ResultBuffer] = {}
        copies: dict[LeafIndex, Instruction] = {}
        for at, index in enumerate(places):
            if inner[at] == given[at] or index not in carried:
                continue
            owned.add((0, at))
            slots[index] = (0, at)
            if state.may_give_up(given[at], position) and given.count(given[at]) == 1:
                state.join(results[at], state.groups[given[at]])
                continue
            if given.count(given[at]) == 1 and self.spare(state, position, loop, given[at]):
                state.join(results[at], state.groups[given[at]])
                continue
            leaf = leaf_of(loop, initial, index)
            copied = self.copy(loop, leaf, loop, "the loop changes an initial value that is needed")
            if copied is not None:
                copies[index] = copied
        if copies:
            replace_leaves(loop, 0, copies)
        self.walk(condition, set())
        settle(self.walk(body, owned), slots, self.copy)

    # ---- calls --------------------------------------------------------------------------------------

    def call(self, state: BufferState, position: int, call: Instruction) -> None:
        (called,) = called_computations(call)
        operands = [self.aliasing.numbers(operand) for operand in call.operands]
        given = [number for numbers in operands for number in numbers]
        owned = {
            (parameter, at)
            for parameter, numbers in enumerate(operands)
            for at, number in enumerate(numbers)
            if state.may_give_up(number, position) and given.count(number) == 1
        }
        inner = self.walk(called, owned)
        opened: dict[SharedBuffer, SharedBuffer] = {}
        pairs = zip(self.aliasing.numbers(call), self.aliasing.numbers(called.root), strict=True)
        for number, result in pairs:
            if number in state.groups:
                continue
            group = inner.groups[result]
            if group.parameters:
                parameter, at = min(group.parameters)
                state.join(number, state.groups[operands[parameter][at]])
            elif group in opened:
                state.join(number, opened[group])
            else:
                opened[group] = state.open(number, position, writable=group.writable)

    def conditional(self, state: BufferState, position: int, conditional: Instruction) -> None:
        branches = list(called_computations(conditional))
        operands = [self.aliasing.numbers(operand) for operand in conditional.operands[1:]]
        sets = {self.set_of(number) for number in self.aliasing.numbers(conditional)}
        for number in dict.fromkeys(number for numbers in operands for number in numbers):
            if self.set_of(number) in sets and not state.may_give_up(number, position):
                self.spare(state, position, conditional, number)
        free = {
            number
            for numbers in operands
            for number in numbers
            if state.may_give_up(number, position)
        }
        free -= {number for numbers in operands for number in numbers if numbers.count(number) > 1}
        inner = [
            self.walk(branch, {(0, at) for at, number in enumerate(numbers) if number in free})
            for branch, numbers in zip(branches, operands, strict=True)
        ]
        slots: list[dict[LeafIndex, ResultBuffer]] = [{} for _ in branches]
        places = list(indices(conditional.shape))
        wanted = {index for index, _ in state.leaves(conditional)}
        anchored: set[int] = set()
        for at, number in enumerate(self.aliasing.numbers(conditional)):
            if number in state.groups or places[at] not in wanted:
                continue
            anchor = self.anchor(inner, operands, at, free - anchored)
            if anchor is None:
                state.open(number, position)
            else:
                anchored.add(anchor)
                state.join(number, state.groups[anchor])
            for branch, numbers in enumerate(operands):
                there = anchor is not None and anchor in numbers
                slots[branch][places[at]] = (0, numbers.index(anchor)) if there else FRESH
        for walked, results in zip(inner, slots, strict=True):
            settle(walked, results, self.copy)

    def set_of(self, number: int) -> int:
        return self.aliasing.alias_set(self.aliasing.values[number]).number

    def anchor(
        self, inner: list[BufferState], operands: list[tuple[int, ...]], at: int, free: set[int]
    ) -> int | None:
        """The operand in whose buffer a result lies by itself in all branches that forward one."""
        found: set[int] = set()
        for state, numbers in zip(inner, operands, strict=True):
            number = self.aliasing.numbers(state.computation.root)[at]
            found.update(numbers[leaf] for _, leaf in state.groups[number].parameters)
        return found.pop() if len(found) == 1 and found <= free else None

    # ---- copies -------------------------------------------------------------------------------------

    def copy(
        self, position: Instruction | None, leaf: Instruction, about: Instruction, reason: str
    ) -> Instruction | None:
        """A copy before ``position`` or at the end; None without fuel."""
        if not self.log.allows():
            return None
        self.log.hit("copy", about, reason)
        self.changed = True
        where = position if position is not None else leaf.home
        kept = {name: leaf.attributes[name] for name in ("sharding",) if name in leaf.attributes}
        return build.make(
            where, "copy", (leaf,), kept, shape=leaf.shape, name="copy", metadata=leaf.metadata
        )
