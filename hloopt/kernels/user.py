"""User-defined kernels.

An object with

- ``name``           what ``--kernel`` calls it
- ``matches(site)``  whether it can run a site: true, or false, or a text that says why not
- ``source(site)``   CUDA C with one ``extern "C" __global__`` function: pointers to all leaves of the operands
                     in order (``const T* __restrict__``), then to those of the results, then ``int`` scalars
- ``launch(site)``   ``(grid, block)``, or ``(grid, block, scalars)``; a grid is a number or up to three

comes from an installed distribution (entry point group ``hloopt.kernels``, each named like the kernel) or from
a Python file named by ``--kernel``.  A ``Kernel`` row will do as well.  Such a kernel may be chosen once
it has computed what the interpreter computes, on random inputs, on the emulator.

::

    class Doubler:
        name = "my-double"

        def matches(self, site):
            instruction = site.region.instruction
            if instruction.opcode != "add" or instruction.operands[0] is not instruction.operands[1]:
                return "it adds no value to itself"
            return str(instruction.shape.dtype) == "f32"

        def source(self, site):
            return '''
                extern "C" __global__ void twice(
                    const float* __restrict__ x, const float* __restrict__, float* __restrict__ y, int n)
                {
                    int i = blockIdx.x * blockDim.x + threadIdx.x;
                    if (i < n) y[i] = 2 * x[i];
                }
            '''

        def launch(self, site):
            elements = site.region.results[0].shape.elements
            return -(-elements // 256), 256, (elements,)

    doubler = Doubler()
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

from hloopt.errors import HlooptError, UsageError
from hloopt.kernels.kernel import NO, YES, Disproved, Efficiency, Kernel, Site, Verdict
from hloopt.kernels.spec import Argument, Dim3, KernelSpec, Launch, LeafPlace, Tile
from hloopt.kernels.standalone import signature
from hloopt.user_code import line_in, run_file

__all__ = [
    "GROUP",
    "Verifier",
    "installed",
    "load_kernels",
    "of_object",
    "renamed",
    "verifier",
    "verify_with",
]

GROUP: Final = "hloopt.kernels"
"""The entry point group: each entry point is named like the kernel that it gives."""

_PARTS = ("name", "matches", "source", "launch")
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_DEFINED = re.compile(
    r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\("
    r"|__device__[^;{}()]*?\b(\w+)\s*\("
    r"|\bstruct\s+(?:alignas\s*\([^)]*\)\s*)?(\w+)\s*[{:]"
)
_VERIFIED: dict[tuple[str, str, str], str] = {}
"""By kernel, instruction and source: the verifier's answer."""


def installed() -> tuple[Kernel, ...]:
    """The kernels of installed distributions, by the order of their names.

    Raises ``UsageError`` naming the entry point that cannot be loaded or gives no kernel of its name.
    """
    from importlib.metadata import entry_points

    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        owner = entry.dist.name if entry.dist is not None else "unknown package"
        where = f"the entry point '{entry.name} = {entry.value}' of {GROUP} ({owner})"
        found.append(_installed(entry.name, entry.value, where, owner))
    return tuple(found)


@cache
def _installed(name: str, value: str, where: str, owner: str) -> Kernel:
    from importlib.metadata import entry_points

    for entry in entry_points(group=GROUP, name=name):
        if entry.value == value:
            try:
                loaded = entry.load()
            except (Exception, SystemExit) as error:
                problem = f"{type(error).__name__}: {error}"
                raise UsageError(f"{where} cannot be loaded: {problem}") from error
            kernel = _checked(loaded, where, owner)
            if kernel.name != name:
                raise UsageError(f"{where} gives a kernel called '{kernel.name}'")
            return kernel
    raise UsageError(f"{where} has gone")


def load_kernels(path: str) -> tuple[Kernel, ...]:
    """The kernels of a file: of Python, which is run, or of CUDA C (see ``kernels/cuda_file.py``).

    Raises ``UsageError`` when the file cannot be read or run, or has no kernel.
    """
    if path.endswith(".cu"):
        from hloopt.kernels.cuda_file import read_cuda_file

        return (of_object(read_cuda_file(path), path),)
    if not path.endswith(".py"):
        raise UsageError(f"{path}: neither a Python file (.py) nor CUDA C (.cu)")
    found = [
        _checked(value, f"{path}: {name}", path)
        for name, value in vars(run_file(path, "hloopt_kernel_file")).items()
        if isinstance(value, Kernel)
        or (not isinstance(value, type) and all(hasattr(value, part) for part in _PARTS))
    ]
    if not found:
        parts = ", ".join(_PARTS)
        raise UsageError(f"{path}: nothing in it is a kernel (an object with {parts})")
    return tuple(found)


def _checked(found: Any, where: str, owner: str) -> Kernel:
    """A kernel of what a file or a distribution gives.  Raises ``UsageError``."""
    if isinstance(found, Kernel):
        return found
    for part in _PARTS:
        if not hasattr(found, part):
            raise UsageError(f"{where} is not a kernel: it has no '{part}'")
    if not isinstance(found.name, str) or not _NAME.fullmatch(found.name):
        raise UsageError(f"{where} needs a name of letters, digits and -, not {found.name!r}")
    return of_object(found, owner)


def of_object(given: Any, owner: str) -> Kernel:
    """The row of an object with ``name``, ``matches``, ``source`` and ``launch``.

    An exception in it becomes a ``UsageError`` with its file and line.
    """
    name = str(given.name)

    def call(part: str, site: Site) -> Any:
        try:
            return getattr(given, part)(site)
        except HlooptError:
            raise
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            place = f"{owner}{line_in(error, owner)}" if owner.endswith(".py") else owner
            raise UsageError(
                f"{place}: {name}.{part} failed on %{site.region.instruction.name}: {problem}"
            ) from error

    def spec(site: Site, tile: Tile) -> KernelSpec:
        return KernelSpec(name, tile, (_launch(name, site, call("launch", site)),))

    def source(site: Site, _: KernelSpec, function: str) -> str:
        return renamed(str(call("source", site)), function, name)

    def fits(site: Site) -> Verdict:
        answer = call("matches", site)
        if isinstance(answer, str) or not answer:
            return NO(answer or f"{name} does not match it")
        return _verified(kernel, site)

    summary = (getattr(given, "summary", None) or given.__class__.__doc__ or "").strip()
    kernel = Kernel(
        name,
        summary.split("\n")[0] or "a kernel of the user's",
        fits,
        lambda _: YES("a user-defined kernel comes first"),
        lambda _: {},
        spec,
        source=source,
        efficiency=lambda *_: Efficiency(),
        owner=owner,
    )
    return kernel


def _verified(kernel: Kernel, site: Site) -> Verdict:
    """Whether a kernel computes what the interpreter does; once for the same instruction and source."""
    verify = verifier()
    if verify is None:
        return NO("it cannot be verified here: there is nothing to run it on")
    instruction, spec = site.region.instruction, kernel.spec(site, kernel.tile(site))
    assert kernel.source is not None, "the rows made here have one"
    key = (kernel.name, signature(instruction), kernel.source(site, spec, "f") + repr(spec.steps))
    if key not in _VERIFIED:
        _VERIFIED[key] = verify(site, kernel, spec)
    problem = _VERIFIED[key]
    if problem:
        return Disproved(False, problem)
    return YES("it computes what the interpreter does")


def _launch(name: str, site: Site, answer: Any) -> Launch:
    """A launch of what ``launch`` returns.  Raises ``UsageError``."""
    if not isinstance(answer, tuple) or len(answer) not in (2, 3):
        raise UsageError(f"{name}.launch answers {answer!r}, not (grid, block) or with scalars")
    grid, block = (_dim3(part, f"{name}.launch") for part in answer[:2])
    scalars: Sequence[Any] = answer[2] if len(answer) == 3 else ()
    if not all(type(scalar) is int and -(1 << 31) <= scalar < 1 << 31 for scalar in scalars):
        raise UsageError(f"{name}.launch: scalars are 32-bit integers, not {scalars!r}")
    threads = block[0] * block[1] * block[2]
    if threads > site.target.threads_per_block:
        most = site.target.threads_per_block
        raise UsageError(f"{name}.launch: a block of {threads} threads; there can be {most}")
    for size, limit in zip(grid, site.target.grid_limit, strict=True):
        if size > limit:
            raise UsageError(
                f"{name}.launch: a grid of {grid}; there can be {site.target.grid_limit}"
            )
    return Launch("", grid, block, tuple(_arguments(site)), tuple(scalars))


def _dim3(value: Any, where: str) -> Dim3:
    sizes = value if isinstance(value, (tuple, list)) else (value,)
    if not 1 <= len(sizes) <= 3 or not all(type(size) is int and size > 0 for size in sizes):
        raise UsageError(f"{where}: {value!r} is not one to three positive numbers")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _arguments(site: Site) -> Iterator[Argument]:
    for number, shape in enumerate(site.region.operands):
        if shape.byte_size:
            yield Argument(LeafPlace("operand", number), "in")
    for number, result in enumerate(site.region.results):
        if result.shape.byte_size:
            yield Argument(LeafPlace("result", number), "out")


def renamed(source: str, function: str, name: str) -> str:
    """Source whose kernel is called ``function``; what else it defines gets that name before its own.

    One program may hold a kernel several times.  Raises ``UsageError`` unless there is exactly one kernel.
    """
    defined = [match.group(1, 2, 3) for match in _DEFINED.finditer(source)]
    kernels = [first for first, _, _ in defined if first]
    if len(kernels) != 1:
        raise UsageError(f"{name}: its source has {len(kernels)} __global__ functions, not one")
    names = {kernels[0]: function}
    for _, device, struct in defined:
        own = device or struct
        if own and own not in names:
            names[own] = f"{function}_{own}"
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")
    return pattern.sub(lambda match: names[match[1]], source)


Verifier: TypeAlias = "Callable[[Site, Kernel, KernelSpec], str]"
"""Runs a site by a kernel beside the interpreter; returns what differs, an empty text where nothing does."""

_STATE: dict[str, Verifier] = {}


def verify_with(verifier: Verifier) -> None:
    """Set what verifies user-defined kernels; before, none of them fits anything."""
    _STATE["verifier"] = verifier


def verifier() -> Verifier | None:
    """What verifies user-defined kernels; None before it is set."""
    return _STATE.get("verifier")
