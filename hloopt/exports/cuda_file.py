"""CUDA C: the functions, one of the host that enqueues them, and a ``main`` that checks them on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.backends.nvrtc import architecture
from hloopt.exports.check import ExpectedNumber, KernelCheck, is_signed
from hloopt.exports.kernel import (
    Bytes,
    CopyBytes,
    FillBytes,
    KernelAction,
    KernelExport,
    LaunchFunction,
)
from hloopt.exports.text import c_bytes, c_string, commented, filled, printable
from hloopt.types import DType

__all__ = ["array_lines", "c_launcher", "header", "key_kind", "number_bytes", "write_cuda"]

_MOST_SHARED = 48 * 1024  # bytes of shared memory that a block may have without asking for more


def write_cuda(kernel: KernelExport, check: KernelCheck) -> str:
    """The file: nvcc builds a program of it, with ``NO_MAIN`` an object; NVRTC compiles its functions alone."""
    count = len(kernel.arguments) + len(kernel.results)
    return filled(
        "kernel.cu",
        **header(kernel, "//"),
        **c_launcher(kernel),
        source=kernel.program.text,
        tables="\n".join(_tables(kernel, check)),
        memory=", ".join(f"memory[{number}]" for number in range(count)),
    )


def header(kernel: KernelExport, mark: str) -> dict[str, object]:
    """What the head of each file says of its kernel."""
    module = kernel.module
    return {
        "title": printable(f"{module.entry.root.opcode} %{kernel.instruction}"),
        "name": kernel.name,
        "instruction": printable(f"%{kernel.instruction}"),
        "kernel": printable(kernel.kernel),
        "target": printable(kernel.target.name),
        "arch": architecture(kernel.target.capability),
        "workspace_size": kernel.workspace,
        "arrays": commented(array_lines(kernel), mark),
    }


def array_lines(kernel: KernelExport) -> Iterator[str]:
    """What the arguments and results are, a line each."""
    yield ""
    for array in kernel.arguments:
        yield f"  {array.name}: {array.shape}"
    for array in kernel.results:
        yield f"  {array.name}: {array.shape}, the result"


def c_launcher(kernel: KernelExport) -> dict[str, object]:
    """The parameters and the body of the function that enqueues the kernel."""
    arguments = [f"const void* {array.name}" for array in kernel.arguments]
    results = [f"void* {array.name}" for array in kernel.results]
    return {
        "parameters": ", ".join((*arguments, *results)),
        "launches": "\n".join(line for action in kernel.actions for line in _c_lines(action)),
    }


def _c_lines(action: KernelAction) -> Iterator[str]:
    if isinstance(action, CopyBytes):
        places = f"{_c_place(action.target)}, {_c_place(action.source)}, {action.source.size}"
        yield f"  status = cudaMemcpyAsync({places}, cudaMemcpyDeviceToDevice, stream);"
    elif isinstance(action, FillBytes):
        place = f"{_c_place(action.target)}, {action.value}, {action.target.size}"
        yield f"  status = cudaMemsetAsync({place}, stream);"
    else:
        yield from _c_launch(action)
    yield "  if (status != cudaSuccess) return status;"


def _c_launch(action: LaunchFunction) -> Iterator[str]:
    yield "  {"
    yield f"    void* pointers[] = {{{', '.join(map(_c_place, action.pointers))}}};"
    if action.scalars:
        yield f"    int scalars[] = {{{', '.join(map(str, action.scalars))}}};"
    given = [f"&pointers[{number}]" for number in range(len(action.pointers))]
    given += [f"&scalars[{number}]" for number in range(len(action.scalars))]
    yield f"    void* given[] = {{{', '.join(given)}}};"
    function = f"(const void*){action.function}"
    if action.shared > _MOST_SHARED:
        attribute = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        yield f"    status = cudaFuncSetAttribute({function}, {attribute}, {action.shared});"
        yield "    if (status != cudaSuccess) return status;"
    grid, block = (f"dim3{size}" for size in (action.grid, action.block))
    yield f"    status = cudaLaunchKernel({function}, {grid}, {block}, given, {action.shared}, stream);"
    yield "  }"


def _c_place(place: Bytes) -> str:
    if not place.name:
        return "nullptr"
    return f"(char*){place.name} + {place.offset}" if place.offset else f"(void*){place.name}"


def number_bytes(kind: DType) -> int:
    """The bytes of a number of a type: of half a complex element."""
    return kind.bytes // 2 if kind.is_complex else kind.bytes


def key_kind(kind: DType) -> str:
    """How bits become an integer in the order of the values: ``f``, ``i`` or ``u``."""
    return "f" if is_signed(kind) else "i" if kind.kind == "signed" else "u"


def _tables(kernel: KernelExport, check: KernelCheck) -> Iterator[str]:
    inputs, results = [], []
    for number, (array, given) in enumerate(zip(kernel.arguments, check.inputs, strict=True)):
        yield f"static const unsigned char values_{number}[] = {c_bytes(given.values)};"
        sizes = f"{given.elements}, {given.count}, {array.shape.dtype.bytes}"
        inputs.append(f"    {{{sizes}, {given.salt}U, values_{number}}},")
    for array, rows in zip(kernel.results, check.expected, strict=True):
        kind = array.shape.dtype
        head = f"{array.shape.byte_size}, {number_bytes(kind)}, '{key_kind(kind)}'"
        found = ", ".join(map(_c_expected, rows))
        results.append(f"    {{{head}, {{{found}}}}},")
    yield "\n".join(["static const std::vector<Input> inputs = {", *inputs, "};"])
    yield "\n".join(["static const std::vector<Result> results = {", *results, "};", ""])


def _c_expected(one: ExpectedNumber) -> str:
    least, most = map(_c_integer, (one.least, one.most))
    return f"{{{one.at}, {least}, {most}, {c_string(one.value)}}}"


def _c_integer(value: int) -> str:
    return f"(long long){value & (1 << 64) - 1:#x}ULL"
