"""The computation of single elements of instructions, from which every kernel is made.

``Elements.value(instruction, index)`` writes the statements that compute an element and returns its variable.
The emitters (``codegen/elemental``) are generators: they yield the elements they need of their operands
(``At``) and are sent the values, so that fusions of any depth need no recursion.  In a block each element is
computed once.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import gcd
from typing import TYPE_CHECKING, Any, TypeVar

from hloopt.analysis.index import Index, Indices, Symbol, linearize, symbols_of
from hloopt.analysis.parallel_loop import ParallelLoop
from hloopt.analysis.region import Region
from hloopt.codegen import position_of
from hloopt.codegen.device import Uses
from hloopt.codegen.emission import At, Emission, EmissionFrame, Emit, ValuePlace, each
from hloopt.codegen.scalars import are_constants, elementwise, literal
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction
from hloopt.kernel_ir.expressions import Array, ArrayValue, Expr, Operand, Var, as_expr, both
from hloopt.kernel_ir.scope import Scope
from hloopt.kernel_ir.types import Type
from hloopt.kernels.kernel import unsupported
from hloopt.ops.traits import PLUMBING
from hloopt.types import ArrayShape, DType, leaves

if TYPE_CHECKING:
    from hloopt.codegen.loads import Loads
    from hloopt.codegen.loops.running import Running

__all__ = ["Elements"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Before:
    """Lines right before a block that is being written, for what is invariant in it.

    scope    in which the block stands
    section  the lines
    changes  of the scope when the block began: a statement since may have made known what the lines lack
    frame    whose elements go there
    symbols  the variables that are there
    """

    scope: Scope
    section: Scope
    changes: int
    frame: EmissionFrame
    symbols: frozenset[Symbol]


class Elements:
    """Writes elements of a region into a block of a function.

    memory    where the operands lie that the function is given, by the number of the leaf
    scope     where the next statement goes; ``within`` changes it for a while
    places    leaves of values that are kept somewhere, frame by frame
    ranges    names whose bounds are known
    owned     the axes of parallel loops that dimensions lie along
    alone     where a work item is along dimensions of reduces that it folds over its own elements alone
    unrolled  how many elements of a reduce or dot are written out one by one at most
    loops     what is known of loops inside
    runs      those that have been written
    reads_ahead  whether loops read some iterations ahead; processors that prefetch by themselves do not need it
    shares   whether what blocks of branches and loops have in common is computed before them, needed or not:
             code that would be written for each of them anew is written once
    """

    def __init__(
        self, region: Region, memory: dict[int, Array], uses: Uses, scope: Scope, loads: Loads
    ) -> None:
        self.region = region
        self.memory = memory
        self.uses = uses
        self.scope = scope
        self.loads = loads
        self.frames: dict[tuple[object, ...], EmissionFrame] = {}
        self.places: dict[tuple[EmissionFrame, Instruction, int], ValuePlace] = {}
        self.ranges: dict[Expr, Index] = {}
        self.owned: dict[tuple[Instruction, int], tuple[int | None, ...]] = {}
        self.alone: dict[Instruction, dict[int, Index]] = {}
        self.unrolled = 0
        self.loops: dict[Instruction, ParallelLoop] = {}
        self.runs: list[Running] = []
        self.reads_ahead = True
        self.shares = False
        self._before: list[_Before] = []
        self._top = EmissionFrame({})
        self.frame = self._top
        self._emitters = _emitters()

    def value(self, instruction: Instruction, index: Sequence[Index] = (), leaf: int = 0) -> Expr:
        """Write what computes an element, and return its variable (or a literal)."""
        return self.run(self._ask(At(instruction, tuple(index), leaf)))

    def run(self, emission: Generator[At, Expr, T]) -> T:
        """Drive a generator: answer its requests, by other generators' values where needed."""
        stack: list[tuple[Generator[At, Expr, Any], EmissionFrame]] = [(emission, self.frame)]
        answer: Any = None
        while stack:
            generator, self.frame = stack[-1]
            try:
                wanted = next(generator) if answer is None else generator.send(answer)
            except StopIteration as finished:
                stack.pop()
                answer = finished.value
                continue
            frame = wanted.frame or self.frame
            answer = self._known(wanted, frame)
            if answer is None:
                before = self._place_before(wanted, frame) if self._before else None
                element = self._element(wanted, frame)
                stack.append((element if before is None else self._into(before, element), frame))
        value: T = answer
        return value

    @contextmanager
    def before(self, index: Sequence[Index], frame: EmissionFrame | None = None) -> Iterator[None]:
        """Around a block that begins now, where statements may need an index: see ``shares``.

        Of ``frame``, this one where none is given, elements go there.
        """
        if not self.shares:
            yield
            return
        section, changes = self.scope.section(), self.scope.changes
        symbols = frozenset(symbols_of(index))
        self._before.append(_Before(self.scope, section, changes, frame or self.frame, symbols))
        yield
        self._before.pop()

    def _place_before(self, at: At, frame: EmissionFrame) -> Scope | None:
        """The first lines, before the blocks that are being written, where an element can be computed.

        It is computed whether it is needed or not, so it must be one that the array has.
        """
        if at.instruction.opcode in PLUMBING:
            return None
        shape = list(leaves(at.instruction.shape))[at.leaf]
        if not isinstance(shape, ArrayShape) or any(
            place.low < 0 or place.high >= size
            for place, size in zip(at.index, shape.dims, strict=True)
        ):
            return None
        needed = frozenset(symbols_of(at.index))
        for before in self._before:
            if (
                before.frame is frame
                and needed <= before.symbols
                and before.changes == before.scope.changes
                and before.scope.is_around(self.scope)
            ):
                return before.section
        return None

    def _into(self, scope: Scope, emission: Emission) -> Emission:
        with self.within(scope):
            return (yield from emission)

    @contextmanager
    def within(self, scope: Scope) -> Iterator[Scope]:
        """Write into another block."""
        before, self.scope = self.scope, scope
        try:
            yield scope
        finally:
            self.scope = before

    @contextmanager
    def when(self, *tests: Operand) -> Iterator[Scope]:
        """Write into a block where all of ``tests`` hold; into this one where there are none."""
        if not tests:
            yield self.scope
            return
        with self.within(self.scope.when(both(tests))) as block:
            yield block

    def remember(
        self, instruction: Instruction, index: Sequence[Index], leaf: int, name: Operand
    ) -> None:
        """Record the name of an element in the current block: it is not computed again there."""
        self.scope.remember((self.frame, instruction, leaf, tuple(index)), name)

    def declare(self, kind: DType, value: Operand, hint: str) -> Var:
        """Declare an element that never changes, here; returns its name."""
        return self.scope.declare(self.uses.type(kind), value, hint)

    def variable(self, kind: DType, hint: str, value: Operand | None = None) -> Var:
        """Declare an element that will change, here; returns its name."""
        return self.scope.variable(self.uses.type(kind), hint, value)

    def symbol(self, value: Operand, hint: str, low: int, high: int) -> Index:
        """Name an integer known to lie between ``low`` and ``high``."""
        if isinstance(value, Index) and value.is_constant:
            return value
        if isinstance(value, Index) and len(value.terms) == 1 and not value.constant:
            atom, count = value.terms[0]
            if isinstance(atom, Symbol) and count == 1 and atom.low >= low and atom.high <= high:
                return value
        key = ("symbol", as_expr(value), low, high)
        name = self.scope.known(key)
        if name is None:
            name = self.scope.declare(self.loads.index_type, value, hint)
            self.scope.remember(key, name)
        assert isinstance(name, Var), "an index has a name"
        multiple = value.multiple if isinstance(value, Index) else 1
        return Symbol(name.name, low, high, multiple or 1).index

    def loop(self, size: int, hint: str) -> tuple[Scope, Index]:
        """``for (int i = 0; i < size; ++i) {``: its block, and the counter."""
        block, counter = self.scope.loop(0, size, hint, self.loads.index_type)
        return block, Symbol(counter.name, 0, size - 1).index

    @contextmanager
    def counting(
        self,
        first: Operand,
        stop: Index | int,
        hint: str,
        step: int = 1,
        *,
        type: Type | None = None,
        unroll: int | None = None,
    ) -> Iterator[Index]:
        """Around the block of a loop from ``first`` to below ``stop``; gives the counter.

        A range of one iteration, from 0 to below 1, needs no loop.
        """
        begin = Index(first) if isinstance(first, int) else first
        if begin == Index(0) and stop == 1:
            yield Index(0)
            return
        kind = type or self.loads.index_type
        block, counter = self.scope.loop(first, stop, hint, kind, step, unroll=unroll)
        multiple = gcd(begin.multiple, step) if isinstance(begin, Index) else 1
        with self.within(block):
            last = max(0, (stop if isinstance(stop, int) else stop.high) - 1)
            yield Symbol(counter.name, 0, last // multiple * multiple, multiple).index

    def call(
        self, computation: Computation, arguments: Sequence[Operand], index: Indices = ()
    ) -> Generator[At, Expr, list[Expr]]:
        """Write out a computation of scalars at once; returns the names of its results.

        A computation of arrays will do where it is elementwise: ``index`` is then where all of them are.
        """
        frame = EmissionFrame(
            dict(zip(computation.parameters, map(as_expr, arguments), strict=True))
        )
        root = computation.root
        if root.opcode == "tuple":
            return (yield from each(At(operand, index, 0, frame) for operand in root.operands))
        count = sum(1 for _ in leaves(root.shape))
        return (yield from each(At(root, index, leaf, frame) for leaf in range(count)))

    def enter(self, computation: Computation, operands: Sequence[Instruction]) -> EmissionFrame:
        """The frame of a computation whose parameters are instructions here, of any shape."""
        here = self.frame
        return EmissionFrame(
            {
                parameter: (here, operand)
                for parameter, operand in zip(computation.parameters, operands, strict=True)
            }
        )

    def _ask(self, at: At) -> Emission:
        return (yield at)

    def _known(self, at: At, frame: EmissionFrame) -> Expr | None:
        bound = frame.bindings.get(at.instruction)
        if isinstance(bound, Expr):
            return bound
        return self.scope.known((frame, at.instruction, at.leaf, at.index))

    def _element(self, at: At, frame: EmissionFrame) -> Emission:
        instruction = at.instruction
        scope = self.scope
        bound = frame.bindings.get(instruction)
        place = self.places.get((frame, instruction, at.leaf))
        if place is not None and place.holds(self, at.index):
            name = yield from place.element(self, at.index)
        elif isinstance(bound, tuple):
            name = yield At(bound[1], at.index, at.leaf, bound[0])
        elif frame is self._top and instruction in self.region.inputs:
            name = self._input(instruction, at)
        elif instruction.opcode == "constant":
            name = self._constant(instruction, at)
        elif instruction.op.is_elementwise and instruction.opcode not in self._emitters:
            name = yield from self._elementwise(instruction, at)
        else:
            emit = self._emitters.get(instruction.opcode)
            if emit is None:
                raise unsupported(instruction, "has no place inside a kernel")
            name = yield from emit(self, instruction, at.index, at.leaf)
        # Blocks are closed in the order they were opened, so this is where the request came from.
        scope.remember((frame, instruction, at.leaf, at.index), name)
        return name

    def _elementwise(self, instruction: Instruction, at: At) -> Emission:
        if not isinstance(instruction.shape, ArrayShape):
            # A copy of a tuple.
            return (yield At(instruction.operands[0], at.index, at.leaf))
        # A scalar pred of select and scalar bounds of clamp hold for every element.
        names = yield from each(
            At(operand, at.index if operand.array.rank else ()) for operand in instruction.operands
        )
        expression = elementwise(instruction, names, self.uses)
        return self.declare(instruction.array.dtype, expression, instruction.name)

    def _input(self, instruction: Instruction, at: At) -> Expr:
        number = self.region.inputs[instruction] + at.leaf
        shape = self.region.operands[number]
        inlined = self.region.inlined(number)
        if inlined is not None:
            return literal(inlined, shape.dtype)
        pointer = self.memory.get(self.region.canonical(number))
        if pointer is None:
            raise AssertionError(f"{self.region.instruction.name} is not given operand {number}")
        return self.load(pointer, position_of(at.index, shape), shape, instruction.name)

    def load(self, memory: Array, linear: Index, shape: ArrayShape, hint: str) -> Expr:
        """Read one element of memory, as part of a vector where its neighbours are wanted, too."""
        key = ("load", memory, linear)
        name = self.scope.known(key)
        if name is None:
            name = self.loads.read(self, memory, linear, shape, hint)
            self.scope.remember(key, name)
        return name

    def _constant(self, instruction: Instruction, at: At) -> Expr:
        value = instruction.literal
        if value is None or value.array is None:
            raise unsupported(instruction, "has no value: the text leaves it out")
        array, kind = value.array, instruction.array.dtype
        if value.splat is not None:
            return literal(value.splat[()], kind)
        if all(position.is_constant for position in at.index):
            element = array[tuple(position.constant for position in at.index)]
            return literal(element, kind)
        if array.size > _MOST_CONSTANTS:
            raise unsupported(
                instruction,
                f"has {array.size} elements; a kernel holds constants of at most {_MOST_CONSTANTS}",
            )
        key = ("table", instruction)
        known = self.scope.known(key)
        if known is None:
            values = [literal(element, kind) for element in array.reshape(-1)]
            # In memory once, not written by each thread; but calls are not constants there.
            is_static = are_constants(array, kind)
            table = self.scope.array(
                self.uses.type(kind),
                (array.size,),
                instruction.name,
                values,
                space="constant",
                is_static=is_static,
            )
            known = ArrayValue(table)
            self.scope.remember(key, known)
        assert isinstance(known, ArrayValue), "a table is an array"
        position = linearize(at.index, array.shape)
        return self.declare(kind, known.array[position], instruction.name)


_MOST_CONSTANTS = 4096


def _emitters() -> Mapping[str, Emit]:
    from hloopt.codegen.elemental import EMITTERS

    return EMITTERS
