"""Functions of JAX with modules of hloopt's: ``optimize`` gives them a pipeline before XLA compiles them.

Needs jax, the extra ``xla``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hloopt.extras import install_command
from hloopt.ir import Module
from hloopt.pipelines import Given

try:
    from hloopt.jax.function import Function, Optimizing
    from hloopt.jax.install import Change, Installed
    from hloopt.jax.on_device import Native, OnDevice
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("jax", "jaxlib"):
        raise
    raise ModuleNotFoundError(
        f"hloopt.jax needs jax: {install_command('xla')}", name="jax"
    ) from error

__all__ = ["Change", "Function", "Installed", "compile", "install", "native", "optimize"]


def optimize(
    fun: Callable[..., Any], pipeline: Given = "O2", device: Any = None, **options: Any
) -> Function:
    """``jax.jit(fun)``, its module optimised by hloopt before XLA compiles it.

    ``pipeline`` is as ``hloopt.optimize`` takes it.  XLA fuses and lays out by itself: of fusions it gets what
    is within, of kernels nothing.  ``device`` and ``options`` are those of ``jax.jit``: ``static_argnums``,
    ``donate_argnames`` ...  The function can be called within ``jit`` and loops, and derived in either mode;
    the modules of its derivatives are optimised, too.  Under ``vmap`` JAX runs it as it is, and warns.

    Within ``shard_map`` each device runs it by itself.

    Raises ``UsageError`` for an unknown pass; when called, ``UnsupportedError`` for a function with effects,
    such as ``jax.debug.print``.
    """
    name = getattr(fun, "__name__", "function")
    if device is not None:
        options["device"] = device
    return Function(fun, Optimizing(name, pipeline), options)


def native(
    fun: Callable[..., Any],
    pipeline: Given = "O2",
    threads: int | None = None,
    **options: Any,
) -> Function:
    """``jax.jit(fun)`` on the CPU, run by a program that hloopt compiles, as the device ``native`` does.

    ``pipeline``, ``options``, derivatives and ``vmap`` are as of ``optimize``; ``threads`` share large work, as
    of ``hloopt.compile``.  XLA calls the program with the addresses of its own buffers; results take those of
    donated arrays, within ``jit`` and loops as well, where XLA copies what it still needs.

    Sharded arrays are gathered first, and each device runs all of it; within ``shard_map`` it has its part.

    Raises ``UsageError`` for an unknown pass, ``DeviceError`` where there is no C++ compiler; when called,
    ``UnsupportedError`` for what the device ``native`` cannot run, and for another platform than the CPU.
    """
    name = getattr(fun, "__name__", "function")
    return Function(fun, Native(name, pipeline, threads), options)


def install(
    pipeline: Given = "simplify,constant-folding,cse,dce",
    when: Callable[[Module], bool] | None = None,
    *,
    compare: bool = False,
    platforms: tuple[str, ...] = ("cpu",),
) -> Installed:
    """Run a pipeline within XLA, whenever it compiles: over what its loop fusions compute, one at a time.

    By then XLA has fused, laid out and copied, and none of that changes; fusions that write in place stay as
    they are, and passes that would fuse, copy or schedule are refused.  Each changed computation is verified,
    with ``compare`` also run by the interpreter beside XLA's on trial inputs; where anything is wrong, XLA's
    stays.  ``when`` says of a module whether to change it.  What fails warns, and leaves the module as it was.

    The result is a context manager; it lasts until ``remove``, and ``log`` says what it changed.  Functions
    that are compiled already stay as they are (``jax.clear_caches``).

    Raises ``UsageError`` for a pass that is not known, or may not run there.
    """
    return Installed(pipeline, when, compare, platforms)


def compile(
    fun: Callable[..., Any],
    device: str = "gpu",
    pipeline: Given = "O2",
    target: str | None = None,
    **options: Any,
) -> Function:
    """``jax.jit(fun)``, run by hloopt on one of its devices: ``gpu``, ``emulator``, ``native`` or ``cpu``.

    The whole plan runs, with hloopt's kernels; XLA sees one call.  On JAX's GPU that puts them into the
    stream of JAX's own work, on JAX's arrays: nothing is copied, and results take the memory of donated
    arrays.  What a plan needs besides is CuPy's, for which ``XLA_PYTHON_CLIENT_MEM_FRACTION`` has to leave
    room.  ``emulator`` takes a GPU's place on the CPU, behind the same call.  ``cpu`` and ``native``, and
    ``gpu`` where JAX works elsewhere, are called back with arrays in the host's memory.

    ``target`` names the device whose kernels are chosen; ``pipeline``, ``options``, derivatives and ``vmap``
    are as of ``optimize``.

    Raises ``UsageError`` for an unknown pass, device or target, ``DeviceError`` for a device that is not there;
    when called, ``UnsupportedError`` for what the device cannot run.
    """
    name = getattr(fun, "__name__", "function")
    return Function(fun, OnDevice(name, pipeline, device, target), options)
