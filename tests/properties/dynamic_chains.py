"""Two modules of the same ops while they are written: one with dynamic dimensions, and its static twin.

In the twin every dimension has the size it has at run time, and what is cut silently is sliced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
from hypothesis import strategies as st

__all__ = ["Array", "Chain"]


@dataclass(frozen=True)
class Array:
    """A value of both modules: its name, bounds, which dimensions are dynamic, and its sizes."""

    name: str
    bounds: tuple[int, ...]
    marks: tuple[bool, ...]
    sizes: tuple[int, ...]

    def dynamic(self, element="s32"):
        """The shape of the dynamic module."""
        dims = (f"<={b}" if m else str(b) for b, m in zip(self.bounds, self.marks, strict=True))
        return f"{element}[{','.join(dims)}]"

    def static(self, element="s32"):
        """The shape of the twin."""
        return f"{element}[{','.join(map(str, self.sizes))}]"


@dataclass
class Chain:
    """The two modules while they are written."""

    draw: object
    regions: list[str] = field(default_factory=list)
    dynamic: list[str] = field(default_factory=list)
    static: list[str] = field(default_factory=list)
    arrays: list[Array] = field(default_factory=list)
    inputs: list[np.ndarray] = field(default_factory=list)
    count: int = 0

    def fresh(self):
        self.count += 1
        return f"v{self.count}"

    def pick(self, least_rank=0):
        return self.draw(st.sampled_from([a for a in self.arrays if len(a.bounds) >= least_rank]))

    def both(self, line):
        self.dynamic.append(line)
        self.static.append(line)

    def add(self, bounds, marks, sizes, text, twin=None):
        """One more array, ``text`` being its instruction in the dynamic module, ``twin`` in the static one."""
        array = Array(self.fresh(), tuple(bounds), tuple(marks), tuple(sizes))
        self.dynamic.append(f"{array.name} = {array.dynamic()} {text}")
        self.static.append(f"{array.name} = {array.static()} {text if twin is None else twin}")
        self.arrays.append(array)
        return array

    def like(self, array, text, twin=None):
        return self.add(array.bounds, array.marks, array.sizes, text, twin)

    def number(self, value):
        """A scalar: a constant, or one the optimiser does not know."""
        name = self.fresh()
        if self.draw(st.booleans()):
            self.both(f"{name} = s32[] constant({value})")
        else:
            self.inputs.append(np.array(value, np.int32))
            self.both(f"{name} = s32[] parameter({len(self.inputs) - 1})")
        return name

    def parameter(self, bounds, marks, sizes):
        values = self.draw(st.lists(st.integers(-9, 9), min_size=prod(sizes), max_size=prod(sizes)))
        self.inputs.append(np.array(values, np.int32).reshape(sizes))
        self.add(bounds, marks, sizes, f"parameter({len(self.inputs) - 1})")

    def cut(self, array, sizes):
        """The name in the twin of an array cut to sizes."""
        if array.sizes == tuple(sizes):
            return array.name
        name = self.fresh()
        listed = ", ".join(f"[0:{size}]" for size in sizes)
        shape = f"s32[{','.join(map(str, sizes))}]"
        self.static.append(f"{name} = {shape} slice({array.name}), slice={{{listed}}}")
        return name

    def partner(self, array, free=-1):
        """An array of the same bounds and fitting sizes but for one dimension, and the sizes of both."""
        for other in self.draw(st.permutations(self.arrays)):
            if len(other.bounds) == len(array.bounds) and all(
                dim == free
                or (
                    one.bounds[dim] == two.bounds[dim]
                    and (
                        one.sizes[dim] == two.sizes[dim] or not (one.marks[dim] and two.marks[dim])
                    )
                )
                for one, two in [(array, other)]
                for dim in range(len(array.bounds))
            ):
                marks = tuple(map(max, array.marks, other.marks))
                sizes = tuple(map(min, array.sizes, other.sizes))
                return other, marks, sizes
        raise AssertionError("an array fits itself")
