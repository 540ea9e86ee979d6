"""Edges between values of a loop's body: which names stand for the same value, what is called."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from hloopt.analysis.parallel_loop.model import Dependence, LoopNode
from hloopt.dataclass import dataclass
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import has_side_effect
from hloopt.ops.traits import BODIES, FORWARDING, RANDOM, SIZES
from hloopt.types import ArrayShape, TupleShape, leaves

__all__ = [
    "BODY",
    "CONDITION",
    "CallPath",
    "LoopGraph",
    "LoopNames",
    "LoopValue",
    "entered",
    "graph_of",
    "leaf_count",
    "nodes_of",
    "reached",
    "regrouped",
    "shape_of",
]

CONDITION, BODY = 0, 1
"""The numbers of a loop's computations in a path."""

CallPath: TypeAlias = "tuple[tuple[Instruction, int], ...]"
"""What was entered, outermost first: a call or fusion (0), a branch by its number, a loop's computation."""

_OPAQUE = RANDOM - {"rng-bit-generator"} | SIZES


def leaf_count(instruction: Instruction) -> int:
    """The number of arrays in an instruction's result."""
    shape = instruction.shape
    return len(shape.leaves) if isinstance(shape, TupleShape) else 1


def regrouped(instruction: Instruction) -> Sequence[LoopNode]:
    """The arrays that are those of a ``tuple`` or ``get-tuple-element``, in their order."""
    if instruction.opcode == "tuple":
        return [node for operand in instruction.operands for node in nodes_of(operand)]
    first = _first_leaf(instruction)
    return nodes_of(instruction.operands[0])[first : first + leaf_count(instruction)]


def _first_leaf(read: Instruction) -> int:
    """The first leaf of its operand that a ``get-tuple-element`` reads."""
    shape = read.operands[0].shape
    assert isinstance(shape, TupleShape)
    number: int = read.attributes["index"]
    return shape.first_leaves[number]


def nodes_of(instruction: Instruction) -> Sequence[LoopNode]:
    """The arrays in an instruction's result."""
    shape = instruction.shape
    if isinstance(shape, TupleShape):
        return [(instruction, leaf) for leaf in range(len(shape.leaves))]
    return ((instruction, 0),)


def shape_of(node: LoopNode) -> ArrayShape:
    """The array of a node."""
    instruction, number = node
    whole = instruction.shape
    shape = whole.leaves[number] if isinstance(whole, TupleShape) else whole
    assert isinstance(shape, ArrayShape)
    return shape


@dataclass(frozen=True, slots=True)
class LoopValue:
    """Leaf ``leaf`` of an instruction, in the place that ``path`` leads to."""

    path: CallPath
    instruction: Instruction
    leaf: int = 0

    @property
    def shape(self) -> ArrayShape:
        """Of the whole array."""
        return shape_of((self.instruction, self.leaf))


@dataclass
class LoopGraph:
    """The instructions of body and condition and of what they call, callers first, operands first.

    ops       instructions that compute
    same      pairs of nodes of which the second is the first under another name
    chosen    pairs of a node that says which computation runs, or how often, and one of the results
    loops     nested loops, inner ones first
    order     all instructions; those that enter others before and after what they enter
    pairs     of each instruction those of ``same`` that it makes
    obstacle  the first instruction that no kernel can run
    """

    ops: list[Instruction] = field(default_factory=list)
    same: list[tuple[LoopNode, LoopNode]] = field(default_factory=list)
    chosen: list[tuple[LoopNode, LoopNode]] = field(default_factory=list)
    loops: list[Instruction] = field(default_factory=list)
    order: list[Instruction] = field(default_factory=list)
    pairs: dict[Instruction, list[tuple[LoopNode, LoopNode]]] = field(default_factory=dict)
    obstacle: Dependence | None = None

    def users(self) -> dict[LoopNode, list[LoopNode]]:
        """For each node those that need it; the state is not linked from iteration to iteration."""
        found: dict[LoopNode, list[LoopNode]] = defaultdict(list)
        for source, target in (*self.same, *self.chosen):
            found[source].append(target)
        for instruction in self.ops:
            results = nodes_of(instruction)
            for operand in instruction.operands:
                for node in nodes_of(operand):
                    found[node] += results
        return found


def reached(
    users: Mapping[LoopNode, list[LoopNode]], start: Iterable[LoopNode]
) -> dict[LoopNode, None]:
    """The nodes that need one of ``start``, themselves included."""
    found: dict[LoopNode, None] = {}
    pending = list(start)
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            pending += users.get(node, ())
    return found


def graph_of(loop: Instruction) -> LoopGraph:
    """Body and condition of a ``while``; its state is not linked from iteration to iteration."""
    graph = LoopGraph()
    seen: set[Computation] = set()
    _walk(graph, loop.condition, seen)
    _walk(graph, loop.body, seen)
    return graph


def _walk(graph: LoopGraph, computation: Computation, seen: set[Computation]) -> None:
    # Calls are nested a few deep.
    if computation in seen:
        return
    seen.add(computation)
    for instruction in computation:
        problem = _problem(instruction)
        if problem:
            # What needs a token's order says more than the token.
            if graph.obstacle is None or graph.obstacle.instruction.opcode == "after-all":
                graph.obstacle = Dependence(instruction, problem)
            continue
        called = entered(instruction)
        if called:
            graph.order.append(instruction)
        for one in called:
            _walk(graph, one, seen)
        graph.order.append(instruction)
        if instruction.opcode == "while":
            graph.loops.append(instruction)
        graph.chosen += _choices(instruction)
        pairs = list(_pairs(instruction))
        graph.pairs[instruction] = pairs
        graph.same += pairs
        if not pairs and instruction.opcode not in ("parameter", "tuple"):
            graph.ops.append(instruction)


def _problem(instruction: Instruction) -> str:
    opcode = instruction.opcode
    named = f"{opcode} {instruction.name}"
    if opcode == "custom-call":
        target = instruction.custom_call_target
        return f'{named} calls "{target}", which is not code of this module'
    if instruction.op.family in ("host", "async", "collective") or opcode in _OPAQUE:
        return f"{named} runs outside of kernels"
    if opcode not in BODIES and has_side_effect(instruction):
        return f"{named} does more than make its result"
    for shape in leaves(instruction.shape):
        if not isinstance(shape, ArrayShape):
            return f"{named} has a result that is not an array"
        if not shape.dtype.is_array:
            return f"{named} has a {shape.dtype.name}, which orders what is outside of kernels"
        if shape.is_dynamic:
            return f"{named} has a bounded dynamic dimension"
    return ""


def entered(instruction: Instruction) -> tuple[Computation, ...]:
    """The computations whose arrays are arrays here."""
    attributes = instruction.attributes
    if instruction.opcode in ("call", "fusion"):
        return (attributes["to_apply" if instruction.opcode == "call" else "calls"],)
    if instruction.opcode == "while":
        return (attributes["condition"], attributes["body"])
    return tuple(branches(instruction)) if instruction.opcode == "conditional" else ()


def _choices(instruction: Instruction) -> Iterator[tuple[LoopNode, LoopNode]]:
    if instruction.opcode == "conditional":
        for node in nodes_of(instruction):
            yield (instruction.operands[0], 0), node
    elif instruction.opcode == "while":
        condition, body = entered(instruction)
        for end in (instruction, body.parameters[0], condition.parameters[0]):
            for node in nodes_of(end):
                yield (condition.root, 0), node


def _pairs(instruction: Instruction) -> Iterator[tuple[LoopNode, LoopNode]]:
    opcode = instruction.opcode
    if opcode in ("tuple", "get-tuple-element"):
        yield from zip(regrouped(instruction), nodes_of(instruction), strict=True)
    elif opcode in FORWARDING:
        yield from _whole(instruction.operands[0], instruction)
    elif opcode in ("call", "fusion"):
        (called,) = entered(instruction)
        for operand, parameter in zip(instruction.operands, called.parameters, strict=True):
            yield from _whole(operand, parameter)
        yield from _whole(called.root, instruction)
    elif opcode == "conditional":
        for at, called in enumerate(entered(instruction)):
            yield from _whole(instruction.operands[1 + at], called.parameters[0])
            yield from _whole(called.root, instruction)
    elif opcode == "while":
        condition, body = entered(instruction)
        for target in (condition.parameters[0], body.parameters[0], instruction):
            yield from _whole(instruction.operands[0], target)
            yield from _whole(body.root, target)


def _whole(source: Instruction, target: Instruction) -> Iterator[tuple[LoopNode, LoopNode]]:
    for leaf in range(leaf_count(source)):
        yield (source, leaf), (target, leaf)


class LoopNames:
    """What names stand for within one loop.

    A ``LoopValue`` is an array wherever it is computed; other names for it (elements of tuples, parameters of
    what is called, copies) are resolved to it.  What a loop inside passes through is what it was before it.
    """

    def __init__(self) -> None:
        self._invariant: dict[Instruction, frozenset[int]] = {}

    def resolve(self, path: CallPath, instruction: Instruction, leaf: int = 0) -> LoopValue:
        """The value behind a name.  Outside of the loop nothing is looked through."""
        return self._traced(path, instruction, leaf, 0)

    def _traced(self, path: CallPath, instruction: Instruction, leaf: int, floor: int) -> LoopValue:
        """As ``resolve``; parameters of what the first ``floor`` steps enter are left as they are."""
        while path:
            opcode = instruction.opcode
            if opcode == "get-tuple-element":
                leaf += _first_leaf(instruction)
                instruction = instruction.operands[0]
            elif opcode == "tuple":
                shape = instruction.shape
                assert isinstance(shape, TupleShape)
                number = bisect_right(shape.first_leaves, leaf) - 1
                leaf -= shape.first_leaves[number]
                instruction = instruction.operands[number]
            elif opcode in FORWARDING:
                instruction = instruction.operands[0]
            elif opcode in ("call", "fusion"):
                path = (*path, (instruction, 0))
                instruction = entered(instruction)[0].root
            elif opcode == "while" and leaf in self.invariant(instruction):
                instruction = instruction.operands[0]
            elif opcode == "parameter":
                if len(path) <= floor:
                    break
                caller, number = path[-1]
                if caller.opcode == "while":
                    if leaf not in self.invariant(caller):
                        return LoopValue(
                            (*path[:-1], (caller, BODY)), caller.body.parameters[0], leaf
                        )
                    position = 0
                elif caller.opcode == "conditional":
                    position = 1 + number
                else:
                    position = instruction.parameter_number
                path, instruction = path[:-1], caller.operands[position]
            else:
                break
        return LoopValue(path, instruction, leaf)

    def invariant(self, loop: Instruction) -> frozenset[int]:
        """The leaves of a loop's state that its body passes through."""
        found = self._invariant.get(loop)
        if found is None:
            body = loop.body
            path: CallPath = ((loop, BODY),)
            found = frozenset(
                leaf
                for leaf in range(leaf_count(loop))
                if self._traced(path, body.root, leaf, 1)
                == LoopValue(path, body.parameters[0], leaf)
            )
            self._invariant[loop] = found
        return found
