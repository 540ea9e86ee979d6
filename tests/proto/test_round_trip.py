"""A module written as a protocol buffer reads back as itself."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError, ParseError, UnsupportedError
from hloopt.proto import is_proto, read_proto, read_snapshot, write_module, write_snapshot
from hloopt.proto.messages import new
from hloopt.proto.shapes import ShapeWriter
from hloopt.proto.writer import module_proto

FOLDER = Path(__file__).resolve().parents[2] / "samples"
SAMPLES = sorted(FOLDER.glob("*.hlo"))

# Instructions in the form that XLA prints; p0 .. p5 are parameters.
FORMS = {
    "pred[4]{0} compare(p0, p0), direction=LT, type=TOTALORDER": ("f32[4]{0}",),
    "pred[4]{0} compare(p0, p0), direction=GE": ("u8[4]{0}",),
    "f32[2,3]{0,1} copy(p0)": ("f32[2,3]{1,0}",),
    "f32[5,2]{1,0} pad(p0, p1), padding=1_1_1x0_0": ("f32[2,2]{1,0}", "f32[]"),
    "f32[2]{0} slice(p0), slice={[1:5:2]}": ("f32[8]{0}",),
    "f32[1,2]{1,0} dynamic-slice(p0, p1, p2), dynamic_slice_sizes={1,2}": (
        "f32[4,4]{1,0}",
        "s32[]",
        "s32[]",
    ),
    "f32[3,4]{1,0} dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    "operand_precision={highest,default}": ("f32[3,5]{1,0}", "f32[5,4]{1,0}"),
    "f32[2,3,4]{2,1,0} dot(p0, p1), lhs_batch_dims={0}, lhs_contracting_dims={2}, "
    "rhs_batch_dims={0}, rhs_contracting_dims={1}": ("f32[2,3,5]{2,1,0}", "f32[2,5,4]{2,1,0}"),
    "f32[1,4,4,2]{3,2,1,0} convolution(p0, p1), window={size=3x3 pad=1_1x1_1}, "
    "dim_labels=b01f_01io->b01f": ("f32[1,4,4,3]{3,2,1,0}", "f32[3,3,3,2]{3,2,1,0}"),
    "f32[2,3]{1,0} gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}, indices_are_sorted=true": (
        "f32[5,3]{1,0}",
        "s32[2,1]{1,0}",
    ),
    "f32[3]{0} rng-get-and-update-state(), delta=3": (),
    "c64[4]{0} fft(p0), fft_type=FFT, fft_length={4}": ("c64[4]{0}",),
    "f32[3,3]{1,0} cholesky(p0), lower=true": ("f32[3,3]{1,0}",),
    "f32[3,1]{1,0} triangular-solve(p0, p1), left_side=true, lower=true, unit_diagonal=true, "
    "transpose_a=ADJOINT": ("f32[3,3]{1,0}", "f32[3,1]{1,0}"),
    'f32[4]{0} custom-call(p0), custom_call_target="a \\"b\\"", custom_call_has_side_effect=true, '
    'api_version=API_VERSION_TYPED_FFI, backend_config={"k": 1}': ("f32[4]{0}",),
    "f32[4]{0} all-gather(p0), channel_id=1, replica_groups={{0,1}}, dimensions={0}, "
    "use_global_device_ids=true": ("f32[2]{0}",),
    "f32[4]{0} collective-permute(p0), channel_id=2, source_target_pairs={{0,1},{1,0}}": (
        "f32[4]{0}",
    ),
    "f32[4]{0} all-to-all(p0), channel_id=1, replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}": (
        "f32[4]{0}",
    ),
    "f32[4]{0} negate(p0), sharding={devices=[2]<=[2]}": ("f32[4]{0}",),
    "f32[4]{0} negate(p0), sharding={devices=[2,2]0,2,1,3 last_tile_dim_replicate}": ("f32[4]{0}",),
    'f32[4]{0} negate(p0), frontend_attributes={a="b",c={"d":1}}': ("f32[4]{0}",),
    'f32[4]{0} negate(p0), metadata={op_name="x/y" source_file="f.py" source_line=3}': (
        "f32[4]{0}",
    ),
    "f32[4]{0:T(128)S(1)} copy(p0)": ("f32[4]{0}",),
    "s32[8,2]{1,0} copy(p0), sharding={mesh['x'=2,'y'=2], device_ids=(3,2,1,0), [{'x'}, {}]}": (
        "s32[8,2]{1,0}",
    ),
    "f32[4]{0} copy(p0), sharding={mesh[], replicated}": ("f32[4]{0}",),
    'f32[4]{0} domain(p0), domain={kind="sharding", entry={maximal device=0}, exit={maximal device=1}}': (
        "f32[4]{0}",
    ),
    "f32[<=4]{0} set-dimension-size(p0, p1), dimensions={0}": ("f32[4]{0}", "s32[]"),
    "(f32[4]{0}, u32[]) rng-bit-generator(p0), algorithm=rng_three_fry": ("f32[4]{0}",),
}

LITERALS = [
    "pred[3]{0} constant({1, 0, 1})",
    "s4[3]{0} constant({-8, 7, 0})",
    "u2[2]{0} constant({3, 0})",
    "s8[2]{0} constant({-128, 127})",
    "u64[1]{0} constant({18446744073709551615})",
    "s64[2]{0} constant({-9223372036854775808, 1})",
    "f32[2,3]{0,1} constant({ { 1, 2, 3 }, { 4, 5, -0 } })",
    "f64[] constant(0.1)",
    "bf16[4]{0} constant({1, nan, -inf, 0.25})",
    "f16[] constant(65504)",
    "f8e5m2[2]{0} constant({1.5, -2})",
    "c64[2]{0} constant({(1, -2), (0, 3)})",
    "(s32[], f32[2]{0}) constant((7, {1, 2}))",
    "f32[0]{0} constant({})",
    "f32[1000]{0} constant({...})",
]


def there_and_back(module: hloopt.Module) -> hloopt.Module:
    """What is read of what was written."""
    data = write_module(module)
    assert is_proto(data) == "hlo"
    return read_proto(data, "m.pb")


def of_instruction(line: str, shapes: tuple[str, ...] = ()) -> str:
    """A module whose root is this instruction."""
    parameters = "".join(f"  p{n} = {shape} parameter({n})\n" for n, shape in enumerate(shapes))
    return f"HloModule m\n\nENTRY e {{\n{parameters}  ROOT r = {line}\n}}\n"


def computations(text: str) -> str:
    """A text without its header."""
    return text.partition("\n")[2]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples(path: Path) -> None:
    """Text for text, but for what a header says of the configuration."""
    module = hloopt.parse(path.read_text(), path.name)
    back = there_and_back(module)
    hloopt.verify(back)
    assert back.warnings == []
    assert computations(back.to_text()) == computations(module.to_text())


@pytest.mark.parametrize("line", FORMS)
def test_attributes(line: str) -> None:
    """Each in the form that XLA prints."""
    module = hloopt.parse(of_instruction(line, FORMS[line]), "m.hlo")
    back = there_and_back(module)
    assert computations(back.to_text()) == computations(module.to_text())
    assert f"%r = {line.split('(', maxsplit=1)[0]}" in back.to_text()


@pytest.mark.parametrize("line", LITERALS)
def test_literals(line: str) -> None:
    """Bit for bit in every element type and layout; what is left out stays so."""
    module = hloopt.parse(of_instruction(line), "m.hlo")
    back = there_and_back(module)
    if "{...}" in line:
        assert back.entry.root.literal is not None
        assert back.entry.root.literal.elided
    else:
        assert back.entry.root.literal == module.entry.root.literal
    assert computations(back.to_text()) == computations(module.to_text())


HEADER = """HloModule m, is_scheduled=true, input_output_alias={ {0}: (1, {}, must-alias), {1}: (0, {}, may-alias) }, buffer_donor={ (2, {}) }, entry_computation_layout={(f32[4]{0}, f32[4]{0}, f32[2,2]{0,1})->(f32[4]{0}, f32[4]{0})}, frontend_attributes={a="1"}

FileNames
1 "a.py"
2 "b.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=2 function_name_id=1 line=3 end_line=4 column=5 end_column=6}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%fused (q: f32[4]) -> f32[4] {
  %q = f32[4]{0} parameter(0)
  ROOT %n = f32[4]{0} negate(%q)
}

ENTRY %e (a: f32[4], b: f32[4], c: f32[2,2]) -> (f32[4], f32[4]) {
  %c = f32[2,2]{0,1} parameter(2)
  %b = f32[4]{0} parameter(1)
  %a = f32[4]{0} parameter(0)
  %f = f32[4]{0} fusion(%a), kind=kLoop, calls=%fused
  %g = f32[4]{0} add(%a, %b), control-predecessors={%f}, metadata={stack_frame_id=1}
  ROOT %t = (f32[4]{0}, f32[4]{0}) tuple(%f, %g)
}

"""


def test_header_schedule_and_control_edges() -> None:
    """Aliases, donors, layouts, stack tables, and the order of a scheduled module."""
    module = hloopt.parse(HEADER, "m.hlo")
    back = there_and_back(module)

    def sorted_header(text: str) -> list[str]:
        return sorted(re.split(r", (?=\w+=)", text.partition("\n")[0]))

    assert sorted_header(back.to_text()) == sorted_header(module.to_text())
    assert computations(back.to_text()) == computations(module.to_text())
    assert [entry.name for entry in back.entry] == ["c", "b", "a", "f", "g", "t"]


def test_names_are_unique_in_the_module() -> None:
    """XLA refuses protos in which two computations use one name; the entry's names stay."""
    text = (
        "HloModule m\nadd {\n  x = f32[] parameter(0)\n  x.1 = f32[] parameter(1)\n"
        "  ROOT r = f32[] add(x, x.1)\n}\nENTRY e {\n  x = f32[4] parameter(0)\n"
        "  z = f32[] constant(0)\n  ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add\n}\n"
    )
    proto = module_proto(hloopt.parse(text, "m.hlo"))
    names = [row.name for part in proto.computations for row in part.instructions]
    assert len(set(names)) == len(names) == 6
    assert [row.name for row in proto.computations[1].instructions] == [b"x", b"z", b"r"]


def test_shapes_without_a_layout_get_the_usual_one() -> None:
    """XLA takes a proto's shape without one to have none at all."""
    module = hloopt.parse(of_instruction("f32[2,3] negate(p0)", ("f32[2,3]",)), "m.hlo")
    assert str(there_and_back(module).entry.root.shape) == "f32[2,3]{1,0}"


@pytest.mark.parametrize("line", ["f32[4] frobnicate(p0)", "f32[4] frobnicate(p0), zap={1,2}"])
def test_unknown_opcodes_are_kept_and_unknown_attributes_refused(line: str) -> None:
    """A proto has no field for those; the message has the place."""
    module = hloopt.parse(of_instruction(line, ("f32[4]",)), "m.hlo")
    if "zap" not in line:
        back = there_and_back(module)
        assert back.entry.root.opcode == "frobnicate"
        assert "unknown opcode 'frobnicate'" in back.warnings[0][1]
        return
    with pytest.raises(UnsupportedError, match="no field for zap") as caught:
        write_module(module)
    assert (caught.value.line, caught.value.column) == (5, 8)


@pytest.mark.parametrize("kind", ["module", "hlo", "snapshot", "inputs only"])
def test_messages_are_told_apart(kind: str) -> None:
    """By their structure: none begins with a mark of its own."""
    module = hloopt.parse(of_instruction("f32[4] negate(p0)", ("f32[4]",)), "m.hlo")
    values = np.arange(4, dtype=np.float32)
    inner = module_proto(module).SerializeToString()
    if kind == "inputs only":
        message = new("UnoptimizedSnapshot")
        message.hlo_module = inner
        taken = new("Snapshot")
        taken.ParseFromString(write_snapshot(module, [values], [-values]))
        message.partitions.add().arguments.extend(taken.arguments)
        data = message.SerializeToString()
    else:
        data = {
            "module": inner,
            "hlo": write_module(module),
            "snapshot": write_snapshot(module, [values], [-values]),
        }[kind]
    assert is_proto(data) == ("snapshot" if kind == "inputs only" else kind)
    assert read_proto(data, "m").entry.root.opcode == "negate"
    for cut in (1, len(data) // 2, len(data) - 1):
        assert is_proto(data[:cut]) is None
        with pytest.raises(ParseError):
            read_proto(data[:cut], "m")
    if kind == "inputs only":
        found = read_snapshot(data, "m")
        np.testing.assert_array_equal(found.inputs[0], values)
        assert found.results == []


@pytest.mark.parametrize(
    "data", [b"", b"HloModule m\n", b"\n\nHloModule m\n", b"\x0a\x03abc", b"\x08\x01", b"\x0a\x00"]
)
def test_what_is_no_module_is_none(data: bytes) -> None:
    """Texts that begin with a line end among it."""
    assert is_proto(data) is None
    with pytest.raises(ParseError, match="protocol buffer"):
        read_proto(data, "m")


def test_snapshots_have_tuples_in_the_order_of_their_arrays() -> None:
    """Inputs and results are flat lists."""
    text = (
        "HloModule m\nENTRY e {\n  p = (f32[2], s32[]) parameter(0)\n  q = bf16[] parameter(1)\n"
        "  ROOT t = ((f32[2], s32[]), bf16[]) tuple(p, q)\n}\n"
    )
    module = hloopt.parse(text, "m.hlo")
    bfloat16 = module.entry.parameters[1].array.dtype.numpy
    arrays = [np.array([1, 2], np.float32), np.array(3, np.int32), np.array(0.5).astype(bfloat16)]
    found = read_snapshot(write_snapshot(module, arrays, arrays), "s.pb")
    for got in (found.inputs, found.results):
        assert [entry.dtype for entry in got] == [entry.dtype for entry in arrays]
        assert [entry.tolist() for entry in got] == [entry.tolist() for entry in arrays]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "there is no array for parameter p0"),
        ([np.zeros(3, np.float32)], r"parameter p0 has the shape f32\[4\], the array is"),
        ([np.zeros(4)], "the array is float64"),
        ([np.zeros(4, np.float32)] * 2, "there are more inputs than the module has"),
    ],
)
def test_snapshots_hold_the_arrays_of_their_module(inputs: list[object], message: str) -> None:
    """Nothing else is written."""
    module = hloopt.parse(of_instruction("f32[4] negate(p0)", ("f32[4]",)), "m.hlo")
    with pytest.raises(EvaluationError, match=message):
        write_snapshot(module, inputs, [np.zeros(4, np.float32)])  # type: ignore[arg-type]


def delimited(module: hloopt.Module, shape: bytes, raw: bytes) -> bytes:
    """A snapshot whose array follows the message, as XLA has dumped them since 2025."""
    array = len(shape).to_bytes(8, "little") + shape + raw
    message = new("UnoptimizedSnapshot")
    message.hlo_module = module_proto(module).SerializeToString()
    descriptor = bytes([0x10, len(array)])
    message.partitions.add().arguments_descriptors.append(descriptor)
    body = message.SerializeToString()
    assert 128 <= len(body) < 1 << 14
    return bytes([len(body) & 127 | 128, len(body) >> 7]) + body + array


def test_arrays_may_follow_the_message() -> None:
    """In the order of their layout."""
    line = "f32[2,3]{0,1} negate(p0)"
    module = hloopt.parse(of_instruction(line, ("f32[2,3]{0,1}",)), "m.hlo")
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    shape = ShapeWriter().write(module.entry.parameters[0].shape)
    data = delimited(module, shape, values.tobytes(order="F"))
    assert is_proto(data) == "snapshot"
    found = read_snapshot(data, "s.pb")
    np.testing.assert_array_equal(found.inputs[0], values)
    assert found.results == []
    with pytest.raises(ParseError, match=r"arguments\[0\]: needs \d+ bytes, \d+ are left"):
        read_snapshot(data[:-1], "s.pb")
    short = delimited(module, shape, values.tobytes()[:-4])
    with pytest.raises(ParseError, match="which are not those of f32"):
        read_snapshot(short, "s.pb")


def test_packed_arrays_are_refused() -> None:
    """How XLA packs elements narrower than a byte is not guessed at."""
    module = hloopt.parse(of_instruction("s4[2]{0} copy(p0)", ("s4[2]{0}",)), "m.hlo")
    shape = ShapeWriter().write(module.entry.parameters[0].shape)
    with pytest.raises(ParseError, match="elements of s4 are packed"):
        read_snapshot(delimited(module, shape, b"\x21"), "s.pb")
