"""Random loops whose elements mix in every trip: reduces, dots, stencils, sorts, sums so far, stacked rows.

A body may call computations, branch, and have loops of its own; all may happen to each of some work items apart,
and each work item may stop at a trip of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
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
any {
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT c = pred[] or(a, b)
}
"""

_GATHERED: Final = """  v = {V} get-tuple-element(state), index=1
  sizes = {V} abs(v)
  zero = f32[] constant(0)
  most = f32[] reduce(sizes, zero), dimensions={{{all}}}, to_apply=larger
  limit = f32[] constant(50)
  small = pred[] compare(most, limit), direction=LT
  early = pred[] compare(i, k), direction=LT
  ROOT again = pred[] and(small, early)"""

_COUNTED: Final = "  ROOT again = pred[] compare(i, k), direction=LT"

_MASKED: Final = """  s = {S} get-tuple-element(state), index=4
{own}
  no = pred[] constant(false)
  ROOT again = pred[] reduce(own, no), dimensions={{0}}, to_apply=any"""

_OWN: Final = """  limit = f32[] constant(0.4)
  limits = {S} broadcast(limit), dimensions={{}}
  small = pred[{units}] compare(s, limits), direction=LT
  early = pred[] compare(i, k), direction=LT
  all_early = pred[{units}] broadcast(early), dimensions={{}}
  own = pred[{units}] and(small, all_early)"""

_KINDS: Final = "VMWS"
_DEEPEST: Final = 2


@dataclass
class _Program:
    """Sizes and computations of a module: ``units`` come before the dimensions of everything, 0 for none."""

    chooser: Random
    units: int
    rows: int
    columns: int
    sorts: bool = True
    computations: list[str] = field(default_factory=list)
    names: int = 0

    def dims(self, kind: str) -> list[int]:
        own = {"V": [self.rows], "M": [self.rows, self.columns], "W": [self.columns], "S": []}
        return [*([self.units] if self.units else []), *own[kind]]

    def array(self, dims: Iterable[int], element: str = "f32") -> str:
        return f"{element}[{','.join(map(str, dims))}]"

    def of(self, *dims: int) -> str:
        """An array of each work item."""
        return self.array([*([self.units] if self.units else []), *dims])

    @property
    def shapes(self) -> dict[str, str]:
        return {kind: self.array(self.dims(kind)) for kind in _KINDS}

    @property
    def state(self) -> str:
        return f"({', '.join(self.shapes.values())})"

    def fresh(self, hint: str) -> str:
        self.names += 1
        return f"{hint}{self.names}"


class _Body:
    """A vector ``V``, a matrix ``M``, its rows' length ``W`` and a scalar ``S``, and what is made of them.

    Sums pass through ``tanh``: nothing grows beyond bounds from trip to trip.
    """

    def __init__(self, program: _Program, depth: int = 0) -> None:
        self.program = program
        self.chooser = program.chooser
        self.rows, self.columns, self.depth = program.rows, program.columns, depth
        self.shapes = program.shapes
        self.pool: dict[str, list[str]] = {kind: [kind.lower()] for kind in _KINDS}
        self.lines: list[str] = []

    def line(self, shape: str, text: str) -> str:
        name = self.program.fresh("b")
        self.lines.append(f"  {name} = {shape} {text}")
        return name

    def add(self, kind: str, text: str) -> None:
        self.pool[kind].append(self.line(self.shapes[kind], text))

    def bound(self, kind: str, text: str) -> None:
        self.add(kind, f"tanh({self.line(self.shapes[kind], text)})")

    def pick(self, kind: str) -> str:
        return self.chooser.choice(self.pool[kind][-6:])

    def at(self, *dims: int) -> str:
        """Dimensions of a work item's part, the work items' one before them."""
        own = [0] if self.program.units else []
        return ",".join(map(str, [*own, *(dim + len(own) for dim in dims)]))

    def along(self, dim: int) -> int:
        """The number of a dimension of a work item's part."""
        return dim + bool(self.program.units)

    def grow(self) -> None:
        """One more value, or some."""
        ways: list[Callable[[], None]] = [
            self._elementwise, self._elementwise, self._reduce, self._dot, self._broadcast, self._stencil,
            self._turn, self._running, self._products,
        ]  # fmt: skip
        if self.program.sorts:
            ways.append(self._sort)
        if self.depth < _DEEPEST:
            ways += [self._call, self._branch, self._loop]
        self.chooser.choice(ways)()

    def _elementwise(self) -> None:
        kind = self.chooser.choice(_KINDS)
        op = self.chooser.choice(["add", "subtract", "multiply"])
        self.bound(kind, f"{op}({self.pick(kind)}, {self.pick(kind)})")

    def _reduce(self) -> None:
        kind, source, along = self.chooser.choice([("S", "V", 0), ("W", "M", 0), ("V", "M", 1)])
        how = self.chooser.choice(["add", "larger"])
        dims = f"dimensions={{{self.along(along)}}}"
        self.bound(kind, f"reduce({self.pick(source)}, zero), {dims}, to_apply={how}")

    def _contracting(self, left: int, right: int) -> str:
        batch = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if self.program.units else ""
        return (
            f"{batch}lhs_contracting_dims={{{self.along(left)}}}, "
            f"rhs_contracting_dims={{{self.along(right)}}}"
        )

    def _dot(self) -> None:
        kind, other, along = self.chooser.choice([("V", "W", 1), ("W", "V", 0)])
        self.bound(
            kind, f"dot({self.pick('M')}, {self.pick(other)}), {self._contracting(along, 0)}"
        )

    def _broadcast(self) -> None:
        kind, source, dims = self.chooser.choice(
            [("M", "V", (0,)), ("M", "W", (1,)), ("V", "S", ())]
        )
        self.add(kind, f"broadcast({self.pick(source)}), dimensions={{{self.at(*dims)}}}")

    def _stencil(self) -> None:
        padding = self.chooser.choice(["1_-1", "-1_1"])
        before = "0_0x" if self.program.units else ""
        self.add("V", f"pad({self.pick('V')}, zero), padding={before}{padding}")

    def _turn(self) -> None:
        half, source = self.rows // 2, self.pick("V")
        if not half:
            return self.add("V", f"reverse({source}), dimensions={{{self.along(0)}}}")
        units = f"[0:{self.program.units}], " if self.program.units else ""
        low = self.line(self.program.of(half), f"slice({source}), slice={{{units}[0:{half}]}}")
        rest = self.rows - half
        taken = f"slice={{{units}[{half}:{self.rows}]}}"
        high = self.line(self.program.of(rest), f"slice({source}), {taken}")
        return self.add("V", f"concatenate({high}, {low}), dimensions={{{self.along(0)}}}")

    def _running(self) -> None:
        size, pad = f"{self.rows}", f"{self.rows - 1}_0"
        if self.program.units:
            size, pad = f"1x{size}", f"0_0x{pad}"
        window = f"window={{size={size} pad={pad}}}"
        self.bound("V", f"reduce-window({self.pick('V')}, zero), {window}, to_apply=add")

    def _products(self) -> None:
        n, m = self.rows, self.columns
        order = self.at(1, 0)
        turned = self.line(
            self.program.of(m, n), f"transpose({self.pick('M')}), dimensions={{{order}}}"
        )
        dims = self._contracting(1, 0)
        square = self.line(self.program.of(m, m), f"dot({turned}, {self.pick('M')}), {dims}")
        small = self.line(self.program.of(m, m), f"tanh({square})")
        self.bound("M", f"dot({self.pick('M')}, {small}), {dims}")

    def _sort(self) -> None:
        self.add("V", f"sort({self.pick('V')}), dimensions={{{self.along(0)}}}, to_apply=less")

    # ---- computations that are called ---------------------------------------------------------------

    def _state(self) -> str:
        picked = ", ".join(self.pick(kind) for kind in _KINDS)
        return self.line(self.program.state, f"tuple({picked})")

    def _take(self, value: str, first: int = 0) -> None:
        """Elements of a state, most of them."""
        for number, (kind, shape) in enumerate(self.shapes.items(), first):
            if self.chooser.random() < 0.8:
                read = f"get-tuple-element({value}), index={number}"
                self.pool[kind].append(self.line(shape, read))

    def _step(self) -> str:
        """A computation from a state to a state."""
        program, name = self.program, self.program.fresh("step")
        inner = _Body(program, self.depth + 1)
        for _ in range(self.chooser.randint(1, 5)):
            inner.grow()
        reads = "\n".join(
            f"  {kind.lower()} = {shape} get-tuple-element(state), index={number}"
            for number, (kind, shape) in enumerate(self.shapes.items())
        )
        ends = ", ".join(map(inner.pick, _KINDS))
        lines = "\n".join(inner.lines)
        program.computations.append(
            f"{name} {{\n  state = {program.state} parameter(0)\n{reads}\n  zero = f32[] constant(0)\n"
            f"{lines}\n  ROOT r = {program.state} tuple({ends})\n}}"
        )
        return name

    def _call(self) -> None:
        step = self._step()
        self._take(self.line(self.program.state, f"call({self._state()}), to_apply={step}"))

    def _branch(self) -> None:
        source = self.pick("S")
        if self.program.units:
            source = self.line(
                "f32[]", f"reduce({source}, zero), dimensions={{0}}, to_apply=larger"
            )
        test = self.line("pred[]", f"compare({source}, zero), direction=GT")
        called = f"true_computation={self._step()}, false_computation={self._step()}"
        given = f"{test}, {self._state()}, {self._state()}"
        self._take(self.line(self.program.state, f"conditional({given}), {called}"))

    def _loop(self) -> None:
        program, step = self.program, self._step()
        body, condition = program.fresh("inner_body"), program.fresh("inner_condition")
        state = f"(s32[], {', '.join(self.shapes.values())})"
        gets, outs = (
            "\n".join(
                f"  {name}{number} = {shape} get-tuple-element({source}), index={number + first}"
                for number, shape in enumerate(self.shapes.values())
            )
            for name, source, first in (("e", "p", 1), ("o", "q", 0))
        )
        program.computations += [
            f"""{body} {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
{gets}
  t = {program.state} tuple(e0, e1, e2, e3)
  q = {program.state} call(t), to_apply={step}
{outs}
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT r = {state} tuple(n, o0, o1, o2, o3)
}}""",
            f"""{condition} {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[] constant({self.chooser.choice([0, 1, 2, 3])})
  ROOT a = pred[] compare(i, k), direction=LT
}}""",
        ]
        start = self.line("s32[]", "constant(0)")
        picked = ", ".join(self.pick(kind) for kind in _KINDS)
        first = self.line(state, f"tuple({start}, {picked})")
        loop = self.line(state, f"while({first}), condition={condition}, body={body}")
        self._take(loop, 1)


def _masked(body: _Body, ends: dict[str, str], own: str, iterations: int) -> None:
    """Let a work item keep its state once its own condition does not hold."""
    body.lines += [f"  k = s32[] constant({iterations})", own]
    for kind in _KINDS:
        shape = body.program.array(body.program.dims(kind), "pred")
        holds = "own" if kind == "S" else body.line(shape, "broadcast(own), dimensions={0}")
        ends[kind] = body.line(body.shapes[kind], f"select({holds}, {ends[kind]}, {kind.lower()})")


def mixing_loop(chooser: Random, units: int = 0, *, sorts: bool = True) -> str:
    """A module with one loop and four parameters; the state has a vector, a matrix, a scalar and a stack.

    With ``units`` there are as many of each, side by side, which never mix.  Without ``sorts`` there is nothing
    that a thread could not compute alone.
    """
    program = _Program(
        chooser,
        units,
        chooser.choice([1, 3, 5, 31, 33, 40, 70, 130])
        if not units
        else chooser.choice([1, 3, 8, 17]),
        chooser.choice([1, 2, 4, 7, 12]),
        sorts,
    )
    body = _Body(program)
    for _ in range(chooser.randint(4, 16)):
        body.grow()
    shapes = body.shapes
    stack = program.array([4, *program.dims("V")])
    row = body.line(program.array([1, *program.dims("V")]), f"reshape({body.pick('V')})")
    rest = ", none" * len(program.dims("V"))
    body.lines.append(f"  all = {stack} dynamic-update-slice(stack, {row}, i{rest})")
    ends = {kind: body.pick(kind) for kind in shapes}
    conditions = [_COUNTED, _MASKED] if units else [_COUNTED, _GATHERED]
    chosen = chooser.choice(conditions)
    iterations = chooser.choice([0, 1, 2, 4])
    own = _OWN.format(**shapes, units=units)
    if chosen is _MASKED:
        _masked(body, ends, own, iterations)
    # What a work item has stacked once it stops must not change any more.
    last = ", ".join(["next", *ends.values(), "all" if chosen is not _MASKED else "stack"])
    state = f"(s32[], {', '.join(shapes.values())}, {stack})"
    results = ", ".join(f"g{number}" for number in range(1, 6))
    condition = chosen.format(**shapes, all=body.at(0), own=own)
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
    computations = "\n".join(program.computations)
    return f"""HloModule mixing
{_REGIONS}
{computations}
condition {{
  state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  k = s32[] constant({iterations})
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
