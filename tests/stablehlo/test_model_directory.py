"""Directories with StableHLO and its weights: hloopt's own, written and read, and torch_xla's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.errors import FileError, UsageError
from hloopt.prover.trials import Trial, made
from hloopt.stablehlo.model_directory import ModelInput, read_model, write_model_directory
from tests.helpers.support import invoke
from tests.stablehlo.test_reading import needs_jaxlib

TEXT = """module @dense {
  func.func public @main(%arg0: tensor<3x2xbf16>, %arg1: tensor<4x3xf32>, %arg2: tensor<2xf32>) -> tensor<4x2xf32> {
    %0 = stablehlo.convert %arg0 : (tensor<3x2xbf16>) -> tensor<3x2xf32>
    %1 = stablehlo.dot_general %arg1, %0, contracting_dims = [1] x [0] : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
    %2 = stablehlo.broadcast_in_dim %arg2, dims = [1] : (tensor<2xf32>) -> tensor<4x2xf32>
    %3 = stablehlo.add %1, %2 : tensor<4x2xf32>
    return %3 : tensor<4x2xf32>
  }
}
"""
WEIGHT = np.arange(6).reshape(3, 2).astype(ml_dtypes.bfloat16)
BIAS = np.array([1, -1], np.float32)
X = np.arange(12, dtype=np.float32).reshape(4, 3) / 8
RESULT = X @ WEIGHT.astype(np.float32) + BIAS


def write(folder: Path, x: Any = X, results: Any = (RESULT,)) -> Path:
    """The model as an exporter writes it."""
    inputs = (
        ModelInput("fc/weight", "weight", WEIGHT),
        ModelInput("x", "input", x),
        ModelInput("FC.bias", "buffer", BIAS),
    )
    write_model_directory(folder, TEXT, inputs, results)
    return folder


@needs_jaxlib
def test_a_model_is_written_and_run(tmp_path: Path) -> None:
    """With an example of each input and its results, which are compared; weights stay where inputs are made."""
    folder = write(tmp_path / "model")
    assert sorted(path.name for path in (folder / "data").iterdir()) == [
        *("FC.bias.npy", "fc_weight.npy", "result.0.npy", "x.npy"),
    ]  # fmt: skip
    model = read_model(folder)
    assert [(one.name, one.kind) for one in model.inputs] == [
        ("fc/weight", "weight"),
        ("x", "input"),
        ("FC.bias", "buffer"),
    ]
    assert model.weights[0].dtype == ml_dtypes.bfloat16
    report = hloopt.run(folder)
    assert report.passed
    assert np.array_equal(report.outputs[0][0], RESULT)
    shown = invoke("run", str(folder)).stdout
    assert "inputs: snapshot" in shown
    assert invoke("stats", str(folder)).exit_code == 0
    assert invoke("check", str(folder)).stdout == f"{folder}: ok\n"
    assert hloopt.read(folder).name == "dense"
    seeded = invoke("run", str(folder), "--seed", "3").stdout
    assert "inputs: seed 3, weights of the model" in seeded
    wrong = write(tmp_path / "wrong", results=(RESULT + 1,))
    assert invoke("run", str(wrong)).exit_code == 1


@needs_jaxlib
def test_inputs_without_an_example_are_made(tmp_path: Path) -> None:
    """From a seed, beside the weights."""
    folder = write(tmp_path / "model", None, ())
    model = read_model(folder)
    assert model.snapshot is None
    assert sorted(model.weights) == [0, 2]
    report = hloopt.run(folder)
    assert report.passed
    assert "weights of the model" in invoke("run", str(folder)).stdout
    given, out = tmp_path / "given.npz", tmp_path / "out.npz"
    np.savez(given, in_1=X)
    words = ("run", str(folder), "--inputs", str(given), "--save", str(out))
    assert invoke(*words).exit_code == 0
    with np.load(out) as results:
        np.testing.assert_array_equal(results["out_0"], RESULT)
    np.savez(given, in_1=X, in_2=BIAS + 1)
    assert invoke(*words).exit_code == 0
    with np.load(out) as results:
        np.testing.assert_array_equal(results["out_0"], RESULT + 1)
    np.savez(given, in_2=BIAS)
    assert "given.npz: it has no in_1" in invoke(*words).stderr


@needs_jaxlib
def test_whatever_makes_inputs_takes_the_weights(tmp_path: Path) -> None:
    """In each class of special values too; where a parameter has another shape by now, none is taken."""
    folder = write(tmp_path / "model", None, ())
    module = hloopt.optimize(hloopt.read(folder), "O2")
    for special in ("", "wide", "nan"):
        weight, x, bias = made(module, Trial(3, special)).arrays[0]
        assert np.array_equal(weight, WEIGHT)
        assert np.array_equal(bias, BIAS)
        assert x.shape == X.shape
    for words in (("compare", str(folder), str(folder)), ("bisect", str(folder), "-O2")):
        assert "weights of the model" in invoke(*words, "--json").stdout, words
    compiled = invoke("bisect", str(folder), "--xla", "--json")
    assert compiled.exit_code == 0
    assert "weights of the model" in compiled.stdout
    module.weights = {0: BIAS, 7: WEIGHT}
    assert made(module, Trial(3)).origin == "seed 3"


@needs_jaxlib
def test_a_directory_of_torch_xla_is_read(tmp_path: Path) -> None:
    """Weights by their names, constants by their numbers, the argument in between."""
    for name in ("functions", "data", "constants"):
        (tmp_path / name).mkdir()
    locations = [
        {"type_": "parameter", "position": -1, "name": "fc.weight"},
        {"type_": "input_arg", "position": 0, "name": ""},
        {"type_": "constant", "position": 0, "name": ""},
    ]
    meta = tmp_path / "functions" / "forward.meta"
    meta.write_text(json.dumps({"name": "forward", "input_locations": locations}))
    (tmp_path / "functions" / "forward.mlir").write_text(TEXT)
    with (tmp_path / "data" / "fc.weight").open("wb") as stream:
        np.save(stream, WEIGHT.view(np.uint16))
    with (tmp_path / "constants" / "0").open("wb") as stream:
        np.save(stream, BIAS)
    model = read_model(tmp_path)
    assert [(one.name, one.kind) for one in model.inputs] == [
        *(("fc.weight", "weight"), ("input 0", "input"), ("constant 0", "constant")),
    ]  # fmt: skip
    assert np.array_equal(model.weights[0], WEIGHT)
    assert np.array_equal(model.weights[2], BIAS)
    assert hloopt.run(tmp_path).passed
    meta.write_text('{"input_locations": [{"type_": "weight"}]}')
    with pytest.raises(FileError, match="no description of torch_xla"):
        read_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "its 'format' is not 'hloopt-model'"),
        ({"version": 7}, "its 'version' is 7, 1 is read"),
        ({"module": "/etc/passwd"}, "'module' is not the name of a file in this directory"),
        ({"module": "../model.mlir"}, "'module' is not the name of a file in this directory"),
        ({"inputs": {}}, "'inputs' is not a list of objects"),
        ({"inputs": [{"name": "x", "kind": "wight"}]}, "inputs[0] needs a name and a kind, one of weight"),
        ({"inputs": [{"name": "x", "kind": "input", "file": 3}]}, "inputs[0].file is not the name of a file"),
        ({"results": [{}]}, "results[0].file is not the name of a file"),
    ],
)  # fmt: skip
def test_mistakes_of_the_index(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """Each names the entry; exit code 2, no traceback."""
    folder = write(tmp_path)
    index = folder / "model.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), **change}))
    result = invoke("check", str(folder))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{index}: error: this is no index of a model: ")
    assert message in result.stderr


def test_an_index_that_is_no_json_has_a_place(tmp_path: Path) -> None:
    """Line and column, as of any text."""
    (tmp_path / "model.json").write_text('{"format":\n  oops}')
    result = invoke("check", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.startswith(f"{tmp_path / 'model.json'}:2:3: error: Expecting value")


@needs_jaxlib
def test_arrays_that_do_not_fit(tmp_path: Path) -> None:
    """Another size, another type, pickled objects, too few inputs, no file."""
    folder = write(tmp_path)
    path = folder / "data" / "x.npy"
    for content, message in (
        (X[:2], "x has dimensions [2, 3], not [4, 3]"),
        (X.astype(np.int64), "x"),
        (np.array([{}], object), "an array that cannot be read"),
    ):
        np.save(path, content, allow_pickle=True)
        with pytest.raises(UsageError) as caught:
            read_model(folder)
        assert str(path) in str(caught.value)
        assert message in str(caught.value)
    path.unlink()
    with pytest.raises(UsageError, match="No such file"):
        read_model(folder)
    write_model_directory(folder, TEXT, [ModelInput("x", "input")])
    with pytest.raises(UsageError, match="1 inputs are listed, the module has 3"):
        read_model(folder)
    with pytest.raises(UsageError, match="is a wait, not one of weight"):
        write_model_directory(folder, TEXT, [ModelInput("x", "wait")])
