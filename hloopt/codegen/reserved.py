"""Words that no variable of a kernel may have: those of the languages, and what a kernel may call."""

from __future__ import annotations

import re
from functools import cache

from hloopt.codegen.device.library import library, names

__all__ = ["reserved"]

# Words of C++ and of CUDA that an instruction's name could be.
_WORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
constexpr continue decltype default delete do double else enum explicit export extern false float for friend
goto if inline int long mutable namespace new not not_eq nullptr operator or or_eq private protected public
register return short signed sizeof static struct switch template this throw true try typedef typeid typename
union unsigned using virtual void volatile while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize min max
abs atomicAdd atomicCAS main"""


_MATH = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor
fma fmax fmin fmod hypot isfinite isinf isnan ldexp log log10 log1p log2 nearbyint nextafter pow remainder rint
round rsqrt sin sincos sinh sqrt tan tanh trunc"""

_CALLED = re.compile(r"([A-Za-z_]\w*)(?:<[^<>]*>)?\(")


@cache
def reserved() -> frozenset[str]:
    """Words of the language, and whatever a kernel may call."""
    called = {name for entry in library().values() for name in _CALLED.findall(entry.source)}
    math = {name + suffix for name in _MATH.split() for suffix in ("", "f")}
    return frozenset({*_WORDS.split(), *math, *names(), *called})
