"""Notes about this process, such as why it uses no cache: the command line shows each once, in the end."""

from __future__ import annotations

__all__ = ["add_note", "notes"]

_NOTES: dict[str, None] = {}


def add_note(note: str) -> None:
    """Remember what the command line is to say, once."""
    _NOTES[note] = None


def notes() -> tuple[str, ...]:
    """What there is to say."""
    return tuple(_NOTES)
