"""Copies in memory, and arguments whose memory could hold a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, edit
from hloopt.numbers import byte_size
from hloopt.passes.copy_insertion import CopyInsertion
from hloopt.rewrite import same_layout
from hloopt.rewrite.pass_ import PassLog
from hloopt.types import AliasEntry, ArrayShape

__all__ = ["arguments", "copies"]

_LEAST: Final = 1 << 16
"""Bytes from which on an argument is worth a word."""


def copies(subject: Subject) -> Iterator[FindingCandidate]:
    """Copies that stand in the text and that no buffer needs; of arguments, those that donating them avoids."""
    module, planned = subject.module, is_planned(subject.module)
    copied = {
        row.instruction: row.instruction.operands[0]
        for row in subject.plan.rows
        if row.instruction.opcode == "copy"
        and row.instruction.operands[0].opcode == "parameter"
        and any(map(_changes, row.instruction.users))
    }
    names = {source.name for source in copied.values()}
    pairs = [(one, index) for one, index in _pairs(module) if one.name in names]
    for parameter, index in pairs:
        yield FindingCandidate(
            (parameter,),
            f"%{parameter.name} is updated in place, but it is an argument that the caller may read "
            f"again: its {byte_size(parameter.shape.byte_size)} are copied first. {_place(index)} has "
            "the same shape and could take its memory.",
            _donate([parameter]),
            _Donated({parameter.parameter_number: index}, planned=planned),
        )
    if planned:
        given = {parameter.name for parameter, _ in pairs}
        for computation in module:
            for instruction in computation:
                if (
                    instruction.opcode == "copy"
                    and same_layout(instruction.shape, instruction.operands[0].shape)
                    and not any(one.opcode == "while" for one in computation.callers)
                    and instruction.operands[0].name not in given
                ):
                    yield _needless(instruction)


def _changes(user: Instruction) -> bool:
    """Whether a copy is made for an update in place or a loop, not for a result."""
    return user.opcode != "tuple" or any(one.opcode == "while" for one in user.users)


def _needless(copied: Instruction) -> FindingCandidate:
    source = copied.operands[0]
    readers = ", ".join(f"%{user.name}" for user in copied.users) or "the caller"
    donated = {entry.parameter for entry in _aliases(copied.module)}
    is_donated = source.opcode == "parameter" and source.parameter_number in donated
    what = f"the donated argument %{source.name}" if is_donated else f"%{source.name}"
    return FindingCandidate(
        (copied,),
        f"%{copied.name} copies {what} for {readers}, and nothing needs the bytes unchanged afterwards: with "
        "the reader taking them directly, copy insertion puts no copy back.",
        (
            FindingRemedy(
                "hloopt", "remove the copy, then copy-insertion, which puts back what buffers need"
            ),
            FindingRemedy(
                "model", "a jit without a copy between argument and update; recent XLA removes it"
            ),
        ),
        _dropped,
        tuple(copied.users),
    )


def _dropped(module: Module, places: Sequence[Instruction]) -> bool:
    for copied in places:
        edit.replace_instruction(copied, copied.operands[0])
    CopyInsertion().run(module, PassLog())
    return True


def arguments(subject: Subject) -> Iterator[FindingCandidate]:
    """Large arguments of the shapes of results, none of which is donated: both are in memory at the end."""
    pairs = [
        (parameter, index)
        for parameter, index in _pairs(subject.module)
        if parameter.shape.byte_size >= _LEAST
    ]
    if not pairs:
        return
    pairs.sort(key=lambda pair: -pair[0].shape.byte_size)
    parameters = [parameter for parameter, _ in pairs]
    total = sum(parameter.shape.byte_size for parameter in parameters)
    names = ", ".join(f"%{one.name}" for one in parameters[:4])
    more = f" and {len(parameters) - 4} more" if len(parameters) > 4 else ""
    yield FindingCandidate(
        tuple(parameters),
        f"{names}{more} ({byte_size(total)}) have the shapes of results and are not donated: at the end "
        "of a run "
        "argument and result are both in memory.",
        _donate(parameters),
        _Donated({parameter.parameter_number: index for parameter, index in pairs}, late=True),
        is_late=True,
    )


def _donate(parameters: Sequence[Instruction]) -> tuple[FindingRemedy, ...]:
    numbers = ", ".join(str(one.parameter_number) for one in parameters[:6])
    more = ", ..." if len(parameters) > 6 else ""
    return (
        FindingRemedy(
            "model",
            f"jax.jit(..., donate_argnums=...) for entry parameter {numbers}{more}, where the caller reads the "
            "argument no more",
        ),
    )


class _Donated:
    """The change: results lie in the memory of the arguments of these numbers, which no copy saves then.

    ``planned`` takes such copies out of the text, ``late`` puts in those of results that are made while the
    argument is read in another order.
    """

    def __init__(
        self, results: dict[int, tuple[int, ...]], *, planned: bool = False, late: bool = False
    ) -> None:
        self.results = results
        self.planned = planned
        self.late = late

    def __call__(self, module: Module, places: Sequence[Instruction]) -> bool:
        """Whether the parameters are still there."""
        entries = tuple(
            AliasEntry(index, number, (), "may-alias")
            for number, index in self.results.items()
            if number < len(module.entry.parameters)
        )
        module.attributes["input_output_alias"] = (*_aliases(module), *entries)
        if self.planned:
            _dropped(
                module, [one for place in places for one in place.users if one.opcode == "copy"]
            )
        if self.late:
            CopyInsertion().run(module, PassLog())
        return bool(entries)


def _aliases(module: Module) -> tuple[AliasEntry, ...]:
    found: tuple[AliasEntry, ...] = module.attributes.get("input_output_alias", ())
    return found


def _pairs(module: Module) -> list[tuple[Instruction, tuple[int, ...]]]:
    """Arguments, each with a result of its shape that it could hold: what is computed from it first."""
    root = module.entry.root
    results = list(enumerate(root.operands)) if root.opcode == "tuple" else [(-1, root)]
    taken = {entry.output_index for entry in _aliases(module)}
    given = {entry.parameter for entry in _aliases(module)}
    free: dict[tuple[int, ...], Instruction] = {
        (() if number < 0 else (number,)): result
        for number, result in results
        if result.is_array and (() if number < 0 else (number,)) not in taken
    }
    found: list[tuple[Instruction, tuple[int, ...]]] = []
    for parameter in module.entry.parameters:
        if parameter.parameter_number in given or not isinstance(parameter.shape, ArrayShape):
            continue
        for index, result in free.items():
            if result is not parameter and _alike(parameter.shape, result.array):
                found.append((parameter, index))
                del free[index]
                break
    return found


def _alike(one: ArrayShape, other: ArrayShape) -> bool:
    return one.dtype is other.dtype and one.dims == other.dims and bool(one.dims)


def _place(index: tuple[int, ...]) -> str:
    return f"Result {index[0]}" if index else "The result"
