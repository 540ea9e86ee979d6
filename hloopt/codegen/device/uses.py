"""What a program uses of the device library."""

from __future__ import annotations

from hloopt.codegen.device.library import library
from hloopt.codegen.types import register_type, storage_type
from hloopt.kernel_ir.expressions import Call, Operand, as_expr
from hloopt.kernel_ir.types import BYTE, Type
from hloopt.types import DType

__all__ = ["Uses"]


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
        return "".join(entry.source + "\n\n" for entry in ordered)
