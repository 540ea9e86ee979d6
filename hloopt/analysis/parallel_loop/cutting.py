"""A loop cut along one of its parallel axes: body and condition for a block of work items.

A **variable** is a value at a place: the number of the dimension that lies along the axis, or ``WHOLE``.  A
value that any work item may compute can be needed at several places: a ``broadcast`` along the axis for one
user, whole for another.  From what is wanted of the loop follows what is needed of everything else, operand by
operand (``Needs``); body and condition of that, with a smaller size along the axis, are computations outside of
the module (``cut_loop``), in which calls are inlined.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any, Final, TypeAlias

from hloopt.analysis.parallel_loop.edges import (
    BODY,
    CONDITION,
    CallPath,
    LoopNames,
    LoopValue,
    entered,
    nodes_of,
)
from hloopt.analysis.parallel_loop.model import ParallelLoop
from hloopt.analysis.parallel_loop.ties import relations
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import called_computations
from hloopt.types import ArrayShape, Shape, SliceRange, TupleShape

__all__ = ["WHOLE", "LoopCut", "Needs", "Variable", "cut_loop"]

WHOLE: Final = -1
"""The place of a value that lies along other axes, or along none."""

Variable: TypeAlias = "tuple[LoopValue, int]"
"""A value and its place."""


@dataclass
class Needs:
    """What is needed of a loop cut along ``axis``.

    given     instructions that are not looked behind
    joined    those that may take values along the axis and make values that are not
    places    of each instruction, by what leads to it: leaves and their places
    operands  the places of an instruction's operands, by its own
    outside   by what leads to a computation, what is read there and made outside of it
    problem   why the loop cannot be cut along the axis; empty where it can
    """

    parallel: ParallelLoop
    axis: int
    given: Collection[Instruction] = ()
    joined: Collection[Instruction] = ()
    places: dict[tuple[CallPath, Instruction], dict[tuple[int, int], None]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    operands: dict[tuple[CallPath, Instruction, int], tuple[int, ...]] = field(default_factory=dict)
    outside: dict[CallPath, dict[Variable, None]] = field(default_factory=lambda: defaultdict(dict))
    problem: str = ""
    _names: LoopNames = field(default_factory=LoopNames)

    @property
    def path(self) -> CallPath:
        """What leads to the loop's body."""
        return ((self.parallel.loop, BODY),)

    def value(self, path: CallPath, instruction: Instruction, leaf: int = 0) -> LoopValue:
        """The value behind a name; of what lies outside of the loop the element of the state."""
        found = self._names.resolve(path, instruction, leaf)
        return found if found.path else self.element(self.path, found.leaf)

    def element(self, path: CallPath, leaf: int) -> LoopValue:
        """An element of the state of the loop whose body ``path`` leads to."""
        return LoopValue(path, path[-1][0].body.parameters[0], leaf)

    def whole(self, instructions: Sequence[Instruction]) -> list[Variable]:
        """All results of instructions of the body."""
        return [
            (LoopValue(self.path, *node), WHOLE) for one in instructions for node in nodes_of(one)
        ]

    def search(
        self, results: Iterable[tuple[int, int]], wanted: Sequence[Instruction] = ()
    ) -> None:
        """Find all that it takes: elements of the state at their places, and what is ``wanted`` whole."""
        pending = [(self.element(self.path, leaf), place) for leaf, place in results]
        pending += [*self.whole(wanted), *self._condition(self.path)]
        while pending and not self.problem:
            value, place = pending.pop()
            path, instruction, leaf = value.path, value.instruction, value.leaf
            known = self.places[path, instruction]
            if (leaf, place) in known:
                continue
            known[leaf, place] = None
            own = self._own(instruction, leaf)
            if own is not None and own != place:
                self._stop(instruction, "is needed at indices other than those of a work item")
            if instruction not in self.given:
                pending += self._behind(value, place)

    def _stop(self, instruction: Instruction, words: str) -> None:
        self.problem = f"{instruction.opcode} {instruction.name} {words}"

    def _own(self, instruction: Instruction, leaf: int = 0) -> int | None:
        """The place of a value that work items own; None for one that any of them may compute."""
        axes = self.parallel.owned.get((instruction, leaf))
        if axes is None:
            return None
        return axes.index(self.axis) if self.axis in axes else WHOLE

    def _behind(self, value: LoopValue, place: int) -> Iterator[Variable]:
        """What a value is computed from."""
        path, instruction, leaf = value.path, value.instruction, value.leaf
        if instruction.opcode == "parameter":
            loop = path[-1][0]
            yield self._read(path, loop.body.root, leaf, place)
            yield from self._condition(path)
            if path[1:]:
                yield self._read(path[:-1], loop.operands[0], leaf, place)
        elif instruction.opcode == "while":
            yield self.element((*path, (instruction, BODY)), leaf), place
        elif instruction.opcode == "conditional":
            yield self._read(path, instruction.operands[0], 0, WHOLE)
            for number, branch in enumerate(entered(instruction)):
                yield self._read((*path, (instruction, number)), branch.root, leaf, place)
        else:
            places = self._operands(instruction, place)
            self.operands[path, instruction, place] = places
            for operand, at in zip(instruction.operands, places, strict=True):
                yield self._read(path, operand, 0, at)

    def _condition(self, path: CallPath) -> Iterator[Variable]:
        """What keeps the loop running whose body ``path`` leads to."""
        *around, (loop, _) = path
        yield self._read((*around, (loop, CONDITION)), loop.condition.root, 0, WHOLE)

    def _read(self, path: CallPath, instruction: Instruction, leaf: int, place: int) -> Variable:
        """What is read under a name, which may be made outside of the computation that reads it."""
        value = self.value(path, instruction, leaf)
        home = () if _is_source(value.instruction, place) else value.path
        common = 0
        while common < min(len(home), len(path)) and home[common] == path[common]:
            common += 1
        for depth in range(common, len(path)):
            self.outside[path[: depth + 1]][value, place] = None
        return value, place

    def _operands(self, instruction: Instruction, place: int) -> tuple[int, ...]:
        """The places of an instruction's operands."""
        ties = {
            relation.operand: relation.dim
            for relation in relations(instruction)
            if place != WHOLE and relation.result == place
        }
        if place != WHOLE and not ties and not _makes(instruction, place):
            self._stop(instruction, "makes all of a dimension at once")
        places = []
        for number, operand in enumerate(instruction.operands):
            own = self._own(operand) if instruction in self.joined else None
            places.append(ties.get(number, WHOLE if own is None else own))
        return tuple(places)


def _makes(instruction: Instruction, place: int) -> bool:
    """Whether a dimension of the result is none of an operand's."""
    if instruction.opcode == "broadcast":
        return place not in instruction.attributes.get("dimensions", ())
    return instruction.opcode in ("constant", "iota")


def _is_source(instruction: Instruction, place: int) -> bool:
    """Whether a value without operands is cut along a dimension along which its elements differ."""
    if place == WHOLE:
        return False
    if instruction.opcode == "iota":
        along = instruction.iota_dimension
        return along == place
    return instruction.literal is not None and instruction.literal.splat is None


@dataclass(frozen=True)
class LoopCut:
    """Body and condition over a flat state: ``elements`` and then ``sources``.

    elements   leaves of the loop's state with their places
    sources    constants and counted numbers that differ along the axis, with their places: made once, outside
    condition  from the state to a pred
    body       from the state, and after it what is given, to the next state and what is wanted
    """

    elements: tuple[tuple[int, int], ...]
    sources: tuple[tuple[Instruction, int], ...]
    condition: Computation
    body: Computation


def cut_loop(
    needs: Needs,
    size: int,
    *,
    wanted: Sequence[Instruction] = (),
    given: Sequence[Instruction] = (),
) -> LoopCut:
    """The loop with all places that ``needs`` found cut to ``size``; the module stays as it is.

    ``wanted`` as what was searched for, ``given`` as ``needs`` has it.
    """
    home = needs.parallel.loop.computation
    assert home is not None
    assert home.module is not None, "a loop of a module"
    module = Module(home.module.name, home.module.source)
    return _Cutter(needs, size, module).loop(needs.whole(wanted), needs.whole(given))


_Values: TypeAlias = "dict[Variable, Instruction]"


@dataclass
class _Cutter:
    needs: Needs
    size: int
    module: Module
    regions: dict[Computation, Computation] = field(default_factory=dict)

    # ---- computations -------------------------------------------------------------------------------

    def loop(self, wanted: Sequence[Variable], given: Sequence[Variable]) -> LoopCut:
        path = self.needs.path
        state, sources = self._state(path)
        return LoopCut(
            tuple((value.leaf, place) for value, place in state),
            tuple((value.instruction, place) for value, place in sources),
            *self._called(path, state, sources, wanted, given),
        )

    def _state(self, path: CallPath) -> tuple[list[Variable], list[Variable]]:
        """The elements of a loop's state, and what it reads that is made outside of it."""
        *around, (loop, _) = path
        own: dict[Variable, None] = {}
        for leaf, place in self._pairs(path, loop.body.parameters[0]):
            own[self.needs.element(path, leaf), place] = None
        read: dict[Variable, None] = {}
        for number in (CONDITION, BODY):
            read |= self.needs.outside[*around, (loop, number)]
        return list(own), [variable for variable in read if variable not in own]

    def _pairs(self, path: CallPath, instruction: Instruction) -> list[tuple[int, int]]:
        return sorted(self.needs.places.get((path, instruction), ()))

    def _called(
        self,
        path: CallPath,
        state: Sequence[Variable],
        read: Sequence[Variable],
        wanted: Sequence[Variable] = (),
        given: Sequence[Variable] = (),
    ) -> tuple[Computation, Computation]:
        """Condition and body of a loop."""
        *around, (loop, _) = path
        condition = loop.condition
        body = loop.body
        asked = (*around, (loop, CONDITION))
        result = self.needs.value(asked, condition.root), WHOLE
        goes_on = self._over(condition, asked, [*state, *read], [result])
        whole = goes_on.root
        edit.set_root(goes_on, whole.operands[0])
        edit.remove(whole)
        following = [
            (self.needs.value(path, body.root, value.leaf), place) for value, place in state
        ]
        return goes_on, self._over(
            body, path, [*state, *read, *given], [*following, *read, *wanted]
        )

    def _over(
        self,
        computation: Computation,
        path: CallPath,
        variables: Sequence[Variable],
        results: Sequence[Variable],
    ) -> Computation:
        """From a tuple of variables to a tuple."""
        new = edit.add_computation(self.module, Computation(computation.name, computation.offset))
        shape = TupleShape(tuple(map(self._shape, variables)))
        state = build.make(new, "parameter", (), {"parameter_number": 0}, shape=shape)
        values = {variable: build.element(new, state, at) for at, variable in enumerate(variables)}
        self._fill(new, computation, path, values)
        edit.set_root(new, _tuple(new, results, values))
        return new

    # ---- instructions -------------------------------------------------------------------------------

    def _fill(
        self, new: Computation, computation: Computation, path: CallPath, values: _Values
    ) -> None:
        """Append what is needed of a computation."""
        for instruction in computation:
            if instruction.opcode in ("call", "fusion"):
                (called,) = entered(instruction)
                self._fill(new, called, (*path, (instruction, 0)), values)
                continue
            pairs = self._pairs(path, instruction)
            if instruction.opcode == "while":
                if pairs:
                    self._while(new, (*path, (instruction, BODY)), values)
            elif instruction.opcode == "conditional":
                if pairs:
                    self._conditional(new, path, instruction, pairs, values)
            else:
                missing = (
                    place
                    for leaf, place in pairs
                    if (LoopValue(path, instruction, leaf), place) not in values
                )
                for place in dict.fromkeys(missing):
                    self._op(new, path, instruction, place, values)

    def _while(self, new: Computation, path: CallPath, values: _Values) -> None:
        *around, (loop, _) = path
        state, read = self._state(path)
        home = tuple(around)
        first = [
            (self.needs.value(home, loop.operands[0], value.leaf), place) for value, place in state
        ]
        start = _tuple(new, [*first, *read], values)
        condition, body = self._called(path, state, read)
        attributes = {"condition": condition, "body": body}
        made = _like(new, loop, start.shape, (start,), attributes)
        _take(new, ((LoopValue(home, loop, one.leaf), place) for one, place in state), made, values)

    def _conditional(
        self,
        new: Computation,
        path: CallPath,
        instruction: Instruction,
        pairs: Sequence[tuple[int, int]],
        values: _Values,
    ) -> None:
        cut: list[Computation] = []
        operands = [values[self.needs.value(path, instruction.operands[0]), WHOLE]]
        for number, branch in enumerate(entered(instruction)):
            inner = (*path, (instruction, number))
            read = list(self.needs.outside[inner])
            operands.append(_tuple(new, read, values))
            results = [(self.needs.value(inner, branch.root, leaf), at) for leaf, at in pairs]
            cut.append(self._over(branch, inner, read, results))
        own = [(LoopValue(path, instruction, leaf), place) for leaf, place in pairs]
        shape = TupleShape(tuple(map(self._shape, own)))
        attributes: dict[str, Any] = {}
        if "branch_computations" in instruction.attributes:
            attributes["branch_computations"] = tuple(cut)
        else:
            attributes["true_computation"], attributes["false_computation"] = cut
        made = _like(new, instruction, shape, tuple(operands), attributes)
        _take(new, own, made, values)

    def _op(
        self,
        new: Computation,
        path: CallPath,
        instruction: Instruction,
        place: int,
        values: _Values,
    ) -> None:
        results = [(LoopValue(path, *node), place) for node in nodes_of(instruction)]
        shapes = [self._shape(result) for result in results]
        if instruction.opcode == "constant" and place != WHOLE:
            assert instruction.literal is not None
            values[results[0]] = build.splat(new, shapes[0], instruction.literal.splat)
            return
        places = self.needs.operands[path, instruction, place]
        operands = tuple(
            values[self.needs.value(path, operand), at]
            for operand, at in zip(instruction.operands, places, strict=True)
        )
        attributes = {
            key: self._attribute(key, value, place, places)
            for key, value in instruction.attributes.items()
        }
        if isinstance(instruction.shape, ArrayShape):
            values[results[0]] = _like(new, instruction, shapes[0], operands, attributes)
            return
        made = _like(new, instruction, TupleShape(tuple(shapes)), operands, attributes)
        _take(new, results, made, values)

    def _shape(self, variable: Variable) -> ArrayShape:
        value, place = variable
        if place == WHOLE:
            return value.shape
        return replace(value.shape, dims=_with(value.shape.dims, place, self.size))

    def _attribute(self, key: str, value: Any, place: int, places: Sequence[int]) -> Any:
        """Sizes along the axis are those of a block; regions are copied, so that nothing calls the module's."""
        if isinstance(value, Computation):
            return self._region(value)
        if key == "slice" and place != WHOLE:
            return _with(value, place, SliceRange(0, self.size))
        if key == "dynamic_slice_sizes" and place != WHOLE:
            return _with(value, place, self.size)
        if key == "slice_sizes" and places[0] != WHOLE and value[places[0]] != 1:
            return _with(value, places[0], self.size)
        return value

    def _region(self, region: Computation) -> Computation:
        if region not in self.regions:
            inner = {
                called: self._region(called)
                for instruction in region
                for called in called_computations(instruction)
            }
            copy = build.clone_computation(region, None, inner)
            self.regions[region] = edit.add_computation(self.module, copy)
        return self.regions[region]


def _with(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _tuple(computation: Computation, variables: Iterable[Variable], values: _Values) -> Instruction:
    return build.make(computation, "tuple", tuple(values[variable] for variable in variables))


def _take(
    computation: Computation, results: Iterable[Variable], made: Instruction, values: _Values
) -> None:
    """The leaves of what was made."""
    for at, variable in enumerate(results):
        values[variable] = build.element(computation, made, at)


def _like(
    computation: Computation,
    instruction: Instruction,
    shape: Shape,
    operands: tuple[Instruction, ...],
    attributes: dict[str, Any],
) -> Instruction:
    """An instruction that errors name as the one it stands for."""
    made = build.make(
        computation,
        instruction.opcode,
        operands,
        attributes,
        shape=shape,
        name=instruction.name,
        metadata=instruction.metadata,
    )
    made.offset = instruction.offset
    return made
