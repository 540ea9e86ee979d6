"""Called computations in the place of what calls them; smaller states of loops, fewer iterations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from hloopt.ir import Computation, Instruction, build, edit
from hloopt.ir.walk import called_computations
from hloopt.passes.call_inliner import inline_call
from hloopt.passes.loops.carried import CarriedState, growth_obstacle, obstacle, reads
from hloopt.prover.reduction.case import Case, CaseDraft
from hloopt.prover.reduction.recording import Delta, Site, ValueRecorder, opened
from hloopt.types import ArrayShape, Literal, TupleShape, dtype

__all__ = ["BODIES", "ONCE", "STATES", "TRIPS", "nothing"]

_FEW: Final = (1, 2)


def _call_sites(case: Case) -> list[Site]:
    """Calls and fusions, then each branch of each conditional."""
    found: list[Site] = []
    branches: list[Site] = []
    for home in case.module:
        for one in home:
            if one.opcode in ("call", "fusion"):
                found.append((home.name, one.name, 0))
            elif one.opcode == "conditional":
                count = len(list(called_computations(one)))
                branches += [(home.name, one.name, number) for number in range(count)]
    return [*found, *branches]


def _open(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    for home, name, number in sites:
        one = draft.find((home, name))
        if one is None:
            continue
        if one.opcode in ("call", "fusion"):
            opened(one, draft.module)
        elif one.opcode == "conditional":
            branch = list(called_computations(one))[number]
            _call_instead(draft, one, branch, one.operands[number + 1])


def _call_instead(
    draft: CaseDraft, one: Instruction, body: Computation, argument: Instruction
) -> None:
    """Put a computation of one argument in the place of what runs it among others."""
    call = build.make(one, "call", (argument,), {"to_apply": body}, shape=one.shape)
    draft.replace(one, call)
    inline_call(call, draft.module)


# ---- loops ----------------------------------------------------------------------------------------


def _loops(case: Case) -> list[Instruction]:
    return [one for one in case.module.instructions() if one.opcode == "while"]


def _trip_sites(case: Case) -> list[Site]:
    """One iteration of each loop, and smaller numbers that conditions compare with."""
    loops = _loops(case)
    found: list[Site] = [
        (one.home.name, one.name, "flag", 0)
        for one in loops
        if one.condition.root.opcode != "get-tuple-element" and not growth_obstacle(one)
    ]
    for condition in dict.fromkeys(one.condition for one in loops):
        for one in condition:
            found += [(condition.name, one.name, "number", size) for size in _smaller(one)]
    return found


def _once_sites(case: Case) -> list[Site]:
    return [(one.home.name, one.name, "once", 0) for one in _loops(case)]


def _state_sites(case: Case) -> list[Site]:
    """Of each loop elements that stay as they are, elements that go, a tuple around a single one."""
    found: list[Site] = []
    for loop in _loops(case):
        if not obstacle(loop):
            found += _of_state(loop)
    return found


def _of_state(loop: Instruction) -> list[Site]:
    place, found = (loop.home.name, loop.name), list[Site]()
    found_reads = reads(loop.condition.parameters[0])
    needed = {number for number, some in found_reads.items() if any(one.is_used for one in some)}
    needed.update(
        number for number, some in found_reads.items() if any(one.is_root for one in some)
    )
    elements = [number for number in range(len(loop.elements)) if number not in needed]
    root = loop.body.root
    if root.opcode == "tuple":
        found += [
            (*place, "keep", number)
            for number in elements
            if not root.operands[number].is_element_of(loop.body.parameters[0])
        ]
    found += [(*place, "drop", number) for number in reversed(elements)]
    if len(loop.elements) == 1:
        found.append((*place, "bare", 0))
    return found


def _smaller(constant: Instruction) -> list[int]:
    value = constant.constant_integer
    if value is None:
        return []
    return [size for size in dict.fromkeys((*_FEW, value // 2)) if 0 < size < value]


def _change_loops(draft: CaseDraft, sites: Sequence[Site], _: ValueRecorder) -> None:
    # The last elements first: the numbers of the others stay.
    for home, name, how, number in sorted(sites, key=lambda site: (site[2] == "drop", -site[3])):
        one = draft.find((home, name))
        if one is None:
            continue
        if how == "number":
            _set_number(one, number)
        elif one.opcode != "while":
            continue
        elif how == "once":
            _call_instead(draft, one, one.body, one.operands[0])
        elif how == "flag":
            _run_once(one)
        elif how == "keep":
            root, state = one.body.root, one.body.parameters[0]
            edit.set_operand(root, number, build.element(root, state, number))
        elif how == "drop":
            _drop(draft, one, number)
        elif how == "bare":
            _bare(draft, one)


def _set_number(constant: Instruction, value: int) -> None:
    shape = constant.shape
    known = constant.constant_integer
    if isinstance(shape, ArrayShape) and known is not None and value < known:
        array: Any = np.full(shape.dims, value, shape.dtype.numpy)
        edit.set_attribute(constant, "literal", Literal(shape, array))


def _run_once(loop: Instruction) -> None:
    """Let a loop go on while an element of its state says so, which the first iteration makes false."""
    state, shape = CarriedState(loop), ArrayShape(dtype("pred"), ())
    (flag,) = state.add([build.splat(state.init, shape, True)])
    edit.set_operand(state.root, flag, build.splat(state.root, shape, False))
    edit.set_root(state.condition, build.element(state.condition, state.states[0], flag))


def _drop(draft: CaseDraft, loop: Instruction, number: int) -> None:
    """Take an element out of the state: it is 0 inside of the loop, and behind it what it was before."""
    if number >= len(loop.elements) or len(loop.elements) < 2:
        return
    shape = loop.elements[number]
    state = CarriedState(loop)
    for place in state.states:
        for read in reads(place)[number]:
            if read.is_used:
                edit.replace_uses(read, nothing(read, shape))
    before = state.init.operands[number]
    for read in reads(loop)[number]:
        edit.replace_uses(read, before)
    state.drop([number])
    if before.computation is not None:
        draft.drop(before)


def _bare(draft: CaseDraft, loop: Instruction) -> None:
    """Carry the only element of a state without a tuple."""
    if len(loop.elements) != 1:
        return
    (shape,) = loop.elements
    state = CarriedState(loop)
    init, root = state.init, state.root
    for place in (*state.states, loop):
        for read in list(place.users):
            edit.replace_uses(read, place)
            edit.remove(read)
        edit.set_shape(place, shape)
    edit.set_root(state.body, root.operands[0])
    edit.remove(root)
    edit.set_operands(loop, init.operands)
    draft.drop(init)


def nothing(position: Instruction, shape: Any) -> Instruction:
    """Zeros of a shape."""
    if isinstance(shape, TupleShape):
        parts = tuple(nothing(position, part) for part in shape.elements)
        return build.make(position, "tuple", parts, shape=shape)
    if isinstance(shape, ArrayShape) and shape.dtype.is_array:
        return build.splat(position, shape, 0)
    return build.make(position, "after-all", (), shape=shape)


BODIES: Final = Delta("called computations", _call_sites, _open, grows=True)
TRIPS: Final = Delta("iterations of loops", _trip_sites, _change_loops, grows=True, quicker=True)
ONCE: Final = Delta("bodies of loops", _once_sites, _change_loops, grows=True)
STATES: Final = Delta("states of loops", _state_sites, _change_loops)
