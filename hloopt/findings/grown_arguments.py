"""Arguments that a concatenate copies to make them a few rows longer, as caches of keys and values are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.layouts import set_argument_shape
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, edit
from hloopt.numbers import byte_size
from hloopt.passes.expand.writer import Term, Writer
from hloopt.types import AliasEntry, dtype

__all__ = ["by_concatenates"]

_LEAST: Final = 1 << 16
"""Bytes of an argument from which on copying it is worth a word."""
_TIMES: Final = 4
"""How many times longer than what it gets the argument is at least."""


@dataclass(frozen=True)
class _Growth:
    """A concatenate whose operand ``slot``, an argument, is most of it, and which is a result.

    starts  where each operand begins along the dimension, and where the last one ends
    output  the place of the result: empty for the only one
    """

    joined: Instruction
    slot: int
    starts: tuple[int, ...]
    output: tuple[int, ...]

    @property
    def argument(self) -> Instruction:
        """The parameter that grows."""
        return self.joined.operands[self.slot]

    @property
    def along(self) -> int:
        """The dimension that grows."""
        (along,) = self.joined.dimensions
        return int(along)


def by_concatenates(subject: Subject) -> Iterator[FindingCandidate]:
    """Large arguments that the program returns with a few rows more."""
    module = subject.module
    if is_planned(module):
        return
    for one in module.entry:
        found = _growth(one) if one.opcode == "concatenate" else None
        if found is not None:
            yield _candidate(found)


def _growth(joined: Instruction) -> _Growth | None:
    root = joined.home.root
    if joined is root:
        output: tuple[int, ...] = ()
    elif root.opcode == "tuple" and joined in root.operands:
        output = (root.operands.index(joined),)
    else:
        return None
    (along,) = joined.dimensions
    total = joined.array.dims[along]
    for slot, one in enumerate(joined.operands):
        size = one.array.dims[along]
        is_grown = one.opcode == "parameter" and size < total and size >= _TIMES * (total - size)
        if is_grown and one.shape.byte_size >= _LEAST and not _is_donated(one):
            sizes = (operand.array.dims[along] for operand in joined.operands)
            return _Growth(joined, slot, tuple(accumulate(sizes, initial=0)), output)
    return None


def _is_donated(argument: Instruction) -> bool:
    aliases = argument.module.attributes.get("input_output_alias") or ()
    return any(entry.parameter == argument.parameter_number for entry in aliases)


def _candidate(found: _Growth) -> FindingCandidate:
    joined, argument = found.joined, found.argument
    before, after = (one.array.dims[found.along] for one in (argument, joined))
    rows = "a place" if after - before == 1 else f"{after - before:,} places"
    starts = ["0"] * joined.array.rank
    starts[found.along] = "position"
    others = [one for slot, one in enumerate(joined.operands) if slot != found.slot]
    return FindingCandidate(
        (joined,),
        f"%{joined.name} copies %{argument.name}, {byte_size(argument.shape.byte_size)}, to add {rows} to its "
        f"{before:,} along dimension {found.along}. Where the next call gets the result, it has arguments of "
        "other shapes, and is compiled again.",
        (
            FindingRemedy(
                "model",
                "make it as long as it can become, once, and write into it: jax.lax.dynamic_update_slice("
                f"cache, new, ({', '.join(starts)})), with the position as an argument, donated "
                f"(donate_argnums={argument.parameter_number}); what lies past the position is masked. One "
                "program serves all lengths (torch: StaticCache for DynamicCache)",
            ),
        ),
        _written_into,
        tuple(others),
        priced=_written_in_place,
    )


def _written_into(module: Module, places: Sequence[Instruction]) -> bool:
    """Make the argument longer in the program, for results that can be compared."""
    found = _growth(places[0])
    if found is None:
        return False
    write = Writer.before(found.joined)
    argument = write.term(found.argument)
    amounts = [(0, 0)] * len(argument.dims)
    amounts[found.along] = found.starts[found.slot], found.starts[-1] - found.starts[found.slot + 1]
    longer = argument.pad(write.scalar(argument.dtype, 0), *amounts)
    write.replace(found.joined, _updated(write, found, longer))
    return True


def _written_in_place(module: Module, places: Sequence[Instruction]) -> bool:
    """Take the argument as long as it becomes, and give its memory to the result."""
    found = _growth(places[0])
    if found is None:
        return False
    argument, joined = found.argument, found.joined
    kept: list[tuple[int, int] | None] = [None] * joined.array.rank
    kept[found.along] = found.starts[found.slot], found.starts[found.slot + 1]
    set_argument_shape(argument, joined.array)
    # What else reads the argument reads the part that it was.
    for reader in [one for one in argument.users if one is not joined]:
        before = Writer.before(reader)
        edit.replace_operand(reader, argument, before.term(argument).slice(*kept).instruction)
    write = Writer.before(joined)
    write.replace(joined, _updated(write, found, write.term(argument)))
    aliases = module.attributes.get("input_output_alias") or ()
    given = AliasEntry(found.output, argument.parameter_number, (), "may-alias")
    module.attributes["input_output_alias"] = (*aliases, given)
    return True


def _updated(write: Writer, found: _Growth, whole: Term) -> Term:
    """The long argument with all other operands of the concatenate in their places."""
    zero = write.scalar(dtype("s32"), 0)
    for slot, one in enumerate(found.joined.operands):
        if slot != found.slot:
            starts = [zero] * one.array.rank
            starts[found.along] = write.scalar(zero.dtype, found.starts[slot])
            whole = whole.updated(write.term(one), starts)
    return whole
