"""The public surface is what ``__all__`` says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hloopt


def test_all_is_sorted_and_importable() -> None:
    """Everything listed exists."""
    assert list(hloopt.__all__) == sorted(hloopt.__all__), "keep hloopt.__all__ in order"
    for name in hloopt.__all__:
        assert getattr(hloopt, name) is not None


def test_nothing_else_is_public() -> None:
    """A public function or class that is not listed was forgotten or is private."""
    extra = {
        name
        for name, value in vars(hloopt).items()
        if not name.startswith("_")
        and getattr(value, "__module__", "").startswith("hloopt")
        and name not in hloopt.__all__
    }
    assert not extra, "list them in hloopt.__all__, or begin their names with _"


def test_a_notebook_completes_what_is_public() -> None:
    """Names that are loaded on first use among them, and no names of helpers."""
    names = {name for name in dir(hloopt) if not name.startswith("_")}
    assert names == {*hloopt.__all__}


@pytest.mark.parametrize("text", [Path("m.hlo"), b"HloModule m", 3], ids=["path", "bytes", "int"])
def test_what_is_not_a_text_is_refused(text: Any) -> None:
    """With the function that takes it."""
    with pytest.raises(hloopt.UsageError, match="read takes files and bytes"):
        hloopt.parse(text)


def test_verify_stays_a_function() -> None:
    """No room that is loaded has its name."""
    module = hloopt.parse("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n")
    hloopt.verify(module)
    hloopt.verify(module)
