"""Texts that are not HLO but something else: what they are, and where HLO is to be had."""

from __future__ import annotations

import re

from hloopt.text.problem import Problem

__all__ = ["MLIR", "foreign"]

MLIR = r"#\w+ *=|module\s+(?:@|attributes\b)|module\s*\{\s*(?:\w+\.|\"|\})|\w+\.\w+\s[\w\s]*@|\"\w+\.\w+\"\("
"""How a text of MLIR begins, comments left out."""

_JAX = "JAX gives HLO text by jax.jit(f).lower(...).as_text(dialect='hlo')"
_MLIR = f"hloopt.read and the command line read StableHLO by jaxlib; {_JAX}"
_DUMP = (
    "in a dump directory of XLA the modules are the files *before_optimizations.txt and the like"
)
_FLAGS = "XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text' writes modules as HLO text"
_PAGE = "was a web page saved in the place of the file itself?"
_QUOTED = "print the string itself: print(text), not print(repr(text))"

_COMMENTS = re.compile(r"(?:\s++|//[^\n]*+)*+")

# What the text begins with, comments left out; what it is; where HLO is to be had.
_KINDS: tuple[tuple[str, str, str], ...] = (
    (MLIR, "MLIR (StableHLO?)", _MLIR),
    (r"\{ *lambda\b", "a jaxpr", _JAX),
    (r"let\s+\w+\s*=.*\n.*\bin\b", "a jaxpr", _JAX),
    (r"<!DOCTYPE html|<html\b", "an HTML page", _PAGE),
    (r"<\?xml|<svg\b", "XML", ""),
    (
        r";|source_filename *=|target (?:triple|datalayout) *=|define [^\n]*@\w+\(|declare [^\n]*@",
        "LLVM IR",
        _DUMP,
    ),
    (r"\.version \d|\.target sm_|\.visible \.entry", "PTX", _DUMP),
    (r"digraph\b", "a graph in the DOT language", _DUMP),
    (
        r"BufferAssignment:|HloLiveRange|Memory Space: |Total bytes used: ",
        "a report of XLA on memory (a buffer assignment)",
        _DUMP,
    ),
    (r"xla_\w+: ", "the flags XLA had (debug_options)", _DUMP),
    (r"version https://git-lfs", "a Git LFS pointer", "'git lfs pull' fetches the file itself"),
    (
        r"node\s*\{\s*\w+\s*:",
        "a TensorFlow GraphDef as text",
        _FLAGS,
    ),
    (
        r"hlo_module\s*\{|computations\s*\{\s*\w+\s*[:{]|entry_computation_(?:name|id)\s*:",
        "an HLO protocol buffer as text",
        _FLAGS,
    ),
    (r"\w+\s*(?::\s*[\"\d-]|\{\s*\w+\s*:\s*[\"\d\w])", "a protocol buffer as text", ""),
    (r"\{\s*\"|\[\s*[\[{\"\d]", "JSON", ""),
    (r"Traceback \(most recent call last\)", "the traceback of a Python program", ""),
    (
        r"(?:import|from) \w[\w.]*(?: import| as|,|\s*$)|def \w+\(|class \w+[:(]|@\w|\"{3}",
        "Python",
        _JAX,
    ),
    (r"#include\b|extern \"C\"|__global__\b", "C++", ""),
    (r"diff --git |--- a/|Index: ", "a patch", ""),
    (r"b?(['\"])HloModule\b", "the repr of HLO text", _QUOTED),
)
_COMPILED = [
    (re.compile(expression, re.MULTILINE), what, note) for expression, what, note in _KINDS
]


def foreign(text: str) -> Problem | None:
    """The mistake when a whole text is something else than HLO; None where it may be HLO."""
    at = _begin(text)
    if at == len(text):
        what = "holds comments only" if text.strip() else "is empty"
        return Problem(0, f"the text {what}: there is no module in it")
    for expression, what, note in _COMPILED:
        if expression.match(text, at):
            return Problem(at, f"this is {what}, not HLO text", notes=(note,) if note else ())
    return None


def _begin(text: str) -> int:
    match = _COMMENTS.match(text)
    assert match is not None, "the pattern matches the empty text"
    at = match.end()
    while text.startswith("/*", at) and (end := text.find("*/", at)) >= 0:
        match = _COMMENTS.match(text, end + 2)
        assert match is not None, "the pattern matches the empty text"
        at = match.end()
    return at
