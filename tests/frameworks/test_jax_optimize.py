"""``hloopt.jax.optimize`` beside ``jax.jit``: results, derivatives, and how a call behaves."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="no jax: install the extra xla")
jnp = jax.numpy

import hloopt.jax  # noqa: E402 - needs jax
from hloopt.errors import UnsupportedError, UsageError  # noqa: E402

WEIGHTS = {
    "w": np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8),
    "b": np.arange(8, dtype=np.float32),
}
X = np.linspace(0, 1, 32, dtype=np.float32).reshape(4, 8)


def layers(weights, x, *, count=2):
    """Softmax layers: a tree in and out, a static keyword, a number and an integer among the results."""
    hidden = jnp.tanh(x @ weights["w"] + weights["b"])
    for _ in range(count):
        hidden = jax.nn.softmax(hidden, -1) @ weights["w"]
    return {"hidden": hidden, "rest": (hidden.sum(), x.shape[0], jnp.argmax(hidden), None)}


def equal(expected, found) -> None:
    """The same tree with the same types, weak ones among them, and values."""
    assert jax.tree.structure(expected) == jax.tree.structure(found)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        assert one.aval == other.aval
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


def test_it_behaves_as_jit_does() -> None:
    """Trees, static arguments by name, numbers, types, attributes of the function."""
    expected = jax.jit(layers, static_argnames="count")
    found = hloopt.jax.optimize(layers, static_argnames="count")
    assert (found.__name__, found.__doc__) == ("layers", layers.__doc__)
    equal(expected(WEIGHTS, X, count=3), found(WEIGHTS, X, count=3))
    equal(expected(WEIGHTS, X[:2]), found(WEIGHTS, X[:2]))
    equal(
        jax.jit(lambda x, y: (x * y, y))(X, 2.0),
        hloopt.jax.optimize(lambda x, y: (x * y, y))(X, 2.0),
    )
    assert found.eval_shape(WEIGHTS, X)["hidden"].shape == (4, 8)
    with pytest.raises(AttributeError, match="nothing_such"):
        found.nothing_such  # noqa: B018


def test_calls_are_traced_once_for_each_signature() -> None:
    """What the second call costs is what jit's costs."""
    traced = []

    @hloopt.jax.optimize
    def count(x):
        traced.append(x.shape)
        return x + 1

    for size in (3, 3, 4, 3):
        count(jnp.zeros(size))
    assert traced == [(3,), (4,)]


def test_a_call_costs_little_more_than_jit() -> None:
    """Less than 100 us, the best of a few rounds."""
    x = jnp.ones(4)
    ours, theirs = hloopt.jax.optimize(lambda x: x + 1), jax.jit(lambda x: x + 1)

    def best(fun) -> float:
        fun(x)
        times = []
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(20):
                fun(x)
            times.append(time.perf_counter() - start)
        return min(times) / 20

    assert best(ours) - best(theirs) < 100e-6


@pytest.mark.filterwarnings("ignore:vmap of layers")  # which jacobians are made by
@pytest.mark.parametrize(
    "derive",
    [
        jax.grad,
        lambda fun: jax.jit(jax.value_and_grad(fun)),
        jax.jacfwd,
        jax.hessian,
        lambda fun: jax.grad(jax.checkpoint(fun)),
        lambda fun: jax.grad(
            lambda *a: jax.lax.scan(lambda c, _: (c + fun(*a), c), 0.0, None, length=3)[0]
        ),
    ],
    ids=["grad", "jit", "forward", "hessian", "checkpoint", "scan"],
)
def test_derivatives(derive) -> None:
    """In both modes, of each other, within jit, checkpoints and loops."""

    def loss(fun):
        def of(weights, x):
            made = fun(weights, x)
            return made["hidden"].sum() ** 2 + made["rest"][0]

        return of

    expected = derive(loss(layers))(WEIGHTS, X)
    equal(expected, derive(loss(hloopt.jax.optimize(layers)))(WEIGHTS, X))


def test_modules_of_derivatives_are_optimized() -> None:
    """``x * 1`` is in neither module, and grad of it is one."""
    found = hloopt.jax.optimize(lambda x: jnp.sin(x * 1.0 + 0.0 * 3).sum())
    text = jax.jit(jax.grad(found)).lower(X).as_text()
    assert text.count("call @hloopt") == 2  # outputs with residuals, and the transposed line
    assert "add" not in found.hlo(X).to_text().partition("ENTRY")[2]


def test_closed_over_values() -> None:
    """Large arrays become parameters, small ones stay known; tracers of an outer function are passed."""
    table, scale = np.arange(3000.0, dtype=np.float32), np.float32([1, 1, 1])
    found = hloopt.jax.optimize(lambda x: x * scale + table[:3] + table.sum())
    equal(jax.jit(lambda x: x * scale + table[:3] + table.sum())(X[0, :3]), found(X[0, :3]))

    refers = hloopt.jax.optimize(lambda x: jnp.asarray(table) * x)
    assert [one.array.dims for one in refers.hlo(2.0).entry.parameters] == [(3000,), ()]

    def outer(y):
        return hloopt.jax.optimize(lambda x: (x * y).sum())(X)

    equal(jax.grad(lambda y: (X * y).sum())(3.0), jax.grad(outer)(3.0))


def test_donated_arrays_are_given_up() -> None:
    """As with jit."""
    found = hloopt.jax.optimize(lambda x: x + 1, donate_argnums=0)
    given = jnp.ones(1000)
    equal(jnp.full(1000, np.float32(2)), found(given))
    assert given.is_deleted()


def test_methods_keys_and_other_devices() -> None:
    """A method has its object; random keys go in and out; a device is one of JAX's."""

    class Layer:
        scale = 3.0

        @partial(hloopt.jax.optimize, static_argnums=0)
        def apply(self, x):
            return x * self.scale

    equal(jnp.asarray(X * 3), Layer().apply(X))
    draw = lambda key: (jax.random.normal(key, (4,)), jax.random.split(key))  # noqa: E731
    key = jax.random.key(1)
    expected, found = jax.jit(draw)(key), hloopt.jax.optimize(draw)(key)
    equal(expected[0], found[0])
    assert (jax.random.key_data(expected[1]) == jax.random.key_data(found[1])).all()


def test_vmap_runs_jaxs_own_function() -> None:
    """And warns with its name."""
    found = hloopt.jax.optimize(layers)
    with pytest.warns(
        UserWarning, match="^vmap of layers: JAX runs it without hloopt; give hloopt the function"
    ):
        made = jax.vmap(lambda x: found(WEIGHTS, x)["hidden"])(np.stack([X, X + 1]))
    equal(jax.vmap(lambda x: layers(WEIGHTS, x)["hidden"])(np.stack([X, X + 1])), made)


def test_views() -> None:
    """The module as it runs, what is in it, its kernels, and whether it is right."""
    found = hloopt.jax.optimize(layers)
    hlo = found.hlo(WEIGHTS, jax.ShapeDtypeStruct((4, 8), np.float32))
    assert any(one.opcode == "fusion" for one in hlo.instructions())
    assert not any(one.opcode == "fusion" for one in found.module(WEIGHTS, X).instructions())
    assert found.stats(WEIGHTS, X).opcodes["dot"] == 3
    assert found.stats(WEIGHTS, X, target="h200").seconds > 0
    explained = found.explain(WEIGHTS, X, target="h200").to_json()
    assert explained == hloopt.explain(hlo, pipeline="", target="h200").to_json()
    assert {row["opcode"] for row in explained["summary"]} >= {"fusion", "dot"}
    (kernel, *_) = (one.name for one in hlo.entry if one.opcode == "fusion")
    assert found.explain(WEIGHTS, X, names=[kernel]).names == (kernel,)
    assert found.compare(WEIGHTS, X).equal
    with pytest.raises(UsageError, match="h2000"):
        found.explain(WEIGHTS, X, target="h2000")


def printing(x):
    jax.debug.print("{}", x)
    return x


def asking(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


@pytest.mark.parametrize(
    ("fun", "message"),
    [
        (
            printing,
            r"^printing: error: it does more than compute results \(Debug\): only JAX can run it\b",
        ),
        (asking, r"^asking: error: %\S+ calls Python: only JAX can run it\b"),
    ],
)
def test_calls_into_python_are_refused(fun, message) -> None:
    """JAX would give them an address of the lowering that hloopt reads."""
    with pytest.raises(UnsupportedError, match=message):
        hloopt.jax.optimize(fun)(X)


def test_wrong_pipelines_are_refused_at_once() -> None:
    """Not when the function is called, and so is what is no function."""
    with pytest.raises(TypeError, match="takes a function, not 3"):
        hloopt.jax.optimize(3)
    with pytest.raises(UsageError, match="simplyfy"):
        hloopt.jax.optimize(layers, pipeline="simplyfy")


def test_keys_are_placed_nowhere() -> None:
    """JAX shards them over an empty mesh, which would be a custom call in the module, and GSPMD's."""
    split = hloopt.jax.optimize(jax.random.split)
    key = jax.random.key(3)
    assert not any(one.opcode == "custom-call" for one in split.hlo(key).instructions())
    found, expected = (jax.random.key_data(one(key)) for one in (split, jax.random.split))
    np.testing.assert_array_equal(found, expected)


def test_an_unknown_option_is_an_error_of_ours() -> None:
    with pytest.raises(TypeError, match="no option 'pipelin'; did you mean 'pipeline'"):
        hloopt.jax.optimize(jnp.sin, pipelin="O2")
    assert repr(hloopt.jax.optimize(jnp.sin)) == "<Optimizing: sin>"
