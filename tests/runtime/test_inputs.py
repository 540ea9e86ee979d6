"""Inputs: seeded, in range where they are indices, read from files with clear errors."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.runtime.inputs import generate, load_expected, load_inputs, stray

MODULE = """HloModule m
ENTRY e {
  a = f32[3,4] parameter(0)
  b = s32[] parameter(1)
  c = pred[5] parameter(2)
  d = (bf16[2], s4[6]) parameter(3)
  ROOT t = (f32[3,4], s32[]) tuple(a, b)
}
"""


@pytest.fixture
def module() -> hloopt.Module:
    return hloopt.parse(MODULE)


def test_the_same_seed_gives_the_same_inputs(module: hloopt.Module) -> None:
    """Types and shapes are those of the parameters, tuples flattened."""
    one, two = generate(module, 3), generate(module, 3)

    assert [array.dtype.name for array in one] == ["float32", "int32", "bool", "bfloat16", "int4"]
    assert [array.shape for array in one] == [(3, 4), (), (5,), (2,), (6,)]
    assert all(np.array_equal(left, right) for left, right in zip(one, two, strict=True))
    assert not np.array_equal(one[0], generate(module, 4)[0])


def test_parameters_have_streams_of_their_own(module: hloopt.Module) -> None:
    """Another shape of one parameter leaves the others as they were."""
    other = hloopt.parse(MODULE.replace("f32[3,4]", "f32[7]"))
    assert np.array_equal(generate(module, 1)[2], generate(other, 1)[2])


GATHER = """HloModule m
wrap {
  i = s32[40] parameter(0)
  zero = s32[] constant(0)
  zeros = s32[40] broadcast(zero), dimensions={}
  neg = pred[40] compare(i, zeros), direction=LT
  n = s32[] constant(9)
  ns = s32[40] broadcast(n), dimensions={}
  moved = s32[40] add(i, ns)
  ROOT fixed = s32[40] select(neg, moved, i)
}
ENTRY e {
  table = f32[9,3] parameter(0)
  i = s32[40] parameter(1)
  other = s32[40] parameter(2)
  fixed = s32[40] call(i), to_apply=wrap
  column = s32[40,1] reshape(fixed)
  ROOT g = f32[40,3] gather(table, column), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}
}
"""


def test_indices_are_in_the_range_the_module_shows() -> None:
    """Followed through a call, a wrap-around correction and a reshape; other integers stay small."""
    arrays = generate(hloopt.parse(GATHER), 0)

    assert arrays[1].min() >= 0
    assert arrays[1].max() == 8
    assert arrays[2].min() < 0


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        (
            """x = f32[10] parameter(0)
            i = s32[] parameter(1)
            ROOT d = f32[4] dynamic-slice(x, i), dynamic_slice_sizes={4}""",
            7,
        ),
        (
            """x = f32[10] parameter(0)
            i = s32[] parameter(1)
            u = f32[9] parameter(2)
            ROOT d = f32[10] dynamic-update-slice(x, u, i)""",
            2,
        ),
    ],
)
def test_dynamic_slices_stay_inside(text: str, limit: int) -> None:
    """A start index is below size - taken + 1."""
    from hloopt.runtime.index_ranges import index_ranges

    module = hloopt.parse("HloModule m\nENTRY e {\n" + text + "\n}\n")
    (found,) = index_ranges(module).values()
    assert found == limit


def test_stray_indices_are_outside() -> None:
    """Some of each index array lie beside their range or at an end of the type, other arrays stay."""
    module = hloopt.parse("""HloModule m
ENTRY e {
  x = f32[10,4] parameter(0)
  n = s32[60,1] parameter(1)
  i = u8[] parameter(2)
  k = s32[60] parameter(3)
  g = f32[60,4] gather(x, n), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}
  z = u8[] constant(0)
  d = f32[2,4] dynamic-slice(x, i, z), dynamic_slice_sizes={2,4}
  ROOT t = (f32[60,4], f32[2,4], s32[60]) tuple(g, d, k)
}
""")
    inputs = generate(module, 5)
    found = stray(module, inputs, 5)

    assert found[0] is inputs[0]
    assert found[3] is inputs[3]
    moved = found[1][found[1] != inputs[1]]
    assert 10 < moved.size < 40
    assert set(moved.tolist()) == {-1, 10, -(1 << 31), (1 << 31) - 1}
    assert found[2].shape == ()
    assert found[2] in (9, 255)
    assert all(one.dtype == other.dtype for one, other in zip(inputs, found, strict=True))
    assert np.array_equal(stray(module, inputs, 5)[1], found[1])


def test_loaded_types_numpy_lacks_come_as_views(module: hloopt.Module, tmp_path: Path) -> None:
    """bf16 is stored as uint16, s4 as sign-extended bytes."""
    bf16 = np.array([1.5, -2], ml_dtypes.bfloat16)
    narrow = np.array([-8, 7, 0, 1, -1, 2], np.int8)
    arrays = [np.ones((3, 4), np.float32), np.int32(5), np.zeros(5, bool), bf16.view(np.uint16)]
    path = tmp_path / "x.npz"
    np.savez(path, **{f"in_{i}": a for i, a in enumerate([*arrays, narrow.view(np.uint8)])})
    found = load_inputs(path, module)

    assert found[3].dtype == ml_dtypes.bfloat16
    assert np.array_equal(found[3], bf16)
    assert found[4].astype(int).tolist() == narrow.tolist()


def test_arrays_saved_in_their_own_types_are_read(module: hloopt.Module, tmp_path: Path) -> None:
    """NumPy writes ml_dtypes' types as raw bytes of the item size."""
    arrays = generate(module, 5)
    for number, array in enumerate(arrays):
        np.save(tmp_path / f"in_{number}.npy", array)
    found = load_inputs(tmp_path, module)
    assert [array.tobytes() for array in found] == [array.tobytes() for array in arrays]


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize("kind", ["f8e5m2", "f8e4m3fn", "f8e8m0fnu", "f4e2m1fn", "bf16", "s4"])
def test_each_type_that_numpy_lacks_is_read_as_numpy_writes_it(
    kind: str, archive: bool, tmp_path: Path
) -> None:
    """Of f8e5m2 NumPy writes a name that it does not read itself."""
    module = hloopt.parse(f"HloModule m\nENTRY e {{\n ROOT a = {kind}[3] parameter(0)\n}}\n")
    (array,) = generate(module, 5)
    if archive:
        np.savez(tmp_path / "x.npz", in_0=array)
    else:
        np.save(tmp_path / "in_0.npy", array)
    (found,) = load_inputs(tmp_path / "x.npz" if archive else tmp_path, module)
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_bytes_that_are_no_elements_are_refused(tmp_path: Path) -> None:
    """200 is no sign-extended s4."""
    narrow = hloopt.parse("HloModule m\nENTRY e {\n ROOT a = s4[2] parameter(0)\n}\n")
    np.savez(tmp_path / "x.npz", in_0=np.array([1, 200], np.uint8))
    with pytest.raises(UsageError, match=r"in_0 .* values outside"):
        load_inputs(tmp_path / "x.npz", narrow)


def test_only_the_index_in_a_tuple_is_limited() -> None:
    """Its neighbours in the same parameter are integers like others."""
    text = """HloModule m
ENTRY e {
  x = f32[3] parameter(0)
  p = (s32[200], s32[]) parameter(1)
  a = s32[200] get-tuple-element(p), index=0
  i = s32[] get-tuple-element(p), index=1
  d = f32[1] dynamic-slice(x, i), dynamic_slice_sizes={1}
  ROOT t = (f32[1], s32[200]) tuple(d, a)
}
"""
    seen = {int(generate(hloopt.parse(text), seed)[2]) for seed in range(30)}
    assert seen == {0, 1, 2}
    assert generate(hloopt.parse(text), 0)[1].min() < 0


def test_branch_numbers_name_a_branch() -> None:
    """The operand of a conditional is an index too."""
    text = """HloModule m
f { ROOT p = f32[] parameter(0) }
g { ROOT p = f32[] parameter(0) }
ENTRY e {
  i = s32[] parameter(0)
  x = f32[] parameter(1)
  ROOT c = f32[] conditional(i, x, x), branch_computations={f, g}
}
"""
    assert {int(generate(hloopt.parse(text), seed)[0]) for seed in range(20)} == {0, 1}


def test_the_smallest_range_wins_in_linear_time() -> None:
    """A chain of increments each used as an index is walked once, not once a use."""
    from hloopt.runtime.index_ranges import index_ranges

    lines = ["x = f32[9] parameter(0)", "i0 = s32[] parameter(1)", "one = s32[] constant(1)"]
    for number in range(1, 3001):
        lines.append(f"i{number} = s32[] add(i{number - 1}, one)")
        taken = 1 + number % 5
        lines.append(
            f"d{number} = f32[{taken}] dynamic-slice(x, i{number}), dynamic_slice_sizes={{{taken}}}"
        )
    lines.append("ROOT r = f32[9] negate(x)")
    module = hloopt.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")
    assert list(index_ranges(module).values()) == [5]


def test_a_folder_of_npy_files_is_read(tmp_path: Path) -> None:
    """One file an array, named as in an .npz."""
    module = hloopt.parse("HloModule m\nENTRY e {\n ROOT a = f32[2] parameter(0)\n}\n")
    np.save(tmp_path / "in_0.npy", np.ones(2, np.float32))
    np.save(tmp_path / "out_0.npy", np.zeros(2, np.float32))

    assert load_inputs(tmp_path, module)[0].tolist() == [1, 1]
    assert load_expected(tmp_path, module)[0].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "it has no in_0; the module has one input, in_0"),
        ({"in_0": np.ones(2, np.float32), "in_1": np.ones(1)}, "in_1 too many"),
        ({"in_0": np.ones(3, np.float32)}, r"in_0 \(parameter a\) has dimensions \[3\], not \[2\]"),
        ({"in_0": np.ones(2, np.float64)}, "is f32, but the input is float64"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, arrays: dict, message: str) -> None:
    """What is missing, surplus or of the wrong kind is said by name."""
    module = hloopt.parse("HloModule m\nENTRY e {\n ROOT a = f32[2] parameter(0)\n}\n")
    path = tmp_path / "x.npz"
    np.savez(path, **arrays)
    with pytest.raises(UsageError, match=message):
        load_inputs(path, module)


def test_many_missing_arrays_are_not_all_listed(tmp_path: Path) -> None:
    """A module may have hundreds of parameters."""
    lines = "".join(f"  p{number} = f32[] parameter({number})\n" for number in range(9))
    module = hloopt.parse(f"HloModule m\nENTRY e {{\n{lines}  ROOT t = () tuple()\n}}\n")
    np.savez(tmp_path / "x.npz", in_0=np.ones((), np.float32), out_0=np.ones(1))
    with pytest.raises(
        UsageError, match=r"no in_1, .*, in_5 and 3 more; .* 9 inputs, in_0 to in_8"
    ):
        load_inputs(tmp_path / "x.npz", module)
    with pytest.raises(UsageError, match="out_0 too many; the module has no results"):
        load_expected(tmp_path / "x.npz", module)


@pytest.mark.parametrize("content", ["npy", "text", "pickle", "cut"])
def test_a_file_that_is_no_npz_is_refused(tmp_path: Path, content: str) -> None:
    """Never by an exception of NumPy, nor with its advice to load pickles."""
    module = hloopt.parse("HloModule m\nENTRY e {\n ROOT a = f32[2] parameter(0)\n}\n")
    path = tmp_path / "x.npz"
    with path.open("wb") as stream:
        if content == "npy":
            np.save(stream, np.ones(2, np.float32))
        elif content == "cut":
            np.savez(stream, in_0=np.ones(2, np.float32))
            stream.truncate(100)
        else:
            stream.write(b"HloModule m\n" if content == "text" else pickle.dumps({"in_0": 1}))
    with pytest.raises(UsageError, match=r"not an \.npz file or a folder of \.npy files$"):
        load_inputs(path, module)


def test_files_that_are_no_arrays(tmp_path: Path) -> None:
    """A missing file and a text file are usage errors."""
    module = hloopt.parse("HloModule m\nENTRY e {\n ROOT a = f32[2] parameter(0)\n}\n")
    with pytest.raises(UsageError, match="no such file"):
        load_inputs(tmp_path / "none.npz", module)
    (tmp_path / "x.npz").write_text("hello")
    with pytest.raises(UsageError, match=r"not an \.npz file"):
        load_inputs(tmp_path / "x.npz", module)


@pytest.mark.parametrize("place", ["begin", "middle"])
def test_a_damaged_array_is_refused(tmp_path: Path, place: str) -> None:
    """The archive can be opened, what is in it cannot be read."""
    module = hloopt.parse("HloModule m\nENTRY e {\n ROOT a = f32[2000] parameter(0)\n}\n")
    path = tmp_path / "x.npz"
    np.savez_compressed(path, in_0=np.arange(2000, dtype=np.float32))
    content = bytearray(path.read_bytes())
    begin = 30 + int.from_bytes(content[26:28], "little") + int.from_bytes(content[28:30], "little")
    at = begin if place == "begin" else len(content) // 2
    content[at : at + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.npz: arrays that cannot be read: "):
        load_inputs(path, module)


def members(path: Path, *files: tuple[str, bytes]) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")  # a name that is there twice
        for name, content in files:
            archive.writestr(name, content)


def npy(header: str, data: bytes = b"\0" * 8) -> bytes:
    padded = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + data


GOOD = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }")


@pytest.mark.parametrize(
    ("files", "at", "byte", "told"),
    [
        ([("in_0.npy", npy("{'descr': '<f4', 'shape': (2,"))], None, 0, "cannot be read"),
        ([("in_0.npy", npy("(" * 3000))], None, 0, "cannot be read"),
        ([("in_0.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 60,), }"))], None, 0,
         "cannot be read"),
        ([("in_0.npy", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,), }"))], None,
         0, "cannot be read"),
        ([("in_0.npy", b"hello")], None, 0, "in_0 in it is not an array"),
        ([("in_0.npy", GOOD), ("in_0", b"x")], None, 0, "in_0 in it is not an array"),
        ([("in_0", b"x")], None, 0, "in_0 in it is not an array"),
        ([("in_0.npy", GOOD)], b"PK\x01\x02", (8, 1), "encrypted"),
        ([("in_0.npy", GOOD)], b"PK\x01\x02", (10, 99), "compression method"),
        ([("in_0.npy", GOOD)], b"PK\x01\x02", (6, 200), "version"),
    ],
)  # fmt: skip
def test_archives_of_every_kind_of_damage(
    tmp_path: Path,
    files: list[tuple[str, bytes]],
    at: bytes | None,
    byte: tuple[int, int],
    told: str,
) -> None:
    """Headers that are no Python, members that are no arrays, features nobody has."""
    module = hloopt.parse("HloModule m\nENTRY e {\n ROOT a = f32[2] parameter(0)\n}\n")
    path = tmp_path / "x.npz"
    members(path, *files)
    if at is not None:
        content = bytearray(path.read_bytes())
        content[content.index(at) + byte[0]] = byte[1]
        path.write_bytes(content)
    with pytest.raises(UsageError, match=told) as found:
        load_inputs(path, module)
    assert str(found.value).startswith(f"{path}: ")


def test_no_byte_of_an_archive_is_trusted(tmp_path: Path) -> None:
    """Whichever is changed, the arrays are read or refused."""
    module = hloopt.parse("HloModule m\nENTRY e {\n ROOT a = f32[2] parameter(0)\n}\n")
    path = tmp_path / "x.npz"
    members(path, ("in_0.npy", GOOD))
    content = path.read_bytes()
    refused = 0
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([0xFF ^ content[at]]) + content[at + 1 :])
        try:
            load_inputs(path, module)
        except UsageError:
            refused += 1
    assert refused > len(content) / 3
