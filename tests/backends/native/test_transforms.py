"""Fourier transforms natively: every kind, lengths of every kind, several dimensions, lines side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.backends.native.compile import CompiledNative, compile_native
from hloopt.backends.native.kernels.fft import LARGEST_RADIX, working
from hloopt.errors import UsageError
from hloopt.kernels.families.fft import radices, whole_transforms
from hloopt.kernels.plan import KernelStep, walk_steps
from hloopt.kernels.selection import KernelSelection
from hloopt.runtime.judge import judged
from hloopt.runtime.program import NativeOptions
from tests.helpers.joined_modules import joined
from tests.helpers.support import Array

pytestmark = pytest.mark.usefixtures("quickly_compiled")

KINDS = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
# One, primes that are passes, ones that are convolutions, products of each.
LENGTHS = (1, 2, 12, 30, 37, 64, 49, 74)


def _shape(kind: str, dims: Sequence[int]) -> str:
    return f"{kind}[{','.join(map(str, dims))}]"


def transform(
    kind: str, dims: Sequence[int], rank: int, *, wide: bool = False, given: Sequence[int] = ()
) -> str:
    """The last ``rank`` dimensions of arrays of ``dims``, real or complex as the kind has them.

    ``given`` are the dimensions of an operand whose lines are cut, or padded with zeros.
    """
    real, pair = ("f64", "c128") if wide else ("f32", "c64")
    half = (*dims[:-1], dims[-1] // 2 + 1)
    operand, result = {
        "FFT": ((pair, dims), (pair, dims)),
        "IFFT": ((pair, dims), (pair, dims)),
        "RFFT": ((real, dims), (pair, half)),
        "IRFFT": ((pair, half), (real, dims)),
    }[kind]
    lengths = ",".join(map(str, dims[len(dims) - rank :]))
    return f"""HloModule m
ENTRY e {{
  x = {_shape(operand[0], given or operand[1])} parameter(0)
  ROOT r = {_shape(*result)} fft(x), fft_type={kind}, fft_length={{{lengths}}}
}}
"""


def _normal(module: hloopt.Module, seed: int = 0) -> Array:
    shape = module.entry.parameters[0].array
    rng = np.random.default_rng(seed)
    found = rng.normal(size=shape.dims)
    if shape.dtype.is_complex:
        found = found + 1j * rng.normal(size=shape.dims)
    return found.astype(KINDS[shape.dtype.name])


def check(texts: Sequence[str]) -> CompiledNative:
    """All in one program of two threads, and of one: the interpreter's results, and the same bits."""
    modules = [hloopt.parse(text) for text in texts]
    whole = joined(modules)
    inputs = [_normal(module, number) for number, module in enumerate(modules)]
    program = compile_native(whole, NativeOptions(threads=2))
    kernels = {
        step.spec.kernel for step in walk_steps(program.plan.steps) if isinstance(step, KernelStep)
    }
    assert kernels == {"native-fft"}
    found = program.run(inputs)
    alone = compile_native(whole, NativeOptions(threads=1)).run(inputs)
    assert [one.tobytes() for one in found] == [one.tobytes() for one in alone]
    for module, array, got in zip(modules, inputs, found, strict=True):
        compared = judged(module, [array], [got], hloopt.evaluate(module, [array]))[0]
        assert compared.passed, (module.to_text(), str(compared))
    return program


@pytest.mark.every_value
@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize(
    ("kind", "wide"), list(product(["FFT", "IFFT", "RFFT", "IRFFT"], [False, True]))
)
def test_lengths(kind: str, wide: bool, turn: int) -> None:
    """One line by itself, and several of which the last group is not full."""
    check(
        [
            transform(kind, (*lines, length), 1, wide=wide)
            for length in LENGTHS[turn::4]
            for lines in ((), (2, 3))
        ]
    )


def test_several_dimensions() -> None:
    """Two and three, also of real arrays, whose last dimension is the first and comes back last."""
    check(
        [
            transform(kind, dims, rank, wide=wide)
            for dims, wide in (((4, 6, 10), True), ((3, 5, 37), False))
            for kind, rank in (("FFT", 3), ("IFFT", 2), ("RFFT", 3), ("IRFFT", 3))
        ]
    )


def test_lines_are_cut_and_padded() -> None:
    """Real transforms take as many elements as their length asks for; what is not there is 0."""
    check(
        [
            transform("RFFT", (3, 10), 1, given=(3, 14)),
            transform("RFFT", (3, 10), 1, given=(3, 7)),
            transform("RFFT", (3, 9), 1, given=(3, 4)),
            transform("IRFFT", (3, 10), 1, given=(3, 9)),
            transform("IRFFT", (3, 10), 1, given=(3, 4)),
            transform("IRFFT", (3, 9), 1, given=(3, 2)),
            transform("IRFFT", (3, 9), 1, given=(3, 8)),
        ]
    )


@settings(max_examples=4)
@given(st.integers(2, 400))
def test_any_length(length: int) -> None:
    """As exact as NumPy's own: errors grow with the logarithm of the length alone."""
    module = hloopt.parse(transform("FFT", (2, length), 1, wide=True))
    x = _normal(module, length)
    found = compile_native(module).run([x])[0]
    exact = np.exp(-2j * np.pi * (np.outer(np.arange(length), np.arange(length)) % length) / length)
    wanted = (x.astype(np.clongdouble) @ exact.astype(np.clongdouble)).astype(np.complex128)
    size = np.sqrt(length) * 2**-52 * (3 + np.log2(length)) * 3
    assert np.abs(found - wanted).max() <= size * np.abs(x).max() * 3


def test_large_lines() -> None:
    """More than the cache holds, by one thread each; many by several."""
    program = check([transform("FFT", (1 << 15,), 1, wide=True), transform("RFFT", (70, 2048), 1)])
    tiles = [
        dict(step.spec.tile)
        for step in walk_steps(program.plan.steps)
        if isinstance(step, KernelStep)
    ]
    assert tiles == [{"groups": 1}, {"groups": 7}]


def test_ways() -> None:
    """Half as many pairs of real numbers; a convolution for large primes; long lines one at a time."""

    def way(text: str) -> tuple[bool, int, int, int]:
        found = working(whole_transforms(hloopt.parse(text).entry.root)[0])
        return found.pairs, found.length, found.passes, found.wide

    assert way(transform("RFFT", (4, 16), 1)) == (True, 8, 8, 4)
    assert way(transform("RFFT", (4, 15), 1)) == (False, 15, 15, 4)
    assert way(transform("FFT", (16,), 1)) == (False, 16, 16, 1)
    assert way(transform("FFT", (4, 37), 1)) == (False, 37, 80, 4)
    assert way(transform("IRFFT", (4, 74), 1)) == (True, 37, 80, 4)
    assert way(transform("FFT", (4, 512), 1)) == (False, 512, 512, 1)
    assert max(radices(31 * 4)) == LARGEST_RADIX


def test_groups_of_a_task() -> None:
    """However lines are shared, the bits are the same; more groups than there are is an error."""
    module = hloopt.parse(transform("FFT", (9, 8, 12), 2))
    x = _normal(module)
    wanted = compile_native(module).run([x])[0]
    wish = KernelSelection(device="native", kernel=("op:fft=native-fft{groups=2}",))
    assert (
        compile_native(module, NativeOptions(threads=2, selection=wish)).run([x])[0] == wanted
    ).all()
    wish = KernelSelection(device="native", kernel=("op:fft=native-fft{groups=28}",))
    with pytest.raises(UsageError, match="groups=28; there are 27"):
        compile_native(module, NativeOptions(selection=wish))


@pytest.mark.parametrize(
    "text",
    [
        transform("FFT", (0, 4), 1),
        transform("FFT", (3, 4), 1).replace("c64[3,4] p", "c64[3,4]{0,1} p"),
    ],
    ids=["no elements", "columns"],
)
def test_what_is_made_ready_or_left(text: str) -> None:
    """Other orders are made row-major first; what has no elements is nobody's work."""
    module = hloopt.parse(text)
    x = _normal(module)
    assert (compile_native(module).run([x])[0].shape) == x.shape
    found = compile_native(module).run([x])
    compared = judged(module, [x], found, hloopt.evaluate(module, [x]))[0]
    assert compared.passed
