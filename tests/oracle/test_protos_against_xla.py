"""XLA reads the protocol buffers hloopt writes, and hloopt those that XLA writes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

import hloopt
from hloopt.proto import read_proto
from hloopt.proto.writer import module_proto
from tests.oracle.oracle import available, python

FOLDER = Path(__file__).resolve().parents[2] / "samples"
SAMPLES = sorted(FOLDER.glob("*.hlo"))

pytestmark = [
    pytest.mark.xla,
    pytest.mark.skipif(not available(), reason="no jaxlib: install the extra xla"),
    pytest.mark.timeout(600),
]

# For each FILE: XLA's text of FILE.pb and of FILE, and FILE.xla.pb as XLA writes it.
CHILD = """
import json, sys
from pathlib import Path
import jaxlib._hlo as hlo
for name in sys.argv[1:]:
    given = hlo.hlo_module_from_text(Path(name).read_text())
    Path(name + ".xla.pb").write_bytes(given.as_serialized_hlo_module_proto())
    ours = hlo.XlaComputation(Path(name + ".pb").read_bytes()).get_hlo_module()
    print(json.dumps([module.to_string() for module in (ours, given)]))
"""


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str, bytes]]:
    """By sample: XLA's texts of our proto and of the text, and XLA's proto."""
    folder = tmp_path_factory.mktemp("protos")
    for path in SAMPLES:
        module = hloopt.parse(path.read_text(), path.name)
        (folder / path.name).write_text(path.read_text())
        (folder / f"{path.name}.pb").write_bytes(module_proto(module).SerializeToString())
    names = [str(folder / path.name) for path in SAMPLES]
    result = subprocess.run(
        [python(), "-c", CHILD, *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert result.returncode == 0, result.stderr[-4000:]
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return {
        path.name: (*row, Path(f"{name}.xla.pb").read_bytes())
        for path, name, row in zip(SAMPLES, names, rows, strict=True)
    }


def without_header(text: str) -> str:
    """A proto has no field for what a header says of the configuration."""
    return text.partition("\n")[2]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_xla_reads_what_we_write(path: Path, asked: dict[str, tuple[str, str, bytes]]) -> None:
    """As the module it reads of the text."""
    ours, given, _ = asked[path.name]
    assert without_header(ours) == without_header(given)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_we_read_what_xla_writes(path: Path, asked: dict[str, tuple[str, str, bytes]]) -> None:
    """As the module we read of the text, but for the stack tables, which XLA writes in another order."""
    module = hloopt.parse(path.read_text(), path.name)
    found = read_proto(asked[path.name][2], path.name)
    hloopt.verify(found)
    assert found.warnings == []
    texts = [without_header(entry.to_text(metadata=False)) for entry in (found, module)]
    assert texts[0] == texts[1]
