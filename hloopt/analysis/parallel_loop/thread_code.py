"""The code size of a thread's iteration, and how many elements are written out one by one so that it fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Any, Final

from hloopt.analysis.code_size import MOST_CODE, WRITTEN_ANEW, executed_instructions
from hloopt.analysis.elementwise import first_not_elemental
from hloopt.analysis.index import Index, Indices
from hloopt.analysis.parallel_loop.edges import shape_of
from hloopt.analysis.parallel_loop.model import Axes, LoopNode, ParallelLoop, local_dims
from hloopt.analysis.parallel_loop.thread_plan import IN_LOOPS, UNROLLED, ThreadPlan
from hloopt.analysis.written_code import LineCounter
from hloopt.analysis.written_ops import CodeBlock, ElementRequest, Requests, dot_positions
from hloopt.ir import Instruction
from hloopt.types import DotDims

__all__ = [
    "code_problem",
    "kernel_problem",
    "not_elemental",
    "part_bytes",
    "size_problem",
    "thread_plan",
    "too_long",
]

_LINE_BYTES: Final = 57
"""Of a line that is counted, with its share of what stands around it.

Loops of 25 to 1,600 kB have 50 to 64 a line, longer names make longer lines.
"""

_WINDOW_LINES: Final = 30
"""Of a loop over a window, with tests for its edges."""


def thread_plan(parallel: ParallelLoop) -> ThreadPlan:
    """What a thread keeps; of code that would be too long, fewer elements are variables, more are in arrays."""
    most = MOST_CODE.of(executed_instructions(parallel.loop))
    unrolled = UNROLLED
    while True:
        plan = ThreadPlan(parallel, unrolled)
        if unrolled == 1 or _code_bytes(plan, most) <= most:
            return plan
        unrolled //= 2


def kernel_problem(
    parallel: ParallelLoop, unable: Callable[[Instruction], str], holder: str = ""
) -> dict[str, Any]:
    """Why no kernel runs a loop, as fields of ``LoopMapping``; nothing where one may.

    ``unable`` says what of its ops no kernel of this kind computes; ``holder`` what has one work item.
    """
    loop, work_items = parallel.loop, parallel.work_items
    if parallel.obstacle is not None:
        return {"problem": parallel.obstacle.words, "code": "op"}
    words = unable(loop)
    if not (words or work_items):
        words = "it has no work items: a dimension along its axes is empty"
    for carried in parallel.carried:
        kind = carried.shape.dtype
        if not words and carried.role != "invariant" and kind.bits < 8:
            words = (
                f"elements of {kind.name}, as element {carried.number} of the state has them, share bytes"
                " with their neighbours"
            )
    if words:
        return {"problem": words, "code": "op"}
    if parallel.iterations.kind == "gathered" and work_items > 1:
        words = f"the condition of {loop.name} reads all {work_items} work items{holder}"
        return {"problem": words, "code": "gathered-condition"}
    return {}


def not_elemental(loop: Instruction) -> str:
    """What of a loop a thread cannot compute alone; empty where it can."""
    unable = first_not_elemental((loop,), loops=True)
    if unable is None:
        return ""
    return f"{unable.opcode} {unable.name} cannot be computed by a thread alone"


def size_problem(parallel: ParallelLoop, *sizes: tuple[int, int, str]) -> dict[str, Any]:
    """The first of ``sizes`` above its limit, as fields of ``LoopMapping``: what it takes, the limit, words.

    The first instruction that mixes what might have been work items makes a work item that large.
    """
    for actual, limit, words in sizes:
        if actual > limit:
            because = f": {parallel.mixing[0].words}" if parallel.mixing else ""
            code = "mixes" if parallel.mixing else "state-too-large"
            words = words.format(actual, limit) + because
            return {"problem": words, "code": code, "limit": limit, "actual": actual}
    return {}


def part_bytes(parallel: ParallelLoop, groups: int) -> int:
    """What so many groups of work items leave of collected reduces until the loop is done."""
    return sum(
        (parallel.iterations.count or 0)
        * groups
        * reduce.array.elements
        * max(reduce.array.dtype.bits // 8, 4)
        for reduce in parallel.collected
    )


def code_problem(plan: ThreadPlan) -> dict[str, Any]:
    """What a mapping lacks whose code would be too long, as fields of ``LoopMapping``; else nothing."""
    return too_long(plan.parallel.loop, _code_bytes(plan, MOST_CODE.most))


def too_long(loop: Instruction, size: int) -> dict[str, Any]:
    """As ``code_problem``, for code of so many bytes."""
    most = MOST_CODE.of(executed_instructions(loop))
    if size <= most:
        return {}
    words = f"its code would have {size} bytes, {most} at most for a body of this length"
    return {"problem": words, "code": "code-size", "limit": most, "actual": size}


def _code_bytes(plan: ThreadPlan, most: int) -> int:
    """Bytes of the loop, about; of code above ``most``, some number above it."""
    room = min(WRITTEN_ANEW.of(executed_instructions(plan.parallel.loop)), most)
    size = _Iteration(plan, room // _LINE_BYTES, shares=False).lines * _LINE_BYTES
    if size > room:
        size = _Iteration(plan, most // _LINE_BYTES, shares=True).lines * _LINE_BYTES
    return size + sum(_code_bytes(inner, most) for inner in plan.inner)


class _Iteration(LineCounter):
    """Walks an iteration as ``codegen/loops/running.py`` writes it."""

    def __init__(self, plan: ThreadPlan, most: int, *, shares: bool) -> None:
        super().__init__({}, (), most, shares=shares)
        self.plan = plan
        self.kept: set[Instruction] = set()
        parallel = plan.parallel
        self.state = {one.number for one in parallel.carried if one.role in ("uniform", "owned")}
        self.work_item = tuple(self.symbol(size - 1) for size in parallel.sizes)
        self.top = CodeBlock()
        if parallel.iterations.kind != "known":
            self._all((parallel.iterations.own or parallel.loop.condition.root, 0))
        for value in plan.stored:
            self._all((value, 0))
            self.kept.add(value)
        for reduce in parallel.collected:
            self._all((reduce.operands[0], 0))
        for carried in parallel.carried:
            if carried.update is not None:
                for place in carried.update.operands[2:]:
                    self._all((place, 0))
                self._all((carried.update.operands[1], 0), carried.axes)
            elif carried.role != "invariant":
                self._all((parallel.loop.body.root.operands[carried.number], 0), carried.axes)

    def _all(self, node: LoopNode, axes: Axes | None = None) -> None:
        """All elements of a value that a work item has."""
        shape = shape_of(node)
        axes = axes or self.plan.axes(node) or (None,) * shape.rank
        sizes = local_dims(shape, axes)

        def one(local: Indices, block: CodeBlock) -> Iterator[ElementRequest]:
            rest = iter(local)
            index = tuple(self.work_item[axis] if axis is not None else next(rest) for axis in axes)
            self.lines += 1
            yield node[0], index, block

        for request in self._every(sizes, self.top, self.work_item, one):
            self.write(request)

    def _every(
        self,
        sizes: Sequence[int],
        block: CodeBlock,
        around: Indices,
        one: Callable[[Indices, CodeBlock], Iterator[ElementRequest]],
    ) -> Iterator[ElementRequest]:
        """As ``every`` of ``codegen/elements.py``."""
        if prod(sizes) <= self.plan.unrolled:
            for place in product(*map(range, sizes)):
                yield from one(tuple(map(Index, place)), block)
            return
        self.lines += 1 + 2 * sum(size != 1 for size in sizes)
        yield from one(tuple(self.symbol(size - 1) for size in sizes), block.branch(around))

    def element(self, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
        """As written by a thread: what it keeps is there, what it takes in is written out."""
        opcode = instruction.opcode
        source = instruction.operands[0] if opcode == "get-tuple-element" else instruction
        if source.opcode == "parameter" or instruction in self.kept:
            number = instruction.attributes.get("index") if source is not instruction else None
            in_variables = instruction in self.kept or number in self.state
            self.lines += not (in_variables and all(at.is_constant for at in index))
        elif opcode == "dot":
            yield from self._dot(instruction, index, block)
        elif opcode == "reduce":
            yield from self._reduce(instruction, index, block)
        elif opcode in IN_LOOPS:
            self.lines += _WINDOW_LINES
            inner = block.branch(index)
            for operand in instruction.operands:
                yield operand, self.anywhere(operand.array.dims), inner
        else:
            yield from super().element(instruction, index, block)

    def _dot(self, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
        lhs, rhs = instruction.operands[:2]
        dims = DotDims.of(instruction.attributes)

        def one(contracted: Indices, block: CodeBlock) -> Iterator[ElementRequest]:
            left, right = dot_positions(instruction, index, contracted)
            self.lines += 2
            yield lhs, left, block
            yield rhs, right, block

        self.lines += 1
        sizes = [lhs.array.dims[at] for at in dims.lhs_contracting]
        yield from self._every(sizes, block, index, one)

    def _reduce(self, instruction: Instruction, index: Indices, block: CodeBlock) -> Requests:
        count = len(instruction.operands) // 2
        inputs = instruction.fold_inputs
        dims = inputs[0].array.dims
        along = sorted(instruction.attributes["dimensions"])
        taken = max(2 * count, executed_instructions(instruction) - 2 * count)
        for init in instruction.fold_inits:
            yield init, (), block

        def one(places: Indices, block: CodeBlock) -> Iterator[ElementRequest]:
            kept, reduced = iter(index), iter(places)
            position = tuple(next(reduced if at in along else kept) for at in range(len(dims)))
            self.lines += taken
            for operand in inputs:
                yield operand, position, block

        self.lines += count
        yield from self._every([dims[at] for at in along], block, index, one)
