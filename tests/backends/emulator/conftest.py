"""A device with a program, arrays in and out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from hloopt.backends.emulator import EmulatorDevice, check_emulator
from hloopt.errors import DeviceError
from hloopt.kernels.spec import ArgumentRole
from hloopt.runtime.device import Pointer, PointerArgument

Array = np.ndarray[Any, Any]
Dim3 = tuple[int, int, int]


class Bench:
    """A device whose buffers are numbered in the order in which they are made."""

    def __init__(self, source: str, describe: dict[str, str], **options: Any) -> None:
        self.device = EmulatorDevice(**options)
        self.device.load(source, describe)

    def blank(
        self, byte_size: int, role: ArgumentRole = "out", *, partial: bool = False
    ) -> PointerArgument:
        """A buffer nobody has written."""
        pointer = Pointer(self.device.allocate(byte_size), 0, byte_size)
        return PointerArgument(pointer, role, partial)

    def buffer(self, array: Array, role: ArgumentRole = "in") -> PointerArgument:
        """A buffer with what an array holds."""
        made = self.blank(array.nbytes, role)
        self.device.upload(made.pointer, array)
        return made

    def launch(
        self,
        function: str,
        grid: int | Dim3,
        block: int | Dim3,
        arguments: Sequence[PointerArgument],
        *scalars: int,
    ) -> None:
        """Launch; a number is a size of one dimension."""
        sizes = [(size, 1, 1) if isinstance(size, int) else size for size in (grid, block)]
        self.device.launch(function, sizes[0], sizes[1], arguments, scalars)

    def read(self, argument: PointerArgument, dtype: Any) -> Array:
        """What a buffer holds, after everything has run."""
        return self.device.download(argument.pointer).view(dtype)


@pytest.fixture(scope="session")
def compiler() -> None:
    """Skip where the host has no C++ compiler."""
    try:
        check_emulator()
    except DeviceError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _optimised(optimised_on_the_emulator: None) -> None:
    """As users have them."""


@pytest.fixture
def bench(compiler: None) -> Iterator[Callable[..., Bench]]:
    """Makes benches, and closes them when the test ends."""
    made: list[Bench] = []

    def make(source: str, describe: dict[str, str] | None = None, **options: Any) -> Bench:
        made.append(Bench(source, describe or {}, **options))
        return made[-1]

    yield make
    for one in made:
        one.device.close()
