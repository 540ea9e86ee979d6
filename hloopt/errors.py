"""Every exception hloopt raises on purpose.

    HlooptError                     exit code
    ├── UsageError                  2   a wrong option, pass name or argument
    ├── SourceError                 3   something is wrong at a place in a text
    │   ├── FileError               2   the text is not a module: a pipeline, a lock, a device, a study, a log
    │   ├── MissingReaderError      5   what reads files of this form is not installed; a DeviceError, too
    │   ├── ParseError                  the text is not HLO
    │   └── VerifyError                 the text is HLO, the module is not valid
    ├── ShapeError                  3   operands and attributes have no result shape
    ├── UnsupportedError            4   valid HLO that cannot be executed here
    ├── DeviceError                 5   the device is not there or failed
    └── EvaluationError             3   wrong inputs for a module, or a loop that does not end

Bad input never shows a traceback: the command line prints ``str(error)`` and exits with
``error.exit_code``.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "DeviceError",
    "EvaluationError",
    "FileError",
    "HlooptError",
    "MissingReaderError",
    "ParseError",
    "ShapeError",
    "SourceError",
    "UnsupportedError",
    "UsageError",
    "VerifyError",
]


class HlooptError(Exception):
    """The root of the tree; ``message`` is the text without a position."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class UsageError(HlooptError):
    """A wrong option, an unknown pass, a missing file."""

    exit_code = 2


class ShapeError(HlooptError):
    """Operand shapes and attributes break a constraint of the op; no position is known yet."""

    exit_code = 3


class EvaluationError(HlooptError):
    """The inputs do not fit the module's parameters, or evaluation cannot go on.

    An evaluation that has begun records where it stopped: ``place`` is ``name:line:column``, with which
    ``message`` begins, ``excerpt`` the line and a caret.  ``line`` and ``column`` count from 1; without a
    text both are 0 and ``excerpt`` is empty.
    """

    exit_code = 3

    def __init__(
        self, message: str, *, place: str = "", line: int = 0, column: int = 0, excerpt: str = ""
    ) -> None:
        super().__init__(f"{place}: {message}" if place else message)
        self.place = place
        self.line = line
        self.column = column
        self.excerpt = excerpt

    @property
    def reason(self) -> str:
        """The message without the place."""
        return self.message.removeprefix(f"{self.place}: ")


class DeviceError(HlooptError):
    """The named device does not exist on this machine or failed."""

    exit_code = 5


class SourceError(HlooptError):
    """An error at a place: ``name:line:col: error: message``, the line, and a caret.

    ``line`` and ``column`` count from 1; both are 0 when the module was not read from a text.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        name: str = "<text>",
        line: int = 0,
        column: int = 0,
        excerpt: str = "",
        width: int = 1,
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.name = name
        self.line = line
        self.column = column
        self.excerpt = excerpt
        self.width = width
        self.notes = notes

    def __str__(self) -> str:
        place = f"{self.name}:{self.line}:{self.column}" if self.line else self.name
        lines = [f"{place}: error: {self.message}"]
        if self.excerpt:
            lines.append(self.excerpt)
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


class FileError(SourceError):
    """A file that is not a module, such as a pipeline or a device's description, makes no sense at a place."""

    exit_code = 2


class MissingReaderError(SourceError, DeviceError):
    """A file is of a form whose reader is not installed; the message has the command that installs it."""

    exit_code = 5


class ParseError(SourceError):
    """The text is not HLO.

    The error is the first mistake; ``others`` are up to 19 further ones in the order of the text, none of
    them a consequence of another.  ``more`` says that there may be more: the reading stopped.
    """

    others: tuple[ParseError, ...] = ()
    more: bool = False


class VerifyError(SourceError):
    """The module breaks a rule of HLO; names the instruction, its line and the constraint.

    ``rule`` is the stable name of the constraint (``async-chain``, ``replica-groups`` ...), the same in every
    version; ``hloopt check --rules`` explains them.
    """

    rule: str = ""

    def __str__(self) -> str:
        first, newline, rest = super().__str__().partition("\n")
        return f"{first} [{self.rule}]{newline}{rest}" if self.rule else f"{first}{newline}{rest}"


class UnsupportedError(SourceError):
    """Valid HLO that this executor cannot run; names the instruction and its line."""

    exit_code = 4
