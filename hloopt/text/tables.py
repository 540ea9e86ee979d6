"""The parser's tables, kept between processes: building them from the grammar takes half a second.

They are JSON in the user's cache folder, named after everything they depend on.  JSON, because a cache
must not be able to run code; a file that cannot be written or read costs only the half second.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import lark
import platformdirs
from lark import Lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

__all__ = ["load", "path", "save"]

# Options that belong to the process, not to the tables.
_OF_THE_PROCESS = ("transformer", "lexer_callbacks", "postlex", "_plugins", "regex", "tree_class")


def path(grammar: Path, starts: Sequence[str]) -> Path:
    """The file for this grammar, these starts and this version of Lark."""
    digest = blake2b(digest_size=16)
    digest.update(repr((lark.__version__, tuple(starts))).encode())
    for file in sorted(grammar.glob("*.lark")):
        digest.update(file.name.encode() + b"\\0" + file.read_bytes() + b"\\0")
    folder = os.environ.get("HLOOPT_CACHE_DIR") or platformdirs.user_cache_dir("hloopt", False)
    return Path(folder) / f"grammar-{digest.hexdigest()}.json"


def load(file: Path, options: Mapping[str, Any]) -> Lark | None:
    """The parser of ``file``, or None where there is no such file or it is damaged."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    checksum, _, body = text.partition("\n")
    if checksum != _checksum(body):
        return None
    stored = json.loads(body, object_pairs_hook=_with_numbers)
    parser: Lark = Lark._load_from_dict(  # type: ignore[no-untyped-call]
        stored["data"], stored["memo"], **options
    )
    return parser


def save(file: Path, parser: Lark) -> None:
    """Write the tables where the folder can be written; a reader never sees half of them."""
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    data["options"] = {
        name: value for name, value in data["options"].items() if name not in _OF_THE_PROCESS
    }
    body = json.dumps({"data": data, "memo": memo})
    text = f"{_checksum(body)}\n{body}"
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(temporary).replace(file)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise


def _checksum(body: str) -> str:
    return blake2b(body.encode(), digest_size=16).hexdigest()


def _with_numbers(pairs: list[tuple[str, Any]]) -> dict[Any, Any]:
    """JSON has strings for keys, Lark's tables have numbers."""
    return {int(key) if key.isdigit() else key: value for key, value in pairs}
