"""convolution: products by BLAS, planned when the line is made.

Windows are multiplied block by block (``window_products``); what has no products worth BLAS, such as a
depthwise convolution, is summed for all groups at once.  Sums of f32 are BLAS's, sums of integers are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.integer_dot import IntegerForm, integer_form
from hloopt.backends.numpy.movement import Emitter
from hloopt.backends.numpy.plan import Function, Slots
from hloopt.backends.numpy.window_products import multiply_windows, sum_outputs, sum_windows
from hloopt.interpret.context import Context
from hloopt.interpret.convolution import convolution
from hloopt.interpret.correlation import Geometry
from hloopt.interpret.linear import accumulated, rounded, sum_type
from hloopt.ir import Instruction
from hloopt.types import ConvNumbers, DType

__all__ = ["EMITTERS"]

# Output features of a group up to which sums of single features are quicker than products of matrices, and
# outputs of a group so that the same is true of the sums that make a kernel's gradient.
_FEW_FEATURES = 4
_FEW_OUTPUTS = 64


def _convolution(
    builder: Builder, instruction: Instruction, operands: Sequence[int]
) -> Slots | None:
    if len(operands) != 2:
        return None
    context, result = builder.context, instruction.array.dtype
    kinds = [operand.array.dtype for operand in instruction.operands]
    kind = sum_type(kinds, result)
    if kind.is_pred:
        return None
    carrier = context.carrier(result)
    widen: tuple[Function | None, Function | None]
    finish: Function | None
    if kind.is_integer:
        form = _integer_form(instruction, kinds, kind, context)
        if not form.is_one_product:
            return None  # the values decide: the interpreter looks at them
        widen, finish, compute = (None, None), form.finish, form.compute
    else:
        widen = _widening(kinds[0], kind, context), _widening(kinds[1], kind, context)
        compute = kind.compute
        finish = _finish(kind, result, context)
    run = _Convolution(instruction, widen, compute, carrier, finish)
    return builder.applied(instruction, operands, run, fills=finish is None)


def _integer_form(
    instruction: Instruction, kinds: Sequence[DType], kind: DType, context: Context
) -> IntegerForm:
    """Never NumPy's loops of integers; f64 where f32 would hold parts of sums only."""
    kernel = instruction.operands[1].array
    labels = ConvNumbers.of(instruction.attributes).labels
    terms = kernel.elements // max(1, kernel.dims[labels.kernel_output_feature])
    form = integer_form(kinds, kind, instruction.array.dtype, (terms,), 1 << 62, context)
    return form.in_one()


def _widening(source: DType, kind: DType, context: Context) -> Function | None:
    """What an operand needs before it can be assigned to an array of the type sums are made in."""
    exact = source is kind or (source.is_narrow_float and kind.name in ("f32", "f64"))
    return None if exact else lambda array: accumulated(array, source, kind, context)


def _finish(kind: DType, result: DType, context: Context) -> Callable[[Any], Any] | None:
    carrier = context.carrier(result)
    if kind is not result:
        return lambda total: rounded(total, kind, result, context)
    return None if carrier == kind.compute else lambda total: total.astype(carrier)


class _Convolution:
    """A function of operand and kernel that takes ``out=``."""

    def __init__(
        self,
        instruction: Instruction,
        widen: tuple[Function | None, Function | None],
        compute: np.dtype[Any],
        carrier: np.dtype[Any],
        finish: Function | None,
    ) -> None:
        self._numbers = ConvNumbers.of(instruction.attributes)
        operand, kernel = (one.array.dims for one in instruction.operands)
        self._geometry = Geometry(operand, kernel, self._numbers)
        self._shape = instruction.array.dims
        self._widen, self._compute, self._carrier = widen, compute, carrier
        self._finish = finish

    def __call__(self, x: Any, kernel: Any, out: Any = None) -> Any:
        """The result in ``out``, an array in row-major order, or in a new array."""
        for_x, for_kernel = self._widen
        x = x if for_x is None else for_x(x)
        kernel = kernel if for_kernel is None else for_kernel(kernel)
        kernel = kernel.astype(self._compute, copy=False)
        if self._finish is not None or out is None or not out.flags.c_contiguous:
            out = np.empty(self._shape, self._compute)
        self._fill(x, kernel, out)
        return out if self._finish is None else self._finish(out)

    def _fill(self, x: Any, kernel: Any, out: Any) -> None:
        geometry = self._geometry
        if not out.size:
            return
        if not kernel.size:
            out[...] = 0
            return
        if geometry.meets_padding and not np.isfinite(np.add.reduce(kernel, axis=None)):
            # An infinite weight is not multiplied by padding: the interpreter leaves those places out.
            wide = x.astype(self._compute, copy=False)
            np.copyto(out, convolution(wide, kernel, self._numbers))
            return
        operand, result = geometry.operand(x), geometry.result(out)
        weights = geometry.kernel(kernel)
        if geometry.has_gaps:
            out[...] = 0
        every = (slice(None), slice(None))
        for phase in geometry.phases:
            part = weights[(slice(None), *(span.positions for span in phase.spans))]
            target = result[(*every, *(span.outputs for span in phase.spans))]
            if self._is_depthwise:
                sum_windows(phase, operand, part, target)
            elif self._sums_outputs:
                sum_outputs(phase, operand, part, target)
            else:
                multiply_windows(geometry, phase, operand, part, target)

    @property
    def _is_depthwise(self) -> bool:
        geometry = self._geometry
        return geometry.groups > 1 and geometry.features == 1 and geometry.made <= _FEW_FEATURES

    @property
    def _sums_outputs(self) -> bool:
        geometry = self._geometry
        outputs = geometry.batch * prod(geometry.outputs) * geometry.made
        return geometry.groups > 1 and geometry.batch == 1 and outputs <= _FEW_OUTPUTS


EMITTERS: Mapping[str, Emitter] = {"convolution": _convolution}
