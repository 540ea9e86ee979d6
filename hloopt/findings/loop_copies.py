"""Copies in each iteration of a loop: what is written while it is still read, and what avoids the copy.

An element of a loop's state has one buffer, in which an iteration finds it and must leave it.  A copy stands
in the body of a planned module where the next value is made elsewhere, or where the old one is still read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from hloopt.analysis.effects import Effects
from hloopt.analysis.in_place import in_place_pairs
from hloopt.analysis.trip_count import counted_iterations
from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy, LoopBuffer
from hloopt.findings.planning import ProgramPlan, is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.numbers import byte_size
from hloopt.passes.copy_insertion import CopyInsertion
from hloopt.passes.loops.unroll import WhileUnroll
from hloopt.passes.schedule import Schedule
from hloopt.rewrite import same_layout
from hloopt.rewrite.pass_ import PassLog
from hloopt.rewrite.source_lines import kernel_lines

__all__ = ["in_loops", "loop_buffers"]

_LEAST: Final = 1 << 12
"""Bytes from which on a copy is looked at: counters are copied, too, and cost a launch."""
_LARGE: Final = 1 << 16
"""Bytes from which on it is worth a word that an element of the state is not copied."""
_FEW: Final = 3
_MOST: Final = 3
"""Loops whose buffers are spoken of, those with most bytes first."""
_SAVED: Final = 0.1
_SHARE: Final = 0.05
"""The least part of the time of all copies, and of the whole, that a change is to save in copies."""
_SAME: Final = frozenset({"copy", "bitcast"})


@dataclass(frozen=True)
class _CarriedElement:
    """An array of a loop's state: what makes the next value, who reads the old one, what is copied.

    ``writer`` is none where the next value is another element of the old state, ``taken``; the old value may
    become another element itself, ``given``.
    """

    loop: Instruction
    index: int
    writer: Instruction | None
    taken: int | None
    given: int | None
    readers: tuple[Instruction, ...]
    copies: tuple[Instruction, ...]
    is_updated: bool

    @property
    def byte_size(self) -> int:
        return self.loop.elements[self.index].byte_size

    @property
    def others(self) -> tuple[Instruction, ...]:
        """Readers besides the writer."""
        return tuple(one for one in self.readers if one is not self.writer)

    def conflict(self, module: Module) -> str:
        """What is written while it is read."""
        name = f"element {self.index}"
        if self.writer is None:
            return f"{name} takes over the old value of element {self.taken}"
        writer = _named(module, self.writer)
        if self.others:
            readers = " and ".join(_named(module, one) for one in self.others[:2])
            verb = "read" if len(self.others) > 1 else "reads"
            return f"{writer} writes {name}, whose old value {readers} still {verb}"
        if self.given is not None:
            return f"{writer} makes {name}, whose old value becomes element {self.given}"
        if self.writer in self.readers:
            return (
                f"{writer} makes {name} from other places of its old value than it writes, so in a buffer of "
                "its own, which is copied back"
            )
        return f"{writer} makes {name} in another buffer, which is copied back"


def _named(module: Module, instruction: Instruction) -> str:
    if instruction.opcode == "get-tuple-element":
        instruction = instruction.operands[0]
    body = instruction.calls.root if instruction.opcode == "fusion" else instruction
    lines = module.user_lines(body.metadata) or kernel_lines(module, instruction)
    return f"%{instruction.name}{f' ({lines[0]})' if lines else ''}"


def _source(instruction: Instruction) -> Instruction:
    while instruction.opcode in _SAME:
        instruction = instruction.operands[0]
    return instruction


def _elements(loop: Instruction) -> Iterator[_CarriedElement]:
    """The arrays of a loop's state that its body changes or copies."""
    body = loop.body
    state, root = body.parameters[0], body.root
    if root.opcode != "tuple" or not loop.is_tuple:
        return
    uses: dict[int, list[Instruction]] = {}
    copies: dict[int, dict[Instruction, None]] = {}
    for instruction in body:
        if instruction.opcode in _SAME:
            if instruction.opcode == "copy" and _is_plain(instruction):
                for index in _places(instruction, state, root):
                    copies.setdefault(index, {})[instruction] = None
            continue
        for operand in dict.fromkeys(instruction.operands):
            source = _source(operand)
            if source.is_element_of(state) and instruction is not root:
                here = [*instruction.users] if instruction.opcode == "tuple" else [instruction]
                uses.setdefault(source.tuple_index, []).extend(here)
    made = [_source(following) for following in root.operands]
    takes = [one.tuple_index if one.is_element_of(state) else None for one in made]
    given = {taken: index for index, taken in enumerate(takes) if taken != index}
    for index, (writer, taken) in enumerate(zip(made, takes, strict=True)):
        if taken == index or not writer.is_array:
            continue
        yield _CarriedElement(
            loop,
            index,
            writer if taken is None else None,
            taken,
            given.get(index),
            tuple(dict.fromkeys(uses.get(index, ()))),
            tuple(copies.get(index, ())),
            taken is None and _updates(writer, state, index),
        )


def _is_plain(copied: Instruction) -> bool:
    return copied.is_array and same_layout(copied.shape, copied.operands[0].shape)


def _places(copied: Instruction, state: Instruction, root: Instruction) -> Iterator[int]:
    """The elements of the state between which a copy stands: what it copies, and what it is."""
    source = _source(copied)
    if source.is_element_of(state):
        yield source.tuple_index
    pending = [copied]
    while pending:
        for user in pending.pop().users:
            if user is root:
                yield from (at for at, one in enumerate(root.operands) if _source(one) is source)
            elif user.opcode in _SAME:
                pending.append(user)


def _updates(writer: Instruction, state: Instruction, index: int) -> bool:
    """Whether an instruction updates an element of the state in place, or a copy of it."""
    for pair in in_place_pairs(writer):
        source = _source(writer.operands[pair.operand])
        if source.is_element_of(state) and source.tuple_index == index:
            return True
    return False


def _loops(module: Module) -> Iterator[tuple[Instruction, list[_CarriedElement]]]:
    for computation in module:
        for loop in computation:
            if loop.opcode == "while" and _is_long(loop):
                yield loop, list(_elements(loop))


def _is_long(loop: Instruction) -> bool:
    times = counted_iterations(loop)
    return times.count >= _FEW or times.known == "at least"


def in_loops(subject: Subject) -> Iterator[FindingCandidate]:
    """Loops whose plan copies arrays in each iteration; an order, or two iterations in one, may avoid it."""
    planned = is_planned(subject.module)
    module = subject.plan.module
    prices = {row.instruction: row.seconds for row in subject.plan.rows}
    for made, elements in _loops(module):
        home = subject.module.computations.get(made.home.name)
        loop = None if home is None else home.by_name.get(made.name)
        copied = [one for one in elements if one.copies and one.byte_size >= _LEAST]
        copies = {instruction for one in copied for instruction in one.copies}
        spent = sum(prices.get(one, 0.0) for one in copies)
        if loop is None or loop.opcode != "while" or not copied:
            continue
        if (
            spent < _SHARE * subject.plan.seconds
        ):  # no change can save as much as ``holds`` asks for
            continue
        why, blocking = _why(module, made, copied), _blocking(copied)
        change = partial(_unrolled, planned=planned)
        twice = FindingCandidate((loop,), why, _TWICE, change, blocking, holds=_copies_less)
        yield FindingCandidate(
            (loop,),
            why,
            _ORDER,
            partial(_ordered, home=made.home.name, name=made.name),
            blocking,
            is_late=True,
            holds=_copies_less,
            instead=twice,
        )


def _blocking(copied: Sequence[_CarriedElement]) -> tuple[Instruction, ...]:
    found: dict[Instruction, None] = {}
    for one in copied:
        found.update(dict.fromkeys((*one.copies, *([one.writer] if one.writer else ()))))
        found.update(dict.fromkeys(one.others[:2]))
    return tuple(found)


def _why(module: Module, loop: Instruction, copied: Sequence[_CarriedElement]) -> str:
    times = counted_iterations(loop)
    copies = dict.fromkeys(one for element in copied for one in element.copies)
    total = sum(one.shape.byte_size for one in copies)
    arrays = ", ".join(f"element {one.index}{_origin(one)}" for one in copied[:3])
    more = f" and {len(copied) - 3} more" if len(copied) > 3 else ""
    causes = "; ".join(one.conflict(module) for one in copied[:2])
    if times.known == "at least":
        often = f"each iteration, {byte_size(total)} every time"
    else:
        known = "" if times.known == "exact" else f"{times.known} "
        often = f"each of its {known}{times.count:,} iterations, {byte_size(total * times.count)} in all"
    return f"%{loop.name} copies {arrays}{more} of its state in {often}: {causes}."


def _origin(element: _CarriedElement) -> str:
    start = element.loop.operands[0]
    shape = element.loop.elements[element.index]
    name = f"%{_source(start.operands[element.index]).name}, " if start.opcode == "tuple" else ""
    return f" ({name}{shape})"


_ORDER: Final = (
    FindingRemedy(
        "model",
        "XLA does not order the read before the write, wherever it stands in the source: read the new value, "
        "or give lax.scan what is read as xs and take what is written as ys: two arrays",
    ),
    FindingRemedy(
        "hloopt",
        "schedule,copy-insertion in place of copy-insertion,schedule: an order with reads before writes, "
        "and the copies that it needs",
    ),
)
_TWICE: Final = (
    FindingRemedy(
        "model",
        "unroll=2 in lax.scan or lax.fori_loop: one iteration writes into the second buffer, the next one "
        "back into the first",
    ),
    FindingRemedy(
        "flag", "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_DOUBLE_BUFFER on GPUs"
    ),
    FindingRemedy("hloopt", "while-unroll{factor=2,full_max=0}, before other passes"),
)


def _ordered(module: Module, places: Sequence[Instruction], home: str, name: str) -> bool:
    """Put the readers before the writers, and copy what then has to be copied and nothing else."""
    _without_copies(module.computations[home].by_name[name])
    _settle(module)
    return True


def _unrolled(module: Module, places: Sequence[Instruction], planned: bool) -> bool:
    """Two iterations in one, without the copies between them."""
    if planned:
        for loop in places:
            _without_copies(loop)
    unroll, effects = WhileUnroll(factor=2, full_max=0), Effects(module)
    made = [unroll.unroll(loop, effects, PassLog()) for loop in places]
    if planned:
        _settle(module)
    return any(made)


def _without_copies(loop: Instruction) -> None:
    for copied in [one for one in loop.body if one.opcode == "copy" and _is_plain(one)]:
        edit.drop_control_edges(copied)  # the order in which a compiler has its copies run
        edit.replace_instruction(copied, copied.operands[0])


def _settle(module: Module) -> None:
    Schedule().run(module, PassLog())
    CopyInsertion().run(module, PassLog())


def _copies_less(before: ProgramPlan, after: ProgramPlan) -> bool:
    """Whether copies of arrays take a part of the time, and a change saves some of them."""
    saved = _copied(before) - _copied(after)
    return saved >= _SAVED * _copied(before) and saved >= _SHARE * before.seconds


def _copied(plan: ProgramPlan) -> float:
    return sum(
        row.seconds
        for row in plan.rows
        if row.instruction.opcode == "copy" and row.instruction.shape.byte_size >= _LEAST
    )


def loop_buffers(subject: Subject) -> tuple[LoopBuffer, ...]:
    """Large arrays that loops update in place: whether each iteration copies them, and what a copy costs.

    One of each loop, that which something else reads before others; of the ``_MOST`` loops that move most.
    """
    module = subject.plan.module
    found = [
        one
        for loop, elements in _loops(module)
        for one in elements
        if one.is_updated
        and one.byte_size >= _LARGE
        and (one.copies or one.others or _is_given(one))
    ]
    found.sort(
        key=lambda one: (
            not (one.copies or one.others),
            -one.byte_size * counted_iterations(one.loop).count,
        )
    )
    first: dict[Instruction, _CarriedElement] = {}
    for one in found:
        first.setdefault(one.loop, one)
    return tuple(_buffer(subject, one) for one in [*first.values()][:_MOST])


def _is_given(element: _CarriedElement) -> bool:
    """Whether an array is an argument, rather than a buffer in which a scan collects results."""
    start = element.loop.operands[0]
    return start.opcode == "tuple" and _source(start.operands[element.index]).opcode == "parameter"


def _buffer(subject: Subject, element: _CarriedElement) -> LoopBuffer:
    module, loop = subject.plan.module, element.loop
    times = counted_iterations(loop)
    shape = loop.elements[element.index]
    scratch = Computation("copied")
    given = build.make(scratch, "parameter", (), {"parameter_number": 0}, shape=shape)
    price = subject.planner.predictor.predict(
        build.make(scratch, "copy", (given,), {}, shape=shape)
    )
    assert element.writer is not None, "what is updated has a writer"
    return LoopBuffer(
        loop.name,
        module.user_line(loop.metadata) or "",
        times.count,
        times.known == "exact",
        element.index,
        str(shape),
        shape.byte_size,
        _named(module, element.writer),
        tuple(_named(module, one) for one in element.others[:2]),
        len(element.copies),
        price.seconds,
    )
