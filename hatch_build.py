"""Makes the tables of the parser when a wheel is built, so that they travel in it."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TablesHook(BuildHookInterface):
    """An editable install has none: the tables of a checkout follow its grammar."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make them beside the sources, not among them."""
        self.folder = TemporaryDirectory()
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from hloopt.text.lalr_build import build
        from hloopt.text.tables import PACKAGED, encoded

        file = Path(self.folder.name, PACKAGED)
        file.write_bytes(encoded(build(Path(self.root, "grammar"))))
        build_data["force_include"][str(file)] = f"hloopt/grammar/{PACKAGED}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """They are in the wheel now."""
        self.folder.cleanup()
