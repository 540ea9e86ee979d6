"""What a command loads before it works: what it does not need costs everybody who waits for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path

import pytest

from hloopt.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
SAMPLE = ROOT / "samples" / "layernorm_gelu.hlo"

COMMAND = """
import sys
sys.argv[0] = "hloopt"
from hloopt.cli.main import main
try:
    main()
finally:
    names = sorted(sys.modules)
    import json
    print(json.dumps(names))
"""

RUN = """
import json, sys
import numpy as np
import hloopt
path, pipeline = sys.argv[1:]
module = hloopt.parse(open(path).read(), path)
if pipeline:
    module = hloopt.optimize(module, pipeline)
program = hloopt.compile(module)
program.run([np.ones(shape.dims, shape.dtype.numpy) for shape in module.entry.parameter_shapes])
print(json.dumps(sorted(sys.modules)))
"""

HELP = """
import json, sys
from hloopt.cli.main import cli
found = {}
for name in sys.argv[1:]:
    cli([name, "--help"], standalone_mode=False)
    found[name] = sorted(sys.modules)
print(json.dumps(found))
"""

# What every command loads, and what none needs to show its help.
GROUND = {"cli", "display", "errors", "process", "spelling", "visible_text"}
UNREAD = ("numpy", "lark", "dataclasses", "difflib", "pathlib", "traceback", "unicodedata")

# Slow to load, and of no use to anybody who only wants to know whether a text is in order, or its result.
NEVER = {
    "rich",
    "cupy",
    "lark",
    "email",
    "importlib.metadata",
    "socket",
    "multiprocessing",
    "asyncio",
}
# What looks for installed fusion rules is `importlib.metadata`, and it loads the others.
FUSES = NEVER - {"importlib.metadata", "email", "socket"}


def loaded(script: str, *arguments: str, never: Collection[str] = NEVER) -> set[str]:
    """The modules a process of its own has loaded in the end."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    names: set[str] = set(json.loads(done.stdout.splitlines()[-1]))
    assert not names.intersection(never)
    return names


def rooms(names: set[str]) -> set[str]:
    """Which of our rooms are among them."""
    return {name.split(".")[1] for name in names if name.startswith("hloopt.")}


def missing(names: set[str], unwanted: Sequence[str]) -> bool:
    """Whether none of these, and nothing inside of them, was loaded."""
    return not any(name == one or name.startswith(f"{one}.") for name in names for one in unwanted)


def test_help_loads_the_command_line_only() -> None:
    """Neither NumPy nor Lark, and of ours what stands at the bottom."""
    names = loaded(COMMAND, "--help")
    assert rooms(names) == GROUND
    assert missing(names, UNREAD)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_loads_its_options_only(command: str) -> None:
    """Nothing that does something, nor what reads files: each command's help is as quick as all commands'."""
    names = of_help()[command]
    assert rooms(names) == GROUND
    assert missing(names, [*UNREAD, "hloopt.cli.actions", "hloopt.cli.files", "hloopt.cli.given"])


@cache
def of_help() -> dict[str, set[str]]:
    """What is loaded once a process has shown the help of each command, as far as it has got."""
    done = subprocess.run(
        [sys.executable, "-c", HELP, *COMMANDS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: set(names) for name, names in found.items()}


def test_check_loads_what_reads_and_verifies() -> None:
    """What explains mistakes is for texts that have some."""
    names = loaded(COMMAND, "check", str(SAMPLE))
    ground = {*GROUND, "cache_folder", "dataclass", "graphs", "source"}
    assert rooms(names) == {*ground, "ir", "ops", "reading", "text", "types", "verifier"}
    unwanted = ("hints", "recovery", "logs", "foreign", "printer")
    assert missing(names, [f"hloopt.text.{name}" for name in unwanted])
    assert missing(names, ["numpy.random", "gzip", "difflib", "tempfile", "platformdirs", "shutil"])


@pytest.mark.parametrize("sample", ["layernorm_gelu", "while_loop"])
def test_a_run_loads_what_compiles_for_numpy(sample: str) -> None:
    """No pass, no kernel of a GPU, and of the interpreter and the analyses what the program needs."""
    names = loaded(RUN, str(ROOT / "samples" / f"{sample}.hlo"), "")
    unwanted = {"codegen", "cost_models", "fusion", "passes", "rewrite", "targets", "verifier"}
    assert not rooms(names) & (unwanted | {"cli", "report", "pipelines", "proto", "dumps"})
    assert missing(names, ["hloopt.kernels.kernel", "hloopt.analysis.parallel_loop"])
    assert missing(names, [f"hloopt.runtime.{name}" for name in ("cuda", "emulator", "native")])
    heavy = ("collective", "custom_calls", "fft", "linalg", "plugins", "sort", "ragged")
    assert missing(names, [f"hloopt.interpret.{name}" for name in heavy])


def test_a_pipeline_loads_its_own_passes() -> None:
    """O1 fuses nothing."""
    names = loaded(RUN, str(SAMPLE), "O1")
    assert rooms(names) & {"passes", "rewrite"}
    unwanted = ["hloopt.kernels.kernel", "hloopt.kernels.selection", "hloopt.codegen"]
    assert missing(names, [*unwanted, "hloopt.cost_models", "hloopt.passes.expand"])
    assert {name for name in names if name.startswith("hloopt.fusion.")} == {
        "hloopt.fusion.strategies"
    }


def test_a_pipeline_that_fuses_loads_what_the_module_has() -> None:
    """No loop, no tiles of Triton, no lock file: nothing that only these need."""
    names = loaded(RUN, str(SAMPLE), "O2", never=FUSES)
    assert "hloopt.fusion.priority_fusion" in names
    places = ("find", "model", "mappings", "thread_mapping", "block_mapping")
    assert missing(names, [f"hloopt.analysis.parallel_loop.{place}" for place in places])
    assert missing(names, [f"hloopt.cost_models.{name}" for name in ("block_level", "loop_time")])
    assert missing(names, [f"hloopt.fusion.{name}" for name in ("lock_file", "locked_fusion")])
    assert missing(names, ["hloopt.presets", "hloopt.verifier", "numpy.typing", "difflib"])


def test_a_run_on_the_cpu_chooses_no_kernels() -> None:
    """Whatever the options that choose them are: none is given."""
    names = loaded(COMMAND, "run", str(SAMPLE), never=FUSES - {"rich"})
    assert missing(names, ["hloopt.kernels.selection", "hloopt.kernels.user", "hloopt.codegen"])
