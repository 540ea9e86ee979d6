"""hloopt.equivalent: what it proves, what it refutes, and that it never proves what differs."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import hloopt
from hloopt.errors import DeviceError, UsageError
from hloopt.ir import Module
from hloopt.prover.equivalence import by_elements

SUM = "add { a = $T[] parameter(0) b = $T[] parameter(1) ROOT c = $T[] add(a, b) }\n"
MAX = "max { a = $T[] parameter(0) b = $T[] parameter(1) ROOT c = $T[] maximum(a, b) }\n"


def read(body: str, name: str = "m", regions: str = "") -> Module:
    return hloopt.parse(f"HloModule {name}\n{regions}ENTRY e {{\n{body}\n}}\n", name)


def of(kind: str, before: str, after: str) -> tuple[Module, Module]:
    """Two modules that read x, y and z of six elements, w of a pred, k and s of scalars."""
    found = []
    for name, body in (("a", before), ("b", after)):
        head = "\n".join(
            f"{parameter} = {shape} parameter({number})"
            for number, (parameter, shape) in enumerate(
                (("x", "$T[6]"), ("y", "$T[6]"), ("z", "$T[6]"), ("w", "pred[6]"), ("k", "s32[]"))
            )
        )
        regions = (SUM if "add," in body or "=add" in body else "") + (
            MAX if "=max" in body else ""
        )
        text = f"{head}\n{body}".replace("$T", kind)
        found.append(read(text, name, regions.replace("$T", kind)))
    return found[0], found[1]


EQUAL = [
    ("s32", "ROOT r = $T[6] add(x, y)", "ROOT r = $T[6] add(y, x)"),
    ("f32", "ROOT r = $T[6] multiply(x, y)", "n = $T[6] negate(x)\nm = $T[6] negate(y)\nROOT r = $T[6] multiply(n, m)"),
    ("u8", "a = $T[6] xor(x, y)\nROOT r = $T[6] xor(a, y)", "ROOT r = $T[6] copy(x)"),
    ("s8", "a = $T[6] and(x, y)\nb = $T[6] or(x, y)\nROOT r = $T[6] add(a, b)", "ROOT r = $T[6] add(x, y)"),
    ("u32", "a = $T[6] add(x, y)\nb = $T[6] add(x, z)\nROOT r = $T[6] subtract(a, b)", "ROOT r = $T[6] subtract(y, z)"),
    ("f16", "c = pred[6] compare(x, y), direction=LT\nROOT r = $T[6] select(c, y, x)",
     "c = pred[6] compare(y, x), direction=GT\nROOT r = $T[6] select(c, y, x)"),
    ("bf16", "a = $T[6] negate(x)\nROOT r = $T[6] abs(a)", "ROOT r = $T[6] abs(x)"),
    ("f32", "a = $T[6] exponential(x)\nb = $T[6] select(w, a, y)\nROOT r = $T[6] reverse(b), dimensions={0}",
     ("u = $T[6] reverse(x), dimensions={0}\na = $T[6] exponential(u)\nv = pred[6] reverse(w), dimensions={0}\n"
     "y1 = $T[6] reverse(y), dimensions={0}\nROOT r = $T[6] select(v, a, y1)")),
    ("s32", "ROOT r = $T[2] dynamic-slice(x, k), dynamic_slice_sizes={2}",
     ("i = s32[1] reshape(k)\nROOT r = $T[2] gather(x, i), offset_dims={0}, collapsed_slice_dims={}, "
     "start_index_map={0}, index_vector_dim=0, slice_sizes={2}")),
    ("s32", ("a = $T[2,3] reshape(x)\nb = $T[2,3] reshape(y)\n"
     "ROOT r = $T[2,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
     ("a = $T[2,3] reshape(x)\nb = $T[2,3] reshape(y)\nc = $T[2,2] dot(b, a), lhs_contracting_dims={1}, "
     "rhs_contracting_dims={1}\nROOT r = $T[2,2] transpose(c), dimensions={1,0}")),
]  # fmt: skip

DIFFERENT = [
    ("s32", "ROOT r = $T[6] add(x, y)", "ROOT r = $T[6] subtract(x, y)"),
    ("s32", "ROOT r = $T[6] abs(x)", "z0 = $T[6] negate(x)\nROOT r = $T[6] maximum(x, y)"),
    ("f32", "a = $T[6] add(x, y)\nROOT r = $T[6] add(a, z)", "a = $T[6] add(y, z)\nROOT r = $T[6] add(x, a)"),
    ("f32", "ROOT r = $T[6] subtract(x, x)", "ROOT r = $T[6] subtract(y, y)"),
    ("f32", "a = $T[6] subtract(x, y)\nROOT r = $T[6] negate(a)", "ROOT r = $T[6] subtract(y, x)"),
    ("f32", "c = $T[] constant(0)\nb = $T[6] broadcast(c), dimensions={}\nROOT r = $T[6] add(x, b)", "ROOT r = $T[6] copy(x)"),
    ("bf16", "a = $T[6] sqrt(x)\nROOT r = $T[6] multiply(a, a)", "ROOT r = $T[6] abs(x)"),
    ("f32", "c = $T[] constant(3)\nb = $T[6] broadcast(c), dimensions={}\nROOT r = $T[6] divide(x, b)",
     "c = $T[] constant(0.333333343)\nb = $T[6] broadcast(c), dimensions={}\nROOT r = $T[6] multiply(x, b)"),
    ("f32", "c = pred[6] compare(x, y), direction=LT\nROOT r = pred[6] not(c)", "ROOT r = pred[6] compare(x, y), direction=GE"),
    ("f32", "c = pred[6] compare(x, y), direction=LT\nROOT r = $T[6] select(c, y, x)", "ROOT r = $T[6] maximum(x, y)"),
    ("s8", "c = $T[] constant(4)\nb = $T[6] broadcast(c), dimensions={}\nROOT r = $T[6] divide(x, b)",
     "c = $T[] constant(2)\nb = $T[6] broadcast(c), dimensions={}\nROOT r = $T[6] shift-right-arithmetic(x, b)"),
    ("s32", "a = $T[6] multiply(x, y)\nROOT r = $T[6] divide(a, y)", "ROOT r = $T[6] copy(x)"),
    ("s32", "a = pred[6] compare(x, y), direction=LT\nROOT r = pred[6] copy(a)",
     ("d = $T[6] subtract(x, y)\nc = $T[] constant(0)\nb = $T[6] broadcast(c), dimensions={}\n"
     "ROOT r = pred[6] compare(d, b), direction=LT")),
    ("s32", "ROOT r = $T[2] dynamic-slice(x, k), dynamic_slice_sizes={2}",
     "o = s32[] constant(1)\ni = s32[] add(k, o)\nROOT r = $T[2] dynamic-slice(x, i), dynamic_slice_sizes={2}"),
    ("f32", "ROOT r = $T[6] reverse(x), dimensions={0}", "ROOT r = $T[6] copy(x)"),
    ("u8", "a = s32[6] convert(x)\nb = s32[6] convert(y)\nROOT r = s32[6] add(a, b)",
     "a = $T[6] add(x, y)\nROOT r = s32[6] convert(a)"),
    ("f32", "a = f16[6] convert(x)\nROOT r = $T[6] convert(a)", "ROOT r = $T[6] copy(x)"),
    ("f32", "a = s32[6] convert(x)\nROOT r = $T[6] convert(a)", "ROOT r = $T[6] floor(x)"),
    ("s32", "c = $T[] constant(0)\nROOT r = $T[] reduce(x, c), dimensions={0}, to_apply=add",
     "c = $T[] constant(1)\nROOT r = $T[] reduce(x, c), dimensions={0}, to_apply=add"),
    ("f32", "c = $T[] constant(-inf)\nROOT r = $T[] reduce(x, c), dimensions={0}, to_apply=max",
     "c = $T[] constant(0)\nROOT r = $T[] reduce(x, c), dimensions={0}, to_apply=max"),
    ("f32", "ROOT r = $T[6] exponential(x)", "ROOT r = $T[6] exponential-minus-one(x)"),
    ("f32", "a = $T[6] exponential(x)\nb = $T[6] exponential(y)\nROOT r = $T[6] multiply(a, b)",
     "a = $T[6] add(x, y)\nROOT r = $T[6] exponential(a)"),
    ("f32", "ROOT r = $T[6] remainder(x, y)", ("d = $T[6] divide(x, y)\nf = $T[6] floor(d)\nm = $T[6] multiply(f, y)\n"
     "ROOT r = $T[6] subtract(x, m)")),
    ("f32", "ROOT r = $T[6] clamp(x, y, z)", "ROOT r = $T[6] clamp(z, y, x)"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "before", "after"), EQUAL)
def test_equal_modules_are_proved(kind: str, before: str, after: str) -> None:
    """By whatever it takes."""
    pytest.importorskip("z3")
    assert hloopt.equivalent(*of(kind, before, after)).verdict == "proved"


@pytest.mark.parametrize(("kind", "before", "after"), DIFFERENT)
def test_different_modules_are_refuted(kind: str, before: str, after: str) -> None:
    """With inputs for which the interpreter gives different bits."""
    pytest.importorskip("z3")
    modules = of(kind, before, after)
    answer = hloopt.equivalent(*modules)
    assert answer.verdict == "refuted"
    found = answer.counterexample
    assert found is not None
    arrays = list(found.arrays().values())
    values = [hloopt.evaluate(module, arrays)[found.output][found.index] for module in modules]
    assert [value.tobytes() for value in values] == [value.tobytes() for value in found.values]
    assert values[0].tobytes() != values[1].tobytes()


def test_a_difference_at_one_value_is_found() -> None:
    """Of 2^32 inputs one: z3 finds what trials do not."""
    pytest.importorskip("z3")
    changed = (
        "c = $T[] constant(123456789)\nb = $T[6] broadcast(c), dimensions={}\n"
        "e = pred[6] compare(x, b), direction=EQ\no = $T[] constant(1)\nq = $T[6] broadcast(o), dimensions={}\n"
        "a = $T[6] add(x, q)\nROOT r = $T[6] select(e, a, x)"
    )
    answer = hloopt.equivalent(*of("s32", "ROOT r = $T[6] copy(x)", changed))
    assert (answer.verdict, answer.how) == ("refuted", "on inputs that z3 found")
    assert answer.counterexample is not None
    assert 123456789 in answer.counterexample.arrays()["in_0"]


def test_a_loop_is_its_iterations() -> None:
    """A while whose trip count is known is what its body does so often; conditionals are choices."""
    loop = (
        "cond { p = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(3)"
        " ROOT r = pred[] compare(i, n), direction=LT }\n"
        "body { p = (s32[], s32[]) parameter(0) i = s32[] get-tuple-element(p), index=0"
        " v = s32[] get-tuple-element(p), index=1 o = s32[] constant(1) j = s32[] add(i, o)"
        " w = s32[] add(v, v) ROOT r = (s32[], s32[]) tuple(j, w) }\n"
    )
    before = read(
        "x = s32[] parameter(0)\nz = s32[] constant(0)\nt = (s32[], s32[]) tuple(z, x)\n"
        "w = (s32[], s32[]) while(t), condition=cond, body=body\n"
        "ROOT r = s32[] get-tuple-element(w), index=1",
        regions=loop,
    )
    after = read("x = s32[] parameter(0)\nc = s32[] constant(8)\nROOT r = s32[] multiply(x, c)")
    pytest.importorskip("z3")
    assert hloopt.equivalent(before, after).verdict == "proved"


def test_a_sum_that_differs_is_never_proved() -> None:
    """Here only where all terms are -0: too rare for trials, and z3 knows nothing of sums of floats."""
    pytest.importorskip("z3")
    text = (
        "c = $T[] constant({})\nROOT r = $T[] reduce(x, c), dimensions={{0}}, to_apply=add".format
    )
    answer = hloopt.equivalent(*of("f32", text("0"), text("-0.0")))
    assert answer.verdict == "not known"
    assert (
        answer.reason
        == "a proof would need rules about functions or sums of floats that are not known here"
    )


LOOP = """
cond { p = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(9) ROOT r = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(p), index=0
 v = f32[4] get-tuple-element(p), index=1 o = s32[] constant(1) j = s32[] add(i, o)
 w = f32[4] BODY ROOT r = (s32[], f32[4]) tuple(j, w) }
"""


def loop(body: str) -> Module:
    """A while of an unknown number of iterations."""
    return read(
        "k = s32[] parameter(0)\nx = f32[4] parameter(1)\nt = (s32[], f32[4]) tuple(k, x)\n"
        "w = (s32[], f32[4]) while(t), condition=cond, body=body\n"
        "ROOT r = f32[4] get-tuple-element(w), index=1",
        regions=LOOP.replace("BODY", body),
    )


def test_a_loop_is_what_an_iteration_does() -> None:
    """Where nobody knows how many there are; bodies that are the same elements make the same loop."""
    left = loop("add(v, v)\n q = f32[2,2] reshape(w)\n u = f32[4] reshape(q)")
    right = loop("add(v, v)")
    assert by_elements(left, right).verdict == "proved"
    assert hloopt.equivalent(right, loop("multiply(v, v)")).verdict == "refuted"


def test_an_unknown_op_in_a_region_is_one_for_each_element() -> None:
    """A loop inside of the region of a map differs from element to element."""
    region = LOOP.replace("f32[4]", "f32[]").replace("BODY", "add(v, v)") + (
        "f { k = s32[] parameter(0) x = f32[] parameter(1) t = (s32[], f32[]) tuple(k, x)"
        " w = (s32[], f32[]) while(t), condition=cond, body=body"
        " ROOT r = f32[] get-tuple-element(w), index=1 }\n"
    )
    head = "k = s32[4] parameter(0)\nx = f32[4] parameter(1)\n"
    mapped = "m = f32[4] map(k, x), dimensions={0}, to_apply=f\n"
    first = read(f"{head}{mapped}ROOT r = f32[1] slice(m), slice={{[0:1]}}", regions=region)
    last = read(f"{head}{mapped}ROOT r = f32[1] slice(m), slice={{[3:4]}}", regions=region)
    assert by_elements(first, first).verdict == "proved"
    assert hloopt.equivalent(first, last).verdict == "refuted"


def test_what_is_not_known_says_why() -> None:
    """An effect with its line; values that a text leaves out; a function of which too little is known."""
    drawn = "l = f32[] constant(0)\nh = f32[] constant(1)\n"
    rng = "ROOT r = f32[6] rng(l, h), distribution=rng_uniform"
    answer = hloopt.equivalent(
        read(drawn + rng, "one"),
        read(f"h0 = f32[] constant(2)\n{drawn}{rng}".replace("(l, h)", "(l, h0)"), "two"),
    )
    assert answer.verdict == "not known"
    assert answer.reason == "one:5:6: r: has an effect beside its result"
    left_out = "c = f32[4] constant({...})\nROOT r = f32[4] negate(c)"
    answer = hloopt.equivalent(read(left_out), read(left_out))
    assert (answer.verdict, answer.reason) == (
        "not known",
        "m:3:1: the text leaves out the value of c",
    )
    assert answer.to_json() == {"verdict": "not known", "reason": answer.reason}


def test_without_z3_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What rewriting and inputs decide needs no z3."""
    monkeypatch.setitem(sys.modules, "z3", None)
    for name in ("solving", "meaning"):
        monkeypatch.delitem(sys.modules, f"hloopt.prover.equivalence.{name}", raising=False)
    assert hloopt.equivalent(*of(*EQUAL[0])).verdict == "proved"
    assert hloopt.equivalent(*of(*DIFFERENT[0])).verdict == "refuted"
    hard = of("s8", *EQUAL[3][1:])
    with pytest.raises(DeviceError, match=r"z3, which is not installed: pip install .*prove"):
        hloopt.equivalent(*hard)


def test_modules_of_other_shapes_are_not_compared() -> None:
    """There is nothing to prove."""
    one, other = read("ROOT x = f32[4] parameter(0)"), read("ROOT x = f32[5] parameter(0)")
    with pytest.raises(
        UsageError, match="parameter 0 of the first module and the second module is not the same"
    ):
        hloopt.equivalent(one, other)


def test_zeros_have_signs_and_nan_have_not() -> None:
    """0 and -0 are different values; a NaN is any other."""
    zero = "ROOT r = f32[] constant({})".format
    assert hloopt.equivalent(read(zero("0")), read(zero("-0"))).verdict == "refuted"
    answer = hloopt.equivalent(read(zero("0")), read(zero("-0")))
    assert answer.counterexample is not None
    assert answer.counterexample.rounding
    assert np.signbit(answer.counterexample.values[1])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = c64[2] parameter(0)\ny = c128[2] convert(x)\nROOT r = f64[2] imag(y)",
         "x = c64[2] parameter(0)\nz = f64[] constant(0)\nROOT r = f64[2] broadcast(z), dimensions={}"),
        *(
            (f"x = {narrow}[2] parameter(0)\ny = {wide}[2] convert(x)\nROOT r = f32[2] convert(y)",
             f"x = {narrow}[2] parameter(0)\nROOT r = f32[2] convert(x)")
            for narrow, wide in (("f8e5m2", "f8e5m2fnuz"), ("f8e4m3", "f8e4m3fn"), ("f4e2m1fn", "f8e4m3fnuz"))
        ),
        (("x = f32[2] parameter(0)\nn = f32[2] negate(x)\na = s32[2] bitcast-convert(x)\n"
          "b = s32[2] bitcast-convert(n)\nROOT r = pred[2] compare(a, b), direction=EQ"),
         "x = f32[2] parameter(0)\nROOT r = pred[2] compare(x, x), direction=NE"),
        ("a = f32[2] parameter(0)\nROOT r = f32[] dot(a, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
         ("a = f32[2] parameter(0)\nROOT r = f32[] dot(a, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}, "
          "algorithm=dot_bf16_bf16_f32")),
    ],
)  # fmt: skip
def test_what_only_seems_to_be_the_same_is_not_proved(before: str, after: str) -> None:
    """Imaginary parts, zeros and infinities that a type lacks, the sign of a NaN, how a dot rounds."""
    pytest.importorskip("z3")
    assert by_elements(read(before), read(after)).verdict != "proved"


def test_a_collective_depends_on_other_participants() -> None:
    """Where this one's operand is the same, another's may not be."""
    pytest.importorskip("z3")
    head = (
        "x = f32[] parameter(0)\ni = u32[] partition-id()\nz = u32[] constant(0)\n"
        "p = pred[] compare(i, z), direction=EQ\nf = f32[] constant(0)\n"
    )
    chosen = "s = f32[] select(p, x, f)\n"
    bodies = [
        f"{head}{first}g = f32[] all-reduce({operand}), replica_groups={{{{0,1}}}}, channel_id=1, "
        "use_global_device_ids=true, to_apply=add\nROOT r = f32[] select(p, g, f)"
        for first, operand in (("", "x"), (chosen, "s"))
    ]
    modules = [read(body, "m, num_partitions=2", SUM.replace("$T", "f32")) for body in bodies]
    assert by_elements(*modules).verdict == "not known"
