"""Which known word was meant by one that is not known."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.spelling import nearest

__all__ = ["did_you_mean", "type_meant"]

_MOST_CANDIDATES = 1000
_TYPES_ELSEWHERE = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
    "int": "s32",
    "uint": "u32",
    "long": "s64",
    "bool": "pred",
    "boolean": "pred",
    "i1": "pred",
    **{
        f"{word}{bits}": f"s{bits}" for word in ("i", "int", "si") for bits in (2, 4, 8, 16, 32, 64)
    },
    **{f"{word}{bits}": f"u{bits}" for word in ("ui", "uint") for bits in (2, 4, 8, 16, 32, 64)},
}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?``, or nothing where no known word is close."""
    word = str(word)
    candidates = [other for other in known if other != word and abs(len(other) - len(word)) <= 3]
    if len(candidates) > _MOST_CANDIDATES:
        candidates = [other for other in candidates if other[:2] == word[:2]][:_MOST_CANDIDATES]
    close = nearest(word, candidates)
    return f"; did you mean {close[0]!r}?" if close else ""


def type_meant(name: str, known: Iterable[str]) -> str:
    """As ``did_you_mean``, for element types; knows what others call them."""
    meant = _TYPES_ELSEWHERE.get(name)
    return f"; did you mean {meant!r}?" if meant else did_you_mean(name, known)
