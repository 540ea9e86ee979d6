"""What TensorFlow writes is HLO text, which is read as it is."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt

tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")


def test_compiler_ir_is_read_and_run() -> None:
    """Weights are parameters; the results are TensorFlow's."""
    weight = tensorflow.constant(np.linspace(-1, 1, 48, dtype=np.float32).reshape(16, 3))

    @tensorflow.function(jit_compile=True)
    def dense(x):
        return tensorflow.nn.relu(x @ weight)

    x = np.linspace(0, 1, 128, dtype=np.float32).reshape(8, 16)
    module = hloopt.read(dense.experimental_get_compiler_ir(tensorflow.constant(x))(stage="hlo"))
    arrays = [
        x if shape.dims == x.shape else weight.numpy() for shape in module.entry.parameter_shapes
    ]
    (result,) = hloopt.evaluate(module, arrays)
    np.testing.assert_allclose(result, dense(x).numpy(), rtol=1e-5)
