"""How optional parts are installed: from files that are this hloopt's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hloopt
from hloopt import extras
from hloopt.extras import install_command


def test_in_a_clone(root: Path) -> None:
    """The clone itself, by its path."""
    assert install_command("gpu") == f"pip install -e '{root}[gpu]'"


def test_out_of_a_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The wheel's file: never the bare name, which a registry would be asked for."""
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "hloopt" / "extras.py"))
    wheel = f"hloopt-{hloopt.__version__}-py3-none-any.whl"
    assert install_command("gpu12") == f"pip install '{wheel}[gpu12]'"


def test_no_message_and_no_page_names_hloopt_alone(root: Path) -> None:
    """Anyone could register the name."""
    bare = re.compile(r"pip install (?:-\S+ )*'?hloopt(?:\[|'|\b(?!-))")
    pages = [*root.glob("hloopt/**/*.py"), root / "Makefile", *root.glob("samples/**/*.md")]
    assert not [page.name for page in pages if bare.search(page.read_text())]
