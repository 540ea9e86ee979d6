"""A kernel that instructions may be given, and its interface.

A family is one file in ``kernels/families`` with a ``Kernel`` for each variant, and one file of the
same name in ``codegen/families`` that writes the CUDA C.  The first decides everything; the
second only builds the code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import MappingProxyType
from typing import Generic, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from hloopt.analysis.elementwise import first_not_elemental
from hloopt.analysis.in_place import may_overwrite
from hloopt.analysis.region import Region
from hloopt.dataclass import dataclass
from hloopt.errors import UnsupportedError
from hloopt.ir import Instruction
from hloopt.kernels.limits import Limits
from hloopt.kernels.spec import KernelSpec, Tile
from hloopt.targets import Target
from hloopt.types import ArrayShape

__all__ = [
    "NO",
    "YES",
    "ChooseKernel",
    "Disproved",
    "Efficiency",
    "Kernel",
    "KernelDevice",
    "Recognizer",
    "Site",
    "Verdict",
    "always",
    "elemental_problem",
    "no_tile",
    "overwritable",
    "unsupported",
]

KernelDevice: TypeAlias = Literal["gpu", "native"]

_Form = TypeVar("_Form")


class Recognizer(Generic[_Form]):
    """Recognizes what kernels are laid out for: a region has that form, or a reason why not.

    ``find`` returns either and analyses a region once; a call returns the form.
    """

    def __init__(self, look: Callable[[Region], _Form | str]) -> None:
        self._look = look
        self._known: WeakKeyDictionary[Region, _Form | str] = WeakKeyDictionary()

    def find(self, region: Region) -> _Form | str:
        """The form of a region, or why it has none."""
        found = self._known.get(region)
        if found is None:
            found = self._known[region] = self._look(region)
        return found

    def problem(self, region: Region) -> str:
        """Why a region has no such form; empty where it has."""
        found = self.find(region)
        return found if isinstance(found, str) else ""

    def __call__(self, region: Region) -> _Form:
        """The form.  Raises ``ValueError`` where there is a problem."""
        found = self.find(region)
        if isinstance(found, str):
            raise ValueError(f"{region.instruction.name}: {found}")  # noqa: TRY004 - of a value
        return found


@dataclass(frozen=True, slots=True)
class Site:
    """Where a kernel would run: what it computes, on which device, within which limits."""

    region: Region
    target: Target
    limits: Limits


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer with its reason in words: the threshold and the value that met it.

    ``option`` is the field of ``Limits`` that would change it, empty where none would.
    """

    ok: bool
    reason: str = ""
    option: str = ""

    def __bool__(self) -> bool:
        return self.ok


@dataclass(frozen=True, slots=True)
class Disproved(Verdict):
    """A kernel of the user's matches an instruction, and was found not to compute what it says."""


def YES(reason: str = "", option: str = "") -> Verdict:  # noqa: N802 - reads as a constant
    """It fits, or is wanted, because of ``reason``."""
    return Verdict(True, reason, option)


def NO(reason: str, option: str = "") -> Verdict:  # noqa: N802
    """It does not, because of ``reason``."""
    return Verdict(False, reason, option)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """How near a kernel comes to what the target can do.

    memory   share of each transaction that is used, of the bandwidth
    compute  times the rate of f32 multiply-adds (more than 1 where matrix units work)
    repeats  how often each byte that is read is read in all; from the second time on out of a cache
    reason   in words
    """

    memory: float = 1.0
    compute: float = 1.0
    repeats: float = 1.0
    reason: str = ""


@dataclass(frozen=True)
class Kernel:
    """One way to run some instructions.

    name      as ``--kernel`` and ``backend_config`` have it
    summary   one line for ``hloopt kernels --list``
    fits      whether it can run the site at all, with the default tile; a refusal names its limit
    wanted    whether XLA's rule, or a measured one, says that it should (called only where it fits)
    tile      the default tile: every parameter a user may set, with its value
    spec      launches and buffers for a tile; raises ``UsageError`` for a tile that cannot be
    device    what it runs on
    source    CUDA C for a site and its spec, given the name its functions begin with; None where the
              family in ``codegen/families`` writes it
    efficiency  for estimates; None for what ``kernels/estimate.py`` says of kernels of that name or device
    owner     where it comes from: empty for hloopt's own, else the file or distribution
    """

    name: str
    summary: str
    fits: Callable[[Site], Verdict]
    wanted: Callable[[Site], Verdict]
    tile: Callable[[Site], Tile]
    spec: Callable[[Site, Tile], KernelSpec]
    device: KernelDevice = "gpu"
    source: Callable[[Site, KernelSpec, str], str] | None = None
    efficiency: Callable[[Site, KernelSpec], Efficiency] | None = None
    owner: str = ""


def always(reason: str) -> Callable[[Site], Verdict]:
    """The verdict of a kernel that is wanted wherever it fits."""
    verdict = YES(reason)
    return lambda _: verdict


def no_tile(_: Site) -> Tile:
    """The tile of a kernel without parameters."""
    return MappingProxyType({})


ChooseKernel: TypeAlias = Callable[[Instruction], tuple[Kernel, KernelSpec]]
"""The kernel of an instruction and how it runs; raises ``UnsupportedError`` where there is none."""


def elemental_problem(
    region: Region, heroes: Collection[Instruction] = (), *, loops: bool = False
) -> str:
    """Why a region cannot be computed element by element: the first op that cannot; empty if it can.

    ``heroes`` are left out: the kernel computes them in its own way.  With ``loops`` it runs every ``while``
    and scatter, too.
    """
    found = first_not_elemental((one for one in region.body if one not in heroes), loops=loops)
    if found is None:
        return ""
    if found.shape.is_dynamic:
        return f"{found.name} has a bounded dynamic dimension"
    return f"{found.name} is a {found.opcode}, which no thread computes alone"


def overwritable(region: Region) -> tuple[tuple[int, int], ...]:
    """``KernelSpec.overwrites`` of a kernel in which each thread reads all it needs before it writes.

    None for several results: what one result's store changed might be loaded again for the next, since
    pointers are ``__restrict__``.  Of one result, each store waits for all loads it is computed from.
    """
    if len(region.results) != 1 or not isinstance(region.instruction.shape, ArrayShape):
        return ()
    read = set(region.read)
    found: list[tuple[int, int]] = []
    leaf = 0
    for number, operand in enumerate(region.instruction.operands):
        if isinstance(operand.shape, ArrayShape):
            if leaf in read and may_overwrite(region.instruction, number):
                found.append((leaf, 0))
            leaf += 1
        else:
            leaf += len(region.arrays_of(operand))
    return tuple(found)


def unsupported(instruction: Instruction, problem: str) -> UnsupportedError:
    """An error to raise: ``file:line:col: error: name: opcode problem``, with the line and a caret."""
    computation, problem = instruction.computation, f"{instruction.opcode} {problem}"
    module = computation.module if computation is not None else None
    if module is None:
        return UnsupportedError(f"{instruction.name}: {problem}")
    return module.unsupported(instruction, problem)
