"""Computations as straight lines over numbered slots.

A slot holds one array: tuples exist only while the plan is made, so that ``tuple`` and
``get-tuple-element`` cost nothing at run time.  Calls and fusions are inlined.  The line is written out
as a Python function of local variables (``v7 = f7(v3, v5)``) made of numbers alone: nothing of the module's
text ever reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hloopt.types import ArrayShape, Shape, TupleShape

__all__ = ["Line", "Slots", "Step", "leaf_slots", "pack", "unpack"]

Slots: TypeAlias = "int | tuple[Slots, ...]"
"""The slots of a value, in the structure of its shape."""


@dataclass(slots=True)
class Step:
    """``outs = function(*ins)``; one ``out`` gets the result itself, several unpack it.

    view       the outs may share memory with the ins
    fresh      the out is a new array that nothing else refers to
    in_place   which of ``ins`` the ufunc may write its result into, or -1
    """

    function: Callable[..., Any]
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    several: bool = False
    view: bool = False
    fresh: bool = False
    ufunc: bool = False
    in_place: int = -1


@dataclass
class Line:
    """The steps of one computation while it is being compiled.

    ``shapes`` gives the shape of each slot's array; ``kernels`` is added to the launches of a run.
    """

    inputs: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    shapes: list[ArrayShape] = field(default_factory=list)
    results: tuple[int, ...] = ()
    kernels: int = 0

    def slot(self, shape: Shape) -> Slots:
        """A new slot for an array, new slots for the leaves of a tuple."""
        if isinstance(shape, TupleShape):
            return tuple(self.slot(element) for element in shape.elements)
        self.shapes.append(shape if isinstance(shape, ArrayShape) else shape.element)
        return len(self.shapes) - 1

    def compile(
        self, launches: list[int], carrier: Callable[[ArrayShape], Any]
    ) -> Callable[..., Any]:
        """The line as a function from arrays to a tuple of arrays.

        ``launches[0]`` is increased by ``kernels`` on each run; ``carrier`` tells a slot's NumPy type.
        """
        self.drop_unused()
        deaths = self.deaths()
        self.choose_in_place(deaths, carrier)
        scope: dict[str, Any] = {f"v{slot}": value for slot, value in self.constants.items()}
        scope["launches"] = launches
        lines = [f"def line({', '.join(f'v{slot}' for slot in self.inputs)}):"]
        for number, step in enumerate(self.steps):
            scope[f"f{number}"] = step.function
            arguments = [f"v{slot}" for slot in step.ins]
            if step.in_place >= 0:
                arguments.append(f"v{step.in_place}")
            targets = ", ".join(f"v{slot}" for slot in step.outs)
            if step.several:
                targets = f"({targets},)" if step.outs else "()"
            lines.append(f"    {targets} = f{number}({', '.join(arguments)})")
            dead = [slot for slot in deaths[number] if slot not in self.constants]
            if dead:
                lines.append(f"    del {', '.join(f'v{slot}' for slot in dead)}")
        if self.kernels:
            lines.append(f"    launches[0] += {self.kernels}")
        results = "".join(f"v{slot}, " for slot in self.results)
        lines.append(f"    return ({results})")
        exec(compile("\n".join(lines), "<numpy line>", "exec"), scope)  # noqa: S102 - numbers alone
        function: Callable[..., Any] = scope["line"]
        return function

    def drop_unused(self) -> None:
        """Remove steps nobody needs: elements of inlined tuples that are not read."""
        needed = set(self.results)
        kept = []
        for step in reversed(self.steps):
            if needed.intersection(step.outs) or not step.outs:
                needed.update(step.ins)
                kept.append(step)
        self.steps = kept[::-1]

    def deaths(self) -> list[list[int]]:
        """For each step the slots that no later step and no result needs."""
        alive = set(self.results)
        dead: list[list[int]] = []
        for step in reversed(self.steps):
            gone = sorted({*step.ins, *step.outs} - alive)
            alive.update(gone)
            dead.append(gone)
        return dead[::-1]

    def choose_in_place(
        self, deaths: list[list[int]], carrier: Callable[[ArrayShape], Any]
    ) -> None:
        """Let a ufunc write into an operand that is new, unshared and dies there."""
        shared: set[int] = set()
        fresh: set[int] = set()
        for step in self.steps:
            if step.fresh:
                fresh.update(step.outs)
            if step.view:
                shared.update(step.ins)
                shared.update(step.outs)
        for step, dead in zip(self.steps, deaths, strict=True):
            if not step.ufunc:
                continue
            out = self.shapes[step.outs[0]]
            for slot in step.ins:
                shape = self.shapes[slot]
                if (
                    slot in dead
                    and slot in fresh
                    and slot not in shared
                    and out.dims
                    and shape.dims == out.dims
                    and carrier(shape) == carrier(out)
                ):
                    step.in_place = slot
                    break


def leaf_slots(slots: Slots) -> list[int]:
    """The slots of a value, depth first."""
    if isinstance(slots, int):
        return [slots]
    return [leaf for element in slots for leaf in leaf_slots(element)]


def pack(shapes: Sequence[Shape]) -> Callable[..., tuple[Any, ...]]:
    """A function from flat arrays to a tuple of values of ``shapes``."""

    def build(shape: Shape, arrays: Any) -> Any:
        if isinstance(shape, TupleShape):
            return tuple(build(element, arrays) for element in shape.elements)
        return next(arrays)

    def packed(*arrays: Any) -> tuple[Any, ...]:
        rest = iter(arrays)
        return tuple(build(shape, rest) for shape in shapes)

    return packed


def unpack(value: Any) -> tuple[Any, ...]:
    """The arrays of a value, depth first."""
    if isinstance(value, tuple):
        return tuple(leaf for element in value for leaf in unpack(element))
    return (value,)
