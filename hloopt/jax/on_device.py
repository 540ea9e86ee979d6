"""JAX's calls run by hloopt's programs on one of its devices: kernels and all, nothing by XLA.

Programs for the host's processor are called with the addresses of JAX's arrays: nothing is copied.  On a GPU,
XLA calls a function of Python, by its foreign function interface, with the addresses of inputs and results
there and the stream in which it works: that puts our kernels into the stream, and nothing is copied or waited
for.  The emulator stands in for a GPU on the CPU, behind the same call.  Devices that need arrays in the
host's memory, or are not where JAX works, are called back by JAX.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from weakref import finalize

import jax
import numpy as np
from jax.interpreters import mlir

from hloopt.backends import check_device, compile_module, options_for
from hloopt.backends.called_program import CalledProgram
from hloopt.backends.device_compile import Prepared, open_device, prepare
from hloopt.backends.native.compile import compile_native
from hloopt.backends.native.entry import NativeEntry, PythonEntry
from hloopt.backends.native.toolchain import check_native
from hloopt.errors import UnsupportedError, UsageError
from hloopt.ir import Module
from hloopt.jax.entries import call_entry
from hloopt.jax.function import Optimizing
from hloopt.jax.modules import module_of, platform_of
from hloopt.kernels.buffers.slots import array_leaves
from hloopt.kernels.selection import KernelSelection
from hloopt.pipelines import Given
from hloopt.runtime.program import DeviceOptions, NativeOptions, NumpyOptions
from hloopt.targets import find_gpu

__all__ = ["Native", "OnDevice"]

_CALLED: Final = {"gpu": "cuda", "emulator": "cpu"}
"""The devices that are called with addresses, and the platform of JAX's whose addresses they take."""


class Native(Optimizing):
    """JAX's module after a pipeline, compiled by the host's C++ compiler.

    Raises ``DeviceError`` where there is none.
    """

    def __init__(self, name: str, pipeline: Given, threads: int | None) -> None:
        super().__init__(name, pipeline)
        check_native()
        self._threads = threads

    def lower(
        self, ctx: Any, operands: Sequence[Any], jaxpr: Any, donated: Sequence[bool]
    ) -> Sequence[Any]:
        """A custom call that runs the compiled program."""
        if (platform := platform_of(ctx)) != "cpu":
            raise UnsupportedError(
                f"a program for the host's processor cannot run on {platform}", name=self.name
            )
        module = self.made_of(_for_one(module_of(jaxpr, self.name, platform, donated)))
        options = NativeOptions(threads=self._threads)
        return call_entry(
            ctx,
            operands,
            "hloopt_native",
            platform,
            module,
            f"{self._threads} {module.to_text()}",
            lambda: NativeEntry(compile_native(module, options)),
        )


class OnDevice(Optimizing):
    """JAX's module after a pipeline, run by hloopt on a device.

    Raises ``UsageError`` for an unknown device or target, ``DeviceError`` for a device that is not there.
    """

    def __init__(self, name: str, pipeline: Given, device: str, target: str | None) -> None:
        super().__init__(name, pipeline)
        check_device(device)
        selection = None
        if target is not None:
            if device == "native":
                raise UsageError("device 'native' is this processor: it takes no target")
            find_gpu(target)
            selection = KernelSelection(target=target)
        self._device = device
        self._options = options_for(device, NumpyOptions(), selection)

    def lower(
        self, ctx: Any, operands: Sequence[Any], jaxpr: Any, donated: Sequence[bool]
    ) -> Sequence[Any]:
        """A call that runs the program."""
        platform = platform_of(ctx)
        module = self.made_of(_for_one(module_of(jaxpr, self.name, platform, donated)))
        if _CALLED.get(self._device) != platform:
            return self._called_back(ctx, operands, module)
        options = self._options
        assert isinstance(options, DeviceOptions)
        prepared = prepare(module, options, results_apart=True)
        calls = _Calls(prepared, self._device, options, len(operands))
        return call_entry(
            ctx,
            operands,
            "hloopt_on_stream",
            platform,
            module,
            f"{self._device} {options} {module.to_text()}",
            lambda: PythonEntry(calls, len(operands) + 2, len(jaxpr.out_avals)),
        )

    def _called_back(self, ctx: Any, operands: Sequence[Any], module: Module) -> Sequence[Any]:
        program = compile_module(module, self._device, self._options)
        # Random keys of JAX are arrays here.
        given, results = (
            [jax.core.ShapedArray(one.dims, one.dtype.numpy) for one in arrays]
            for arrays in (
                [one.array for one in module.entry.parameters],
                array_leaves(module.entry.result_shape),
            )
        )

        def run(*arrays: Any) -> list[Any]:
            return program.run([np.asarray(one) for one in arrays])

        def called(*values: Any) -> Any:
            return jax.pure_callback(run, results, *values)

        lower = mlir.lower_fun(called, multiple_results=True)
        found: Sequence[Any] = lower(ctx.replace(avals_in=given, avals_out=results), *operands)
        return found


def _for_one(module: Module) -> Module:
    """A module, if it is for one device."""
    for one in module.instructions():
        if one.custom_call_target == "xla.sdy.GlobalToLocalShape":
            raise UnsupportedError(
                "it is for several devices (shard_map), and a program of hloopt's runs on one: give shard_map "
                "what hloopt.jax returns, or use hloopt.jax.optimize",
                name=module.name,
            )
    return module


class _Calls:
    """What XLA's calls of a program run; on each of several devices a program of its own, made when it is used.

    Inputs end with the stream and the number of the device.
    """

    def __init__(
        self, prepared: Prepared, device: str, options: DeviceOptions, inputs: int
    ) -> None:
        self._prepared, self._device, self._options = prepared, device, options
        self._inputs = inputs
        self._programs: dict[int, CalledProgram] = {}
        # Not when Python ends: what JAX has by then may be gone.
        finalize(self, _close, self._programs).atexit = False

    def __call__(self, inputs: list[int], results: list[int]) -> None:
        """Put a run into the stream."""
        stream, number = inputs[self._inputs :]
        program = self._programs.get(number)
        if program is None:
            opened = open_device(self._device, self._options, number)
            program = self._programs[number] = CalledProgram(self._prepared, opened)
        program.run_at(inputs[: self._inputs], results, stream)


def _close(programs: dict[int, CalledProgram]) -> None:
    for program in programs.values():
        program.close()
