"""Times joined to instructions: by name, by kernel, by pairing and by place; and what belongs to none."""

from __future__ import annotations

from pathlib import Path

import pytest

import hloopt
from hloopt.analysis.measured import JoinedTimes, join, program_for
from hloopt.ir import Module
from hloopt.profiles import read_profile
from hloopt.proto import write_module
from hloopt.report.measured import measured
from tests.profiles.traces import Made, chrome, nsight, xplane

GIVEN = """HloModule jit_f

ENTRY e {
  x = f32[8,8] parameter(0)
  sin.1 = f32[8,8] sine(x), metadata={op_name="jit(f)/sin" source_file="m.py" source_line=3}
  mul.2 = f32[8,8] multiply(sin.1, x), metadata={op_name="jit(f)/mul" source_file="m.py" source_line=4}
  ROOT dot.3 = f32[8,8] dot(mul.2, x), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/dot" source_file="m.py" source_line=5}
}
"""
RAN = """HloModule jit_f

fused {
  p = f32[8,8] parameter(0)
  s = f32[8,8] sine(p), metadata={op_name="jit(f)/sin" source_file="m.py" source_line=3}
  ROOT m = f32[8,8] multiply(s, p), metadata={op_name="jit(f)/mul" source_file="m.py" source_line=4}
}

ENTRY e {
  x = f32[8,8] parameter(0)
  loop-fusion.7 = f32[8,8] fusion(x), kind=kLoop, calls=fused,
    metadata={op_name="jit(f)/mul" source_file="m.py" source_line=4}
  dot.1 = f32[8,8] dot(loop-fusion.7, x), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/dot" source_file="m.py" source_line=5}
  ROOT copy.1 = f32[8,8]{0,1} copy(dot.1)
}
"""
RUNS = [
    made
    for run in range(3)
    for made in (
        Made(1000 * run, 100, "loop-fusion.7", run),
        Made(1000 * run + 200, 300 + run, "dot.1", run),
        Made(1000 * run + 600, 20, "copy.1", run),
    )
]


def ways(found: JoinedTimes) -> dict[str, tuple[str, str]]:
    return {row.names[0]: (row.name if row.instruction else "", row.way) for row in found.rows}


def joined(module: Module, path: Path, ran: Module | None = None) -> JoinedTimes:
    profile = read_profile(path)
    return join(module, profile, program_for(module, profile), ran)


def test_the_module_that_ran_is_joined_by_name(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(chrome(RUNS))
    found = joined(hloopt.parse(RAN), path)
    assert {name: way for name, (_, way) in ways(found).items()} == {
        "loop-fusion.7": "name",
        "dot.1": "name",
        "copy.1": "name",
    }
    dot = found.rows[0]
    assert (dot.name, found.runs, dot.executions) == ("dot.1", 3, 3)
    assert dot.median == pytest.approx(301e-9)
    assert found.share(found.joined) == 1.0


def test_other_names_are_joined_through_the_module_that_the_trace_holds(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(xplane(RUNS, {"jit_f(6)": write_module(hloopt.parse(RAN))}))
    found = measured(hloopt.parse(GIVEN), path).measured
    assert ways(found) == {
        "loop-fusion.7": ("mul.2", "metadata"),
        "dot.1": ("dot.3", "pairing"),
        "copy.1": ("", ""),
    }
    assert [row.name for row in found.rest] == ["copy.1"]
    assert found.held


def test_an_equal_name_of_another_op_is_no_match(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(xplane([Made(0, 9, "sin.1")], {"jit_f(6)": write_module(hloopt.parse(
        RAN.replace("dot.1", "sin.1")
    ))}))  # fmt: skip
    (row,) = measured(hloopt.parse(GIVEN), path).measured.rows
    assert (row.name, row.way) == ("dot.3", "pairing")


def test_without_that_module_names_alone_count(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(chrome(RUNS))
    found = joined(hloopt.parse(GIVEN), path)
    assert found.joined == ()
    assert found.share(found.rest) == 1.0


def test_kernels_are_joined_by_what_xla_makes_of_names(tmp_path: Path) -> None:
    runs = [Made(0, 7, "", kernel="loop_fusion_7"), Made(9, 7, "", kernel="cutlass_80")]
    found = joined(hloopt.parse(RAN), nsight(tmp_path / "t", runs, ranges=False))
    assert ways(found)["loop_fusion_7"] == ("loop-fusion.7", "kernel")
    assert ways(found)["cutlass_80"] == ("", "")


def test_runs_that_a_trace_does_not_tell_apart_are_counted_by_the_entry(tmp_path: Path) -> None:
    """Three launches of each instruction of the entry: three runs, of equal length."""
    runs = [
        made._replace(op="", kernel=made.op.replace("-", "_").replace(".", "_")) for made in RUNS
    ]
    found = joined(hloopt.parse(RAN), nsight(tmp_path / "t", runs, ranges=False))
    assert found.runs == 3
    assert [len(row.seconds) for row in found.rows] == [3, 3, 3]
    assert found.rows[0].median == pytest.approx(301e-9)


def test_of_programs_of_one_name_the_one_that_fits_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "t"
    others = [Made(0, 5000, "other", number=5), Made(0, 9000, "dot.1", module="jit_g", number=4)]
    path.write_bytes(xplane([*others, *RUNS]))
    profile = read_profile(path)
    assert program_for(hloopt.parse(RAN), profile).label == "jit_f(6)"
    renamed = hloopt.parse(RAN.replace("jit_f", "mine"))
    assert program_for(renamed, profile).label == "jit_g(4)"


CALLING = """HloModule jit_f

FileNames
1 "m.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=4 end_column=9}
2 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=12 end_column=19}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

norm {
  p = f32[8,8] parameter(0)
  e = f32[8,8] exponential(p), metadata={op_name="exp"}
  ROOT n = f32[8,8] negate(e), metadata={op_name="neg"}
}

ENTRY e {
  x = f32[8,8] parameter(0)
  one = f32[8,8] call(x), to_apply=norm, metadata={op_name="jit(f)/jit(norm)" stack_frame_id=1}
  d.1 = f32[8,8] dot(one, x), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/dot" stack_frame_id=1}
  ROOT d.2 = f32[8,8] dot(d.1, x), lhs_contracting_dims={1}, rhs_contracting_dims={0},
    metadata={op_name="jit(f)/dot" stack_frame_id=2}
}
"""
FRAMES, _, _ = CALLING.partition("norm {")
INLINED = f"""{FRAMES}
fused {{
  p = f32[8,8] parameter(0)
  q = f32[8,8] exponential(p), metadata={{op_name="jit(f)/jit(norm)/exp" stack_frame_id=1}}
  ROOT c = f32[8,8]{{0,1}} copy(q)
}}

first {{
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  ROOT d = f32[8,8] dot(p, q), lhs_contracting_dims={{0}}, rhs_contracting_dims={{1}},
    metadata={{op_name="jit(f)/dot" stack_frame_id=1}}
}}

second {{
  p = f32[8,8] parameter(0)
  q = f32[8,8] parameter(1)
  ROOT d = f32[8,8] dot(p, q), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}},
    metadata={{op_name="jit(f)/dot" stack_frame_id=2}}
}}

ENTRY e {{
  x = f32[8,8] parameter(0)
  f.1 = f32[8,8]{{0,1}} fusion(x), kind=kLoop, calls=fused
  f.2 = f32[8,8] negate(f.1), metadata={{op_name="jit(f)/jit(norm)/neg" stack_frame_id=1}}
  z = f32[8,8] add(f.2, x)
  late = f32[8,8] fusion(z, x), kind=kCustom, calls=second
  early = f32[8,8] fusion(z, x), kind=kCustom, calls=first
  ROOT s = f32[8,8] subtract(early, late)
}}
"""


def placed(tmp_path: Path, given: str, ran: str, *names: str) -> dict[str, str]:
    path = tmp_path / "t"
    runs = [Made(10 * at, 5, name) for at, name in enumerate(names)]
    path.write_bytes(xplane(runs, {"jit_f(6)": write_module(hloopt.parse(ran))}))
    found = measured(hloopt.parse(given), path).measured
    return {row.names[0]: row.name if row.instruction else "" for row in found.rows}


def test_what_a_function_computes_is_found_where_xla_inlined_the_call(tmp_path: Path) -> None:
    assert placed(tmp_path, CALLING, INLINED, "f.1", "f.2") == {"f.1": "e", "f.2": "n"}


def test_the_columns_of_one_line_are_two_places(tmp_path: Path) -> None:
    found = placed(tmp_path, CALLING, INLINED, "late", "early")
    assert found == {"late": "d.2", "early": "d.1"}


def test_layers_at_one_place_have_times_of_their_own(tmp_path: Path) -> None:
    layers = GIVEN.partition("ENTRY")[0] + "ENTRY e {\n  h0 = f32[8,8] parameter(0)\n"
    there = layers
    for at in range(3):
        at_one = f'), metadata={{op_name="jit(f)/tanh" source_file="m.py" source_line={7}}}\n'
        layers += f"  l{at} = f32[8,8] tanh(h{at}{at_one}  h{at + 1} = f32[8,8] add(l{at}, h0)\n"
        there += (
            f"  t{at} = f32[8,8] tanh(h{at}{at_one}  h{at + 1} = f32[8,8] multiply(t{at}, t{at})\n"
        )
    end = "  ROOT r = f32[8,8] negate(h3)\n}\n"
    found = placed(tmp_path, layers + end, there + end, "t0", "t1", "t2")
    assert sorted(found.values()) == ["l0", "l1", "l2"]


def test_a_call_that_xla_puts_around_a_loop_is_the_loop(tmp_path: Path) -> None:
    loop = """
body {
  ROOT s = s32[] parameter(0)
}
less {
  s = s32[] parameter(0)
  ROOT p = pred[] constant(false)
}
"""
    run = 'while(x), condition=less, body=body, metadata={op_name="jit(f)/while"}'
    given = f"HloModule jit_f\n{loop}ENTRY e {{\n  x = s32[] parameter(0)\n  ROOT w.9 = s32[] {run}\n}}\n"
    called = f"around {{\n  x = s32[] parameter(0)\n  ROOT w.7 = s32[] {run}\n}}\n"
    ran = (
        f"HloModule jit_f\n{loop}{called}ENTRY e {{\n  x = s32[] parameter(0)\n  c = s32[] copy(x)\n"
        "  ROOT call.2 = s32[] call(c), to_apply=around\n}\n"
    )
    assert placed(tmp_path, given, ran, "call.2") == {"call.2": "w.9"}
