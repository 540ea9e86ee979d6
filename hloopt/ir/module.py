"""A module: computations, the entry, and what the header says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hloopt.display import Displayed
from hloopt.errors import UnsupportedError
from hloopt.ir.computation import Computation
from hloopt.ir.instruction import Instruction
from hloopt.source import Source
from hloopt.spelling import missing
from hloopt.types import Array, Metadata

__all__ = ["Module", "StackTables"]


class StackTables:
    """FileNames, FunctionNames, FileLocations and StackFrames: ids to rows, as in the text.

    ``locations`` and ``frames`` hold the sub-attributes as integers (``file_name_id``, ``line`` ...;
    ``file_location_id``, ``parent_frame_id``).
    """

    __slots__ = ("file_names", "frames", "function_names", "locations")

    def __init__(self) -> None:
        self.file_names: dict[int, str] = {}
        self.function_names: dict[int, str] = {}
        self.locations: dict[int, dict[str, int]] = {}
        self.frames: dict[int, dict[str, int]] = {}

    def frame(self, frame_id: int) -> tuple[str, int, str] | None:
        """File, line and function of a stack frame, ``frame_id`` its identifier; None without such a row."""
        location = self._location(frame_id)
        if location is None:
            return None
        return (
            self.file_names.get(location.get("file_name_id", 0), ""),
            location.get("line", 0),
            self.function_names.get(location.get("function_name_id", 0), ""),
        )

    def column(self, frame_id: int) -> int:
        """The column of a stack frame, counted from 1, ``frame_id`` its identifier; 0 without one."""
        return (self._location(frame_id) or {}).get("column", 0)

    def _location(self, frame_id: int) -> Mapping[str, int] | None:
        row = self.frames.get(frame_id)
        return self.locations.get(row.get("file_location_id", 0)) if row else None

    def __bool__(self) -> bool:
        return bool(self.file_names or self.function_names or self.locations or self.frames)


class Module(Displayed):
    """An HLO module: ``module["fusion.3"]`` is an instruction, ``len`` and iteration are of computations.

    ``attributes`` holds the header's attributes by name (``is_scheduled``, ``input_output_alias`` ...);
    ``entry_computation_layout`` is kept there as a tuple (parameter shapes, result shape).
    ``walk.callees_first`` gives the computations in the order of a text.  ``weights`` are arrays that belong to
    it, by the numbers of the entry's parameters, such as those of a model's directory: no text has them, and
    whatever makes inputs for a run takes them.
    """

    def __init__(self, name: str, source: Source | None = None) -> None:
        self.name = name
        self.source = source
        self.attributes: dict[str, Any] = {}
        self.stack_tables = StackTables()
        self.warnings: list[tuple[int, str]] = []
        self.weights: Mapping[int, Array] = {}
        self.computations: dict[str, Computation] = {}
        self.entry: Computation
        self._source_size: int | None = None
        self._serial: dict[str, int] = {}

    def __iter__(self) -> Iterator[Computation]:
        return iter(list(self.computations.values()))

    def __len__(self) -> int:
        return len(self.computations)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Instruction:
        """The instruction of a name, with ``%`` or without, the entry's first; ``computation/name`` is exact.

        Raises ``KeyError``, with similar names, where there is none.
        """
        found = self._find(name)
        if found is None:
            known = dict.fromkeys(one.name for one in self.instructions())
            raise KeyError(missing(name, known, f"module {self.name} has no instruction"))
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def _find(self, name: str) -> Instruction | None:
        plain = name.removeprefix("%")
        for computation in (self.entry, *self.computations.values()):
            if (found := computation.by_name.get(plain)) is not None:
                return found
        home, _, inner = plain.partition("/")
        place = self.computations.get(home)
        return None if place is None else place.by_name.get(inner.removeprefix("%"))

    def instructions(self) -> Iterator[Instruction]:
        """All instructions of all computations."""
        for computation in self:
            yield from computation

    def instruction_count(self) -> int:
        """The number of instructions in all computations."""
        return sum(len(computation) for computation in self.computations.values())

    def source_size(self) -> int:
        """The instruction count at the first call, of a copy that of the original: budgets scale with it.

        Passes that copy what several share call this before they do.
        """
        if self._source_size is None:
            self._source_size = self.instruction_count()
        return self._source_size

    def fresh_name(self, base: str) -> str:
        """``base``, or ``base.N`` with the least unused N: a name no computation has."""
        if base not in self.computations:
            return base
        number = self._serial.get(base, 1)
        while (name := f"{base}.{number}") in self.computations:
            number += 1
        self._serial[base] = number + 1
        return name

    def place(self, instruction: Instruction) -> str:
        """``name:line:col`` of an instruction, or the module's name where it was not read."""
        if self.source is None or instruction.offset < 0:
            return self.name
        line, column = self.source.line_column(instruction.offset)
        return f"{self.source.name}:{line}:{column}"

    def unsupported(self, instruction: Instruction, problem: str) -> UnsupportedError:
        """An error to raise: ``file:line:col: error: name: problem``, with the line and a caret."""
        text = f"{instruction.name}: {problem}"
        if self.source is None or instruction.offset < 0:
            return UnsupportedError(text, name=self.name)
        return self.source.error(UnsupportedError, instruction.offset, text)

    def user_lines(self, metadata: Metadata | None) -> tuple[str, ...]:
        """Every ``file:line`` of the user's program that the metadata names, that of its stack frame first.

        One ``source_file`` that lists several, ``a.py:3,b.py:5``, is what XLA writes where it combines
        instructions.
        """
        if metadata is None:
            return ()
        fields = metadata.fields
        frame = self.stack_tables.frame(int(fields.get("stack_frame_id", 0)))
        found = [] if frame is None else [f"{frame[0]}:{frame[1]}"]
        if file := fields.get("source_file"):
            line = fields.get("source_line", 0)
            found += (() if line else _listed(file)) or ([] if found else [f"{file}:{line}"])
        return tuple(dict.fromkeys(found))

    def user_line(self, metadata: Metadata | None) -> str:
        """The first of ``user_lines``, or an empty string."""
        return next(iter(self.user_lines(metadata)), "")

    def to_text(
        self, *, metadata: bool = True, layouts: bool = True, canonical: bool = False
    ) -> str:
        """Complete HLO text, readable by XLA's own parser.

        Without ``metadata``, what serves debugging only is left out; without ``layouts``, a reader takes the
        usual ones; ``canonical`` text is the same for equal modules.
        """
        # The public surface puts the printer's door on the module; nothing else here looks upward.
        from hloopt.text.printer import PrintOptions, print_module

        return print_module(self, PrintOptions(metadata, layouts, canonical))

    def __repr__(self) -> str:
        counts = f"{len(self)} computation{'s' * (len(self) != 1)}, {self.instruction_count()} instructions"
        entry = getattr(self, "entry", None)  # a module that is being made has none yet
        return f"<module {self.name}: {counts}{f', entry {entry.outline}' if entry else ''}>"


def _listed(text: str) -> list[str]:
    """The entries of ``a.py:3,b.py:5``; none where the text is something else."""
    found: list[str] = []
    parts: list[str] = []
    for part in text.split(","):
        parts.append(part)
        if part.rpartition(":")[2].isdecimal() and ":" in part:
            found.append(",".join(parts))
            parts = []
    return [] if parts else found
