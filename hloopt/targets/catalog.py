"""Finding device descriptions: built-in ones by name, a user's by path."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from hloopt.errors import UsageError
from hloopt.source import read_source
from hloopt.spelling import nearest
from hloopt.targets.target import HOST, Target

__all__ = [
    "find_gpu",
    "find_target",
    "load_target",
    "names",
    "target",
    "targets",
]

_FOLDER = Path(__file__).parent / "devices"
# XLA's names of the same devices, where they are others.
_ALIASES = {"a100_sxm_80": "a100", "h100_sxm": "h100"}
_TEXT_PROTO = frozenset({".txtpb", ".textproto", ".pbtxt", ".textpb"})


@cache
def names() -> tuple[str, ...]:
    """The devices hloopt knows, in alphabetical order, the host's processor among them."""
    return tuple(sorted((HOST.name, *(path.stem for path in _FOLDER.glob("*.toml")))))


def target(name: str) -> Target:
    """The device of a name; case does not matter, and XLA's names are accepted.

    Raises ``UsageError`` for an unknown name.
    """
    key = name.lower()
    key = _ALIASES.get(key, key)
    if key not in names():
        close = nearest(key, names())
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise UsageError(f"unknown target '{name}'{hint} (valid: {', '.join(names())})")
    return _known(key)


@cache
def _known(key: str) -> Target:
    return HOST if key == HOST.name else load_target(_FOLDER / f"{key}.toml")


@cache
def targets() -> Mapping[str, Target]:
    """All known devices by name."""
    return MappingProxyType({name: target(name) for name in names()})


def load_target(path: Path) -> Target:
    """The device a file describes: TOML, or XLA's text form (``.txtpb``); the file's name is its name.

    Raises ``UsageError`` for a file that cannot be read or has neither ending, ``FileError`` with the place
    for an invalid one.
    """
    source = read_source(path)
    if path.suffix == ".toml":
        from hloopt.targets.toml_form import read_toml

        return read_toml(source, path.stem, target)
    if path.suffix in _TEXT_PROTO:
        from hloopt.targets.xla_form import read_xla_form

        return read_xla_form(source, path.stem)
    valid = ", ".join((".toml", *sorted(_TEXT_PROTO)))
    raise UsageError(f"{path}: a device description ends in one of {valid}")


def find_target(text: str) -> Target:
    """What ``--target`` means: a device's name, or the path of a description.

    A text with a slash or one of the endings is a path.  Raises as ``target`` and ``load_target`` do.
    """
    path = Path(text)
    if path.suffix == ".toml" or path.suffix in _TEXT_PROTO or len(path.parts) > 1:
        return load_target(path)
    return target(text)


def find_gpu(text: str) -> Target:
    """The device ``text`` means, as ``find_target`` says, where hloopt's kernels can run on it.

    Raises ``UsageError`` for devices of another kind, whose times can only be predicted, and for the host.
    """
    found = find_target(text)
    if found is HOST:
        raise UsageError(f"kernels are CUDA here: the device native has those of {HOST.name}")
    if found.kind != "cuda":
        valid = ", ".join(name for name, device in targets().items() if device.kind == "cuda")
        raise UsageError(
            f"kernels are CUDA, and {found.name} is of kind {found.kind}: its times can only be "
            f"predicted (valid: {valid})"
        )
    return found
