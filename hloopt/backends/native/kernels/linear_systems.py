"""Factors of matrices and triangular systems on the native device, in double precision as the interpreter's.

``cholesky`` and ``triangular-solve``, and of LAPACK's routines ``potrf``, ``trsm``, ``getrf``, ``geqrf``,
``orgqr`` and ``ungqr``.  Every matrix is made by one thread; right sides of a system are shared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import prod
from types import MappingProxyType
from typing import Final

from hloopt.dataclass import dataclass
from hloopt.errors import UsageError
from hloopt.interpret import plugins
from hloopt.interpret.lapack import CHECKS, call_options
from hloopt.ir import Instruction
from hloopt.kernels.families.linear_systems import System, triangular_system
from hloopt.kernels.families.loop import operands_read
from hloopt.kernels.kernel import NO, YES, Kernel, Site, Verdict
from hloopt.kernels.spec import Argument, KernelSpec, Launch, LeafPlace, ScratchBuffer, Tile
from hloopt.types import ArrayShape, array, leaves, without_layout

__all__ = ["FEW", "KERNELS", "REFLECTIONS", "Routine", "apart", "room_of", "routine_of"]

FEW: Final = 4
"""Right sides that are solved one after the other, by a triangle that stays where it lies (``kFew``)."""

REFLECTIONS: Final = 32
"""Reflections of a block (``kReflections``)."""

# Multiply-adds of a task: some 50 us.  At most so many tasks have separate scratch memory.
_TASK_WORK: Final = 1 << 17
_MOST_TASKS: Final = 16
# Right sides of a task: fewer would read the triangle for too little.
_LEAST_COLUMNS: Final = 64

_CALL: Final = re.compile(r"lapack_[sdcz](potrf|trsm|getrf|geqrf|orgqr|ungqr)_ffi")
_KINDS: Final = frozenset({"f32", "f64", "c64", "c128"})
_TRANSPOSES: Final = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
_NAMES: Final = {
    "cholesky": "cholesky",
    "potrf": "cholesky",
    "triangular-solve": "triangular-solve",
    "trsm": "triangular-solve",
    "getrf": "lu",
    "geqrf": "qr",
    "orgqr": "householder-product",
    "ungqr": "householder-product",
}


@dataclass(frozen=True, slots=True)
class Routine:
    """What is done to each matrix.

    name           behind ``native-``
    batch          how many matrices there are
    rows, columns  of the matrix that is read or made; of a system those of its right sides
    lower          which triangle of a Cholesky factor is meant
    keeps          whether the other one stays as it was, as LAPACK leaves it
    system         of a ``triangular-solve``
    """

    name: str
    batch: int
    rows: int
    columns: int
    lower: bool = False
    keeps: bool = False
    system: System | None = None

    @property
    def steps(self) -> int:
        """The shorter side."""
        return min(self.rows, self.columns)

    @property
    def work(self) -> int:
        """Multiply-adds for one matrix, about."""
        if self.name == "cholesky":
            return self.rows**3 // 6 + self.rows**2
        if self.name == "triangular-solve":
            return self.rows**2 // 2 * self.columns
        return self.rows * self.columns * self.steps


def apart(columns: int) -> int:
    """How far rows of a matrix that is worked on are apart: not by a power of two, as a column would then lie
    in a few lines of a cache.
    """
    return columns + 8 if columns >= 64 and columns % 32 == 0 else columns


def routine_of(instruction: Instruction) -> Routine | str:
    """The routine that an instruction calls, or why these kernels do not compute it."""
    routine_name = instruction.opcode
    if routine_name == "custom-call":
        target = instruction.custom_call_target
        found = _CALL.fullmatch(target)
        if found is None:
            return f"{instruction.name} calls {target}"
        if plugins.named(target) is not None:
            return f"{target} is the user's"
        if problem := CHECKS[target](instruction):
            return problem
        routine_name = found[1]
    elif routine_name not in _NAMES:
        return f"{instruction.name} is a {routine_name}"
    parts = [*(one.shape for one in instruction.operands), *leaves(instruction.shape)]
    shapes = [part for part in parts if isinstance(part, ArrayShape)]
    if len(shapes) < len(parts) or any(shape.is_dynamic for shape in shapes):
        return f"{instruction.name} has a bounded dynamic dimension"
    if not all(shape.elements or shape.dtype.name == "s32" for shape in shapes):
        return f"{instruction.name} has no elements"
    first = shapes[0]
    if first.rank < 2 or first.dtype.name not in _KINDS:
        return f"{instruction.name} is of {first}"
    results = _results(routine_name, shapes[: len(instruction.operands)])
    given = shapes[len(instruction.operands) :]
    if list(map(without_layout, given)) != list(map(without_layout, results)):
        return f"{instruction.name} gives {instruction.shape}, which does not fit its operands"
    return _routine(routine_name, instruction)


def _results(routine_name: str, operands: list[ArrayShape]) -> list[ArrayShape]:
    """What each routine gives; nothing where operands do not fit each other."""
    first = operands[0]
    *batch, rows, columns = first.dims
    info = array("s32", tuple(batch))
    steps = min(rows, columns)
    if routine_name in ("cholesky", "potrf"):
        made = [first, info] if routine_name == "potrf" else [first]
        return made if rows == columns else []
    if routine_name in ("trsm", "triangular-solve"):
        second = operands[1]
        fits = rows == columns and second.dims[:-2] == tuple(batch) and second.dtype is first.dtype
        return [second] if fits and rows in second.dims[-2:] else []
    if routine_name == "getrf":
        return [first, array("s32", (*batch, steps)), info]
    taus = array(first.dtype.name, (*batch, steps))
    if routine_name == "geqrf":
        return [first, taus]
    second = operands[1]
    fits = columns <= rows and second.dtype is first.dtype and second.dims[:-1] == tuple(batch)
    return [first] if fits and second.rank and second.dims[-1] <= columns else []


def _routine(routine_name: str, instruction: Instruction) -> Routine | str:
    operand = instruction.operands[0].array
    batch, (rows, columns) = prod(operand.dims[:-2]), operand.dims[-2:]
    name = _NAMES[routine_name]
    if name == "triangular-solve":
        options = instruction.attributes if routine_name == name else _solve_options(instruction)
        if "transpose_a" not in options:
            return f"{instruction.name} has no transpose_a"
        system = triangular_system(options, instruction.operands[1].array.dims)
        if system.size != rows:
            return f"{instruction.name} has right sides of {system.size} elements, not {rows}"
        return Routine(name, batch, rows, system.columns, system=system)
    if name == "cholesky":
        lower = bool(instruction.attributes.get("lower", False))
        if routine_name == "potrf":
            lower = chr(call_options(instruction)["uplo"]) == "L"
        return Routine(name, batch, rows, columns, lower, routine_name == "potrf")
    return Routine(name, batch, rows, columns)


def _solve_options(instruction: Instruction) -> Mapping[str, object]:
    letters = {name: chr(code) for name, code in call_options(instruction).items()}
    return {
        "left_side": letters["side"] == "L",
        "lower": letters["uplo"] == "L",
        "unit_diagonal": letters["diag"] == "U",
        "transpose_a": _TRANSPOSES[letters["trans_x"]],
    }


def room_of(routine: Routine, columns: int) -> int:
    """Elements in double precision that a task needs, with so many right sides of a system."""
    rows, steps = routine.rows, routine.steps
    whole = rows * apart(routine.columns)
    if routine.name == "triangular-solve":
        return rows if columns <= FEW else rows * apart(rows) + rows * columns
    if routine.name in ("cholesky", "lu"):
        return whole
    block = REFLECTIONS * (rows + 2 * routine.columns + REFLECTIONS)
    return whole + steps + routine.columns + block


def _fits(name: str) -> Callable[[Site], Verdict]:
    def fits(site: Site) -> Verdict:
        if site.region.is_fusion:
            return NO(f"{site.region.instruction.name} is a fusion")
        routine = routine_of(site.region.instruction)
        if isinstance(routine, str):
            return NO(routine)
        if routine.name != name:
            return NO(f"{site.region.instruction.name} is a {routine.name}")
        if len(site.region.read) < len(set(site.region.instruction.operands)):
            return NO("an operand is a constant of one element")
        return YES(f"{routine.batch} of {routine.rows} x {routine.columns}")

    return fits


def _known(site: Site) -> Routine:
    routine = routine_of(site.region.instruction)
    assert isinstance(routine, Routine)
    return routine


def _wanted(_: Site) -> Verdict:
    return YES("a call of NumPy takes longer")


def _tile(site: Site) -> Tile:
    routine = _known(site)
    fewest = max(-(-routine.batch // _MOST_TASKS), _TASK_WORK // max(1, routine.work))
    tile = {"matrices": max(1, min(routine.batch, fewest))}
    if routine.name == "triangular-solve":
        tile["columns"] = routine.columns
        if routine.batch < 4 and routine.work > 2 * _TASK_WORK:
            parts = min(_MOST_TASKS // routine.batch, routine.columns // _LEAST_COLUMNS)
            tile["columns"] = -(-routine.columns // max(1, parts))
    return MappingProxyType(tile)


def _spec(site: Site, tile: Tile) -> KernelSpec:
    routine = _known(site)
    name, matrices = f"native-{routine.name}", tile["matrices"]
    columns = tile.get("columns", routine.columns)
    if matrices > routine.batch:
        raise UsageError(f"{name}: matrices={matrices}; there are {routine.batch}")
    if columns > routine.columns:
        raise UsageError(f"{name}: columns={columns}; there are {routine.columns}")
    parts = -(-routine.columns // columns) if routine.name == "triangular-solve" else 1
    if parts > 1 and matrices > 1:
        raise UsageError(f"{name}: columns={columns} shares what matrices={matrices} joins")
    tasks = -(-routine.batch // matrices) * parts
    kind = "c128" if site.region.operands[0].dtype.is_complex else "f64"
    arguments = (
        *operands_read(site.region),
        Argument(LeafPlace("scratch", 0), "out", partial=True),
        *(
            Argument(LeafPlace("result", number), "out")
            for number, result in enumerate(site.region.results)
            if result.shape.elements
        ),
    )
    launch = Launch.linear("", tasks, 1, arguments)
    scratch = ScratchBuffer(kind, tasks * room_of(routine, columns))
    return KernelSpec(name, tile, (launch,), (scratch,))


_SUMMARIES: Final = {
    "cholesky": "factors of matrices by blocks, in double precision",
    "triangular-solve": "triangular systems by halves, in double precision",
    "lu": "LAPACK's getrf by halves of the columns, in double precision",
    "qr": "LAPACK's geqrf by blocks of reflections, in double precision",
    "householder-product": "LAPACK's orgqr and ungqr by blocks of reflections, in double precision",
}

KERNELS = tuple(
    Kernel(
        f"native-{name}",
        summary,
        _fits(name),
        _wanted,
        _tile,
        _spec,
        device="native",
    )
    for name, summary in _SUMMARIES.items()
)
