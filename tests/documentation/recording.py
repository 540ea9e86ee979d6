"""The terminal of the README, recorded: ``python -m tests.documentation.recording`` writes an SVG for light and for dark pages.

The commands run as they are shown, and what they print is drawn by rich.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, DIMMED_MONOKAI, TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 80
COMMANDS = (
    "hloopt why samples/adam.hlo --target h200 -n 1 | head -14",
    "hloopt optimize samples/cartpole_step.hlo -o build/better.hlo",
    "hloopt diff samples/cartpole_step.hlo build/better.hlo --target h200 | head -4",
    "hloopt check --equivalent samples/cartpole_step.hlo build/better.hlo",
)
THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": DIMMED_MONOKAI}


def session(folder: Path) -> Text:
    """What a terminal shows when the commands are typed in ``folder``; raises where one fails to run."""
    shown = Text()
    (folder / "samples").symlink_to(ROOT / "samples")
    (folder / "build").mkdir()
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {**os.environ, "PATH": path, "COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"}
    for command in COMMANDS:
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=True
        )
        shown.append("$ ", "dim").append(f"{command}\n", "bold")
        shown.append_text(Text.from_ansi(done.stdout.rstrip())).append("\n\n")
    return shown


def svg(text: Text, theme: TerminalTheme) -> str:
    """The text as a picture of a terminal, the same bytes each time."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(text)
    return console.export_svg(title="hloopt", theme=theme, unique_id="hloopt")


def write(folder: Path) -> None:
    """Draw the session for each theme into ``folder``."""
    with tempfile.TemporaryDirectory() as scratch:
        text = session(Path(scratch))
    for name, theme in THEMES.items():
        (folder / f"terminal-{name}.svg").write_text(svg(text, theme))


if __name__ == "__main__":
    write(ROOT / "docs" / "images")
