"""The canonical form and its digest: blind to what the writer chose, not to what the module says."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hloopt.ir import Computation, Instruction, Module, build, edit
from hloopt.ir.canonical import canonical, fingerprint
from hloopt.text.parser import parse_module
from hloopt.types import ArrayShape, Literal, TupleShape, Verbatim
from tests.helpers.support import count_calls

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*.hlo"))

RICH = """HloModule rich, frontend_attributes={b="2", a={"x": [1, 2]}}, replica_count=2, origin_recovery_table={ {"o"}: {"p"} }

FileNames
1 "a.py"

%unused (u: f32[]) -> f32[] {
  ROOT %u = f32[] parameter(0)
}
%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%a, %b), metadata={op_name="a"}
}
%other (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %max = f32[] maximum(%a, %b)
}
ENTRY %main (p0: f32[2,3], p1: s32[], t: token[]) -> (f32[2], f32[2]) {
  %p0 = f32[2,3] parameter(0), sharding={devices=[2,1]<=[2] metadata={op_name="s"}}
  %p1 = s32[] parameter(1)
  %t = token[] parameter(2)
  %zero = f32[] constant(-0.0)
  %table = f32[2,3] constant({{1, 2, 3}, {4, 5, 6}}), origin={{"c"}}
  %x = f32[2,3] add(%p0, %table), statistics={visualizing_index=0,stat=3}
  %r = f32[2] reduce(%x, %zero), dimensions={1}, to_apply=%sum
  %q = f32[2] reduce(%x, %zero), dimensions={1}, to_apply=%other
  %dead = f32[2,3] negate(%table)
  %dead.2 = f32[2,3] exponential(%dead)
  %out = token[] outfeed(%q, %t), outfeed_shape=f32[2], outfeed_config="a"
  %out.2 = token[] outfeed(%r, %out), outfeed_shape=f32[2], control-predecessors={%dead.2, %dead}
  %s = f32[1,2] slice(%p0), slice={[0:1:1], [0:3:2]}
  %w = f32[2,3] reduce-window(%p0, %zero), window={size=1x2 pad=0_0x0_1}, to_apply=%sum
  %cc = f32[2] custom-call(%s, %w), custom_call_target="f", literal=s32[2]{0} {1, 2}, custom_call_has_side_effect=true, backend_config={"a": [1, {}]}
  %g = f32[2,3] all-reduce(%p0), replica_groups={{0,1},{2,3}}, to_apply=%sum
  ROOT %result = (f32[2], f32[2]) tuple(%r, %q)
}
"""


TEXTS = [pytest.param(RICH, id="rich")] + [
    pytest.param(path.read_text(), id=path.stem) for path in SAMPLES if path.stat().st_size < 40_000
]


def shuffled(module: Module, seed: int) -> Module:
    """The same module written by somebody else: order, names, attributes' order, layouts, metadata."""
    rng = random.Random(seed)
    copy = Module("another")
    made: dict[Computation, Computation] = {}
    pending = list(module)
    while pending:
        ready = [one for one in pending if all(other in made for other in called(one))]
        computation = rng.choice(ready)
        pending.remove(computation)
        new = build.clone_computation(computation, f"c{rng.randrange(10**9)}", made)
        shuffle_instructions(new, rng)
        made[computation] = edit.add_computation(copy, new)
    copy.entry = made[module.entry]
    header = list(module.attributes.items())
    rng.shuffle(header)
    copy.attributes = dict(header)
    return copy


def called(computation: Computation) -> set[Computation]:
    found = set()
    for instruction in computation:
        for value in instruction.attributes.values():
            values = value if isinstance(value, tuple) else (value,)
            found |= {one for one in values if isinstance(one, Computation)}
    return found


def shuffle_instructions(computation: Computation, rng: random.Random) -> None:
    waiting = list(computation)
    rng.shuffle(waiting)
    done: set[Instruction] = set()
    order = []
    while waiting:
        for instruction in waiting:
            if done.issuperset((*instruction.operands, *instruction.control_predecessors)):
                break
        waiting.remove(instruction)
        done.add(instruction)
        order.append(instruction)
    last = None
    for instruction in reversed(order):
        if last is not None:
            edit.move_before(last, instruction)
        else:  # to the end
            for other in list(computation):
                if other is not instruction:
                    edit.move_before(instruction, other)
        last = instruction
    for instruction in computation:
        edit.rename(instruction, f"n{rng.randrange(10**9)}")
        items = list(instruction.attributes.items())
        rng.shuffle(items)
        instruction.attributes = dict(items)
        instruction.metadata = None
        shape = instruction.shape
        if (
            isinstance(shape, ArrayShape)
            and shape.layout is not None
            and shape.layout.is_descending
        ):
            edit.set_shape(instruction, replace(shape, layout=None) if shape.rank else shape)


@pytest.mark.parametrize("text", TEXTS)
def test_what_the_writer_chose_does_not_count(text: str) -> None:
    """Names, orders, metadata and written defaults change neither the canonical text nor the digest."""
    module = parse_module(text)
    expected, digest = module.to_text(canonical=True), fingerprint(module)
    for seed in range(3):
        other = shuffled(module, seed)
        assert other.to_text(canonical=True) == expected
        assert fingerprint(other) == digest


@pytest.mark.parametrize("text", TEXTS)
def test_canonical_text_is_a_module(text: str) -> None:
    """It is read back with the same digest, and is the canonical text of what was read."""
    module = parse_module(text)
    printed = module.to_text(canonical=True)
    again = parse_module(printed, strict=True)
    assert fingerprint(again) == fingerprint(module)
    assert again.to_text() == again.to_text(canonical=True) == printed
    assert "metadata" not in printed


def swap_operands(instruction: Instruction) -> bool:
    operands = instruction.operands
    edit.set_operands(instruction, operands[::-1])
    return operands != operands[::-1]


def change_shape(instruction: Instruction) -> bool:
    shape = instruction.shape
    if isinstance(shape, TupleShape):
        edit.set_shape(instruction, TupleShape((*shape.elements, *shape.elements[:1])))
        return bool(shape.elements)
    assert isinstance(shape, ArrayShape)
    edit.set_shape(instruction, replace(shape, dims=(7, *shape.dims), layout=None))
    return True


def change_literal(instruction: Instruction) -> bool:
    literal = instruction.literal
    if literal is None or literal.array is None or not literal.array.size:
        return False
    values = literal.array.copy()
    raw = values.reshape(-1).view(np.uint8)
    raw[len(raw) // 2] ^= 1
    edit.set_attribute(instruction, "literal", Literal(literal.shape, values))
    return True


def change_opcode(instruction: Instruction) -> bool:
    instruction.opcode = "negate" if instruction.opcode == "cosine" else "cosine"
    return True


def change_root(instruction: Instruction) -> bool:
    computation = instruction.computation
    assert computation is not None
    old = computation.root
    edit.set_root(computation, instruction)
    return old is not instruction


def add_control(instruction: Instruction) -> bool:
    computation = instruction.computation
    assert computation is not None
    first = next(iter(computation))
    if first is instruction or first in instruction.control_predecessors:
        return False
    edit.add_control_edge(first, instruction)
    return True


def add_attribute(instruction: Instruction) -> bool:
    edit.set_attribute(instruction, "frontend_attributes", Verbatim('{new="1"}'))
    return True


CHANGES = [
    swap_operands,
    change_shape,
    change_literal,
    change_opcode,
    change_root,
    add_control,
    add_attribute,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_the_module_says_counts(change: Callable[[Instruction], bool]) -> None:
    """Any change of any instruction is another digest and another canonical text."""
    plain = parse_module(RICH)
    digests = {fingerprint(plain)}
    canonical_texts = {plain.to_text(canonical=True)}
    count = 1
    for index in range(plain.instruction_count()):
        module = parse_module(RICH)
        instruction = list(module.instructions())[index]
        if change(instruction):
            count += 1
            digests.add(fingerprint(module))
            canonical_texts.add(module.to_text(canonical=True))
    assert count > 2
    # Two changes may make the same module of this one: %dead and its like; never the one it was.
    assert len(digests) == len(canonical_texts) >= count - 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dimensions={1}, to_apply=%sum", "dimensions={0}, to_apply=%sum"),
        ("dimensions={1}, to_apply=%sum", "dimensions={1}, to_apply=%other"),
        ("[0:3:2]", "[0:2:1]"),
        ("pad=0_0x0_1", "pad=0_0x1_0"),
        ('outfeed_config="a"', 'outfeed_config="b"'),
        ('custom_call_target="f"', 'custom_call_target="F"'),
        ("s32[2]{0} {1, 2}", "s32[2]{0} {1, 3}"),
        ("{{0,1},{2,3}}", "{{0,2},{1,3}}"),
        ("devices=[2,1]<=[2]", "replicated"),
        ('{"a": [1, {}]}', '{"a": [1, {"b":""}]}'),
        ("constant(-0.0)", "constant(0)"),
        ("%p0 = f32[2,3] parameter(0)", "%p0 = f32[2,3]{0,1} parameter(0)"),
        ("replica_count=2", "replica_count=3"),
        ('b="2"', 'b="3"'),
        ("HloModule rich,", "HloModule rich, is_scheduled=true,"),
        ("custom_call_has_side_effect=true, ", ""),
        ("control-predecessors={%dead.2, %dead}", "control-predecessors={%dead.2}"),
    ],
)
def test_a_change_of_the_text_that_counts(old: str, new: str) -> None:
    """Other attributes, literals, layouts and header entries are another module."""
    assert old in RICH
    changed = parse_module(RICH.replace(old, new, 1))
    plain = parse_module(RICH)
    assert fingerprint(changed) != fingerprint(plain)
    assert changed.to_text(canonical=True) != plain.to_text(canonical=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("f32[2,3] parameter(0)", "f32[2,3]{1,0} parameter(0)"),
        ("dimensions={1}, to_apply=%sum", "to_apply=%sum /* c */, dimensions={ 1 }"),
        ("[0:1:1]", "[0:1]"),
        ("size=1x2 pad=0_0x0_1", "pad=0_0x0_1 size=1x2 stride=1x1"),
        ("{{0,1},{2,3}}", "[2,2]<=[4]"),
        ("{{0,1},{2,3}}", "{{0,1},{2,3}}, use_global_device_ids=false"),
        (' metadata={op_name="s"}', ""),
        ('origin={{"c"}}', 'origin={{"d"}}'),
        ("stat=3", "stat=4"),
        ('{"a": [1, {}]}', '{"a":[1,{}]}'),
        ('b="2", a={"x": [1, 2]}', 'a={"x":[1,2]},b="2"'),
        ("rich, ", "rich, num_partitions=1, "),
        ("rich, ", "rich, input_output_alias={}, buffer_donor={}, is_scheduled=false, "),
        ("rich, ", "rich, allow_spmd_sharding_propagation_to_parameters={false,false,false}, "),
        ('1 "a.py"', '1 "b.py"'),
        ("HloModule rich", "HloModule other"),
        ("%dead.2, %dead}", "%dead, %dead.2}"),
        (
            "rich, ",
            "rich, entry_computation_layout={(f32[2,3]{1,0}, s32[], token[])->(f32[2]{0}, f32[2]{0})}, ",
        ),
    ],
)
def test_a_change_of_the_text_that_does_not_count(old: str, new: str) -> None:
    """Other spellings, written defaults and debugging attributes are the same module."""
    assert old in RICH
    changed = parse_module(RICH.replace(old, new, 1))
    plain = parse_module(RICH)
    assert changed.to_text(canonical=True) == plain.to_text(canonical=True)
    assert fingerprint(changed) == fingerprint(plain)


def test_the_order_of_a_set_of_dimensions_does_not_count() -> None:
    """Of a reduce and a reverse; that of a transpose does."""
    line = "a { x = f32[3,3] parameter(0) z = f32[] constant(0) ROOT r = %s }"
    for form, same in (
        ("f32[] reduce(x, z), dimensions={%s}, to_apply=%%sum", True),
        ("f32[3,3] reverse(x), dimensions={%s}", True),
        ("f32[3,3] transpose(x), dimensions={%s}", False),
    ):
        sums = "%sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }\n"
        one, other = (parse_module(sums + line % (form % order)) for order in ("0,1", "1,0"))
        assert (fingerprint(one) == fingerprint(other)) is same


def test_the_order_of_a_schedule_counts() -> None:
    """In a scheduled module the order of instructions is part of it, elsewhere it is not."""
    text = "HloModule m{}\nENTRY e {{ p = f32[] parameter(0) {} ROOT r = f32[] add(a, b) }}"
    first = "a = f32[] negate(p) b = f32[] cosine(p)"
    second = "b = f32[] cosine(p) a = f32[] negate(p)"
    for header, same in (("", True), (", is_scheduled=true", False)):
        one, two = (
            fingerprint(parse_module(text.format(header, body))) for body in (first, second)
        )
        assert (one == two) is same


def test_equal_dead_code_is_told_apart_by_what_it_is_linked_to() -> None:
    """Two dead copies of one op, of which one has another user, get their places from the links."""
    lines = [
        "a = f32[] rng(z, z), distribution=rng_uniform",
        "b = f32[] rng(z, z), distribution=rng_uniform",
        "c = f32[] negate(a)",
        "d = f32[] negate(a)",
        "e = f32[] negate(b)",
        "f = f32[] cosine(b)",
        "g = f32[] negate(b)",
    ]
    found = set()
    for order in ((0, 1, 2, 3, 4, 5, 6), (1, 6, 4, 0, 2, 5, 3), (1, 5, 0, 2, 4, 3, 6)):
        body = "\n".join(lines[index] for index in order)
        module = parse_module(f"ENTRY m {{ ROOT z = f32[] parameter(0)\n{body} }}")
        found.add((fingerprint(module), module.to_text(canonical=True)))
    assert len(found) == 1


def test_the_digest_is_the_same_everywhere() -> None:
    """It does not change with the version of Python, its hash seed or the machine: it is pinned."""
    text = RICH.replace("%", "")
    assert fingerprint(parse_module(text)) == DIGEST
    command = "import sys; from hloopt.ir.canonical import fingerprint; from hloopt import parse; "
    command += "print(fingerprint(parse(sys.stdin.read())))"
    done = subprocess.run(
        [sys.executable, "-c", command], input=text, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == DIGEST


DIGEST = "48470283d33f95b8fa13f0a30be4cda6"


def test_cost_is_linear() -> None:
    """Four times the instructions, dead ones among them, cost four times the work."""

    def module(size: int) -> Module:
        lines = ["x0 = f32[4] parameter(0)"]
        for index in range(size):
            lines.append(f"x{index + 1} = f32[4] negate(x{index})")
            lines.append(f"dead{index} = f32[4] cosine(x{index // 2})")
            lines.append(f"deader{index} = f32[4] add(dead{index}, dead{index // 3})")
        return parse_module(f"ENTRY e {{ {' '.join(lines)} ROOT r = f32[4] negate(x{size}) }}")

    small, large = module(300), module(1200)
    for work in (fingerprint, canonical):
        few, many = count_calls(lambda: work(small)), count_calls(lambda: work(large))  # noqa: B023
        assert many < 4.5 * few


def test_deep_and_wide_graphs() -> None:
    """A chain of 20,000 instructions and 2,000 computations that call each other are no problem."""
    chain = "\n".join(f"x{n + 1} = f32[] negate(x{n})" for n in range(20_000))
    fingerprint(parse_module(f"ENTRY e {{ x0 = f32[] parameter(0)\n{chain} }}"))
    calls = ["call0 { p = f32[] parameter(0) }"]
    calls += [
        f"call{n} {{ p = f32[] parameter(0) ROOT r = f32[] call(p), to_apply=call{n - 1} d = f32[] negate(p) }}"
        for n in range(1, 2_000)
    ]
    module = parse_module("\n".join(calls))
    assert re.search(
        r"ENTRY %main .*\n.*\n.*to_apply=%computation.1998", module.to_text(canonical=True)
    )


@pytest.mark.parametrize("groups", ["[65536,65536]<=[4294967296]", "[16,256]<=[4]", "[2,0]<=[0]"])
def test_groups_that_cannot_be_listed_stay_as_written(groups: str) -> None:
    """Too many devices to write down, or sizes that do not agree: other text is another module."""
    text = RICH.replace("{{0,1},{2,3}}", groups)
    digest = fingerprint(parse_module(text))
    assert digest == fingerprint(parse_module(text))
    assert digest != fingerprint(parse_module(RICH))


def test_a_sharding_that_is_not_understood_stays_whole() -> None:
    """One kept with a warning may have parentheses that do not match; its metadata is not told from the rest."""
    text = RICH.replace('metadata={op_name="s"}', "metadata={op_name=)}")
    module = parse_module(text)
    assert module.warnings
    canonical = module.to_text(canonical=True)
    assert "sharding={devices=[2,1]<=[2] metadata={op_name=)}}" in canonical
    assert parse_module(canonical).to_text(canonical=True) == canonical
