"""Calls replaced by what they call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.signatures import own_fusion_bodies
from hloopt.ir.walk import callees_first, has_opcode, open_computations
from hloopt.rewrite import Pass, PassLog, same_layout
from hloopt.rewrite.naming import op_name_of
from hloopt.types import ArrayShape, FrontendAttributes, Metadata, Shape

__all__ = ["CallInliner", "inline_call", "inlining_obstacle"]

_STEP = "inline a call"

_GROWTH: Final = 100
"""Instructions that copies may add for each that the module came with: a hundred calls of one large layer."""
_ROOM: Final = 10_000
"""Instructions that a module may have after copying, however few it came with."""

_NOT_INLINEABLE = ("_xla_compute_type", "_xla_stream_annotation")


@dataclass(frozen=True)
class CallInliner(Pass):
    """Put the body of a called computation in the place of the call.

    Control edges of the call go to what begins and ends the body, its sharding to the result.  Left
    alone: calls marked ``inlineable="false"`` or for another device or stream, calls with a
    backend_config (it says something about the call as a whole), calls to another execution thread,
    calls that share buffers between operands and result, calls in bodies of fusions and of asynchronous
    calls, calls with tuples of another layout inside, and where several calls share the state of an
    rng-get-and-update-state: copies of it would each have their own.  Arrays that have another layout
    inside are copied.

    Recursion cannot be written in HLO: a computation is defined before it is called.  Calls of calls may
    still stand for more code than there can be: computations called more than once are copied until the
    module has 100 times the instructions it came with, or 10,000; the other calls stay.

    single_call_site   whether to inline only computations that are called once
    composites         whether to inline composite calls, which name what a library may do in one go
    only               names of computations to inline, no others; none given: all
    largest            the most instructions of a computation that is called more than once; 0: no limit
    """

    example: ClassVar[str] = """HloModule example

double {
  a = f32[4] parameter(0)
  ROOT b = f32[4] add(a, a)
}

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] call(x), to_apply=double
  ROOT z = f32[4] negate(y)
}
"""

    single_call_site: bool = False
    composites: bool = True
    only: tuple[str, ...] = ()
    largest: int = 0

    def __post_init__(self) -> None:
        if self.largest < 0:
            raise UsageError(f"{self.name}: largest must be non-negative, got {self.largest}")

    def run(self, module: Module, log: PassLog) -> bool:
        """Inline callees first, so that each body is copied once it is final."""
        room = _Room(module)
        changed = False
        for computation in open_computations(module, callees_first(module)):
            for instruction in computation if has_opcode(computation, ("call",)) else ():
                if not log.allows():
                    return changed
                if instruction.opcode != "call":
                    continue
                obstacle = self.obstacle(instruction, computation) or room.obstacle(instruction)
                if obstacle:
                    log.miss(_STEP, instruction, obstacle)
                    continue
                log.hit(_STEP, instruction, f"of {instruction.to_apply.name}")
                inline_call(instruction, module)
                changed = True
        if room.is_full:
            log.note(f"some calls stay: with their copies, {room.limit_text}")
        return changed

    def obstacle(self, call: Instruction, caller: Computation) -> str:
        """What speaks against inlining a call, or nothing."""
        callee = call.to_apply
        sites = sum(callee.callers.values())
        if self.only and callee.name not in self.only:
            return f"{callee.name} is not among the names given"
        if self.single_call_site and sites > 1:
            return f"{callee.name} is called {sites} times"
        if self.largest and sites > 1 and len(callee) > self.largest:
            return f"{callee.name} has {len(callee)} instructions, the limit is {self.largest}"
        if not self.composites and call.attributes.get("is_composite"):
            return "it is a composite call"
        return inlining_obstacle(call, caller)


class _Room:
    """How many instructions copies may still add; ``is_full`` once a call was refused for want of room.

    A computation is copied to all its calls or to none, so that a later run finds nothing more to do.
    """

    def __init__(self, module: Module) -> None:
        self._limit = max(_ROOM, _GROWTH * module.source_size())
        self._size = module.instruction_count()
        self._copied: set[Computation] = set()
        self.is_full = False

    @property
    def limit_text(self) -> str:
        """What there would be, and the limit."""
        return f"the module would have more than {self._limit} instructions"

    def obstacle(self, call: Instruction) -> str:
        """Why there is no room for copies of what is called, or nothing; what is called once is not copied."""
        callee = call.to_apply
        copies = sum(callee.callers.values()) - 1
        added = copies * len(callee)
        if not added or callee in self._copied:
            return ""
        if self._size + added <= self._limit:
            self._copied.add(callee)
            self._size += added
            return ""
        self.is_full = True
        return f"with {copies} copies of {callee.name}, {self.limit_text}"


def inlining_obstacle(call: Instruction, caller: Computation) -> str:
    """Why the body of a call cannot take its place, or nothing."""
    callee = call.to_apply
    marks = FrontendAttributes.of(call.attributes)
    shapes = zip(callee.parameter_shapes, call.operands, strict=True)
    if marks.get("inlineable") == "false" or any(name in marks for name in _NOT_INLINEABLE):
        return "its frontend_attributes say so"
    if callee.execution_thread != caller.execution_thread:
        return f"{callee.name} runs on another thread"
    for name in ("output_to_operand_aliasing", "backend_config"):
        if name in call.attributes:
            return f"it has {name}"
    if _shares_state(callee):
        return f"{callee.name} keeps the state of random numbers for several calls"
    pairs = ((callee.result_shape, call.shape), *((shape, entry.shape) for shape, entry in shapes))
    if not all(isinstance(one, ArrayShape) or same_layout(one, other) for one, other in pairs):
        return f"tuples that {callee.name} takes or gives have another layout inside"
    return ""


def _shares_state(callee: Computation) -> bool:
    return sum(callee.callers.values()) > 1 and any(
        inner.opcode == "rng-get-and-update-state" for inner in callee
    )


def inline_call(call: Instruction, module: Module) -> None:
    """Put the body of a call in its place; a computation without callers is removed."""
    callee = call.to_apply
    mapped = {
        parameter: _with_layout(call, operand, parameter.shape)
        for parameter, operand in zip(callee.parameters, call.operands, strict=True)
    }
    if _is_sole_use(call, callee, module):
        copies = edit.splice(call, callee, mapped)
        result = mapped.get(callee.root, callee.root)
    else:
        copies = _copied(call, callee, mapped)
        result = mapped[callee.root]
    _name_by_call(call, copies)
    _hand_on_sharding(call, callee, result)
    _relay_control_edges(call, copies)
    edit.replace_uses(call, _with_layout(call, result, call.shape))
    edit.remove(call)
    if not callee.callers and callee is not module.entry:
        edit.remove_computation(callee)
    own_fusion_bodies(copies)


def _name_by_call(call: Instruction, copies: Iterable[Instruction]) -> None:
    """What was inlined is named as a part of the call; what has no metadata takes the call's."""
    name = op_name_of(call)
    named: dict[Metadata, Metadata] = {}
    for copy in copies:
        mine = copy.metadata
        if mine is None:
            copy.metadata = call.metadata
        elif name:
            copy.metadata = named.get(mine) or named.setdefault(mine, mine.within(name))


def _is_sole_use(call: Instruction, callee: Computation, module: Module) -> bool:
    """Whether a body is needed in this place alone, so that it can move there."""
    if callee.callers != {call: 1} or callee is module.entry:
        return False
    entry = callee._first
    # Read once for each level of calls: no call of a property.
    while entry is not None and not (entry.control_predecessors or entry.control_successors):
        entry = entry._next
    return entry is None


def _copied(
    call: Instruction, callee: Computation, mapped: dict[Instruction, Instruction]
) -> list[Instruction]:
    """Copies of all that is computed, right before the call; ``mapped`` has them, too."""
    copies: list[Instruction] = []
    for inner in callee:
        if inner.opcode == "parameter":
            continue
        operands = tuple(mapped[operand] for operand in inner.operands)
        copy = mapped[inner] = build.clone(inner, call, operands)
        copies.append(copy)
        for before in inner.control_predecessors:
            edit.add_control_edge(mapped[before], copy)
    return copies


def _with_layout(call: Instruction, value: Instruction, shape: Shape) -> Instruction:
    """The value, copied where the shape has another layout."""
    if same_layout(value.shape, shape):
        return value
    copy = build.make(call, "copy", (value,), {}, shape=shape, metadata=call.metadata)
    if "sharding" in value.attributes:
        edit.set_attribute(copy, "sharding", value.attributes["sharding"])
    return copy


def _hand_on_sharding(call: Instruction, callee: Computation, result: Instruction) -> None:
    """To a result that was made here and has none."""
    made_here = callee.root.opcode != "parameter"
    if made_here and "sharding" in call.attributes and "sharding" not in result.attributes:
        edit.set_attribute(result, "sharding", call.attributes["sharding"])


def _relay_control_edges(call: Instruction, copies: list[Instruction]) -> None:
    """Whatever has nothing before it in the body waits for the call's predecessors; likewise behind."""
    inside = set(copies)
    if call.control_predecessors:
        for copy in copies:
            if inside.isdisjoint((*copy.operands, *copy.control_predecessors)):
                for before in call.control_predecessors:
                    edit.add_control_edge(before, copy)
    if call.control_successors:
        for copy in copies:
            if inside.isdisjoint((*copy.users, *copy.control_successors)):
                for after in call.control_successors:
                    edit.add_control_edge(copy, after)
