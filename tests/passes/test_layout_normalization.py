"""Descending layouts: every op under every order of dimensions, borders, signatures, bitcasts."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import hloopt
from hloopt.ir import Instruction, Module
from hloopt.passes.layout_normalization import LayoutNormalization
from hloopt.passes.layout_normalization.dimensions import regrouped
from hloopt.passes.layout_normalization.values import descends
from hloopt.rewrite import PassLog
from hloopt.types import ArrayShape, Layout, Shape, TupleShape
from tests.helpers.rarely import one_in
from tests.passes import proof
from tests.properties.random_modules import module_text

LIGHT = ("transpose", "get-tuple-element", "parameter", "tuple")


def is_inside(instruction: Instruction) -> bool:
    """Whether the pass has to make an instruction descending: the border of ENTRY may stay."""
    module = instruction.computation and instruction.computation.module
    assert module is not None
    return instruction.computation is not module.entry or instruction.opcode not in LIGHT


def normalized(text: str, *, changes: bool = True, rtol: float | None = None) -> Module:
    module, _ = proof.check(text, LayoutNormalization(), changes=changes, draws=4, rtol=rtol)
    for instruction in module.instructions():
        assert descends(instruction.shape) or not is_inside(instruction), module.to_text()
    return module


def opcodes(module: Module) -> list[str]:
    return [instruction.opcode for instruction in module.entry]


def shuffled(shape: Shape, chooser: random.Random) -> Shape:
    """The same shape with layouts drawn by lot."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(shuffled(element, chooser) for element in shape.elements))
    assert isinstance(shape, ArrayShape)
    order = list(range(shape.rank))
    chooser.shuffle(order)
    return replace(shape, layout=Layout(tuple(order)))


@pytest.mark.parametrize("seed", one_in(3, range(100)))
def test_random_layouts_in_random_modules(seed: int) -> None:
    """Loops, conditionals, calls, fusions and tuples of arrays in any layouts compute the same bits."""
    chooser = random.Random(seed)
    module = hloopt.parse(module_text(chooser))
    for instruction in module.instructions():
        if instruction.opcode != "constant":
            instruction.shape = shuffled(instruction.shape, chooser)
    normalized(module.to_text(), changes=any(
        not descends(instruction.shape) for instruction in module.instructions()
    ) and _is_changed(module))  # fmt: skip


def _is_changed(module: Module) -> bool:
    """The border of ENTRY may be all that is not descending."""
    return LayoutNormalization().run(hloopt.parse(module.to_text()), PassLog())


INTEGER = "sum { x = s32[] parameter(0) y = s32[] parameter(1) ROOT z = s32[] add(x, y) }\n"
OPS = {
    "reduce": ("s32[2,3,4]", "s32[] constant(1)", "s32[2,4]",
               "reduce(p, k), dimensions={1}, to_apply=sum", INTEGER),
    "broadcast": ("f32[2,3]", "f32[] constant(1)", "f32[3,5,2]", "broadcast(p), dimensions={2,0}", ""),
    "reverse": ("f32[2,3,4]", "f32[] constant(1)", "f32[2,3,4]", "reverse(p), dimensions={0,2}", ""),
    "slice": ("f32[4,3,5]", "f32[] constant(1)", "f32[2,3,3]",
              "slice(p), slice={[0:4:2], [0:3], [1:4]}", ""),
    "pad": ("f32[4,3,5]", "f32[] constant(1)", "f32[8,3,4]", "pad(p, k), padding=1_0_1x0_0x-1_0", ""),
    "concatenate": ("f32[2,3,4]", "f32[2,1,4] constant({{{1,2,3,4}},{{5,6,7,8}}})", "f32[2,4,4]",
                    "concatenate(p, k), dimensions={1}", ""),
    "dynamic-slice": ("f32[4,3,5]", "s32[] constant(1)", "f32[2,3,2]",
                      "dynamic-slice(p, k, k, k), dynamic_slice_sizes={2,3,2}", ""),
    "iota": ("f32[2]", "s32[] constant(1)", "s32[3,4,5]", "iota(), iota_dimension=1", ""),
    "reduce-window": ("s32[4,3,5]", "s32[] constant(1)", "s32[4,2,3]",
                      "reduce-window(p, k), window={size=1x2x3}, to_apply=sum", INTEGER),
    "sort": ("s32[4,3,5]", "s32[] constant(1)", "s32[4,3,5]",
             "sort(p), dimensions={1}, is_stable=true, to_apply=less",
             ("less { x = s32[] parameter(0) y = s32[] parameter(1) "
             "ROOT z = pred[] compare(x, y), direction=LT }\n")),
    "gather": ("f32[5,4,6]", "s32[3,2] constant({{0,1},{4,3},{2,0}})", "f32[2,3,6]",
               ("gather(p, k), offset_dims={0,2}, collapsed_slice_dims={1}, start_index_map={0,1}, "
               "index_vector_dim=1, slice_sizes={2,1,6}"), ""),
    "gather by rows": ("f32[5,4,6]", "s32[3,2] constant({{0,1},{4,3},{2,0}})", "f32[3,2,4]",
                       ("gather(p, k), offset_dims={2}, collapsed_slice_dims={0,2}, "
                       "start_index_map={2}, index_vector_dim=2, slice_sizes={1,4,1}"), ""),
    "reshape": ("f32[4,3,6]", "f32[] constant(1)", "f32[2,2,9,2]", "reshape(p)", ""),
    "split": ("f32[4,3,6]", "f32[] constant(1)", "f32[2,2,3,1,6]", "reshape(p)", ""),
    "reduce to a scalar": ("s32[2,3]", "s32[] constant(1)", "s32[]",
                           "reduce(p, k), dimensions={0,1}, to_apply=sum", INTEGER),
    "empty": ("f32[0,3,4]", "f32[] constant(1)", "f32[3,0]", "reshape(p)", ""),
    "select-and-scatter": ("s32[4,4]", "s32[2,2] constant({{1,2},{3,4}})", "s32[4,4]",
                           ("select-and-scatter(p, k, z), window={size=2x2 stride=2x2}, select=ge, "
                           "scatter=sum"),
                           INTEGER + "ge { x = s32[] parameter(0) y = s32[] parameter(1) "
                           "ROOT z = pred[] compare(x, y), direction=GE }\n"),
}  # fmt: skip


@pytest.mark.every_value
@pytest.mark.parametrize("turn", range(6))
@pytest.mark.parametrize("name", OPS)
def test_each_op_under_any_layout(name: str, turn: int) -> None:
    """Operands and results in several layouts: the op works on dimensions with other numbers, bits stay."""
    operand, constant, result, op, region = OPS[name]
    chooser = random.Random(turn)

    def laid(text: str) -> str:
        rank = text.count(",") + 1 if "[]" not in text else 0
        order = list(range(rank))
        chooser.shuffle(order)
        return f"{text}{{{','.join(map(str, order))}}}" if rank else text

    element = operand.split("[")[0]
    text = (
        f"HloModule m\n{region}ENTRY e {{\n  q = {operand} parameter(0)\n"
        f"  p = {laid(operand)} copy(q)\n  k = {constant}\n  z = {element}[] constant(3)\n"
        f"  r = {laid(result)} {op}\n  ROOT t = {result} copy(r)\n}}\n"
    )
    module = hloopt.parse(text)
    normalized(text, changes=any(not descends(entry.shape) for entry in module.entry))


@pytest.mark.parametrize("turn", range(6))
def test_scatter_applies_updates_in_their_order(turn: int) -> None:
    """Several updates of one place, in a region where order counts, whatever the layouts."""
    chooser = random.Random(turn)

    def layout(rank: int) -> str:
        order = list(range(rank))
        chooser.shuffle(order)
        return f"{{{','.join(map(str, order))}}}"

    text = f"""HloModule m
take {{ x = f32[] parameter(0) y = f32[] parameter(1) h = f32[] constant(0.5)
  m = f32[] multiply(x, h) ROOT z = f32[] add(m, y) }}
ENTRY e {{
  a = f32[4,5,3] parameter(0)
  b = f32[2,3,3,2] parameter(1)
  p = f32[4,5,3]{layout(3)} copy(a)
  u = f32[2,3,3,2]{layout(4)} copy(b)
  i = s32[2,2,2] constant({{{{{{0,1}},{{0,1}}}},{{{{0,1}},{{2,0}}}}}})
  j = s32[2,2,2]{layout(3)} copy(i)
  r = f32[4,5,3]{layout(3)} scatter(p, j, u), update_window_dims={{1,2}}, inserted_window_dims={{0}},
    scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=2, to_apply=take
  ROOT t = f32[4,5,3] copy(r)
}}
"""
    normalized(text)


@pytest.mark.parametrize("turn", range(6))
def test_products_keep_their_numbers_within_rounding(turn: int) -> None:
    """Dots and convolutions of permuted arrays are the same products."""
    chooser = random.Random(turn)

    def layout(rank: int) -> str:
        order = list(range(rank))
        chooser.shuffle(order)
        return f"{{{','.join(map(str, order))}}}"

    text = f"""HloModule m
ENTRY e {{
  a = f32[2,3,4,5] parameter(0)
  b = f32[5,2,6,3] parameter(1)
  c = f32[3,7,5,5] parameter(2)
  k = f32[3,3,2,4] parameter(3)
  p = f32[2,3,4,5]{layout(4)} copy(a)
  q = f32[5,2,6,3]{layout(4)} copy(b)
  d = f32[3,2,4,6]{layout(4)} dot(p, q), lhs_batch_dims={{1,0}}, rhs_batch_dims={{3,1}},
    lhs_contracting_dims={{3}}, rhs_contracting_dims={{0}}
  e = f32[3,2,4,6] copy(d)
  x = f32[3,7,5,5]{layout(4)} copy(c)
  w = f32[3,3,2,4]{layout(4)} copy(k)
  v = f32[7,3,4,3]{layout(4)} convolution(x, w), window={{size=3x2 stride=1x2 pad=0_0x1_0}},
    dim_labels=fb01_0i1o->b0f1
  y = f32[7,3,4,3] copy(v)
  ROOT t = (f32[3,2,4,6], f32[7,3,4,3]) tuple(e, y)
}}
"""
    normalized(text, rtol=1e-5)


def test_a_transpose_that_moves_nothing_goes() -> None:
    """Where layouts say that the bytes stay, no transpose is left; where they differ, one is."""
    module = normalized(LayoutNormalization.example)
    assert opcodes(module) == ["parameter", "parameter", "transpose", "add", "transpose"]
    (turned,) = (
        entry for entry in module.entry if entry.opcode == "transpose" and not entry.is_root
    )
    assert turned.name == "s"
    assert str(turned.shape) == "f32[2,3]{1,0}"
    assert str(module.entry.root.shape) == "f32[3,2]{0,1}"


def test_a_module_without_other_layouts_stays() -> None:
    """Descending layouts, written or not, are left alone."""
    text = "HloModule m\nENTRY e { p = f32[2,3]{1,0} parameter(0) ROOT t = f32[3,2] transpose(p), dimensions={1,0} }"
    normalized(text, changes=False)


def test_the_signature_of_the_entry_stays() -> None:
    """Parameters and results keep their layouts, with transposes of the same bytes at the border."""
    text = """HloModule m, entry_computation_layout={(f32[2,3]{0,1})->(f32[2,3]{0,1}, f32[3])}
ENTRY e {
  p = f32[2,3]{0,1} parameter(0)
  n = f32[2,3]{0,1} negate(p)
  s = f32[1,3]{0,1} slice(n), slice={[1:2], [0:3]}
  v = f32[3] reshape(s)
  ROOT t = (f32[2,3]{0,1}, f32[3]) tuple(n, v)
}
"""
    module = normalized(text)
    assert str(module.entry.parameters[0].shape) == "f32[2,3]{0,1}"
    assert str(module.entry.root.shape) == "(f32[2,3]{0,1}, f32[3])"
    assert opcodes(module) == [
        "parameter", "transpose", "negate", "slice", "reshape", "transpose", "tuple",
    ]  # fmt: skip
    assert "entry_computation_layout={(f32[2,3]{0,1})->(f32[2,3]{0,1}, f32[3])}" in module.to_text()


BITCASTS = [
    ("f32[2,3]{0,1}", "f32[3,2]{1,0}"),
    ("f32[2,3]{1,0}", "f32[2,3]{0,1}"),
    ("f32[2,3]{0,1}", "u32[6]"),
    ("f32[4,3]{0,1}", "u8[3,16]{1,0}"),
    ("u8[8,2]{0,1}", "f32[2,2]{0,1}"),
    ("u8[8,2]{1,0}", "bf16[8]"),
    ("s4[4,2]{0,1}", "s8[4]"),
    ("c64[2,3]{0,1}", "f32[12]"),
    ("f32[]", "u32[1,1]{0,1}"),
]


@pytest.mark.parametrize(("source", "target"), BITCASTS)
def test_bitcasts_become_reshapes_of_descending_arrays(source: str, target: str) -> None:
    """A bitcast reads bytes in the order of the layouts; afterwards only descending arrays are read."""
    plain = source.split("{", maxsplit=1)[0]
    text = f"""HloModule m
ENTRY e {{
  p = {plain} parameter(0)
  x = {source} copy(p)
  b = {target} bitcast(x)
  ROOT r = {target.split("{", maxsplit=1)[0]} copy(b)
}}
"""
    module = normalized(text)
    if not source.startswith("c64"):
        assert "bitcast" not in opcodes(module)


def test_custom_calls_keep_their_layouts() -> None:
    """Operands and results of a custom call stay as it wants them; around it arrays are descending."""
    text = """HloModule m
ENTRY e {
  p = f32[3,2] parameter(0)
  x = f32[3,2]{0,1} copy(p)
  y = f32[3,2]{0,1} negate(x)
  c = (f32[3,2]{0,1}, s32[3]) custom-call(y), custom_call_target="somebody",
    operand_layout_constraints={f32[3,2]{0,1}}
  d = f32[3,2]{0,1} get-tuple-element(c), index=0
  e = f32[3,2]{0,1} custom-call(d), custom_call_target="another"
  f = f32[3,2]{0,1} abs(e)
  ROOT g = f32[3,2] copy(f)
}
"""
    module = hloopt.parse(text)
    assert LayoutNormalization().run(module, PassLog())
    hloopt.verify(module)
    assert [entry.opcode for entry in module.entry if not descends(entry.shape)] == [
        "transpose", "custom-call", "get-tuple-element", "custom-call",
    ]  # fmt: skip
    second = module.to_text()
    assert not LayoutNormalization().run(module, PassLog())
    assert module.to_text() == second


def test_dimensions_of_a_sharded_module_keep_their_numbers() -> None:
    """A sharding names dimensions: there arrays become descending in their logical dimensions."""
    text = """HloModule m
ENTRY e {
  p = f32[2,4] parameter(0)
  x = f32[2,4]{0,1} copy(p)
  y = f32[2,4]{0,1} negate(x), sharding={devices=[1,2]<=[2]}
  ROOT z = f32[2,4] copy(y)
}
"""
    module = hloopt.parse(text)
    assert LayoutNormalization().run(module, PassLog())
    assert str(module.entry.by_name["y"].shape) == "f32[2,4]{1,0}"
    assert "sharding" in module.entry.by_name["y"].attributes


def test_memory_spaces_and_tiles_stay_with_the_bytes() -> None:
    """What a layout says beside its order is about the bytes, whose order does not change."""
    text = """HloModule m
ENTRY e {
  p = f32[2,4] parameter(0)
  x = f32[2,4]{0,1:S(1)} copy(p)
  y = f32[2,4]{0,1:S(1)} negate(x)
  ROOT z = f32[2,4] copy(y)
}
"""
    module = normalized(text)
    assert str(module.entry.by_name["y"].shape) == "f32[4,2]{1,0:S(1)}"


def test_fuel_is_for_the_whole_module() -> None:
    """Without fuel nothing changes."""
    module = hloopt.parse(LayoutNormalization.example)
    assert not LayoutNormalization().run(module, PassLog(fuel=0))


@pytest.mark.parametrize("seed", range(200))
def test_regrouped_orders_leave_the_bytes_where_they_are(seed: int) -> None:
    """Reading the operand's bytes as the result in the order found gives the reshaped array."""
    chooser = random.Random(seed)
    dims = [chooser.choice((1, 2, 3, 4)) for _ in range(chooser.randint(1, 4))]
    parts = [factor for size in dims for factor in ((2, 2) if size == 4 else (size,))]
    after: list[int] = []
    for factor in parts:
        if after and chooser.random() < 0.5:
            after[-1] *= factor
        else:
            after.append(factor)
    order = list(range(len(dims)))
    chooser.shuffle(order)
    declared = tuple(range(len(after)))
    found = regrouped(tuple(dims), tuple(after), tuple(order), declared)
    if found is None:
        return
    array = np.arange(int(np.prod(dims))).reshape(dims)
    kept = array.transpose(order).reshape(-1)
    assert np.array_equal(array.reshape(after).transpose(found).reshape(-1), kept)


def test_what_an_asynchronous_call_wraps_stays() -> None:
    """Its body is one op: neither it nor what it calls changes its signature."""
    text = """HloModule m
inner { x = f32[2,3]{0,1} parameter(0) ROOT y = f32[2,3]{0,1} negate(x) }
body { x = f32[2,3]{0,1} parameter(0) ROOT y = f32[2,3]{0,1} call(x), to_apply=inner }
ENTRY e {
  p = f32[2,3]{1,0} parameter(0)
  x = f32[2,3]{0,1} copy(p)
  n = f32[2,3]{0,1} abs(x)
  s = ((f32[2,3]{0,1}), f32[2,3]{0,1}, u32[]) async-start(n), calls=body
  d = f32[2,3]{0,1} async-done(s)
  ROOT r = f32[2,3]{1,0} copy(d)
}
"""
    module, _ = proof.check(text, LayoutNormalization())
    assert [entry.opcode for entry in module.computations["body"]] == ["parameter", "call"]
    assert str(module.entry.by_name["n"].shape) == "f32[3,2]{1,0}"


def test_start_indices_in_one_array_are_left_in_it() -> None:
    """The older form of dynamic-slice: the operand becomes descending in its own dimensions."""
    text = """HloModule m
ENTRY e {
  p = f32[4,6]{1,0} parameter(0)
  i = s32[2]{0} parameter(1)
  x = f32[4,6]{0,1} copy(p)
  d = f32[2,3]{0,1} dynamic-slice(x, i), dynamic_slice_sizes={2,3}
  ROOT r = f32[2,3]{1,0} copy(d)
}
"""
    module = hloopt.parse(text)
    hloopt.verify(module)
    assert LayoutNormalization().run(module, PassLog())
    hloopt.verify(module)
    assert str(module.entry.by_name["d"].shape) == "f32[2,3]{1,0}"


@pytest.mark.parametrize("sharding", ["{devices=[2,1]0,1}", "{replicated}"])
def test_what_a_bitcast_becomes_has_its_sharding(sharding: str) -> None:
    """Also where it is of one shape with its operand."""
    body = (
        "x = f32[6]{0} parameter(0)\n y = f32[6]{0} negate(x)\n"
        f"ROOT r = f32[3,2]{{1,0}} bitcast(y), sharding={sharding}"
    )
    better, _ = proof.check(f"HloModule m\nENTRY e {{\n{body}\n}}\n", LayoutNormalization())
    assert better.entry.root.opcode == "reshape"
    assert str(better.entry.root.attributes["sharding"]) == sharding


TURNED = """HloModule m

body {
  s = (s32[], f32[2,3]{0,1}, f32[4,2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[2,3]{0,1} get-tuple-element(s), index=1
  y = f32[2,3]{0,1} cosine(x)
  first = f32[2,1]{0,1} slice(y), slice={[0:2], [0:1]}
  row = f32[1,2] reshape(first)
  rows = f32[4,2] get-tuple-element(s), index=2
  zero = s32[] constant(0)
  put = f32[4,2] dynamic-update-slice(rows, row, i, zero)
  ROOT r = (s32[], f32[2,3]{0,1}, f32[4,2]) tuple(next, y, put)
}

condition {
  s = (s32[], f32[2,3]{0,1}, f32[4,2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  most = s32[] constant(4)
  ROOT c = pred[] compare(i, most), direction=LT
}

ENTRY main {
  x = f32[2,3] parameter(0)
  turned = f32[2,3]{0,1} copy(x)
  rows = f32[4,2] parameter(1)
  zero = s32[] constant(0)
  init = (s32[], f32[2,3]{0,1}, f32[4,2]) tuple(zero, turned, rows)
  loop = (s32[], f32[2,3]{0,1}, f32[4,2]) while(init), condition=condition, body=body
  ROOT r = f32[4,2] get-tuple-element(loop), index=2
}
"""


def test_what_a_body_makes_of_a_state_stays_in_sight() -> None:
    """One element in another layout puts no tuple between the others and what computes them."""
    module = normalized(TURNED)
    (loop,) = (one for one in module.entry if one.opcode == "while")
    root = loop.attributes["body"].root
    assert root.opcode == "tuple"
    assert [root.operands[number].opcode for number in (0, 2)] == ["add", "dynamic-update-slice"]
    state = loop.operands[0]
    assert not any(one.opcode == "get-tuple-element" for one in state.operands)
