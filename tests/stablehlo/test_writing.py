"""StableHLO out: as text and as a portable artifact, and what is kept on the way there and back."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import hloopt
from hloopt.runtime.xla_form import make_for_xla
from hloopt.stablehlo.conversion import write_stablehlo
from tests.helpers.support import invoke
from tests.stablehlo.test_reading import MESH, OPEN, PLAIN, needs_jaxlib

SAMPLES = Path(__file__).parents[2] / "samples"
NAMED = """HloModule named, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY e {
  state.7 = f32[4] parameter(0), metadata={op_name="params[\\'w\\']"}
  x.2 = f32[4] parameter(1)
  ROOT sum = f32[4] add(state.7, x.2), metadata={op_name="jit(step)/add"}
}
"""


def shardings(module: hloopt.Module) -> Counter[str]:
    """What the text says of shardings, XLA's and Shardy's."""
    return Counter(
        re.findall(r" sharding=\{.*?\}|xla\.sdy\.\w+=[^ ]*", module.to_text(metadata=False))
    )


@needs_jaxlib
@pytest.mark.parametrize("form", ["stablehlo", "mlir.bc"])
@pytest.mark.parametrize("sample", ["layernorm_gelu", "while_loop", "attention"])
def test_there_and_back_a_sample_means_the_same(sample: str, form: str) -> None:
    """Optimised with fusions, which are written as what is in them; read again it gives the same results."""
    path = SAMPLES / f"{sample}.hlo"
    if not path.exists():
        pytest.fail(f"there is no {path}")
    module = hloopt.read(path)
    best = hloopt.optimize(module, "O2")
    make_for_xla(best)
    again = hloopt.read(write_stablehlo(best, form))
    shapes = [str(shape) for shape in module.entry.parameter_shapes]
    assert [str(shape) for shape in again.entry.parameter_shapes] == shapes
    assert hloopt.compare(module, again).equal


@needs_jaxlib
def test_names_donation_and_devices_are_kept() -> None:
    """The frontend's names of arguments and operations; the mesh and each sharding, word for word."""
    again = hloopt.read(write_stablehlo(hloopt.parse(NAMED), "stablehlo"))
    first, second = again.entry.parameters
    assert first.metadata is not None
    assert first.metadata.fields["op_name"] == "params['w']"
    assert second.name.startswith("x.")
    assert again.entry.root.metadata is not None
    assert again.entry.root.metadata.fields["op_name"] == "jit(step)/add"
    assert "input_output_alias={ {}: (0, {}, may-alias) }" in again.to_text().split("\n")[0]
    spread = hloopt.read(MESH)
    for form in ("stablehlo", "mlir.bc"):
        back = hloopt.read(write_stablehlo(spread, form))
        assert back.attributes["num_partitions"] == 4
        assert back.attributes["replica_count"] == 2
        assert shardings(back) == shardings(spread)


@needs_jaxlib
def test_optimize_writes_it(tmp_path: Path) -> None:
    """By --emit or by the name of OUT; into a folder, into JSON; not several into one text."""
    path = tmp_path / "f.mlir"
    path.write_text(PLAIN)
    text = invoke("optimize", str(path), "--emit", "stablehlo").stdout
    assert "func.func public @main(" in text
    assert "fusion" not in text
    assert invoke("check", "-", stdin=text).stdout == "<stdin>: ok\n"
    out = tmp_path / "out"
    out.mkdir()
    assert invoke("optimize", str(path), "--emit", "mlir.bc", "-o", str(out)).exit_code == 0
    assert (out / "f.mlir.bc").read_bytes().startswith(b"ML\xefR\rStableHLO_v")
    assert invoke("optimize", str(path), "-o", str(out / "g.mlir")).exit_code == 0
    x = np.ones((2, 3), np.float32)
    for name in ("f.mlir.bc", "g.mlir"):
        assert hloopt.evaluate(hloopt.read(out / name), [x, np.float32(2)])[0] == 12
    (row,) = json.loads(invoke("optimize", str(path), "--emit", "stablehlo", "--json").stdout)[
        "modules"
    ]
    assert "stablehlo." in row["text"]
    for form, message in (
        ("stablehlo", "one text of StableHLO cannot hold several modules"),
        ("mlir.bc", "one portable artifact cannot hold several modules"),
    ):
        result = invoke("optimize", str(path), str(path), "--emit", form)
        assert (result.exit_code, message in result.stderr) == (2, True)
    result = invoke("optimize", str(path), "--emit", "mlir.bc", "--json")
    assert "JSON cannot hold a portable artifact" in result.stderr


@needs_jaxlib
def test_a_fixed_shape_is_written(tmp_path: Path) -> None:
    """What was open is not any more."""
    path = tmp_path / "open.mlir"
    path.write_text(OPEN)
    text = invoke("optimize", str(path), "--shape", "x=f32[3,4]", "--emit", "stablehlo").stdout
    assert "tensor<3x4xf32>" in text
    assert "?" not in text


@needs_jaxlib
def test_values_that_are_left_out_are_refused() -> None:
    """StableHLO has no form for them."""
    text = (
        "HloModule m\nENTRY e {\n  c = f32[100] constant({...})\n  ROOT n = f32[100] negate(c)\n}\n"
    )
    result = invoke("optimize", "-", "-O0", "--emit", "stablehlo", stdin=text)
    assert result.exit_code == 4
    assert result.stderr.startswith(
        "<stdin>:3:3: error: c: its values are left out of the text ({...})"
    )


def test_without_jaxlib_nothing_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5, with the command that installs it."""
    monkeypatch.delenv("HLOOPT_XLA_PYTHON", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = invoke("optimize", str(SAMPLES / "while_loop.hlo"), "-O0", "--emit", "stablehlo")
    assert result.exit_code == 5
    assert "writing StableHLO needs jaxlib: pip install" in result.stderr


@needs_jaxlib
def test_a_tuple_is_an_argument_for_each_of_its_parts() -> None:
    """With names of their own; tokens, too, and nothing for an empty tuple."""
    module = hloopt.parse("""HloModule parts
ENTRY e {
  x = (f32[2], (s32[], pred[3]), ()) parameter(0)
  t = token[] parameter(1)
  y = f32[2] get-tuple-element(x), index=0
  z = (s32[], pred[3]) get-tuple-element(x), index=1
  ROOT r = (f32[2], (s32[], pred[3]), token[]) tuple(y, z, t)
}
""")
    text = write_stablehlo(module, "stablehlo").decode()
    assert re.findall(r'%arg\d: (\S+) loc\("(.*?)"\)', text) == [
        ("tensor<2xf32>", "x.0"),
        ("tensor<i32>", "x.1.0"),
        ("tensor<3xi1>", "x.1.1"),
        ("!stablehlo.token", "t"),
    ]
    assert len(hloopt.read(text).entry.parameters) == 4
