"""The library of device functions: CUDA C in the ``.cu`` files beside this one, as data.

``Uses`` collects what a program calls; its ``source`` is the text of that and of what it needs.

A ``.cu`` file begins with a comment about its subject; then come definitions of structs and functions with
blank lines between them and none inside.  Above each stands what is known of it, its comment behind::

    //@ NAME [struct] [loops] [exchanges]: what it needs of those before it

``loops`` says that it has a loop, ``exchanges`` that the threads of a warp exchange values in it.  All of it is
legal inside a struct, too, where the emulator puts it: no namespaces, globals or full specialisations.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from hloopt.codegen.types import register_type, storage_type
from hloopt.dataclass import dataclass
from hloopt.kernel_ir.expressions import Call, Operand, as_expr
from hloopt.kernel_ir.types import BYTE, Type
from hloopt.types import DType

__all__ = ["DeviceFunction", "Uses", "is_scalar", "library", "names"]

_FILES = (
    "types",
    "memory",
    "narrow",
    "integers",
    "floats",
    "halves",
    "complex",
    "hyperbolic",
    "inverse",
    "power",
    "random",
    "matrices",
)

_CALLED: Final = frozenset({
    "acos", "acosh", "asin", "asinh", "atan2", "atanh", "cbrt", "cos", "cosh", "erf", "fmod", "fmodf", "lgamma",
    "lgammaf", "pow", "sin", "sinh", "tan", "tgamma", "tgammaf",
})  # fmt: skip
"""Functions of C that are neither an instruction of a processor nor in vector_math.h."""


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """One definition: a function, or a struct type.

    name      of the function or the struct
    source    its text, with its comment
    needs     names of the definitions it mentions, in the order of the library
    is_type   whether it is a struct
    synchronizes  whether the threads of a warp exchange values in it
    has_loop  whether it has a loop, or needs what has one
    """

    name: str
    source: str
    needs: tuple[str, ...]
    is_type: bool
    synchronizes: bool
    has_loop: bool


def names() -> frozenset[str]:
    """The names of all definitions: no kernel or variable may have one of these."""
    return frozenset(library())


def is_scalar(function: str) -> bool:
    """Whether compilers make no vectors of calls of a function, nor of what else is in their loop."""
    name = function.partition("<")[0]
    entry = library().get(name)
    return name in _CALLED if entry is None else entry.has_loop


@cache
def library() -> Mapping[str, DeviceFunction]:
    """All definitions by name; each needs only earlier ones."""
    found: dict[str, DeviceFunction] = {}
    for file in _FILES:
        text = files("hloopt.codegen.device").joinpath(f"{file}.cu").read_text("utf-8")
        _, *paragraphs = text.strip().split("\n\n")
        for paragraph in paragraphs:
            entry = _definition(paragraph, found)
            if entry.name in found:
                raise ValueError(f"{file}.cu: {entry.name} is defined twice")
            found[entry.name] = entry
    return MappingProxyType(found)


def _definition(paragraph: str, before: Mapping[str, DeviceFunction]) -> DeviceFunction:
    mark, source = paragraph.split("\n", 1)
    known, _, needed = mark.removeprefix("//@ ").partition(": ")
    name, *words = known.split()
    needs = tuple(needed.split())
    return DeviceFunction(
        name,
        source,
        needs,
        "struct" in words,
        "exchanges" in words or any(before[other].synchronizes for other in needs),
        "loops" in words or any(before[other].has_loop for other in needs),
    )


class Uses:
    """Collects names of the library while a program is written; ``source`` is what goes before it.

    ``native`` says that the program is for the host's compiler: structs are then read and written member by
    member, which it makes vectors of.
    """

    def __init__(self, *, native: bool = False) -> None:
        self.native = native
        self._names: set[str] = set()
        self._headers: dict[str, None] = {}

    def include(self, header: str) -> None:
        """Have a header of ``backends/native/include`` before the source of a native program."""
        self._headers[header] = None

    def headers(self) -> tuple[str, ...]:
        """The headers that were requested, in that order."""
        return tuple(self._headers)

    def call(self, name: str, *args: Operand, type: Type) -> Call:
        """The call ``name(args)``, which gives a value of ``type``; the name may have template arguments.

        Raises ``KeyError`` for a name that is not in the library.
        """
        self.add(name.partition("<")[0])
        return Call(name, tuple(map(as_expr, args)), type)

    def add(self, name: str) -> None:
        """Have a definition of the library in the source; raises ``KeyError`` where it has none."""
        if name not in library():
            raise KeyError(name)
        self._names.add(name)

    def type(self, dtype: DType) -> Type:
        """The register type of an element type, its struct included; raises as ``register_type``."""
        return self._added(register_type(dtype))

    def storage(self, dtype: DType) -> Type:
        """The type of what a pointer to elements points to, its struct included."""
        # A bool in memory is a mask to compilers, of which they make no vectors.
        return BYTE if self.native and dtype.is_pred else self._added(storage_type(dtype))

    def _added(self, type: Type) -> Type:
        if type.kind == "struct":
            self.add(type.name)
        return type

    def update(self, other: Uses) -> None:
        """Use what another program uses as well."""
        self._names |= other._names
        self._headers |= other._headers

    def names(self) -> tuple[str, ...]:
        """What is used, with all that it needs, in the order of the library."""
        every = library()
        needed: set[str] = set()
        rest = list(self._names)
        while rest:
            name = rest.pop()
            if name not in needed:
                needed.add(name)
                rest.extend(every[name].needs)
        return tuple(name for name in every if name in needed)

    def source(self) -> str:
        """The text of what is used and needed: struct types first, each before whatever needs it."""
        every = [library()[name] for name in self.names()]
        ordered = [entry for entry in every if entry.is_type]
        ordered += [entry for entry in every if not entry.is_type]
        return "".join(self._written(entry) + "\n\n" for entry in ordered)

    def _written(self, entry: DeviceFunction) -> str:
        """Compilers make no vectors of loops with calls, and inline little that is called several times."""
        is_vector = self.native and not (entry.has_loop or entry.is_type or "c128" in entry.name)
        if not is_vector:
            return entry.source
        return entry.source.replace("__device__ ", "__device__ __forceinline__ ")
