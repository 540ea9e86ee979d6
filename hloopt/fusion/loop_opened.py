"""A loop as it was before anything in it was fused, so that verdicts on it do not depend on that.

body { ..., ROOT w = while(t), ... }        =>    body { ..., w = while(t), ...; ROOT r = tuple(w.0, w.1) }
body { ..., f = fusion(x), calls=g, ... }   =>    body { ..., the instructions of g, ... }
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.ir import Computation, Instruction, Module, build, edit, walk
from hloopt.passes.cse import CommonSubexpressionElimination
from hloopt.passes.dce import DeadCodeElimination
from hloopt.passes.defuse import Defuse
from hloopt.rewrite.pass_ import PassLog
from hloopt.types import TupleShape

__all__ = ["CALLED", "Opened", "alone", "opened"]

CALLED: Final = ("condition", "body")
"""The attributes of a loop by which it calls."""


@dataclass(frozen=True)
class Opened:
    """What a loop called before; it now calls copies without fusions, whose roots are tuples.

    before  the condition and the body, by attribute; empty where nothing had to be opened
    """

    loop: Instruction
    before: dict[str, Computation]

    @contextmanager
    def as_given(self) -> Iterator[None]:
        """A context in which the loop calls what it called before: users and lock files refer to that."""
        copies = {key: self.loop.attributes[key] for key in self.before}
        self._call(self.before)
        try:
            yield
        finally:
            self._call(copies)

    def _call(self, computations: Mapping[str, Computation]) -> None:
        for key, computation in computations.items():
            edit.set_attribute(self.loop, key, computation)

    def close(self) -> None:
        """Let the loop call again what it called."""
        copies = [self.loop.attributes[key] for key in self.before]
        self._call(self.before)
        _remove_unused(copies)

    def keep(self) -> tuple[Computation, ...]:
        """Remove what nothing calls any more, and give its names to the copies; return what was removed."""
        gone = _remove_unused(self.before.values())
        for key in self.before:
            edit.rename_computation(self.loop.attributes[key], self.before[key].name)
        return gone


def opened(loop: Instruction) -> Opened:
    """Defuse a loop, loops inside included, in one traversal of each computation."""
    if not _is_closed(loop):
        return Opened(loop, {})
    before = {key: loop.attributes[key] for key in CALLED}
    module, copy = alone(loop)
    log = PassLog()
    for step in (Defuse(), CommonSubexpressionElimination(), DeadCodeElimination()):
        step.run(module, log)
    for inner in [one for computation in module for one in computation if one.opcode == "while"]:
        _end_in_tuple(inner.body)
    assert loop.computation is not None
    assert loop.computation.module is not None, "a loop of a module"
    copies: dict[Computation, Computation] = {}
    for computation in _called_first(copy):
        cloned = build.clone_computation(computation, None, copies)
        copies[computation] = edit.add_computation(loop.computation.module, cloned)
    for key in CALLED:
        edit.set_attribute(loop, key, copies[copy.attributes[key]])
    return Opened(loop, before)


def alone(loop: Instruction) -> tuple[Module, Instruction]:
    """A module that runs a copy of the loop on any initial state."""
    module = Module("loop")
    copies: dict[Computation, Computation] = {}
    for computation in _called_first(loop):
        cloned = build.clone_computation(computation, None, copies)
        copies[computation] = edit.add_computation(module, cloned)
    entry = edit.add_computation(module, Computation("main"))
    entry.execution_thread = loop.body.execution_thread
    state = build.make(entry, "parameter", (), {"parameter_number": 0}, shape=loop.shape)
    called = {key: copies[loop.attributes[key]] for key in CALLED}
    copy = build.make(entry, "while", (state,), called, shape=loop.shape)
    entry.root = copy
    module.entry = entry
    return module, copy


def _called_first(loop: Instruction) -> Iterator[Computation]:
    """All computations that a loop reaches, each after those it calls."""
    seen: set[Computation] = set()
    stack = [iter(walk.called_computations(loop))]
    pending: list[Computation | None] = [None]
    while stack:
        called = next(stack[-1], None)
        if called is None:
            stack.pop()
            done = pending.pop()
            if done is not None:
                yield done
        elif called not in seen:
            seen.add(called)
            pending.append(called)
            stack.append(iter(walk.callees(called)))


def _is_closed(loop: Instruction) -> bool:
    return _has_other_root(loop) or any(
        entry.opcode == "fusion" or (entry.opcode == "while" and _has_other_root(entry))
        for computation in _called_first(loop)
        for entry in computation
    )


def _has_other_root(loop: Instruction) -> bool:
    return isinstance(loop.shape, TupleShape) and loop.body.root.opcode != "tuple"


def _end_in_tuple(body: Computation) -> None:
    """Make a body's root a ``tuple`` of its elements, where it is another op."""
    root = body.root
    if root.opcode == "tuple" or not isinstance(root.shape, TupleShape):
        return
    elements = tuple(
        build.make(body, "get-tuple-element", (root,), {"index": number}, name=root.name)
        for number in range(len(root.shape.elements))
    )
    edit.set_root(body, build.make(body, "tuple", elements, shape=root.shape, name=root.name))


def _remove_unused(computations: Iterable[Computation]) -> tuple[Computation, ...]:
    """Remove computations that nothing calls, and what only they called."""
    gone: dict[Computation, None] = {}
    pending = list(computations)
    while pending:
        computation = pending.pop()
        if computation in gone or computation.callers or computation.module is None:
            continue
        called = [one for entry in computation for one in walk.called_computations(entry)]
        edit.remove_computation(computation)
        gone[computation] = None
        pending.extend(called)
    return tuple(gone)
