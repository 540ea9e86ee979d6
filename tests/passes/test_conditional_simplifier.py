"""Conditionals: branches that are known, alike, or cheap, and what they have in common."""

from __future__ import annotations

import random

import pytest

import hloopt
from hloopt.errors import UsageError
from hloopt.ir import Module
from hloopt.passes.conditional_simplifier import ConditionalSimplifier
from hloopt.rewrite import PassLog
from tests.helpers.rarely import one_in
from tests.passes import proof
from tests.properties.random_modules import module_text

ALONE = ConditionalSimplifier(ops=0)
UNARY = ("negate", "exponential", "abs", "sine")
BINARY = ("add", "multiply", "maximum", "subtract")


def branch(name: str, body: str, result: str) -> str:
    shape = "(f32[3], f32[3], f32[2,3])"
    return f"""{name} {{ t = {shape} parameter(0)
  a = f32[3] get-tuple-element(t), index=0
  b = f32[3] get-tuple-element(t), index=1
  c = f32[2,3] get-tuple-element(t), index=2
  {body}
  ROOT r = {result} }}
"""


def module(
    *branches: str, users: str, result: str, operands: str = "t, t", index: str = "s32"
) -> str:
    names = ", ".join(text.split(" ", 1)[0] for text in branches)
    return f"""HloModule m
{"".join(branches)}
ENTRY e {{ i = {index}[] parameter(0)
  x = f32[3] parameter(1)
  y = f32[3] parameter(2)
  z = f32[2,3] parameter(3)
  t = (f32[3], f32[3], f32[2,3]) tuple(x, y, z)
  c = {result} conditional(i, {operands}), branch_computations={{{names}}}
  {users} }}
"""


def steps(log: PassLog) -> set[str]:
    return set(log.hits)


def opcodes(found: Module, name: str = "e") -> list[str]:
    return [instruction.opcode for instruction in found.computations[name]]


def test_common_heads_are_computed_before() -> None:
    """What both branches compute of the same operands is handed in; what only one does stays there."""
    one = branch("one", "h = f32[3] exponential(a)\n v = f32[3] sine(h)", "(f32[3]) tuple(v)")
    two = branch(
        "two", "h = f32[3] exponential(a)\n v = f32[3] multiply(b, h)", "(f32[3]) tuple(v)"
    )
    text = module(
        one, two, result="(f32[3])", users="ROOT r = f32[3] get-tuple-element(c), index=0"
    )
    found, log = proof.check(text, ALONE)
    assert "compute before the conditional" in steps(log)
    assert "exponential" in opcodes(found)
    assert "exponential" not in opcodes(found, "one") + opcodes(found, "two")


def test_common_tails_are_computed_after() -> None:
    """The last op of both branches is applied to what they return."""
    one = branch("one", "h = f32[3] sine(a)\n v = f32[3] exponential(h)", "(f32[3]) tuple(v)")
    two = branch("two", "h = f32[3] cosine(b)\n v = f32[3] exponential(h)", "(f32[3]) tuple(v)")
    text = module(
        one, two, result="(f32[3])", users="ROOT r = f32[3] get-tuple-element(c), index=0"
    )
    found, log = proof.check(text, ALONE)
    assert steps(log) >= {"compute after the conditional"}
    assert opcodes(found)[-1] == "exponential"
    assert "exponential" not in opcodes(found, "one")


REDUCE = "z = f32[] constant(0)\n v = f32[3] reduce(FROM, z), dimensions={0}, to_apply=sum"
NOT_ONE_TAIL = {
    "two operands differ": (
        "p = f32[3] sine(a)\n q = f32[3] cosine(b)\n v = f32[3] add(p, q)",
        "p = f32[3] cosine(a)\n q = f32[3] sine(b)\n v = f32[3] add(p, q)",
    ),
    "other ops": ("h = f32[3] sine(a)\n v = f32[3] exponential(h)", "v = f32[3] cosine(b)"),
    "larger operands": (
        REDUCE.replace("FROM", "c"),
        "h = f32[2,3] negate(c)\n " + REDUCE.replace("FROM", "h"),
    ),
}


@pytest.mark.parametrize("case", NOT_ONE_TAIL)
def test_tails_that_would_return_more_stay(case: str) -> None:
    """Other ops, two operands that differ, and operands larger than the result stay in the branches."""
    body, other = NOT_ONE_TAIL[case]
    total = "sum { l = f32[] parameter(0)\n r = f32[] parameter(1)\n ROOT s = f32[] add(l, r) }\n"
    text = module(
        branch("one", body, "(f32[3]) tuple(v)"),
        branch("two", other, "(f32[3]) tuple(v)"),
        result="(f32[3])",
        users="ROOT r = f32[3] get-tuple-element(c), index=0",
    ).replace("HloModule m\n", f"HloModule m\n{total}")
    _, log = proof.check(text, ALONE, changes=None)
    assert "compute after the conditional" not in steps(log)


def test_results_that_are_the_same_come_from_outside() -> None:
    """An operand handed through, and a constant, that every branch returns."""
    body = "k = f32[3] constant({1, 2, 3})\n n = f32[3] OP(a)"
    one, two = (
        branch(name, body.replace("OP", op), "(f32[3], f32[3], f32[3]) tuple(n, b, k)")
        for name, op in (("one", "sine"), ("two", "cosine"))
    )
    users = """u = f32[3] get-tuple-element(c), index=0
  v = f32[3] get-tuple-element(c), index=1
  w = f32[3] get-tuple-element(c), index=2
  uv = f32[3] add(u, v)
  ROOT r = f32[3] add(uv, w)"""
    found, log = proof.check(
        module(one, two, result="(f32[3], f32[3], f32[3])", users=users), ALONE
    )
    assert log.hits["take the result from outside the conditional"] == 2
    assert opcodes(found, "one").count("tuple") == 1
    assert str(found.computations["one"].root.shape) == "(f32[3])"


def test_equal_branches_need_no_choice() -> None:
    """Two computations that compute the same of the same operand are one."""
    one, two = (
        branch(name, "v = f32[3] add(PAIR)".replace("PAIR", pair), "(f32[3]) tuple(v)")
        for name, pair in (("one", "a, b"), ("two", "b, a"))
    )
    users = "ROOT r = f32[3] get-tuple-element(c), index=0"
    found, log = proof.check(module(one, two, result="(f32[3])", users=users), ALONE)
    assert log.hits == {"take the known branch": 1}
    assert "conditional" not in opcodes(found)


@pytest.mark.parametrize(
    ("value", "op"), [(0, "sine"), (1, "cosine"), (7, "cosine"), (-1, "cosine")]
)
def test_a_constant_index_takes_its_branch(value: int, op: str) -> None:
    """In range its own, out of range the last; the other branch goes."""
    one = branch("one", "v = f32[3] sine(a)", "(f32[3]) tuple(v)")
    two = branch("two", "v = f32[3] cosine(a)", "(f32[3]) tuple(v)")
    users = "ROOT r = f32[3] get-tuple-element(c), index=0"
    text = module(one, two, result="(f32[3])", users=users)
    text = text.replace("conditional(i,", "conditional(k,").replace(
        "  t = (f32[3], f32[3], f32[2,3]) tuple",
        f"  k = s32[] constant({value})\n  t = (f32[3], f32[3], f32[2,3]) tuple",
    )
    found, _ = proof.check(text, ALONE)
    assert op in opcodes(found)
    assert len(found.computations) == 1


def test_cheap_branches_become_selects() -> None:
    """Few ops on small arrays, three branches, an index of any value."""
    bodies = ["v = f32[3] negate(a)", "v = f32[3] add(a, b)", "v = f32[3] copy(b)"]
    branches = [branch(f"b{k}", body, "(f32[3]) tuple(v)") for k, body in enumerate(bodies)]
    users = "ROOT r = f32[3] get-tuple-element(c), index=0"
    text = module(*branches, result="(f32[3])", users=users, operands="t, t, t")
    found, _ = proof.check(text, ConditionalSimplifier())
    assert opcodes(found).count("select") == 2
    for tight in (ConditionalSimplifier(ops=2), ConditionalSimplifier(elements=2)):
        _, log = proof.check(text, tight, changes=None)
        assert "compute all branches and select" not in steps(log)


def test_side_effects_and_random_bits_are_not_selected() -> None:
    """A branch that draws from a state is run only when it is taken."""
    one = branch(
        "one",
        "s = u64[2] rng-get-and-update-state(), delta=1\n v = f32[3] negate(a)",
        "(f32[3]) tuple(v)",
    )
    two = branch("two", "v = f32[3] abs(a)", "(f32[3]) tuple(v)")
    text = module(
        one, two, result="(f32[3])", users="ROOT r = f32[3] get-tuple-element(c), index=0"
    )
    _, log = proof.check(text, ConditionalSimplifier(), changes=None)
    assert "compute all branches and select" not in steps(log)


def test_limits_are_not_negative() -> None:
    """A limit counts."""
    with pytest.raises(UsageError, match="ops and elements must be non-negative"):
        ConditionalSimplifier(ops=-1)


def grow(rng: random.Random, values: list[str], prefix: str, count: int) -> list[str]:
    lines = []
    for number in range(count):
        name = f"{prefix}{number}x"
        if rng.random() < 0.5:
            lines.append(f"{name} = f32[3] {rng.choice(UNARY)}({rng.choice(values)})")
        else:
            pair = f"{rng.choice(values)}, {rng.choice(values)}"
            lines.append(f"{name} = f32[3] {rng.choice(BINARY)}({pair})")
        values.append(name)
    return lines


@pytest.mark.parametrize("seed", one_in(3, range(50)))
def test_random_branches_with_common_parts(seed: int) -> None:
    """Common heads, common tails, results handed through: each gives the same as before."""
    rng = random.Random(seed)
    count = rng.randint(2, 3)
    shared_values = ["a", "b"]
    shared = grow(rng, shared_values, "h", rng.randint(0, 3))
    tail = [rng.choice(UNARY) for _ in range(3)]
    branches = []
    for number in range(count):
        values = list(shared_values)
        lines = shared + grow(rng, values, "g", rng.randint(0, 2))
        results = []
        for index in range(3):
            end = f"end{index}"
            op = tail[index] if rng.random() < 0.8 else "negate"
            lines.append(f"{end} = f32[3] {op}({rng.choice(values)})")
            results.append(end if rng.random() < 0.8 else "b")
        body = "\n  ".join(lines)
        branches.append(
            branch(f"branch{number}", body, f"(f32[3], f32[3], f32[3]) tuple({', '.join(results)})")
        )
    users = """u = f32[3] get-tuple-element(c), index=0
  v = f32[3] get-tuple-element(c), index=1
  w = f32[3] get-tuple-element(c), index=2
  ROOT r = (f32[3], f32[3], f32[3]) tuple(u, v, w)"""
    text = module(
        *branches,
        result="(f32[3], f32[3], f32[3])",
        users=users,
        operands=", ".join(["t"] * count),
    )
    ops = rng.choice([0, 4, 12])
    proof.check(text, ConditionalSimplifier(ops=ops), draws=3, changes=None)


@pytest.mark.parametrize("seed", one_in(3, range(25)))
def test_random_modules_keep_their_results(seed: int) -> None:
    """Conditionals in loops, calls and other conditionals."""
    proof.check(module_text(random.Random(seed)), ConditionalSimplifier(), draws=1, changes=None)


@pytest.mark.parametrize("fuel", range(6))
def test_fuel_leaves_a_valid_module(fuel: int) -> None:
    """Stopped after any number of rewrites, the module is valid."""
    found = hloopt.parse(ConditionalSimplifier.example)
    ConditionalSimplifier().run(found, PassLog(fuel=fuel))
    hloopt.verify(found)


def test_tokens_are_not_selected() -> None:
    """Only numbers can be chosen between."""
    text = (
        "HloModule m\none { ROOT t = (token[]) parameter(0) }\n"
        "two { ROOT t = (token[]) parameter(0) }\n"
        "ENTRY e { p = pred[] parameter(0)\n a = token[] after-all()\n b = token[] after-all()\n"
        "x = (token[]) tuple(a)\n y = (token[]) tuple(b)\n"
        "ROOT c = (token[]) conditional(p, x, y), true_computation=one, false_computation=two }\n"
    )
    assert not ConditionalSimplifier().run(hloopt.parse(text), PassLog())


@pytest.mark.parametrize(
    ("index", "bodies", "selected"),
    [
        ("pred", ("negate(x)", "exponential(x)"), True),
        ("pred", ("copy(x)", "tanh(x)"), True),
        ("pred", ("negate(x)", ""), False),
        ("pred", ("negate(x)", "reverse(x), dimensions={0}"), False),
        ("s32", ("negate(x)", "exponential(x)"), False),
        ("s32", ("negate(x)", "exponential(x)", "tanh(x)"), False),
    ],
)
def test_selects_of_xla(index: str, bodies: tuple[str, ...], selected: bool) -> None:
    """own=false: of two branches by a pred, neither empty nor with dear ops, of any size."""
    size = "f32[5000]"
    names = [f"b{number}" for number in range(len(bodies))]
    branches = "".join(
        f"{name} {{ x = {size} parameter(0)\n"
        + (
            f"ROOT r = {size} {body} }}\n"
            if body
            else f"t = ({size}) tuple(x)\nROOT r = {size} get-tuple-element(t), index=0 }}\n"
        )
        for name, body in zip(names, bodies, strict=True)
    )
    given = ", ".join("x" for _ in bodies)
    called = f"branch_computations={{{', '.join(names)}}}"
    if index == "pred":
        called = "true_computation=b0, false_computation=b1"
    text = (
        f"HloModule m\n{branches}ENTRY e {{ i = {index}[] parameter(0)\n x = {size} parameter(1)\n"
        f"ROOT c = {size} conditional(i, {given}), {called} }}"
    )
    better, log = proof.check(text, ConditionalSimplifier(own=False), changes=None)
    assert bool(log.hits["compute all branches and select"]) is selected
    assert any(one.opcode == "select" for one in better.instructions()) is selected
