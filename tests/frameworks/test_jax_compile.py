"""``hloopt.jax.compile``: whole plans on hloopt's devices, the emulator in a GPU's place."""

from __future__ import annotations

import numpy as np
import pytest

from hloopt.backends import check_device
from hloopt.errors import DeviceError, UsageError

jax = pytest.importorskip("jax", reason="no jax: install the extra xla")
jnp = jax.numpy

import hloopt.jax  # noqa: E402 - needs jax

X = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)


def block(x):
    return {"weights": jax.nn.softmax(x @ x.T), "rest": (jnp.sort(x), x.sum(), x[:0])}


@pytest.mark.parametrize("device", ["emulator", "cpu", "gpu"])
def test_results_and_derivatives(device) -> None:
    """Within jit and without."""
    try:
        check_device(device)
    except DeviceError as error:
        pytest.skip(str(error))
    found = hloopt.jax.compile(block, device, target=None if device == "cpu" else "a100_sxm_80")
    expected, made = jax.jit(block)(X), jax.jit(lambda x: found(x * 1))(X)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(made), strict=True):
        assert one.aval == other.aval
        np.testing.assert_allclose(one, other, rtol=2e-6)
    slopes = [jax.grad(lambda x, fun=fun: fun(x)["weights"][0, 1])(X) for fun in (block, found)]
    np.testing.assert_allclose(*slopes, rtol=2e-5, atol=1e-7)


def test_names_are_checked_at_once() -> None:
    """Not when the function is called."""
    with pytest.raises(UsageError, match="unknown device 'gpux'"):
        hloopt.jax.compile(block, "gpux")
    with pytest.raises(UsageError, match="h2000"):
        hloopt.jax.compile(block, "cpu", target="h2000")
