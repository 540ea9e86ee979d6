"""What a run needs lies in memory that a program keeps; what it hands out, and is given, is not copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.backends.numpy import arena, source
from hloopt.backends.numpy.arena import Arena
from hloopt.backends.numpy.plan import Line
from hloopt.backends.numpy.program import NumpyProgram
from hloopt.runtime.program import NumpyOptions

Array = np.ndarray[Any, Any]
SIZE = 1 << 16  # elements of f32: large


def compiled(
    body: str, monkeypatch: pytest.MonkeyPatch, replicas: int = 1
) -> tuple[NumpyProgram, Arena]:
    """A program and the entry's arena."""
    found = [Arena((), (), (), 0)]
    real = arena.place_arrays

    def spy(line: Line) -> Arena | None:
        made = real(line)
        if made is not None:
            found.append(made)
        return made

    monkeypatch.setattr(source, "place_arrays", spy)
    module = hloopt.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n")
    program = NumpyProgram(module, NumpyOptions(replicas=replicas))
    return program, found[-1]


def places(memory: Arena) -> list[Array]:
    """The places of all steps, in their order."""
    return [array for array in memory.arrays() if array is not None]


CHAIN = """
 x = f32[256,256] parameter(0)
 a = f32[256,256] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 b = f32[256,256] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 c = f32[256,256] dot(b, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 d = f32[256,256] dot(c, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT r = f32[256,256] dot(d, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
"""


def test_arrays_of_a_run_have_places_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where lives overlap, places do not; the result has none: it belongs to the caller."""
    program, memory = compiled(CHAIN, monkeypatch)
    x = np.eye(256, dtype=np.float32) * 2
    (first,) = program.run([x])
    (second,) = program.run([x])
    np.testing.assert_array_equal(first, np.eye(256, dtype=np.float32) * 128)
    np.testing.assert_array_equal(first, second)
    assert not np.shares_memory(first, second)
    found = places(memory)
    assert len(found) >= 2
    assert not np.shares_memory(found[0], found[1])  # two factors of one product
    for place in found:
        assert place.ctypes.data % 64 == 0
        assert not np.shares_memory(place, first)


def test_places_take_little_more_than_is_alive_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many arrays one after the other, few are there at once."""
    sizes = [(64 + 32 * (at % 5)) for at in range(30)]
    lines = ["x = f32[1024] parameter(0)"]
    previous = "x"
    for at, size in enumerate(sizes):
        lines.append(
            f"m{at} = f32[{size},1024] parameter({at + 1})\n"
            f" v{at} = f32[{size},1024] multiply(m{at}, m{at})\n"
            f" w{at} = f32[{size},1024] subtract(v{at}, m{at})\n"
            f" p{at} = f32[{size}] dot(w{at}, {previous}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n"
            f" q{at} = f32[1024] dot(p{at}, w{at}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}"
        )
        previous = f"q{at}"
    lines.append(f"ROOT r = f32[1024] negate({previous})")
    program, memory = compiled("\n ".join(lines), monkeypatch)
    found = places(memory)
    assert found
    begin = min(place.ctypes.data for place in found)
    end = max(place.ctypes.data + place.nbytes for place in found)
    assert end - begin <= 2 * max(sizes) * 4096
    inputs = [np.zeros(1024, np.float32), *(np.zeros((size, 1024), np.float32) for size in sizes)]
    np.testing.assert_array_equal(program.run(inputs)[0], np.full(1024, -0.0, np.float32))


def test_memory_is_asked_for_by_the_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling takes none; where there is too little in one piece, each step makes its own array."""
    asked: list[int] = []
    refused = [True]
    real = np.empty

    def empty(dims: Any, *arguments: Any, **words: Any) -> Array:
        if arguments == (np.uint8,):
            asked.append(dims)
            if refused[0]:
                raise MemoryError
        return real(dims, *arguments, **words)

    monkeypatch.setattr(np, "empty", empty)
    program, memory = compiled(CHAIN, monkeypatch)
    assert not asked
    x = np.eye(256, dtype=np.float32) * 2
    (first,) = program.run([x])
    assert len(asked) == 1
    assert memory.byte_size <= asked[0]
    refused[0] = False
    (second,) = program.run([x])
    program.run([x])
    assert len(asked) == 2
    np.testing.assert_array_equal(first, np.eye(256, dtype=np.float32) * 128)
    np.testing.assert_array_equal(first, second)


def test_participants_keep_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several run the same line at a time."""
    _, memory = compiled(CHAIN, monkeypatch, replicas=2)
    assert not places(memory)


def test_results_are_handed_out_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new array is not copied; an input, a constant and an array that is two results are."""
    text = f"""HloModule m
ENTRY e {{
 x = f32[{SIZE}] parameter(0)
 c = f32[3] constant({{1, 2, 3}})
 n = f32[{SIZE}] negate(x)
 m = f32[{SIZE}] multiply(x, x)
 s = f32[256,{SIZE // 256}] reshape(m)
 ROOT t = (f32[{SIZE}], f32[3], f32[{SIZE}], f32[{SIZE}], f32[256,{SIZE // 256}]) tuple(x, c, n, n, s)
}}"""
    program = hloopt.compile(hloopt.parse(text))
    assert isinstance(program, NumpyProgram)
    handed: list[tuple[Any, ...]] = []
    real = program._entry

    def spy(*arrays: Any) -> Any:
        handed.append(real(*arrays))
        return handed[-1]

    monkeypatch.setattr(program, "_entry", spy)
    x = np.arange(SIZE, dtype=np.float32)
    results = program.run([x])
    shared = [
        np.shares_memory(inside, outside)
        for inside, outside in zip(handed[0], results, strict=True)
    ]
    assert shared == [False, False, False, False, True]
    assert not np.shares_memory(results[2], results[3])
    assert not np.shares_memory(results[0], x)
    for array in results:
        array[...] = 0
    np.testing.assert_array_equal(program.run([x])[1], np.array([1, 2, 3], np.float32))
    np.testing.assert_array_equal(x, np.arange(SIZE, dtype=np.float32))


def test_inputs_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step reads the caller's array itself."""
    text = f"HloModule m\nENTRY e {{\n x = f32[{SIZE}] parameter(0)\n ROOT n = f32[{SIZE}] negate(x)\n}}\n"
    program = hloopt.compile(hloopt.parse(text))
    assert isinstance(program, NumpyProgram)
    taken: list[Any] = []
    real = program._entry

    def spy(*arrays: Any) -> Any:
        taken.extend(arrays)
        return real(*arrays)

    monkeypatch.setattr(program, "_entry", spy)
    x = np.arange(SIZE, dtype=np.float32)
    program.run([x])
    assert taken[0] is x or np.shares_memory(taken[0], x)


def test_a_large_constant_is_there_once() -> None:
    """The parsed literal, the executor's constant and views of it are one array."""
    rows = np.arange(512).reshape(8, 64).tolist()
    written = ", ".join("{" + ", ".join(map(str, row)) + "}" for row in rows)
    text = f"""HloModule m
ENTRY e {{
 x = f32[8,64] parameter(0)
 c = f32[8,64] constant({{ {written} }})
 t = f32[64,8] transpose(c), dimensions={{1,0}}
 ROOT d = f32[8,8] dot(x, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
    module = hloopt.parse(text)
    program = hloopt.compile(module)
    assert isinstance(program, NumpyProgram)
    constant = next(one for one in module.entry if one.opcode == "constant")
    assert constant.literal is not None
    literal = constant.literal.array
    bound = [
        value for value in program._entry.__globals__.values() if isinstance(value, np.ndarray)
    ]
    assert len(bound) == 1
    assert np.shares_memory(bound[0], literal)


def test_a_product_is_not_written_into_an_array_in_another_order() -> None:
    """A ufunc keeps the order of a transposed operand: its array is no matrix of other dimensions."""
    module = hloopt.parse("""HloModule m
s { x = f32[] parameter(0)
 y = f32[] parameter(1)
 ROOT r = f32[] add(x, y) }
ENTRY e {
 p = f32[4,16,16,64] parameter(0)
 w = f32[64,16,64] parameter(1)
 t = f32[64,16,16,4] transpose(p), dimensions={3,2,1,0}
 n = f32[64,16,16,4] negate(t)
 a = f32[64,16,16,4] abs(n)
 z = f32[] constant(0)
 b = f32[64,16,4] reduce(a, z), dimensions={1}, to_apply=s
 c = f32[64,16,4] reduce(n, z), dimensions={1}, to_apply=s
 d = f32[64,16,4] add(b, c)
 ROOT r = f32[64,16,16,4] dot(w, d), lhs_contracting_dims={2}, rhs_contracting_dims={0}
}""")
    rng = np.random.default_rng(0)
    dims = (4, 16, 16, 64), (64, 16, 64)
    inputs = [rng.integers(-3, 4, sizes).astype(np.float32) for sizes in dims]
    (wanted,) = hloopt.evaluate(module, inputs)
    # Several participants share a line: it has no places, and what is written over are arrays.
    program = NumpyProgram(module, NumpyOptions(replicas=2))
    for results in program.run_participants([inputs, inputs]):
        np.testing.assert_array_equal(results[0], wanted)
