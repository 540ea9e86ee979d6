"""A kernel in a ``.cu`` file, with the HLO computation it stands for.

::

    /*
    function = "row_sum"                # the __global__ function below
    grid = ["ceil_div(rows, 32)"]       # expressions over the sizes that the HLO names
    block = ["32"]
    scalars = ["rows", "columns"]       # 32-bit integers after the pointers
    hlo = '''                           # or the name of a file beside this one; row_sum.hlo by default
    HloModule row_sum
    plus { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }
    ENTRY e { x = f32[$rows,$columns] parameter(0)
      zero = f32[] parameter(1)
      ROOT sum = f32[$rows] reduce(x, zero), dimensions={1}, to_apply=plus }
    '''
    */
    extern "C" __global__ void row_sum(
        const float* __restrict__ x, const float* __restrict__ zero, float* __restrict__ sum,
        int rows, int columns)
    {
        int row = blockIdx.x * blockDim.x + threadIdx.x;
        if (row >= rows) return;
        float total = zero[0];
        for (int i = 0; i < columns; i++) total += x[row * columns + i];
        sum[row] = total;
    }

In the HLO a size may have a name: ``f32[$rows,$columns]``, ``${rows * columns}`` for an expression.  The entry
is matched by structure against bodies of fusions and single instructions, with the sizes these have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from hloopt.dataclass import dataclass
from hloopt.errors import HlooptError, SourceError, UsageError
from hloopt.ir import Module
from hloopt.ir.canonical import fingerprint
from hloopt.kernels.arithmetic import evaluate
from hloopt.kernels.kernel import Site
from hloopt.kernels.standalone import body_module, plain
from hloopt.rewrite.spec import did_you_mean
from hloopt.source import Source, read_source
from hloopt.text.parser import parse_module
from hloopt.toml_text import parse_toml
from hloopt.types import ArrayShape, leaves

__all__ = ["CudaFile", "read_cuda_file"]

_HEADER = re.compile(r"\s*/\*(.*?)\*/", re.DOTALL)
_SIZE = re.compile(r"\$(?:(\w+)|\{([^{}]*)\})")
_KEYS = ("name", "summary", "function", "hlo", "grid", "block", "scalars")
_FIRST_SIZE = 100_003  # no size that stands in the text beside the named ones


@dataclass(frozen=True)
class _Pattern:
    """HLO with sizes that have names.

    ``places`` say where sizes are read off: (parameter leaf, dimension) of the first ``$name`` in the shapes of
    the parameters; ``opcodes`` are those of the entry, whatever the sizes.
    """

    file: str
    text: str
    places: Mapping[str, tuple[int, int]]
    opcodes: Counter[str]
    known: dict[tuple[int, ...], str] = field(default_factory=dict)

    def sizes(self, site: Site) -> dict[str, int] | None:
        """The sizes at a site, None where it has another rank."""
        operands = _parameters(body_module(site.region.instruction))
        found = {}
        for name, (leaf, dimension) in self.places.items():
            if leaf >= len(operands) or dimension >= operands[leaf].rank:
                return None
            found[name] = operands[leaf].dims[dimension]
        return found

    def digest(self, sizes: Mapping[str, int]) -> str:
        """The digest of the computation with these sizes."""
        key = tuple(sizes.values())
        if key not in self.known:
            self.known[key] = fingerprint(plain(_read(self.file, self.text, sizes)))
        return self.known[key]


def read_cuda_file(path: str) -> CudaFile:
    """The kernel in a file.  Raises ``UsageError`` naming what is missing or invalid."""
    text = read_source(path).text
    match = _HEADER.match(text)
    if match is None:
        raise UsageError(
            f"{path}: it does not begin with a comment that says what it computes: /* ... */ with TOML in it, "
            "such as\n"
            '  /*\n  grid = ["ceil_div(rows, 4)"]\n  block = ["128"]\n  scalars = ["rows", "columns"]\n'
            "  hlo = '''the HloModule it stands for, with $rows and $columns for sizes'''\n  */\n"
            "samples/kernels/row_max.cu is a whole one; function, name and summary may be given as well"
        )
    # Blanks in front of it, so that its places are those of the file.
    header = _header(path, re.sub(r"\S", " ", text[: match.start(1)]) + match[1])
    kernel = CudaFile(
        str(header.get("name", Path(path).stem)),
        str(header.get("summary", f"the kernel in {Path(path).name}")),
        path,
        text[match.end() :],
        _pattern(path, header),
        *(tuple(header.get(key, ())) for key in ("grid", "block", "scalars")),
    )
    kernel.check(header)
    return kernel


def _header(path: str, text: str) -> dict[str, Any]:
    try:
        header = parse_toml(Source(text, path))
    except SourceError as error:
        place = f"{path}:{error.line}:{error.column}"
        raise UsageError(f"{place}: its comment is not TOML: {error.message}") from error
    for key in header:
        if key not in _KEYS:
            raise UsageError(f"{path}: '{key}' means nothing here{did_you_mean(key, _KEYS)}")
    for key in ("grid", "block", "scalars"):
        value = header.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise UsageError(f"{path}: '{key}' is a list of expressions in quotes")
    for key in ("grid", "block"):
        if not 1 <= len(header.get(key, [])) <= 3:
            raise UsageError(f"{path}: '{key}' has one to three expressions")
    for key in ("name", "summary", "function", "hlo"):
        if not isinstance(header.get(key, ""), str):
            raise UsageError(f"{path}: '{key}' has to be a text")
    return header


def _pattern(path: str, header: Mapping[str, Any]) -> _Pattern:
    """The computation: in the comment, in the file it names, or beside it."""
    given = header.get("hlo", Path(path).with_suffix(".hlo").name)
    if "\n" in given:
        name, text = path, given
    else:
        file = Path(path).parent / given
        name = str(file)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: the HLO it stands for cannot be read: {error}") from error
    names = list(dict.fromkeys(match[1] for match in _SIZE.finditer(text) if match[1]))
    probes = {entry: _FIRST_SIZE + number for number, entry in enumerate(names)}
    module = _read(name, text, probes)
    places: dict[str, tuple[int, int]] = {}
    for leaf, shape in enumerate(_parameters(module)):
        for dimension, size in enumerate(shape.dims):
            for entry, probe in probes.items():
                if size == probe:
                    places.setdefault(entry, (leaf, dimension))
    for entry in names:
        if entry not in places:
            raise UsageError(
                f"{name}: ${entry} is not a dimension of a parameter: nothing gives its size"
            )
    return _Pattern(name, text, places, _opcodes(module))


def _read(name: str, text: str, sizes: Mapping[str, int]) -> Module:
    def size(match: re.Match[str]) -> str:
        return str(evaluate(match[1] or match[2], sizes))

    try:
        return parse_module(_SIZE.sub(size, text), name)
    except UsageError as error:
        raise UsageError(f"{name}: {error.message}") from error
    except HlooptError as error:
        raise UsageError(str(error)) from error


def _parameters(module: Module) -> list[ArrayShape]:
    return [
        leaf
        for shape in module.entry.parameter_shapes
        for leaf in leaves(shape)
        if isinstance(leaf, ArrayShape)
    ]


def _opcodes(module: Module) -> Counter[str]:
    return Counter(instruction.opcode for instruction in module.instructions())


@dataclass(frozen=True)
class CudaFile:
    """What a file says of its kernel, as the object of a user-defined one."""

    name: str
    summary: str
    path: str
    text: str
    pattern: _Pattern
    grid: tuple[str, ...]
    block: tuple[str, ...]
    scalars: tuple[str, ...]

    def check(self, header: Mapping[str, Any]) -> None:
        """Raise ``UsageError`` for a function that is not there and expressions that cannot be."""
        function = header.get("function")
        if function is not None and not re.search(rf"\b{re.escape(function)}\s*\(", self.text):
            raise UsageError(f"{self.path}: there is no function '{function}' in it")
        ones = dict.fromkeys(self.pattern.places, _FIRST_SIZE)
        for text in (*self.grid, *self.block, *self.scalars):
            self.value(text, ones)

    def value(self, text: str, sizes: Mapping[str, int]) -> int:
        """An expression of the header."""
        try:
            return evaluate(text, sizes)
        except UsageError as error:
            raise UsageError(f"{self.path}: {error.message}") from error

    def matches(self, site: Site) -> bool | str:
        """Whether a site computes what the file does."""
        body = body_module(site.region.instruction)
        if _opcodes(body) != self.pattern.opcodes:
            return "it computes something else"
        sizes = self.pattern.sizes(site)
        if sizes is None or self.pattern.digest(sizes) != fingerprint(plain(body)):
            return "it has the same ops, but computes something else"
        return True

    def source(self, site: Site) -> str:
        """The file without its comment."""
        return self.text

    def launch(self, site: Site) -> tuple[Any, ...]:
        """Grid, block and scalars with the sizes of a site."""
        sizes = self.pattern.sizes(site)
        assert sizes is not None, "only called for sites that match"
        grid, block, scalars = (
            tuple(self.value(text, sizes) for text in texts)
            for texts in (self.grid, self.block, self.scalars)
        )
        return grid, block, scalars
