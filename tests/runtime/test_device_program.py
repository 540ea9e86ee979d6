"""Plans walked over a device: same results as the interpreter, memory that is reused, few waits."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloopt
from hloopt.errors import EvaluationError, UsageError
from hloopt.interpret import Host
from hloopt.kernels.planning import plan_program
from hloopt.runtime.device import Pointer
from hloopt.runtime.device_program import descriptions
from tests.helpers.device_runs import LOOP, agree, counts, drawn
from tests.helpers.fake_device import FakeDevice, choose, fake_program
from tests.helpers.support import recorded, sample_table
from tests.passes import proof
from tests.properties.random_modules import module_text

Array = np.ndarray[Any, Any]


# ---- results ------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", range(3))
def test_random_programs_compute_what_the_interpreter_does(block: int) -> None:
    """Bit by bit, the first time and again with other inputs in the same memory."""
    for seed in range(12 * block, 12 * block + 12):
        module = hloopt.parse(module_text(random.Random(seed)))
        program = fake_program(module)
        for inputs in (drawn(module, 3), drawn(module, 40)):
            agree(module, program, inputs)


@pytest.mark.parametrize("name", ["adam", "attention", "kalman_scan", "scatter", "sort", "gather"])
def test_samples_compute_what_the_interpreter_does(name: str, samples: Path) -> None:
    """Within rounding of sums that are added in another order once layouts are made descending."""
    assert name in {row.name.split(".")[0] for row in sample_table(samples)}
    path = samples / f"{name}.hlo"
    module = hloopt.parse(path.read_text())
    arrays = np.load(path.with_suffix(".npz"))
    inputs = [arrays[key] for key in sorted(arrays, key=_number) if key.startswith("in_")]
    inputs = inputs or [arrays[key] for key in arrays]
    got = fake_program(module).run(inputs)
    for one, other in zip(hloopt.evaluate(module, inputs), got, strict=True):
        np.testing.assert_allclose(
            other.astype(np.float64), one.astype(np.float64), rtol=1e-5, atol=1e-5
        )


def _number(key: str) -> tuple[str, int]:
    stem, _, number = key.rpartition("_")
    return (stem, int(number)) if number.isdigit() else (key, 0)


@pytest.mark.every_value
@pytest.mark.corpus
@pytest.mark.parametrize("name", ["while_tuple_heavy", "segment_histogram", "mlp_sgd_train_step"])
@pytest.mark.parametrize("pipeline", ["O0", "O2"])
def test_real_programs_compute_what_xla_recorded(name: str, pipeline: str) -> None:
    """Loops, branches, scatters and donated parameters out of JAX, unoptimised and optimised."""
    stem = Path(os.environ["HLOOPT_CORPUS"]) / "jax" / name
    record = recorded(stem)
    assert record is not None
    module = hloopt.optimize(hloopt.parse(stem.with_suffix(".before.hlo").read_text()), pipeline)
    program = fake_program(module)
    assert program.plan.peak <= 1.2 * program.plan.live_bound
    for got, wanted in zip(program.run(record.inputs), record.outputs, strict=True):
        scale = np.abs(wanted.astype(np.float64)).max(initial=0)
        np.testing.assert_allclose(
            got.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=1e-4 * scale
        )


def test_narrow_types_cross_the_border_packed() -> None:
    """Elements of less than a byte are packed on the device and one a byte on the host."""
    module = hloopt.parse(
        """HloModule m
        ENTRY main {
          p = s4[5] parameter(0)
          q = u2[3,3] parameter(1)
          b = pred[3] parameter(2)
          ROOT r = (s4[5], u2[3,3], pred[3]) tuple(s4[5] negate(p), u2[3,3] add(q, q), pred[3] not(b))
        }"""
    )
    program = fake_program(module)
    sizes = [buffer.byte_size for buffer in program.plan.parameters if buffer is not None]
    assert sizes == [3, 3, 3]
    for seed in range(4):
        agree(module, program, drawn(module, seed))


def test_layouts_of_the_entry_are_those_of_its_buffers() -> None:
    """Inputs and results are logical arrays whatever the entry's layouts; nothing is moved to turn them."""
    module = hloopt.parse(
        """HloModule m
        ENTRY main {
          p = f32[2,3]{0,1} parameter(0)
          ROOT r = f32[2,3]{0,1} negate(p)
        }"""
    )
    program = fake_program(module)
    assert program.kernels == 1
    assert str(program.plan.results[0].shape) == "f32[2,3]{0,1}"
    agree(module, program, drawn(module, 1))


def test_scalars_tokens_and_nothing() -> None:
    """Scalars, arrays without elements and tokens come and go; those without bytes ask the device nothing."""
    module = hloopt.parse(
        """HloModule m
        ENTRY main {
          p = f32[] parameter(0)
          q = f32[0,4] parameter(1)
          k = token[] after-all()
          ROOT r = (f32[], f32[0,4], token[]) tuple(f32[] negate(p), f32[0,4] negate(q), k)
        }"""
    )
    program = fake_program(module)
    agree(module, program, [np.float32(3), np.zeros((0, 4), np.float32)])
    assert counts(program) == Counter(upload=1, launch=1, download=1)


# ---- control flow -------------------------------------------------------------------------------


def test_a_loop_of_known_count_never_waits() -> None:
    """Not one download but that of the result; each trip is launched as it is."""
    text = LOOP.replace("BODY", "add(i, one)").replace(
        "  j = f", "  one = f32[] constant(2)\n  j = f"
    )
    text = text.replace(
        "a = f32[] parameter(0)", "z = f32[] parameter(0)\n  a = f32[] constant(90)"
    )
    module = hloopt.parse(text.replace("f32[]", "s32[]"))
    program = fake_program(module)
    agree(module, program, [np.int32(0), np.ones(8, np.float32)])
    assert counts(program)["download"] == 1
    iterations, inside = 5, 2
    assert program.launches == program.kernels - inside + iterations * inside


def test_a_loop_of_unknown_count_asks_once_a_trip() -> None:
    """One pred is downloaded for each trip and one for the end."""
    module = hloopt.parse(LOOP.replace("BODY", "add(i, i)"))
    program = fake_program(module)
    inputs = [np.float32(7), np.ones(8, np.float32)]
    agree(module, program, inputs)
    iterations = 4  # 7, 14, 28, 56, 112
    assert counts(program)["download"] == iterations + 1 + 1


def test_a_loop_that_gets_nowhere_is_stopped() -> None:
    """It is asked now and then whether a trip changes anything, and the error names it."""
    module = hloopt.parse(
        LOOP.replace("BODY", "multiply(i, i)").replace("y = f32[8] cosine(x)", "y = f32[8] abs(x)"),
        "m",
    )
    program = fake_program(module)
    with pytest.raises(EvaluationError, match="w: the loop does not end") as found:
        program.run([np.float32(1), np.ones(8, np.float32)])
    assert found.value.line == 16
    agree(module, program, [np.float32(2), np.ones(8, np.float32)])


@pytest.mark.parametrize("selector", [-1, 0, 1, 2, 7])
def test_branches_are_chosen_by_number(selector: int) -> None:
    """A number that no branch has means the last one; only the chosen one is launched."""
    module = hloopt.parse(
        """HloModule m
        a { x = f32[4] parameter(0)
          ROOT y = f32[4] negate(x) }
        b { x = f32[4] parameter(0)
          ROOT y = f32[4] cosine(x) }
        c { x = f32[4] parameter(0)
          ROOT y = f32[4] exponential(x) }
        ENTRY main {
          n = s32[] parameter(0)
          p = f32[4] parameter(1)
          ROOT r = f32[4] conditional(n, p, p, p), branch_computations={a, b, c}
        }"""
    )
    program = fake_program(module)
    agree(module, program, [np.int32(selector), np.arange(4, dtype=np.float32)])
    assert program.kernels == 3
    assert program.launches == 1


# ---- the host -----------------------------------------------------------------------------------


def test_the_host_evaluates_what_it_may() -> None:
    """Infeed and outfeed talk to the host that the run is given, in order."""
    module = hloopt.parse(
        """HloModule m
        ENTRY main {
          k = token[] after-all()
          i = (f32[4], token[]) infeed(k)
          x = f32[4] get-tuple-element(i), index=0
          l = token[] get-tuple-element(i), index=1
          y = f32[4] negate(x)
          o = token[] outfeed(y, l), outfeed_shape=f32[4]
          ROOT z = f32[4] cosine(y)
        }"""
    )
    program = fake_program(module, allow_host=True)
    given = {"infeed_0": np.arange(4, dtype=np.float32)}
    host, other = Host(given), Host(given)
    (got,) = program.run([], host)
    (wanted,) = hloopt.evaluate(module, [], host=other)
    assert proof.identical(wanted, got)
    assert proof.identical(other.written["outfeed_0"], host.written["outfeed_0"])
    assert program.launches == 4


def test_a_library_call_runs_on_the_host_where_the_device_has_none() -> None:
    """Operands are downloaded, NumPy computes, results are uploaded; a device's own call is preferred."""
    module = hloopt.parse(
        """HloModule m
        ENTRY main {
          a = f32[2,3] parameter(0)
          b = f32[3,4] parameter(1)
          ROOT d = f32[2,4] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        }"""
    )

    def library(instruction: Any) -> Any:
        import dataclasses

        kernel, spec = choose(instruction)
        return kernel, dataclasses.replace(spec, steps=(), library="cublas")

    inputs = drawn(module, 30)
    program = fake_program(module, library)
    agree(module, program, inputs)
    assert counts(program) == Counter(upload=3, download=3)

    class Own(FakeDevice):
        def library(
            self,
            name: str,
            instruction: Any,
            operands: Sequence[Pointer],
            results: Sequence[Pointer],
        ) -> None:
            self.events.append(("library", name, instruction.name))
            self.bytes(results[0])[:] = 0

    program = fake_program(module, library, make_device=Own)
    (got,) = program.run(inputs)
    assert not got.any()
    assert counts(program) == Counter(upload=2, library=1, download=1)


# ---- the rest -----------------------------------------------------------------------------------


def test_memory_is_allocated_and_constants_uploaded_once() -> None:
    """A second run uploads its inputs and nothing else."""
    module = hloopt.parse(
        """HloModule m
        ENTRY main {
          p = f32[3] parameter(0)
          c = f32[3] constant({1, 2, 3})
          ROOT r = f32[3] add(p, c)
        }"""
    )
    program = fake_program(module)
    device = program.device
    assert isinstance(device, FakeDevice)
    assert counts(program) == Counter(upload=1)
    memory = len(device.memory)
    for _ in range(3):
        agree(module, program, [np.ones(3, np.float32)])
    assert len(device.memory) == memory == 3
    assert counts(program) == Counter(upload=4, launch=3, download=3)
    program.close()
    assert device.closed


def test_donated_parameters_are_uploaded_anew() -> None:
    """A run writes into what was donated; the caller's array and the next run know nothing of it."""
    module = hloopt.parse(
        """HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
        ENTRY main {
          p = f32[3] parameter(0)
          ROOT r = f32[3] add(p, p)
        }"""
    )
    program = fake_program(module)
    given = np.ones(3, np.float32)
    for _ in range(2):
        (got,) = program.run([given])
        assert got.tolist() == [2, 2, 2]
    assert given.tolist() == [1, 1, 1]


def test_functions_are_described_by_their_instructions() -> None:
    """The device is told which instruction each function runs."""
    ready = hloopt.optimize(
        hloopt.parse(
            "HloModule m\nENTRY e { p = f32[3] parameter(0)\n ROOT r.1 = f32[3] negate(p) }"
        ),
        "device",
    )
    assert descriptions(plan_program(ready, choose)) == {"hlo_r_1": "r.1"}


def test_wrong_inputs_and_several_participants_are_refused() -> None:
    """With the interpreter's words for inputs; by a plain sentence for participants."""
    text = "HloModule m\nENTRY e { p = f32[3] parameter(0)\n ROOT r = f32[3] negate(p) }"
    program = fake_program(hloopt.parse(text))
    with pytest.raises(EvaluationError, match="1 parameter array, but 0 inputs"):
        program.run([])
    with pytest.raises(EvaluationError, match="has dimensions"):
        program.run([np.zeros(4, np.float32)])
    with pytest.raises(EvaluationError, match="2 lists of inputs"):
        program.run_participants([[], []])
    assert len(program.run_participants([[np.zeros(3, np.float32)]])) == 1
    several = hloopt.parse(text.replace("HloModule m", "HloModule m, replica_count=2"))
    with pytest.raises(UsageError, match="replica_count=2: a device runs one participant"):
        fake_program(several)


def test_progress_counts_steps_of_the_entry() -> None:
    """Another thread can see how far a run is."""
    module = hloopt.parse(
        "HloModule m\nENTRY e { p = f32[3] parameter(0)\n a = f32[3] negate(p)\n ROOT r = f32[3] cosine(a) }"
    )
    program = fake_program(module)
    program.run([np.zeros(3, np.float32)])
    assert program.progress.total == 2
