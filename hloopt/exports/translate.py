"""A kernel's instructions as Python: for each a call of the function that its opcode has in a framework.

The functions of a framework are a text of Python in ``templates``; a file gets those that it calls.  Their
keywords say which attributes of an instruction they need, so that this table is the same for all frameworks.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from hloopt.dataclass import dataclass
from hloopt.exports.kernel import KernelExport, identifier
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import EXTREMA
from hloopt.types import ArrayShape, DotDims, GatherDims, ScatterDims, Shape, TupleShape, leaves

__all__ = ["Framework", "Translated", "translated"]


@dataclass(frozen=True)
class Framework:
    """What a framework computes with.

    name      in messages
    template  the text of its functions
    types     its names of element types, by HLO's; what is missing it does not have
    load      calls around an argument and a result, with a place for the value and its type
    """

    name: str
    template: str
    types: Mapping[str, str]
    load: str = "{0}"
    save: str = "{0}"


@dataclass(frozen=True)
class Translated:
    """``functions`` of the framework that are called, and the function ``fallback`` with its regions."""

    functions: str
    fallback: str


@dataclass(frozen=True)
class _Function:
    """A function or a table of a template: its text, its keywords, and the names it uses."""

    text: str
    keywords: tuple[str, ...]
    uses: frozenset[str]


def translated(kernel: KernelExport, framework: Framework) -> Translated:
    """What a kernel computes, by operations of a framework.

    Raises ``UnsupportedError`` for an op or an element type that the framework does not have.
    """
    writer = _Writer(kernel, framework)
    fallback = writer.entry()
    return Translated(_closure(writer.called, framework.template), fallback)


@cache
def _functions(template: str) -> Mapping[str, _Function]:
    text = files("hloopt.exports").joinpath("templates", template).read_text(encoding="utf-8")
    found = {}
    for node in ast.parse(text).body:
        uses = frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name))
        source = ast.get_source_segment(text, node) or ""
        if isinstance(node, ast.FunctionDef):
            keywords = tuple(one.arg for one in node.args.kwonlyargs)
            found[node.name] = _Function(source, keywords, uses)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = _Function(source, (), uses)
    return found


def _closure(called: set[str], template: str) -> str:
    """The functions called and what they use, in the order of the template."""
    known, open_, wanted = _functions(template), [*called], set[str]()
    while open_:
        name = open_.pop()
        if name in known and name not in wanted:
            wanted.add(name)
            open_ += known[name].uses
    return "\n\n\n".join(one.text for name, one in known.items() if name in wanted)


def _window(one: Instruction) -> tuple[Any, ...]:
    dims = one.window.dims
    return (
        tuple(dim.size for dim in dims),
        tuple(dim.stride for dim in dims),
        [(dim.pad_low, dim.pad_high) for dim in dims],
        tuple(dim.base_dilation for dim in dims),
        tuple(dim.window_dilation for dim in dims),
    )


_FACTS: Final[Mapping[str, Callable[[Instruction], Any]]] = {
    "dims": lambda one: one.array.dims,
    "dimensions": lambda one: one.dimensions,
    "dimension": lambda one: one.iota_dimension,
    "direction": lambda one: one.attributes["direction"],
    "sizes": lambda one: one.attributes["dynamic_slice_sizes"],
    "starts": lambda one: tuple(part.start for part in one.attributes["slice"]),
    "limits": lambda one: tuple(part.limit for part in one.attributes["slice"]),
    "strides": lambda one: tuple(part.stride for part in one.attributes["slice"]),
    "padding": lambda one: [
        (part.low, part.high, part.interior) for part in one.attributes["padding"]
    ],
    "exponent_bits": lambda one: one.attributes["exponent_bits"],
    "mantissa_bits": lambda one: one.attributes["mantissa_bits"],
    "window": _window,
}
"""Keywords that say the same of every op; all others are fields of its dimension numbers."""

_NUMBERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "dot": DotDims.of,
    "gather": GatherDims.of,
    "scatter": ScatterDims.of,
}


@dataclass
class _Writer:
    """Writes computations as functions; ``called`` are the framework's that they call."""

    kernel: KernelExport
    framework: Framework
    called: set[str] = field(default_factory=set)
    regions: dict[Computation, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def entry(self) -> str:
        """The function ``fallback`` of the kernel's arguments, below its regions."""
        entry = self.kernel.module.entry
        load, save = self.framework.load, self.framework.save
        self.called |= {text.split("(")[0] for text in (load, save) if text != "{0}"}
        names: dict[Instruction, str] = {}
        lines, arrays = [], iter(self.kernel.arguments)
        for parameter in entry.parameters:
            each = [
                load.format(array.name, array.shape.dtype.name)
                for _, array in zip(leaves(parameter.shape), arrays, strict=False)
            ]
            whole = isinstance(parameter.shape, ArrayShape)
            names[parameter] = f"v{len(names)}"
            value = each[0] if whole else f"({', '.join(each)},)"
            lines.append(f"{names[parameter]} = {value}")
        lines += self.body(entry, names)
        root, results = names[entry.root], self.kernel.results
        if len(results) == 1 and isinstance(entry.root.shape, ArrayShape):
            shown = save.format(root, results[0].shape.dtype.name)
        else:
            places = _places(entry.root.shape, root)
            parts = [
                save.format(place, array.shape.dtype.name)
                for place, array in zip(places, results, strict=True)
            ]
            shown = f"({', '.join(parts)},)"
        given = ", ".join(array.name for array in self.kernel.arguments)
        text = _function("fallback", given, [*lines, f"return {shown}"])
        return "\n\n\n".join([*self.texts, text])

    def region(self, computation: Computation) -> str:
        """The name of the function of a called computation, which is written first."""
        if computation not in self.regions:
            names = {one: f"v{number}" for number, one in enumerate(computation.parameters)}
            given = ", ".join(names.values())
            lines = self.body(computation, names)
            name = f"region_{len(self.regions)}_{identifier(computation.name)}"
            self.texts.append(_function(name, given, [*lines, f"return {names[computation.root]}"]))
            self.regions[computation] = name
        return self.regions[computation]

    def body(self, computation: Computation, names: dict[Instruction, str]) -> list[str]:
        """A line an instruction; ``names`` has those of its parameters, and all in the end."""
        lines = []
        for one in computation:
            if one.opcode == "parameter":
                continue
            if one.opcode == "fusion":
                inner = dict(
                    zip(one.calls.parameters, (names[given] for given in one.operands), strict=True)
                )
                self.check_shape(one)
                names |= inner
                lines += self.body(one.calls, names)
                names[one] = names[one.calls.root]
                continue
            value = self.value(one, [names[given] for given in one.operands])
            names[one] = f"v{len(names)}"
            lines.append(f"{names[one]} = {value}  # {one.opcode} {one.shape}")
        return lines

    def check_shape(self, one: Instruction) -> None:
        """Raise ``UnsupportedError`` for an element type that the framework does not have."""
        for leaf in leaves(one.shape):
            if not isinstance(leaf, ArrayShape) or leaf.dtype.name not in self.framework.types:
                raise self.refused(one, f"{self.framework.name} has no {leaf}")

    def refused(self, one: Instruction, problem: str) -> Exception:
        """The error of an instruction of the kernel, at the place in the file."""
        home = self.kernel.module
        return home.unsupported(one, f"{problem}; --as cuda and --as cupy do not need it")

    def value(self, one: Instruction, operands: Sequence[str]) -> str:
        """The expression of an instruction."""
        self.check_shape(one)
        if one.opcode == "tuple":
            return f"({''.join(f'{name}, ' for name in operands)})"
        if one.opcode == "get-tuple-element":
            return f"{operands[0]}[{one.tuple_index}]"
        name = f"hlo_{one.opcode.replace('-', '_')}"
        function = _functions(self.framework.template).get(name)
        if function is None or (problem := _problem(one)):
            what = problem if function is not None else one.opcode
            raise self.refused(one, f"{self.framework.name} has no operation for {what}")
        self.called.add(name)
        keywords = [f"{key}={self.fact(one, key)}" for key in function.keywords]
        return f"{name}({', '.join([*operands, *keywords])})"

    def fact(self, one: Instruction, key: str) -> str:
        """What a keyword says of an instruction, as Python."""
        if key in ("dtype", "source"):
            shape = one.array if key == "dtype" else one.operands[0].array
            return repr(self.framework.types[shape.dtype.name])
        if key == "region":
            return self.region(one.to_apply)
        if key == "combiner":
            return repr(self.combiner(one))
        if key == "values":
            return _values(one)
        if key in _FACTS:
            return repr(_FACTS[key](one))
        numbers = _NUMBERS[one.opcode](one.attributes)
        return repr(getattr(numbers, key))

    def combiner(self, one: Instruction) -> str:
        """The op that a scatter combines by; empty where an update takes the element's place."""
        region = one.to_apply
        root = region.root
        if root is region.parameters[1]:
            return ""
        if root.opcode in EXTREMA | {"add", "multiply"} and set(root.operands) == set(
            region.parameters
        ):
            return root.opcode
        raise self.refused(one, f"{self.framework.name} has no scatter by {root.opcode}")


def _places(shape: Shape, value: str) -> Iterator[str]:
    """The expression of each leaf of a value."""
    if isinstance(shape, TupleShape):
        for number, element in enumerate(shape.elements):
            yield from _places(element, f"{value}[{number}]")
    else:
        yield value


def _problem(one: Instruction) -> str:
    """What no function can say of an op, or nothing."""
    if one.opcode == "compare" and one.attributes.get("type") == "TOTALORDER":
        return "comparison in total order"
    if one.opcode == "reduce-window" and any(dim.reversal for dim in one.window.dims):
        return "a window that is reversed"
    if one.opcode == "bitcast":
        operand = one.operands[0].array
        layouts = [shape.layout for shape in (operand, one.array) if shape.layout is not None]
        if operand.dtype is not one.array.dtype or not all(each.is_descending for each in layouts):
            return "a bitcast that moves or reinterprets elements"
    return ""


def _values(one: Instruction) -> str:
    """A constant's elements in a flat list; floats in the digits that give their bits back."""
    array = one.constant_array
    assert array is not None, "a constant has a value"
    kind = one.array.dtype
    if kind.is_complex:
        pairs = ((_float(each.real), _float(each.imag)) for each in array.reshape(-1).tolist())
        return f"[{', '.join(f'complex({real}, {imag})' for real, imag in pairs)}]"
    flat = array.reshape(-1)
    if kind.is_float:
        return f"[{', '.join(_float(float(each)) for each in flat)}]"
    if kind.name == "u64":
        return f"[{', '.join(str(int(each)) for each in flat)}]"
    return repr([bool(each) if kind.is_pred else int(each) for each in flat])


def _float(value: float) -> str:
    return repr(value) if value - value == 0 else f"float({str(value)!r})"


def _function(name: str, given: str, lines: Sequence[str]) -> str:
    return "\n".join([f"def {name}({given}):", *(f"    {line}" for line in lines)])
