"""Why a function was compiled again: each reason alone, what follows from others, and the nearest before."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.analysis.recompilation import (
    REMEDIES,
    Compilation,
    Reason,
    recompilation,
    recompilations,
)
from hloopt.dumps import read_dump
from hloopt.dumps.beside import Beside, beside
from hloopt.errors import FileError

BASE = """\
HloModule jit_f, entry_computation_layout={(f32[4,8]{1,0}, f32[8]{0})->f32[4,8]{1,0}}

ENTRY main {
  x = f32[4,8] parameter(0), metadata={op_name="x"}
  b = f32[8] parameter(1), metadata={op_name="p[\\'b\\']"}
  rate = f32[8] constant({1, 2, 3, 4, 5, 6, 7, 8})
  wide = f32[4,8] broadcast(b), dimensions={1}, metadata={op_name="jit(f)/add" source_file="f.py" source_line=3}
  each = f32[4,8] broadcast(rate), dimensions={1}
  sum = f32[4,8] add(x, wide), metadata={op_name="jit(f)/add" source_file="f.py" source_line=4}
  ROOT out = f32[4,8] multiply(sum, each), metadata={op_name="jit(f)/mul" source_file="f.py" source_line=5}
}
"""
HEADER = "HloModule jit_f, "


def compiled(text: str, known: Beside | None = None, label: str = "m") -> Compilation:
    return Compilation(label, hloopt.parse(text), known or Beside())


def reasons(before: str, after: str) -> tuple[Reason, ...]:
    """The reasons, most telling first; both texts are valid modules."""
    for text in (before, after):
        hloopt.verify(hloopt.parse(text))
    return recompilation(compiled(before), compiled(after)).reasons


def edited(*changes: tuple[str, str]) -> str:
    text = BASE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


SHAPE = edited(("4,8]", "6,8]"))
HALF = edited(
    ("f32[8]{0}", "bf16[8]{0}"),
    ("b = f32[8] parameter", "b.1 = bf16[8] parameter"),
    ("  rate =", "  b = f32[8] convert(b.1)\n  rate ="),
)
CONSTANT = edited(("5, 6, 7", "5, 9, 7"))
LAYOUT = edited(("(f32[4,8]{1,0}", "(f32[4,8]{0,1}"))
RESULT = edited(("->f32[4,8]{1,0}", "->f32[4,8]{0,1}"))
DYNAMIC = edited(("f32[4,8]", "f32[<=4,8]"))
DONATED = edited((HEADER, f"{HEADER}input_output_alias={{ {{}}: (0, {{}}, may-alias) }}, "))
DONOR = edited((HEADER, f"{HEADER}buffer_donor={{ (1, {{}}) }}, "))
DEVICES = edited((HEADER, f"{HEADER}num_partitions=2, "))
SHARDED = edited(("parameter(0), ", "parameter(0), sharding={devices=[2,1]<=[2]}, "))
SHARDY = edited(
    ("parameter(0), ", 'parameter(0), frontend_attributes={xla.sdy.sharding="<@mesh, [{}, {}]>"}, ')
)
SCHEDULED = edited((HEADER, f"{HEADER}is_scheduled=true, "))
LONGER = edited(
    ("ROOT out", "out"),
    ("source_line=5}\n", "source_line=5}\n  ROOT more = f32[4,8] negate(out)\n"),
)
SWAPPED = edited(
    ("{(f32[4,8]{1,0}, f32[8]{0})", "{(f32[8]{0}, f32[4,8]{1,0})"),
    ("parameter(0)", "parameter(2)"), ("parameter(1)", "parameter(0)"), ("parameter(2)", "parameter(1)"),
)  # fmt: skip
EXTRA = edited(
    ("f32[8]{0})->", "f32[8]{0}, s32[])->"),
    ("  rate =", '  step = s32[] parameter(2), metadata={op_name="step"}\n  rate ='),
)


@pytest.mark.parametrize(
    ("after", "kind", "subject", "old", "new", "line", "note"),
    [
        (SHAPE, "shape", "x", "f32[4,8]", "f32[6,8]", "f.py:4", "dimension 0"),
        (HALF, "dtype", "p['b']", "f32[8]", "bf16[8]", "f.py:3", ""),
        (LAYOUT, "layout", "x", "f32[4,8]{1,0}", "f32[4,8]{0,1}", "f.py:4", ""),
        (RESULT, "result", "result", "f32[4,8]{1,0}", "f32[4,8]{0,1}", "", ""),
        (DYNAMIC, "dynamic", "x", "f32[4,8]", "f32[<=4,8]", "f.py:4", ""),
        (DONATED, "donation", "x", "kept", "donated, the result", "f.py:4", ""),
        (DONOR, "donation", "p['b']", "kept", "donated", "f.py:3", ""),
        (DEVICES, "devices", "num_partitions", "1", "2", "", ""),
        (SHARDED, "sharding", "x", "left open", "{devices=[2,1]<=[2]}", "f.py:4", ""),
        (SHARDY, "sharding", "x", "left open", "<@mesh, [{}, {}]>", "f.py:4", ""),
        (SCHEDULED, "header", "is_scheduled", "", "true", "", ""),
        (CONSTANT, "constant", "%rate", "6 at [5]", "9; 1 of 8 elements differ", "f.py:5", ""),
        (LONGER, "program", "%more", "", "negate(%out)", "", "and 1 more"),
        (EXTRA, "parameters", "step", "", "s32[]", "", ""),
    ],
)
def test_each_reason_alone(
    after: str, kind: str, subject: str, old: str, new: str, line: str, note: str
) -> None:
    """Forwards it is the only reason that does not follow from another; backwards the sides change places."""
    first, *rest = reasons(BASE, after)
    assert first == Reason(kind, subject, old, new, line, note)
    assert all(one.may_follow for one in rest)
    back = reasons(after, BASE)[0]
    assert (back.kind, back.subject) == (kind, subject)
    if kind != "constant":
        assert (back.old, back.new) == (new, old)


def test_the_order_of_parameters() -> None:
    """Arguments are known by their names: two that changed places are two reasons, and no other shapes."""
    assert [(one.kind, one.subject, one.old, one.new) for one in reasons(BASE, SWAPPED)] == [
        ("order", "x", "parameter 0", "parameter 1"),
        ("order", "p['b']", "parameter 1", "parameter 0"),
    ]


def test_a_renamed_parameter_is_no_reason() -> None:
    """Names are metadata; parameters without a partner of their name go by number."""
    renamed = BASE.replace('op_name="x"', 'op_name="inputs"')
    found = recompilation(compiled(BASE), compiled(renamed))
    assert (found.same, found.reasons) == (True, ())


def test_what_comes_with_a_shape_may_follow() -> None:
    """A constant that changed beside a shape is told after it; shapes of values are counted."""
    both = SHAPE.replace("5, 6, 7", "5, 9, 7")
    found = recompilation(compiled(BASE), compiled(both))
    assert [(one.kind, one.may_follow) for one in found.reasons] == [
        ("shape", False),
        ("constant", True),
    ]
    assert found.others >= 4
    assert not found.same


def test_equal_modules_have_no_reason() -> None:
    """Other names, another order: the same compilation; other source lines are said, and are no reason."""
    renamed = BASE.replace("sum", "total").replace("HloModule jit_f", "HloModule jit_f.2")
    assert recompilation(compiled(BASE), compiled(renamed)).reasons == ()
    moved = recompilation(compiled(BASE), compiled(BASE.replace("source_line=4", "source_line=9")))
    assert [one.kind for one in moved.reasons] == ["metadata"]
    assert moved.same


def test_values_that_the_text_leaves_out_are_not_called_equal() -> None:
    """Nobody knows whether elided constants are equal, unless the frontend's program is there."""
    elided = BASE.replace("{1, 2, 3, 4, 5, 6, 7, 8}", "{...}")
    found = recompilation(compiled(elided), compiled(elided))
    assert [(one.kind, one.subject) for one in found.reasons] == [("values", "%rate")]
    assert not found.same
    known = Beside(program=("module {", "}"), program_file="module.mlir")
    assert recompilation(compiled(elided, known), compiled(elided, known)).same


def frontend(line: str) -> Beside:
    return Beside(program=("module {", line, "}"), program_file="dump/module.mlir")


def dense(data: str, type: str) -> str:
    return f'    %cst = stablehlo.constant dense<"0x{data}"> : tensor<{type}>'


@pytest.mark.parametrize(
    ("type", "old", "new", "said"),
    [
        ("2xi32", "01000000FF000000", "01000000FE000000", ("{1, 255}", "{1, 254}")),
        ("6xui8", "010203040506", "010203040706", ("5 at [4]", "7; 1 of 6 elements differ")),
        ("2x3xbf16", "803F" * 6, "803F" * 5 + "0040", ("1 at [1,2]", "2; 1 of 6 elements differ")),
    ],
)
def test_elided_values_are_found_in_the_frontends_program(
    type: str, old: str, new: str, said: tuple[str, str]
) -> None:
    """Bytes of a constant in MLIR are read; the only elided constant of the module is the one they are of."""
    elided = BASE.replace("{1, 2, 3, 4, 5, 6, 7, 8}", "{...}")
    sides = (compiled(elided, frontend(dense(data, type))) for data in (old, new))
    assert recompilation(*sides).reasons == (Reason("constant", "%rate", *said, "f.py:5"),)


@pytest.mark.parametrize("type", ["6xi1", "complex<f32>", "7xf32"])
def test_other_constants_of_the_frontend_are_lines(type: str) -> None:
    """Packed bits, other types and lengths that do not fit are not read as numbers."""
    lines = [dense(data, type) for data in ("0102030405060708", "0102030405060709")]
    (one,) = recompilation(*(compiled(BASE, frontend(line)) for line in lines)).reasons
    assert (one.kind, one.subject) == ("frontend", "module.mlir:2")
    assert (one.old, one.new) == tuple(line.strip() for line in lines)


def test_flags() -> None:
    """What one side gives is beside what the other has by default; only files that both have are compared."""
    plain = {"compile_options.textproto": {"xla_fast": "false", "num_partitions": "1"}}
    given = {"debug_options": {"xla_fast": "true"}, **plain}
    sides = [
        compiled(BASE, Beside(flags)) for flags in (plain, given, {**plain, "debug_options": {}})
    ]
    assert recompilation(sides[0], sides[1]).same
    assert recompilation(sides[2], sides[1]).reasons == (
        Reason("flag", "xla_fast", "false", "true"),
    )
    two = {"compile_options.textproto": {"xla_fast": "false", "num_partitions": "2"}}
    found = recompilation(sides[0], compiled(DEVICES, Beside(two))).reasons
    assert [one.subject for one in found] == ["num_partitions"]  # once, though both files say it


def test_the_nearest_earlier_compilation() -> None:
    """Each is beside the one that it has most in common with, an equal one if there is one."""
    texts = [BASE, SHAPE, SHAPE.replace("5, 6, 7", "5, 9, 7"), CONSTANT, BASE]
    found = recompilations([compiled(text, label=str(at)) for at, text in enumerate(texts)])
    assert [(one.after.label, one.before.label) for one in found] == [
        ("1", "0"), ("2", "1"), ("3", "0"), ("4", "0"),
    ]  # fmt: skip
    assert [[one.kind for one in each.reasons] for each in found] == [
        ["shape"], ["constant"], ["constant"], [],
    ]  # fmt: skip


def test_every_kind_has_a_remedy_and_its_json() -> None:
    """JSON has what to do, None for what is not there."""
    row = Reason("shape", "x", "f32[1]", "f32[2]").to_json()
    assert row["remedy"] == REMEDIES["shape"]
    assert (row["reason"], row["line"], row["may_follow"]) == ("shape", None, False)


def folder(tmp_path: Path, files: dict[str, str | bytes]) -> Beside:
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (module,) = read_dump(tmp_path).modules
    return beside(module)


def test_what_lies_beside_a_module(tmp_path: Path) -> None:
    """Flags by name, overrides apart, what only says where dumps go left out; a program without locations."""
    found = folder(
        tmp_path,
        {
            "module_0003.jit_f.before_optimizations.txt": BASE,
            "module_0003.jit_f.debug_options": 'xla_dump_to: "/x"\nxla_a: true\nxla_b: "q"\n',
            "module_0003.jit_f.flagfile": "--xla_c=4\n# text\n--xla_d\n",
            "module_0003.jit_f/compile_options.textproto": "executable_build_options {\n"
            "  debug_options { xla_a: false xla_b: 'p' list: 1 list: 2 }\n  num_replicas: 1\n}\n"
            'env_option_overrides { key: "xla_e" value { bool_field: true } }\n',
            "module_0003.jit_f/topology.textproto": 'platform: "cpu"\nof {\n  value: "\\375"\n}\n',
            "module_0003.jit_f/module.mlir": 'module @jit_f {\n  f(%a: i32 loc("a(b)")) loc(#loc3)\n} loc(#loc)\n'
            "#loc = loc(unknown)\n#loc3 = loc(callsite(#loc at #loc))\n",
        },
    )
    assert found.flags == {
        "debug_options": {"xla_a": "true", "xla_b": "q"},
        "flagfile": {"xla_c": "4", "xla_d": "true"},
        "compile_options.textproto": {
            "xla_a": "false", "xla_b": "p", "list": "1, 2", "num_replicas": "1",
            "env_option_overrides.xla_e": "true",
        },
        "topology.textproto": {"platform": '"cpu"', "value": '"\\375"'},
    }  # fmt: skip
    assert found.flag("xla_a") == "true"
    assert found.program == ("module @jit_f {", "  f(%a: i32)", "}")


def test_malformed_options_are_refused_at_their_place(tmp_path: Path) -> None:
    """As are bytes that are no text."""
    text = {"module_0003.jit_f.before_optimizations.txt": BASE}
    name = "module_0003.jit_f.debug_options"
    with pytest.raises(FileError) as caught:
        folder(tmp_path, {**text, name: "xla_a: true\nxla_b: }\n"})
    assert (caught.value.line, caught.value.column) == (2, 8)
    with pytest.raises(FileError, match="byte 7 is not UTF-8"):
        folder(tmp_path, {name: b"xla_a: \xff"})


def test_binary_programs_are_not_compared(tmp_path: Path) -> None:
    """MLIR's bytecode has no lines."""
    files: dict[str, str | bytes] = {
        "module_0003.jit_f.before_optimizations.txt": BASE,
        "module_0003.jit_f/module.mlir": b"ML\xefR\x0d\x00\xff",
    }
    assert folder(tmp_path, files).program is None
