"""Callbacks of native programs: instructions run by the NumPy executor on views of the buffers.

Products go to BLAS without a detour: where operands and result are arrays as ``matmul`` takes them, it writes
into the result's buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np

from hloopt.backends.native.memory import Placed, PlanMemory, is_plain
from hloopt.backends.numpy.builder import Builder
from hloopt.backends.numpy.compiler import LineCompiler
from hloopt.backends.numpy.loop_plan import Blocking
from hloopt.backends.numpy.plan import Function, Slots, leaf_slots
from hloopt.backends.numpy.source import compile_line
from hloopt.interpret import EVALUATORS, Host
from hloopt.ir import Instruction, Module
from hloopt.kernels.plan import HostStep, KernelStep, PlanBuffer
from hloopt.ops.traits import BODIES
from hloopt.runtime.device import bytes_of_array
from hloopt.types import Array, DotDims, DType

__all__ = ["NumpyCall", "SingleInstructions", "call_of"]

NumpyCall: TypeAlias = Callable[[Placed], None]

_BLAS_TYPES = frozenset({"f32", "f64", "c64", "c128"})
_WIDENED_TYPES = frozenset({"bf16", "f16"})


class SingleInstructions(LineCompiler):
    """The instructions of a module, each compiled to a function of flat arrays, for other executors.

    ``host`` may be set between runs: infeed, outfeed and the like use it.
    """

    def __init__(self, module: Module) -> None:
        super().__init__(module, [0], excess_precision=False, blocking=Blocking())
        self.host = Host()

    def compile(self, instruction: Instruction) -> Callable[..., tuple[Any, ...]]:
        """A function from the leaves of the operands to those of the result, tokens among both.

        Arrays are logical and row-major, of the storage types; results may share memory with operands, and
        must not be written into.  The values of constant operands are known when the function is made.
        Raises ``UnsupportedError`` for an instruction without evaluation.
        """
        if EVALUATORS.get(instruction.opcode) is None and instruction.opcode not in BODIES:
            raise self.unsupported(instruction, f"{instruction.opcode} has no evaluation")
        builder = Builder(self)
        given = [builder.slots(operand.shape) for operand in instruction.operands]
        known = [
            self._known(builder, operand, slots)
            for operand, slots in zip(instruction.operands, given, strict=True)
        ]
        made = self._add(builder, instruction, known, counted=False)
        line = builder.line
        line.inputs = [leaf for slots in given for leaf in leaf_slots(slots)]
        line.results = list(builder.all_full([(made, instruction.shape)]))
        line.drop_unused()
        function: Function = compile_line(line, self.launches)
        return function

    def _known(self, builder: Builder, operand: Instruction, slots: Slots) -> Slots:
        if operand.opcode != "constant":
            return slots
        return self._constant(builder, operand)


def call_of(
    step: KernelStep | HostStep, memory: PlanMemory, compiler: SingleInstructions
) -> NumpyCall:
    """The function that runs a step on what is placed.  Raises what ``SingleInstructions.compile`` raises."""
    product = _product(step, memory)
    if product is not None:
        return product
    function = compiler.compile(step.instruction)
    operands = [memory.view(buffer) for buffer in step.operands]
    writers = [_writer(buffer, memory) for buffer in step.results]

    def run(placed: Placed) -> None:
        made = function(*[operand(placed) for operand in operands])
        for write, array in zip(writers, made, strict=True):
            write(placed, array)

    return run


def _writer(buffer: PlanBuffer, memory: PlanMemory) -> Callable[[Placed, Any], None]:
    if not buffer.byte_size:
        return lambda _placed, _array: None
    view = memory.view(buffer)
    if is_plain(buffer.shape):

        def write(placed: Placed, array: Any) -> None:
            view(placed)[...] = array

        return write
    raw, shape = memory.bytes_of(buffer), buffer.shape

    def pack(placed: Placed, array: Any) -> None:
        raw(placed)[:] = bytes_of_array(np.asarray(array), shape)

    return pack


def _product(step: KernelStep | HostStep, memory: PlanMemory) -> NumpyCall | None:
    """A dot that BLAS makes, straight into the result's buffer."""
    dot = step.instruction
    if dot.opcode != "dot" or _blas_problem(dot):
        return None
    buffers = (*step.operands, *step.results)
    if len(buffers) != 3 or not all(one.byte_size and is_plain(one.shape) for one in buffers):
        return None
    kind = dot.array.dtype
    if kind.numpy != kind.compute:
        return None
    left, right, result = (memory.view(buffer) for buffer in buffers)
    lay_left, lay_right, lay_result = _layouts(dot)
    still = [memory.still(buffer) for buffer in buffers]
    if all(array is not None for array in still):
        # The addresses are fixed: only what has to be converted is prepared each time.
        a, b, c = still
        assert a is not None
        assert b is not None
        assert c is not None
        x, y, z = lay_left(a), lay_right(b), lay_result(c)
        if np.shares_memory(x, a) and np.shares_memory(y, b):
            return lambda _: _multiply(x, y, z)

    def run(placed: Placed) -> None:
        _multiply(lay_left(left(placed)), lay_right(right(placed)), lay_result(result(placed)))

    return run


def _multiply(left: Array, right: Array, out: Array) -> None:
    np.matmul(left, right, out)


def _layouts(dot: Instruction) -> tuple[Callable[[Array], Array], ...]:
    """Views of operands and result as ``[batch, m, k]``, ``[batch, k, n]``, ``[batch, m, n]``."""
    dims = DotDims.of(dot.attributes)
    left, right = (operand.array.dims for operand in dot.operands)
    batch = tuple(left[axis] for axis in dims.lhs_batch)
    left_free = dims.lhs_free(len(left))
    right_free = dims.rhs_free(len(right))
    m = prod(left[axis] for axis in left_free)
    n = prod(right[axis] for axis in right_free)
    k = prod(left[axis] for axis in dims.lhs_contracting)
    whole = (prod(batch),) if batch else ()
    kind = dot.array.dtype
    first, second = (operand.array.dtype for operand in dot.operands)
    return (
        _laid([*dims.lhs_batch, *left_free, *dims.lhs_contracting], (*whole, m, k), first, kind),
        _laid([*dims.rhs_batch, *dims.rhs_contracting, *right_free], (*whole, k, n), second, kind),
        lambda array: array.reshape((*whole, m, n)),
    )


def _laid(
    order: list[int], shape: tuple[int, ...], kind: DType, wanted: DType
) -> Callable[[Array], Array]:
    def lay(array: Array) -> Array:
        return array.transpose(order).reshape(shape).astype(wanted.numpy, copy=False)

    return lay


def _blas_problem(dot: Instruction) -> str:
    """Why BLAS does not compute a product from its operands as they are; empty where it does."""
    if len(dot.operands) != 2:
        return "the product has sparse operands"
    result = dot.array.dtype
    if result.name not in _BLAS_TYPES | _WIDENED_TYPES:
        return f"BLAS has no products of {result}"
    for operand in dot.operands:
        kind = operand.array.dtype
        if kind is not result and not (kind.is_narrow_float and result.name in _BLAS_TYPES):
            return f"BLAS has no products of {kind} in {result}"
    return ""
