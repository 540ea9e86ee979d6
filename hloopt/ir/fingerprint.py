"""Digests of modules: equal ones for equal modules, whatever their instructions are called."""

from __future__ import annotations

from hashlib import blake2b

from hloopt.ir.computation import Computation
from hloopt.ir.encode import encoded, rows
from hloopt.ir.module import Module
from hloopt.ir.normal import normal_header, normal_thread
from hloopt.ir.order import computation_orders

__all__ = ["fingerprint"]

_VERSION = b"hloopt module, version 1\n"
"""Begins what is hashed: a change of the canonical form gives other digests."""


def fingerprint(module: Module) -> str:
    """A hexadecimal digest of the canonical form, 128 bits.

    Equal modules have equal digests on every machine and in every version of Python; the values of
    elided constants are not known and count as equal.
    """
    digest = blake2b(_VERSION, digest_size=16)
    for name, value in normal_header(module).items():
        digest.update(_bytes(f"{name}={encoded(value, {})}\n"))
    numbers: dict[Computation, str] = {}
    for computation, order in computation_orders(module):
        digest.update(_bytes(f"computation {normal_thread(computation)}\n"))
        for line in rows(computation, order, numbers):
            digest.update(_bytes(line))
        numbers[computation] = str(len(numbers))
    digest.update(_bytes(f"entry {numbers[module.entry]}\n"))
    return digest.hexdigest()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
