"""Evaluation of whole modules: inputs, results, what is refused, precision modes."""

import weakref
from importlib import import_module
from pkgutil import iter_modules

import ml_dtypes
import numpy as np
import pytest

import hloopt
from hloopt import interpret
from hloopt.errors import EvaluationError, UnsupportedError, UsageError
from hloopt.interpret import (
    EVALUATORS,
    collective,
    elementwise,
    evaluate_module,
    has_evaluation,
    movement,
    supported,
)
from hloopt.interpret.families import CHECKED, EVALUATED
from hloopt.ops import OPS

BF16 = ml_dtypes.bfloat16


def run(text, *inputs, **options):
    """The results of an entry written without its module header."""
    return hloopt.evaluate(hloopt.parse(f"HloModule m\n{text}"), list(inputs), **options)


def test_results_are_flat_and_without_tokens():
    """A nested tuple gives its arrays depth first; tokens are left out."""
    results = run("""
        ENTRY e {
          a = s32[] constant(1)
          b = f32[2] constant({2, 3})
          t = token[] after-all()
          inner = (f32[2], token[]) tuple(b, t)
          ROOT r = ((f32[2], token[]), s32[]) tuple(inner, a)
        }""")
    assert [r.tolist() for r in results] == [[2.0, 3.0], 1]
    assert [r.dtype for r in results] == [np.float32, np.int32]


def test_results_are_arrays_of_the_caller():
    """A parameter that is returned is copied, and a broadcast is no view of one element."""
    x = np.arange(3, dtype=np.float32)
    (same,) = run("ENTRY e { ROOT p = f32[3] parameter(0) }", x)
    same[0] = 7
    assert x[0] == 0
    (spread,) = run(
        "ENTRY e { p = f32[] parameter(0) ROOT b = f32[2] broadcast(p), dimensions={} }", x[1]
    )
    spread[0] = 9
    assert spread.tolist() == [9.0, 1.0]


IDENTITY = "ENTRY e {{ ROOT p = {0}[2] parameter(0) }}"


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ("bf16", np.array([0x3F80, 0xC000], np.uint16)),
        ("f8e4m3fn", np.array([0x38, 0xC0], np.uint8)),
        ("f8e5m2", np.array([0x3C, 0xC0], np.uint8)),
    ],
)
def test_inputs_may_be_views_of_their_storage(kind, stored):
    """Types NumPy lacks may come as unsigned integers of the same size."""
    (result,) = run(IDENTITY.format(kind), stored)
    assert result.astype(np.float32).tolist() == [1.0, -2.0]


def test_int4_comes_sign_extended_in_bytes():
    """s4 as uint8 or int8 with one element a byte; u4 as uint8."""
    for stored in (np.array([0xFF, 7], np.uint8), np.array([-1, 7], np.int8)):
        (result,) = run(IDENTITY.format("s4"), stored)
        assert result.dtype == ml_dtypes.int4
        assert result.astype(int).tolist() == [-1, 7]
    (result,) = run(IDENTITY.format("u4"), np.array([15, 0], np.uint8))
    assert result.astype(int).tolist() == [15, 0]


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        ("f32", [], "has 1 parameter array, but 0 inputs"),
        ("f32", [np.zeros(3, np.float32)], r"has dimensions \[2\], but the input has \[3\]"),
        ("f32", [np.zeros(2, np.float64)], "is f32, but the input is float64"),
        ("f32", [np.zeros(2, np.uint32)], "is f32, but the input is uint32"),
        ("bf16", [np.zeros(2, np.float16)], "is bf16, but the input is float16"),
        ("pred", [np.zeros(2, np.uint8)], "is pred, but the input is uint8"),
        ("s4", [np.array([8, 0], np.uint8)], "is s4, but the input has values outside"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(kind, given, message):
    """Number, dimensions and element types are checked by parameter before anything runs."""
    with pytest.raises(EvaluationError, match=message):
        run(IDENTITY.format(kind), *given)


def test_an_elided_constant_is_refused_by_name_and_line():
    """A constant whose value the text leaves out stops the evaluation before it starts."""
    module = hloopt.parse(
        "HloModule m\nENTRY e {\n  ROOT big = f32[40] constant({...})\n}", "m.hlo"
    )
    with pytest.raises(UnsupportedError, match="left out of the text") as caught:
        evaluate_module(module, [])
    assert str(caught.value).startswith("m.hlo:3:")
    assert "big" in caught.value.message


def test_only_what_the_entry_reaches_has_to_be_supported():
    """An unknown custom call in a computation that nobody calls is no obstacle."""
    dead = 'dead { ROOT c = f32[] custom-call(), custom_call_target="nobody_knows" }'
    assert run(f"{dead}\nENTRY e {{ ROOT c = f32[] constant(2) }}")[0] == 2
    called = f"{dead}\nENTRY e {{ ROOT c = f32[] call(), to_apply=dead }}"
    with pytest.raises(UnsupportedError, match="nobody_knows"):
        supported(hloopt.parse(f"HloModule m\n{called}"))


def test_unbounded_dimensions_are_refused():
    """A dimension without a bound has no evaluation."""
    with pytest.raises(UnsupportedError, match=r"p: unbounded dimensions \(f32\[\?\]\)"):
        run("ENTRY e { ROOT p = f32[?] parameter(0) }", np.zeros(4, np.float32))


def test_memory_that_is_not_there_names_the_instruction():
    """An array larger than any machine's memory is an error of the evaluation, not a crash."""
    with pytest.raises(EvaluationError, match=r":\d+:\d+: huge: no memory for iota"):
        run("ENTRY e { ROOT huge = f32[999999999999999] iota(), iota_dimension=0 }")


def test_opcodes_without_evaluation_say_so():
    """``has_evaluation`` is what the interpreter's tables hold, and constants and parameters."""
    assert has_evaluation("add")
    assert has_evaluation("parameter")
    assert has_evaluation("infeed")
    assert not has_evaluation("outflow")
    assert set(EVALUATORS) <= set(OPS)


CHAIN = """
    ENTRY e {
      p = bf16[] parameter(0)
      one = bf16[] constant(1)
      sum = bf16[] add(p, one)
      ROOT back = bf16[] subtract(sum, one)
    }"""


def test_strict_mode_rounds_after_every_op():
    """2^-10 is lost in a bf16 sum with 1, and kept where bf16 chains keep f32."""
    small = np.array(2.0**-10, BF16)
    assert run(CHAIN, small)[0] == 0
    (kept,) = run(CHAIN, small, excess_precision=True)
    assert kept.dtype == BF16
    assert kept == 2.0**-10


def test_excess_precision_ends_at_buffers():
    """A loop's carry, the bits of a value and an entry result are rounded in either mode."""
    text = """
        body {
          s = (s32[], bf16[]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          x = bf16[] get-tuple-element(s), index=1
          one = s32[] constant(1)
          next = s32[] add(i, one)
          unit = bf16[] constant(1)
          y = bf16[] add(x, unit)
          ROOT t = (s32[], bf16[]) tuple(next, y)
        }
        condition {
          s = (s32[], bf16[]) parameter(0)
          i = s32[] get-tuple-element(s), index=0
          n = s32[] constant(1)
          ROOT c = pred[] compare(i, n), direction=LT
        }
        ENTRY e {
          p = bf16[] parameter(0)
          zero = s32[] constant(0)
          t = (s32[], bf16[]) tuple(zero, p)
          w = (s32[], bf16[]) while(t), condition=condition, body=body
          x = bf16[] get-tuple-element(w), index=1
          unit = bf16[] constant(1)
          lost = bf16[] subtract(x, unit)
          sum = bf16[] add(p, unit)
          bits = u16[] bitcast-convert(sum)
          ROOT r = (bf16[], u16[]) tuple(lost, bits)
        }"""
    lost, bits = run(text, np.array(2.0**-10, BF16), excess_precision=True)
    assert lost == 0
    assert bits == 0x3F80


def test_values_are_freed_after_their_last_use(monkeypatch):
    """Memory follows liveness: when the second op's operand has been used, it is gone."""
    alive = []
    table = dict(EVALUATORS)

    def watched(instruction, values, context):
        alive.append([name for name, reference in seen.items() if reference() is not None])
        result = EVALUATORS[instruction.opcode](instruction, values, context)
        seen[instruction.name] = weakref.ref(result)
        return result

    seen = {}
    for opcode in ("negate", "abs", "exponential", "sqrt"):
        table[opcode] = watched
    monkeypatch.setattr("hloopt.interpret.EVALUATORS", table)
    run(
        """ENTRY e {
          p = f32[8] parameter(0)
          a = f32[8] negate(p)
          b = f32[8] abs(a)
          c = f32[8] exponential(b)
          ROOT d = f32[8] sqrt(c)
        }""",
        np.ones(8, np.float32),
    )
    assert alive == [[], ["a"], ["b"], ["c"]]


def test_a_chain_of_calls_and_a_long_computation_need_no_deep_stack():
    """Instructions are run in a loop: 20,000 of them in a row are no recursion."""
    lines = ["p0 = s32[] parameter(0)", "one = s32[] constant(1)"]
    lines += [f"p{k} = s32[] add(p{k - 1}, one)" for k in range(1, 20_000)]
    lines[-1] = "ROOT " + lines[-1]
    assert run("ENTRY e {\n" + "\n".join(lines) + "\n}", np.int32(0))[0] == 19_999


@pytest.mark.parametrize(("table", "families"), [("EVALUATORS", EVALUATED), ("CHECKS", CHECKED)])
def test_the_modules_of_opcodes_are_those_that_have_them(table, families):
    """The lists that say what to load name all that the modules of the room hold, and nothing else."""
    listed = {family: set(opcodes) for family, opcodes in families.items()}
    held = {
        info.name: getattr(import_module(f"hloopt.interpret.{info.name}"), table, {}).keys()
        & OPS.keys()
        for info in iter_modules(interpret.__path__)
        if info.name not in ("bounded", "elementwise", "families", "collective")
    }
    if table == "EVALUATORS":
        held["collective"] = collective.EVALUATORS.keys()
    assert listed == {family: opcodes for family, opcodes in held.items() if opcodes}


def test_all_families_are_one_table():
    """It holds what is listed and the elementwise ops; an unknown opcode is in none."""
    listed = {opcode for opcodes in EVALUATED.values() for opcode in opcodes}
    assert set(EVALUATORS) == listed | elementwise.EVALUATORS.keys()
    assert len(EVALUATORS) == len(list(EVALUATORS))
    assert EVALUATORS["copy"] is movement.EVALUATORS["copy"]
    assert EVALUATORS["add"] is elementwise.elementwise
    with pytest.raises(KeyError):
        EVALUATORS["outflow"]


def test_an_array_in_the_place_of_the_host_is_refused():
    """Inputs are one list: who passes them one by one is told so."""
    module = hloopt.parse(IDENTITY.format("f32"), "m.hlo")
    array = np.zeros(2, np.float32)
    program = hloopt.compile(module)
    assert repr(program) == "<NumpyProgram of module_e, kernels: 0>"
    with pytest.raises(UsageError, match="inputs are one list of arrays"):
        program.run(array, array)
    with pytest.raises(UsageError, match="not ndarray"):
        hloopt.evaluate(module, [array], host=array)
