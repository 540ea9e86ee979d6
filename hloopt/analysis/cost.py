"""Flops, transcendental functions and bytes: what a computation does, independent of any device.

The counting rules are those of XLA's HLO cost analysis.  Scalar ops take their figures from their rows
in the op table; everything else has a rule here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, log2, prod

from hloopt.analysis.library_calls import convolution_flops, library_flops, result_bytes
from hloopt.analysis.trip_count import counted_iterations
from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ops.traits import ALIASES, CONSTRAINTS, DEVICE_NUMBERS, MOVING, PLUMBING, op_table
from hloopt.types import ArrayShape, DotDims, Shape, elements_of, leaves

__all__ = [
    "Cost",
    "computation_cost",
    "dot_flops",
    "elements_demanded",
    "instruction_cost",
    "loop_bytes_read",
    "module_cost",
]


@dataclass(frozen=True, slots=True)
class Cost:
    """Arithmetic operations, transcendental functions, and bytes read and written."""

    flops: int = 0
    transcendentals: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )

    def __mul__(self, count: int) -> Cost:
        return Cost(
            self.flops * count,
            self.transcendentals * count,
            self.bytes_read * count,
            self.bytes_written * count,
        )

    __rmul__ = __mul__

    @property
    def bytes_accessed(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    @property
    def arithmetic_intensity(self) -> float:
        """Flops and transcendental functions per byte; 0 where no byte moves."""
        moved = self.bytes_accessed
        return (self.flops + self.transcendentals) / moved if moved else 0.0


def module_cost(module: Module) -> Cost:
    """The cost of running the entry once.

    Loops count as ``counted_iterations`` has them; a conditional costs, for each figure,
    as much as its most expensive branch.
    """
    return computation_cost(module.entry)


def computation_cost(computation: Computation) -> Cost:
    """The cost of running a computation's instructions one by one."""
    return _Analysis().computation(computation)


def instruction_cost(instruction: Instruction) -> Cost:
    """The cost of one instruction, computations it calls included."""
    return _Analysis().instruction(instruction)


class _Analysis:
    """One analysis; computations called from several places are counted once and cached."""

    def __init__(self) -> None:
        self._known: dict[Computation, Cost] = {}

    def computation(self, computation: Computation) -> Cost:
        known = self._known.get(computation)
        if known is None:
            known = sum((self.instruction(entry) for entry in computation), Cost())
            self._known[computation] = known
        return known

    def instruction(self, instruction: Instruction) -> Cost:
        rule = _RULES.get(instruction.opcode)
        if rule is not None:
            return rule(self, instruction)
        computed = _COMPUTED.get(instruction.opcode, _elementwise)
        return computed(self, instruction) + _all_bytes(instruction)

    def arithmetic(self, computation: Computation) -> Cost:
        """The cost of a region applied to scalars, without the bytes, which stay in registers."""
        cost = self.computation(computation)
        return Cost(cost.flops, cost.transcendentals)


def _all_bytes(instruction: Instruction) -> Cost:
    """Every operand read once and every result written once."""
    read = sum(operand.shape.byte_size for operand in instruction.operands)
    return Cost(bytes_read=read, bytes_written=instruction.shape.byte_size)


def _nothing(_: _Analysis, __: Instruction) -> Cost:
    return Cost()


def _elementwise(_: _Analysis, instruction: Instruction) -> Cost:
    row, count = instruction.op, elements_of(instruction.shape)
    return Cost(row.flops * count, row.transcendentals * count)


def _slice(_: _Analysis, instruction: Instruction) -> Cost:
    """Only what is taken is read; start indices are read whole."""
    size = instruction.shape.byte_size
    indices = sum(operand.shape.byte_size for operand in instruction.operands[1:])
    return Cost(bytes_read=size + indices, bytes_written=size)


def _update(_: _Analysis, instruction: Instruction) -> Cost:
    """In place: the update is read and written, the rest stays."""
    update = instruction.operands[1].shape.byte_size
    indices = sum(operand.shape.byte_size for operand in instruction.operands[2:])
    return Cost(bytes_read=update + indices, bytes_written=update)


def _gather(_: _Analysis, instruction: Instruction) -> Cost:
    size = instruction.shape.byte_size
    return Cost(bytes_read=size + instruction.operands[1].shape.byte_size, bytes_written=size)


def _scatter(analysis: _Analysis, instruction: Instruction) -> Cost:
    count = (len(instruction.operands) - 1) // 2
    updates = instruction.operands[count + 1 :]
    size = sum(update.shape.byte_size for update in updates)
    region = analysis.arithmetic(instruction.to_apply)
    indices = instruction.operands[count].shape.byte_size
    moved = Cost(bytes_read=2 * size + indices, bytes_written=size)
    return region * elements_of(updates[0].shape) + moved


def dot_flops(dot: Instruction) -> int:
    """Two (multiply and add) per result element and contracted element."""
    lhs, dims = dot.operands[0].array, DotDims.of(dot.attributes)
    return 2 * dot.array.elements * prod(lhs.dims[axis] for axis in dims.lhs_contracting)


def _dot(_: _Analysis, instruction: Instruction) -> Cost:
    return Cost(dot_flops(instruction))


def _convolution(_: _Analysis, instruction: Instruction) -> Cost:
    """A sparse operand is a tuple of values and places: only the values are multiplied."""
    lhs, rhs = (_first_array(operand.shape) for operand in instruction.operands[:2])
    return Cost(convolution_flops(instruction, lhs, rhs, instruction.array))


def _reduce(analysis: _Analysis, instruction: Instruction) -> Cost:
    """The region once for each element that disappears."""
    source = elements_of(instruction.operands[0].shape)
    result = elements_of(next(leaves(instruction.shape)))
    region = analysis.arithmetic(instruction.to_apply)
    return region * max(0, source - result)


def _reduce_window(analysis: _Analysis, instruction: Instruction) -> Cost:
    window = instruction.window.size
    result = elements_of(next(leaves(instruction.shape)))
    region = analysis.arithmetic(instruction.to_apply)
    return region * (max(0, window - 1) * result)


def _select_and_scatter(analysis: _Analysis, instruction: Instruction) -> Cost:
    window = instruction.window.size
    source = elements_of(instruction.operands[1].shape)
    select = analysis.arithmetic(instruction.attributes["select"])
    scatter = analysis.arithmetic(instruction.attributes["scatter"])
    return select * (max(0, window - 1) * source) + scatter * source


def _map(analysis: _Analysis, instruction: Instruction) -> Cost:
    region = analysis.arithmetic(instruction.to_apply)
    return region * elements_of(instruction.shape)


def _sort(analysis: _Analysis, instruction: Instruction) -> Cost:
    """The comparison ``n log2 n`` times for each sorted line."""
    shape = instruction.operands[0].array
    dimension = instruction.attributes.get("dimensions", (shape.rank - 1,))[0]
    length = shape.dims[dimension] if shape.dims else 1
    lines = shape.elements // length if length else 0
    compares = lines * ceil(length * log2(length)) if length > 1 else 0
    region = analysis.arithmetic(instruction.to_apply)
    return region * compares


def _fft(_: _Analysis, instruction: Instruction) -> Cost:
    """8 flops per element and doubling of each transformed length."""
    lengths = instruction.attributes["fft_length"]
    levels = sum(log2(length) for length in lengths if length > 1)
    return Cost(ceil(8 * levels * elements_of(instruction.shape)))


def _cholesky(_: _Analysis, instruction: Instruction) -> Cost:
    dims = instruction.array.dims
    return Cost(prod(dims[:-2]) * dims[-1] ** 3 // 3)


def _triangular_solve(_: _Analysis, instruction: Instruction) -> Cost:
    """Batch times right-hand sides times half of the squared size of the matrix."""
    size = instruction.operands[0].array.dims[-1]
    return Cost(elements_of(instruction.shape) * size // 2)


def _while(analysis: _Analysis, instruction: Instruction) -> Cost:
    count = counted_iterations(instruction).count
    body: Cost = analysis.computation(instruction.body)
    condition: Cost = analysis.computation(instruction.condition)
    return body * count + condition * (count + 1)


def _conditional(analysis: _Analysis, instruction: Instruction) -> Cost:
    costs = list(map(analysis.computation, walk.called_computations(instruction)))
    return Cost(
        max(cost.flops for cost in costs),
        max(cost.transcendentals for cost in costs),
        max(cost.bytes_read for cost in costs),
        max(cost.bytes_written for cost in costs),
    )


def _custom_call(_: _Analysis, instruction: Instruction) -> Cost:
    read = sum(operand.shape.byte_size for operand in instruction.operands)
    return Cost(library_flops(instruction), 0, read, result_bytes(instruction))


def _call(analysis: _Analysis, instruction: Instruction) -> Cost:
    return analysis.computation(instruction.to_apply)


def _async(analysis: _Analysis, instruction: Instruction) -> Cost:
    called = instruction.attributes.get("calls")
    return analysis.computation(called) if isinstance(called, Computation) else Cost()


def _fusion(analysis: _Analysis, instruction: Instruction) -> Cost:
    """The body's arithmetic; bytes only of what enters and leaves the kernel."""
    body = instruction.calls
    if _loop_inside(instruction) is not None:
        read = sum(loop_bytes_read(instruction))
        written = instruction.shape.byte_size
        return analysis.arithmetic(body) + Cost(bytes_read=read, bytes_written=written)
    needs = elements_demanded(body)
    read = sum(_parameter_bytes(parameter, needs) for parameter in body.parameters)
    written = sum(map(_output_bytes, body.results))
    return analysis.arithmetic(body) + Cost(bytes_read=read, bytes_written=written)


def elements_demanded(body: Computation) -> Mapping[Instruction, int]:
    """At most so many elements of each instruction, where each is computed once for each that reads it.

    Elementwise ops need as many of their operands as are needed of them, slices and gathers what they take, all
    others every element.  What nothing needs is missing.
    """
    found: dict[Instruction, int] = {body.root: elements_of(body.root.shape)}
    for inner in reversed(list(body)):
        if inner not in found:
            continue
        wanted = found[inner]
        for place, operand in enumerate(inner.operands):
            every = elements_of(operand.shape)
            passes = inner.opcode in _TAKING and not place
            if passes or (inner.op.is_elementwise and every == elements_of(inner.shape)):
                every = min(every, wanted)
            found[operand] = min(elements_of(operand.shape), found.get(operand, 0) + every)
    return found


def loop_bytes_read(fusion: Instruction) -> tuple[int, ...]:
    """What a fusion that is a whole loop reads of each operand: all of it once, whatever the trip count.

    Of what is only there to be written over, piece by piece, nothing.  Raises ``ValueError`` for other fusions.
    """
    loop = _loop_inside(fusion)
    if loop is None:
        raise ValueError(f"{fusion.name} is not a fusion of one loop")
    body = fusion.calls
    state = loop.operands[0]
    written = {
        number for number in range(len(state.operands)) if _is_only_written(loop.body, number)
    }
    return tuple(
        0
        if set(parameter.users) == {state}
        and all(number in written for number, one in enumerate(state.operands) if one is parameter)
        else parameter.shape.byte_size
        for parameter in body.parameters
    )


def _loop_inside(fusion: Instruction) -> Instruction | None:
    """The ``while`` of a fusion that is made of one (``FusedLoop`` has the form)."""
    if fusion.opcode != "fusion" or fusion.attributes.get("kind") != "kCustom":
        return None
    return next((entry for entry in fusion.calls if entry.opcode == "while"), None)


def _is_only_written(body: Computation, number: int) -> bool:
    """Whether all a loop does with an element of its state is to update a part of it."""
    update = body.root.operands[number] if body.root.opcode == "tuple" else body.root
    if update.opcode != "dynamic-update-slice" or set(update.users) != {body.root}:
        return False
    before = update.operands[0]
    return (
        before.opcode == "get-tuple-element"
        and before.operands[0] is body.parameters[0]
        and before.tuple_index == number
        and set(before.users) == {update}
        and before not in update.operands[1:]
    )


_TAKING = frozenset({"dynamic-slice", "gather", "slice"})


def _parameter_bytes(parameter: Instruction, needs: Mapping[Instruction, int]) -> int:
    """What a fusion reads of a parameter: slices only, where nothing else uses it.

    ``needs`` are the elements that are needed of what is computed from it.
    """
    total, elements = 0, elements_of(parameter.shape)
    for user in parameter.users:
        if user.op.is_elementwise and elements_of(user.shape) == elements:
            total += parameter.shape.byte_size * needs.get(user, 0) // max(1, elements)
            continue
        if user.operands[0] is not parameter or parameter in user.operands[1:]:
            return parameter.shape.byte_size
        if user.opcode in _TAKING:
            total += user.shape.byte_size
        elif _is_scatter(user):
            total += user.operands[2].shape.byte_size
        elif user.opcode != "dynamic-update-slice":
            return parameter.shape.byte_size
    return min(total, parameter.shape.byte_size)


def _output_bytes(output: Instruction) -> int:
    """What a fusion writes of a result: the update alone, where it is made in place."""
    while output.opcode == "bitcast":
        output = output.operands[0]
    if output.opcode == "dynamic-update-slice" and _is_parameter(output.operands[0]):
        return output.operands[1].shape.byte_size
    if _is_scatter(output) and _is_parameter(output.operands[0]):
        return output.operands[2].shape.byte_size
    return output.shape.byte_size


def _is_scatter(instruction: Instruction) -> bool:
    """Whether this changes some elements of one array."""
    return instruction.opcode == "scatter" and len(instruction.operands) == 3


def _is_parameter(instruction: Instruction) -> bool:
    while instruction.opcode == "bitcast":
        instruction = instruction.operands[0]
    return instruction.opcode == "parameter"


def _first_array(shape: Shape) -> ArrayShape:
    found = next(leaves(shape))
    assert isinstance(found, ArrayShape), "convolutions have arrays"
    return found


_Rule = Callable[[_Analysis, Instruction], Cost]
_RULES: Mapping[str, _Rule] = op_table({
    **dict.fromkeys(
        PLUMBING | ALIASES | CONSTRAINTS | DEVICE_NUMBERS | {"async-done", "async-update"}, _nothing
    ),
    **dict.fromkeys(("slice", "dynamic-slice"), _slice),
    "async-start": _async, "call": _call, "conditional": _conditional, "custom-call": _custom_call,
    "dynamic-update-slice": _update, "fusion": _fusion, "gather": _gather, "scatter": _scatter,
    "while": _while,
}, otherwise="all bytes of operands and results, and what ``_COMPUTED`` has")  # fmt: skip
_COMPUTED: Mapping[str, _Rule] = op_table({
    **dict.fromkeys(MOVING - {"bitcast", "slice"} | {"iota"}, _nothing),
    "cholesky": _cholesky, "convolution": _convolution, "dot": _dot, "fft": _fft, "map": _map,
    "reduce": _reduce, "reduce-window": _reduce_window, "select-and-scatter": _select_and_scatter,
    "sort": _sort, "triangular-solve": _triangular_solve,
}, otherwise="an elementwise op, or communication: its row has its flops")  # fmt: skip
"""What ops compute that read all of their operands and write all of their results."""
