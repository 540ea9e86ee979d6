"""What cuBLASLt computes after a product, as XLA's patterns take it, and that the calls give the same."""

from __future__ import annotations

import pytest

import hloopt
from hloopt.cost_models.predictor import Predictor
from hloopt.cost_models.registry import DEFAULT, model_for
from hloopt.findings import Planner, chosen_kinds, find, kind_examples, pipeline_for
from hloopt.findings.cublaslt import as_calls, library_product
from hloopt.ir.build import clone_module
from hloopt.pipelines import parse_pipeline
from hloopt.prover.compare import compare_modules
from hloopt.prover.executor import Executor
from hloopt.prover.trials import TrialOptions
from hloopt.rewrite import Pipeline
from hloopt.rewrite.entries import aimed
from hloopt.targets import find_target

_TEXT = """
HloModule layer
ENTRY main {{
  x = {t}[8,16] parameter(0)
  w = {t}[16,12] parameter(1)
  b = {t}[12] parameter(2)
  c = {t}[8,12] parameter(3)
  d = {t}[8,12] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  bias = {t}[8,12] broadcast(b), dimensions={{1}}
  h = {t}[8,12] add(d, bias)
  zero = {t}[] constant(0)
  zeros = {t}[8,12] broadcast(zero), dimensions={{}}
  half = {t}[] constant(0.5)
  halves = {t}[8,12] broadcast(half), dimensions={{}}
  one = {t}[] constant(1)
  ones = {t}[8,12] broadcast(one), dimensions={{}}
  root = {t}[] constant({root})
  roots = {t}[8,12] broadcast(root), dimensions={{}}
  part = {t}[] constant(0.044715)
  parts = {t}[8,12] broadcast(part), dimensions={{}}
  {lines}
}}
"""
_INNER = """square = {t}[8,12] multiply(h, h)
  cube = {t}[8,12] multiply(h, square)
  third = {t}[8,12] multiply(parts, cube)
  inner = {t}[8,12] add(third, h)
  scaled = {t}[8,12] multiply(roots, inner)
  tanh = {t}[8,12] tanh(scaled)
  above = {t}[8,12] add(ones, tanh)
  """
_GELU = _INNER + "cdf = {t}[8,12] multiply(halves, above)\n  ROOT r = {t}[8,12] multiply(cdf, h)"
_KEPT = _GELU.replace("ROOT r", "g") + "\n  ROOT r = ({t}[8,12], {t}[8,12]) tuple(g, h)"
_OTHER_ORDER = (
    _INNER + "less = {t}[8,12] multiply(h, halves)\n  ROOT r = {t}[8,12] multiply(less, above)"
)


def _layer(lines: str, dtype: str = "f32", root: float = 0.797884583) -> hloopt.Module:
    return hloopt.parse(_TEXT.format(t=dtype, root=root, lines=lines.format(t=dtype)))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("lines", "epilogue"),
    [
        ("ROOT r = {t}[8,12] negate(d)", "DEFAULT"),
        ("ROOT r = {t}[8,12] negate(h)", "BIAS"),
        ("ROOT r = {t}[8,12] maximum(h, zeros)", "BIAS_RELU"),
        ("ROOT r = {t}[8,12] maximum(h, ones)", "BIAS"),
        ("ROOT r = {t}[8,12] add(c, h)", "BIAS"),
        (_GELU, "BIAS_GELU"),
        (_KEPT, "BIAS_GELU_AUX"),
        (_OTHER_ORDER, "BIAS"),
    ],
)
def test_the_epilogue_of_a_call(lines: str, epilogue: str, dtype: str) -> None:
    """By its name; and the call gives what the ops give."""
    module = _layer(lines, dtype)
    product = library_product(module.entry.by_name["d"])
    assert product is not None
    assert product.epilogue == epilogue
    called = clone_module(module)
    assert as_calls(called.entry)
    parse_pipeline("dce").run(called)
    hloopt.verify(called)
    assert not any(one.opcode == "dot" for one in called.entry)
    found = compare_modules(module, called, trials=TrialOptions(trials=1), executor=Executor("cpu"))
    assert found.verdict in ("equal", "within tolerance")


def test_a_matrix_is_added_with_beta() -> None:
    """Beside the vector."""
    product = library_product(_layer("ROOT r = {t}[8,12] add(c, h)").entry.by_name["d"])
    assert product is not None
    assert product.matrix is not None
    assert product.matrix.name == "c"


def test_other_numbers_are_no_gelu() -> None:
    """The same ops with another factor."""
    product = library_product(_layer(_GELU, root=0.9).entry.by_name["d"])
    assert product is not None
    assert product.epilogue == "BIAS"


@pytest.mark.parametrize("dtype", ["s32", "c64"])
def test_types_that_xla_makes_no_call_of(dtype: str) -> None:
    """Integers of 32 bits have none; complex products have no epilogue here."""
    text = f"""
HloModule product
ENTRY main {{
  x = {dtype}[8,16] parameter(0)
  w = {dtype}[16,12] parameter(1)
  ROOT d = {dtype}[8,12] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
    module = hloopt.parse(text)
    assert library_product(module.entry.by_name["d"]) is None
    assert not as_calls(module.entry)


def test_the_flag_is_for_triton_kernels_only() -> None:
    """A plan that makes none of the product has nothing to turn off."""
    target = find_target("h200")
    predictor = Predictor(model_for(DEFAULT, target))
    example = hloopt.parse(kind_examples()["unfused-epilogue"].example)
    kinds = chosen_kinds(["unfused-epilogue"])
    xla, _ = pipeline_for(target, "h200")
    own = Pipeline(aimed(parse_pipeline("fix(simplify,cse,dce),priority-fusion").entries, "h200"))
    flags = [
        {
            one.way
            for row in find(example, Planner(made, predictor), "", kinds).rows
            for one in row.remedies
        }
        for made in (xla, own)
    ]
    assert "flag" in flags[0]
    assert "flag" not in flags[1]
