"""What a release must pass: ``python -m tests.packaging.release [--python PYTHON]... [--tag]`` prints a line for each check.

It builds the wheel and judges that file: what is in it, that it installs with every extra, and that the forty tasks
(``tests.newcomer``) succeed with it on each Python, away from the checkout.  With ``--tag`` the changelog must have the
version, too.  The exit code is 1 where something fails.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

from tests.packaging.licences import PERMISSIVE, foreign, licence, required

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 5 << 20
"""Bytes of a wheel."""
_VERSION = re.compile(r'^__version__ = "(\d+\.\d+\.\d+)"$', re.MULTILINE)


class Failed(Exception):  # noqa: N818 - what a check says
    """Why a check fails."""


def run(*command: str | Path) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [str(word) for word in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failed(
            f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def version() -> str:
    found = _VERSION.search((ROOT / "hloopt" / "__init__.py").read_text())
    if found is None:
        raise Failed("hloopt/__init__.py: no __version__ of three numbers")
    return found[1]


def tree_is_committed() -> str:
    if changed := run("git", "status", "--porcelain"):
        raise Failed(f"not committed:\n{changed}")
    return run("git", "rev-parse", "--short", "HEAD").strip()


def changelog(*, tag: bool) -> str:
    text = (ROOT / "CHANGELOG.md").read_text()
    wanted = (
        rf"^## \[{re.escape(version())}\] - \d{{4}}-\d\d-\d\d$" if tag else r"^## \[Unreleased\]$"
    )
    if not re.search(wanted, text, re.MULTILINE):
        raise Failed(f"CHANGELOG.md has no heading {wanted}")
    return f"version {version()}"


def contents(wheel: Path) -> str:
    """The wheel has what it needs, nothing of somebody else, and is small."""
    with ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as name:
        names = archive.namelist()
        archive.extractall(name)
        strange = [*foreign(Path(name) / "hloopt")]
    about = f"hloopt-{version()}.dist-info"
    needed = {"hloopt/py.typed", f"{about}/licenses/LICENSE", f"{about}/entry_points.txt"}
    missing = needed - {*names}
    outside = {one.partition("/")[0] for one in names} - {"hloopt", about}
    # The parser's tables are made when the wheel is built.
    strange = [line for line in strange if not line.startswith("grammar/")]
    if missing or outside or strange or wheel.stat().st_size > LARGEST:
        raise Failed(f"{missing=} {outside=} {strange=} {wheel.stat().st_size} bytes")
    return f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, {len(names)} files"


def licences() -> str:
    libraries = sorted(required())
    wrong = [name for name in libraries if not PERMISSIVE.search(licence(name))]
    if wrong:
        raise Failed(", ".join(f"{name}: {licence(name)}" for name in wrong))
    return f"{len(libraries)} libraries"


def extras(wheel: Path) -> str:
    """Each extra has versions that go together; nothing is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [name for name in project["optional-dependencies"] if name not in {"dev", "docs"}]
    for name in names:
        quiet = ["--quiet", "--disable-pip-version-check", "--dry-run", "--ignore-installed"]
        run(sys.executable, "-m", "pip", "install", *quiet, f"{wheel}[{name}]")
    return ", ".join(names)


def dockerfile() -> str:
    hadolint = shutil.which("hadolint")
    if hadolint is None:
        return "not linted: no hadolint"
    run(hadolint, "Dockerfile")
    return "linted"


def checks(
    wheel: Path, pythons: list[str], *, tag: bool
) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "committed", tree_is_committed
    yield "changelog", lambda: changelog(tag=tag)
    yield "contents", lambda: contents(wheel)
    yield "licences", licences
    yield "extras", lambda: extras(wheel)
    yield "Dockerfile", dockerfile
    for python in pythons:

        def tasks(python: str = python) -> str:
            said = run(sys.executable, "-m", "tests.newcomer.tasks", wheel, "--python", python)
            return f"{said.splitlines()[-1]} tasks with {run(python, '--version').strip()}"

        yield "tasks", tasks
    yield "documentation", lambda: (run("make", "docs"), "built, links checked")[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", help="run the forty tasks on it, too")
    parser.add_argument("--tag", action="store_true", help="the changelog must have this version")
    given = parser.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as name:
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", name)
        (wheel,) = Path(name).glob("*.whl")
        for what, check in checks(wheel, given.python or [sys.executable], tag=given.tag):
            try:
                print(f"ok      {what}: {check()}", flush=True)
            except Failed as why:
                failed = True
                print(f"FAILED  {what}: {why}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
