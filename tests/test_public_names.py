"""The public surface is what ``__all__`` says."""

from __future__ import annotations

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


def test_verify_stays_a_function() -> None:
    """No room that is loaded has its name."""
    module = hloopt.parse("HloModule m\nENTRY e { ROOT p = f32[] parameter(0) }\n")
    hloopt.verify(module)
    hloopt.verify(module)
