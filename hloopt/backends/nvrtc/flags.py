"""The flags CUDA C is compiled with: named sets, so that every result can say which one it was made with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hloopt.dataclass import dataclass

__all__ = ["ALWAYS", "FAST_MATH", "FLAGS", "TIMED", "VERIFY", "CompilerFlags"]

ALWAYS = ("--std=c++17", "--device-as-default-execution-space")


@dataclass(frozen=True, slots=True)
class CompilerFlags:
    """A named set of NVRTC's options that decide about roundings.

    name     as results and tables say it
    summary  what it means for results, in words
    options  what NVRTC is given; each is written out, also where it is NVRTC's default
    """

    name: str
    summary: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({' '.join(self.options)})"


VERIFY = CompilerFlags(
    "verify",
    "every operation rounds by itself, subnormal numbers are kept: as the interpreter",
    ("--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"),
)
TIMED = CompilerFlags(
    "timed",
    "a product and a sum may be one rounding (fused multiply-add), as XLA compiles for a GPU",
    ("--fmad=true", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"),
)
# Not --use_fast_math: it also takes sinf, expf and powf for approximations whose error has no bound.
FAST_MATH = CompilerFlags(
    "fast-math",
    "fused multiply-add, subnormal f32 are flushed to zero, f32 division and root are approximate",
    ("--fmad=true", "--ftz=true", "--prec-div=false", "--prec-sqrt=false"),
)

FLAGS: Mapping[str, CompilerFlags] = MappingProxyType(
    {flags.name: flags for flags in (VERIFY, TIMED, FAST_MATH)}
)
