"""CuPy: the functions as ``RawKernel``, and a function of arrays that runs them."""

from __future__ import annotations

from collections.abc import Iterator

from hloopt.exports.check import KernelCheck
from hloopt.exports.cuda_file import header, key_kind, number_bytes
from hloopt.exports.kernel import (
    Bytes,
    CopyBytes,
    ExportArray,
    FillBytes,
    KernelAction,
    KernelExport,
)
from hloopt.exports.text import filled, python_string, python_table
from hloopt.types import DType

__all__ = ["numpy_name", "python_check", "python_launcher", "write_cupy"]

_ONLY_HERE = frozenset(("f16", "f32", "f64"))


def write_cupy(kernel: KernelExport, check: KernelCheck) -> str:
    """The file; it is imported without CuPy and without a GPU, and needs both when it is called."""
    return filled(
        "cupy.py.txt",
        **header(kernel, "#"),
        source=python_string(kernel.program.text),
        argument_table=python_table(map(_row, kernel.arguments)),
        result_table=python_table(map(_row, kernel.results)),
        launcher=python_launcher(kernel),
        check=python_check(kernel, check),
    )


def numpy_name(kind: DType) -> str:
    """The name of a type in NumPy; of one that NumPy lacks that of the unsigned integer of its size."""
    if kind.is_float and kind.name not in _ONLY_HERE:
        return f"uint{kind.bits}"
    return kind.numpy.name


def _row(array: ExportArray) -> tuple[str, str, tuple[int, ...]]:
    return array.name, numpy_name(array.shape.dtype), array.shape.dims


def python_launcher(kernel: KernelExport) -> str:
    """The function ``enqueue``: pointers as integers, on a stream of CuPy."""
    names = [array.name for array in (*kernel.arguments, *kernel.results)]
    lines = [line for action in kernel.actions for line in _lines(action)] or ["pass"]
    return filled(
        "launcher.py.txt",
        pointers=", ".join(names),
        launches="\n".join(f"        {line}" for line in lines),
    )


def _lines(action: KernelAction) -> Iterator[str]:
    if isinstance(action, CopyBytes):
        places = f"{_place(action.target)}, {_place(action.source)}, {action.source.size}"
        yield f"runtime.memcpyAsync({places}, runtime.memcpyDeviceToDevice, stream.ptr)"
    elif isinstance(action, FillBytes):
        place = f"{_place(action.target)}, {action.value}, {action.target.size}"
        yield f"runtime.memsetAsync({place}, stream.ptr)"
    else:
        call = f"function({action.function!r})"
        if action.shared:
            yield f"{call}.max_dynamic_shared_size_bytes = {action.shared}"
        given = [*map(_place, action.pointers), *(f"np.int32({one})" for one in action.scalars)]
        arguments = f"({', '.join(given)},)"
        yield f"{call}({action.grid}, {action.block}, {arguments}, shared_mem={action.shared})"


def _place(place: Bytes) -> str:
    if not place.name:
        return "0"
    return f"{place.name} + {place.offset}" if place.offset else place.name


def python_check(kernel: KernelExport, check: KernelCheck) -> str:
    """The functions ``check_inputs`` and ``check``, with the numbers that they need."""
    inputs = [
        (numpy_name(array.shape.dtype), array.shape.dims, given.salt, given.values.hex())
        for array, given in zip(kernel.arguments, check.inputs, strict=True)
    ]
    expected = [
        (
            key_kind(array.shape.dtype),
            number_bytes(array.shape.dtype),
            [(one.at, one.value, one.least, one.most) for one in rows],
        )
        for array, rows in zip(kernel.results, check.expected, strict=True)
    ]
    return filled(
        "check.py.txt",
        name=kernel.name,
        inputs=python_table(inputs),
        expected=python_table(expected),
    )
