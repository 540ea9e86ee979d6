"""Convolutions and their gradients as contractions: one relation, of whose three arrays one is sought.

input[place * base dilation] meets kernel[element] in output[step] where
place * base dilation == step * stride + element * window dilation - low padding
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from hloopt.analysis.contraction import Axis, AxisGroup, AxisPosition, Contraction, Side, at_axis
from hloopt.dataclass import dataclass
from hloopt.interpret.library_calls import result_shape
from hloopt.interpret.linear import sum_type
from hloopt.ir import Instruction
from hloopt.types import ConvNumbers, WindowDim

__all__ = ["of_convolution"]


def _window_position(place: Axis, element: Axis, window: WindowDim) -> AxisPosition:
    """What a window at ``place`` reads with its ``element``; the axis of m first."""
    terms = sorted([(place, window.stride), (element, window.window_dilation)], reverse=True)
    return AxisPosition(tuple(terms), -window.pad_low, window.base_dilation)


class _AxisSizes:
    """Axes by the dimension they are made for, quickest last."""

    def __init__(self, group: AxisGroup, sizes: Mapping[int, int]) -> None:
        self._numbers = {dimension: at for at, dimension in enumerate(sorted(sizes))}
        self.group = group
        self.sizes = tuple(sizes[dimension] for dimension in sorted(sizes))

    def of(self, dimension: int) -> Axis:
        """The axis that was made for a dimension."""
        return (self.group, self._numbers[dimension])


_Sought: TypeAlias = Literal["output", "input", "kernel"]


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a convolution or its gradient counts through.

    ``images`` of a batch group and features of a group of the ``inputs`` and ``outputs``; the ``batch``,
    ``feature`` and ``space`` dimensions of the left operand.  ``rows`` are its places and its batch, ``taps``
    its features and the elements of a window: one of them is m, the other k.
    """

    images: int
    inputs: int
    outputs: int
    batch: int
    feature: int
    space: tuple[int, ...]
    rows: _AxisSizes
    taps: _AxisSizes

    @classmethod
    def of(cls, instruction: Instruction, sought: _Sought) -> _Counted:
        """Read from an instruction whose result is ``sought``."""
        lhs, rhs = (operand.array.dims for operand in instruction.operands[:2])
        numbers, shape = ConvNumbers.of(instruction.attributes), result_shape(instruction)
        labels, groups = numbers.labels, numbers.groups
        transposed, over_batch = sought == "input", sought == "kernel"
        batch, feature, space = labels.input_batch, labels.input_feature, labels.input_spatial
        places, placed = labels.output_spatial, rhs if over_batch else shape.dims
        if transposed:
            batch, feature, space = (
                labels.output_batch,
                labels.output_feature,
                labels.output_spatial,
            )
            places = labels.input_spatial
        if over_batch:
            inputs, outputs = lhs[feature] // groups, rhs[labels.output_feature] // groups
        else:
            inputs = rhs[labels.kernel_input_feature]
            outputs = rhs[labels.kernel_output_feature] // groups
        images = lhs[batch] // numbers.batch_groups
        steps = {at: placed[to] for at, to in zip(space, places, strict=True)}
        elements = {at: dim.size for at, dim in zip(space, numbers.window.dims, strict=True)}
        rows = _AxisSizes("k" if over_batch else "m", {batch: images} | steps)
        channels = outputs if transposed else inputs
        taps = _AxisSizes("m" if over_batch else "k", {feature: channels} | elements)
        return cls(images, inputs, outputs, batch, feature, space, rows, taps)


def of_convolution(instruction: Instruction, sought: _Sought = "output") -> Contraction:
    """The contraction of a convolution, or of its gradient with respect to the input or the kernel.

    The operands are input and kernel, or the gradient of the output and the kernel, or the input and that
    gradient; b counts through groups.

    =======  ==============================  =====================================
    sought   m                               k
    =======  ==============================  =====================================
    output   batch and places of the output  features of the input and the window
    input    batch and places of the input   features of the output and the window
    kernel   features of the input, window   batch and places of the output
    =======  ==============================  =====================================

    n counts through the other features.  Axes are in the order of the left operand's dimensions, so that the
    last ones move through neighbours.
    """
    numbers, shape = ConvNumbers.of(instruction.attributes), result_shape(instruction)
    labels, transposed = numbers.labels, sought == "input"
    found = _Counted.of(instruction, sought)
    of_batch, channel = found.rows.of(found.batch), found.taps.of(found.feature)
    of_input: Axis = ("n", 0) if transposed else channel
    of_output: Axis = channel if transposed else ("n", 0)
    batch = _grouped(found.images, of_batch) if numbers.batch_groups > 1 else at_axis(of_batch)
    plain = sought == "output" and numbers.feature_groups == 1
    inputs = at_axis(of_input) if plain else _grouped(found.inputs, of_input)
    outputs = _grouped(found.outputs, of_output)
    x = {labels.input_batch: batch, labels.input_feature: inputs}
    kernel = {
        labels.kernel_output_feature: outputs,
        labels.kernel_input_feature: at_axis(of_input),
    }
    y = {labels.output_batch: at_axis(of_batch), labels.output_feature: outputs}
    for number, window in enumerate(numbers.window.dims):
        place, element = (axes.of(found.space[number]) for axes in (found.rows, found.taps))
        if transposed:
            window = window.transposed(1, 1)  # where its windows end does not matter here
        met = _window_position(place, element, window), at_axis(place)
        ends = met[::-1] if transposed else met
        x[labels.input_spatial[number]], y[labels.output_spatial[number]] = ends
        kernel[labels.kernel_spatial[number]] = (
            AxisPosition(((element, -1),), window.size - 1) if window.reversal else at_axis(element)
        )
    roles = {"output": (x, kernel, y), "input": (y, kernel, x), "kernel": (x, y, kernel)}
    left, right, out = roles[sought]
    lhs, rhs = instruction.operands[:2]
    other = found.inputs if transposed else found.outputs
    sizes = {found.rows.group: found.rows.sizes, found.taps.group: found.taps.sizes}
    return Contraction(
        instruction,
        {"b": (numbers.groups,), "m": sizes["m"], "n": (other,), "k": sizes["k"]},
        _side_of(lhs, left),
        _side_of(rhs, right),
        tuple(out[dimension] for dimension in range(shape.rank)),
        sum_type((lhs.array.dtype, rhs.array.dtype), shape.dtype),
        False,
    )


def _side_of(instruction: Instruction, positions: Mapping[int, AxisPosition]) -> Side:
    """An operand from the positions of its dimensions."""
    return Side(instruction, tuple(positions[at] for at in range(instruction.array.rank)))


def _grouped(size: int, axis: Axis) -> AxisPosition:
    """A dimension made of groups of ``size``: b says which one."""
    return AxisPosition(((("b", 0), size), (axis, 1)))
