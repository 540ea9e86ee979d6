"""Verifying the kernel IR of a whole program."""

from __future__ import annotations

from collections.abc import Iterable

from hloopt.backends.native.codegen.families import emitters
from hloopt.codegen.device import Uses
from hloopt.codegen.program import KernelProgram, kernel_steps, launched
from hloopt.codegen.writer import write_function
from hloopt.kernel_ir.statements import Function
from hloopt.kernel_ir.verifier import ElementPlaces, verify
from hloopt.kernels.plan import Plan

__all__ = ["verify_native", "verify_program"]


def verify_program(program: KernelProgram) -> ElementPlaces:
    """Verify the kernels of a program; raises ``KernelError`` for what breaks a rule."""
    return _verify(part.function for part in program.parts if part.function is not None)


def verify_native(plan: Plan) -> ElementPlaces:
    """As ``verify_program``, the kernels for this processor."""
    uses = Uses(native=True)
    return _verify(
        write_function(step, launch, emitters()[step.spec.kernel], uses, native=True)
        for step in kernel_steps(plan.steps)
        for launch in launched(step)
    )


def _verify(functions: Iterable[Function]) -> ElementPlaces:
    found = [verify(function) for function in functions]
    return ElementPlaces(sum(one.certain for one in found), sum(one.unknown for one in found))
