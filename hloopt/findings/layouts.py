"""Arguments that are transposed before anything reads them: callers could lay them out as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hloopt.analysis.layout import major_to_minor
from hloopt.findings.finding import FindingRemedy
from hloopt.findings.planning import is_planned
from hloopt.findings.trials import FindingCandidate, Subject
from hloopt.ir import Instruction, Module, edit
from hloopt.numbers import byte_size
from hloopt.ops.traits import PERMUTING
from hloopt.types import AliasEntry, ArrayShape, Dims, Layout

__all__ = ["arguments", "set_argument_shape"]

_LEAST: Final = 1 << 16
"""Bytes from which on an argument is worth a word."""
_MOVES: Final = PERMUTING - {"reshape", "reverse"} | {"parameter"}


def arguments(subject: Subject) -> Iterator[FindingCandidate]:
    """Those that a kernel of the plan transposes, all of one, and computes nothing with."""
    module = subject.module
    if is_planned(module) or not subject.is_small:
        return
    if not subject.planner.predictor.target.has_threads:
        return  # elsewhere what moves elements pays little attention to where they lie
    known = {parameter.name: parameter for parameter in module.entry.parameters}
    aliased = {entry.parameter for entry in _aliases(module)}
    seen: set[str] = set()
    for row in subject.plan.rows:
        order = _order(row.instruction)
        if order is None or row.instruction.home is not subject.plan.module.entry:
            continue
        name = row.instruction.operands[0].name
        parameter = known.get(name)
        if parameter is None or name in seen or parameter.parameter_number in aliased:
            continue
        if parameter.shape.byte_size < _LEAST or not _is_row_major(parameter):
            continue
        seen.add(name)
        yield _candidate(parameter, order, tuple(row.instruction.users))


def _aliases(module: Module) -> Sequence[AliasEntry]:
    found: Sequence[AliasEntry] = module.attributes.get("input_output_alias") or ()
    return found


def _is_row_major(parameter: Instruction) -> bool:
    shape = parameter.shape
    return (
        isinstance(shape, ArrayShape)
        and not shape.is_dynamic
        and (shape.layout is None or not shape.layout.suffix)
        and major_to_minor(shape) == tuple(range(shape.rank))
    )


def _order(kernel: Instruction) -> Dims | None:
    """The order of dimensions in which a kernel writes an argument; None where it does anything else."""
    body = list(kernel.calls) if kernel.opcode == "fusion" else [kernel]
    if len(kernel.operands) != 1 or kernel.operands[0].opcode != "parameter":
        return None
    moved = [one for one in body if one.opcode == "transpose"]
    if len(moved) != 1 or any(one.opcode not in _MOVES for one in body):
        return None
    (transpose,) = moved
    source = transpose.operands[0]
    if source.opcode != "parameter" or source.array.dims != kernel.operands[0].array.dims:
        return None
    order: Dims = transpose.dimensions
    return order


def _candidate(
    parameter: Instruction, order: Dims, readers: Sequence[Instruction]
) -> FindingCandidate:
    dims = tuple(parameter.array.dims[dim] for dim in order)
    named = ", ".join(f"%{one.name}" for one in readers[:3]) or "the caller"
    listed = ", ".join(map(str, order))

    def change(module: Module, places: Sequence[Instruction]) -> bool:
        for one in places:
            _laid_out(one, order)
        return bool(places)

    return FindingCandidate(
        (parameter,),
        f"%{parameter.name} is written to memory once more, {byte_size(parameter.shape.byte_size)} with "
        f"its dimensions in the order {listed}: {named} wants it so.",
        (
            FindingRemedy(
                "model",
                f"keep it as {list(dims)} where it is made or loaded, transposed once "
                f"(jnp.transpose(x, ({listed})), torch: x.permute({listed}).contiguous())",
            ),
            FindingRemedy(
                "model",
                f"jax.jit(..., in_shardings=Format(Layout(major_to_minor=({listed})), sharding)) of "
                "jax.experimental.layout: the same dimensions, laid out so by the caller",
            ),
        ),
        change,
        tuple(readers),
    )


def _laid_out(parameter: Instruction, order: Dims) -> None:
    """The argument with its dimensions in that order in memory, the first the slowest."""
    layout = Layout(tuple(reversed(order)))
    set_argument_shape(parameter, replace(parameter.array, layout=layout))


def set_argument_shape(parameter: Instruction, shape: ArrayShape) -> None:
    """Give a parameter of the entry another shape, in the layout of the entry, too."""
    edit.set_shape(parameter, shape)
    attributes = parameter.module.attributes
    given = attributes.get("entry_computation_layout")
    if given is not None:
        parameters, result = given
        number = parameter.parameter_number
        attributes["entry_computation_layout"] = (
            (*parameters[:number], shape, *parameters[number + 1 :]),
            result,
        )
