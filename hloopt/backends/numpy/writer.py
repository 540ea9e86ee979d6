"""A Python function being written: its variables, what is bound in its globals, its statements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hloopt.backends.numpy.plan import Code, Function

if TYPE_CHECKING:
    from hloopt.backends.numpy.clock import LineClock

__all__ = ["FunctionSource", "code_function"]

_FIELD = re.compile(r"\{(\w+)\}")
# Characters of a function that a program may have many of, all alike but for what is bound.
_SHORT: Final = 1000


def code_function(code: Code) -> Function:
    """A function of arrays that runs the code; it is written when it is called for the first time."""

    def called(*arrays: Any) -> Any:
        if not made:
            source = FunctionSource([0])
            names = {str(at): source.variable() for at in range(len(arrays))}
            inputs = list(names.values())
            result = source.code(1, code, names)
            made.append(source.function(inputs, [result]))
        return made[0](*arrays)[0]

    made: list[Function] = []
    return called


class FunctionSource:
    """A function being written."""

    def __init__(self, launches: list[int], clock: LineClock | None = None) -> None:
        self.launches = launches
        self.clock = clock
        self.scope: dict[str, Any] = {"launches": launches}
        self.head: list[str] = []
        self.lines: list[str] = []
        self.counts = False
        self._bound: dict[int, str] = {}
        self._variables = 0

    def variable(self) -> str:
        """A new local variable."""
        self._variables += 1
        return f"v{self._variables}"

    def bind(self, value: Any) -> str:
        """A global of the function that is this object."""
        name = self._bound.get(id(value))
        if name is None:
            name = self._bound[id(value)] = f"k{len(self._bound)}"
            self.scope[name] = value
        return name

    def add(self, depth: int, text: str) -> None:
        """Append a statement."""
        self.lines.append("    " * depth + text)

    def first(self, text: str) -> None:
        """Add a statement to what runs once, at the beginning."""
        self.head.append("    " + text)

    def buffer(self, kind: np.dtype[Any]) -> str:
        """A variable with an array without dimensions that is reused."""
        name = self.variable()
        self.first(f"{name} = {self.bind(np.empty)}((), {self.bind(kind)})")
        return name

    def code(self, depth: int, code: Code, operands: Mapping[str, str]) -> str:
        """Append a step's code; the variable of its result."""
        names = {**operands, "r": self.variable()}
        names.update((key, self.bind(value)) for key, value in code.bound.items())
        own = sorted(set(_FIELD.findall(code.text)).difference(names, ("b",)))
        names.update((name, self.variable()) for name in own)
        if code.buffer is not None:
            names["b"] = self.buffer(code.buffer)
        for text in code.text.split("\n"):
            self.add(depth, _filled(text, names))
        if own and not code.scalar:
            self.add(depth, f"del {', '.join(names[name] for name in own)}")
        return names["r"]

    def function(self, inputs: Sequence[str], results: Sequence[str]) -> Function:
        """The function itself, of variables, which returns a tuple of others."""
        if self.counts:
            self.first("launched = 0")
            self.add(1, "launches[0] += launched")
        self.add(1, f"return ({''.join(f'{name}, ' for name in results)})")
        text = "\n".join([f"def line({', '.join(inputs)}):", *self.head, *self.lines])
        compiled = _compiled if len(text) < _SHORT else _compiled.__wrapped__
        exec(compiled(text), self.scope)  # noqa: S102 - our own names
        function: Function = self.scope["line"]
        function.__doc__ = text  # for readers
        return function


@lru_cache(256)
def _compiled(text: str) -> CodeType:
    return compile(text, "<numpy line>", "exec")


def _filled(text: str, names: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda field: names[field[1]], text)
