"""What is wrong with a proto, before the name of its file is known."""

from __future__ import annotations

__all__ = ["ProtoProblem", "within"]


class ProtoProblem(Exception):  # noqa: N818 - not an error yet: the file gives it its name
    """A defect and the path of the field it is in, the innermost part first."""

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message)
        self.message = message
        self.path = list(path)

    def within(self, part: str) -> ProtoProblem:
        """The same defect, seen from the message around it."""
        self.path.append(part)
        return self

    def __str__(self) -> str:
        return f"{'.'.join(reversed(self.path))}: {self.message}" if self.path else self.message


class within:  # noqa: N801 - a statement's word
    """Adds the name of a field to the defects found while it is read."""

    __slots__ = ("part",)

    def __init__(self, part: str) -> None:
        self.part = part

    def __enter__(self) -> None:
        """Nothing is needed before."""

    def __exit__(self, kind: object, found: object, trace: object) -> None:
        """A defect gets another part of its path."""
        if isinstance(found, ProtoProblem):
            found.within(self.part)
