"""Custom calls evaluated by functions from outside."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError, UnsupportedError, UsageError
from hloopt.interpret import plugins
from tests.helpers.support import invoke

TEXT = """HloModule m
ENTRY e {
  a = f32[] parameter(0)
  x = bf16[3]{0} parameter(1)
  ROOT r = (bf16[3]{0}, s32[]) custom-call(a, x), custom_call_target="scaled", backend_config="{\\"by\\": 2}"
}
"""
INPUTS = [np.float32(3), np.array([1, 2, 4], ml_dtypes.bfloat16)]


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_GIVEN", {})
    plugins._installed.cache_clear()


def scaled(call: plugins.CustomCall, a: np.ndarray, x: np.ndarray) -> Any:
    assert call.target == "scaled"
    assert "by" in call.backend_config
    assert str(call.result_shape) == "(bf16[3]{0}, s32[])"
    return a.astype(x.dtype) * x, np.int32(7)


@pytest.mark.parametrize("excess_precision", [False, True])
def test_a_registered_function_gives_the_results(excess_precision: bool) -> None:
    """It sees arrays in storage types; interpreter and executor call it."""
    plugins.register("scaled", scaled)
    module = hloopt.parse(TEXT)
    for results in (
        hloopt.evaluate(module, INPUTS, excess_precision=excess_precision),
        hloopt.compile(module, excess_precision=excess_precision).run(INPUTS),
    ):
        assert results[0].astype(float).tolist() == [3, 6, 12]
        assert int(results[1]) == 7


def test_without_a_function_the_call_is_refused() -> None:
    """Before anything runs, as ever."""
    with pytest.raises(UnsupportedError, match="custom call to scaled has no evaluation"):
        hloopt.evaluate(hloopt.parse(TEXT), INPUTS)


def test_a_function_wins_over_what_is_built_in() -> None:
    """The user knows better."""
    plugins.register("Sharding", lambda call, x: -x)
    text = 'HloModule m\nENTRY e { p = f32[2]{0} parameter(0) ROOT r = f32[2]{0} custom-call(p), custom_call_target="Sharding" }\n'
    (found,) = hloopt.evaluate(hloopt.parse(text), [np.ones(2, np.float32)])
    assert found.tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda call, a, x: x, "gave an object of type ndarray instead of 2 results"),
        (lambda call, a, x: (x,), "gave 1 results instead of 2 results"),
        (lambda call, a, x: (x[:2], np.int32(0)), "gave bfloat16[2] instead of bf16[3]{0} for {0}"),
        (lambda call, a, x: (x, np.int64(0)), "gave int64[] instead of s32[] for {1}"),
        (lambda call, a: a, "failed: TypeError"),
        (lambda call, a, x: x.fill(0), "failed: ValueError: assignment destination is read-only"),
    ],
)  # fmt: skip
def test_wrong_functions_are_named_with_their_call(function: Any, message: str) -> None:
    """Nothing is converted silently; inputs cannot be written to."""
    plugins.register("scaled", function)
    wanted = f"<text>:5:8: r: the function for scaled {message}"
    with pytest.raises(EvaluationError, match=re.escape(wanted)):
        hloopt.evaluate(hloopt.parse(TEXT), INPUTS)


MODULE = """
import numpy as np
def scaled(call, a, x):
    return a.astype(x.dtype) * x, np.int32(7)
class More:
    @staticmethod
    def other(call, a, x):
        return x, np.int32(0)
"""


@pytest.mark.parametrize(
    "spec", ["users_calls:scaled", "scaled=users_calls:More.other", "scaled=users_calls.py:scaled"]
)
def test_run_takes_functions(spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a module in the current directory; the target may be named."""
    (tmp_path / "users_calls.py").write_text(MODULE)
    (tmp_path / "m.hlo").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    result = invoke("run", "m.hlo", "--custom-call", spec)
    assert result.exit_code == 0, result.stderr
    assert "ok" in result.stdout
    assert "note" not in result.stderr
    extra = invoke("run", "m.hlo", "--custom-call", spec, "--custom-call", "users_calls:More.other")
    assert extra.exit_code == 0
    assert "note: no custom call that was run has the target other\n" in extra.stderr


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("scaled", "'scaled' is not of the form [TARGET=]module:function"),
        ("=a:b", "'=a:b' is not of the form"),
        ("no_such_module:f", "'no_such_module' cannot be imported: ModuleNotFoundError"),
        ("math:no_such", "'math' has no function 'no_such'"),
        ("math:pi", "'pi' of 'math' is of type float, not a function"),
        ("json:JSONDecoder", "'JSONDecoder' of 'json' is a class, not a function"),
        ("no_such.py:f", "no_such.py: no such file"),
    ],
)
def test_what_cannot_be_loaded_is_told(spec: str, message: str) -> None:
    """A wrong option, with exit code 2."""
    with pytest.raises(UsageError) as caught:
        plugins.load(spec)
    assert caught.value.message.removeprefix("--custom-call: ").startswith(message)


def test_installed_functions_are_found_by_their_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entry points of the group are asked for by name, and loaded when a module calls them."""

    class Entry:
        def load(self) -> Any:
            return scaled

    asked = []

    def entry_points(group: str, name: str) -> list[Entry]:
        asked.append((group, name))
        return [Entry()] if name == "scaled" else []

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)
    results = hloopt.evaluate(hloopt.parse(TEXT), INPUTS)
    assert int(results[1]) == 7
    assert set(asked) == {("hloopt.custom_calls", "scaled")}
    plugins._installed.cache_clear()


def test_a_broken_entry_point_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name and what went wrong."""

    class Entry:
        def load(self) -> Any:
            raise ImportError("no such thing")

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group, name: [Entry()])
    with pytest.raises(UsageError, match=r"'scaled' of hloopt\.custom_calls cannot be loaded: Imp"):
        hloopt.evaluate(hloopt.parse(TEXT), INPUTS)
    plugins._installed.cache_clear()
