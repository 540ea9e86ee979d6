"""Words that no variable of a kernel may have: those of the languages, and what a kernel may call."""

from __future__ import annotations

from functools import cache

from hloopt.codegen.device.library import names

__all__ = ["reserved"]

# Words of C++ and of CUDA that an instruction's name could be; what begins with an underscore it cannot.
_WORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class
compl const const_cast constexpr continue decltype default defined delete do double dynamic_cast else enum
explicit export extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public register reinterpret_cast return short signed sizeof static
static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union
unsigned using virtual void volatile wchar_t while xor xor_eq threadIdx blockIdx blockDim gridDim warpSize
dynamic_shared min max abs atomicAdd atomicCAS memcpy main"""


_MATH = """acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs floor
fma fmax fmin fmod hypot isfinite isinf isnan ldexp log log10 log1p log2 nearbyint nextafter pow remainder rint
round rsqrt sin sincos sinh sqrt tan tanh trunc"""


@cache
def reserved() -> frozenset[str]:
    """Words of the language, and whatever a kernel may call."""
    math = {name + suffix for name in _MATH.split() for suffix in ("", "f")}
    return frozenset({*_WORDS.split(), *math, *names()})
