"""Vectors and exchange between lanes, run by the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from hloopt.backends.emulator import EmulatorDevice, Mode, check_emulator
from hloopt.codegen.device import Uses
from hloopt.errors import DeviceError, EvaluationError
from hloopt.kernel_ir.expressions import Array, Var
from hloopt.kernel_ir.printer import expression_text
from hloopt.kernel_ir.types import INT, VOID, vector
from hloopt.runtime.device import Pointer, PointerArgument
from hloopt.types import DTYPES, DType

_KINDS = [DTYPES[name] for name in ("s8", "bf16", "f32", "c64", "f64", "c128")]

_LANES = np.arange(32)
# What lane n of a warp gets from which lane.
_EXCHANGES: dict[str, tuple[int, np.ndarray]] = {
    "shuffle_down": (4, np.where(_LANES + 4 < 32, _LANES + 4, _LANES)),
    "shuffle_up": (3, np.where(_LANES >= 3, _LANES - 3, _LANES)),
    "shuffle_xor": (16, _LANES ^ 16),
    "shuffle_index": (5, np.full(32, 5)),
}


@pytest.fixture(scope="module", params=["fast", "check"])
def run(request: pytest.FixtureRequest) -> Iterator[Callable[..., np.ndarray]]:
    """A function that runs a kernel of the program below and gives what it wrote."""
    try:
        check_emulator()
    except DeviceError as error:
        pytest.skip(str(error))
    mode: Mode = request.param
    device = EmulatorDevice(mode=mode)
    device.load(_program(), {})

    def launched(function: str, given: np.ndarray, offset: int = 0) -> np.ndarray:
        pointers = [Pointer(device.allocate(given.nbytes), 0, given.nbytes) for _ in range(2)]
        device.upload(pointers[0], given)
        arguments = [PointerArgument(pointers[0], "in"), PointerArgument(pointers[1], "out", True)]
        device.launch(function, (1, 1, 1), (32, 1, 1), arguments, (offset,))
        return device.download(pointers[1]).view(given.dtype)

    launched.mode = mode  # type: ignore[attr-defined]
    yield launched
    device.close()


def _width(kind: DType) -> int:
    return 128 // kind.bits


def _program() -> str:
    uses, kernels = Uses(), ""
    for kind in _KINDS:
        name, i = uses.type(kind), Var("i", INT)
        p, q = (Array(memory, name, (), "global") for memory in "pq")
        head = (
            'extern "C" __global__ void __launch_bounds__(32) '
            f"%s(const {name}* __restrict__ p, {name}* __restrict__ q, int offset) {{\n"
            "  int i = threadIdx.x;\n"
        )
        for exchange, (argument, _) in _EXCHANGES.items():
            kernels += head % f"{exchange}_{kind.name}"
            value = uses.call(exchange, p[i], argument, type=name)
            kernels += f"  q[i] = {expression_text(value)};\n}}\n"
        width = _width(kind)
        type = vector(name, width)
        source = p.address(Var("offset", INT) + i * width)
        load = uses.call(f"load_vector<{width}>", source, type=type)
        store = uses.call("store_vector", q.address(i * width), Var("w", type), type=VOID)
        kernels += head % f"vector_{kind.name}"
        kernels += f"  {type} v = {expression_text(load)};\n"
        kernels += f"  {type} w;\n"
        kernels += f"  for (int k = 0; k < {width}; ++k) w.lane[k] = v.lane[{width - 1} - k];\n"
        kernels += f"  {expression_text(store)};\n}}\n"
    return uses.source() + kernels


def _bytes(count: int, kind: DType) -> np.ndarray:
    raw = np.random.default_rng(1).integers(0, 256, count * kind.bits // 8, dtype=np.uint8)
    return raw.view(f"V{kind.bits // 8}")


@pytest.mark.parametrize("kind", _KINDS, ids=[kind.name for kind in _KINDS])
def test_lanes_exchange_values_of_any_type(kind: DType, run: Callable[..., np.ndarray]) -> None:
    """A shuffle moves 1 to 16 bytes, all of them; lanes without a partner get their own."""
    given = _bytes(32, kind)
    for exchange, (_, source) in _EXCHANGES.items():
        got = run(f"{exchange}_{kind.name}", given)
        assert got.tobytes() == given[source].tobytes(), exchange


@pytest.mark.parametrize("kind", _KINDS, ids=[kind.name for kind in _KINDS])
def test_vectors_of_16_bytes(kind: DType, run: Callable[..., np.ndarray]) -> None:
    """Elements that are read and written at once are those that lie there."""
    width = _width(kind)
    given = _bytes(32 * width, kind)
    got = run(f"vector_{kind.name}", given)
    assert got.tobytes() == given.reshape(32, width)[:, ::-1].tobytes()


def test_a_vector_at_a_wrong_address_is_found(run: Callable[..., np.ndarray]) -> None:
    """The checks of the emulator see the alignment of what the library reads at once."""
    if run.mode == "fast":  # type: ignore[attr-defined]
        pytest.skip("only checked runs look at addresses")
    with pytest.raises(EvaluationError, match="align"):
        run("vector_f32", _bytes(33 * 4, DTYPES["f32"]), offset=1)
