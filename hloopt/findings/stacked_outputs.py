"""Outputs of scans that are stacked in each iteration, and of which the last alone is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from hloopt.analysis.induction import Affine
from hloopt.analysis.trip_count import trip_count
from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, build, edit
from hloopt.numbers import byte_size
from hloopt.passes.loops.carried import CarriedState, growth_obstacle, reads, used_reads
from hloopt.passes.loops.counters import counters
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite.pattern import splat_literal
from hloopt.rewrite.site import sites
from hloopt.types import ArrayShape, SliceRange

__all__ = ["last_read"]

_LEAST: Final = 1 << 16
"""Bytes of a stack that is worth a word."""
_FEW: Final = 3


@dataclass(frozen=True)
class _Stack:
    """Element ``index`` of a loop's state: each iteration writes one place of it along ``dim``.

    writer  the update, which nothing but the next state reads
    slices  what is read after the loop: the place at the end
    carried the element of the state that has the written value, too; None where there is none
    """

    loop: Instruction
    index: int
    dim: int
    writer: Instruction
    slices: tuple[Instruction, ...]
    carried: int | None

    @property
    def places(self) -> int:
        """How many outputs the stack holds."""
        return self.writer.array.dims[self.dim]


def last_read(subject: Subject) -> Iterator[FindingCandidate]:
    """Loops of known count that fill an array place by place, of which the last place is read."""
    if is_planned(subject.module):
        return
    for loop in sites(subject.module, "while"):
        stacks = _stacks(loop)
        if not stacks:
            continue
        size = sum(one.writer.shape.byte_size for one in stacks)
        first = stacks[0]
        more = f" (and {len(stacks) - 1} more)" if len(stacks) > 1 else ""
        yield FindingCandidate(
            (loop,),
            f"%{first.writer.name}{more} stacks an output of each of the {first.places:,} iterations of "
            f"%{loop.name}, {byte_size(size)}, and %{first.slices[0].name} reads the last of them: the "
            "others are written for nothing.",
            (FindingRemedy("model", _remedy(first)),),
            _carried,
            tuple(one for stack in stacks for one in stack.slices),
        )


def _remedy(stack: _Stack) -> str:
    if stack.carried is None:
        return "return the value in the carry of jax.lax.scan, with None for its ys, in place of ys[-1]"
    return "the carry that jax.lax.scan returns has the value of ys[-1]: take that, and return None for ys"


def _stacks(loop: Instruction) -> list[_Stack]:
    if not loop.is_tuple or loop.body.root.opcode != "tuple" or growth_obstacle(loop):
        return []
    found = []
    for index in range(len(loop.elements)):
        stack = _stack(loop, index)
        if stack is not None:
            found.append(stack)
    if not found:
        return []
    count = trip_count(loop)
    if count is None or count < _FEW:
        return []
    numbers = counters(loop)
    return [one for one in found if _last_written(one, numbers, count) == one.places - 1]


def _last_written(stack: _Stack, numbers: Mapping[int, Affine], count: int) -> int | None:
    """The place that the last iteration writes, where that is an element of the state that counts."""
    place = _source(stack.writer.operands[2 + stack.dim])
    if place.opcode == "select" and _is_below_zero(place.operands[0], _source(place.operands[2])):
        place = _source(place.operands[2])
    if not place.is_element_of(stack.loop.body.parameters[0]):
        return None
    variable = numbers.get(place.tuple_index)
    if variable is None or variable.first < 0 or variable.step < 0:
        return None
    return variable.first + variable.step * (count - 1)


def _is_below_zero(condition: Instruction, value: Instruction) -> bool:
    """As JAX has an index count from the end, which one that counts up from 0 never does."""
    if condition.opcode != "compare" or condition.attributes["direction"] != "LT":
        return False
    literal = splat_literal(condition.operands[1])
    if literal is None or literal.array is None or int(literal.array) != 0:
        return False
    return _source(condition.operands[0]) is value


def _stack(loop: Instruction, index: int) -> _Stack | None:
    root, state = loop.body.root, loop.body.parameters[0]
    writer = root.operands[index]
    if writer.opcode != "dynamic-update-slice" or writer.shape.byte_size < _LEAST:
        return None
    before = writer.operands[0]
    if not before.is_element_of(state) or before.tuple_index != index:
        return None
    if writer.users != {root: 1} or used_reads(loop.condition.parameters[0]).get(index):
        return None
    if [list(one.users) for one in used_reads(state)[index]] != [[writer]]:
        return None
    dim = _written_dim(writer)
    slices = tuple(user for one in reads(loop)[index] for user in one.users)
    if dim is None or not slices or loop.is_root or len(set(slices)) != len(slices):
        return None
    if any(user.opcode != "get-tuple-element" for user in loop.users):
        return None
    if not all(_is_last(one, dim, writer.array) for one in slices):
        return None
    return _Stack(loop, index, dim, writer, slices, _same_element(writer.operands[1], root))


def _written_dim(writer: Instruction) -> int | None:
    """The dimension along which an update writes one place, and all places of the others."""
    update, whole = writer.operands[1].array, writer.array
    narrower = [dim for dim in range(whole.rank) if update.dims[dim] != whole.dims[dim]]
    return narrower[0] if len(narrower) == 1 and update.dims[narrower[0]] == 1 else None


def _is_last(read: Instruction, dim: int, whole: ArrayShape) -> bool:
    if read.opcode != "slice":
        return False
    wanted = [SliceRange(0, size) for size in whole.dims]
    wanted[dim] = SliceRange(whole.dims[dim] - 1, whole.dims[dim])
    return tuple(read.attributes["slice"]) == tuple(wanted)


def _same_element(update: Instruction, root: Instruction) -> int | None:
    """The next state's element that is an update, apart from dimensions of one place."""
    value = _source(update)
    if value.opcode == "reshape":
        value = _source(value.operands[0])
    return next((at for at, one in enumerate(root.operands) if _source(one) is value), None)


def _source(value: Instruction) -> Instruction:
    while value.opcode == "get-tuple-element" and value.operands[0].opcode == "tuple":
        value = value.operands[0].operands[value.tuple_index]
    return value


def _carried(module: Module, places: Sequence[Instruction]) -> bool:
    """Carry what was written last, and nothing of the stack."""
    loop = places[0]
    changed = False
    while stacks := _stacks(loop):
        _carry(stacks[0])
        changed = True
    if changed:
        parse_pipeline("dce").run(module)
    return changed


def _carry(stack: _Stack) -> None:
    state, update, at = CarriedState(stack.loop), stack.writer.operands[1], stack.carried
    if at is None:
        (at,) = state.add((build.splat(state.init, update.array, 0),))
        edit.set_operand(state.root, at, update)
    for read in stack.slices:
        last = build.element(read, stack.loop, at, read.metadata)
        if last.array.dims != read.array.dims:
            last = build.make(read, "reshape", (last,), shape=read.shape)
        edit.replace_instruction(read, last)
    state.drop([stack.index])
