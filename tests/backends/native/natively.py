"""Running a module natively beside the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

import hloopt
from hloopt.backends.native.codegen import parts
from hloopt.backends.native.compile import compile_native
from hloopt.codegen.program import kernel_steps
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import Judge, Tolerance
from hloopt.runtime.program import NativeOptions
from tests.helpers.kernel_code import KernelCode
from tests.helpers.planned import same_bits
from tests.helpers.support import Array
from tests.helpers.verified import verify_native

__all__ = ["check_native_kernels"]


def check_native_kernels(
    text: str, *kernels: str, inputs: Sequence[Array] | None = None, exact: bool = False
) -> KernelCode:
    """Hold a module's results against the interpreter's, and those of one thread against those of three.

    Only ``kernels`` may run it, and the verifier passes them.  Returns its functions.
    """
    module = hloopt.parse(text)
    hloopt.verify(module)
    given = generate(module, 0) if inputs is None else list(inputs)
    want = hloopt.evaluate(module, given)
    program = compile_native(module, NativeOptions(threads=1))
    verify_native(program.plan)
    chosen = {step.spec.kernel for step in kernel_steps(program.plan.steps)}
    assert chosen == set(kernels), program.source
    got = program.run(given)
    tolerance = Tolerance(ulp=0) if exact else Tolerance()
    judge = Judge.of(module, [given], [want], tolerance=tolerance)
    for number, comparison in enumerate(judge.compare_all([got], [want])):
        assert comparison.passed, f"result {number}: {comparison}\n{program.source}"
    shared = compile_native(module, NativeOptions(threads=3)).run(given)
    for one, other in zip(got, shared, strict=True):
        assert same_bits(one, other), f"threads matter\n{program.source}"
    return KernelCode.of_parts(parts(program.plan))
