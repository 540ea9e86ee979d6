"""The enums of XLA's protos: number to the word that HLO text has for it."""

from __future__ import annotations

from collections.abc import Mapping

from hloopt.proto import ProtoProblem

__all__ = [
    "ALGORITHMS",
    "ALIAS_KINDS",
    "API_VERSIONS",
    "BUFFER",
    "CONVOLUTION_KINDS",
    "DIM_LEVELS",
    "DISTRIBUTIONS",
    "ELEMENT_TYPES",
    "FFT_TYPES",
    "PADDING_TYPES",
    "PRECISIONS",
    "RNG_ALGORITHMS",
    "SCHEDULES",
    "TRANSPOSES",
    "TUPLE",
    "number_of",
    "word_of",
]

TUPLE, BUFFER = 13, 34  # the element types that are not types of elements

ELEMENT_TYPES = {
    1: "pred",
    30: "s1",
    26: "s2",
    21: "s4",
    2: "s8",
    3: "s16",
    4: "s32",
    5: "s64",
    31: "u1",
    27: "u2",
    22: "u4",
    6: "u8",
    7: "u16",
    8: "u32",
    9: "u64",
    10: "f16",
    11: "f32",
    16: "bf16",
    12: "f64",
    19: "f8e5m2",
    28: "f8e4m3",
    20: "f8e4m3fn",
    23: "f8e4m3b11fnuz",
    29: "f8e3m4",
    24: "f8e5m2fnuz",
    25: "f8e4m3fnuz",
    32: "f4e2m1fn",
    33: "f8e8m0fnu",
    35: "f6e3m2fn",
    36: "f6e2m3fn",
    15: "c64",
    18: "c128",
    14: "opaque",
    17: "token",
}
DIM_LEVELS = {0: "D", 1: "C", 2: "S", 3: "H"}
DISTRIBUTIONS = {1: "rng_uniform", 2: "rng_normal"}
RNG_ALGORITHMS = {0: "rng_default", 1: "rng_three_fry", 2: "rng_philox"}
FFT_TYPES = {0: "FFT", 1: "IFFT", 2: "RFFT", 3: "IRFFT"}
TRANSPOSES = {1: "NO_TRANSPOSE", 2: "TRANSPOSE", 3: "ADJOINT"}
PADDING_TYPES = {0: "PADDING_INVALID", 1: "PADDING_VALID", 2: "PADDING_SAME"}
SCHEDULES = {0: "SCHEDULE_NONE", 1: "SCHEDULE_LATEST", 2: "SCHEDULE_EARLIEST"}
CONVOLUTION_KINDS = {0: "unset", 1: "fprop", 2: "dgrad", 3: "wgrad"}
PRECISIONS = {0: "default", 1: "high", 2: "highest"}
ALIAS_KINDS = {0: "", 1: "may-alias", 2: "must-alias"}
API_VERSIONS = {
    0: "API_VERSION_UNSPECIFIED",
    1: "API_VERSION_ORIGINAL",
    2: "API_VERSION_STATUS_RETURNING",
    3: "API_VERSION_STATUS_RETURNING_UNIFIED",
    4: "API_VERSION_TYPED_FFI",
}
ALGORITHMS = {
    0: "dot_unset",
    1: "dot_any_f8_any_f8_f32",
    2: "dot_any_f8_any_f8_f32_fast_accum",
    3: "dot_f16_f16_f16",
    4: "dot_f16_f16_f32",
    5: "dot_bf16_bf16_bf16",
    6: "dot_bf16_bf16_f32",
    7: "dot_bf16_bf16_f32_x3",
    8: "dot_bf16_bf16_f32_x6",
    13: "dot_bf16_bf16_f32_x9",
    9: "dot_tf32_tf32_f32",
    10: "dot_tf32_tf32_f32_x3",
    11: "dot_f32_f32_f32",
    12: "dot_f64_f64_f64",
}


def word_of(words: Mapping[int, str], number: int, field: str) -> str:
    """The word of an enum's number; raises ``ProtoProblem`` naming the field."""
    word = words.get(number)
    if word is None:
        raise ProtoProblem(f"{number} is none of {_choices(words)}", field)
    return word


def number_of(words: Mapping[int, str], word: str) -> int:
    """The number of a word; raises ``ProtoProblem`` where the proto has none."""
    for number, known in words.items():
        if known.lower() == word.lower():  # XLA's texts have them in either case
            return number
    raise ProtoProblem(f"{word!r} has no number in the proto; those with one are {_choices(words)}")


def _choices(words: Mapping[int, str]) -> str:
    return ", ".join(f"{number} ({word})" for number, word in sorted(words.items()))
