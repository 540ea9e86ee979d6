"""Writes the TextMate grammar that editors colour HLO by: ``python -m tests.report.textmate``."""

from __future__ import annotations

import json
from pathlib import Path

from hloopt.report.highlight import textmate_grammar

if __name__ == "__main__":
    path = Path(__file__).parents[2] / "grammar" / "hlo.tmLanguage.json"
    path.write_text(json.dumps(textmate_grammar(), indent=2) + "\n")
