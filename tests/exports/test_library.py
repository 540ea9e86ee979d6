"""``hloopt build``: libraries that need no Python and compute what native does in this process, to the bit."""

from __future__ import annotations

import ctypes
import json
import re
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

import hloopt
from hloopt.backends.native.toolchain import check_native
from hloopt.errors import DeviceError, UsageError
from hloopt.exports.library.compiling import library_compiler
from hloopt.exports.library.names import c_literal, identifiers, prefix_of
from tests.exports.library_files import built, loaded, natively, same_bits
from tests.helpers.rarely import one_in
from tests.helpers.support import invoke

pytestmark = pytest.mark.usefixtures("quickly_compiled")

try:
    check_native()
except DeviceError as error:
    pytest.skip(str(error), allow_module_level=True)

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
COMPILER = shutil.which("cc") or shutil.which("gcc") or "cc"

SUM = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""

SCALED = """HloModule scaled

ENTRY main {
  x = f32[4,256] parameter(0), metadata={op_name="x"}
  c = f32[256] constant({CONSTANT})
  w = f32[4,256] broadcast(c), dimensions={1}
  ROOT r = f32[4,256] multiply(x, w)
}
""".replace("CONSTANT", ", ".join(str(number / 7) for number in range(256)))

MATRIX = """HloModule matrix

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] parameter(1)
  p = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[64,64] tanh(p)
}
"""

STUCK = """HloModule stuck

body {
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  v = f32[4] get-tuple-element(s), index=1
  ROOT r = (s32[], f32[4]) tuple(n, v)
}

more {
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  ten = s32[] constant(10)
  ROOT r = pred[] compare(n, ten), direction=LT
}

ENTRY main {
  n = s32[] parameter(0)
  v = f32[4] parameter(1)
  s = (s32[], f32[4]) tuple(n, v)
  forever = (s32[], f32[4]) while(s), condition=more, body=body
  ROOT r = f32[4] get-tuple-element(forever), index=1
}
"""


def compiled(source: Path, output: Path, *given: Path | str) -> Path:
    """A program of C, compiled without a warning."""
    command = [COMPILER, "-std=c99", *STRICT, f"-I{output.parent}", source, *given, "-o", output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return output


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The library of ``MATRIX``, which several tests call."""
    return same_bits(MATRIX, tmp_path_factory.mktemp("matrix"))


def folder_of(library: ModuleType) -> Path:
    return Path(str(library.__file__)).parent


def symbols(*options: str) -> str:
    return subprocess.run(["nm", *options], capture_output=True, text=True, check=True).stdout


# ---- the sample of C ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["so", "a"])
def test_the_sample_of_c(tmp_path: Path, kind: str) -> None:
    library = tmp_path / f"libroots.{kind}"
    text = (SAMPLES / "while_loop.hlo").read_text()
    hloopt.build(hloopt.parse(text), library, header=tmp_path / "roots.h")
    program = compiled(
        SAMPLES / "library" / "roots.c", tmp_path / "roots", library, "-lm", "-pthread"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [program],
        capture_output=True,
        text=True,
        check=True,
        env={"LD_LIBRARY_PATH": str(tmp_path)},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    roots, steps, _ = natively(text, [np.arange(1, 65, dtype=np.float32)])
    rows = [line.split() for line in done.stdout.splitlines()]
    # Nine digits tell each f32 from its neighbours.
    assert [np.float32(row[1]).tobytes() for row in rows[:-1]] == [
        one.tobytes() for one in roots[:8]
    ]
    assert rows[-1] == [str(int(steps)), "steps"]
    seconds = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
    assert seconds < 0.02


def test_nothing_of_python_is_needed(matrix: ModuleType, tmp_path: Path) -> None:
    shared, static = folder_of(matrix) / "libprogram.so", tmp_path / "matrix.a"
    hloopt.build(hloopt.parse(MATRIX), static)
    needed = subprocess.run(["ldd", shared], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"python|stdc\+\+|gcc_s", needed)
    assert "Py" not in symbols(str(shared)) + symbols(str(static))
    exported = re.findall(r" T (\w+)", symbols("-D", "--defined-only", str(shared)))
    assert len(exported) == 11
    assert all(name.startswith("program_") for name in exported)
    # Two static libraries in one program share no name.
    own = set(re.findall(r" [TDBRVWu] (\w+)", symbols("--defined-only", str(static))))
    assert {name for name in own if "matrix" not in name} == set()


def test_two_static_libraries_in_one_program(tmp_path: Path) -> None:
    for name, march in (("first", "native"), ("second", "x86-64-v2")):
        if "x86_64" not in hloopt_machine():
            march = "native"
        hloopt.build(
            hloopt.parse(MATRIX), tmp_path / f"{name}.a", header=tmp_path / f"{name}.h", march=march
        )
    (tmp_path / "main.c").write_text(
        """#include <complex.h>
#include <stdio.h>
#include "first.h"
#include "second.h"
static float x[4096], one[4096], two[4096];
int main(void) {
  first_context *a;
  second_context *b;
  first_inputs i = {x, x};
  second_inputs j = {x, x};
  first_results r = {one};
  second_results s = {two};
  for (int k = 0; k < 4096; ++k) x[k] = (float)(k % 17) / 64;
  if (first_create(&a, 2, NULL) || second_create(&b, 2, NULL)) return 1;
  if (first_run(a, &i, &r) || second_run(b, &j, &s)) return 2;
  printf("%s %.9g %s\\n", first_input(1)->name, one[77], second_result(0)->type);
  first_destroy(a);
  second_destroy(b);
  return first_input(2) != NULL || second_input(-1) != NULL;
}
"""
    )
    libraries = [tmp_path / "first.a", tmp_path / "second.a"]
    program = compiled(tmp_path / "main.c", tmp_path / "main", *libraries, "-lm", "-pthread")
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    x = ((np.arange(4096) % 17).astype(np.float32) / 64).reshape(64, 64)
    (want,) = natively(MATRIX, [x, x])
    assert done.stdout == f"y {want.reshape(-1)[77]:.9g} f32\n"


def hloopt_machine() -> str:
    return subprocess.run(
        [COMPILER, "-dumpmachine"], capture_output=True, text=True, check=True
    ).stdout


# ---- results --------------------------------------------------------------------------------------------

LAYOUTS = """HloModule layouts, entry_computation_layout={(f32[5,7]{0,1}, s8[3,4]{1,0})->(f32[5,7]{0,1}, s8[4,3]{1,0}, f32[7,5]{1,0})}

ENTRY main {
  x = f32[5,7]{0,1} parameter(0)
  y = s8[3,4]{1,0} parameter(1)
  n = f32[5,7]{0,1} negate(x)
  t = s8[4,3]{1,0} transpose(y), dimensions={1,0}
  u = f32[7,5]{1,0} transpose(x), dimensions={1,0}
  ROOT r = (f32[5,7]{0,1}, s8[4,3]{1,0}, f32[7,5]{1,0}) tuple(n, t, u)
}
"""

TYPES = """HloModule types

ENTRY main {
  p = (pred[5], (bf16[3,2], c64[4]), f16[], u64[0,3]) parameter(0)
  a = pred[5] get-tuple-element(p), index=0
  i = (bf16[3,2], c64[4]) get-tuple-element(p), index=1
  b = bf16[3,2] get-tuple-element(i), index=0
  c = c64[4] get-tuple-element(i), index=1
  d = f16[] get-tuple-element(p), index=2
  e = u64[0,3] get-tuple-element(p), index=3
  f = f64[6] parameter(1)
  na = pred[5] not(a)
  nb = bf16[3,2] exponential(b)
  nc = c64[4] multiply(c, c)
  nd = f16[] negate(d)
  nf = s32[6] convert(f)
  ROOT r = (pred[5], bf16[3,2], (c64[4], f16[]), u64[0,3], s32[6], pred[5]) tuple(na, nb, t, e, nf, a)
  t = (c64[4], f16[]) tuple(nc, nd)
}
""".replace(
    "  ROOT r = (pred[5], bf16[3,2], (c64[4], f16[]), u64[0,3], s32[6], pred[5]) tuple(na, nb, t, e, nf, a)\n"
    "  t = (c64[4], f16[]) tuple(nc, nd)\n",
    "  t = (c64[4], f16[]) tuple(nc, nd)\n"
    "  ROOT r = (pred[5], bf16[3,2], (c64[4], f16[]), u64[0,3], s32[6], pred[5]) tuple(na, nb, t, e, nf, a)\n",
)

NOTHING = """HloModule nothing

ENTRY main {
  ROOT c = f32[3] constant({1, 2, 3})
}
"""


@pytest.mark.parametrize(
    "text", [LAYOUTS, TYPES, NOTHING], ids=lambda text: text.split()[1].strip(",")
)
def test_results_are_equal_to_the_bit(text: str, tmp_path: Path) -> None:
    same_bits(text, tmp_path)


@pytest.mark.parametrize("name", one_in(3, ["mlp_train_step", "sort", "kalman_scan"]))
def test_samples_are_equal_to_the_bit(name: str, tmp_path: Path) -> None:
    arrays = np.load(SAMPLES / f"{name}.npz")
    given = [
        arrays[f"in_{number}"] for number in range(len(arrays.files)) if f"in_{number}" in arrays
    ]
    module = hloopt.parse((SAMPLES / f"{name}.hlo").read_text())
    kinds = [one.array.dtype.numpy for one in module.entry.parameters]
    given = [
        one.view(kind) if one.dtype != kind else one for one, kind in zip(given, kinds, strict=True)
    ]
    same_bits((SAMPLES / f"{name}.hlo").read_text(), tmp_path, given)


def test_donated_inputs_may_be_their_results(tmp_path: Path) -> None:
    """A result that ``input_output_alias`` lays into an input is made there where the caller gives one pointer."""
    text = """HloModule donated, input_output_alias={ {0}: (0, {}, may-alias) }

ENTRY main {
  x = f32[8] parameter(0)
  y = f32[2] parameter(1)
  three = s32[] constant(3)
  u = f32[8] dynamic-update-slice(x, y, three)
  ROOT r = (f32[8], f32[2]) tuple(u, y)
}
"""
    found = same_bits(text, tmp_path)
    program = found.Program(1)
    x, y, z = np.arange(8, dtype=np.float32), np.full(2, 9, np.float32), np.zeros(2, np.float32)
    pointers = ctypes.c_void_p * 2
    inputs, results = (pointers(*(one.ctypes.data for one in pair)) for pair in ((x, y), (x, z)))
    assert program._run(program._context, inputs, results) == 0
    assert (x == [0, 1, 2, 9, 9, 5, 6, 7]).all()
    assert (z == 9).all()


def test_wide_products_of_bf16_are_loops_and_a_note_says_so(tmp_path: Path) -> None:
    text = """HloModule wide

ENTRY main {
  x = bf16[70,300] parameter(0)
  y = bf16[300,90] parameter(1)
  ROOT product = bf16[70,90] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    (tmp_path / "wide.hlo").write_text(text)
    out = tmp_path / "libwide.so"
    done = invoke(
        "build", str(tmp_path / "wide.hlo"), "-o", str(out), "--python", str(tmp_path / "wide.py")
    )
    assert done.exit_code == 0
    assert "note: %product: native-loop runs it, where the device native calls NumPy" in done.stderr
    x, y = (np.random.default_rng(0).normal(size=size) for size in ((70, 300), (300, 90)))
    given = [one.astype(hloopt.parse(text).entry.parameters[0].array.dtype.numpy) for one in (x, y)]
    got = loaded(tmp_path / "wide.py").Program()(*given)
    want = given[0].astype(np.float64) @ given[1].astype(np.float64)
    assert np.allclose(got.astype(np.float64), want, rtol=2**-8, atol=0.05)


# ---- weights --------------------------------------------------------------------------------------------


def test_weights_in_a_file_are_mapped(tmp_path: Path) -> None:
    found = built(SCALED, tmp_path, weights=tmp_path / "program.bin")
    x = np.ones((4, 256), np.float32)
    (want,) = natively(SCALED, [x])
    assert found.Program()(x).tobytes() == want.tobytes()
    content = (tmp_path / "program.bin").read_bytes()
    assert len(content) == 4096 + 1024
    (tmp_path / "moved").write_bytes(content)
    assert found.Program(weights=tmp_path / "moved")(x).tobytes() == want.tobytes()
    refused = "the file of weights cannot be read, or belongs to another build"
    for damaged in (content[:-1], b"x" + content[1:], b""):
        (tmp_path / "moved").write_bytes(damaged)
        with pytest.raises(RuntimeError, match=refused):
            found.Program(weights=tmp_path / "moved")
    with pytest.raises(RuntimeError, match=refused):
        found.Program(weights=tmp_path / "nowhere")
    plain = MATRIX.replace("dot(x, y)", "dot(x, x)")
    with pytest.raises(UsageError, match="matrix has no weights, and no constants in memory"):
        hloopt.build(hloopt.parse(plain), tmp_path / "other.so", weights=tmp_path / "other.bin")
    assert not (tmp_path / "other.so").exists()


@pytest.mark.parametrize("apart", [False, True])
def test_weights_of_a_model_are_no_inputs(tmp_path: Path, apart: bool) -> None:
    module = hloopt.parse(MATRIX)
    rng = np.random.default_rng(1)
    x, y = (rng.normal(size=(64, 64)).astype(np.float32) for _ in range(2))
    module.weights = {1: y}
    weights = tmp_path / "m.bin" if apart else None
    made = hloopt.build(module, tmp_path / "libm.so", python=tmp_path / "m.py", weights=weights)
    assert [one.name for one in made.interface.inputs] == ["x"]
    assert made.interface.weights == 1
    (want,) = natively(MATRIX, [x, y])
    assert loaded(tmp_path / "m.py").Program()(x=x).tobytes() == want.tobytes()


def test_a_weight_that_is_written_into_is_the_same_in_the_next_run(tmp_path: Path) -> None:
    text = """HloModule written, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY main {
  w = f32[8] parameter(0)
  y = f32[2] parameter(1)
  three = s32[] constant(3)
  v = f32[2] slice(w), slice={[3:5]}
  z = f32[2] add(v, y)
  ROOT u = f32[8] dynamic-update-slice(w, z, three)
}
"""
    module = hloopt.parse(text)
    module.weights = {0: np.arange(8, dtype=np.float32)}
    hloopt.build(module, tmp_path / "libm.so", python=tmp_path / "m.py")
    program = loaded(tmp_path / "m.py").Program()
    for _ in range(3):
        assert (program(np.ones(2, np.float32)) == [0, 1, 2, 4, 5, 5, 6, 7]).all()


def test_another_build_is_refused(tmp_path: Path) -> None:
    found = built(SCALED, tmp_path)
    built(SCALED.replace("multiply", "divide"), tmp_path)
    shutil.copy(tmp_path / "libprogram.so", tmp_path / "copy.so")
    with pytest.raises(OSError, match="another build"):
        found.Program(library=tmp_path / "copy.so")


# ---- errors at run time ---------------------------------------------------------------------------------


def test_a_loop_that_does_not_end(tmp_path: Path) -> None:
    found = built(STUCK, tmp_path, pipeline="O0")
    program = found.Program()
    four = np.arange(4, dtype=np.float32)
    with pytest.raises(RuntimeError, match="the loop does not end: iteration 1025 has not changed"):
        program(np.int32(3), four)
    assert (program(np.int32(10), four) == four).all()
    assert program._message(program._context) == b""


def test_pointers_are_checked(matrix: ModuleType) -> None:
    program = matrix.Program()
    x = np.zeros(4097, np.float32)
    pointers, single = ctypes.c_void_p * 2, ctypes.c_void_p * 1
    address = x.ctypes.data
    for inputs, result, said in (
        (pointers(address, None), address, b"input 1 (y) is a null pointer"),
        (pointers(address + 2, address), address, b"input 0 (x) is not aligned to 4 bytes"),
        (None, address, b"input 0 (x) is a null pointer"),
        (pointers(address, address), None, b"result 0 (result) is a null pointer"),
    ):
        assert program._run(program._context, inputs, single(result)) == 1
        assert program._message(program._context) == said
    assert program._run(None, pointers(address, address), single(address)) == 1


def test_threads_with_contexts_of_their_own(matrix: ModuleType) -> None:
    rng = np.random.default_rng(0)
    given = [[rng.normal(size=(64, 64)).astype(np.float32) for _ in range(2)] for _ in range(4)]
    wants = [natively(MATRIX, one)[0].tobytes() for one in given]
    results: list[bytes] = [b""] * 4

    def work(number: int) -> None:
        program = matrix.Program(2)
        made = {program(*given[number]).tobytes() for _ in range(50)}
        results[number] = b"".join(made)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert results == wants


def test_the_module_of_python_checks_arrays(matrix: ModuleType) -> None:
    program = matrix.Program()
    x = np.zeros((64, 64), np.float32)
    with pytest.raises(TypeError, match=r"y is f32\[64, 64\] \(float32\), not float64\[64, 64\]"):
        program(x, x.astype(np.float64))
    with pytest.raises(TypeError, match=r"not float32\[64\]"):
        program(x, x[0])
    for arrays, named in (((x,), {}), ((x, x, x), {}), ((x,), {"z": x}), ((x, x), {"y": x})):
        with pytest.raises(TypeError, match="the inputs are x, y"):
            program(*arrays, **named)
    assert (program(y=x, x=x) == 0).all()
    assert (program(x.T, x[::-1]) == 0).all()


def test_neither_hloopt_nor_anything_else_is_imported(matrix: ModuleType) -> None:
    code = """import sys
sys.modules["hloopt"] = None
import numpy as np
before = set(sys.modules)
import program
print(program.Program()(np.eye(64, dtype=np.float32), np.zeros((64, 64), np.float32)).sum())
print(sorted(one for one in set(sys.modules) - before if "." not in one and not one.startswith("_")))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder_of(matrix),
    )
    assert done.stdout == "0.0\n['program']\n"


# ---- names are the outside world ------------------------------------------------------------------------


def test_identifiers_are_of_their_own() -> None:
    given = ["x", "X", "a[0]", "int", "", "3d", "_Bool", "params['w1']", "x", "linux", "é", "a*/ b"]
    made = identifiers(given)
    assert made == [
        *("x", "X_2", "a_0", "int_", "x_3", "x3d", "Bool_", "params_w1"),
        *("x_4", "linux_", "x_5", "a_b"),
    ]
    assert prefix_of("libmodel") == "model"
    assert prefix_of("lib") == "lib"
    assert prefix_of("my model-v1.2") == "my_model_v1_2"
    assert prefix_of("int") == "int"
    assert c_literal('a"\\\n?1%é') == '"a\\"\\\\\\0121%"'.replace('\\"', "\\042").replace(
        "\\\\\\012", "\\134\\012\\077"
    ).replace("%", "%\\303\\251")


def test_hostile_names(tmp_path: Path) -> None:
    """Names go into comments and strings, and end neither."""
    names = ['a*/ int y; /*\\"', "%s%n$(touch pwned)`x`", "a\\\\\\nb??/", "int", "../../x", "'''"]
    lines = [
        f'  p{number} = f32[2] parameter({number}), metadata={{op_name="{name}"}}\n'
        for number, name in enumerate(names)
    ]
    given = ", ".join(f"p{number}" for number in range(len(names)))
    root = f"  ROOT r = f32[{2 * len(names)}] concatenate({given}), dimensions={{0}}\n"
    text = f"HloModule hostile\n\nENTRY main {{\n{''.join(lines)}{root}}}\n"
    found = built(text, tmp_path, "it's $(x) {}\"")
    program = found.Program()
    arrays = [np.full(2, number, np.float32) for number in range(len(names))]
    assert (program(*arrays) == np.concatenate(arrays)).all()
    last = (ctypes.c_void_p * len(names))(*(one.ctypes.data for one in arrays[:-1]), None)
    assert program._run(program._context, last, None) == 1
    assert program._message(program._context) == b"input 5 (''') is a null pointer"
    last[1] = None
    assert program._run(program._context, last, None) == 1
    assert program._message(program._context) == f"input 1 ({names[1]}) is a null pointer".encode()
    (tmp_path / "main.c").write_text('#include "it\'s $(x) {}.h"\nint main(void) { return 0; }\n')
    shutil.copy(tmp_path / "it's $(x) {}\".h", tmp_path / "it's $(x) {}.h")
    compiled(tmp_path / "main.c", tmp_path / "main")
    assert not list(tmp_path.glob("*pwned*"))


# ---- what cannot be built -------------------------------------------------------------------------------

REFUSED: dict[str, tuple[str, str]] = {
    "custom call": (
        """HloModule m

ENTRY main {
  x = f32[8,8] parameter(0)
  ROOT r = (f32[8,8], f32[8], s32[]) custom-call(x), custom_call_target="lapack_ssyevd_ffi",
    api_version=API_VERSION_TYPED_FFI, backend_config={mode = 86 : ui8, uplo = 76 : ui8}
}
""",
        "m.hlo:5:8: error: r: custom-call is run by NumPy on the device native, and a library has no Python",
    ),
    "infeed": (
        """HloModule m

ENTRY main {
  t = token[] after-all()
  i = (f32[8], token[]) infeed(t)
  ROOT r = f32[8] get-tuple-element(i), index=0
}
""",
        "m.hlo:5:3: error: i: infeed is run by NumPy on the device native, and a library has no Python",
    ),
    "packed": (
        "HloModule m\n\nENTRY main {\n  x = s4[8] parameter(0)\n  ROOT r = s4[8] add(x, x)\n}\n",
        "m.hlo:4:3: error: x: parameter has a form in memory that C has no type for: s4[8] is packed",
    ),
    "several": (
        "HloModule m, num_partitions=2\n\nENTRY main {\n  ROOT x = f32[8] parameter(0)\n}\n",
        "m is for 2 participants, and a library runs one",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_library_cannot_have(name: str, tmp_path: Path) -> None:
    text, said = REFUSED[name]
    (tmp_path / "m.hlo").write_text(text)
    output = tmp_path / "m.so"
    done = invoke("build", str(tmp_path / "m.hlo"), "-o", str(output))
    assert done.exit_code == (2 if name == "several" else 4)
    assert said in done.stderr.replace("\n", " ") if name == "several" else said in done.stderr
    assert "--allow-host" not in done.stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "m.txt"), "-o m.txt: the name of a library ends with .so, .dylib or .a"),
        (
            ("-o", "m.a", "--python", "m.py"),
            "--python loads a shared library: -o has to end with .so",
        ),
        (
            ("-o", "m.so", "--python", "m.py"),
            "--python m.py beside m.so: Python would import the library in its place; call that libm.so",
        ),
        (("-o", "m.so", "--header", "./m.so"), "two of the files to write are the same one"),
        (("-o", "missing.hlo/m.so"), "missing.hlo/m.so: "),
        ((), "nothing is to be written"),
        (("-o", "m.so", "--march", "z80"), "'z80' is not one of"),
    ],
)
def test_options_that_cannot_be(
    options: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "missing.hlo").write_text(MATRIX)
    done = invoke("build", "missing.hlo", *options)
    assert done.exit_code == 2
    assert said in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["missing.hlo"]


def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "out" / "libscaled.so"
    done = invoke("build", "-", "-o", str(out), "--json", stdin=SCALED)
    assert done.exit_code == 0, done.stderr
    row: dict[str, Any] = json.loads(done.stdout)
    assert row["prefix"] == "scaled"
    assert row["inputs"] == [
        {
            "name": "x",
            "field": "x",
            "type": "f32",
            "dims": [4, 256],
            "strides": [1024, 4],
            "bytes": 4096,
            "alignment": 4,
        }
    ]
    assert row["data_bytes"] == 1024
    shown = invoke("build", "-", "-o", str(out), stdin=SCALED).stdout.splitlines()
    assert shown == [
        f"{out}: library",
        f"scaled: 1 input, 1 result, 1024 bytes of data, {row['context_bytes']} of a context",
    ]


# ---- other processors -----------------------------------------------------------------------------------


def test_a_compiler_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "aarch64" in hloopt_machine():
        pytest.skip("this compiler makes code for aarch64")
    compilers = tmp_path / "bin"
    compilers.mkdir()
    (compilers / "c++").symlink_to(shutil.which("c++") or "c++")
    monkeypatch.setenv("PATH", str(compilers))
    monkeypatch.delenv("CXX", raising=False)
    said = r"no C\+\+ compiler for aarch64 is there: install aarch64-linux-gnu-g\+\+ .*apt install g\+\+-aarch64"
    with pytest.raises(DeviceError, match=said):
        hloopt.build(hloopt.parse(MATRIX), tmp_path / "m.so", march="aarch64")


def test_a_cross_compiler(tmp_path: Path) -> None:
    cross, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if cross is None or emulator is None or shutil.which("aarch64-linux-gnu-g++") is None:
        pytest.skip("needs aarch64-linux-gnu-g++ and qemu-aarch64")
    text = (SAMPLES / "while_loop.hlo").read_text()
    hloopt.build(
        hloopt.parse(text), tmp_path / "roots.a", header=tmp_path / "roots.h", march="aarch64"
    )
    source, program = SAMPLES / "library" / "roots.c", tmp_path / "roots"
    command = [
        cross,
        "-static",
        f"-I{tmp_path}",
        source,
        tmp_path / "roots.a",
        "-lm",
        "-o",
        program,
    ]
    subprocess.run(command, check=True, capture_output=True)
    done = subprocess.run([emulator, program], capture_output=True, text=True, check=True)
    roots = [float(line.split()[1]) for line in done.stdout.splitlines()[:-1]]
    assert np.allclose(roots, np.cbrt(np.arange(1, 9)), rtol=1e-6)


def test_a_processor_without_the_instructions(tmp_path: Path) -> None:
    """What the tables ask of the processor is asked before anything else runs."""
    if "x86_64" not in hloopt_machine():
        pytest.skip("processors of one kind only are asked")
    assert library_compiler("x86-64").features == ()
    assert {"avx2", "fma", "bmi2"} <= set(library_compiler("x86-64-v3").features)
    assert "avx512f" not in library_compiler("x86-64-v3").features
    assert "avx512vl" in library_compiler("x86-64-v4").features


@pytest.mark.parametrize("weights", [False, True])
def test_a_wheel_installs_and_runs(weights: bool, tmp_path: Path) -> None:
    """By pip, away from what built it; each file is in the record, and equal builds are equal to the byte."""
    module, x = hloopt.parse(SCALED), np.linspace(-1, 1, 1024, dtype=np.float32).reshape(4, 256)
    options: dict[str, Any] = {"weights": tmp_path / "scale.bin"} if weights else {}
    wheels = []
    for folder in ("one", "other"):
        made = hloopt.build(module, wheel=tmp_path / folder, **options)
        wheels.append(Path(made.files["wheel"]))
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    name, version, *tag = wheels[0].stem.split("-")
    assert (name, tag[:2]) == ("scaled", ["py3", "none"])
    assert made.build.startswith(version.removeprefix("0+g"))
    with ZipFile(wheels[0]) as archive:
        names = set(archive.namelist())
        table = archive.read(f"scaled-{version}.dist-info/RECORD").decode()
    assert {line.split(",")[0] for line in table.splitlines()} == names
    assert ("scaled/scale.bin" in names) is weights
    site = tmp_path / "site"
    flags = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *flags, str(wheels[0])], check=True)
    for folder in ("one", "other"):
        shutil.rmtree(tmp_path / folder)
    (result,) = natively(SCALED, [x])
    script = loaded(site / "scaled" / "__init__.py")
    assert script.Program()(x).tobytes() == result.tobytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing is to be written: give -o libNAME.so, or --wheel DIR"),
        (["-o", "libjson.so", "--wheel", "d"], "a package 'json' would stand in the way"),
        (["-o", "liblambda.so", "--wheel", "d"], "'lambda' is a keyword of Python"),
        (
            ["-o", "libx.a", "--wheel", "d"],
            "--wheel loads a shared library: -o has to end with .so",
        ),
        (["--python", "x.py"], "--python loads a shared library: name it by -o libNAME.so"),
        (["--wheel", "FILE"], "not a folder"),
        (
            ["--wheel", "d", "--weights", "libscaled.so"],
            "the package has another file of that name",
        ),
    ],
)
def test_wheels_that_cannot_be(arguments: list[str], said: str, tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(SCALED)
    given = [one.replace("FILE", str(file)) for one in arguments]
    given = [str(tmp_path / one) if one in ("d", "x.py") else one for one in given]
    found = invoke("build", str(file), *given)
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.split())
    assert not (tmp_path / "d").exists()
