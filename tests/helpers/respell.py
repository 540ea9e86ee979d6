"""Other spellings of a module: what a text may choose, and what no result may depend on.

``respell(module, chance)`` writes the same graph again with every freedom that XLA's parser leaves, drawn from
``chance``: the order of attributes, names with and without ``%``, other names, layouts and shapes written or left out,
values that are defaults, blanks, comments, the order of computations and instructions, regions and operands in
place, several ways to write a number.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from typing import Any

from hloopt.errors import ShapeError
from hloopt.ir import Computation, Instruction, Module
from hloopt.ir.build import infer_shape
from hloopt.ir.walk import called_computations, has_side_effect
from hloopt.ops import OPS
from hloopt.text.numbers import literal_text
from hloopt.text.printer import _tables, header_text, value_text
from hloopt.text.strict import ALWAYS_WRITTEN
from hloopt.types import (
    DTYPES,
    ArrayShape,
    Layout,
    PaddingDim,
    Shape,
    SliceRange,
    TupleShape,
    Window,
    without_layout,
)
from hloopt.types.strings import quote

__all__ = ["FREEDOMS", "respell"]

FREEDOMS = (
    *("attributes", "blanks", "comments", "computations", "defaults", "in place", "instructions", "layouts"),
    *("marks", "names", "numbers", "results", "shapes", "signatures"),
)  # fmt: skip

# Where a blank may be, and where one must be.
_MAY, _MUST = "\x01", "\x02"
_BLANKS = ("", "", " ", "  ", "\n", "\t", "\r\n ", "\n\n")
_COMMENTS = (
    "/**/",
    "/* a comment */",
    '/* } ) " , */',
    "// to the end\n",
    "/* two\nlines */",
    "/*index=5*/",
)
# Values an attribute has where it is not written.
_DEFAULTS = {
    "all-gather": {"use_global_device_ids": "false", "constrain_layout": "false"},
    "all-reduce": {"use_global_device_ids": "false", "constrain_layout": "false"},
    "cholesky": {"lower": "false"},
    "convolution": {"feature_group_count": "1", "batch_group_count": "1"},
    "custom-call": {"custom_call_has_side_effect": "false"},
    "gather": {"indices_are_sorted": "false"},
    "scatter": {"indices_are_sorted": "false", "unique_indices": "false"},
    "sort": {"is_stable": "false"},
    "triangular-solve": {"lower": "false", "unit_diagonal": "false"},
}
# Lists of dimensions whose order says nothing.
_UNORDERED = {("reduce", "dimensions"), ("reverse", "dimensions")}
_WORDS = frozenset({
    *DTYPES, *OPS, "b", "token", "opaque", "true", "false", "inf", "nan", "ROOT", "ENTRY", "HloModule",
    "maximal", "replicated", "manual", "last_tile_dim_replicate", "shard_as", "shard_like", "unknown", "none",
})  # fmt: skip
_STEMS = (
    "v",
    "add.",
    "_x",
    "a-b.",
    "fusion",
    "p",
    "Arg_",
    "tuple",
    "f32",
    "constant",
    "true",
    "while.body.",
)
# XLA's parser does not infer them in all forms.
_NOT_INFERRED = (*ALWAYS_WRITTEN, "opt-barrier")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?(?![0-9a-zA-Z_.(])")


def respell(
    module: Module, chance: random.Random, freedoms: Iterable[str] = FREEDOMS, often: float = 0.5
) -> str:
    """The text of the same module in another spelling; with no freedoms, nearly the one that is printed."""
    return _Speller(module, chance, frozenset(freedoms), often).module_text()


class _Speller:
    def __init__(
        self, module: Module, chance: random.Random, freedoms: frozenset[str], often: float
    ) -> None:
        self.module, self.chance, self.freedoms, self.often = module, chance, freedoms, often
        self.moving = not module.attributes.get("is_scheduled") and not any(
            has_side_effect(one) or one.op.family in ("random", "host")
            for one in module.instructions()
        )
        self.instructions: dict[Instruction, str] = {}
        self.computations: dict[Computation, str] = {}
        self.inside: set[Computation] = set()

    def may(self, freedom: str) -> bool:
        return freedom in self.freedoms and self.chance.random() < self.often

    # ---- module and computations --------------------------------------------------------------------

    def module_text(self) -> str:
        order = self.computation_order()
        self.name_all(order)
        self.inside = {one for one in order if self.goes_inside(one)}
        top = [one for one in order if one not in self.inside]
        parts = [self.header(), *_tables(self.module)]
        parts += [self.computation(one, one is top[-1]) for one in top]
        return self.filled(f"{_MUST}\n".join(parts) + "\n")

    def header(self) -> str:
        items = list(self.module.attributes.items())
        if self.may("attributes"):
            self.chance.shuffle(items)
        text = f"HloModule{_MUST}{self.module.name}"
        for name, value in items:
            if name == "entry_computation_layout" and self.usual(value) and self.may("layouts"):
                continue
            text += f"{_MAY},{_MAY}{name}={header_text(name, value)}"
        return text

    def usual(self, value: tuple[tuple[Shape, ...], Shape]) -> bool:
        parameters, result = value
        arrays = [leaf for shape in (*parameters, result) for leaf in _arrays(shape)]
        return all(leaf is not None and _is_usual(leaf) for leaf in arrays)

    def computation_order(self) -> list[Computation]:
        """Callees before callers."""
        pending = list(self.module)
        if self.may("computations"):
            self.chance.shuffle(pending)
        order: dict[Computation, None] = {}

        def put(one: Computation) -> None:
            if one not in order:
                for instruction in one:
                    for called in called_computations(instruction):
                        put(called)
                order[one] = None

        for one in pending:
            put(one)
        return list(order)

    def goes_inside(self, one: Computation) -> bool:
        """Whether a computation is written where it is called."""
        return (
            one is not self.module.entry
            and one.execution_thread is None
            and list(one.callers.values()) == [1]
            and next(iter(one.callers)).is_understood
            and self.may("in place")
        )

    def computation(self, one: Computation, last: bool) -> str:
        mark = f"ENTRY{_MUST}" if one is self.module.entry else ""
        if last and mark and self.may("marks"):
            mark = ""
        text = f"{mark}{self.marked(self.computations[one])}{_MUST}"
        if not self.may("signatures"):
            parameters = f"{_MAY},{_MAY}".join(
                f"{self.instructions[entry]}:{_MUST}{self.shape(without_layout(entry.shape))}"
                for entry in one.parameters
            )
            result = self.shape(without_layout(one.result_shape))
            text += f"({_MAY}{parameters}{_MAY}){_MAY}->{_MAY}{result}{_MUST}"
        text += f"{{{_MUST}{self.body(one)}\n}}"
        if one.execution_thread is not None:
            text += f",{_MAY}execution_thread={quote(one.execution_thread)}"
        return text

    def body(self, one: Computation) -> str:
        order = self.instruction_order(one)
        lines = []
        for instruction in order:
            if instruction not in self.hidden:
                unmarked = instruction is order[-1] and self.may("marks")
                mark = f"ROOT{_MUST}" if instruction is one.root and not unmarked else ""
                lines.append(f"{mark}{self.line(instruction)}")
        return f"{_MUST}\n  ".join(lines)

    def instruction_order(self, one: Computation) -> list[Instruction]:
        order = list(one)
        if self.moving and self.may("instructions"):
            order = list(self.shuffled(order))
        self.hidden = {entry for entry in order if self.goes_into_operand(entry)}
        return order

    def shuffled(self, order: list[Instruction]) -> Iterator[Instruction]:
        """Any order in which each comes after what it needs."""
        waiting = {one: len({*one.operands, *one.control_predecessors}) for one in order}
        ready = [one for one, count in waiting.items() if not count]
        while ready:
            one = ready.pop(self.chance.randrange(len(ready)))
            yield one
            for after in dict.fromkeys((*one.users, *one.control_successors)):
                waiting[after] -= 1
                if not waiting[after]:
                    ready.append(after)

    def goes_into_operand(self, one: Instruction) -> bool:
        """Whether an instruction is written as the operand of its only user: those that have no attributes are."""
        return (
            bool(one.operands)
            and list(one.users.values()) == [1]
            and not (one.attributes or one.metadata or one.is_root)
            and not (one.control_predecessors or one.control_successors)
            and one.is_understood
            and self.moving
            and self.chance.random() < 0.3
            and self.may("in place")
        )

    # ---- names --------------------------------------------------------------------------------------

    def name_all(self, order: list[Computation]) -> None:
        taken: set[str] = set()
        renamed = self.may("names")
        for one in order:
            self.computations[one] = self.fresh(taken) if renamed else one.name
            inner: set[str] = set()
            for instruction in one:
                new = self.fresh(inner) if renamed else instruction.name
                self.instructions[instruction] = new

    def fresh(self, taken: set[str]) -> str:
        while True:
            name = self.chance.choice(_STEMS) + str(
                self.chance.choice(("", len(taken), len(taken)))
            )
            if name not in taken and name not in DTYPES and not name.endswith("."):
                taken.add(name)
                return name

    def marked(self, name: str) -> str:
        return name if name not in _WORDS and self.may("marks") else f"%{name}"

    # ---- instructions -------------------------------------------------------------------------------

    def line(self, one: Instruction) -> str:
        return f"{self.marked(self.instructions[one])}{_MUST}={_MAY}{self.right_side(one)}"

    def right_side(
        self, one: Instruction, attributes: Iterable[tuple[str, str]] | None = None
    ) -> str:
        shape = (
            ""
            if self.may("results") and self.is_inferred(one)
            else f"{self.shape(one.shape)}{_MUST}"
        )
        text = f"{shape}{one.opcode}{_MAY}({_MAY}{self.arguments(one)}{_MAY})"
        attributes = list(self.attributes(one) if attributes is None else attributes)
        if self.may("attributes"):
            self.chance.shuffle(attributes)
        return text + "".join(f"{_MAY},{_MAY}{name}={_MAY}{value}" for name, value in attributes)

    def is_inferred(self, one: Instruction) -> bool:
        if not one.op.inferable or one.opcode in _NOT_INFERRED:
            return False
        try:
            return infer_shape(one) == one.shape
        except ShapeError:
            return False

    def arguments(self, one: Instruction) -> str:
        if one.opcode == "parameter":
            return str(one.parameter_number)
        if one.opcode == "constant":
            return self.literal(one)
        return f"{_MAY},{_MAY}".join(map(self.operand, one.operands))

    def operand(self, one: Instruction) -> str:
        if one in self.hidden:
            return self.right_side(one, attributes=())
        name = self.marked(self.instructions[one])
        return f"{self.shape(one.shape)}{_MUST}{name}" if self.may("shapes") else name

    def literal(self, one: Instruction) -> str:
        literal = one.literal
        assert literal is not None
        text = literal_text(literal)
        if not isinstance(one.shape, ArrayShape) or literal.elided:
            return text
        dtype = one.shape.dtype
        if (dtype.is_float or dtype.is_complex) and self.may("numbers"):
            text = _NUMBER.sub(self.number, text)
        if dtype.is_pred and self.may("numbers"):
            text = re.sub(r"\b[01]\b", lambda found: ("false", "true")[int(found[0])], text)
        if not dtype.is_complex and self.may("numbers"):
            text = text.replace(", ", self.chance.choice((",", " ", " ,\n")))
        return text

    def number(self, found: re.Match[str]) -> str:
        text = found[0]
        if text.startswith("-0") or "e" in text.lower():
            return text
        if "." in text:
            return text + self.chance.choice(("", "0", "e0", "E-0"))
        return text + self.chance.choice(("", ".", ".0", "e0", "e+0", ".00E-0"))

    def shape(self, shape: Shape) -> str:
        if isinstance(shape, TupleShape):
            inner = f"{_MAY},{_MAY}".join(map(self.shape, shape.elements))
            return f"({_MAY}{inner}{_MAY})"
        if isinstance(shape, ArrayShape) and shape.dtype.is_array and self.may("layouts"):
            if shape.layout is None:
                shape = ArrayShape(shape.dtype, shape.dims, _usual(shape), shape.dynamic)
            elif _is_usual(shape):
                shape = ArrayShape(shape.dtype, shape.dims, None, shape.dynamic)
        return str(shape)

    def attributes(self, one: Instruction) -> Iterator[tuple[str, str]]:
        defaults = _DEFAULTS.get(one.opcode, {})
        for name, value in one.attributes.items():
            if name in ("literal", "parameter_number") and one.opcode in ("constant", "parameter"):
                continue
            text = self.value(one.opcode, name, value)
            if defaults.get(name) != text or not self.may("defaults"):
                yield name, text
        for name, text in defaults.items():
            if name not in one.attributes and self.may("defaults"):
                yield name, text
        if one.control_predecessors:
            before = [self.instructions[entry] for entry in one.control_predecessors]
            yield "control-predecessors", _braces(map(self.marked, before))
        if one.metadata is not None:
            yield "metadata", one.metadata.text

    def value(self, opcode: str, name: str, value: Any) -> str:
        if isinstance(value, Computation):
            return self.called(value)
        if isinstance(value, Window) and value.dims:
            return self.window(value)
        first = value[0] if isinstance(value, tuple) and value else None
        if isinstance(first, Computation):
            return _braces(map(self.called, value))
        if isinstance(first, PaddingDim) and self.may("defaults"):
            return "x".join(f"{dim.low}_{dim.high}_{dim.interior}" for dim in value)
        if isinstance(first, SliceRange) and self.may("defaults"):
            parts = (f"[{part.start}:{part.limit}:{part.stride}]" for part in value)
            return _braces(parts)
        if isinstance(first, int) and not isinstance(first, bool):
            if (opcode, name) in _UNORDERED and self.may("attributes"):
                value = self.chance.sample(value, len(value))
            return _braces(map(str, value))
        return value_text(value)

    def called(self, one: Computation) -> str:
        if one not in self.inside:
            return self.marked(self.computations[one])
        hidden, text = self.hidden, self.body(one)
        self.hidden = hidden
        return f"{{{_MAY}{text}{_MAY}}}"

    def window(self, window: Window) -> str:
        """Fields in any order, defaults written or not."""
        dims = window.dims
        fields = [
            ("size", [str(dim.size) for dim in dims], None),
            ("stride", [str(dim.stride) for dim in dims], "1"),
            ("pad", [f"{dim.pad_low}_{dim.pad_high}" for dim in dims], "0_0"),
            ("lhs_dilate", [str(dim.base_dilation) for dim in dims], "1"),
            ("rhs_dilate", [str(dim.window_dilation) for dim in dims], "1"),
            ("rhs_reversal", [str(int(dim.reversal)) for dim in dims], "0"),
        ]
        kept = [
            (name, texts)
            for name, texts, default in fields
            if any(text != default for text in texts) or self.may("defaults")
        ]
        if self.may("attributes"):
            self.chance.shuffle(kept)
        text = _MUST.join(f"{name}={'x'.join(texts)}" for name, texts in kept)
        return f"{{{_MAY}{text}{_MAY}}}"

    # ---- blanks -------------------------------------------------------------------------------------

    def filled(self, text: str) -> str:
        return re.sub(f"[{_MAY}{_MUST}]", self.gap, text)

    def gap(self, found: re.Match[str]) -> str:
        gap = "" if found[0] == _MAY else " "
        if "blanks" in self.freedoms and self.chance.random() < self.often / 2:
            gap += self.chance.choice(_BLANKS)
        if "comments" in self.freedoms and self.chance.random() < self.often / 10:
            gap += self.chance.choice(_COMMENTS) + " "
        return gap


def _braces(items: Iterable[str]) -> str:
    return f"{{{_MAY}{f'{_MAY},{_MAY}'.join(items)}{_MAY}}}"


def _arrays(shape: Shape) -> Iterator[ArrayShape | None]:
    """The arrays of a shape, None for what is none."""
    if isinstance(shape, TupleShape):
        for element in shape.elements:
            yield from _arrays(element)
    else:
        yield shape if isinstance(shape, ArrayShape) else None


def _usual(shape: ArrayShape) -> Layout:
    return Layout(tuple(range(shape.rank - 1, -1, -1)))


def _is_usual(shape: ArrayShape) -> bool:
    return shape.layout is None or shape.layout == _usual(shape)
