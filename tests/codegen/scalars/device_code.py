"""Elementwise ops compiled as C++ with the emulator's header, all of them in one translation unit."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import hloopt
from hloopt.codegen.device import Uses
from hloopt.codegen.scalars import expression
from hloopt.codegen.types import register_type
from hloopt.interpret.bitcast import bitcast_convert
from hloopt.kernel_ir.expressions import Var
from hloopt.kernel_ir.printer import expression_text
from hloopt.ops import OPS, ScalarArgs
from hloopt.ops.elementwise import keeps_bits
from hloopt.types import DType, rounded

HEADERS = Path(hloopt.__file__).parent / "backends" / "emulator" / "include"
COMPILER = shutil.which("c++")

# Undefined behaviour is written to stderr, where a test finds it.
SANITIZE = "-fsanitize=signed-integer-overflow,shift,float-cast-overflow,integer-divide-by-zero"


@dataclass(frozen=True, eq=False)
class Case:
    """One op on element types, with the attributes that make it another op."""

    opcode: str
    kinds: tuple[DType, ...]
    result: DType
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        kinds = ",".join(kind.name for kind in self.kinds)
        words = "".join(f",{value}" for value in self.attributes.values())
        return f"{self.opcode}({kinds})->{self.result.name}{words}"


def interpreted(case: Case, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """What the interpreter makes of arrays of the operands' storage types."""
    if case.opcode == "bitcast-convert":
        return bitcast_convert(arrays[0], case.kinds[0], case.result)
    args = ScalarArgs(case.kinds[-1], case.result, case.attributes)
    stored = keeps_bits(case.opcode, case.attributes, case.kinds[-1])
    wide = [
        array if stored else array.astype(kind.compute)
        for array, kind in zip(arrays, case.kinds, strict=True)
    ]
    function = OPS[case.opcode].numpy
    assert function is not None
    with np.errstate(all="ignore"):
        return rounded(np.asarray(function(args, *wide)), case.result.numpy)


def statement(case: Case, uses: Uses) -> str:
    """A loop body that reads element n of ``arrays``, computes, and writes behind the operands."""
    operands = [Var(x, uses.type(kind)) for x, kind in zip("xyz", case.kinds, strict=False)]
    loads = "\n".join(
        f"    {x.type} {x.name} = (({x.type} const*)arrays[{i}])[n];"
        for i, x in enumerate(operands)
    )
    value = expression(case.opcode, case.kinds, case.result, case.attributes, operands, uses)
    assert value.type == register_type(case.result), f"{case} is {value.type}"
    text = expression_text(value)
    return f"{loads}\n    (({value.type}*)arrays[{len(operands)}])[n] = {text};\n"


class Compiled:
    """Cases compiled together; ``run(case, arrays)`` gives what the device code makes of them.

    ``bodies`` are further loop bodies by name, run by ``run_body``.
    """

    def __init__(
        self, cases: Sequence[Case], bodies: Mapping[str, str], uses: Uses, folder: Path
    ) -> None:
        self._numbers = {case: number for number, case in enumerate(cases)}
        self._folder = folder
        every = {f"case{i}": statement(case, uses) for i, case in enumerate(cases)}
        every.update(bodies)
        functions = "".join(
            f"void {name}(void* const* arrays, long count) {{\n"
            f"  for (long n = 0; n < count; ++n) {{\n{body}  }}\n}}\n"
            for name, body in every.items()
        )
        entries = "".join(
            f'extern "C" void run_{name}(void* const* a, long n) {{ program p; p.{name}(a, n); }}\n'
            for name in every
        )
        self.source = f"struct program {{\n{uses.source()}{functions}}};\n{entries}"

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The code, loaded."""
        code, library = self._folder / "ops.cpp", self._folder / "ops.so"
        code.write_text('#include "emulator.h"\n' + self.source)
        found = _compile(code, library, SANITIZE)
        if found.returncode == 0:
            try:
                return ctypes.CDLL(str(library))
            except OSError:
                pass  # a compiler whose sanitizer has no library of its own
        found = _compile(code, library)
        assert found.returncode == 0, found.stderr[:4000]
        return ctypes.CDLL(str(library))

    def run(self, case: Case, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The result of a case for arrays of storage types."""
        result = np.zeros(arrays[0].shape, case.result.numpy)
        self.run_body(f"case{self._numbers[case]}", [*arrays, result], result.size)
        return result

    def run_body(self, name: str, arrays: Sequence[np.ndarray], count: int) -> None:
        """A loop body for n below ``count``."""
        every = [np.ascontiguousarray(array) for array in arrays]
        assert every[-1] is arrays[-1]
        pointers = (ctypes.c_void_p * len(every))(*(array.ctypes.data for array in every))
        self.library[f"run_{name}"](pointers, ctypes.c_long(count))


def _compile(code: Path, library: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    assert COMPILER is not None
    command = [
        COMPILER, "-std=c++17", "-O0", "-ffp-contract=off", "-fPIC", "-shared", "-w", *flags,
        "-I", str(HEADERS), str(code), "-o", str(library), "-lm",
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False)
