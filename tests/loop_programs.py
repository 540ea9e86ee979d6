"""Programs of ``samples/cartpole`` and ``samples/loops``, also at other sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent.parent / "samples"


@cache
def text_of(name: str) -> str:
    """The dump ``samples/NAME.hlo``."""
    return (SAMPLES / f"{name}.hlo").read_text()


def resized(name: str, sizes: Mapping[int, int], trips: Mapping[int, int] | None = None) -> str:
    """The dump with other numbers in place of whole numbers: another count of elements or of trips.

    ``trips`` are for constants alone, so that a loop may run fewer times than its arrays have room for.  It is
    another program, right by itself; only its own evaluation says what it computes.
    """

    def other(number: re.Match[str]) -> str:
        return str(sizes.get(int(number[0]), number[0]))

    text = text_of(name)
    for count, wanted in (trips or {}).items():
        text = text.replace(f"s32[] constant({count})", f"s32[] constant({wanted})")
    # A word of a name or a decimal fraction is no size.
    return re.sub(r"(?<![\w.%-])\d+(?![\w.])", other, text)
