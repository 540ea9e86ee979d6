"""What every test may ask for."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import is_hypothesis_test, settings
from hypothesis.internal.conjecture import providers

from hloopt.backends.emulator import device, toolchain
from hloopt.backends.native import toolchain as native_toolchain
from hloopt.runtime import timing
from tests.helpers.command_server import commands
from tests.helpers.rarely import groups_of_cases

# Hypothesis would read every module of the package for constants to draw: 13 s in each process, and examples
# that change with any number in the code.  Versions that do not have the function read none.
if hasattr(providers, "_get_local_constants"):
    providers._get_local_constants = lambda: providers._local_constants

# The suite draws the same examples on every run; HYPOTHESIS_PROFILE=explore looks for new ones.
_EXAMPLES = 100 if os.environ.get("HLOOPT_SLOW") else 20
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, database=None, max_examples=_EXAMPLES
)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# By default Python looks for garbage after every 700 objects: a tenth of the time of all tests.
gc.set_threshold(50_000, 50, 100)

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--update-golden`` rewrites the expected parts of the golden cases."""
    parser.addoption("--update-golden", action="store_true", help="rewrite golden cases in place")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow, before ``-m slow`` asks; skip what this machine has not, saying what is missing."""
    for cases, quick in groups_of_cases(items):
        for number in set(range(len(cases))).difference(quick):
            cases[number].add_marker(pytest.mark.slow)
    for item in items:
        if os.environ.get("HLOOPT_SLOW") and is_hypothesis_test(getattr(item, "function", None)):
            item.add_marker(pytest.mark.slow)  # it has more examples
        # Not item.keywords: those hold the names of folders too, and this is about marks.
        if item.get_closest_marker("gpu") and not _has_gpu():
            item.add_marker(pytest.mark.skip(reason="no CUDA device with CuPy"))
        if item.get_closest_marker("corpus") and not os.environ.get("HLOOPT_CORPUS"):
            item.add_marker(pytest.mark.skip(reason="HLOOPT_CORPUS is not set"))
        if item.get_closest_marker("slow") and not os.environ.get("HLOOPT_SLOW"):
            item.add_marker(pytest.mark.skip(reason="HLOOPT_SLOW is not set; make slow sets it"))


@pytest.fixture(scope="module", autouse=True)
def _old_objects_rest() -> None:
    """What modules before this one left is looked at no more.

    Tests, examples and caches of a whole run are millions of objects, and a collection of them takes seconds.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _no_garbage_is_looked_for() -> Iterator[None]:
    """`run` collects garbage before each call it times, a third of the time of small programs.

    It and others ask first whether objects are frozen, and Python counts some millions one by one.
    """
    words = ("disable", "enable", "freeze", "isenabled", "unfreeze")
    resting = SimpleNamespace(
        collect=lambda: 0, get_freeze_count=lambda: 1, **{word: getattr(gc, word) for word in words}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "get_freeze_count", lambda: 1)
        patch.setattr(timing, "gc", resting)
        yield


@pytest.fixture(scope="session", autouse=True)
def _emulated_programs_are_compiled_quickly() -> Iterator[None]:
    """Most tests run a program of the emulator once, which takes less time than optimising it.

    The slow tests have it optimised, and so do those that ask for ``optimised_on_the_emulator``.
    """

    def build(text: str, **options: Any) -> Path:
        return toolchain.build_program(text, **{**options, "is_optimized": False})

    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("HLOOPT_SLOW"):
            patch.setattr(device, "build_program", build)
        yield


@pytest.fixture
def optimised_on_the_emulator(_emulated_programs_are_compiled_quickly: None) -> Iterator[None]:
    """Programs as users have them, where their loops are long or the compiler's options are what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device, "build_program", toolchain.build_program)
        yield


@pytest.fixture(scope="module")
def quickly_compiled() -> Iterator[None]:
    """Large programs are compiled in half the time; the slow tests, and ``test_every_op``, have them as users do."""
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("HLOOPT_SLOW"):
            assert "-O3" in native_toolchain._FLAGS
            flags = tuple("-O1" if flag == "-O3" else flag for flag in native_toolchain._FLAGS)
            patch.setattr(native_toolchain, "_FLAGS", flags)
        yield


@cache
def _has_gpu() -> bool:
    try:
        import cupy
    except ImportError:
        return False
    try:
        return bool(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


@pytest.fixture
def rng() -> np.random.Generator:
    """The same random numbers on every run."""
    return np.random.default_rng(20230131)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's top folder."""
    return ROOT


@pytest.fixture(scope="session")
def samples(root: Path) -> Path:
    """The folder of sample programs."""
    return root / "samples"


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """A folder with an ``hloopt`` that starts at once."""
    with commands() as folder:
        yield folder
