"""``hloopt.jax.compile``: whole plans on hloopt's devices, the emulator or CuPy's stand-in in a GPU's place."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from hloopt.backends import check_device
from hloopt.backends.called_program import CalledProgram
from hloopt.errors import DeviceError, UsageError
from tests.backends.cuda.conftest import fake
from tests.backends.cuda.fake_cupy import FakeCupy
from tests.backends.cuda.plan_kernels import evaluated

jax = pytest.importorskip("jax", reason="no jax: install the extra xla")
jnp = jax.numpy

import hloopt.jax  # noqa: E402 - needs jax
from hloopt.jax import on_device  # noqa: E402

__all__ = ["fake"]  # a fixture

X = np.linspace(0, 1, 24, dtype=np.float32).reshape(4, 6)


def block(x):
    return {"weights": jax.nn.softmax(x @ x.T), "rest": (jnp.sort(x), x.sum(), x[:0], x)}


def equal(expected, found, rtol=2e-6) -> None:
    """The same tree, types and values."""
    assert jax.tree.structure(expected) == jax.tree.structure(found)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        assert one.aval == other.aval
        np.testing.assert_allclose(one, other, rtol=rtol)


def there(device) -> str:
    """A device, if it is there."""
    try:
        check_device(device)
    except DeviceError as error:
        pytest.skip(str(error))
    return device


@pytest.mark.parametrize("device", ["emulator", "cpu", "native", "gpu"])
def test_results_and_derivatives(device) -> None:
    """Within jit and without."""
    target = "a100_sxm_80" if device in ("emulator", "gpu") else None
    found = hloopt.jax.compile(block, there(device), target=target)
    equal(jax.jit(block)(X), jax.jit(lambda x: found(x * 1))(X))
    slopes = [jax.grad(lambda x, fun=fun: fun(x)["weights"][0, 1])(X) for fun in (block, found)]
    np.testing.assert_allclose(*slopes, rtol=2e-5, atol=1e-7)


def step(state, x):
    """What updates a state, one part of which is only handed on."""
    moved = state["m"] * 0.5 + x
    return {"w": state["w"] - jnp.tanh(moved @ x.T @ x), "m": moved, "k": state["k"]}


STATE = {"w": X, "m": X + 1, "k": X[0]}


def test_calls_have_addresses() -> None:
    """No callback of JAX's, which goes through the host's memory; donated memory becomes that of results."""
    found = hloopt.jax.compile(step, there("emulator"), donate_argnums=0)
    given = jax.tree.map(jnp.array, STATE)
    lowered = found.lower(given, X)
    assert lowered.as_text().count("stablehlo.custom_call @hloopt_on_stream") == 1
    assert " copy(" not in lowered.compile().as_text()
    kept = {one.unsafe_buffer_pointer() for one in jax.tree.leaves(given)}
    made = found(given, X)
    equal(jax.jit(step)(STATE, X), made)
    assert kept == {one.unsafe_buffer_pointer() for one in jax.tree.leaves(made)}

    twice = lambda fun, s, x: (fun(s, x), jax.lax.fori_loop(0, 3, lambda _, s: fun(s, x), s), s)  # noqa: E731
    equal(jax.jit(lambda s, x: twice(step, s, x))(STATE, X), jax.jit(lambda s, x: twice(found, s, x))(STATE, X), 1e-5)  # fmt: skip


def test_what_fails_is_raised_by_jax() -> None:
    """With our message: a loop that will never end."""
    found = hloopt.jax.compile(
        lambda x: jax.lax.while_loop(lambda s: s < 1, lambda s: jnp.minimum(s, 0.5), x.sum() * 0),
        there("emulator"),
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match="the loop does not end"):
        jax.block_until_ready(found(X))


def test_a_gpu_is_called_in_jaxs_stream(fake: FakeCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX's CPU hands over addresses as its GPU would, and CuPy's stand-in takes them for memory of a GPU."""
    there("native")  # the compiler, which makes what XLA calls
    prepare = on_device.prepare

    def prepared(*given: Any, **named: Any) -> Any:
        made = prepare(*given, **named)
        fake.kernels |= evaluated(made.plan)
        return made

    monkeypatch.setattr(on_device, "prepare", prepared)
    monkeypatch.setitem(on_device._CALLED, "gpu", "cpu")  # type: ignore[index]
    found = hloopt.jax.compile(step, "gpu", donate_argnums=0)
    state, expected = jax.tree.map(jnp.array, STATE), STATE
    for _ in range(4):
        state, expected = found(state, X), jax.jit(step)(expected, X)
        equal(expected, state, 1e-5)
    calls = fake.calls[fake.names().index("launch") :]
    assert {call[-1] for call in calls if call[0] == "memcpyAsync"} <= {3}, "never from the host"
    assert {"synchronize", "alloc"}.isdisjoint(call[0] for call in calls)
    assert set(fake.streams[-3:]) == {0}, "the CPU's, which has none"


def test_a_call_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what the plan takes less than 100 us more than jit, the best of a few rounds."""
    x, called = jnp.ones(4), []
    monkeypatch.setattr(CalledProgram, "run_at", lambda *given: called.append(given))
    functions = (hloopt.jax.compile(jnp.sin, there("emulator")), jax.jit(jnp.sin))
    best = [float("inf")] * 2
    for _ in range(50):
        for number, fun in enumerate(functions):
            start = time.perf_counter()
            for _ in range(10):
                jax.block_until_ready(fun(x))
            best[number] = min(best[number], (time.perf_counter() - start) / 10)
    assert best[0] - best[1] < 100e-6
    assert len(called) == 500


def test_names_are_checked_at_once() -> None:
    """Not when the function is called."""
    with pytest.raises(UsageError, match="unknown device 'gpux'"):
        hloopt.jax.compile(block, "gpux")
    with pytest.raises(UsageError, match="h2000"):
        hloopt.jax.compile(block, "cpu", target="h2000")
