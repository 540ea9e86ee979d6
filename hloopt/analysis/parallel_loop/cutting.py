"""A loop cut along one of its parallel axes: body and condition for a block of work items.

Body and condition of what is needed (``Needs``), with a smaller size along the axis, are computations outside
of the module, in which calls are inlined.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from hloopt.analysis.parallel_loop.edges import (
    BODY,
    CONDITION,
    CallPath,
    LoopValue,
    entered,
    nodes_of,
)
from hloopt.analysis.parallel_loop.needs import WHOLE, Needs, Variable
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.walk import called_computations
from hloopt.types import ArrayShape, Shape, SliceRange, TupleShape

__all__ = ["LoopCut", "cut_loop"]


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
        inside = (*around, (loop, CONDITION))
        result = self.needs.value(inside, condition.root), WHOLE
        new_condition = self._over(condition, inside, [*state, *read], [result])
        whole = new_condition.root
        edit.set_root(new_condition, whole.operands[0])
        edit.remove(whole)
        following = [
            (self.needs.value(path, body.root, value.leaf), place) for value, place in state
        ]
        return new_condition, self._over(
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
