"""How long O2 without fusion takes, and how that grows with the module."""

from __future__ import annotations

import gc
import os
import re
import statistics
import time
from pathlib import Path
from typing import Any

import hloopt
from hloopt.ir.build import clone_module
from hloopt.pipelines import parse_pipeline
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import select

__all__ = ["OPTIMIZING", "TIMES", "optimizing", "repeated"]

OPTIMIZING = "O2 without fusion (seconds; ratio of the module repeated 5 times to it once)"
FUSION = ("instruction-fusion",)
TIMES = 5
LARGE = 2_000_000

_NAME = re.compile(r"%([\w.\-]+)")
_HEADING = re.compile(r"^ENTRY (%[\w.\-]+) \((.*)\) -> (.*) \{$", re.MULTILINE)


def repeated(module: hloopt.Module, times: int) -> hloopt.Module:
    """A module that calls ``times`` copies of the entry, each with parameters of its own."""
    text = clone_module(module).to_text()
    text = text[text.index("\n%") if "\n%" in text else text.index("\nENTRY") :]
    found = _HEADING.search(text)
    assert found is not None, "a module has an entry"
    entry, result = found[1], found[3]
    shapes = [str(parameter.shape) for parameter in module.entry.parameters]
    bodies, lines, results = [], [], []
    for copy in range(times):
        bodies.append(_NAME.sub(rf"%\1.{copy}", text.replace("ENTRY ", "", 1)))
        operands = []
        for index, shape in enumerate(shapes):
            operands.append(f"%p.{copy}.{index}")
            number = copy * len(shapes) + index
            lines.append(f"{operands[-1]} = {shape} parameter({number})")
        called = f"call({', '.join(operands)}), to_apply={entry}.{copy}"
        lines.append(f"%r.{copy} = {module.entry.root.shape} {called}")
        results.append(f"%r.{copy}")
    whole = f"({', '.join([result] * times)}) tuple({', '.join(results)})"
    body = "\n  ".join([*lines, f"ROOT %all = {whole}"])
    return hloopt.parse(f"HloModule repeated\n{''.join(bodies)}\nENTRY %whole {{\n  {body}\n}}\n")


def optimizing(count: int) -> list[dict[str, Any]]:
    """Median seconds for the samples and the larger models of the corpus."""
    paths = sorted((Path(__file__).resolve().parents[2] / "samples").glob("*.hlo"))
    paths = sorted(paths, key=lambda path: -path.stat().st_size)[:3]
    corpus = os.environ.get("HLOOPT_CORPUS")
    if corpus:
        models = (Path(corpus) / "models").glob("*.hlo")
        paths += [path for path in sorted(models) if path.stat().st_size > LARGE]
    rows = []
    for path in paths:
        module = hloopt.parse(path.read_text(), path.name)
        several = repeated(module, TIMES)
        row: dict[str, Any] = {"module": path.stem, "instructions": module.instruction_count()}
        row["once"] = _median(module, count)
        row[f"{TIMES} times"] = _median(several, count)
        row["ratio"] = row[f"{TIMES} times"] / row["once"]
        rows.append(row)
    return rows


def _median(module: hloopt.Module, count: int) -> float:
    whole = parse_pipeline("O2").entries
    pipeline = Pipeline(select(whole, lambda one: None if one.name in FUSION else one))
    seconds = []
    for _ in range(count):
        copy = clone_module(module)
        gc.collect()
        start = time.perf_counter()
        pipeline.run(copy)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)
