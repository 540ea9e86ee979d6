"""Modules and records in a notebook: what IPython and rich are given, and what a kernel makes of it."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import hloopt
from hloopt.report.picture import MOST_BOXES, picture

TEXT = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
ENTRY main {
  x = f32[4,8] parameter(0), metadata={source_file="a<b>.py" source_line=3}
  y = f32[4,8] parameter(1)
  z = f32[] constant(0)
  t = f32[4,8] tanh(x)
  m = f32[4,8] multiply(t, y)
  ROOT r = f32[4] reduce(m, z), dimensions={1}, to_apply=add
}
"""


@pytest.fixture
def module() -> hloopt.Module:
    """A small module."""
    return hloopt.parse(TEXT, "m.hlo")


def test_names_find_instructions(module: hloopt.Module) -> None:
    """In the entry first, then anywhere; with the computation's name exactly there."""
    assert module["r"] is module["%r"] is module.entry.root
    assert module["s"] is module["add/s"] is module.computations["add"]["s"]
    assert "t" in module
    assert "q" not in module
    assert "t" in module.entry
    assert "s" not in module.entry
    assert module.entry.root in module.entry
    assert len(module) == len(list(module)) == 2
    with pytest.raises(KeyError, match="module m has no instruction 'tt'; did you mean 't'"):
        module["tt"]
    with pytest.raises(KeyError, match="module m has no instruction 'main/s'"):
        module["main/s"]
    with pytest.raises(KeyError, match="computation main has no instruction 's'"):
        module.entry["s"]


def test_a_module_being_made_is_true_and_has_a_repr() -> None:
    """Although nothing is in it."""
    empty = hloopt.Module("m")
    assert empty
    assert repr(empty) == "<module m: 0 computations, 0 instructions>"


def test_short_forms(module: hloopt.Module) -> None:
    """Of module, computation and instruction: what they are, without layouts."""
    assert repr(module) == (
        "<module m: 2 computations, 9 instructions, entry main(x: f32[4,8], y: f32[4,8]) -> f32[4]>"
    )
    assert (
        repr(module.entry)
        == "<computation main(x: f32[4,8], y: f32[4,8]) -> f32[4]: 6 instructions>"
    )
    assert repr(module["r"]) == "<r = f32[4] reduce(m, z)>"
    many = ", ".join(f"p{number}" for number in range(40))
    text = "".join(f"p{number} = f32[2] parameter({number})\n" for number in range(40))
    wide = hloopt.parse(
        f"HloModule m\nENTRY e {{\n{text} ROOT t = ({', '.join(['f32[2]'] * 40)}) tuple({many})\n}}\n"
    )
    assert len(repr(wide["t"])) < 140
    assert repr(wide["t"]).endswith("tuple(p0, p1, p2, p3 and 36 more)>")


def test_a_module_shows_a_table_and_a_picture(module: hloopt.Module) -> None:
    """The picture is well-formed, has a box an instruction, and the constant is written where it is read."""
    found = module._repr_mimebundle_()
    assert found["text/plain"] == repr(module)
    assert "multiply" in found["text/html"]
    svg = ET.fromstring(found["image/svg+xml"])
    titles = [one.text or "" for one in svg.iter("{http://www.w3.org/2000/svg}title")]
    assert [title.split(" = ")[0].removeprefix("ROOT ") for title in titles] == [
        "%x",
        "%y",
        "%t",
        "%m",
        "%r",
    ]
    texts = {one.text for one in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert "reduce 0.0" in texts


def test_names_are_no_markup_of_a_page(module: hloopt.Module) -> None:
    """Whatever a module calls its things, the page holds text."""
    module["t"].name = "<script>&"
    found = module._repr_mimebundle_()
    assert "<script>" not in found["text/html"] + found["image/svg+xml"]
    assert "&lt;script&gt;&amp;" in found["text/html"]
    ET.fromstring(found["image/svg+xml"])


def test_a_large_module_has_no_picture() -> None:
    """A picture of many boxes shows nothing; the table is cut."""
    lines = [f"  n{i} = f32[2] negate({'p' if not i else f'n{i - 1}'})" for i in range(MOST_BOXES)]
    root = f"  ROOT r = f32[2] negate(n{MOST_BOXES - 1})"
    module = hloopt.parse(
        "\n".join(["HloModule m", "ENTRY e {", "  p = f32[2] parameter(0)", *lines, root, "}\n"])
    )
    found = module._repr_mimebundle_()
    assert set(found) == {"text/plain", "text/html"}
    assert "and 22 more instructions of e" in found["text/html"]
    assert picture(module.entry) == ""


RECORDS: dict[str, Callable[[hloopt.Module], Any]] = {
    "stats": hloopt.stats,
    "stats of a target": lambda module: hloopt.stats(module, "h200"),
    "kernels": hloopt.select_kernels,
    "explain": hloopt.explain,
    "explain one": lambda module: hloopt.explain(module, "m"),
    "explain two": lambda module: hloopt.explain(module, "t", "m"),
    "compare": lambda module: hloopt.compare(module, module),
    "bisect": hloopt.bisect,
    "run": lambda module: hloopt.run(module, repeat=1),
    "equivalent": lambda module: hloopt.equivalent(module, module),
    "export": lambda module: hloopt.export(module, "input_reduce_fusion"),
}


@pytest.mark.parametrize("make", RECORDS.values(), ids=list(RECORDS))
def test_records_show_themselves(
    make: Callable[[hloopt.Module], Any], module: hloopt.Module
) -> None:
    """As JSON, as HTML without markup of the module, and in rich."""
    before = module.to_text()
    record = make(module)
    assert module.to_text() == before
    assert isinstance(record.to_json(), dict)
    bundle = record._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"].strip()
    stream = io.StringIO()
    Console(file=stream, width=100).print(record)
    assert stream.getvalue().split()[0] == bundle["text/plain"].split()[0]


def test_the_command_prints_what_the_function_returns(
    module: hloopt.Module, tmp_path: Path
) -> None:
    """Figures of records are those of JSON."""
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    stats = hloopt.stats(path, "h200")
    assert stats.opcodes["parameter"] == 4
    assert stats.seconds == stats.to_json()["prediction"]["seconds"] > 0
    made = hloopt.select_kernels(path, target="a100")
    assert [row.kernel for row in made.rows] == [row["kernel"] for row in made.to_json()["choices"]]
    assert 'extern "C" __global__' in made.source
    with pytest.raises(hloopt.UsageError, match="one instruction is explained, or two, not 3"):
        hloopt.explain(module, "a", "b", "c")
    with pytest.raises(hloopt.UsageError, match="it needs a target"):
        hloopt.stats(module, cost_model="roofline")


@pytest.mark.skipif(
    find_spec("nbclient") is None, reason="no nbclient: it runs a notebook's kernel"
)
def test_a_notebook_shows_it() -> None:
    """A real kernel asks for the display and gets the same."""
    import nbformat
    from nbclient import NotebookClient

    cell = nbformat.v4.new_code_cell(f"import hloopt\nhloopt.parse({TEXT!r})")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert set(output["data"]) == {"text/plain", "text/html", "image/svg+xml"}
    assert output["data"]["text/html"] == hloopt.parse(TEXT)._repr_mimebundle_()["text/html"]


@pytest.mark.skipif(find_spec("jax") is None, reason="no JAX in this environment")
def test_a_function_of_jax() -> None:
    """Its module has the lines of this file."""
    import jax.numpy as jnp

    def doubled(x: Any) -> Any:
        return jnp.tanh(x) * 2

    module = hloopt.from_jax(doubled, jnp.ones(4))
    assert "tanh" in {one.opcode for one in module.entry}
    lines = {
        module.user_line(one.metadata).rpartition(":")[0] for one in module.entry if one.metadata
    }
    assert __file__ in lines


def test_a_prompt_shows_the_table_of_a_record() -> None:
    """Not all that the record holds, such as the module and every decision."""
    found = repr(hloopt.explain(hloopt.parse(TEXT)))
    assert "opcode  kernel" in found
    assert "ModuleExplained(" not in found
    assert len(found) < 2000
    assert not re.search(r" $", found, re.MULTILINE)
