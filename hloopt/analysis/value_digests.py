"""Digests of what is computed, whatever it is called and however it is divided into kernels.

The digest of a value depends on its op and on the digests of its operands, up to the entry's parameters,
through fusions, tuples, loops, branches and calls.  Two modules that compute the same value in different
kernels give it the same digest.  What moves no byte (a bitcast, a reshape between row-major layouts) changes
only the shape under which a value is known.  The digest of a kernel covers only the kernel itself.

Costs are linear in instructions, with the body of a fusion once for each fusion that calls it, and a
computation of several callers once for each call path to it, where that is at most a few times the module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, TypeAlias

from hloopt.analysis.layout import moves_nothing
from hloopt.analysis.trees import Tree, leaves, mapped
from hloopt.dataclass import dataclass
from hloopt.graphs import post_order
from hloopt.ir import Computation, Instruction, Module, walk
from hloopt.ir.encode import encoded
from hloopt.ir.normal import normal_attributes, normal_shape
from hloopt.ops.traits import CONTROL_FLOW, PLUMBING
from hloopt.types import Shape, TupleShape

__all__ = ["KernelDigests", "ValueDigests", "kernel_digest"]

_Value: TypeAlias = "Tree[bytes]"
_Environment: TypeAlias = dict[Instruction, _Value]

_NO_VALUE: Final = PLUMBING | {"bitcast"}
_IGNORED: Final = frozenset({
    "calls", "kind", "sharding", "frontend_attributes", "output_to_operand_aliasing", "parameter_number",
})  # fmt: skip
"""Attributes that do not say what is computed."""


_BYTES: Final = 16
"""Of one digest."""

_MOST_PATHS: Final = 4
"""How many times longer than the module its paths may be, all calls followed."""


@dataclass(frozen=True, slots=True)
class KernelDigests:
    """Of one top-level instruction, over all call paths to it.

    inner    what it computes, each with its digest: a fusion's body without parameters, constants and views
    outputs  the digests of its results
    """

    inner: tuple[tuple[bytes, Instruction], ...]
    outputs: tuple[bytes, ...]


class ValueDigests:
    """The digests of all values of a module.

    ``depth`` is how many ops before a value its digest includes, itself not counted; None for all.  Those of
    little depth are the same in modules that differ further up.

    kernels  by top-level instruction; what calls, tuples, parameters, constants and views are not among them
    """

    def __init__(self, module: Module, depth: int | None = None) -> None:
        self.kernels: dict[Instruction, KernelDigests] = {}
        self._depth = depth
        self._follows_calls = _paths_length(module) <= _MOST_PATHS * module.instruction_count()
        self._views: dict[bytes, tuple[bytes, str]] = {}
        self._regions = _Regions()
        self._roots: dict[Computation, _Value] = {}
        self._top(module.entry, None)

    def _top(self, computation: Computation, arguments: Sequence[_Value] | None) -> _Value:
        """The root of a computation whose instructions run one by one.

        Where there are too many call paths to it, its parameters are opaque to what is inside.
        """
        shared = sum(computation.callers.values()) > 1
        if shared and self._follows_calls:
            return self._inside(computation, arguments, shared=False)
        root = self._roots.get(computation)
        if root is None:
            root = self._roots[computation] = self._inside(computation, arguments, shared=shared)
        if not shared or arguments is None:
            return root
        given = _digest(*(leaf for argument in arguments for leaf in leaves(argument)))
        return mapped(root, lambda leaf: self._made(b"called" + given, leaf))

    def _inside(
        self, computation: Computation, arguments: Sequence[_Value] | None, *, shared: bool
    ) -> _Value:
        known: _Environment = {}
        for parameter in computation.parameters:
            number = parameter.parameter_number
            if arguments is None or shared or number >= len(arguments):
                known[parameter] = self._spread(_parameter(parameter), [], parameter.shape)
            else:
                known[parameter] = arguments[number]
        for entry in computation:
            if entry not in known:
                known[entry] = self._top_level(entry, known)
        return known[computation.root]

    def _top_level(self, entry: Instruction, known: _Environment) -> _Value:
        arguments = [known[operand] for operand in entry.operands]
        match entry.opcode:
            case "while":
                (start,) = arguments
                carried = mapped(start, lambda leaf: self._made(b"carried", leaf))
                self._top(entry.condition, [carried])
                return self._zipped(b"loop", [start, self._top(entry.body, [carried])])
            case "conditional":
                called = walk.called_computations(entry)
                roots = [
                    self._top(branch, [argument])
                    for branch, argument in zip(called, arguments[1:], strict=True)
                ]
                return self._zipped(b"branch", [*roots], list(leaves(arguments[0])))
            case "call":
                return self._top(entry.to_apply, arguments)
            case "async-start":
                return (tuple(arguments), self._top(entry.calls, arguments))
            case "async-update":
                return arguments[0]
            case "async-done":
                return arguments[0][1] if isinstance(arguments[0], tuple) else arguments[0]
        inner: list[tuple[bytes, Instruction]] = []
        value = self._value(entry, arguments, inner)
        if entry.opcode not in _NO_VALUE and not moves_nothing(entry):
            before = self.kernels.get(entry, KernelDigests((), ()))
            self.kernels[entry] = KernelDigests(
                before.inner + tuple(inner), before.outputs + tuple(map(self._final, leaves(value)))
            )
        return value

    def _value(
        self,
        entry: Instruction,
        arguments: Sequence[_Value],
        inner: list[tuple[bytes, Instruction]],
    ) -> _Value:
        """What an op or fusion makes of its operands; what it computes on the way goes to ``inner``."""
        if entry.opcode == "tuple":
            return tuple(arguments)
        if entry.opcode == "get-tuple-element" and isinstance(arguments[0], tuple):
            index = entry.tuple_index
            return arguments[0][index]
        if entry.opcode in ("opt-barrier", "domain", "add-dependency"):
            return arguments[0]
        if moves_nothing(entry) and isinstance(arguments[0], bytes):
            return self._view(entry, arguments[0])
        if entry.opcode == "fusion":
            return self._fusion(entry, arguments, inner)
        parts = [leaf for argument in arguments for leaf in leaves(argument)]
        op = _op(entry, self._regions).encode()
        if entry.opcode not in _NO_VALUE:
            inner.append((self._final(self._made(op, *parts)), entry))
        return self._spread(op, parts, entry.shape)

    def _fusion(
        self,
        fusion: Instruction,
        arguments: Sequence[_Value],
        inner: list[tuple[bytes, Instruction]],
    ) -> _Value:
        body = fusion.calls
        known: _Environment = {
            parameter: arguments[parameter.parameter_number] for parameter in body.parameters
        }
        for entry in body:
            if entry not in known:
                operands = [known[operand] for operand in entry.operands]
                known[entry] = self._value(entry, operands, inner)
        return known[body.root]

    def _view(self, entry: Instruction, argument: bytes) -> bytes:
        """The same bytes under another shape; under their first shape they are what they were."""
        base, first = self._views.get(argument, (argument, _shape(entry.operands[0].shape)))
        shape = _shape(entry.shape)
        if shape == first:
            return base
        seen = self._made(b"view " + shape.encode(), base)
        self._views[seen] = base, first
        return seen

    def _made(self, word: bytes, *leaves: bytes) -> bytes:
        """The digest of a value made of others.

        With a limited depth: digests of depth 0, 1 and so on, one behind the other.
        """
        if self._depth is None:
            return _digest(word, *leaves)
        digests = [_digest(word)]
        for level in range(self._depth):
            at = slice(level * _BYTES, (level + 1) * _BYTES)
            digests.append(_digest(word, *(leaf[at] for leaf in leaves)))
        return b"".join(digests)

    def _final(self, leaf: bytes) -> bytes:
        return leaf[-_BYTES:]

    def _spread(self, word: bytes, leaves: Sequence[bytes], shape: Shape) -> _Value:
        """A digest for each element of a tuple that one instruction makes."""
        if not isinstance(shape, TupleShape):
            return self._made(word, *leaves)
        return tuple(
            self._spread(b"element %d " % index + word, leaves, element)
            for index, element in enumerate(shape.elements)
        )

    def _zipped(self, word: bytes, values: Sequence[_Value], more: Sequence[bytes] = ()) -> _Value:
        """Element by element, one digest of the word and of all values, and of ``more``."""
        if all(isinstance(value, tuple) for value in values):
            columns = zip(*values, strict=True)
            return tuple(self._zipped(word, column, more) for column in columns)
        return self._made(word, *(leaf for value in values for leaf in leaves(value)), *more)


def _paths_length(module: Module) -> int:
    """Instructions that run one by one when every call is followed, loops and branches once."""
    length: dict[Computation, int] = {}
    for computation in walk.callees_first(module):
        length[computation] = len(computation) + sum(
            length[callee]
            for entry in computation
            if entry.opcode in CONTROL_FLOW
            for callee in walk.called_computations(entry)
        )
    return length[module.entry]


class _Regions(dict[Computation, str]):
    """Digests of computations applied to elements, made on demand."""

    def __missing__(self, region: Computation) -> str:
        known: dict[Instruction, bytes] = {}
        for entry in region:
            if entry.opcode == "parameter":
                known[entry] = _parameter(entry)
            else:
                parts = [known[operand] for operand in entry.operands]
                known[entry] = _digest(_op(entry, self).encode(), *parts)
        self[region] = found = known[region.root].hex()
        return found


def kernel_digest(kernel: Instruction) -> bytes:
    """A digest of what a kernel does to its operands, whatever they are and in whatever order it has them.

    An op by itself is the fusion of it alone.  Views at the borders do not count, nor does the order of several
    results.
    """
    body = _Body(kernel)
    names: dict[Instruction, int] = {}
    hashed = blake2b(digest_size=_BYTES)
    for output in sorted(body.outputs, key=body.alone):
        for entry in post_order((output,), body.sources, names):
            names[entry] = len(names)
            if not body.is_leaf(entry):
                operands = ",".join(
                    f"{names[body.source(operand)]} {_shape(operand.shape)}"
                    for operand in entry.operands
                )
                hashed.update(f"{_op(entry, body.regions)} ({operands})\n".encode())
        hashed.update(f"output {names[output]}\n".encode())
    return hashed.digest()


class _Body:
    """The graph of one kernel; its leaves are what it is given."""

    def __init__(self, kernel: Instruction) -> None:
        self.regions = _Regions()
        self._kernel = kernel
        self._alone: dict[Instruction, bytes] = {}
        if kernel.opcode == "fusion":
            self.outputs = [self.source(entry) for entry in kernel.calls.results]
        else:
            self.outputs = [kernel]

    def is_leaf(self, entry: Instruction) -> bool:
        """Whether the kernel is given it."""
        if self._kernel.opcode != "fusion":
            return entry is not self._kernel
        return entry.opcode == "parameter"

    def source(self, entry: Instruction) -> Instruction:
        """What an instruction shows under another shape, itself where it is not a view."""
        if self._kernel.opcode == "fusion":
            while moves_nothing(entry):
                entry = entry.operands[0]
        return entry

    def sources(self, entry: Instruction) -> Iterable[Instruction]:
        """What an instruction of the kernel is computed from, views left out."""
        return () if self.is_leaf(entry) else map(self.source, entry.operands)

    def alone(self, output: Instruction) -> bytes:
        """A digest of one output that includes only the shapes of the kernel's operands."""
        for entry in post_order((output,), self.sources, self._alone):
            if self.is_leaf(entry):
                self._alone[entry] = b"given"
                continue
            parts = [
                part
                for operand in entry.operands
                for part in (_shape(operand.shape).encode(), self._alone[self.source(operand)])
            ]
            self._alone[entry] = _digest(_op(entry, self.regions).encode(), *parts)
        return self._alone[output]


def _op(entry: Instruction, regions: Mapping[Computation, str]) -> str:
    """Opcode, shape and what the attributes say about the computation."""
    kept = (
        f"{name}={encoded(value, regions)}"
        for name, value in normal_attributes(entry).items()
        if name not in _IGNORED and (name != "backend_config" or entry.opcode == "custom-call")
    )
    return f"{entry.opcode} {_shape(entry.shape)} {' '.join(kept)}"


def _shape(shape: Shape) -> str:
    return str(normal_shape(shape))


def _parameter(parameter: Instruction) -> bytes:
    return _digest(b"parameter %d" % parameter.parameter_number, _shape(parameter.shape).encode())


def _digest(*parts: bytes) -> bytes:
    hashed = blake2b(digest_size=_BYTES)
    for part in parts:
        hashed.update(b"%d:" % len(part) + part)
    return hashed.digest()
