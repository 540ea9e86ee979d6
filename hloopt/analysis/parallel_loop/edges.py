"""How values of a loop's body hang together: what is the same value under another name, what is called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hloopt.analysis.parallel_loop.model import Mixing, Node
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction
from hloopt.ir.walk import has_side_effect
from hloopt.types import ArrayShape, TupleShape, leaves

__all__ = ["Graph", "graph_of", "leaf_count", "shape_of"]

_OPAQUE = frozenset({"custom-call", "rng", "rng-get-and-update-state", "set-dimension-size"})


def leaf_count(instruction: Instruction) -> int:
    """The number of arrays in an instruction's result."""
    return sum(1 for _ in leaves(instruction.shape))


def shape_of(node: Node) -> ArrayShape:
    """The array of a node."""
    instruction, number = node
    if isinstance(instruction.shape, ArrayShape):
        return instruction.shape
    shape = list(leaves(instruction.shape))[number]
    assert isinstance(shape, ArrayShape)
    return shape


@dataclass
class Graph:
    """The instructions of body and condition and of what they call, callers first, operands first.

    ops       instructions that compute
    same      pairs of nodes of which the second is the first under another name
    obstacle  the first instruction that no kernel can run
    """

    ops: list[Instruction] = field(default_factory=list)
    same: list[tuple[Node, Node]] = field(default_factory=list)
    obstacle: Mixing | None = None


def graph_of(loop: Instruction) -> Graph:
    """Body and condition of a ``while``; its state is not linked from trip to trip."""
    graph = Graph()
    _walk(graph, loop.attributes["condition"], set())
    _walk(graph, loop.attributes["body"], set())
    return graph


def _walk(graph: Graph, computation: Computation, seen: set[Computation]) -> None:
    # Calls are nested a few deep.
    if computation in seen:
        return
    seen.add(computation)
    for instruction in computation:
        problem = _problem(instruction)
        if problem and graph.obstacle is None:
            graph.obstacle = Mixing(instruction, problem)
        if problem:
            continue
        for called in _entered(instruction):
            _walk(graph, called, seen)
        pairs = list(_pairs(instruction))
        graph.same += pairs
        if not pairs and instruction.opcode not in ("parameter", "tuple"):
            graph.ops.append(instruction)


def _problem(instruction: Instruction) -> str:
    opcode = instruction.opcode
    if instruction.op.family in ("host", "async", "collective") or opcode in _OPAQUE:
        return f"{opcode} runs outside of kernels"
    if has_side_effect(instruction) and opcode not in ("while", "conditional", "call"):
        return f"{opcode} does more than make its result"
    for shape in leaves(instruction.shape):
        if not isinstance(shape, ArrayShape):
            return f"{opcode} has a result that is no array"
        if not shape.dtype.is_array:
            return (
                f"{opcode} has a {shape.dtype.name} among its results, which orders what is outside"
            )
        if shape.is_dynamic:
            return f"{opcode} has a bounded dynamic dimension"
    return ""


def _entered(instruction: Instruction) -> tuple[Computation, ...]:
    """The computations whose arrays are arrays here."""
    attributes = instruction.attributes
    if instruction.opcode in ("call", "fusion"):
        return (attributes["to_apply" if instruction.opcode == "call" else "calls"],)
    if instruction.opcode == "while":
        return (attributes["condition"], attributes["body"])
    return tuple(branches(instruction)) if instruction.opcode == "conditional" else ()


def _pairs(instruction: Instruction) -> Iterator[tuple[Node, Node]]:
    opcode = instruction.opcode
    if opcode == "get-tuple-element":
        source = instruction.operands[0]
        assert isinstance(source.shape, TupleShape)
        index = instruction.attributes["index"]
        before = sum(len(list(leaves(shape))) for shape in source.shape.elements[:index])
        for leaf in range(leaf_count(instruction)):
            yield (source, before + leaf), (instruction, leaf)
    elif opcode == "tuple":
        number = 0
        for operand in instruction.operands:
            for leaf in range(leaf_count(operand)):
                yield (operand, leaf), (instruction, number)
                number += 1
    elif opcode in ("copy", "opt-barrier", "add-dependency", "domain"):
        yield from _whole(instruction.operands[0], instruction)
    elif opcode in ("call", "fusion"):
        (called,) = _entered(instruction)
        for operand, parameter in zip(instruction.operands, called.parameters, strict=True):
            yield from _whole(operand, parameter)
        yield from _whole(called.root, instruction)
    elif opcode == "conditional":
        for at, called in enumerate(_entered(instruction)):
            yield from _whole(instruction.operands[1 + at], called.parameters[0])
            yield from _whole(called.root, instruction)
    elif opcode == "while":
        condition, body = _entered(instruction)
        for target in (condition.parameters[0], body.parameters[0], instruction):
            yield from _whole(instruction.operands[0], target)
            yield from _whole(body.root, target)


def _whole(source: Instruction, target: Instruction) -> Iterator[tuple[Node, Node]]:
    for leaf in range(leaf_count(source)):
        yield (source, leaf), (target, leaf)
