"""What is built of the sources needs neither Lark nor a cache to read text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import lark
import pytest

from hloopt.errors import HlooptError
from hloopt.text.lalr_build import LARK, build
from hloopt.text.tables import PACKAGED, encoded, grammar_folder


def test_a_wheel_has_the_tables(tmp_path: Path) -> None:
    """It reads text without Lark and without a cache."""
    root = Path(__file__).parents[1]
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=root, capture_output=True, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    packaged = tmp_path / "site" / "hloopt" / "grammar" / PACKAGED
    assert packaged.read_bytes() == encoded(build(grammar_folder()))
    code = (
        "import sys, hloopt; sys.modules['lark'] = None; "
        "print(hloopt.__file__); print(hloopt.parse('a = f32[2] iota(), iota_dimension=0').to_text())"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "site"),
        "HLOOPT_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(tmp_path / "site"))
    assert "iota_dimension=0" in done.stdout
    assert not (tmp_path / "cache").exists()
    assert not (root / "grammar" / PACKAGED).exists()


def test_the_version_of_lark_is_one_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package asks for such a one, and another is refused by its name."""
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    major, minor = map(int, LARK.rstrip(".").split("."))
    assert text.count(f'"lark>={major}.{minor},<{major}.{minor + 1}"') == 2
    assert lark.__version__.startswith(LARK)
    monkeypatch.setattr(lark, "__version__", f"{major}.{minor + 1}.0")
    with pytest.raises(HlooptError, match=rf"made by Lark {major}\.{minor}\.x; this is Lark"):
        build(grammar_folder())
