"""The commands of the README and of the documentation work as they stand, and print what is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation import recording

ROOT = Path(__file__).resolve().parent.parent
_FILE = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"(<!-- figures vary -->\n)?```console\n(.*?)```", re.DOTALL)
_LINK = re.compile(r'(?:\]\(|src="|srcset=")([^)"\s]+)')
_FIGURE = re.compile(r"~|\d[\d.,e+-]*(?: ?(?:ns|us|ms|s|x|[KM]iB)\b)?")
_PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = ("README.md", "samples/README.md", "samples/cartpole/README.md", *_PAGES)


def examples(page: str) -> list[tuple[str, str, bool]]:
    """Commands, what the page shows of their output, and whether figures may be others.

    A command begins with ``$``, and a backslash continues it; ``...`` in its output stands for any text.
    """
    found: list[tuple[str, str, bool]] = []
    for vary, block in _BLOCK.findall((ROOT / page).read_text()):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            found.append((command.strip(), shown, bool(vary)))
    return found


def files(page: str) -> dict[str, str]:
    """The files that a page has its reader save: its fenced blocks with a title."""
    return dict(_FILE.findall((ROOT / page).read_text()))


def commands(page: str) -> list[str]:
    return [command for command, _, _ in examples(page)]


def agrees(shown: str, printed: str, vary: bool) -> bool:
    """Whether a page shows what was printed, but for blanks; ``...`` is any text, and figures any figure if they vary."""
    if vary:
        shown, printed = _FIGURE.sub("#", shown), _FIGURE.sub("#", printed)
    parts = [re.escape(" ".join(part.split())) for part in shown.split("...")]
    return re.fullmatch(r"\s*.*\s*".join(parts), " ".join(printed.split()), re.DOTALL) is not None


def _everywhere() -> dict[str, list[tuple[str, str, bool]]]:
    """Pages that show a command, with what they show of its output; what several pages have is run once.

    The two set-up commands are what runs this suite; running them inside it would never end.
    """
    found: dict[str, list[tuple[str, str, bool]]] = {}
    for page in PAGES:
        if not page.startswith("docs/tutorials/"):
            for command, shown, vary in examples(page):
                if not command.startswith("make "):
                    found.setdefault(" ".join(command.split()), []).append((page, shown, vary))
    return found


ALL = _everywhere()
TUTORIALS = [page for page in PAGES if page.startswith("docs/tutorials/")]


def _codes(command: str) -> tuple[int, ...]:
    """The exit codes of success: ``diff`` tells by its own that modules differ."""
    return (0, 1) if re.search(r"hloopt diff [^|]*(\| (head|tail|grep) [^|]+)?$", command) else (0,)


@pytest.mark.parametrize(
    "command", ALL, ids=[f"{ALL[command][0][0]}: {command}" for command in ALL]
)
def test_documented_command(command: str, tmp_path: Path, programs: Path) -> None:
    """Typed at the top of the repository, the command does what each page says, and leaves nothing outside ``build``."""
    printed = _run(command, tmp_path, programs)
    for page, shown, vary in ALL[command]:
        assert not shown or agrees(shown, printed, vary), f"{page}: {command}\n{printed}"
    assert {path.name for path in tmp_path.iterdir()} <= {"samples", "grammar", "build"}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_from_its_first_command_to_its_last(
    page: str, tmp_path: Path, programs: Path
) -> None:
    """In one folder, with the files that its reader saves; what is exported stays so."""
    for name, text in files(page).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    exported = ""
    for command, shown, vary in examples(page):
        if command.startswith("export "):
            exported += f"{command}; "
            continue
        printed = _run(exported + command, tmp_path, programs)
        assert not shown or agrees(shown, printed, vary), f"{command}\n{printed}"


def _run(command: str, folder: Path, programs: Path) -> str:
    """What a command prints at the top of what looks like the repository; it must succeed."""
    for name in ("samples", "grammar"):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(ROOT / name)
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        cwd=folder,
        env={"PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode in _codes(command), f"{command}\n{result.stdout}{result.stderr}"
    return result.stdout


def test_what_a_page_shows_is_compared() -> None:
    """Another word is noticed, another figure too where figures do not vary, and what ``...`` does not cover."""
    assert agrees("a ...\nlast 3", "a 1\nb\nlast  3\n", vary=False)
    assert not agrees("a\nlast 3", "a 1\nlast 3", vary=False)
    assert not agrees("a 2 us", "a 3 us", vary=False)
    assert agrees("a 2 us ~", "a 31.5 ms 0.3x", vary=True)
    assert not agrees("ok 2 us", "wrong 2 us", vary=True)


def test_readme_leads_with_the_two_commands() -> None:
    """The first two commands of the README set everything up."""
    assert commands("README.md")[:2] == ["make demo", "make test"]


def test_the_readme_is_short() -> None:
    words = len((ROOT / "README.md").read_text().split())
    assert words <= 900, f"README.md has {words} words: shorten it, or move something to docs/"


def test_the_python_of_the_readme_runs() -> None:
    """Beside JAX, where HLOOPT_XLA_PYTHON names a Python that has it."""
    python = os.environ.get("HLOOPT_XLA_PYTHON")
    if not python:
        pytest.skip("needs HLOOPT_XLA_PYTHON for a Python with JAX")
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    asked = [python, "-c", "import jax, pathlib; print(pathlib.Path(jax.__file__).parents[1])"]
    site = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{site}"}
    done = subprocess.run(
        [sys.executable, "-c", block], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout == "True\n", done.stderr


@pytest.mark.parametrize("page", [*PAGES, "CONTRIBUTING.md"])
def test_links_within_the_repository_lead_somewhere(page: str) -> None:
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(), flags=re.DOTALL)
    missing = [link for link in _LINK.findall(text) if "://" not in link and not _leads(page, link)]
    assert not missing, f"{page} links to what is not there"


def _leads(page: str, link: str) -> bool:
    """Whether there is the file, and in it the heading, that a link names."""
    place, _, anchor = link.partition("#")
    target = (ROOT / page).parent / place if place else ROOT / page
    if not anchor or target.suffix != ".md":
        return target.exists()
    headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE) if target.exists() else []
    return anchor in {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}


def test_a_link_to_no_heading_is_seen() -> None:
    """Of another page, and of the same one."""
    assert _leads("docs/index.md", "tutorials/your-pass.md#use-it")
    assert not _leads("docs/index.md", "tutorials/your-pass.md#use-that")
    assert not _leads("README.md", "#no-such-heading")


def test_every_page_of_the_documentation_is_in_its_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    missing = [page for page in _PAGES if page.removeprefix("docs/") not in f"{index} index.md"]
    assert not missing, "link them in docs/index.md"


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere() -> None:
    """The plugin for pages opened as files would load a script from another machine, unless one of ours is named."""
    settings = (ROOT / "mkdocs.yml").read_text()
    missing = [page for page in _PAGES if page.removeprefix("docs/") not in settings]
    assert not missing, "add them to nav in mkdocs.yml"
    (polyfill,) = re.findall(r"polyfills:\n +- (\S+)", settings)
    assert "iframe-worker" in polyfill
    assert (ROOT / "docs" / polyfill).is_file()
    assert re.findall(r"https?://(?!github\.com)\S+", settings) == []


def test_the_recording_is_what_the_commands_print(tmp_path: Path) -> None:
    """``make recording`` draws it again."""
    text = recording.session(tmp_path)
    for name, theme in recording.THEMES.items():
        drawn = (ROOT / "docs" / "images" / f"terminal-{name}.svg").read_text()
        assert _texts(drawn) == _texts(recording.svg(text, theme)), "make recording draws it again"


def _texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>(.*?)</text>", svg)
