"""How much code an instruction's kernel would have, by walking it in the order in which the emitters write it.

To compute an element is to request elements of the operands, each at an index.  An element requested before at
the same index, in the same block of code or an enclosing one, is a variable already; any other is written.
Branches of a concatenate, a pad and an update are blocks of their own, and the indices of a gather depend on
data: there the code for one value can double from reader to reader.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Final

from hloopt.analysis.code_size import MOST_CODE, WRITTEN_ANEW
from hloopt.analysis.index import Indices, delinearize, symbols_of
from hloopt.analysis.written_ops import (
    WRITE,
    CodeBlock,
    Counter,
    ElementRequest,
    Requests,
    write_other,
)
from hloopt.dataclass import dataclass
from hloopt.ir import Instruction
from hloopt.types import ArrayShape, Literal, leaves

__all__ = ["LINE_BYTES", "LineCounter", "Written", "body_size", "elements_of_thread", "written"]

LINE_BYTES: Final = 60
"""Of a line that is counted, with its share of what stands around it.

Loop and concatenate kernels of 3 to 230 kB have 50 to 68 a line.
"""


@dataclass(frozen=True, slots=True)
class Written:
    """The bytes of a kernel's code for one element of each result, about.

    instructions   those that differ, operands among them; of several joined, no more than there are
    reads          how often the code that computes an operand would be written
    """

    size: int
    instructions: int
    reads: Mapping[Instruction, int]

    def joined(self, producer: Instruction, other: Written, *, is_result: bool) -> Written:
        """At most this, when a producer whose code is ``other`` has joined."""
        times = self.reads.get(producer, 0) + is_result
        reads = dict(self.reads)
        reads.pop(producer, None)
        for operand, number in other.reads.items():
            reads[operand] = reads.get(operand, 0) + times * number
        most = max(self.instructions, other.instructions)
        return Written(self.size + times * other.size, most, reads)


def body_size(instruction: Instruction) -> int:
    """The instructions of a fusion; 1 for an op."""
    return len(instruction.calls) if instruction.opcode == "fusion" else 1


def written(
    consumer: Instruction,
    most: int,
    producer: Instruction | None = None,
    *,
    is_result: bool = False,
) -> Written:
    """The code size of an op or fusion, with a producer in it, whose results may be results of both.

    Where it exceeds ``most`` bytes, it is some larger number.
    """
    body = _Body([consumer] if producer is None else [producer, consumer])
    roots = list(_results(body.first[consumer]))
    if producer is not None and is_result:
        roots += _results(body.first[producer])
    for shares in (False, True):
        room = most if shares else min(most, WRITTEN_ANEW.of(body.size))
        found = _write(body, roots, room, shares=shares)
        if found.size <= room:
            break
    return found


def elements_of_thread(instruction: Instruction, most: int) -> int:
    """How many neighbours a thread computes by code for each: ``most``, or a half, a quarter ... of it."""
    if instruction.opcode != "fusion" or most == 1:
        return most
    room = MOST_CODE.of(body_size(instruction))
    size = written(instruction, room).size
    while most > 1 and size * most > room:
        most //= 2
    return most


def _results(root: Instruction) -> Sequence[Instruction]:
    return root.operands if root.opcode == "tuple" else (root,)


class _Body:
    """What ops and fusions compute together, each thing once: ``first`` stands for all that are equal to it."""

    def __init__(self, parts: Sequence[Instruction]) -> None:
        self.first: dict[Instruction, Instruction] = {}
        self.outside: dict[Instruction, None] = {}
        seen: dict[Hashable, Instruction] = {}
        for part in parts:
            for operand in part.operands:
                if operand not in self.first:
                    self.first[operand] = operand
                    self.outside[operand] = None
            body: Iterable[Instruction] = (part,)
            if part.opcode == "fusion":
                body = computation = part.calls
                for at, parameter in enumerate(computation.parameters):
                    self.first[parameter] = self.first[part.operands[at]]
            for one in body:
                if one.opcode != "parameter":
                    self.first[one] = seen.setdefault(self._key(one), one)
            if part.opcode == "fusion":
                self.first[part] = self.first[part.calls.root]
        self.size = len(self.outside) + len(seen)

    def _key(self, one: Instruction) -> Hashable:
        operands = tuple(self.first[operand] for operand in one.operands)
        attributes = tuple(
            (name, _hashable(one.attributes[name])) for name in sorted(one.attributes)
        )
        return one.opcode, one.shape, operands, attributes


def _hashable(value: object) -> Hashable:
    if isinstance(value, Literal):
        return value.key
    return value if isinstance(value, Hashable) else str(value)


def _write(body: _Body, roots: Iterable[Instruction], most: int, *, shares: bool) -> Written:
    """All results, each at a separate index; those of one form at the same."""
    writer = LineCounter(body.first, body.outside, most // LINE_BYTES, shares=shares)
    indices: dict[tuple[int, ...], Indices] = {}
    block = CodeBlock()
    for result in roots:
        shape = next(leaves(result.shape), None)
        dims = shape.dims if isinstance(shape, ArrayShape) else ()
        if dims not in indices:
            indices[dims] = delinearize(writer.symbol(prod(dims) - 1), dims)
        writer.write((result, indices[dims], block))
    return Written(writer.lines * LINE_BYTES, body.size, writer.reads)


class LineCounter(Counter):
    """Counts lines, until they are more than ``most``; ``shares`` as in ``codegen/elements.py``.

    ``reads`` counts how often each value of ``outside`` is read.
    """

    def __init__(
        self,
        first: Mapping[Instruction, Instruction],
        outside: Iterable[Instruction],
        most: int,
        *,
        shares: bool,
    ) -> None:
        super().__init__(first)
        self.most = most
        self.shares = shares
        self.reads = dict.fromkeys(outside, 0)

    def write(self, wanted: ElementRequest) -> None:
        """An element, and all that it is computed from."""
        stack: list[Iterator[ElementRequest]] = [iter((wanted,))]
        while stack and self.lines <= self.most:
            request = next(stack[-1], None)
            if request is None:
                stack.pop()
                continue
            instruction, index, block = (
                self.first.get(request[0], request[0]),
                request[1],
                request[2],
            )
            if self.shares:
                block = _earliest(instruction, index, block)
            if block.has((instruction, index)):
                continue
            # Recorded before it is written: blocks close in the order they open, so no request comes earlier.
            block.known.add((instruction, index))
            stack.append(self.element(instruction, index, block))

    def element(self, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
        """Count the lines of one element; requests those it is computed from."""
        if instruction in self.reads:
            self.reads[instruction] += 1
            self.lines += 1
            return
        write = WRITE.get(instruction.opcode)
        if write is not None:
            yield from write(self, instruction, index, block)
        elif instruction.op.is_elementwise:
            self.lines += 1
            for operand in instruction.operands:
                yield operand, index if operand.array.rank else (), block
        else:
            yield from write_other(self, instruction, index, block)


def _earliest(instruction: Instruction, index: Indices, block: CodeBlock) -> CodeBlock:
    """The first block in which an element can be computed, needed or not: it must exist in the array."""
    if not block.before or not isinstance(instruction.shape, ArrayShape):
        return block
    for at, size in zip(index, instruction.shape.dims, strict=False):
        if at.low < 0 or at.high >= size:
            return block
    needed = frozenset(symbols_of(index))
    return next((outer for outer, symbols in block.before if needed <= symbols), block)
