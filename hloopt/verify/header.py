"""What the module's header says about the entry computation."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.ir import Module
from hloopt.types import AliasEntry, Shape, TupleShape, compatible
from hloopt.verify.places import Fault

__all__ = ["header_faults"]


def header_faults(module: Module) -> Iterator[Fault]:
    """The entry layout, aliases and donors name parameters and results that exist."""
    parameters = module.entry.parameter_shapes
    result = module.entry.result_shape
    layout = module.attributes.get("entry_computation_layout")
    if layout is not None:
        yield from _layout_faults(module, layout, parameters, result)
    for entry in module.attributes.get("input_output_alias", ()):
        yield from _alias_faults(module, entry, parameters, result)
    for number, index in module.attributes.get("buffer_donor", ()):
        message = _parameter_message(parameters, number, index)
        if message:
            yield Fault(module, f"buffer_donor: {message}")


def _layout_faults(
    module: Module,
    layout: tuple[tuple[Shape, ...], Shape],
    parameters: tuple[Shape, ...],
    result: Shape,
) -> Iterator[Fault]:
    written, returned = layout
    if len(written) != len(parameters):
        yield Fault(
            module,
            f"entry_computation_layout has {len(written)} parameters, the entry has "
            f"{len(parameters)}",
        )
        return
    for number, (shape, parameter) in enumerate(zip(written, parameters, strict=True)):
        if not compatible(shape, parameter):
            yield Fault(
                module,
                f"entry_computation_layout gives parameter {number} the shape {shape}, it has "
                f"{parameter}",
            )
    if not compatible(returned, result):
        yield Fault(
            module,
            f"entry_computation_layout gives the result the shape {returned}, it has {result}",
        )


def _alias_faults(
    module: Module, entry: AliasEntry, parameters: tuple[Shape, ...], result: Shape
) -> Iterator[Fault]:
    output = _element(result, entry.output_index)
    if output is None:
        yield Fault(
            module,
            f"input_output_alias: {_braces(entry.output_index)} is not in the result {result}",
        )
        return
    message = _parameter_message(parameters, entry.parameter, entry.parameter_index)
    if message:
        yield Fault(module, f"input_output_alias: {message}")


def _parameter_message(parameters: tuple[Shape, ...], number: int, index: tuple[int, ...]) -> str:
    if not 0 <= number < len(parameters):
        return f"there is no parameter {number} among {len(parameters)}"
    if _element(parameters[number], index) is None:
        return f"{_braces(index)} is not in parameter {number} of shape {parameters[number]}"
    return ""


def _element(shape: Shape, index: tuple[int, ...]) -> Shape | None:
    """The part of a shape that a tuple index names, or None."""
    for step in index:
        if not isinstance(shape, TupleShape) or not 0 <= step < len(shape.elements):
            return None
        shape = shape.elements[step]
    return shape


def _braces(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"
