"""Every fusion of some programs as a file of each form: what imports, what is right, what NVRTC compiles.

    python -m tests.exports.measure [--programs N] [--level O2] [--out FILE] [FILE...]

Without files: the first N programs by name of ``$HLOOPT_CORPUS/jax`` that have fusions.  A CUDA file is compiled by
NVRTC with the options of nvcc alone, a CuPy file runs its check on the emulator, files of JAX and PyTorch run theirs
on the CPU, each in a process of the Python that has the framework: ``HLOOPT_XLA_PYTHON``, ``HLOOPT_TORCH_PYTHON``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import hloopt
from hloopt.backends.nvrtc import nvrtc_for
from hloopt.driver.exporting import export
from hloopt.errors import HlooptError, UnsupportedError
from tests.exports.fake_cupy import emulated_cupy

_FORMS = ("cuda", "cupy", "jax", "torch")
_PYTHONS = {"jax": "HLOOPT_XLA_PYTHON", "torch": "HLOOPT_TORCH_PYTHON"}
# All files of one program are imported by one process: importing a framework takes seconds.
_CHECK = """
import importlib.util, json, sys, traceback
for path in json.load(sys.stdin):
    try:
        spec = importlib.util.spec_from_file_location(path.rpartition("/")[2][:-3], path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.stdout = sys.stderr
        code = module.main()
    except BaseException:
        traceback.print_exc()
        code = 70
    sys.stdout = sys.__stdout__
    print(json.dumps([path, code]), flush=True)
"""


def main() -> int:
    """Print a line for each file that fails, and the counts; 1 where any does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=10)
    parser.add_argument("--level", default="O2")
    parser.add_argument("--out")
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    paths = [Path(name) for name in given.files] or _corpus()
    done = 0
    for path in paths:
        if done == given.programs and not given.files:
            break
        module = hloopt.optimize(hloopt.read(path), given.level, "h200")
        names = _fusions(module)
        if not names:
            continue
        done += 1
        before = counts.copy()
        _program(module, names, path.name, counts)
        shown = ", ".join(f"{key} {counts[key] - before[key]}" for key in sorted(counts))
        print(f"{path.name}: {shown}", flush=True)
    print(json.dumps(dict(sorted(counts.items()))))
    if given.out:
        Path(given.out).write_text(json.dumps(dict(sorted(counts.items())), indent=1) + "\n")
    return int(any(key.endswith("failed") for key in counts))


def _corpus() -> list[Path]:
    folder = Path(os.environ["HLOOPT_CORPUS"]) / "jax"
    return sorted(folder.glob("*.before.hlo"))


def _fusions(module: hloopt.Module) -> list[str]:
    """The fusions that are kernels once the module is ready."""
    rows = hloopt.select_kernels(module, pipeline="").rows
    return [row.instruction for row in rows if row.opcode == "fusion"]


def _program(module: hloopt.Module, names: list[str], program: str, counts: Counter[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written: dict[str, list[str]] = {form: [] for form in _FORMS}
        for name in names:
            for form in _FORMS:
                try:
                    file = export(module, name, form, pipeline="")
                except UnsupportedError as error:
                    counts[f"{form} refused"] += 1
                    print(f"{program} {name} {form}: refused: {error.message}")
                    continue
                target = Path(folder) / form / f"{len(written[form])}" / file.name
                target.parent.mkdir(parents=True)
                target.write_text(file.text)
                written[form].append(str(target))
        for form, files in written.items():
            for path, problem in _checked(form, files):
                counts[f"{form} {'failed' if problem else 'ok'}"] += 1
                if problem:
                    print(f"{program} {Path(path).stem} {form}: {problem[-1500:]}")


def _checked(form: str, files: list[str]) -> list[tuple[str, str]]:
    """Each file with what is wrong with it, empty where it is right."""
    if form == "cuda":
        nvrtc = nvrtc_for("sm_90")
        options = ("-arch=sm_90", "-std=c++17")
        made = [(path, nvrtc.compile(Path(path).read_text(), path, options)) for path in files]
        return [(path, "" if outcome.ok else outcome.log) for path, outcome in made]
    if form == "cupy":
        return [(path, _emulated(path)) for path in files]
    python = os.environ.get(_PYTHONS[form], sys.executable)
    ran = subprocess.run(
        [python, "-c", _CHECK],
        input=json.dumps(files),
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    codes = dict(json.loads(line) for line in ran.stdout.splitlines())
    return [(path, "" if codes.get(path) == 0 else ran.stderr) for path in files]


def _emulated(path: str) -> str:
    names: dict[str, object] = {"__name__": "exported"}
    exec(compile(Path(path).read_text(), path, "exec"), names)
    said = io.StringIO()
    try:
        with emulated_cupy(), contextlib.redirect_stdout(said):
            code = names["main"]()  # type: ignore[operator]
    except HlooptError as error:
        return str(error)
    return said.getvalue() if code else ""


if __name__ == "__main__":
    sys.exit(main())
