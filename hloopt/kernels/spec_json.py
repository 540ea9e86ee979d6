"""Kernel specs as JSON: a place is ``["operand", 0]``."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

from hloopt.kernels.json_reader import JsonReader
from hloopt.kernels.spec import Argument, Copy, Fill, KernelSpec, Launch, Place, Scratch, Step

__all__ = ["SpecReader", "spec_content"]

_PLACES: Final = ("operand", "result", "scratch")
_ROLES: Final = ("in", "out", "update")


def spec_content(spec: KernelSpec) -> dict[str, Any]:
    """A spec as JSON values."""
    return {
        "kernel": spec.kernel,
        "tile": dict(spec.tile),
        "steps": list(map(_spec_step, spec.steps)),
        "scratch": [[entry.dtype, entry.elements] for entry in spec.scratch],
        "in_place": [list(pair) for pair in spec.in_place],
        "overwrites": [list(pair) for pair in spec.overwrites],
        "is_atomic": spec.is_atomic,
        "library": spec.library,
    }


def _spec_step(step: Step) -> dict[str, Any]:
    if isinstance(step, Launch):
        given = {"shared": step.shared} if step.shared else {}
        return {
            "launch": step.function,
            "grid": list(step.grid),
            "block": list(step.block),
            "arguments": [
                [*_place(argument.place), argument.role, argument.partial]
                for argument in step.arguments
            ],
            "scalars": list(step.scalars),
            **given,
        }
    if isinstance(step, Copy):
        return {"copy": [_place(step.source), _place(step.target)]}
    return {"fill": _place(step.target), "value": step.value}


def _place(place: Place) -> list[Any]:
    return [place.kind, place.number]


class SpecReader(JsonReader):
    """Reads what ``spec_content`` gives."""

    def spec(self, value: dict[str, Any]) -> KernelSpec:
        """A spec."""
        tile = self.field(value, "tile", dict, "an object")
        if not all(isinstance(size, int) for size in tile.values()):
            raise self.error("'tile' has a parameter that is no number")
        return KernelSpec(
            self.field(value, "kernel", str, "a name"),
            MappingProxyType(tile),
            tuple(self.each(value, "steps", self.spec_step)),
            tuple(self.each(value, "scratch", self.scratch)),
            tuple(self.each(value, "in_place", self.pair)),
            tuple(self.each(value, "overwrites", self.pair)),
            self.field(value, "is_atomic", bool, "true or false"),
            self.field(value, "library", str, "a name"),
        )

    def spec_step(self, value: Any) -> Step:
        """A launch, a copy or a fill."""
        value = self.typed(value, dict, "an object")
        if "launch" in value:
            return Launch(
                self.field(value, "launch", str, "a name"),
                self.numbers(value, "grid", 3),  # type: ignore[arg-type]
                self.numbers(value, "block", 3),  # type: ignore[arg-type]
                tuple(self.each(value, "arguments", self.argument)),
                self.numbers(value, "scalars", None),
                self.field({"shared": 0, **value}, "shared", int, "a number"),
            )
        if "copy" in value:
            places = tuple(self.each(value, "copy", self.place))
            if len(places) != 2:
                raise self.error("'copy' is not two places")
            return Copy(*places)
        with self.at("fill"):
            target = self.place(value.get("fill"))
        return Fill(target, self.field(value, "value", int, "a number"))

    def argument(self, value: Any) -> Argument:
        """What a function is given."""
        value = self.typed(value, list, "[place, number, role, partial]")
        if len(value) != 4 or value[2] not in _ROLES or not isinstance(value[3], bool):
            raise self.error("expected [place, number, role, partial]")
        return Argument(self.place(value[:2]), value[2], value[3])

    def place(self, value: Any) -> Place:
        """A buffer as the instruction sees it."""
        if (
            not isinstance(value, list)
            or len(value) != 2
            or value[0] not in _PLACES
            or not isinstance(value[1], int)
        ):
            raise self.error(f"expected a place: one of {', '.join(_PLACES)}, and a number")
        return Place(value[0], value[1])

    def scratch(self, value: Any) -> Scratch:
        """Memory of its own."""
        if not isinstance(value, list) or [type(part) for part in value] != [str, int]:
            raise self.error("expected [element type, elements]")
        return Scratch(value[0], value[1])

    def pair(self, value: Any) -> tuple[int, int]:
        """Two numbers of leaves."""
        if not isinstance(value, list) or [type(part) for part in value] != [int, int]:
            raise self.error("expected a pair of numbers")
        return value[0], value[1]
