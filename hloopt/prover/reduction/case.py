"""A module with its inputs, and a copy of both that deltas change."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import field
from functools import cached_property
from hashlib import blake2b
from math import prod
from typing import Final, TypeAlias
from weakref import ref

import numpy as np

from hloopt.dataclass import dataclass
from hloopt.errors import ShapeError, VerifyError
from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.signatures import drop_parameters
from hloopt.ir.walk import callees_first, has_side_effect
from hloopt.prover.trials import TrialInputs
from hloopt.runtime.inputs import positions
from hloopt.types import Array, ArrayShape, Shape, TupleShape, leaves
from hloopt.verifier import verify_module

__all__ = ["Case", "CaseDraft", "Leaves", "ModulePlace", "all_places", "dead_places", "open_tuple"]

_USUAL: Final = frozenset({"f32", "s32", "pred", "c64", "token"})
_SHOWN: Final = 1000

ModulePlace: TypeAlias = tuple[str, str]
"""Where an instruction is: the names of its computation and its own.  Copies of a module keep both."""

Leaves: TypeAlias = list[list[Array]]
"""For each participant the arrays of one parameter, flat."""


@dataclass(frozen=True)
class Case:
    """A module and the inputs on which it fails.

    ``kept`` are instructions that nothing reads, which the failure may need; all others like them are removed.
    """

    module: Module
    inputs: TrialInputs
    kept: frozenset[ModulePlace] = field(default_factory=frozenset)

    @cached_property
    def size(self) -> tuple[int, ...]:
        """What is to become small, the most important first.

        Instructions, participants, elements of all shapes, arrays of unusual element types, characters of the
        text, integers that are constants (loops count to them), elements of the inputs that are not 0, and
        characters of these (of the first thousand of an array).
        """
        module = self.module
        shapes = [
            leaf
            for one in module.instructions()
            for leaf in leaves(one.shape)
            if isinstance(leaf, ArrayShape)
        ]
        arrays = [_facts(array) for given in self.inputs.arrays for array in given]
        return (
            module.instruction_count(),
            prod(self.inputs.counts),
            sum(shape.elements for shape in shapes),
            sum(shape.dtype.name not in _USUAL for shape in shapes),
            len(self.text),
            sum(abs(one.constant_integer or 0) for one in module.instructions()),
            sum(array.elements for array in arrays),
            sum(array.characters for array in arrays),
        )

    @cached_property
    def text(self) -> str:
        """The module as HLO."""
        return self.module.to_text()

    @cached_property
    def digest(self) -> bytes:
        """Of the text and the inputs: equal for equal cases."""
        found = blake2b(self.text.encode(), digest_size=16)
        for arrays in self.inputs.arrays:
            for array in arrays:
                found.update(_facts(array).digest)
        return found.digest()


@dataclass(frozen=True)
class _ArrayFacts:
    """Of an input: its elements that are not 0, the characters of the first thousand, and its digest."""

    elements: int
    characters: int
    digest: bytes


_KNOWN: Final[dict[int, tuple[ref[Array], _ArrayFacts]]] = {}
"""Cases share nearly all of their inputs, which may be the weights of a model: each array is read once."""


def _facts(array: Array) -> _ArrayFacts:
    known = _KNOWN.get(id(array))
    if known is not None and known[0]() is array:
        return known[1]
    flat, number = np.ascontiguousarray(array).reshape(-1), id(array)
    characters = sum(len(str(value)) for value in flat[:_SHOWN].tolist())
    shape = repr((array.dtype.str, array.shape)).encode()
    digest = blake2b(flat.view(np.uint8).data, digest_size=16, key=blake2b(shape).digest()).digest()
    found = _ArrayFacts(int(np.count_nonzero(flat)), characters, digest)
    _KNOWN[number] = ref(array, lambda _: _KNOWN.pop(number, None)), found
    return found


class CaseDraft:
    """A copy of a case that deltas change in place; ``finish`` makes a case of it again.

    ``arrays`` are of each parameter the arrays of each participant, ``counts`` the replicas and partitions.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.module = build.clone_module(case.module)
        self.counts = case.inputs.counts
        self.arrays: dict[Instruction, Leaves] = {}
        at = 0
        for parameter in self.entry.parameters:
            count = len(list(positions(parameter.shape)))
            self.arrays[parameter] = [arrays[at : at + count] for arrays in case.inputs.arrays]
            at += count

    @property
    def entry(self) -> Computation:
        """The entry computation."""
        return self.module.entry

    def find(self, place: ModulePlace) -> Instruction | None:
        """The instruction of a place; None where an earlier change has removed it."""
        computation = self.module.computations.get(place[0])
        return None if computation is None else computation.by_name.get(place[1])

    def parameter(self, shape: Shape, arrays: Leaves, name: str) -> Instruction:
        """A new parameter of the entry with the arrays that it is given."""
        number = {"parameter_number": len(self.entry.parameters)}
        first = next((one for one in self.entry if one.opcode != "parameter"), self.entry)
        made = build.make(first, "parameter", (), number, shape=shape, name=name)
        self.arrays[made] = arrays
        return made

    def given(self, instruction: Instruction, recorded: Leaves) -> Instruction:
        """What takes the place of a value of the entry: a parameter for each array in it, put into tuples."""
        remaining = iter(range(len(recorded[0])))

        def make(shape: Shape, name: str) -> Instruction:
            if isinstance(shape, TupleShape):
                parts = tuple(make(part, f"{name}_{at}") for at, part in enumerate(shape.elements))
                return build.make(instruction, "tuple", parts, shape=shape, name=name)
            if isinstance(shape, ArrayShape) and shape.dtype.is_array:
                number = next(remaining)
                return self.parameter(shape, [[arrays[number]] for arrays in recorded], name)
            return build.make(instruction, "after-all", (), shape=shape, name=name)

        return make(instruction.shape, instruction.name)

    def replace(self, old: Instruction, new: Instruction, *, made: bool = False) -> None:
        """Let ``new`` take the place of ``old``, and remove what only ``old`` needed.

        What was ``made`` for this takes the name as well.
        """
        name, home = old.name, old.home
        edit.replace_uses(old, new)
        edit.take_control_edges(old, new)
        self.drop(old)
        if made and old.computation is None and new.computation is home:
            edit.rename(new, name)
        open_tuple(new)

    def drop(self, instruction: Instruction) -> None:
        """Remove an instruction, side effect or not, and all that nothing reads once it is gone."""
        pending = [instruction]
        while pending:
            one = pending.pop()
            if one.computation is None or one.users or one.is_root:
                continue
            if one.opcode == "parameter" and one.computation is not self.entry:
                continue
            if one is not instruction and has_side_effect(one):
                continue
            operands = dict.fromkeys(one.operands)
            self.arrays.pop(one, None)
            edit.remove(one)
            pending += operands

    def finish(self) -> Case | None:
        """The case that this has become, without dead code; None where the module is not valid."""
        self._sweep()
        attributes = self.module.attributes
        if "entry_computation_layout" in attributes:
            shapes = self.entry.parameter_shapes
            attributes["entry_computation_layout"] = (shapes, self.entry.root.shape)
        try:
            verify_module(self.module)
        except (VerifyError, ShapeError):
            return None
        inputs = self.case.inputs
        count = prod(self.counts)
        arrays: list[list[Array]] = [[] for _ in range(count)]
        for parameter in self.entry.parameters:
            for number, given in enumerate(self.arrays[parameter]):
                arrays[number] += given
        made = TrialInputs(arrays, self.counts, inputs.host, inputs.origin)
        return Case(self.module, made, self.case.kept)

    def _sweep(self) -> None:
        """Read elements where they were put into a tuple; remove dead code but what is kept."""
        for computation in self.module:
            for instruction in list(computation):
                if instruction.opcode == "tuple":
                    open_tuple(instruction)
        for place in dead_places(self.module) - self.case.kept:
            found = self.find(place)
            if found is not None:
                self.drop(found)
        _remove_uncalled(self.module)
        for computation in callees_first(self.module):
            self._drop_parameters(computation)

    def _drop_parameters(self, computation: Computation) -> None:
        """Of what calls and fusions run, parameters that nothing reads: a fusion with one is not valid."""
        if not computation.callers or any(
            caller.opcode not in ("call", "fusion") for caller in computation.callers
        ):
            return
        unused = [one for one in computation.parameters if not one.is_used]
        numbers = [one.parameter_number for one in unused]
        given = [caller.operands[at] for caller in computation.callers for at in numbers]
        drop_parameters(computation, numbers)
        for operand in given:
            self.drop(operand)


def open_tuple(whole: Instruction) -> None:
    """Let what takes elements of a tuple that is made here read what was put into it."""
    if whole.opcode != "tuple":
        return
    for user in list(whole.users):
        if user.is_element_of(whole):
            element = whole.operands[user.tuple_index]
            edit.replace_uses(user, element)
            edit.take_control_edges(user, element)
            edit.remove(user)
            open_tuple(element)


def dead_places(module: Module) -> frozenset[ModulePlace]:
    """Instructions that nothing reads and that have no effect; of parameters only the entry's."""
    return frozenset(
        (computation.name, instruction.name)
        for computation in module
        for instruction in computation
        if not instruction.is_used
        and (instruction.opcode != "parameter" or computation is module.entry)
        and not has_side_effect(instruction)
    )


def _remove_uncalled(module: Module) -> None:
    while uncalled := [one for one in module if not one.callers and one is not module.entry]:
        for computation in uncalled:
            edit.remove_computation(computation)


def all_places(computations: Iterable[Computation], but: Collection[str]) -> list[ModulePlace]:
    """The places of all instructions of computations, in order, but those of some opcodes."""
    return [
        (computation.name, instruction.name)
        for computation in computations
        for instruction in computation
        if instruction.opcode not in but
    ]
