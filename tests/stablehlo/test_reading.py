"""StableHLO in: which contents are, where its mistakes are, what arrives of it, and what is said without jaxlib."""

from __future__ import annotations

import gzip
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.errors import MissingReaderError, ParseError, UsageError
from hloopt.stablehlo import artifact, is_stablehlo
from tests.helpers.support import invoke
from tests.oracle.oracle import available, python

needs_jaxlib = pytest.mark.skipif(
    not available(), reason="no jaxlib; HLOOPT_XLA_PYTHON names a Python that has it"
)

PLAIN = """module @scale {
  func.func public @main(%arg0: tensor<2x3xf32>, %arg1: tensor<f32> {tf.aliasing_output = 0 : i32}) -> tensor<f32> {
    %0 = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<2x3xf32>
    %2 = stablehlo.constant dense<0.0> : tensor<f32>
    %3 = stablehlo.reduce(%1 init: %2) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<f32>
    return %3 : tensor<f32>
  }
}
"""
OPEN = """module @square {
  func.func public @main(%arg0: tensor<4xf32> loc("w"), %arg1: tensor<?x4xf32> loc("x")) -> tensor<?x4xf32> {
    %0 = stablehlo.multiply %arg1, %arg1 : tensor<?x4xf32>
    return %0 : tensor<?x4xf32>
  }
}
"""
SHAPES = """module {
  func.func @main(%arg0: tensor<?x8xf32>) -> tensor<?x8xf32> {
    %0 = shape.shape_of %arg0 : tensor<?x8xf32> -> tensor<2xindex>
    %1 = stablehlo.constant dense<1.0> : tensor<f32>
    %2 = stablehlo.dynamic_broadcast_in_dim %1, %0, dims = [] : (tensor<f32>, tensor<2xindex>) -> tensor<?x8xf32>
    return %2 : tensor<?x8xf32>
  }
}
"""
MESH = """module @spread attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 2 : i32} {
  sdy.mesh @mesh = <["a"=4]>
  func.func public @main(%arg0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"a"}]>}) -> tensor<8xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
"""
COMPOSITE = """module @parts {
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.composite "my.twice" %arg0 {decomposition = @twice, version = 1 : i32} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
  func.func private @twice(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %arg0, %arg0 : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
RESOURCES = """module @constants {
  func.func public @main() -> (tensor<4xf32>, tensor<2x2xi1>, tensor<3xi16>, tensor<0xf32>, tensor<complex<f32>>) {
    %0 = stablehlo.constant dense_resource<weights.0> : tensor<4xf32>
    %1 = stablehlo.constant dense_resource<mask> : tensor<2x2xi1>
    %2 = stablehlo.constant dense_resource<same> : tensor<3xi16>
    %3 = stablehlo.constant dense<> : tensor<0xf32>
    %4 = stablehlo.constant dense<(0.5,1.0)> : tensor<complex<f32>>
    return %0, %1, %2, %3, %4 : tensor<4xf32>, tensor<2x2xi1>, tensor<3xi16>, tensor<0xf32>, tensor<complex<f32>>
  }
}
{-# dialect_resources: { builtin: {
  weights.0: "0x040000000000803F000000400000404000008040",
  mask: "0x0100000001000001",
  same: "0x020000000700"
} } #-}
"""


def test_contents_are_told_apart_by_how_they_begin() -> None:
    """Comments first, attributes first, the generic form, bytecode, a flatbuffer that holds some; HLO is none."""
    for text in (PLAIN, OPEN, "// made by hand\n\n" + PLAIN, '#loc1 = loc("x")\n' + PLAIN):
        assert is_stablehlo(text.encode())
    assert is_stablehlo(b'"builtin.module"() ({\n}) : () -> ()')
    assert is_stablehlo(b"ML\xefR\rStableHLO_v1.15.0\0")
    inner = b"ML\xefR\rStableHLO_v1.15.0\0" + bytes(30)
    exported = (16).to_bytes(4, "little") + bytes(20) + len(inner).to_bytes(4, "little") + inner
    assert artifact(exported + b"rest") == inner
    assert artifact(exported[:-3]) is None
    assert artifact((1 << 20).to_bytes(4, "little") + exported[4:]) is None
    for other in (b"HloModule m\n", b"\n\n  HloModule m", b"", b"modules are read", bytes(100)):
        assert not is_stablehlo(other)


def test_without_jaxlib_the_message_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 5, at the beginning of the file; Python users may catch DeviceError."""
    monkeypatch.delenv("HLOOPT_XLA_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    path = tmp_path / "f.mlir"
    path.write_text(PLAIN)
    result = invoke("check", str(path))
    assert result.exit_code == 5
    first = f"{path}:1:1: error: this is StableHLO; reading it needs jaxlib: pip install "
    assert result.stderr.startswith(first)
    assert "[stablehlo]', or name a Python that has it in HLOOPT_XLA_PYTHON\n" in result.stderr
    with pytest.raises(MissingReaderError) as caught:
        hloopt.read(path)
    assert isinstance(caught.value, hloopt.DeviceError)
    path.write_bytes(b"ML\xefR\rStableHLO_v1.15.0\0")
    assert invoke("check", str(path)).stderr.startswith(f"{path}:1:1: error: this is StableHLO")


# The child as it is, but for a converter that wants more addresses than it may have.
_GREEDY = """
import runpy, sys
main = runpy.run_path(sys.argv[1])["main"]
main.__globals__["Converter"] = lambda: bytearray(6 << 30)
main(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "jaxlib crashed while it converted it (signal 11)"),
        ("raise SystemExit('std::bad_alloc')", "jaxlib ran out of memory while it converted it (it may take 4 GiB): std::bad_alloc"),
        (_GREEDY, "jaxlib ran out of memory while it converted it (it may take 4 GiB): MemoryError"),
        ("import time; time.sleep(60)", "jaxlib took more than 1 s to convert it"),
        ("import sys; sys.exit(0)", "jaxlib crashed while it converted it (exit code 0)"),
    ],
)  # fmt: skip
def test_a_converter_that_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    """A crash, the end of the memory, no end at all: a message about the file, and no traceback."""
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!{sys.executable}\n{script}\n")
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("HLOOPT_XLA_PYTHON", str(stand_in))
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("hloopt.stablehlo.conversion._SECONDS", 1.0)
    result = invoke("check", "-", stdin=PLAIN)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"<stdin>:1:1: error: {message}\n")


def test_another_jaxlib_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lacks the names that are used; and a Python that is not there."""
    package = tmp_path / "jaxlib"
    (package / "mlir" / "dialects").mkdir(parents=True)
    (package / "mlir" / "_mlir_libs").mkdir()
    (package / "__init__.py").write_text("__version__ = '0.3'\n")
    (package / "_jax.py").write_text("class mlir: pass\n")
    for name in ("_hlo", "mlir/ir", "mlir/passmanager", "mlir/_mlir_libs/_jax_mlir_ext"):
        (package / f"{name}.py").touch()
    for name in ("chlo", "mhlo", "sdy", "stablehlo"):
        (package / "mlir" / "dialects" / f"{name}.py").touch()
    monkeypatch.setenv("HLOOPT_XLA_PYTHON", sys.executable)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = invoke("check", "-", stdin=PLAIN)
    assert result.exit_code == 5
    assert "jaxlib 0.3 has no mlir_module_to_xla_computation" in result.stderr
    monkeypatch.setenv("HLOOPT_XLA_PYTHON", str(tmp_path / "none"))
    result = invoke("check", "-", stdin=PLAIN)
    assert result.exit_code == 5
    assert "HLOOPT_XLA_PYTHON: " in result.stderr


@needs_jaxlib
def test_a_text_is_read_by_every_way(tmp_path: Path) -> None:
    """A file, gzipped, on stdin, as bytes, as a string, in a folder: the same module, and it runs."""
    path = tmp_path / "folder" / "f.mlir"
    path.parent.mkdir()
    path.write_text(PLAIN)
    zipped = tmp_path / "f.mlir.gz"
    zipped.write_bytes(gzip.compress(PLAIN.encode()))
    module = hloopt.read(path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert hloopt.evaluate(module, [x, np.float32(2)])[0] == 30
    text = module.to_text(metadata=False)
    for source in (str(path), zipped, PLAIN, PLAIN.encode(), path.parent):
        assert hloopt.read(source).to_text(metadata=False) == text
    assert invoke("hash", "-", stdin=PLAIN).stdout[:32] == invoke("hash", str(path)).stdout[:32]
    assert invoke("stats", str(path.parent)).exit_code == 0
    assert json.loads(invoke("run", "--json", str(path)).stdout)["modules"][0]["passed"] is True


@needs_jaxlib
def test_what_plain_conversion_loses_is_put_back(tmp_path: Path) -> None:
    """Donation, the file's name, the devices, the mesh word for word, one copy of a decomposition."""
    module = hloopt.read(PLAIN, name="f.mlir")
    assert module.name == "scale"
    header = module.to_text().split("\n")[0]
    assert "input_output_alias={ {}: (1, {}, may-alias) }" in header
    multiply = next(one for one in module.entry if one.opcode == "multiply")
    assert module.user_line(multiply.metadata) == "f.mlir:4"
    assert module.place(multiply) == "f.mlir:4:10"
    spread = hloopt.read(MESH)
    assert spread.attributes["num_partitions"] == 4
    assert spread.attributes["replica_count"] == 2
    text = spread.to_text()
    assert 'xla.sdy.meshes={mesh = #sdy.mesh<["a"=4]>}' in text
    assert 'frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, [{\\"a\\"}]>"}' in text
    assert "sharding={devices=[4]<=[4]}" in text
    assert hloopt.parse(text).to_text() == text
    assert len(hloopt.read(COMPOSITE).computations) == 2


@needs_jaxlib
def test_constants_behind_the_module_are_put_in_line() -> None:
    """Floats, booleans of a byte each, one value for all elements, none; complex values are in line already."""
    found = hloopt.evaluate(hloopt.read(RESOURCES), [])
    assert [one.tolist() for one in found] == [
        [1, 2, 3, 4],
        [[True, False], [False, True]],
        [7] * 3,
        [],
        0.5 + 1j,
    ]
    with pytest.raises(ParseError) as caught:
        hloopt.read(RESOURCES.replace("mask:", "other:"), name="f.mlir")
    assert (caught.value.line, caught.value.column) == (4, 10)
    assert "the values of dense_resource<mask> are not in the file" in str(caught.value)


@needs_jaxlib
def test_open_sizes_are_given_by_an_option(tmp_path: Path) -> None:
    """By name, by number; not given, of another rank, of another type, for no argument, for HLO."""
    path = tmp_path / "open.mlir"
    path.write_text(OPEN)
    result = invoke("check", str(path))
    assert result.exit_code == 3
    assert result.stderr == (
        f"{path}:2:57: error: argument 1 (x) is tensor<?x4xf32>: a size of it is open\n"
        f"{OPEN.splitlines()[1]}\n{' ' * 56}^\n"
        "note: give sizes for the open ones, such as --shape x=f32[8,4]\n"
    )
    for option in ("x=f32[3,4]", "1=f32[3, 4]"):
        assert invoke("check", str(path), "--shape", option).stdout == f"{path}: ok\n"
    module = hloopt.read(path, shapes={"x": "f32[3,4]"})
    assert [str(shape) for shape in module.entry.parameter_shapes] == ["f32[4]{0}", "f32[3,4]{1,0}"]
    for option, code, message in (
        ("x=f32[3]", 2, "argument x is tensor<?x4xf32>: it cannot have the sizes [3]"),
        ("x=f32[3,5]", 2, "it cannot have the sizes [3,5]"),
        ("x=s32[3,4]", 2, "argument x is f32[3,4]{1,0}, not of the type s32"),
        ("y=f32[3,4]", 2, "there is no argument y; there are: w, x"),
        ("x=f32", 2, "'x=f32' is not the shape of an argument, such as x=f32[8,16]"),
        ("x=float[3,4]", 2, "is not the shape of an argument"),
    ):
        result = invoke("check", str(path), "--shape", option)
        assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    with pytest.raises(UsageError, match="shapes are fixed"):
        hloopt.read("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }", shapes={"x": "f32[]"})


@needs_jaxlib
@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (PLAIN.replace("%arg1, dims", "%argh, dims"), "3:37", "use of undeclared SSA value name"),
        (PLAIN.replace("stablehlo.multiply", "linalg.multiply"), "4:10", "Dialect `linalg' not found"),
        (PLAIN.replace("stablehlo.multiply", "stablehlo.mul"), "4:10", "custom op 'stablehlo.mul' is unknown"),
        (PLAIN.replace("@main", "@one").replace("\n}\n", "\n  func.func @two() {\n    return\n  }\n}\n"),
         "1:1", "there is no function @main, where a program begins; functions: @one, @two"),
    ],
)  # fmt: skip
def test_mistakes_are_at_their_place(text: str, place: str, message: str) -> None:
    """MLIR's first error, in the user's file, with the line and a caret."""
    result = invoke("check", "-", stdin=text)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"<stdin>:{place}: error: {message}")
    assert "\n" + " " * (int(place.split(":")[1]) - 1) + "^" in result.stderr
    assert "Traceback" not in result.stderr


@needs_jaxlib
def test_damaged_bytes_are_errors(tmp_path: Path) -> None:
    """Bytecode that is cut off, and rubbish behind its first bytes."""
    path = tmp_path / "f.mlir.bc"
    for content in (
        b"ML\xefR",
        b"ML\xefR\rMLIR23.0.0git\0\1\2",
        b"ML\xefR\rStableHLO_v9.0.0\0\x05" + bytes(99),
    ):
        path.write_bytes(content)
        result = invoke("check", str(path))
        assert result.exit_code == 3
        assert result.stderr.startswith(f"{path}:1:1: error: ")


@needs_jaxlib
def test_a_function_of_another_name_is_the_entry_if_it_is_the_only_one() -> None:
    """Exporters call it forward or predict."""
    assert hloopt.read(PLAIN.replace("@main", "@forward")).entry.name.startswith("main")


@needs_jaxlib
def test_a_dump_with_the_frontends_program_alone(tmp_path: Path) -> None:
    """It stands for the module; where there is HLO, that is read."""
    folder = tmp_path / "module_0003.jit_scale"
    folder.mkdir()
    (folder / "module.mlir").write_text(PLAIN)
    (tmp_path / "module_0003.jit_scale.lowered.mlir").write_text("module { tt.func @kernel() {} }")
    assert hloopt.read(tmp_path).name == "scale"
    listed = json.loads(invoke("ls", "--json", str(tmp_path)).stdout)["dumps"][0]["modules"]
    assert [stage["label"] for stage in listed[0]["stages"]] == ["stablehlo"]
    hlo = "HloModule other\n\nENTRY e {\n  ROOT x = f32[] parameter(0)\n}\n"
    (tmp_path / "module_0003.jit_scale.before_optimizations.txt").write_text(hlo)
    assert hloopt.read(tmp_path).name == "other"


@needs_jaxlib
def test_a_conversion_is_kept_by_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second reading starts no process, and the name of the file is not part of the key."""
    monkeypatch.setenv("HLOOPT_CACHE_DIR", str(tmp_path / "cache"))
    hloopt.read(PLAIN, name="a.mlir")

    def refuse(*words: object, **keywords: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    module = hloopt.read(PLAIN, name="b.mlir")
    multiply = next(one for one in module.entry if one.opcode == "multiply")
    assert module.user_line(multiply.metadata) == "b.mlir:4"
    with pytest.raises(AssertionError):
        hloopt.read(PLAIN + "\n")
    kinds = json.loads(invoke("cache", "--json").stdout)["kinds"]
    assert kinds["stablehlo"]["entries"] == 1


@needs_jaxlib
def test_the_named_python_is_asked() -> None:
    """The tests rest on it."""
    assert os.environ.get("HLOOPT_XLA_PYTHON", sys.executable) == python()


@needs_jaxlib
def test_sizes_computed_by_another_dialect_are_named(tmp_path: Path) -> None:
    """As torch-mlir does; jaxlib alone says that it cannot parse the module."""
    path = tmp_path / "open.mlir"
    path.write_text(SHAPES)
    result = invoke("run", str(path), "--shape", "0=f32[2,8]")
    assert result.exit_code == 3
    assert "open.mlir:3:10: error: shape.shape_of is no op of StableHLO" in result.stderr
    assert "fix them where the program is exported" in result.stderr
    result = invoke("run", str(path), "--shape", "arg0=f32[2,8]")
    assert result.exit_code == 2
    assert "there are: 0 (those without a name by number)" in result.stderr


@needs_jaxlib
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('%0 = "foo.bar"(%x) : (tensor<4xf32>) -> tensor<4xf32>', "this op is of a dialect that"),
        ("%0 = foo.bar %x : tensor<4xf32>", "Dialect `foo' not found"),
    ],
)
def test_other_dialects_are_called_so(tmp_path: Path, line: str, said: str) -> None:
    """Without advice for those who develop MLIR."""
    path = tmp_path / "other.mlir"
    path.write_text(
        f"func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {{\n  {line}\n  return %0 : tensor<4xf32>\n}}\n"
    )
    result = invoke("check", str(path))
    assert result.exit_code == 3
    assert "other.mlir:2:" in result.stderr
    assert said in result.stderr
    assert "allow" not in result.stderr
