"""``cartpole.cu`` on a device, held against what XLA recorded of ``naive.hlo``.

    python samples/cartpole/yardstick.py [--device gpu|emulator] [--environments N] [--steps N]

Prints environment steps per second: the median of ``--repeat`` launches, on a GPU by its own clock.
"""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
FUNCTION = "cartpole"
SOURCE = (HERE / "cartpole.cu").read_text()
# A warp for each of an H200's 132 multiprocessors before any has two.
FEW = 132 * 32


def launch_of(environments: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Grid and block: small blocks spread few environments over the whole device."""
    threads = 32 if environments <= FEW else 128
    return (-(-environments // threads), 1, 1), (threads, 1, 1)


class Yardstick:
    """The kernel on a device of hloopt, its results in place."""

    def __init__(self, device: Any, key: Any, environments: int, steps: int) -> None:
        from hloopt.runtime.device import Pointer, PointerArgument

        self.device, self.shape = device, [environments, steps]
        device.load(SOURCE, {})

        def place(byte_size: int) -> Pointer:
            return Pointer(device.allocate(byte_size), 0, byte_size)

        key = np.ascontiguousarray(key, np.uint32)
        source = place(key.nbytes)
        self.results = [place(4 * rows * environments) for rows in (4, 1, 1)]
        self.arguments = [
            PointerArgument(source, "in"),
            *(PointerArgument(target, "out") for target in self.results),
        ]
        device.upload(source, key)

    def launch(self) -> None:
        """All steps of all environments."""
        grid, block = launch_of(self.shape[0])
        self.device.launch(FUNCTION, grid, block, self.arguments, self.shape)

    def read(self) -> list[Any]:
        """State f32[4, N], steps since the last reset s32[N], episodes that ended s32[N]."""
        state, alive, ended = (self.device.download(target) for target in self.results)
        return [
            state.view(np.float32).reshape(4, self.shape[0]),
            alive.view(np.int32),
            ended.view(np.int32),
        ]


def seconds(yardstick: Yardstick, repeat: int) -> float:
    """The median of ``repeat`` launches: on a GPU by its own clock, elsewhere by the host's."""
    from hloopt.backends.cuda import CudaDevice
    from hloopt.runtime.timing import measure

    if isinstance(yardstick.device, CudaDevice):
        from hloopt.backends.cuda.timing import Stopwatch

        return Stopwatch(yardstick.device).whole(yardstick.launch, repeat).median

    def launch_and_wait() -> None:
        yardstick.launch()
        yardstick.read()

    return measure(launch_and_wait, repeat).median


def compare(results: list[Any], steps: int, environments: int) -> str:
    """How many environments ended elsewhere than XLA's did; empty where there is no record of such a run."""
    with np.load(HERE / "naive.npz") as record:
        wanted = [record[f"out_{number}"] for number in range(3)]
    if environments != wanted[1].size or steps != 1000:
        return ""
    differ = (results[1] != wanted[1]) | (results[2] != wanted[2])
    differ |= (np.abs(results[0] - wanted[0]) > 1e-3).any(axis=0)
    return f"{differ.sum()} of {environments} environments differ from XLA's"


def main() -> None:
    """Run, compare, time."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("gpu", "emulator"), default="gpu")
    parser.add_argument("--environments", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    if options.device == "gpu":
        from hloopt.backends.cuda import CudaDevice
        from hloopt.backends.nvrtc import TIMED

        device: Any = CudaDevice(flags=TIMED)
    else:
        from hloopt.backends.emulator import EmulatorDevice

        device = EmulatorDevice()
    with closing(device), np.load(HERE / "naive.npz") as record:
        yardstick = Yardstick(device, record["in_0"], options.environments, options.steps)
        took = seconds(yardstick, options.repeat)
        said = compare(yardstick.read(), options.steps, options.environments)
    rate = options.environments * options.steps / took
    print(f"{options.device}: {took:.3g} s, {rate:.3g} environment steps/s {said}".rstrip())


if __name__ == "__main__":
    main()
