"""f32 values that might as well be bf16.

    y = convert(x)  f32;  z = transpose(y)                    =>    t = transpose(x)  bf16;  z = convert(t)
    y = transpose(x)  f32;  z = convert(y)  bf16              =>    t = convert(x)  bf16;  z = transpose(t)
    y = add(convert(a), convert(b))  f32;  z = convert(y)     =>    z = add(a, b)  bf16

1. A value is *exact* if all its elements are values of bf16: converted from bf16 or a narrower type, constants
   that are, and whatever is moved, selected, or chosen by maximum, minimum and clamp from such; what a loop
   carries, if it starts so and each turn gives such.
2. A value is *rounded* if all who read it convert it to bf16, or move elements into values that are rounded.
3. Exact values, and rounded ones that are moved or computed from exact ones, are bf16 (an op of bf16
   computes in f32 and rounds once), as long as arrays of fewer bytes are written in all: values that hang
   together are changed together or not at all.

Left out: fusions, calls and conditionals, tuples but those of loops (``call-inliner``, ``tuple-simplifier``),
reductions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hloopt.dataclass import dataclass
from hloopt.ir import Instruction, Module, build, edit
from hloopt.passes.bf16_propagation.choice import NarrowChoice
from hloopt.passes.bf16_propagation.graph import Carry, ValueGraph, ValueNode, build_graph
from hloopt.rewrite import Pass, PassLog
from hloopt.types import DTYPES, ArrayShape, DType, Literal, Shape, TupleShape

__all__ = ["Bf16Propagation"]

_BF16, _F32 = DTYPES["bf16"], DTYPES["f32"]


@dataclass(frozen=True)
class Bf16Propagation(Pass):
    """Compute and carry f32 values in bf16 where every bit of the results stays, and fewer bytes move.

    fast_math  let elementwise ops between f32 values round their operands to bf16 too, where their results
               are rounded to bf16: each then rounds to 8 bits instead of 24
    """

    example: ClassVar[str] = """HloModule example

ENTRY main {
  x = bf16[64,32]{1,0} parameter(0)
  y = bf16[32,64]{1,0} parameter(1)
  a = f32[64,32]{1,0} convert(x)
  t = f32[32,64]{1,0} transpose(a), dimensions={1,0}
  b = f32[32,64]{1,0} convert(y)
  s = f32[32,64]{1,0} add(t, b)
  ROOT r = bf16[32,64]{1,0} convert(s)
}
"""

    fast_math: bool = False

    def run(self, module: Module, log: PassLog) -> bool:
        """Until nothing changes: a convert that lost one reader may be worth sparing the others."""
        changed = False
        while self.round(module, log):
            changed = True
        return changed

    def round(self, module: Module, log: PassLog) -> bool:
        """Look at all values once."""
        graph = build_graph(module)
        choice = NarrowChoice(graph, fast_math=self.fast_math)
        components = [(entry, choice.saved_bytes(entry)) for entry in choice.components()]
        rewriter = _Rewriter(graph, choice, log)
        changed = False
        for component, saved in components:
            if saved > 0 and log.allows():
                rewriter.narrow(component)
                changed = True
        if not changed:
            for component, saved in components:
                _report(component, saved, log)
        return changed


def _report(component: list[ValueNode], saved: int, log: PassLog) -> None:
    about = next((node.instruction for node in component if node.instruction), None)
    if about is not None and len(component) > 1 and saved <= 0:
        reason = f"bf16 writes {-saved} bytes more" if saved else "bf16 writes as many bytes"
        log.miss("f32 => bf16", about, reason)


class _Rewriter:
    def __init__(self, graph: ValueGraph, choice: NarrowChoice, log: PassLog) -> None:
        self.graph = graph
        self.choice = choice
        self.log = log
        self.sources: dict[Instruction, Instruction] = {}
        self.made: set[Instruction] = set()

    def narrow(self, component: list[ValueNode]) -> None:
        """Change shapes first, then operands, then what others read."""
        inside = set(component)
        read = dict.fromkeys(operand for node in component for operand in node.inputs)
        counted = 0  # all of them together are one rewrite
        for node in component:
            if node.instruction is not None:
                self.log.hit("f32 => bf16", node.instruction, count=int(not counted))
                counted += 1
                edit.set_shape(node.instruction, node.instruction.array.with_dtype(_BF16))
            elif node.carry is not None:
                _set_carry(node.carry)
        for node in component:
            self.set_inputs(node, inside)
        for node in component:
            if node.instruction is not None:
                self.serve(node, node.instruction, inside)
        for instruction in read:
            made = self.graph.of.get(instruction)
            unused = not instruction.is_used
            if made is not None and made.kind == "source" and unused:
                edit.remove(instruction)

    def set_inputs(self, node: ValueNode, inside: set[ValueNode]) -> None:
        if node.kind == "carry":
            carry = node.carry
            assert carry is not None
            for holder in (carry.initial, carry.result):
                operand = holder.operands[carry.index]
                edit.set_operand(holder, carry.index, self.value(operand, inside))
            return
        instruction = node.instruction
        assert instruction is not None
        wanted = set(node.inputs)
        operands = tuple(
            self.value(operand, inside) if operand in wanted else operand
            for operand in instruction.operands
        )
        edit.set_operands(instruction, operands)

    def value(self, operand: Instruction, inside: set[ValueNode]) -> Instruction:
        """The bf16 value of an operand; one that is not narrow is rounded right after it is made."""
        node = self.graph.of.get(operand)
        if node is not None and node in inside:
            return operand
        if node is not None and node.kind == "source" and node in self.choice.exact:
            return self.source(operand)
        known = self.sources.get(operand)
        if known is None:
            known = self.sources[operand] = self.convert(operand, _BF16)
        return known

    def source(self, instruction: Instruction) -> Instruction:
        if instruction.opcode == "convert" and instruction.operands[0].array.dtype is _BF16:
            return instruction.operands[0]
        known = self.sources.get(instruction)
        if known is not None:
            return known
        shape = instruction.array.with_dtype(_BF16)
        if instruction.opcode == "constant":
            array = instruction.constant_array
            assert array is not None, "exact constants are not elided"
            narrow = Literal(shape, array.astype(_BF16.numpy))
            known = build.constant(instruction, narrow, instruction.name)
            known.metadata = instruction.metadata
        else:
            known = build.make(
                instruction,
                "convert",
                (instruction.operands[0],),
                shape=shape,
                name=instruction.name,
                metadata=instruction.metadata,
            )
        self.sources[instruction] = known
        return known

    def serve(self, node: ValueNode, instruction: Instruction, inside: set[ValueNode]) -> None:
        """Give readers in bf16 the value itself, and all others one converted back."""
        was_root = instruction.is_root
        wide = {
            user: places
            for user in instruction.users
            if (places := self.wide_places(user, instruction, inside))
        }
        for convert in node.rounded:
            edit.replace_instruction(convert, instruction)
        if not wide and not was_root:
            return
        back = self.convert(instruction, _F32)
        for user, places in wide.items():
            for place in places:
                edit.set_operand(user, place, back)
        if was_root and instruction.computation is not None:
            edit.set_root(instruction.computation, back)

    def wide_places(
        self, user: Instruction, instruction: Instruction, inside: set[ValueNode]
    ) -> list[int]:
        """The operands in which a user reads f32."""
        places = [at for at, operand in enumerate(user.operands) if operand is instruction]
        if user in self.made:
            return []
        node = self.graph.of.get(user)
        if (node is not None and node in inside) or user.opcode == "convert":
            return [] if user.array.dtype is _BF16 else places
        held = self.graph.holders.get(user, {})
        return [at for at in places if held.get(at) not in inside]

    def convert(self, operand: Instruction, dtype: DType) -> Instruction:
        """A convert right after an instruction."""
        assert operand.computation is not None
        position = operand._next
        attributes = {
            name: operand.attributes[name] for name in ("sharding",) if name in operand.attributes
        }
        made = build.make(
            position if position is not None else operand.computation,
            "convert",
            (operand,),
            attributes,
            shape=operand.array.with_dtype(dtype),
            name="convert",
            metadata=operand.metadata,
        )
        self.made.add(made)
        return made


def _set_carry(carry: Carry) -> None:
    for holder in (carry.initial, carry.loop, carry.result, *carry.parameters):
        edit.set_shape(holder, _with_element(holder.shape, carry.index))


def _with_element(shape: Shape, index: int) -> TupleShape:
    assert isinstance(shape, TupleShape)
    element = shape.elements[index]
    assert isinstance(element, ArrayShape)
    elements = list(shape.elements)
    elements[index] = replace(element, dtype=_BF16)
    return TupleShape(tuple(elements))
