"""What golden texts cannot show of the passes: results, linear time, options."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.ir.build import clone_module
from hloopt.ir.canonical import fingerprint
from hloopt.passes.call_inliner import CallInliner
from hloopt.passes.constant_folding import ConstantFolding
from hloopt.passes.cse import CommonSubexpressionElimination
from hloopt.passes.dce import DeadCodeElimination
from hloopt.pipelines import PASSES, PIPELINES, optimize_module, parse_pipeline
from hloopt.rewrite import Pass, PassLog
from hloopt.simplify.data_movement import unmodified_dimensions
from hloopt.simplify.rules.convert import is_lossless
from hloopt.types import DTYPES, DType
from tests.helpers.rarely import examples
from tests.helpers.support import count_calls


def read(body: str) -> Module:
    return hloopt.parse(f"HloModule m\nENTRY e {{\n{body}\n}}\n")


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two lists of dimensions with the same product."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=6))

    def grouped() -> tuple[int, ...]:
        cuts = draw(st.lists(st.booleans(), min_size=len(factors), max_size=len(factors)))
        dims = [1]
        for factor, cut in zip(factors, cuts, strict=True):
            if cut:
                dims.append(factor)
            else:
                dims[-1] *= factor
        return tuple(dims)

    return grouped(), grouped()


@given(reshapes())
def test_unmodified_dimensions_keep_their_index(
    dims: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    """Where a reshape is said to leave a dimension alone, every element keeps its index there."""
    before, after = dims
    for old, new in unmodified_dimensions(before, after).items():
        index = np.indices(before)[old].reshape(after)
        assert np.array_equal(index, np.indices(after)[new])


NARROW = [row for row in DTYPES.values() if row.is_array and not row.is_complex and row.bits <= 16]


@pytest.mark.parametrize("source", NARROW, ids=lambda row: row.name)
def test_lossless_conversions_keep_every_value(source: DType) -> None:
    """Every value of a type of at most 16 bits survives the way there and back, sign of zero too."""
    if source.is_float:
        codes = np.arange(1 << source.bits, dtype=np.uint16 if source.bits > 8 else np.uint8)
        values = codes.view(source.numpy)
    else:
        bits = 1 if source.is_pred else source.bits
        low = -(1 << (bits - 1)) if source.kind == "signed" else 0
        values = np.arange(low, low + (1 << bits)).astype(source.numpy)
    assert len({value.tobytes() for value in values}) == len(values)
    exact = np.float64 if source.is_float else np.int64
    for target in (row for row in DTYPES.values() if is_lossless(source, row)):
        with np.errstate(all="ignore"):
            wide = values.astype(exact)
            middle = wide.astype(target.numpy).astype(np.float64 if target.is_float else np.int64)
            back = middle.astype(source.numpy).astype(exact)
        same = (wide == back) & (np.signbit(wide) == np.signbit(back))
        assert np.all(same | (np.isnan(wide) & np.isnan(back))), target.name


def test_some_conversions_lose_values() -> None:
    """What the rule must not take for lossless."""
    lossy = [
        "f32 bf16",
        "f16 bf16",
        "bf16 f16",
        "s32 f32",
        "s8 u16",
        "u8 s8",
        "f32 s64",
        "f8e5m2 f8e4m3fn",
        "pred s1",
        "pred f8e8m0fnu",
    ]
    for pair in lossy:
        source, target = pair.split()
        assert not is_lossless(DTYPES[source], DTYPES[target]), pair


@pytest.mark.parametrize("middle", ["f16", "f32", "s32", "c64"])
def test_true_stays_what_it_was_in_one_bit(middle: str) -> None:
    """pred to s1 is -1 for true, and 0 by way of a float, where 1 saturates."""
    module = read(
        f"p = pred[2] constant({{false, true}})\n b = pred[2] opt-barrier(p)\n"
        f"m = {middle}[2] convert(b)\nROOT r = s1[2] convert(m)"
    )
    (want,) = hloopt.evaluate(module, [])
    (got,) = hloopt.evaluate(hloopt.optimize(module, "O1"), [])
    assert got.tolist() == want.tolist()


OPERATIONS = st.sampled_from(["add", "subtract", "multiply", "and", "xor", "minimum", "maximum"])
LEAVES = st.integers(-3, 3)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """Integer expressions over two parameters, constants and each other, with many repetitions."""
    lines = ["v0 = s32[3] parameter(0)", "v1 = s32[3] parameter(1)"]
    names = ["v0", "v1"]
    for _ in range(draw(st.integers(1, 12))):
        name = f"v{len(names)}"
        if draw(st.integers(0, 3)) == 0:
            lines.append(f"c{len(names)} = s32[] constant({draw(LEAVES)})")
            lines.append(f"{name} = s32[3] broadcast(c{len(names)}), dimensions={{}}")
        else:
            left, right = draw(st.sampled_from(names)), draw(st.sampled_from(names))
            lines.append(f"{name} = s32[3] {draw(OPERATIONS)}({left}, {right})")
        names.append(name)
    lines[-1] = f"ROOT {lines[-1]}"
    return "\n".join(lines)


@settings(max_examples=examples(60), deadline=None)
@given(programs())
def test_o1_keeps_integer_programs(body: str) -> None:
    """Random expressions compute the same after O1, and a second run changes nothing."""
    module = read(body)
    better = clone_module(module)
    report = parse_pipeline("O1").run(better, verify_each=True)
    assert not report.notes
    inputs = [np.array([-(2**31), 7, -1], np.int32), np.array([2, 2**31 - 1, 5], np.int32)]
    for want, got in zip(
        hloopt.evaluate(module, inputs), hloopt.evaluate(better, inputs), strict=True
    ):
        assert np.array_equal(want, got)
    before = fingerprint(better)
    assert not parse_pipeline("O1").run(better).changed
    assert fingerprint(better) == before


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f8e4m3fn", "s4", "u8", "pred", "c64"])
def test_folding_computes_what_the_interpreter_does(dtype: str) -> None:
    """A folded constant has the bits that evaluating the unfolded module gives."""
    values = {
        "pred": "{true, false, true}",
        "c64": "{(1, 2), (0, -3), (nan, inf)}",
        "u8": "{1, 200, 255}",
    }
    literal = values.get(dtype, "{1, -3, 7}")
    root = "and" if dtype == "pred" else "add"
    module = read(
        f"a = {dtype}[3] constant({literal})\n b = {dtype}[3] reverse(a), dimensions={{0}}\n"
        f"c = {dtype}[3] {root}(a, b)\n ROOT t = ({dtype}[3], {dtype}[3]) tuple(b, c)"
    )
    (b, c) = hloopt.evaluate(module, [])
    folded = clone_module(module)
    assert ConstantFolding().run(folded, PassLog())
    assert {operand.opcode for operand in folded.entry.root.operands} == {"constant"}
    for want, got in zip((b, c), hloopt.evaluate(folded, []), strict=True):
        assert want.dtype == got.dtype
        assert want.tobytes() == got.tobytes()


def test_folding_never_reads_more_than_it_may() -> None:
    """work bounds the elements read, and the multiplications of a dot."""
    module = read(
        "a = f32[2,3] constant({{1,2,3},{4,5,6}})\n"
        "ROOT d = f32[2,2] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    )
    assert not ConstantFolding(work=11).run(clone_module(module), PassLog())
    assert ConstantFolding(work=12).run(clone_module(module), PassLog())


def test_limits_must_make_sense() -> None:
    """A limit below one element is a mistake of the caller."""
    with pytest.raises(UsageError, match="must be at least 1"):
        ConstantFolding(limit=0)


def chain(length: int) -> Module:
    """Calls, dead code, equal and constant expressions, so many of each."""
    lines = ["x = f32[4] parameter(0)", "n_0 = f32[4] constant({1, 2, 3, 4})"]
    last = "x"
    for n in range(length):
        lines += [
            f"a{n} = f32[4] sine({last})",
            f"b{n} = f32[4] sine({last})",
            f"d{n} = f32[4] cosine(b{n})",
            f"k{n} = f32[4] call(a{n}, b{n}), to_apply=both",
            f"n_{n + 1} = f32[4] negate(n_{n})",
            f"e{n} = f32[4] multiply(k{n}, n_{n + 1})",
        ]
        last = f"e{n}"
    lines[-1] = f"ROOT {lines[-1]}"
    both = (
        "both { p = f32[4] parameter(0)\n q = f32[4] parameter(1)\n ROOT s = f32[4] add(p, q) }\n"
    )
    return hloopt.parse(f"HloModule m\n{both}ENTRY e {{\n" + "\n".join(lines) + "\n}\n")


@pytest.mark.parametrize(
    "instance",
    [
        CallInliner(),
        CommonSubexpressionElimination(),
        ConstantFolding(),
        DeadCodeElimination(),
    ],
    ids=lambda instance: instance.name,
)
def test_work_is_linear(instance: Pass) -> None:
    """Ten times the instructions take ten times the calls: counted, not timed."""
    counts = []
    for length in (100, 1000):
        module = chain(length)
        counts.append(count_calls(lambda module=module: instance.run(module, PassLog())))

    assert counts[1] < 10 * counts[0] * 1.2


def concatenates(length: int) -> Module:
    """Each of the one before and one row more, of two in turn."""
    lines = ["x = f32[1] parameter(0)", "y = f32[1] parameter(1)", "v1 = f32[1] copy(x)"]
    lines += [
        f"v{n} = f32[{n}] concatenate(v{n - 1}, {'xy'[n % 2]}), dimensions={{0}}"
        for n in range(2, length + 1)
    ]
    return read("\n".join([*lines[:-1], f"ROOT {lines[-1]}"]))


def test_a_chain_of_concatenates_becomes_one() -> None:
    """At once: work and operands are as many as the rows."""
    counts = []
    for length in (50, 500):
        module = concatenates(length)
        counts.append(count_calls(lambda module=module: parse_pipeline("simplify").run(module)))
        assert len(module.entry.root.operands) == length
    assert counts[1] < 10 * counts[0] * 1.2


def test_a_concatenate_used_twice_stays() -> None:
    """Doubling twenty times is at most twenty pairs of operands, not a million."""
    lines = ["x = f32[1] parameter(0)", "v0 = f32[2] concatenate(x, x), dimensions={0}"]
    lines += [
        f"v{n} = f32[{2 << n}] concatenate(v{n - 1}, v{n - 1}), dimensions={{0}}"
        for n in range(1, 20)
    ]
    module = read("\n".join([*lines[:-1], f"ROOT {lines[-1]}"]))
    parse_pipeline("simplify").run(module)
    assert sum(len(instruction.operands) for instruction in module.entry) <= 40


def test_every_pass_is_listed_under_its_own_name() -> None:
    """The table's keys are the passes' names, and every pass has a first line to show."""
    assert all(name == entry.name for name, entry in PASSES.items())
    assert all((entry.__doc__ or "").splitlines()[0].endswith(".") for entry in PASSES.values())


@pytest.mark.parametrize("name", PIPELINES)
def test_named_pipelines_round_trip(name: str) -> None:
    """The expanded text of a named pipeline reads back as the same passes."""
    pipeline = parse_pipeline(name)
    assert parse_pipeline(str(pipeline)) == pipeline


def test_optimize_leaves_the_given_module_alone() -> None:
    """The result is a copy; O0 is an exact one."""
    module = read("x = f32[] parameter(0)\n n = f32[] negate(x)\n ROOT r = f32[] negate(n)")
    before = fingerprint(module)
    assert optimize_module(module, "O2").instruction_count() == 1
    assert fingerprint(module) == before
    assert fingerprint(optimize_module(module, "O0")) == before


def test_a_bitcast_of_a_tuple_is_left_alone() -> None:
    """Its rules are about arrays."""
    module = read(
        "x = (f32[2], f32[2]) parameter(0)\n y = f32[4] bitcast(x)\n ROOT r = f32[2,2] bitcast(y)"
    )
    before = fingerprint(module)
    after = optimize_module(module, "simplify")
    assert fingerprint(after) == before


def test_passes_are_listed_under_their_names() -> None:
    """The list that says where a pass is names each as it names itself; what is not there is an error."""
    assert all(PASSES[name].name == name for name in PASSES)
    assert len(PASSES) == len(list(PASSES)) == len(set(PASSES.values()))
    assert "locked-fusion" not in PASSES
    with pytest.raises(KeyError):
        PASSES["no-such-pass"]
