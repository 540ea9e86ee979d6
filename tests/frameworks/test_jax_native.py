"""``hloopt.jax.native`` beside ``jax.jit``: programs of our own behind XLA's calls."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hloopt.backends.native import check_native
from hloopt.errors import DeviceError, UnsupportedError

jax = pytest.importorskip("jax", reason="no jax: install the extra xla")
try:
    check_native()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)
jnp = jax.numpy

import hloopt.jax  # noqa: E402 - needs jax
from hloopt.jax import entries, on_device  # noqa: E402

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)


def equal(expected, found) -> None:
    """The same tree, types and values."""
    assert jax.tree.structure(expected) == jax.tree.structure(found)
    for one, other in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        assert one.aval == other.aval
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


def grown(x):
    """A loop whose trip count only its data shows."""
    return jax.lax.while_loop(lambda s: s[1].sum() < 100, lambda s: (s[0] + 1, s[1] * 1.5), (0, x))


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: {"sum": x.sum(), "same": x, "twice": (x, x[:2])},
        lambda x: (x.T @ x, x.T),
        lambda x: x.at[1, 2].set(3.0).at[0].add(x[1]),
        lambda x: jnp.linalg.eigh(x[:, :4] + x[:, :4].T)[0],
        lambda x: (x @ jnp.ones((6, 300)), jnp.sort(x), x > 0, x[:0]),
        lambda x: grown(jnp.abs(x)),
        lambda x: jax.lax.scan(lambda c, y: (c * y, c), x[0], x),
        lambda x: (),
    ],
)
def test_results(fun) -> None:
    """Results that are inputs, written in place, made by the NumPy executor, turned, or empty."""
    equal(jax.jit(fun)(X), hloopt.jax.native(fun)(X))


def test_derivatives_and_calls_within_jit() -> None:
    """As of ``optimize``: each of the calls is a program."""
    fun = lambda x: jnp.tanh(x @ x.T / 8).sum()  # noqa: E731
    found = hloopt.jax.native(fun)
    equal(jax.grad(fun)(X), jax.grad(found)(X))
    lowered = jax.jit(lambda x: jax.grad(found)(x * 2)).lower(X).as_text()
    assert lowered.count("stablehlo.custom_call @hloopt_native") == 2
    equal(jax.jit(jax.grad(lambda x: fun(x * 2)))(X), jax.jit(jax.grad(lambda x: found(x * 2)))(X))


def step(state, x, *, rate=0.1):
    """One array in whose place a result is written, one that is read after that, one that is only handed on."""
    moved = state["m"] * 0.9 + x
    return {"w": state["w"] - rate * moved, "m": moved, "k": state["k"]}, (state["w"] * x).sum()


STATE = {"w": X, "m": X + 1, "k": X[0]}


@pytest.mark.parametrize(
    ("fun", "arguments", "options"),
    [
        (lambda x: x.at[0].add(1.0), (X,), {"donate_argnums": 0}),
        (lambda x: (jnp.tanh(x @ x.T @ x), x.sum()), (X,), {"donate_argnums": (0,)}),
        (lambda x, y: (y, x), (X, X + 1), {"donate_argnums": (0, 1)}),
        (lambda x, n: x[::-1] * n, (X, 3), {"donate_argnames": "x", "static_argnums": 1}),
        (lambda x: jax.lax.scan(lambda c, _: (c * c, None), x, length=3)[0], (X,), {"donate_argnums": 0}),
        (lambda x: x * 2 - jnp.linalg.eigh(x @ x.T)[0].sum(), (X,), {"donate_argnums": 0}),
        (step, (STATE, X), {"donate_argnums": 0}),
    ],
)  # fmt: skip
def test_donated_arrays_become_results(fun, arguments, options) -> None:
    """All of their memory is taken, and neither XLA nor we copy anything."""
    found = hloopt.jax.native(fun, **options)
    given = jax.tree.map(lambda one: one if isinstance(one, int) else jnp.array(one), arguments)
    donated = jax.tree.leaves(given if options.get("donate_argnums") == (0, 1) else given[0])
    places = {one.unsafe_buffer_pointer() for one in donated}
    expected = jax.jit(fun, static_argnums=options.get("static_argnums"))(*arguments)
    assert " copy(" not in found.lower(*given).compile().as_text()
    made = found(*given)
    equal(expected, made)
    assert all(one.is_deleted() for one in donated)
    assert places <= {one.unsafe_buffer_pointer() for one in jax.tree.leaves(made)}


def test_what_is_donated_within_jit_may_be_read_afterwards() -> None:
    """Donating is a promise of the outermost function: XLA copies what is still needed, and only that."""
    found = hloopt.jax.native(step, donate_argnums=0)
    for fun in (
        lambda call, state, x: (call(state, x), state["w"] * 2),
        lambda call, state, x: jax.lax.scan(call, state, jnp.stack([x, x + 1])),
        lambda call, state, x: jax.value_and_grad(lambda s: call(s, x)[1])(dict(state, k=x[0])),
    ):
        expected = jax.jit(lambda *a, fun=fun: fun(step, *a))(STATE, X)
        equal(expected, jax.jit(lambda *a, fun=fun: fun(found, *a))(STATE, X))
    assert found.module(STATE, X).attributes["input_output_alias"]
    equal(jax.jit(step)(STATE, X), jax.jit(hloopt.jax.native(step))(STATE, X))


def test_calls_from_several_threads() -> None:
    """They wait for each other, with and without steps in Python."""
    for fun in (lambda x: jnp.tanh(x).sum(0), lambda x: x @ jnp.ones((6, 300)) + grown(x * x)[0]):
        found, expected = hloopt.jax.native(fun), jax.jit(fun)
        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(lambda k, fun=found: fun(X * k), range(1, 40)))
        for k, one in enumerate(made, 1):
            equal(expected(X * np.float32(k)), one)


def test_what_fails_in_python_is_raised_by_jax() -> None:
    """A loop that will never end, with our message."""
    found = hloopt.jax.native(
        lambda x: jax.lax.while_loop(lambda s: s < 1, lambda s: jnp.minimum(s, 0.5), x.sum())
    )
    with pytest.raises(jax.errors.JaxRuntimeError, match="the loop does not end"):
        jax.block_until_ready(found(X))


def test_the_program_is_shown() -> None:
    """``hlo`` is what was compiled, before it is made ready; ``compare`` runs it."""
    found = hloopt.jax.native(lambda x: jnp.exp(x) + 1)
    assert found.hlo(X).entry.root.opcode == "fusion"
    assert found.compare(X).equal


def test_types_that_have_no_address_are_refused() -> None:
    """Four bits are half a byte."""
    with pytest.raises(
        UnsupportedError, match=r"s4\[4,6\]\S* in memory is not a row-major array of whole bytes"
    ):
        hloopt.jax.native(lambda x: x.astype(jnp.int4))(X)


def test_calls_within_calls_are_part_of_them() -> None:
    """Whichever is inside: one module, one call; derivatives too."""
    inner = lambda x: jnp.exp(-x * x)  # noqa: E731
    for wrapped in (hloopt.jax.native(inner), hloopt.jax.optimize(inner)):
        fun = lambda x, call: jax.grad(lambda x: call(x).sum())(x) + call(x)  # noqa: E731
        for outer in (hloopt.jax.native, hloopt.jax.optimize):
            found = outer(lambda x, fun=fun, wrapped=wrapped: fun(x, wrapped))
            equal(jax.jit(lambda x, fun=fun: fun(x, inner))(X), found(X))
            assert not any(one.opcode == "custom-call" for one in found.module(X).instructions())


def test_programs_live_as_long_as_they_may_be_called() -> None:
    """What XLA runs is not freed with the function; the next compilation frees what nothing calls."""
    kept = hloopt.jax.native(lambda x: x + 1)
    kept(X)
    before = set(entries._entries)
    for size in range(1, 9):
        hloopt.jax.native(lambda x: x - jnp.tanh(x) @ x.T @ x)(jnp.ones((8, 8 * size)))
    assert len(entries._entries) > 1
    jax.clear_caches()
    gc.collect()
    hloopt.jax.native(lambda x: x * 5)(X)
    after = set(entries._entries)
    assert len(after - before) == 1, "only the last one"
    equal(jax.jit(lambda x: x + 1)(X), kept(X))
    lowered = hloopt.jax.native(lambda x: x * 7).lower(X)
    jax.clear_caches()
    gc.collect()
    hloopt.jax.native(lambda x: x * 6)(X)
    equal(jnp.asarray(X * 7), lowered.compile()(X))


@pytest.mark.parametrize("is_checked", [True, False])
@pytest.mark.parametrize("wrap", [hloopt.jax.native, hloopt.jax.optimize])
def test_calls_within_shard_map(wrap, is_checked) -> None:
    """With loops and constants; slopes of what all devices have are added up, with and without JAX's checks."""
    spread = jax.sharding.PartitionSpec("d")
    mesh, whole = (
        jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,)),
        jax.sharding.PartitionSpec(),
    )

    def loss(w, x):
        total, _ = jax.lax.scan(lambda c, row: (c + jnp.tanh(row @ w), None), x[0] * 0, x)
        return (total * jnp.arange(6)).sum()

    def trained(call):
        def local(w, x):
            made, slope = jax.value_and_grad(lambda w: call(w, x))(w)
            return jax.lax.pmean(made, "d"), slope if is_checked else jax.lax.psum(slope, "d")

        mapped = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=(whole, spread),
            out_specs=(whole, whole),
            check_vma=is_checked,
        )
        return jax.jit(mapped)(jnp.eye(6), X)

    equal(trained(loss), trained(wrap(loss)))


def test_what_needs_other_devices_is_refused() -> None:
    """Sums over a mesh within a call, and meshes within a program for one device."""
    spread = jax.sharding.PartitionSpec("d")
    mapped = lambda fun: jax.shard_map(  # noqa: E731
        fun,
        mesh=jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,)),
        in_specs=spread,
        out_specs=jax.sharding.PartitionSpec(),
    )
    total = lambda x: jax.lax.psum(x, "d")  # noqa: E731
    with pytest.raises(UnsupportedError, match="it exchanges data over d: hloopt's part is"):
        jax.jit(mapped(hloopt.jax.native(total)))(X)
    expected = jax.jit(mapped(total))(X)
    equal(expected, hloopt.jax.native(mapped(total))(X))
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n p = f32[8] parameter(0)\n"
        ' ROOT c = f32[2] custom-call(p), custom_call_target="xla.sdy.GlobalToLocalShape"\n}\n'
    )
    with pytest.raises(UnsupportedError, match=r"for several devices \(shard_map\), and a program"):
        on_device._for_one(module)
    equal(expected, hloopt.jax.optimize(mapped(total))(X))
