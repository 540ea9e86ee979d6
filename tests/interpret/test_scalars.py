"""Regions as functions of scalars: the same bits as on arrays."""

from __future__ import annotations

import numpy as np
import pytest

import hloopt
from hloopt.interpret import EVALUATORS
from hloopt.interpret.context import leaf_arrays
from hloopt.interpret.interpreter import Interpreter
from hloopt.interpret.scalars import scalar_function

BINARY = ["add", "subtract", "multiply", "maximum", "minimum"]
DIRECTIONS = ["EQ", "NE", "LT", "LE", "GT", "GE"]


def region(body, *, excess_precision=False):
    entry = "ENTRY e { ROOT c = s32[] constant(0) }"
    module = hloopt.parse(f"HloModule m\nregion {{\n{body}\n}}\n{entry}")
    interpreter = Interpreter(module, EVALUATORS, excess_precision=excess_precision)
    return module.computations["region"], interpreter


def special(kind):
    """Values that the type has, the special ones among them."""
    if kind.startswith(("f", "bf")):
        numbers = [0.0, -0.0, 1.0, -1.5, 3.3e4, 1e-5, np.inf, -np.inf, np.nan, 0.1, 7e4, -2e-8]
    elif kind == "pred":
        numbers = [False, True]
    else:
        low = 0 if kind.startswith("u") else -(2 ** (int(kind[1:]) - 1))
        high = 2 ** int(kind[1:]) - 1 if kind.startswith("u") else -low - 1
        numbers = [low, low + 1, 0, 1, 3, high - 1, high]
    target = hloopt.types.dtype(kind).numpy
    with np.errstate(all="ignore"):
        return np.array(numbers, None if "f" in kind else target).astype(target)


def agree(body, kinds, *, excess_precision=False):
    """Hold scalars against arrays on all pairs of special values."""
    computation, interpreter = region(body, excess_precision=excess_precision)
    columns = np.meshgrid(*(np.arange(len(special(kind))) for kind in kinds))
    carriers = [interpreter.carrier(hloopt.types.dtype(kind)) for kind in kinds]
    arrays = [
        special(kind)[column.reshape(-1)].astype(carrier)
        for kind, column, carrier in zip(kinds, columns, carriers, strict=True)
    ]
    with np.errstate(all="ignore"):
        want = list(leaf_arrays(interpreter.apply(computation, arrays)))
        step = scalar_function(computation, interpreter)
        assert step is not None
        rows = [step(*scalars) for scalars in zip(*arrays, strict=True)]
    for index, array in enumerate(want):
        numbers = [row[index] for row in rows]
        assert {np.asarray(number).dtype for number in numbers} == {array.dtype}
        got = np.array(numbers, array.dtype)
        nan = got != got
        assert got[~nan].tobytes() == array[~nan].tobytes()
        assert (nan == (array != array)).all()


KINDS = ["f32", "f64", "f16", "bf16", "s8", "u8", "s32", "u64", "f8e4m3fn"]


@pytest.mark.parametrize("excess_precision", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_arithmetic_is_that_of_arrays(kind, excess_precision):
    """Rounding, wrapping, zeros and NaNs, also of types whose arithmetic is done in another one."""
    pair = f"x = {kind}[] parameter(0)\ny = {kind}[] parameter(1)\n"
    bodies = [f"ROOT r = {kind}[] {op}(x, y)" for op in BINARY]
    bodies += [f"ROOT r = pred[] compare(x, y), direction={word}" for word in DIRECTIONS]
    mixed = f"n = {kind}[] negate(x)\na = {kind}[] abs(y)\nd = {kind}[] divide(n, a)\n"
    several = f"ROOT r = ({kind}[], {kind}[], {kind}[]) tuple(d, k, x)"
    bodies.append(f"{mixed}k = {kind}[] constant(3)\n{several}")
    if kind.startswith("f"):
        bodies += ["ROOT r = pred[] compare(x, y), direction=LT, type=TOTALORDER"]
    for body in bodies:
        agree(pair + body, [kind, kind], excess_precision=excess_precision)


@pytest.mark.parametrize("kind", ["pred", "s16", "u32"])
def test_logic_is_that_of_arrays(kind):
    """Of truth values and of bits."""
    pair = f"x = {kind}[] parameter(0)\ny = {kind}[] parameter(1)\n"
    for op in ("and", "or", "xor"):
        agree(f"{pair}n = {kind}[] not(x)\nROOT r = {kind}[] {op}(n, y)", [kind, kind])


@pytest.mark.parametrize("source", KINDS)
def test_conversions_and_choices_are_those_of_arrays(source):
    """Saturating, wrapping and rounding; a select takes either side as it is."""
    for target in [*KINDS, "pred"]:
        body = f"""
            x = {source}[] parameter(0)
            c = pred[] parameter(1)
            y = {target}[] convert(x)
            z = {target}[] copy(y)
            w = {target}[] convert(c)
            ROOT r = {target}[] select(c, z, w)"""
        agree(body, [source, "pred"])


@pytest.mark.parametrize(
    "body",
    [
        "x = f32[2] parameter(0)\nROOT r = f32[2] negate(x)",
        "x = f32[] parameter(0)\nb = f32[2] broadcast(x), dimensions={}\nROOT r = f32[] copy(x)",
        "x = (f32[], f32[]) parameter(0)\nROOT r = f32[] get-tuple-element(x), index=0",
    ],
)
def test_regions_that_are_more_than_scalars_have_no_function(body):
    """Arrays and tuples inside a region are left to the interpreter."""
    assert scalar_function(*region(body)) is None


def test_names_of_a_module_never_reach_the_function():
    """Whatever instructions are called, lines are made of numbers."""
    body = "import_os = f32[] parameter(0)\nROOT v0 = f32[] add(import_os, import_os)"
    step = scalar_function(*region(body))
    assert set(step.__code__.co_varnames) == {"v0", "v1"}
    assert step(np.float32(2)) == (4,)
