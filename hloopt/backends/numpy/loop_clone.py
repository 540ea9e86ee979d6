"""A loop for a block of units: body and condition again, with a smaller size along one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

from hloopt.analysis.parallel_loop import ParallelLoop
from hloopt.analysis.parallel_loop.edges import leaf_count, shape_of
from hloopt.backends.numpy.loop_places import WHOLE, Needs, Variable
from hloopt.dataclass import dataclass
from hloopt.interpret.control import branches
from hloopt.ir import Computation, Instruction, Module, edit
from hloopt.ir.build import clone_computation, splat
from hloopt.ir.walk import called_computations
from hloopt.ops.traits import BODIES, FORWARDING, TUPLES
from hloopt.types import ArrayShape, Shape, SliceRange, TupleShape, leaves

__all__ = ["LoopClone", "by_index", "clone_loop"]

_Values: TypeAlias = "dict[Variable, Instruction]"
_NAMES = FORWARDING | TUPLES


@dataclass(frozen=True)
class LoopClone:
    """Body and condition over a flat state: ``elements`` and then ``sources``.

    elements   leaves of the loop's state with their places
    sources    variables that are made once, outside: what depends on the index along the axis alone
    given      variables that the body takes as well, new ones each trip, after its state's
    condition  from the state to a pred
    body       from the state (and ``given``, which come last in it) to the next state and ``told``
    """

    elements: tuple[tuple[int, int], ...]
    sources: tuple[Variable, ...]
    given: tuple[Variable, ...]
    condition: Computation
    body: Computation


def clone_loop(
    parallel: ParallelLoop,
    needs: Needs,
    size: int,
    *,
    told: Sequence[Variable] = (),
    given: Sequence[Variable] = (),
) -> LoopClone:
    """The loop with all places ``needs`` found cut to ``size``; outside the module, which stays as it is."""
    return _Cutter(parallel, needs, size).loop(told, tuple(given))


@dataclass
class _Cutter:
    parallel: ParallelLoop
    needs: Needs
    size: int
    module: Module = field(init=False)
    regions: dict[Computation, Computation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        home = self.parallel.loop.computation
        assert home is not None
        original = home.module
        self.module = Module(
            original.name if original is not None else "loop",
            original.source if original is not None else None,
        )

    # ---- computations -------------------------------------------------------------------------------

    def loop(self, told: Sequence[Variable], given: tuple[Variable, ...]) -> LoopClone:
        loop = self.parallel.loop
        condition: Computation = loop.attributes["condition"]
        body: Computation = loop.attributes["body"]
        pairs = self.needs.elements(loop, body.parameters[0], condition.parameters[0])
        sources = tuple(dict.fromkeys((*self._sources(condition), *self._sources(body))))
        return LoopClone(
            tuple(pairs),
            sources,
            given,
            self._goes_on(condition, pairs, sources),
            self._over_state(
                body,
                pairs,
                (*sources, *given),
                [*((body.root, *pair) for pair in pairs), *sources, *told],
            ),
        )

    def _over_state(
        self,
        computation: Computation,
        pairs: Sequence[tuple[int, int]],
        sources: Sequence[Variable],
        results: Sequence[Variable],
    ) -> Computation:
        """From a tuple, elements of a state and then sources, to a tuple."""
        new = edit.add_computation(self.module, Computation(computation.name, computation.offset))
        (parameter,) = computation.parameters
        shapes = [self._shape((parameter, *pair)) for pair in pairs]
        shapes += [self._shape(source) for source in sources]
        state = _append(new, "parameter", TupleShape(tuple(shapes)), parameter_number=0)
        keys: list[Variable] = [*((parameter, *pair) for pair in pairs), *sources]
        values: _Values = {}
        for at, (key, shape) in enumerate(zip(keys, shapes, strict=True)):
            values[key] = _append(new, "get-tuple-element", shape, (state,), index=at)
        self._fill(new, computation, values)
        edit.set_root(new, _tuple(new, tuple(values[result] for result in results)))
        return new

    def _goes_on(
        self,
        condition: Computation,
        pairs: Sequence[tuple[int, int]],
        sources: Sequence[Variable],
    ) -> Computation:
        """The condition over the same state, to its pred."""
        new = self._over_state(condition, pairs, sources, [(condition.root, 0, WHOLE)])
        whole = new.root
        edit.set_root(new, whole.operands[0])
        edit.remove(whole)
        return new

    def _sources(self, computation: Computation) -> list[Variable]:
        """What is made outside of a computation and those it calls."""
        found: dict[Variable, None] = {}
        pending, seen = [computation], {computation}
        while pending:
            for instruction in pending.pop():
                for leaf, place in self.needs.variables.get(instruction, ()):
                    if place != WHOLE and by_index(instruction, place):
                        found[instruction, leaf, place] = None
                if instruction.opcode in BODIES:
                    called = [one for one in called_computations(instruction) if one not in seen]
                    seen.update(called)
                    pending += called
        return list(found)

    # ---- instructions -------------------------------------------------------------------------------

    def _fill(self, new: Computation, computation: Computation, values: _Values) -> None:
        """Append what is needed of a computation."""
        for instruction in computation:
            wanted: dict[int, list[int]] = {}
            for leaf, place in self.needs.variables.get(instruction, ()):
                if (instruction, leaf, place) not in values:
                    wanted.setdefault(place, []).append(leaf)
            if not wanted:
                continue
            if instruction.opcode in _NAMES:
                self._names(instruction, wanted, values)
            elif instruction.opcode in ("call", "fusion"):
                self._call(new, instruction, wanted, values)
            elif instruction.opcode == "while":
                self._while(new, instruction, values)
            elif instruction.opcode == "conditional":
                self._conditional(new, instruction, values)
            else:
                for place in wanted:
                    self._op(new, instruction, place, values)

    def _names(
        self, instruction: Instruction, wanted: Mapping[int, list[int]], values: _Values
    ) -> None:
        for place, numbers in wanted.items():
            for leaf in numbers:
                ((source, at),) = self.needs.sources[instruction, leaf]
                if (source, at, place) in values:
                    values[instruction, leaf, place] = values[source, at, place]

    def _call(
        self,
        new: Computation,
        instruction: Instruction,
        wanted: Mapping[int, list[int]],
        values: _Values,
    ) -> None:
        (called,) = called_computations(instruction)
        inner: _Values = {
            key: value for key, value in values.items() if key[0].opcode in ("constant", "iota")
        }
        for operand, parameter in zip(instruction.operands, called.parameters, strict=True):
            for leaf, place in self.needs.variables.get(parameter, ()):
                # What only other callers need is not there.
                if (operand, leaf, place) in values:
                    inner[parameter, leaf, place] = values[operand, leaf, place]
        self._fill(new, called, inner)
        for place, numbers in wanted.items():
            for leaf in numbers:
                if (called.root, leaf, place) in inner:
                    values[instruction, leaf, place] = inner[called.root, leaf, place]

    def _while(self, new: Computation, instruction: Instruction, values: _Values) -> None:
        condition: Computation = instruction.attributes["condition"]
        body: Computation = instruction.attributes["body"]
        pairs = self.needs.elements(instruction, body.parameters[0], condition.parameters[0])
        sources = list(dict.fromkeys((*self._sources(condition), *self._sources(body))))
        (init,) = instruction.operands
        if any((init, *pair) not in values for pair in pairs):
            return  # only other callers need it
        state = tuple(values[(init, *pair)] for pair in pairs)
        start = _tuple(new, (*state, *(values[source] for source in sources)))
        results = [*((body.root, *pair) for pair in pairs), *sources]
        attributes = {
            "condition": self._goes_on(condition, pairs, sources),
            "body": self._over_state(body, pairs, sources, results),
        }
        made = _like(new, instruction, start.shape, (start,), attributes)
        self._take(new, instruction, pairs, made, values)

    def _conditional(self, new: Computation, instruction: Instruction, values: _Values) -> None:
        pairs = self.needs.elements(instruction)
        cut: list[Computation] = []
        if (instruction.operands[0], 0, WHOLE) not in values:
            return  # only other callers need it
        operands = [values[instruction.operands[0], 0, WHOLE]]
        for operand, branch in zip(instruction.operands[1:], branches(instruction), strict=True):
            read = self.needs.elements(branch.parameters[0])
            sources = self._sources(branch)
            taken = tuple(values[(operand, *pair)] for pair in read)
            taken += tuple(values[source] for source in sources)
            operands.append(_tuple(new, taken))
            results = [(branch.root, *pair) for pair in pairs]
            cut.append(self._over_state(branch, read, sources, results))
        shape = TupleShape(tuple(self._shape((instruction, *pair)) for pair in pairs))
        attributes: dict[str, Any] = {}
        if "branch_computations" in instruction.attributes:
            attributes["branch_computations"] = tuple(cut)
        else:
            attributes["true_computation"], attributes["false_computation"] = cut
        made = _like(new, instruction, shape, tuple(operands), attributes)
        self._take(new, instruction, pairs, made, values)

    def _op(self, new: Computation, instruction: Instruction, place: int, values: _Values) -> None:
        if instruction.opcode == "constant" and place != WHOLE:
            values[instruction, 0, place] = self._splat(new, instruction, place)
            return
        places = self.needs.operands[instruction, place]
        pairs = list(zip(instruction.operands, places, strict=True))
        if any((operand, 0, at) not in values for operand, at in pairs):
            return  # only other callers need it
        operands = tuple(values[operand, 0, at] for operand, at in pairs)
        attributes = {
            key: self._attribute(key, value, place, places)
            for key, value in instruction.attributes.items()
        }
        if isinstance(instruction.shape, ArrayShape):
            shape = self._shape((instruction, 0, place))
            values[instruction, 0, place] = _like(new, instruction, shape, operands, attributes)
            return
        results = [(leaf, place) for leaf in range(leaf_count(instruction))]
        whole = TupleShape(tuple(self._shape((instruction, *pair)) for pair in results))
        made = _like(new, instruction, whole, operands, attributes)
        self._take(new, instruction, results, made, values)

    def _splat(self, new: Computation, instruction: Instruction, place: int) -> Instruction:
        shape = self._shape((instruction, 0, place))
        assert instruction.literal is not None
        return splat(new, shape, instruction.literal.splat)

    def _take(
        self,
        new: Computation,
        instruction: Instruction,
        pairs: Sequence[tuple[int, int]],
        made: Instruction,
        values: _Values,
    ) -> None:
        """The leaves of what was made."""
        for at, shape in enumerate(leaves(made.shape)):
            if at < len(pairs):
                read = _append(new, "get-tuple-element", shape, (made,), index=at)
                values[(instruction, *pairs[at])] = read

    def _shape(self, variable: Variable) -> ArrayShape:
        instruction, leaf, place = variable
        shape = shape_of((instruction, leaf))
        if place == WHOLE:
            return shape
        return replace(shape, dims=_with(shape.dims, place, self.size))

    def _attribute(self, key: str, value: Any, place: int, places: Sequence[int]) -> Any:
        """Sizes along the axis are those of a block; regions are copied, so that nobody calls the module's."""
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
            copy = clone_computation(region, None, inner)
            self.regions[region] = edit.add_computation(self.module, copy)
        return self.regions[region]


def by_index(instruction: Instruction, place: int) -> bool:
    """Whether a value without operands differs from index to index along one of its dimensions."""
    if instruction.opcode == "iota":
        along: int = instruction.attributes["iota_dimension"]
        return along == place
    return instruction.literal is not None and instruction.literal.splat is None


def _with(values: tuple[Any, ...], at: int, value: Any) -> tuple[Any, ...]:
    return (*values[:at], value, *values[at + 1 :])


def _append(
    computation: Computation,
    opcode: str,
    shape: Shape,
    operands: tuple[Instruction, ...] = (),
    **attributes: Any,
) -> Instruction:
    made = Instruction(opcode, opcode, shape, operands, attributes)
    return edit.append(computation, made)


def _tuple(computation: Computation, values: tuple[Instruction, ...]) -> Instruction:
    shape = TupleShape(tuple(value.shape for value in values))
    return _append(computation, "tuple", shape, values)


def _like(
    computation: Computation,
    instruction: Instruction,
    shape: Shape,
    operands: tuple[Instruction, ...],
    attributes: dict[str, Any],
) -> Instruction:
    """An instruction that errors name as the one it stands for."""
    made = Instruction(
        instruction.name,
        instruction.opcode,
        shape,
        operands,
        attributes,
        instruction.metadata,
        instruction.offset,
    )
    return edit.append(computation, made)
