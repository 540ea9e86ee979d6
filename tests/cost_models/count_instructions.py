"""Writes ``hloopt/cost_models/instructions.toml``: what elementwise ops take as machine code.

    python -m tests.cost_models.count_instructions --nvdisasm PATH

Each op is rendered as kernels have it, compiled by NVRTC (no GPU needed), disassembled, and walked along the way
that ordinary arguments take (``sass.py``).  nvdisasm is in the CUDA toolkit and in the wheel
nvidia-cuda-nvdisasm.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hloopt.backends.nvrtc import TIMED, compile_cuda, nvrtc_for
from hloopt.codegen.device import Uses
from hloopt.codegen.scalars.table import expression, scalar_problem
from hloopt.codegen.types import is_struct
from hloopt.kernel_ir.expressions import Var
from hloopt.kernel_ir.printer import expression_text
from hloopt.ops import OPS
from hloopt.types import DType, dtype
from tests.cost_models import sass

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
TYPES = ["pred", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64", "c64", "c128"]
CONVERTED = ["pred", "s32", "u32", "s64", "u64", "f16", "bf16", "f32", "f64"]

# PPT-GPU's Ampere table (Arafa et al., HPEC 2019) for special functions; loads of tables from the first-level
# cache: see latencies.toml.  f64 sets barriers only where a core has two lanes, which none of these does.
LATENCIES = {"xu": 23, "memory": 33, "f64": 8, "imad": 5, "alu": 5, "fma": 4, "control": 12}

ATTRIBUTES: dict[str, dict[str, Any]] = {
    "compare": {"direction": "LT"},
    "reduce-precision": {"exponent_bits": 5, "mantissa_bits": 7},
}


def signatures() -> Iterator[tuple[str, str, list[DType], DType]]:
    """All ops with the element types they are counted for: opcode, key, operands, result."""
    for opcode, row in OPS.items():
        if not row.is_elementwise or opcode in ("convert", "copy", "stochastic-convert"):
            continue
        for name in TYPES:
            kind = dtype(name)
            kinds, result = _signature(opcode, kind, row.arity[0])
            attributes = ATTRIBUTES.get(opcode, {})
            if kinds and not scalar_problem(opcode, kinds, result, attributes):
                yield opcode, name, kinds, result
    for source in CONVERTED:
        for result in CONVERTED:
            if source != result:
                yield "convert", f"{source}-{result}", [dtype(source)], dtype(result)


def _signature(opcode: str, kind: DType, arity: int) -> tuple[list[DType], DType]:
    pred = dtype("pred")
    if opcode == "select" or (opcode == "compare" and is_struct(kind)):
        return [], kind
    if opcode == "compare":
        return [kind, kind], pred
    if opcode == "is-finite":
        return ([kind], pred) if kind.is_float else ([], pred)
    if opcode == "reduce-precision" and not kind.is_float:
        return [], kind
    if opcode == "select":
        return [pred, kind, kind], kind
    if opcode == "complex":
        return (
            ([kind, kind], dtype("c64" if kind.name == "f32" else "c128"))
            if kind.name in ("f32", "f64")
            else ([], kind)
        )
    if opcode in ("real", "imag") or (opcode == "abs" and kind.is_complex):
        parts = {"c64": "f32", "c128": "f64"}
        return ([kind], dtype(parts[kind.name])) if kind.name in parts else ([], kind)
    return [kind] * arity, kind


def kernel(name: str, opcode: str, kinds: Sequence[DType], result: DType, uses: Uses) -> str:
    """A kernel of one op; operands and result have one address, computed before the first is read."""
    loads = [f"*({uses.type(kind)}*)(p + {16 * number})" for number, kind in enumerate(kinds)]
    names = [Var(f"x{number}", uses.type(kind)) for number, kind in enumerate(kinds)]
    lines = [
        f"    {name.type} {name.name} = {load};" for name, load in zip(names, loads, strict=True)
    ]
    value = expression(opcode, kinds, result, ATTRIBUTES.get(opcode, {}), names, uses)
    body = "\n".join([*lines, f"    *({uses.type(result)}*)p = {expression_text(value)};"])
    return (
        f'extern "C" __global__ void {name}(char* base) {{\n'
        f"    char* p = base + 64 * threadIdx.x;\n{body}\n}}\n"
    )


def count(arch: str, tool: str) -> dict[tuple[str, str], sass.Run]:
    """The run of every op on an architecture."""
    uses, texts, keys = Uses(), [], []
    for opcode, key, kinds, result in signatures():
        keys.append((opcode, key))
        texts.append(kernel(f"op{len(texts)}", opcode, kinds, result, uses))
    compiled = compile_cuda(uses.source() + "\n".join(texts), arch, TIMED)
    code = sass.disassemble(compiled.image, tool)
    found = {}
    for number, (opcode, key) in enumerate(keys):
        double = any(word in ("f64", "c128", "s64", "u64") for word in key.split("-"))
        path = sass.ordinary_path(code[f"op{number}"], double=double)
        found[opcode, key] = _less(opcode, sass.run(path, LATENCIES))
    for key in ("pred", "s32", "u32", "f32", "s64", "u64", "f64"):
        # Of operands in memory a select loads only one, which is not what it is in a loop.
        words = max(1, dtype(key).bits // 32)
        found["select", key] = sass.Run(LATENCIES["alu"] + words - 1, {"alu": words})
    return found


def _less(opcode: str, one: sass.Run) -> sass.Run:
    """Without the select that makes a number of a compare's result, which goes to memory only here."""
    if opcode != "compare":
        return one
    units = {**one.units, "alu": one.units["alu"] - 1}
    return sass.Run(one.cycles - LATENCIES["alu"], units)


def written(counts: dict[str, dict[tuple[str, str], sass.Run]], version: tuple[int, int]) -> str:
    """The file."""
    lines = [HEADER.format(version=".".join(map(str, version)))]
    for arch, found in counts.items():
        for opcode in dict.fromkeys(opcode for opcode, _ in found):
            lines.append(f"\n[{arch}.{opcode}]")
            for (other, key), one in found.items():
                if other == opcode:
                    parts = [f"chain = {one.cycles}"]
                    parts += [f"{unit} = {n}" for unit, n in sorted(one.units.items()) if n]
                    lines.append(f"{key} = {{ {', '.join(parts)} }}")
    return "\n".join(lines) + "\n"


HEADER = """\
# What elementwise ops take as machine code: cycles from operands to result of a warp alone (chain), and instructions
# by the units that execute them.  Made by tests/cost_models/count_instructions.py from what NVRTC {version} makes of
# the expressions that kernels are written with; the way of ordinary arguments, without slow paths."""


def main() -> None:
    """Count, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvdisasm", required=True)
    parser.add_argument("--out", type=Path, default=Path("hloopt/cost_models/instructions.toml"))
    chosen = parser.parse_args()
    counts = {arch: count(arch, chosen.nvdisasm) for arch in ARCHITECTURES}
    chosen.out.write_text(written(counts, nvrtc_for(ARCHITECTURES[0]).version))


if __name__ == "__main__":
    main()
