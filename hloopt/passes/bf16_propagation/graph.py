"""The f32 values of a module that could be bf16: what each is made of, and who reads it.

A *node* is an instruction with one f32 array that moves, chooses or computes elements, or an element that a
loop carries (a *carry*: the tuples and parameters that hold it change together).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from hloopt.analysis.effects import Effects
from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.layout import same_layout
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.walk import wrapped_computations
from hloopt.ops.traits import op_table
from hloopt.passes.loops.carried import is_read_by_element
from hloopt.types import ArrayShape, Shape

__all__ = ["Carry", "ValueGraph", "ValueNode", "build_graph", "is_f32"]

# Operands that hold elements of the result; the others are indices and predicates.
_MOVING = op_table({
    "broadcast": (0,), "copy": (0,), "dynamic-slice": (0,), "dynamic-update-slice": (0, 1),
    "gather": (0,), "pad": (0, 1), "reshape": (0,), "reverse": (0,), "select": (1, 2),
    "slice": (0,), "transpose": (0,), "negate": (0,), "abs": (0,),
}, otherwise="their elements are not of one operand")  # fmt: skip
_CHOOSING = ("maximum", "minimum", "clamp")
_LEFT = ("bitcast-convert", "reduce-precision", "stochastic-convert")


@dataclass(eq=False)
class Carry:
    """Element ``index`` of a loop's state, and the instructions whose shapes have it."""

    loop: Instruction
    index: int
    initial: Instruction
    parameters: tuple[Instruction, ...]
    result: Instruction


@dataclass(eq=False)
class ValueNode:
    """``kind`` is source (a convert or constant), moving, choosing, computing or carry.

    ``inputs`` are the instructions with its elements; ``carry`` is that of a carry, or of the carry whose
    element a get-tuple-element reads.
    """

    kind: str
    instruction: Instruction | None
    inputs: tuple[Instruction, ...]
    carry: Carry | None = None
    readers: list[ValueNode] = field(default_factory=list)
    others: list[Instruction] = field(default_factory=list)
    rounded: list[Instruction] = field(default_factory=list)
    elements: int = 0


@dataclass
class ValueGraph:
    """``of`` has the node of an instruction, ``holders`` the carries of a loop's tuples by their index."""

    nodes: list[ValueNode] = field(default_factory=list)
    of: dict[Instruction, ValueNode] = field(default_factory=dict)
    holders: dict[Instruction, dict[int, ValueNode]] = field(default_factory=dict)
    carries: dict[int, ValueNode] = field(default_factory=dict)

    def inputs(self, node: ValueNode) -> Iterator[ValueNode | None]:
        """The nodes that a node is made of; None for what is none."""
        if node.kind == "reading":
            yield self.carries[id(node.carry)]
            return
        for instruction in node.inputs:
            yield self.of.get(instruction)


def build_graph(module: Module) -> ValueGraph:
    """All nodes, each with its readers; bodies of fusions are left alone."""
    effects, wrapped = Effects(module), wrapped_computations(module)
    graph = ValueGraph()
    for computation in module:
        if computation in wrapped:
            continue
        for instruction in computation:
            node = _node(instruction, effects)
            if node is not None:
                graph.nodes.append(node)
                graph.of[instruction] = node
            if instruction.opcode == "while":
                _add_carries(graph, instruction, wrapped)
    _add_readers(graph)
    return graph


def is_f32(shape: Shape) -> bool:
    """Whether this is a static array of f32."""
    return isinstance(shape, ArrayShape) and shape.dtype.name == "f32" and not shape.is_dynamic


def _node(instruction: Instruction, effects: Effects) -> ValueNode | None:
    if not is_f32(instruction.shape) or effects.has(instruction):
        return None
    if instruction.has_control_edges:
        return None
    opcode, operands = instruction.opcode, instruction.operands
    kind, inputs = "", operands
    if opcode in ("convert", "constant"):
        plain = instruction.attributes.keys() <= {"literal"}
        kind, inputs = ("source" if plain else ""), ()
    elif opcode in _MOVING:
        kind, inputs = "moving", tuple(operands[at] for at in _MOVING[opcode])
    elif opcode == "concatenate":
        kind = "moving"
    elif opcode in _CHOOSING:
        kind = "choosing"
    elif is_elementwise(instruction) and opcode not in _LEFT:
        kind = "computing"
    if not kind or not all(is_f32(operand.shape) for operand in inputs):
        return None
    return ValueNode(kind, instruction, inputs, elements=instruction.array.elements)


def _add_carries(graph: ValueGraph, loop: Instruction, wrapped: set[Computation]) -> None:
    """Elements of a loop's state, if nothing but tuples and get-tuple-element hold the state."""
    body, (initial,) = loop.body, loop.operands
    if not is_read_by_element(loop) or not wrapped.isdisjoint((body, loop.condition)):
        return
    if initial.opcode != "tuple" or initial.users != {loop: 1} or initial.is_root:
        return
    if loop.is_tied or initial.is_tied:
        return
    parameters = (body.parameters[0], loop.condition.parameters[0])
    readers = [user for holder in (loop, *parameters) for user in holder.users]
    for index, element in enumerate(loop.elements):
        if not is_f32(element):
            continue
        own = [user for user in readers if user.tuple_index == index]
        if any(user.has_control_edges for user in own):
            continue
        assert isinstance(element, ArrayShape)
        carry = Carry(loop, index, initial, parameters, body.root)
        inputs = (initial.operands[index], body.root.operands[index])
        node = ValueNode("carry", None, inputs, carry, elements=element.elements)
        graph.carries[id(carry)] = node
        graph.nodes.append(node)
        for holder in (initial, body.root):
            graph.holders.setdefault(holder, {})[index] = node
        for user in own:
            graph.of[user] = ValueNode("reading", user, (), carry, elements=element.elements)
            graph.nodes.append(graph.of[user])


def _add_readers(graph: ValueGraph) -> None:
    """Who reads each node: other nodes for its elements, rounding converts, and all the rest."""
    for node in graph.nodes:
        for source in {id(entry): entry for entry in graph.inputs(node) if entry}.values():
            source.readers.append(node)
        instruction = node.instruction
        if instruction is None:
            continue
        if instruction.is_root:
            node.others.append(instruction)
        for user in instruction.users:
            if _rounds(user, instruction):
                node.rounded.append(user)
            elif not _is_element_read(graph, user, instruction):
                node.others.append(user)


def _rounds(user: Instruction, instruction: Instruction) -> bool:
    """Whether a user is a convert to bf16 and nothing else."""
    return (
        user.opcode == "convert"
        and user.array.dtype.name == "bf16"
        and same_layout(user.shape, instruction.array.with_dtype(user.array.dtype))
        and not (user.attributes or user.has_control_edges)
    )


def _is_element_read(graph: ValueGraph, user: Instruction, instruction: Instruction) -> bool:
    """Whether a user takes nothing but elements of an instruction, into nodes."""
    reader = graph.of.get(user)
    if reader is not None:
        return instruction in reader.inputs
    held = graph.holders.get(user, {})
    return all(at in held for at, operand in enumerate(user.operands) if operand is instruction)
