"""Cholesky factors and triangular systems, a block a matrix, computed in double precision as the interpreter
does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret.library_calls import config
from hloopt.ir import Instruction
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Efficiency, Kernel, Site, Verdict, always
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace, ScratchBuffer, Tile

__all__ = ["KERNELS", "System", "in_shared", "system_of", "triangular_system", "wide_bytes"]

_CHOLESKY, _SOLVE = "cholesky", "triangular-solve"
_CALL = "__cublas$triangularSolve"


@dataclass(frozen=True, slots=True)
class System:
    """A triangular system ``op(a) x = b``, or ``x op(a) = b``, put as one of a lower triangle.

    size        rows of the triangle
    columns     independent right sides of a matrix
    turns       whether ``a`` is read with its dimensions changed for each other
    conjugates  whether its imaginary parts change sign
    backwards   whether rows are solved from the last one on
    is_left     whether ``b`` has a right side in a column, not in a row
    is_unit     whether the diagonal is taken for ones
    """

    size: int
    columns: int
    turns: bool
    conjugates: bool
    backwards: bool
    is_left: bool
    is_unit: bool


def system_of(instruction: Instruction) -> System:
    """The system of a ``triangular-solve``, or of cuBLAS's call."""
    options: Mapping[str, object] = instruction.attributes
    if instruction.opcode == "custom-call":
        options = config(instruction, "triangular_solve_options")
    return triangular_system(options, instruction.operands[1].array.dims)


def triangular_system(options: Mapping[str, object], dims: Sequence[int]) -> System:
    """The system of a ``b`` of some dimensions, with the attributes of a ``triangular-solve``."""
    is_left, lower = bool(options.get("left_side", False)), bool(options.get("lower", False))
    op = str(options["transpose_a"])
    # Transposing a, and solving from the right, each make a lower triangle an upper one.
    turns = (op != "NO_TRANSPOSE") != (not is_left)
    return System(
        dims[-2] if is_left else dims[-1],
        dims[-1] if is_left else dims[-2],
        turns,
        op == "ADJOINT",
        lower == turns,
        is_left,
        bool(options.get("unit_diagonal", False)),
    )


def wide_bytes(instruction: Instruction) -> int:
    """Bytes of a number in double precision."""
    return 16 if instruction.operands[0].array.dtype.is_complex else 8


def in_shared(site_shared: int, instruction: Instruction) -> bool:
    """Whether shared memory of so many bytes holds a matrix that is factored."""
    return instruction.array.dims[-1] ** 2 * wide_bytes(instruction) <= site_shared


def _checked(site: Site, size: int) -> Verdict:
    instruction, most = site.region.instruction, site.limits.linear_system_size
    if any(shape.is_dynamic for shape in site.region.operands):
        return NO(f"{instruction.name} has a bounded dynamic dimension")
    if not all(shape.elements for shape in site.region.operands):
        return NO(f"{instruction.name} has no elements")
    if any(result.shape.dtype.bits < 8 for result in site.region.results):
        return NO(f"elements of {instruction.name} share bytes with their neighbours")
    if size > most:
        return NO(f"{size} rows, a block has at most {most}", "linear_system_size")
    return YES(f"{size} rows, at most {most}", "linear_system_size")


def _fits_cholesky(site: Site) -> Verdict:
    instruction = site.region.instruction
    if instruction.opcode != "cholesky":
        return NO(f"{instruction.name} is not a cholesky")
    return _checked(site, instruction.array.dims[-1])


def _fits_solve(site: Site) -> Verdict:
    instruction = site.region.instruction
    is_call = instruction.opcode == "custom-call" and instruction.custom_call_target == _CALL
    if instruction.opcode != "triangular-solve" and not is_call:
        return NO(f"{instruction.name} is not a triangular-solve")
    if is_call:
        from hloopt.interpret.cublas import CHECKS

        problem = CHECKS[_CALL](instruction)
        if problem is not None:
            return NO(problem)
    elif "transpose_a" not in instruction.attributes:
        return NO(f"{instruction.name} has no transpose_a")
    a, b = (operand.array for operand in instruction.operands)
    system = system_of(instruction)
    if a.dims != (*b.dims[:-2], system.size, system.size) or a.dtype is not b.dtype:
        return NO(f"{instruction.name} solves {b} by {a}, which do not fit")
    if site.region.results[0].shape.dims != b.dims:
        return NO(f"{instruction.name} gives {site.region.results[0].shape}, not {b}")
    return _checked(site, system.size)


def _cholesky_tile(site: Site) -> Tile:
    size = site.region.instruction.array.dims[-1]
    return MappingProxyType({"threads": 32 if size <= 16 else 256})


def _cholesky_spec(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    instruction, threads = site.region.instruction, tile["threads"]
    _check_threads(site, _CHOLESKY, threads)
    batch = prod(instruction.array.dims[:-2])
    arguments = [*operands_read(site.region)]
    scratch: tuple[ScratchBuffer, ...] = ()
    if not in_shared(site.target.shared_per_block, instruction):
        kind = "c128" if instruction.array.dtype.is_complex else "f64"
        scratch = (ScratchBuffer(kind, instruction.array.elements),)
        arguments.append(Argument(LeafPlace("scratch", 0), "out", partial=True))
    arguments.append(Argument(LeafPlace("result", 0), "out"))
    launch = Launch.linear("", batch, threads, tuple(arguments))
    return KernelSpec(_CHOLESKY, tile, (launch,), scratch)


def _check_threads(site: Site, kernel: str, threads: int) -> None:
    most = site.target.threads_per_block
    if threads % 16 or not 16 <= threads <= most:
        raise UsageError(f"{kernel}: threads={threads}; a block has a multiple of 16, 16 to {most}")


def _solve_tile(site: Site) -> Tile:
    system = system_of(site.region.instruction)
    room = site.target.shared_per_block // wide_bytes(site.region.instruction)
    columns = max(1, min(system.columns, room // system.size, 32))
    return MappingProxyType({"threads": 128 if system.size <= 32 else 256, "columns": columns})


def _solve_spec(site: Site, tile: Mapping[str, int]) -> KernelSpec:
    instruction, threads, columns = site.region.instruction, tile["threads"], tile["columns"]
    _check_threads(site, _SOLVE, threads)
    system = system_of(instruction)
    room = site.target.shared_per_block // wide_bytes(instruction)
    if not 1 <= columns <= room // system.size:
        most = room // system.size
        raise UsageError(f"{_SOLVE}: columns={columns}; shared memory holds 1 to {most}")
    batch = prod(instruction.operands[1].array.dims[:-2])
    blocks = batch * -(-system.columns // columns)
    arguments = (*operands_read(site.region), Argument(LeafPlace("result", 0), "out"))
    return KernelSpec(_SOLVE, tile, (Launch.linear("", blocks, threads, arguments),))


def _efficiency(_: Site, __: KernelSpec) -> Efficiency:
    return Efficiency(compute=0.02, reason="one row after the other, in double precision")


KERNELS = (
    Kernel(
        _CHOLESKY,
        "a matrix to a block, column by column",
        _fits_cholesky,
        always("each row needs the ones before"),
        _cholesky_tile,
        _cholesky_spec,
        efficiency=_efficiency,
    ),
    Kernel(
        _SOLVE,
        "a few right sides to a block, row by row",
        _fits_solve,
        always("each row needs the ones before"),
        _solve_tile,
        _solve_spec,
        efficiency=_efficiency,
    ),
)
