"""Random bits are XLA's, bit for bit: every algorithm, state and type it has, in arrays of many shapes."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.types import dtype
from tests.oracle.oracle import ask, available

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]

LAST = 2**64 - 1
STATES = {
    2: [(0x123456789ABCDEF0, LAST), (1 << 63, LAST - 6)],
    3: [(7, LAST, 3), (0xFEDCBA9876543210, LAST - 2, LAST)],
}
KINDS = [
    (algorithm, size)
    for algorithm, sizes in (
        ("rng_three_fry", [2]),
        ("rng_philox", [2, 3]),
        ("rng_default", [2, 3]),
    )
    for size in sizes
]
KEPT = ["u32", "u64", "u16"]
OTHERS = [
    *("u8", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64"),
    *("u4", "s4", "u2", "s2", "f8e4m3fn", "f8e5m2"),
]
SHAPES = [
    (),
    (1,),
    (2,),
    (5,),
    (9, 4),
    (3, 3),
    (3, 5, 7),
    (5, 2, 3),
    (1, 1),
    (0,),
    (257,),
    (3, 0, 2),
]


def module_of(algorithm: str, size: int, shapes: list[tuple[str, tuple[int, ...]]]) -> str:
    """One generator for each type and dimensions; all of them have the state that is the parameter."""
    lines, names = [f"  s = u64[{size}] parameter(0)"], []
    for number, (name, dims) in enumerate(shapes):
        bits = f"{name}[{','.join(map(str, dims))}]"
        whole = f"(u64[{size}], {bits})"
        lines.append(f"  g{number} = {whole} rng-bit-generator(s), algorithm={algorithm}")
        for at, shape in enumerate((f"u64[{size}]", bits)):
            lines.append(f"  e{number}.{at} = {shape} get-tuple-element(g{number}), index={at}")
            names.append((f"e{number}.{at}", shape))
    result = ", ".join(shape for _, shape in names)
    listed = ", ".join(name for name, _ in names)
    lines.append(f"  ROOT t = ({result}) tuple({listed})")
    return "HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def codes(array: np.ndarray, bits: int) -> list[int]:
    """The bits of the elements as integers."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return [int(code) & ((1 << bits) - 1) for code in flat.view(f"u{array.dtype.itemsize}")]


@pytest.mark.parametrize(("algorithm", "size"), KINDS)
def test_bits_and_states_are_those_of_xla(algorithm: str, size: int, tmp_path: Path) -> None:
    """The counter wraps and carries on the way; a float type has the bits of the integer of its width."""
    shapes = [*product(KEPT, SHAPES), *product(OTHERS, SHAPES[2:4])]
    text = module_of(algorithm, size, shapes)
    (tmp_path / "m.hlo").write_text(text)
    for state in STATES[size]:
        given = np.array(state, np.uint64)
        np.savez(tmp_path / "in.npz", in_0=given)
        ask("run", str(tmp_path / "m.hlo"), str(tmp_path / "in.npz"), str(tmp_path / "out.npz"))
        found = hloopt.evaluate(hloopt.parse(text), [given])
        with np.load(tmp_path / "out.npz") as stored:
            for number, (name, dims) in enumerate(shapes):
                for at, bits in ((2 * number, 64), (2 * number + 1, dtype(name).bits)):
                    want = stored[f"out_{at}"]
                    assert found[at].shape == want.shape
                    assert codes(found[at], bits) == codes(want, bits), (name, dims, state)
