"""Updates natively: only what changes is written, in the buffer it changes, one after the other."""

from __future__ import annotations

from collections import Counter

import numpy as np

import hloopt
from hloopt.backends.native.compile import CompiledNative, compile_native
from hloopt.kernels.plan import KernelStep, WhileStep, walk_steps
from hloopt.kernels.spec import Copy
from hloopt.runtime.inputs import generate
from hloopt.runtime.judge import judged
from tests.helpers.joined_modules import joined
from tests.helpers.support import Array

REDUCERS = """HloModule m
add { a = TYPE[] parameter(0)  b = TYPE[] parameter(1)  ROOT c = TYPE[] add(a, b) }
keep { a = TYPE[] parameter(0)  ROOT b = TYPE[] parameter(1) }
halves { a = TYPE[] parameter(0)  b = TYPE[] parameter(1)  d = TYPE[] add(a, a)  ROOT c = TYPE[] subtract(b, d) }
"""


def _rows(kind: str, region: str) -> str:
    """Rows by indices of which some are out of bounds, and some the same."""
    return f"""{REDUCERS.replace("TYPE", kind)}
ENTRY e {{
  x = {kind}[6,5] parameter(0)
  i = s32[9,1] parameter(1)
  u = {kind}[9,5] parameter(2)
  ROOT r = {kind}[6,5] scatter(x, i, u), update_window_dims={{1}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={region}
}}
"""


WINDOWS = f"""{REDUCERS.replace("TYPE", "f32")}
ENTRY e {{
  zero = f32[] constant(0.5)
  x = f32[7,8,3] broadcast(zero), dimensions={{}}
  i = s64[4,2] parameter(0)
  u = f32[2,4,3,3] parameter(1)
  ROOT r = f32[7,8,3] scatter(x, i, u), update_window_dims={{0,2,3}}, inserted_window_dims={{}}, scatter_dims_to_operand_dims={{1,0}}, index_vector_dim=1, to_apply=halves
}}
"""

SEVERAL = """HloModule m
both {
  a = f32[] parameter(0)
  b = s32[] parameter(1)
  c = f32[] parameter(2)
  d = s32[] parameter(3)
  more = pred[] compare(c, a), direction=GT
  x = f32[] select(more, c, a)
  y = s32[] select(more, d, b)
  ROOT t = (f32[], s32[]) tuple(x, y)
}
ENTRY e {
  x = f32[6] parameter(0)
  y = s32[6] parameter(1)
  i = s32[12,1] parameter(2)
  u = f32[12] parameter(3)
  v = s32[12] parameter(4)
  ROOT r = (f32[6], s32[6]) scatter(x, y, i, u, v), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=both
}
"""

UPDATE = """HloModule m
ENTRY e {
  x = KIND[5,7] parameter(0)
  u = KIND[2,3] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = KIND[5,7] dynamic-update-slice(x, u, i, j)
}
"""

LOOP = """HloModule m
less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }
body {
  s = (s32[], f32[300,40], f32[40]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  all = f32[300,40] get-tuple-element(s), index=1
  x = f32[40] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  n = s32[] add(i, one)
  y = f32[40] sort(x), dimensions={0}, to_apply=less
  z = f32[40] reverse(y), dimensions={0}
  row = f32[1,40] reshape(z)
  new = f32[300,40] dynamic-update-slice(all, row, i, zero)
  ROOT r = (s32[], f32[300,40], f32[40]) tuple(n, new, z)
}
condition {
  s = (s32[], f32[300,40], f32[40]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(300)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  zero = s32[] constant(0)
  all = f32[300,40] parameter(0)
  x = f32[40] parameter(1)
  s = (s32[], f32[300,40], f32[40]) tuple(zero, all, x)
  w = (s32[], f32[300,40], f32[40]) while(s), condition=condition, body=body
  ROOT r = f32[300,40] get-tuple-element(w), index=1
}
"""


def _inputs(module: hloopt.Module, seed: int) -> list[Array]:
    """Indices reach beyond the bounds."""
    given = generate(module, seed)
    rng = np.random.default_rng(seed)
    return [
        rng.integers(-3, 9, array.shape).astype(array.dtype) if array.dtype.kind == "i" else array
        for array in given
    ]


def _kernels(program: CompiledNative) -> Counter[str]:
    return Counter(
        step.spec.kernel for step in walk_steps(program.plan.steps) if isinstance(step, KernelStep)
    )


def test_updates() -> None:
    """Scatters of rows, windows and several arrays, of several types; slices updated near and over the edge."""
    texts = [
        *(_rows(kind, "add") for kind in ("f32", "s32", "bf16", "u8")),
        _rows("f32", "keep"),
        _rows("f64", "halves"),
        WINDOWS,
        SEVERAL,
        *(UPDATE.replace("KIND", kind) for kind in ("f32", "pred", "c64")),
    ]
    modules = [hloopt.parse(text) for text in texts]
    program = compile_native(joined(modules))
    found = _kernels(program)
    assert found["native-scatter"] == 8
    assert found["native-update"] == 3
    assert "native-call" not in found
    for seed in range(4):
        inputs = [_inputs(module, seed) for module in modules]
        got = iter(program.run([array for given in inputs for array in given]))
        for text, module, given in zip(texts, modules, inputs, strict=True):
            wanted = hloopt.evaluate(module, given)
            compared = judged(module, given, [next(got) for _ in wanted], wanted)
            assert all(one.passed for one in compared), (text, seed, compared)


def test_a_loop_copies_nothing() -> None:
    """What a body updates is written in place: no step copies the array."""
    module = hloopt.parse(LOOP)
    program = compile_native(module)
    (loop,) = (step for step in program.plan.steps if isinstance(step, WhileStep))
    steps = [step for step in walk_steps(loop.body) if isinstance(step, KernelStep)]
    assert any(step.spec.kernel == "native-update" for step in steps)
    assert not any(move for step in steps for move in (*step.before, *step.after))
    whole = 300 * 40 * 4
    for step in steps:
        sizes = [buffer.byte_size for buffer in step.results]
        assert step.spec.kernel == "native-update" or whole not in sizes
        assert not any(isinstance(part, Copy) for part in step.spec.steps) or whole not in sizes
    given = generate(module, 0)
    assert (program.run(given)[0] == hloopt.evaluate(module, given)[0]).all()


def test_what_is_still_needed_stays() -> None:
    """An operand that is a result, too, is copied first."""
    text = (
        _rows("f32", "add")
        .replace("ROOT r", "s")
        .replace("\n}\n", "\n  ROOT t = (f32[6,5], f32[6,5]) tuple(s, x)\n}\n")
    )
    module = hloopt.parse(text)
    given = _inputs(module, 0)
    before = given[0].copy()
    changed, same = compile_native(module).run(given)
    assert (given[0] == before).all()
    assert (same == before).all()
    assert (changed == hloopt.evaluate(module, given)[0]).all()
