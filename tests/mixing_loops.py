"""Random loops whose elements mix in every trip: reduces, dots, stencils, sorts, sums so far, stacked rows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

__all__ = ["mixing_loop"]

_REGIONS: Final = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT
}
"""

_GATHERED: Final = """  v = {V} get-tuple-element(state), index=1
  sizes = {V} abs(v)
  zero = f32[] constant(0)
  most = f32[] reduce(sizes, zero), dimensions={{0}}, to_apply=larger
  limit = f32[] constant(50)
  small = pred[] compare(most, limit), direction=LT
  early = pred[] compare(i, k), direction=LT
  ROOT again = pred[] and(small, early)"""

_COUNTED: Final = "  ROOT again = pred[] compare(i, k), direction=LT"


class _Body:
    """A vector ``V``, a matrix ``M``, its rows' length ``W`` and a scalar ``S``, and what is made of them.

    Sums pass through ``tanh``: nothing grows beyond bounds from trip to trip.
    """

    def __init__(self, chooser: Random) -> None:
        self.chooser = chooser
        self.rows = chooser.choice([1, 3, 5, 31, 33, 40, 70, 130])
        self.columns = chooser.choice([1, 2, 4, 7, 12])
        n, m = self.rows, self.columns
        self.shapes = {"V": f"f32[{n}]", "M": f"f32[{n},{m}]", "W": f"f32[{m}]", "S": "f32[]"}
        self.pool = {kind: [kind.lower()] for kind in self.shapes}
        self.lines: list[str] = []

    def line(self, shape: str, text: str) -> str:
        name = f"b{len(self.lines)}"
        self.lines.append(f"  {name} = {shape} {text}")
        return name

    def add(self, kind: str, text: str) -> None:
        self.pool[kind].append(self.line(self.shapes[kind], text))

    def bound(self, kind: str, text: str) -> None:
        self.add(kind, f"tanh({self.line(self.shapes[kind], text)})")

    def pick(self, kind: str) -> str:
        return self.chooser.choice(self.pool[kind][-6:])

    def grow(self) -> None:
        """One more value."""
        ways: list[Callable[[], None]] = [
            self._elementwise, self._elementwise, self._reduce, self._dot, self._broadcast, self._stencil,
            self._turn, self._running, self._products, self._sort,
        ]  # fmt: skip
        self.chooser.choice(ways)()

    def _elementwise(self) -> None:
        kind = self.chooser.choice("VMWS")
        op = self.chooser.choice(["add", "subtract", "multiply"])
        self.bound(kind, f"{op}({self.pick(kind)}, {self.pick(kind)})")

    def _reduce(self) -> None:
        kind, source, along = self.chooser.choice([("S", "V", 0), ("W", "M", 0), ("V", "M", 1)])
        how = self.chooser.choice(["add", "larger"])
        self.bound(
            kind, f"reduce({self.pick(source)}, zero), dimensions={{{along}}}, to_apply={how}"
        )

    def _dot(self) -> None:
        kind, other, along = self.chooser.choice([("V", "W", 1), ("W", "V", 0)])
        dims = f"lhs_contracting_dims={{{along}}}, rhs_contracting_dims={{0}}"
        self.bound(kind, f"dot({self.pick('M')}, {self.pick(other)}), {dims}")

    def _broadcast(self) -> None:
        kind, source, dims = self.chooser.choice([("M", "V", "0"), ("M", "W", "1"), ("V", "S", "")])
        self.add(kind, f"broadcast({self.pick(source)}), dimensions={{{dims}}}")

    def _stencil(self) -> None:
        padding = self.chooser.choice(["1_-1", "-1_1"])
        self.add("V", f"pad({self.pick('V')}, zero), padding={padding}")

    def _turn(self) -> None:
        half, source = self.rows // 2, self.pick("V")
        if not half:
            return self.add("V", f"reverse({source}), dimensions={{0}}")
        low = self.line(f"f32[{half}]", f"slice({source}), slice={{[0:{half}]}}")
        rest = self.rows - half
        high = self.line(f"f32[{rest}]", f"slice({source}), slice={{[{half}:{self.rows}]}}")
        return self.add("V", f"concatenate({high}, {low}), dimensions={{0}}")

    def _running(self) -> None:
        window = f"window={{size={self.rows} pad={self.rows - 1}_0}}"
        self.bound("V", f"reduce-window({self.pick('V')}, zero), {window}, to_apply=add")

    def _products(self) -> None:
        n, m = self.rows, self.columns
        dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        turned = self.line(f"f32[{m},{n}]", f"transpose({self.pick('M')}), dimensions={{1,0}}")
        square = self.line(f"f32[{m},{m}]", f"dot({turned}, {self.pick('M')}), {dims}")
        small = self.line(f"f32[{m},{m}]", f"tanh({square})")
        self.bound("M", f"dot({self.pick('M')}, {small}), {dims}")

    def _sort(self) -> None:
        self.add("V", f"sort({self.pick('V')}), dimensions={{0}}, to_apply=less")


def mixing_loop(chooser: Random) -> str:
    """A module with one loop and four parameters; the state has a vector, a matrix, a scalar and a stack."""
    body = _Body(chooser)
    for _ in range(chooser.randint(4, 16)):
        body.grow()
    n, shapes = body.rows, body.shapes
    stack = f"f32[4,{n}]"
    row = body.line(f"f32[1,{n}]", f"reshape({body.pick('V')})")
    body.lines.append(f"  all = {stack} dynamic-update-slice(stack, {row}, i, none)")
    last = ", ".join(["next", *(body.pick(kind) for kind in shapes), "all"])
    state = f"(s32[], {', '.join(shapes.values())}, {stack})"
    results = ", ".join(f"g{number}" for number in range(1, 6))
    condition = chooser.choice([_COUNTED, _GATHERED]).format(**shapes)
    reads = "\n".join(
        f"  {kind.lower()} = {shape} get-tuple-element(state), index={number}"
        for number, (kind, shape) in enumerate(shapes.items(), 1)
    )
    gets = "\n".join(
        f"  g{number} = {shape} get-tuple-element(loop), index={number}"
        for number, shape in enumerate([*shapes.values(), stack], 1)
    )
    parameters = "\n".join(
        f"  p{number} = {shape} parameter({number})" for number, shape in enumerate(shapes.values())
    )
    lines = "\n".join(body.lines)
    return f"""HloModule mixing
{_REGIONS}
condition {{
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  k = s32[] constant({chooser.choice([0, 1, 2, 4])})
{condition}
}}
body {{
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
{reads}
  stack = {stack} get-tuple-element(state), index=5
  one = s32[] constant(1)
  none = s32[] constant(0)
  next = s32[] add(i, one)
  zero = f32[] constant(0)
{lines}
  ROOT t = {state} tuple({last})
}}
ENTRY main {{
{parameters}
  zero = f32[] constant(0)
  start = s32[] constant(0)
  empty = {stack} broadcast(zero), dimensions={{}}
  first = {state} tuple(start, p0, p1, p2, p3, empty)
  loop = {state} while(first), condition=condition, body=body
{gets}
  ROOT r = ({", ".join([*shapes.values(), stack])}) tuple({results})
}}
"""
