"""Random expressions over whole arrays, as texts of modules: all numeric types, special constants, few shapes."""

from __future__ import annotations

import random

import numpy as np

import hloopt
from tests.passes.proof import special_values

__all__ = ["Maker"]

FLOATS = ("f32", "f64", "f16", "bf16")
INTEGERS = ("s8", "u8", "s4", "u4", "s32", "u32", "s1", "u64", "s64")
TYPES = (*FLOATS, *INTEGERS, "pred")
UNARY = {
    "float": ("abs", "negate", "sign", "floor", "ceil", "round-nearest-afz", "round-nearest-even", "sqrt",
              "rsqrt", "exponential", "tanh", "logistic", "sine", "cosine", "log", "erf", "cosh", "cbrt",
              "exponential-minus-one", "log-plus-one"),
    "signed": ("abs", "negate", "sign", "not", "popcnt", "count-leading-zeros"),
    "unsigned": ("not", "popcnt", "count-leading-zeros"),
    "pred": ("not",),
}  # fmt: skip
ARITHMETIC = ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power")
BITS = ("and", "or", "xor", "shift-left", "shift-right-logical", "shift-right-arithmetic")
BINARY = {
    "float": (*ARITHMETIC, "atan2"),
    "signed": (*ARITHMETIC, *BITS),
    "unsigned": (*ARITHMETIC, *BITS),
    "pred": ("add", "multiply", "and", "or", "xor", "maximum", "minimum"),
}  # fmt: skip
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
# Which NaN a float is, nobody promises: bits become floats, and floats no bits.
ALIKE = {"s8": ("u8",), "u8": ("s8",), "s32": ("u32", "f32"), "u32": ("s32", "f32"), "s64": ("u64", "f64"),
         "u64": ("s64", "f64")}  # fmt: skip
SIZE = 16


def kind(element: str) -> str:
    return str(hloopt.types.DTYPES[element].kind)


class Maker:
    """Lines of an entry computation; all arrays have ``SIZE`` elements.

    Of few types and with few parameters, the same values come up again and again.
    """

    def __init__(self, chooser: random.Random, few: bool = False) -> None:
        self.chooser = chooser
        self.lines: list[str] = []
        self.names: dict[str, list[str]] = {}
        self.types = (chooser.choice(TYPES), "pred") if few else TYPES
        for number, element in enumerate(self.types if few else chooser.sample(TYPES, 3)):
            self.add(element, f"parameter({number})")
        for _ in range(chooser.randint(4, 24)):
            self.step()

    def add(self, element: str, text: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {element}[{SIZE}] {text}")
        self.names.setdefault(element, []).append(name)
        return name

    def pick(self, element: str) -> str:
        known = self.names.get(element)
        if known and self.chooser.random() < 0.7:
            return self.chooser.choice(known[-3:])
        if self.chooser.random() < 0.3 and element != "pred":
            return self.add(element, "iota(), iota_dimension=0")
        return self.constant(element)

    def constant(self, element: str) -> str:
        values = special_values(hloopt.types.DTYPES[element]).astype(np.float64)
        if kind(element) != "float":
            values = values[np.abs(values) <= 127]
        text = str(float(self.chooser.choice(list(values))))
        if kind(element) == "pred":
            text = "true" if float(text) else "false"
        elif kind(element) != "float":
            text = str(int(float(text)))
        self.lines.append(f"k{len(self.lines)} = {element}[] constant({text})")
        return self.add(element, f"broadcast(k{len(self.lines) - 1}), dimensions={{}}")

    def element(self) -> str:
        known = list(self.names)
        return self.chooser.choice(known if self.chooser.random() < 0.8 else self.types)

    def step(self) -> None:
        element, choice = self.element(), self.chooser.random()
        x = self.pick(element)
        if choice < 0.2:
            self.add(element, f"{self.chooser.choice(UNARY[kind(element)])}({x})")
        elif choice < 0.5:
            y = x if self.chooser.random() < 0.1 else self.pick(element)
            self.add(element, f"{self.chooser.choice(BINARY[kind(element)])}({x}, {y})")
        elif choice < 0.6:
            self.add(self.chooser.choice(self.types), f"convert({x})")
        elif choice < 0.7:
            self.add(element, f"clamp({self.pick(element)}, {x}, {self.pick(element)})")
        elif choice < 0.8:
            direction = self.chooser.choice(DIRECTIONS)
            self.add("pred", f"compare({x}, {self.pick(element)}), direction={direction}")
        elif choice < 0.9:
            self.add(element, f"select({self.pick('pred')}, {x}, {self.pick(element)})")
        elif choice < 0.93:
            self.add(self.chooser.choice(ALIKE.get(element, (element,))), f"bitcast-convert({x})")
        else:
            self.wrap(element, x)

    def wrap(self, element: str, x: str) -> None:
        """What index arithmetic does to negative numbers."""
        y, direction = self.pick(element), self.chooser.choice(DIRECTIONS)
        test = self.add("pred", f"compare({x}, {y}), direction={direction}")
        opcode = self.chooser.choice(("add", "multiply" if element == "pred" else "subtract"))
        moved = self.add(element, f"{opcode}({x}, {self.pick(element)})")
        self.add(element, f"select({test}, {moved}, {x})")

    def text(self) -> str:
        """The module; its result is a tuple of every value in it."""
        names = [line.split()[0] for line in self.lines]
        shapes = [line.split()[2] for line in self.lines]
        root = f"ROOT r = ({', '.join(shapes)}) tuple({', '.join(names)})"
        return "HloModule m\nENTRY e {\n" + "\n".join([*self.lines, root]) + "\n}\n"
