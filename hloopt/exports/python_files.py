"""JAX and PyTorch: the kernel on a GPU, and the same by the framework's own operations elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from hloopt.exports.check import KernelCheck
from hloopt.exports.cuda_file import c_launcher, header
from hloopt.exports.cupy_file import python_check, python_launcher
from hloopt.exports.kernel import ExportArray, KernelExport
from hloopt.exports.text import filled, python_string, python_table
from hloopt.exports.translate import Framework, translated
from hloopt.types import DTYPES, ArrayShape, leaves

__all__ = ["JAX", "TORCH", "write_jax", "write_torch"]

JAX: Final = Framework(
    "JAX",
    "ops_jax.py.txt",
    {name: kind.numpy.name for name, kind in DTYPES.items() if kind.is_array and kind.bits >= 8},
)

_TORCH_NAMES: Final = {
    "pred": "bool",
    **{f"s{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2fnuz": "float8_e5m2fnuz",
}
TORCH: Final = Framework(
    "PyTorch",
    "ops_torch.py.txt",
    {name: name for name in _TORCH_NAMES},
    "load({0}, {1!r})",
    "save({0}, {1!r})",
)


def write_jax(kernel: KernelExport, check: KernelCheck) -> str:
    """The file; its CUDA C is that of ``cuda``, with a handler for XLA in the place of its ``main``.

    Raises ``UnsupportedError`` for what JAX does not have.
    """
    made = translated(kernel, JAX)
    arrays = (*kernel.arguments, *kernel.results)
    wide = {"s64", "u64", "f64", "c128"}
    types = {one.dtype.name for one in _shapes(kernel)}
    return filled(
        "jax.py.txt",
        **header(kernel, "#"),
        source=python_string(_with_handler(kernel, arrays)),
        argument_table=python_table(_row(one, JAX.types) for one in kernel.arguments),
        result_table=python_table(_row(one, JAX.types) for one in kernel.results),
        wide=bool(wide & types),
        functions=made.functions,
        fallback=made.fallback,
        check=python_check(kernel, check),
    )


def write_torch(kernel: KernelExport, check: KernelCheck) -> str:
    """The file; raises ``UnsupportedError`` for what PyTorch does not have."""
    if not kernel.arguments:
        problem = "it has no arguments, and an operator of PyTorch is called with tensors"
        raise kernel.module.unsupported(kernel.module.entry.root, problem)
    made = translated(kernel, TORCH)
    single = len(kernel.results) == 1
    given = [one.name for one in kernel.arguments]
    returned = ", ".join("torch.Tensor" for _ in kernel.results)
    return filled(
        "torch.py.txt",
        **header(kernel, "#"),
        source=python_string(kernel.program.text),
        argument_table=python_table(_row(one, _TORCH_NAMES) for one in kernel.arguments),
        result_table=python_table(_row(one, _TORCH_NAMES) for one in kernel.results),
        launcher=python_launcher(kernel),
        functions=made.functions,
        fallback=made.fallback,
        parameters=", ".join(f"{name}: torch.Tensor" for name in given),
        given=", ".join(given),
        returned=returned if single else f"tuple[{returned}]",
        one_of_made="made[0]" if single else "made",
        check=python_check(kernel, check),
    )


def _row(array: ExportArray, names: Mapping[str, str]) -> tuple[str, str, tuple[int, ...]]:
    return array.name, names[array.shape.dtype.name], array.shape.dims


def _shapes(kernel: KernelExport) -> list[ArrayShape]:
    return [
        leaf
        for one in kernel.module.instructions()
        for leaf in leaves(one.shape)
        if isinstance(leaf, ArrayShape)
    ]


def _with_handler(kernel: KernelExport, arrays: Sequence[ExportArray]) -> str:
    """CUDA C: the functions, what enqueues them, and the handler that XLA calls."""
    given, made = len(kernel.arguments), len(kernel.results) + 1
    names = [*(array.name for array in arrays), "workspace"]
    kinds = ["xla::ffi::AnyBuffer"] * given + ["xla::ffi::Result<xla::ffi::AnyBuffer>"] * made
    dots = ["."] * given + ["->"] * made
    handler = filled(
        "ffi.cu",
        name=kernel.name,
        ffi_parameters=", ".join(map(" ".join, zip(kinds, names, strict=True))),
        ffi_pointers=", ".join(
            f"{name}{dot}untyped_data()" for name, dot in zip(names, dots, strict=True)
        ),
        ffi_binding=".Arg<xla::ffi::AnyBuffer>()" * given + ".Ret<xla::ffi::AnyBuffer>()" * made,
    )
    return filled(
        "library.cu",
        **header(kernel, "//"),
        **c_launcher(kernel),
        source=kernel.program.text,
        handler=handler,
    )
