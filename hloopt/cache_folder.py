"""Where a user's cache files are, and whether they are the user's own.

What is in the cache is loaded as code.  So a folder counts only where no other user can have put anything into
it: it and its entries belong to this user and only this user may write to them, and no other user may replace
it from above.  Where there is no such folder everything is made anew, and a note says so.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from hloopt.process import add_note

__all__ = ["cache_folder", "is_own", "own_folder"]


def cache_folder() -> Path | None:
    """``HLOOPT_CACHE_DIR``, else the system's folder for caches and ``hloopt`` in it; None without a home."""
    named = os.environ.get("HLOOPT_CACHE_DIR") or _of_system()
    return Path(named) if named else None


def _of_system() -> str:
    if sys.platform == "linux":
        # By the XDG base directory specification, as platformdirs has it, which takes 7 ms to load: a tenth
        # of what a small program takes from text to result.
        named = os.environ.get("XDG_CACHE_HOME", "").strip()
        if os.path.isabs(named):  # noqa: PTH117
            return f"{named}/hloopt"
        home = _home()
        return f"{home}/.cache/hloopt" if home else ""
    import platformdirs

    return platformdirs.user_cache_dir("hloopt", False)


def _home() -> str:
    """``HOME``, or the system's entry for this user; empty where neither is a folder's full name."""
    home = os.environ.get("HOME", "").strip()
    if not home:
        import pwd

        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return ""
    return home if os.path.isabs(home) else ""  # noqa: PTH117


def own_folder(kind: str = "", *, make: bool = False) -> Path | None:
    """The cache folder, or the one called ``kind`` in it, where it is this user's own; else None.

    With ``make`` it is made if it is not there, it and its parents for this user alone.  A folder that is
    there and cannot be used is reported by a note.
    """
    root = cache_folder()
    if root is None:
        add_note("no folder for a cache: this user has no home; HLOOPT_CACHE_DIR names one")
        return None
    folder = root / kind
    try:
        if make:
            _make(folder)
        problem = _problem(root, folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"{error.filename or folder}: {error.strerror}"
    if problem:
        add_note(f"the cache is not used: {problem}")
        return None
    return folder


def _make(folder: Path) -> None:
    """As ``mkdir -p``, but each folder that is made is private."""
    missing = [folder, *folder.parents]
    for one in reversed(missing[: [one.exists() for one in missing].index(True)]):
        one.mkdir(mode=0o700, exist_ok=True)


def _problem(root: Path, folder: Path) -> str:
    """Why another user may have written into a folder; empty where none can."""
    if not hasattr(os, "geteuid"):
        return ""
    for one in {root: None, folder: None}:
        state = one.stat()
        if not stat.S_ISDIR(state.st_mode):
            return f"{one} is not a folder"
        if state.st_uid != os.geteuid():
            return f"{one} belongs to another user"
        if not is_own(state):
            return f"{one} can be written by others (chmod go-w {one})"
    # The owner of what is above may put another folder in its place; the owner of / is the system.
    trusted = {0, os.geteuid(), Path("/").stat().st_uid}
    for above in folder.resolve().parents:
        state = above.stat()
        open_to_all = state.st_mode & stat.S_IWOTH and not state.st_mode & stat.S_ISVTX
        if open_to_all or state.st_uid not in trusted:
            return f"others can replace what is in {above}"
    return ""


def is_own(state: os.stat_result) -> bool:
    """Whether a file or folder belongs to this user, and no other may write to it."""
    if not hasattr(os, "geteuid"):
        return True
    return state.st_uid == os.geteuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
