"""What elementwise ops cost in native kernels: makes ``hloopt/cost_models/host.toml``.

Each op is a kernel by itself over arrays that stay in the second-level cache, on one thread; less what ``copy``
of the same type takes (of two operands: ``add``), and in units of what a lane of the target ``host`` does in a
clock, it is the op's cost in additions.  Steps and bandwidths are those of many kernels one after the other, less
half as many.  The best of many runs counts.  Prints the file; on a busy machine it is worth a second look.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import hloopt
from hloopt.backends.native.compile import compile_native
from hloopt.ops import OPS
from hloopt.runtime.inputs import generate
from hloopt.runtime.program import NativeOptions
from hloopt.targets.target import HOST

ROOT = Path(__file__).resolve().parents[2]

_ELEMENTS = 1 << 14
_SECONDS = 0.2
_KERNELS = 64
_LANE_NS = 1 / (HOST.clock_ghz * HOST.fpus_per_core)
_REAL = ("f32", "f64")
_WHOLE = ("s32", "u32", "s64")
_UNARY = (
    "cbrt", "ceil", "cosine", "erf", "exponential", "exponential-minus-one", "log", "log-plus-one",
    "logistic", "round-nearest-afz", "round-nearest-even", "rsqrt", "sine", "sqrt", "tan", "tanh",
)  # fmt: skip
_BINARY = ("atan2", "divide", "maximum", "minimum", "multiply", "power", "remainder")
_COMPLEX = ("abs", "cosine", "divide", "exponential", "log", "multiply", "power", "sine", "sqrt")
_TYPES = ("bf16", "f16", "f64", "s64", "u64", "c64", "c128")


def seconds(lines: str, dtype: str, dims: object = _ELEMENTS, computations: str = "") -> float:
    """The best run of ``lines``, the body of the entry, over x and y; SHAPE stands for their shape."""
    text = (
        f"HloModule m\n\n{computations}\nENTRY main {{\n x = SHAPE parameter(0)\n"
        f" y = SHAPE parameter(1)\n{lines}\n}}\n"
    )
    module = hloopt.parse(text.replace("SHAPE", f"{dtype}[{dims}]"))
    program, inputs = compile_native(module, NativeOptions(threads=1)), generate(module)
    program.run(inputs)
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        program.run(inputs)
        best = min(best, time.perf_counter() - start)
    return best


def lanes(spent: float) -> int:
    """Additions that take as long for each element."""
    return max(1, round(spent * 1e9 / _ELEMENTS / _LANE_NS))


def op(opcode: str, dtype: str) -> float:
    """Seconds of an op as a kernel."""
    operands = "x, y" if OPS[opcode].arity[0] == 2 else "x"
    result = "f32[SIZE]" if (opcode, dtype) == ("abs", "c64") else "SHAPE"
    line = f" ROOT r = {result} {opcode}({operands})"
    return seconds(line.replace("SIZE", str(_ELEMENTS)), dtype)


def chain_ns(elements: int) -> float:
    """Nanoseconds of each of many kernels that read and write an array."""

    def run(count: int) -> float:
        lines = [" v0 = SHAPE abs(x)"]
        lines += [f" v{at} = SHAPE abs(v{at - 1})" for at in range(1, count)]
        lines += [f" ROOT r = SHAPE add(v{count - 1}, y)"]
        return seconds("\n".join(lines), "f32", elements)

    return (run(2 * _KERNELS) - run(_KERNELS)) * 1e9 / _KERNELS


def branching() -> float:
    """How much longer an op takes in a loop that tells its rows' elements apart."""

    rows, row = 64, _ELEMENTS // 64

    def run(opcode: str, *, together: bool) -> float:
        within = f"x = SHAPE parameter(0)\n y = SHAPE parameter(1)\n e = SHAPE {opcode}(x)\n"
        root = "pad(e, z), padding=0_0x1_1" if together else "add(e, y)"
        shape = f"f32[{rows},{row + 2 if together else row}]"
        within += " z = f32[] constant(0)\n" if together else ""
        made = f"f {{\n {within} ROOT r = {shape} {root}\n}}\n"
        line = f" ROOT r = {shape} fusion(x, y), kind=kLoop, calls=f"
        return seconds(line, "f32", f"{rows},{row}", made)

    apart, joined = (
        run("exponential", together=way) - run("abs", together=way) for way in (False, True)
    )
    return joined / apart


def kernels() -> None:
    """Print what is known of kernels as a whole."""
    step = chain_ns(1)
    print(f"[kernels]\nstep_ns = {step:.0f}")
    for name, elements in (("l1", 1 << 11), ("l2", 1 << 16)):
        print(f"{name}_bytes_per_ns = {8 * elements / (chain_ns(elements) - step):.0f}")
    print(f"branching = {branching():.1f}")


def main() -> None:
    """Print the tables."""
    kernels()
    rows: dict[str, dict[str, int]] = {}
    widths = {}
    for dtype in ("f32", *_TYPES, "s32", "u32"):
        one, two = op("copy", dtype), op("add", dtype)
        widths[dtype] = lanes(seconds(" ROOT r = SHAPE add(x, x)", dtype) - one)
        names = (*_UNARY, *_BINARY) if dtype in _REAL else ()
        names = ("divide", "multiply", "remainder", "power") if dtype in _WHOLE else names
        names = _COMPLEX if dtype == "c64" else names
        for opcode in names:
            is_binary = OPS[opcode].arity[0] == 2
            cost = lanes(op(opcode, dtype) - (two if is_binary else one))
            cost += widths[dtype] if is_binary else 0
            print(opcode, dtype, cost, file=sys.stderr, flush=True)
            if cost > 1.5 * widths[dtype]:
                rows.setdefault(opcode, {})[dtype] = cost
    print("\n[types]")
    print("\n".join(f"{name} = {cost}" for name, cost in widths.items() if cost > 1))
    print("\n[ops]")
    for opcode, row in sorted(rows.items()):
        print(f"{opcode} = {{ {', '.join(f'{name} = {cost}' for name, cost in row.items())} }}")


if __name__ == "__main__":
    main()
