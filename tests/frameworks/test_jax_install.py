"""``hloopt.jax.install``: passes within XLA, which change what its fusions compute and nothing else."""

from __future__ import annotations

import re

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="no jax: install the extra xla")
jnp = jax.numpy

import hloopt.jax  # noqa: E402 - needs jax
from hloopt.errors import UsageError  # noqa: E402
from hloopt.passes.dce import DeadCodeElimination  # noqa: E402

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def sums(x):
    """XLA leaves something for ``simplify`` in this: ``b * 2 + b * 3 - (-x)``."""
    b = jnp.sin(x) + 1
    return b * 2 + b * 3 - (-x), jnp.exp(b) * x


@pytest.fixture(autouse=True)
def fresh():
    """Whatever was compiled before is compiled again."""
    jax.clear_caches()
    yield
    jax.clear_caches()


def test_what_fusions_compute_is_changed() -> None:
    """While it is installed; with a line in the log, the same results, and XLA's names."""
    expected = jax.jit(sums)(X)
    jax.clear_caches()
    with hloopt.jax.install(compare=True) as installed:
        compiled = jax.jit(sums).lower(X).compile()
        found = compiled(X)
    (change,) = installed.log
    assert (change.module, change.passes, change.refused) == ("jit_sums", ("simplify",), "")
    assert change.after < change.before
    assert change.fusion in compiled.as_text()
    assert change.to_json()["passes"] == ["simplify"]
    words = "<simplify,constant-folding,cse,dce within XLA: 1 changed>"
    assert repr(installed) == words
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)

    jax.clear_caches()
    jax.jit(sums)(X)
    assert installed.log == [change], "it was removed"


def test_when_it_is_not_wanted() -> None:
    """By module; the function gets what XLA has."""
    seen = []

    def when(module) -> bool:
        seen.append((module.name, any(one.opcode == "fusion" for one in module.instructions())))
        return False

    with hloopt.jax.install(when=when) as installed:
        jax.jit(sums)(X)
    assert ("jit_sums", True) in seen
    assert installed.log == []


def test_when_is_a_function() -> None:
    """Not found out, by a warning, at every compilation."""
    with pytest.raises(TypeError, match="when is to be a function of a module, not 'jit'"):
        hloopt.jax.install(when="jit")


def test_what_fails_warns_and_leaves_the_module() -> None:
    """An error there would fail the compilation."""

    def when(module) -> bool:
        raise RuntimeError("no answer")

    expected = jax.jit(sums)(X)[0]
    jax.clear_caches()
    with (
        hloopt.jax.install(when=when),
        pytest.warns(UserWarning, match="^hloopt leaves XLA's module as it was: no answer$"),
    ):
        np.testing.assert_array_equal(jax.jit(sums)(X)[0], expected)


def test_fusions_that_write_in_place_stay() -> None:
    """Whatever may be simplified in them."""
    with hloopt.jax.install() as installed:
        found = jax.jit(lambda x: x.at[1].set((x[0] * 2 + x[0] * 3) - (-x[0])), donate_argnums=0)(
            jnp.asarray(X)
        )
    assert installed.log == []
    np.testing.assert_allclose(found[1], X[0] * 6)


class Wrong(DeadCodeElimination):
    """Turns additions into subtractions, or takes what the entry returns for one of its parameters."""

    name = "wrong"
    kind = "subtract"

    def run(self, module, log) -> bool:
        entry = module.entry
        if self.kind == "layout":
            hloopt.ir.edit.set_root(entry, entry.parameters[0])
            return True
        for one in list(entry):
            if one.opcode == "add":
                new = hloopt.ir.build.make(one, self.kind, one.operands)
                hloopt.ir.edit.replace_instruction(one, new)
                return True
        return False


def test_wrong_passes_are_refused() -> None:
    """By the interpreter where it is asked for, by the form of the computation always."""
    expected = jax.jit(sums)(X)
    wrong, root = Wrong(), Wrong()
    object.__setattr__(root, "kind", "layout")
    for pipeline, reason in ((wrong, "results differ"), (root, "shapes or layouts|parameter")):
        jax.clear_caches()
        with hloopt.jax.install(pipeline, compare=True) as installed:
            found = jax.jit(sums)(X)
        assert installed.log
        for change in installed.log:
            assert re.search(reason, change.refused), change
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("priority-fusion", "XLA has fused its modules"),
        ("copy-insertion", "copies and layouts"),
        ("schedule", "XLA schedules"),
        ("O2", "XLA has fused its modules"),
    ],
)
def test_passes_that_may_not_run_there(name, reason) -> None:
    """They are refused at once, and nothing is registered."""
    with pytest.raises(UsageError, match=rf"cannot run within XLA: .*{reason}"):
        hloopt.jax.install(name)


@pytest.mark.parametrize("platforms", [("cpu",), ("cuda",), ("cuda", "rocm")])
def test_what_is_registered_is_removed(monkeypatch, platforms) -> None:
    """For the platforms that are named and no others, under one name; two are told apart."""
    called = []

    def recorded(kind):
        return lambda *given, **place: called.append((kind, len(given), place))

    for kind in ("register", "clear"):
        monkeypatch.setattr(jax.extend.xla, f"{kind}_hlo_module_transformation", recorded(kind))
    with hloopt.jax.install(platforms=platforms), hloopt.jax.install(platforms=platforms):
        pass
    (first, second, *_) = called
    assert [kind for kind, _, _ in called] == ["register"] * 2 + ["clear"] * 2
    assert [count for _, count, _ in called] == [1, 1, 0, 0]
    assert all(place["platforms"] == list(platforms) for _, _, place in called)
    assert first[2]["name"] != second[2]["name"]
    assert [place for _, _, place in called[2:]] == [second[2], first[2]]


def test_another_platform_does_not_change_this_one() -> None:
    """XLA calls what is registered for the platform that it compiles for."""
    with hloopt.jax.install(platforms=("cuda",)) as installed:
        jax.jit(sums)(X)
    assert installed.log == []
