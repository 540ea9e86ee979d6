"""Modules of reduces and of fusions around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ARGMAX", "Case", "fusions", "reduces"]

_PLAIN = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")

ARGMAX = """{name} {{
  a = {kind}[] parameter(0)
  i = {index}[] parameter(1)
  b = {kind}[] parameter(2)
  j = {index}[] parameter(3)
  larger = pred[] compare(a, b), direction=GT
  equal = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(equal, before)
  left = pred[] or(larger, tie)
  value = {kind}[] select(larger, a, b)
  place = {index}[] select(left, i, j)
  ROOT best = ({kind}[], {index}[]) tuple(value, place)
}}"""

_WIDE_ADD = """{name} {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  wide_a = f32[] convert(a)
  wide_b = f32[] convert(b)
  sum = f32[] add(wide_a, wide_b)
  ROOT narrow = {kind}[] convert(sum)
}}"""

_MOMENTS = """{name} {{
  a = {kind}[] parameter(0)
  m = {kind}[] parameter(1)
  p = pred[] parameter(2)
  b = {kind}[] parameter(3)
  n = {kind}[] parameter(4)
  q = pred[] parameter(5)
  sum = {kind}[] add(a, b)
  most = {kind}[] maximum(m, n)
  any = pred[] or(p, q)
  ROOT all = ({kind}[], {kind}[], pred[]) tuple(sum, most, any)
}}"""


@dataclass(frozen=True)
class Case:
    """A reduce: element type, dimensions, the reduced ones, reducer, init values.

    Reducers: an opcode, ``argmax``, ``wide-add`` (through f32) or ``moments`` (three outputs).
    """

    kind: str
    dims: tuple[int, ...]
    reduced: tuple[int, ...]
    reducer: str = "add"
    init: str = "0"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The element types of operands and outputs."""
        if self.reducer == "argmax":
            return (self.kind, "s32")
        return (self.kind, self.kind, "pred") if self.reducer == "moments" else (self.kind,)

    @property
    def computation(self) -> tuple[str, str]:
        """Name and text of the reducer."""
        name = f"{self.reducer.replace('-', '_')}_{self.kind}"
        if self.reducer in _PLAIN:
            text = (
                f"{name} {{\n  a = {self.kind}[] parameter(0)\n  b = {self.kind}[] parameter(1)\n"
                f"  ROOT c = {self.kind}[] {self.reducer}(a, b)\n}}"
            )
            return name, text
        template = {"argmax": ARGMAX, "wide-add": _WIDE_ADD, "moments": _MOMENTS}[self.reducer]
        return name, template.format(name=name, kind=self.kind, index="s32")

    def result(self) -> str:
        """The result's shape."""
        kept = [size for at, size in enumerate(self.dims) if at not in self.reduced]
        shapes = [f"{kind}[{','.join(map(str, kept))}]" for kind in self.kinds]
        return shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"


def reduces(cases: Sequence[Case]) -> str:
    """A module whose results are reduces of parameters, with constants as init values."""
    computations: dict[str, str] = {}
    lines, names, shapes = [], [], []
    count = 0
    for number, case in enumerate(cases):
        name, text = case.computation
        computations[name] = text
        operands = []
        for kind in case.kinds:
            lines.append(f"  p{count} = {kind}[{','.join(map(str, case.dims))}] parameter({count})")
            operands.append(f"p{count}")
            count += 1
        for at, kind in enumerate(case.kinds):
            value = {"pred": "false"}.get(kind, case.init) if at else case.init
            lines.append(f"  init{number}.{at} = {kind}[] constant({value})")
            operands.append(f"init{number}.{at}")
        dims = ",".join(map(str, case.reduced))
        lines.append(
            f"  reduce{number} = {case.result()} reduce({', '.join(operands)}), dimensions={{{dims}}}, "
            f"to_apply={name}"
        )
        names.append(f"reduce{number}")
        shapes.append(case.result())
    root = f"  ROOT results = ({', '.join(shapes)}) tuple({', '.join(names)})"
    return "\n".join(
        ["HloModule reduces", *computations.values(), "ENTRY main {", *lines, root, "}", ""]
    )


def fusions(bodies: Sequence[str], reducers: Sequence[Case] = ()) -> str:
    """A module whose results are fusions with these bodies; ``NAME: SHAPE`` lines first declare parameters.

    Reducers ``add_f32`` and ``maximum_f32`` are there, and those of ``reducers``.
    """
    known = (Case("f32", (), ()), Case("f32", (), (), "maximum"), *reducers)
    computations = dict(case.computation for case in known)
    lines, names, shapes, texts = [], [], [], []
    count = 0
    for number, body in enumerate(bodies):
        inner, operands = [], []
        for line in filter(None, map(str.strip, body.splitlines())):
            if " = " not in line:
                name, shape = line.split(": ")
                inner.append(f"  {name} = {shape} parameter({len(operands)})")
                lines.append(f"  p{count} = {shape} parameter({count})")
                operands.append(f"p{count}")
                count += 1
                continue
            inner.append(f"  {line}")
        root = next(line for line in inner if line.strip().startswith("ROOT "))
        shape = root.split(" = ")[1]
        shape = shape[: shape.index(")") + 1] if shape.startswith("(") else shape.split()[0]
        texts.append("\n".join([f"body{number} {{", *inner, "}"]))
        lines.append(
            f"  fusion{number} = {shape} fusion({', '.join(operands)}), kind=kInput, calls=body{number}"
        )
        names.append(f"fusion{number}")
        shapes.append(shape)
    result = f"  ROOT results = ({', '.join(shapes)}) tuple({', '.join(names)})"
    parts = ["HloModule fusions", *computations.values(), *texts, "ENTRY main {", *lines, result]
    return "\n".join([*parts, "}", ""])
