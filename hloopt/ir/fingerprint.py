"""Structural hashes: equal modules hash equal, whatever their instructions are called.

Used by the pass runner to check what a pass says it changed.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from hloopt.ir.computation import Computation
from hloopt.ir.module import Module
from hloopt.ir.walk import callees_first
from hloopt.types import Literal

__all__ = ["fingerprint"]


def fingerprint(module: Module) -> str:
    """A hexadecimal digest of everything that makes the module what it is, names left out."""
    digest = blake2b(digest_size=16)
    computations = {computation: index for index, computation in enumerate(callees_first(module))}
    digest.update(repr(sorted(_printable(module.attributes, {}))).encode())
    for computation in computations:
        digest.update(b"computation")
        _add(digest, computation, computations)
        digest.update(b"entry" if computation is module.entry else b"callee")
    return digest.hexdigest()


def _add(digest: Any, computation: Computation, computations: dict[Computation, int]) -> None:
    numbers = {instruction: index for index, instruction in enumerate(computation)}
    for instruction in computation:
        row = (
            instruction.opcode,
            str(instruction.shape),
            tuple(numbers[operand] for operand in instruction.operands),
            tuple(numbers[before] for before in instruction.control_predecessors),
            tuple(sorted(_printable(instruction.attributes, computations))),
        )
        digest.update(repr(row).encode())
    digest.update(str(numbers[computation.root]).encode())


def _printable(
    attributes: dict[str, Any], computations: dict[Computation, int]
) -> list[tuple[str, str]]:
    return [(name, _text(value, computations)) for name, value in attributes.items()]


def _text(value: Any, computations: dict[Computation, int]) -> str:
    if isinstance(value, Computation):
        return f"#{computations[value]}"
    if isinstance(value, tuple) and value and isinstance(value[0], Computation):
        return ",".join(f"#{computations[entry]}" for entry in value)
    if isinstance(value, Literal):
        return _literal(value)
    return repr(value)


def _literal(value: Literal) -> str:
    # Two elided literals are never equal, but a module equals itself read again.
    if value.elided:
        return "{...}"
    if value.array is None:
        return f"({','.join(map(_literal, value.elements))})"
    digest = blake2b(f"{value.array.dtype}{value.array.shape}".encode(), digest_size=16)
    digest.update(value.array.tobytes())
    return digest.hexdigest()
