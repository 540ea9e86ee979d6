"""What one op computes, reads and writes by itself: the rules of XLA's GPU cost analysis.

An op without a rule here reads each operand once, writes its result once and computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from math import ceil, log2, prod
from struct import Struct
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from hloopt.analysis.cost import dot_flops
from hloopt.analysis.elementwise import is_elementwise
from hloopt.analysis.layout import same_layout, transpose_is_bitcast
from hloopt.analysis.library_calls import convolution_flops, library_flops, result_bytes
from hloopt.dataclass import dataclass
from hloopt.interpret.regions import combiner
from hloopt.ir import Computation, Instruction
from hloopt.ops.traits import (
    ALIASES,
    CONSTRAINTS,
    CONTROL_FLOW,
    DEVICE_NUMBERS,
    INDEXING,
    PERMUTING,
    PLUMBING,
    REARRANGING,
    op_table,
)
from hloopt.types import ArrayShape, elements_of, leaves

__all__ = ["OpCounting", "OpUsage", "OpUsages", "narrow"]


@dataclass(frozen=True)
class OpCounting:
    """How ops are counted; XLA's figures of 2026, without the cycles of a device.

    cycles                clock cycles of an element by opcode and element type; ops whose result is computed
                          element by element and that are not in it take ``default_cycles``
    concatenate           flops of an element of a concatenate
    uneven_concatenate    the same where, along a dimension other than the first, the first operand does not
                          fill whole warps
    repeats_init          whether a reduce reads its initial value once for each result
    bitcasts_keep_indices whether a bitcast to the same dimensions reads what its user reads
    scalars               whether elementwise ops of one element compute anything: a loop does them once before
                          it begins, however many elements use them
    running               flops of an element of a running reduction with windows over ``longest_window``, along
                          the last dimension and along others, where one pass makes all of them; None where each
                          is folded from its start
    """

    cycles: Mapping[tuple[str, str], int] = field(
        default_factory=lambda: MappingProxyType({}), hash=False
    )
    default_cycles: int = 3
    concatenate: int = 6
    uneven_concatenate: int = 400
    repeats_init: bool = True
    bitcasts_keep_indices: bool = True
    scalars: bool = True
    running: tuple[int, int] | None = None
    longest_window: int = 64


class OpUsage(NamedTuple):
    """One op by itself: flops, bytes written, bytes read of each operand and its utilisation.

    ``keeps_indices``: it reads its operands under the indices under which it is computed.
    """

    flops: int
    written: int
    read: tuple[int, ...]
    used: tuple[float, ...]
    keeps_indices: bool = False


_F32: Final = Struct("f")
_pack, _unpack = _F32.pack, _F32.unpack
_WARP: Final = 32
_KEEP_INDICES: Final = frozenset({"copy", "get-tuple-element", "tuple"})
_Rule: TypeAlias = Callable[["OpUsages", Instruction], OpUsage]


class OpUsages:
    """Usages of ops by themselves, cached until they are invalidated."""

    def __init__(self, counting: OpCounting | None = None) -> None:
        self.counting = counting or OpCounting()
        self._ops: dict[Instruction, OpUsage] = {}
        self._regions: dict[Computation, int] = {}

    def op(self, instruction: Instruction) -> OpUsage:
        """The usage of one instruction, whatever it is part of."""
        known = self._ops.get(instruction)
        if known is None:
            known = self._ops[instruction] = self._count(instruction)
        return known

    def region_flops(self, region: Computation) -> int:
        """The flops of a computation that is applied to single elements."""
        known = self._regions.get(region)
        if known is None:
            known = sum(self.op(instruction).flops for instruction in region)
            self._regions[region] = known
        return known

    def _count(self, instruction: Instruction) -> OpUsage:
        opcode = instruction.opcode
        usage = _RULES.get(opcode, _elementwise)(self, instruction)
        if opcode in _KEEP_INDICES or (opcode == "bitcast" and _keeps_dims(self, instruction)):
            return usage._replace(keeps_indices=True)
        return usage


def _elementwise(analysis: OpUsages, instruction: Instruction) -> OpUsage:
    shape = instruction.shape
    if not is_elementwise(instruction) or not isinstance(shape, ArrayShape):
        return _plain(instruction)
    counting = analysis.counting
    cycles = counting.cycles.get((instruction.opcode, shape.dtype.name))
    each = counting.default_cycles if cycles is None else cycles
    if not (counting.scalars or shape.elements > 1):
        each = 0
    return _plain(instruction, each * shape.elements)._replace(keeps_indices=True)


def _keeps_dims(analysis: OpUsages, bitcast: Instruction) -> bool:
    """Whether a bitcast changes the element type at most."""
    source, shape = bitcast.operands[0].shape, bitcast.shape
    return (
        analysis.counting.bitcasts_keep_indices
        and isinstance(source, ArrayShape)
        and isinstance(shape, ArrayShape)
        and source.dims == shape.dims
        and same_layout(source, shape)
    )


def narrow(value: float) -> float:
    """A number rounded to f32, in which XLA keeps utilisations."""
    rounded: float = _unpack(_pack(value))[0]
    return rounded


def _plain(instruction: Instruction, flops: int = 0) -> OpUsage:
    operands = instruction.operands
    read = tuple([operand.shape.byte_size for operand in operands])
    return OpUsage(flops, instruction.shape.byte_size, read, (1.0,) * len(operands))


def _moves(_: OpUsages, instruction: Instruction) -> OpUsage:
    return _plain(instruction)


def _nothing(_: OpUsages, instruction: Instruction) -> OpUsage:
    count = len(instruction.operands)
    return OpUsage(0, 0, (0,) * count, (1.0,) * count)


def _transpose(analysis: OpUsages, instruction: Instruction) -> OpUsage:
    if transpose_is_bitcast(instruction):
        return _nothing(analysis, instruction)
    return _plain(instruction)


def _concatenate(analysis: OpUsages, instruction: Instruction) -> OpUsage:
    (dimension,) = instruction.dimensions
    counting = analysis.counting
    even = dimension == 0 or instruction.operands[0].array.dims[dimension] % _WARP == 0
    flops = counting.concatenate if even else counting.uneven_concatenate
    return _plain(instruction, flops * elements_of(instruction.shape))


def _share(part: int, whole: int) -> float:
    return narrow(part / whole) if whole else 0.0


def _first_operand(instruction: Instruction, read: int, used: float, flops: int = 0) -> OpUsage:
    """All as usual but what is read of the first operand."""
    plain = _plain(instruction, flops)
    return plain._replace(read=(read, *plain.read[1:]), used=(used, *plain.used[1:]))


def _part(_: OpUsages, instruction: Instruction) -> OpUsage:
    """Slices, gathers and broadcasts read as much of the first operand as the result has."""
    shape, source = instruction.shape, instruction.operands[0].shape
    used = _share(elements_of(shape), elements_of(source))
    return _first_operand(instruction, shape.byte_size, used)


def _update(_: OpUsages, instruction: Instruction) -> OpUsage:
    """In place: what is under the update is not read, and only the update is written."""
    whole = elements_of(instruction.shape)
    update = instruction.operands[1].shape
    used = _share(whole - elements_of(update), whole)
    return _first_operand(instruction, 0, used)._replace(written=update.byte_size)


def _scatter(analysis: OpUsages, instruction: Instruction) -> OpUsage:
    count = (len(instruction.operands) - 1) // 2
    updates = instruction.operands[count + 1 :]
    sizes = tuple(update.shape.byte_size for update in updates)
    indices = instruction.operands[count].shape.byte_size
    combiner = analysis.region_flops(instruction.to_apply)
    flops = combiner * elements_of(updates[0].shape)
    used = (1.0,) * len(instruction.operands)
    return OpUsage(flops, sum(sizes), (*sizes, indices, *sizes), used)


def _reduce(analysis: OpUsages, instruction: Instruction) -> OpUsage:
    """Initial values are read once for each result."""
    count = len(instruction.operands) // 2
    result = elements_of(next(leaves(instruction.shape)))
    source = elements_of(instruction.operands[0].shape)
    flops = analysis.region_flops(instruction.to_apply) * (source - result)
    plain = _plain(instruction, flops)
    if not analysis.counting.repeats_init:
        return plain
    inits = tuple(size * result for size in plain.read[count:])
    used = (*plain.used[:count], *((narrow(result),) * count))
    return plain._replace(read=(*plain.read[:count], *inits), used=used)


def _reduce_window(analysis: OpUsages, instruction: Instruction) -> OpUsage:
    window = instruction.window.size
    result = elements_of(next(leaves(instruction.shape)))
    source = instruction.operands[0].array
    running = analysis.counting.running
    if running is not None and window > analysis.counting.longest_window:
        found = instruction.window.running(source.dims)
        if found is not None and combiner(instruction.to_apply) is not None:
            each = running[found.axis != source.rank - 1]
            return _first_operand(instruction, source.byte_size, 1.0, each * result)
    region = analysis.region_flops(instruction.to_apply)
    spread = _spread_dimension(instruction)
    count = (window - 1) * result
    if spread:
        window = spread
        count = result // window + window - 1
    read = result * window * source.dtype.bytes
    used = _share(result * window, source.elements)
    return _first_operand(instruction, read, used, region * count)


def _spread_dimension(instruction: Instruction) -> int:
    """The size of the dimension of which every result is the whole reduction; 0 where it is something else.

    A window of ``2 n - 1`` elements with ``n - 1`` of padding on both sides of ``n`` elements.
    """
    dims = instruction.window.dims
    wide = [dimension for dimension in dims if dimension.size != 1]
    padded = [dimension for dimension in dims if dimension.pad_low or dimension.pad_high]
    if len(wide) != 1 or wide != padded or not isinstance(instruction.shape, ArrayShape):
        return 0
    (found,) = wide
    size = instruction.shape.dims[dims.index(found)]
    same = found.pad_low == found.pad_high == size - 1
    return size if same and found.size == 2 * found.pad_low + 1 else 0


def _select_and_scatter(analysis: OpUsages, instruction: Instruction) -> OpUsage:
    source = elements_of(instruction.operands[1].shape)
    select = analysis.region_flops(instruction.attributes["select"])
    scatter = analysis.region_flops(instruction.attributes["scatter"])
    compares = source * (instruction.window.size - 1)
    return _plain(instruction, select * compares + scatter * source)


def _map(analysis: OpUsages, instruction: Instruction) -> OpUsage:
    region = analysis.region_flops(instruction.to_apply)
    return _plain(instruction, region * elements_of(instruction.shape))


def _dot(_: OpUsages, instruction: Instruction) -> OpUsage:
    return _plain(instruction, dot_flops(instruction))


def _convolution(_: OpUsages, instruction: Instruction) -> OpUsage:
    lhs, rhs = (operand.array for operand in instruction.operands[:2])
    return _plain(instruction, convolution_flops(instruction, lhs, rhs, instruction.array))


def _sort(_: OpUsages, instruction: Instruction) -> OpUsage:
    count = elements_of(instruction.operands[0].shape)
    return _plain(instruction, count * ceil(log2(count)) if count > 1 else 0)


def _fft(_: OpUsages, instruction: Instruction) -> OpUsage:
    """8 flops (a complex multiply-add) for each element and doubling of each transformed length."""
    levels = sum(ceil(log2(length)) for length in instruction.attributes["fft_length"] if length)
    return _plain(instruction, 8 * levels * elements_of(instruction.shape))


def _cholesky(_: OpUsages, instruction: Instruction) -> OpUsage:
    dims = instruction.operands[0].array.dims
    return _plain(instruction, prod(dims) * dims[-1] // 3)


def _triangular_solve(_: OpUsages, instruction: Instruction) -> OpUsage:
    size = instruction.operands[0].array.dims[-1]
    return _plain(instruction, elements_of(instruction.shape) * size)


def _custom_call(_: OpUsages, instruction: Instruction) -> OpUsage:
    plain = _plain(instruction, library_flops(instruction))
    return plain._replace(written=result_bytes(instruction))


_RULES: Final[Mapping[str, _Rule]] = op_table({
    **dict.fromkeys(PLUMBING | ALIASES | CONSTRAINTS | DEVICE_NUMBERS | CONTROL_FLOW, _nothing),
    **dict.fromkeys(("async-done", "async-update"), _nothing),
    **dict.fromkeys(PERMUTING - {"bitcast", "transpose"} | {"iota", "pad"}, _moves),
    **dict.fromkeys(REARRANGING - PERMUTING | INDEXING - {"dynamic-update-slice"}, _part),
    "cholesky": _cholesky,
    "concatenate": _concatenate,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "dot": _dot,
    "dynamic-update-slice": _update,
    "fft": _fft,
    "map": _map,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "sort": _sort,
    "transpose": _transpose,
    "triangular-solve": _triangular_solve,
}, otherwise="elementwise, or its operands once and flops for its result")  # fmt: skip
