"""Infeed, outfeed and transfers with the host: queues of arrays, in the order in which instructions run."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hloopt
from hloopt.errors import EvaluationError, UsageError
from hloopt.runtime.inputs import generate_all
from hloopt.types import DTYPES
from tests.helpers.rarely import examples
from tests.semantics.elements import ELEMENTS, drawn_dims, seeds, shape_of, values

OPCODES = ("infeed", "outfeed", "recv", "recv-done", "send", "send-done")


def run(text, given=None, inputs=(), seed=0):
    """Results and what was written: of the interpreter, the executor, and both of the optimised module."""
    module = hloopt.parse(text, "host")
    hloopt.verify(module)
    answers = []
    for form in (module, hloopt.optimize(module, "O2")):
        for evaluate in (hloopt.evaluate, lambda m, i, host: hloopt.compile(m).run(i, host)):
            host = hloopt.Host(given, seed=seed)
            answers.append((evaluate(form, list(inputs), host=host), host.written))
    return answers


def holds(text, given, results, written, inputs=()):
    """Every form of the module gives these results and writes these arrays, by name and bit for bit."""
    for got, put in run(text, given, inputs):
        assert [array.tobytes() for array in got] == [array.tobytes() for array in results]
        assert [array.dtype for array in got] == [array.dtype for array in results]
        assert list(put) == list(written)
        for name, array in written.items():
            assert put[name].dtype == array.dtype
            assert put[name].shape == array.shape
            assert put[name].tobytes() == array.tobytes()


# ---- one transfer ---------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(ELEMENTS), drawn_dims()), max_size=4), seeds)
@settings(max_examples=examples(40))
def test_the_elements_of_a_tuple_are_arrays_of_their_own(shapes, chooser):
    """Read and written depth first, in every element type."""
    arrays = [values(name, dims, chooser) for name, dims in shapes]
    texts = [shape_of(name, dims) for name, dims in shapes]
    # The first two in a tuple within the tuple.
    inner = f"(({', '.join(texts[:2])}), {', '.join(texts[2:])})" if len(texts) > 2 else None
    data = inner or f"({', '.join(texts)})"
    text = f"""HloModule m

ENTRY e {{
  start = token[] after-all()
  fed = ({data}, token[]) infeed(start)
  data = {data} get-tuple-element(fed), index=0
  then = token[] get-tuple-element(fed), index=1
  ROOT end = token[] outfeed(data, then), outfeed_shape={data}
}}
"""
    given = {f"infeed_{number}": array for number, array in enumerate(arrays)}
    holds(text, given, [], {f"outfeed_{number}": array for number, array in enumerate(arrays)})


TRANSFER = """HloModule m

ENTRY e {{
  x = {shape} parameter(0)
  start = token[] after-all()
  sent = ({shape}, u32[], token[]) send(x, start), channel_id={out}, is_host_transfer=true
  gone = token[] send-done(sent), channel_id={out}, is_host_transfer=true
  asked = ({shape}, u32[], token[]) recv(gone), channel_id={back}, is_host_transfer=true
  got = ({shape}, token[]) recv-done(asked), channel_id={back}, is_host_transfer=true
  ROOT y = {shape} get-tuple-element(got), index=0
}}
"""


@given(st.sampled_from(ELEMENTS), drawn_dims(), st.integers(1, 9), st.integers(10, 19), seeds)
@settings(max_examples=examples(40))
def test_channels_are_streams_of_their_own(name, dims, out, back, chooser):
    """What is sent goes out under the channel's number, what is received comes under its own."""
    sent, received = values(name, dims, chooser), values(name, dims, chooser)
    text = TRANSFER.format(shape=shape_of(name, dims), out=out, back=back)
    holds(text, {f"recv_{back}_0": received}, [received], {f"send_{out}_0": sent}, [sent])


# ---- programs -------------------------------------------------------------------------------------

ACTIONS = st.one_of(
    st.tuples(st.just("infeed")),
    st.tuples(st.just("outfeed"), st.integers(0, 9)),
    st.tuples(st.just("recv"), st.integers(3, 4)),
    st.tuples(st.just("send"), st.integers(1, 2), st.integers(0, 9)),
    st.tuples(st.just("add"), st.integers(0, 9), st.integers(0, 9)),
)


def body_of(actions, start):
    """Instructions for actions on ``s32[2]`` values, of which ``start`` is the first; the last value's name."""
    lines, known, token = [], [start], "start"
    for at, (what, *words) in enumerate(actions):
        if what == "add":
            left, right = (known[word % len(known)] for word in words)
            lines.append(f"v{at} = s32[2] add({left}, {right})")
            known.append(f"v{at}")
        elif what == "infeed":
            lines.append(f"i{at} = (s32[2], token[]) infeed({token})")
            lines.append(f"v{at} = s32[2] get-tuple-element(i{at}), index=0")
            lines.append(f"t{at} = token[] get-tuple-element(i{at}), index=1")
            known.append(f"v{at}")
            token = f"t{at}"
        elif what == "outfeed":
            value = known[words[0] % len(known)]
            lines.append(f"t{at} = token[] outfeed({value}, {token})")
            token = f"t{at}"
        else:
            marks = f"channel_id={words[0]}, is_host_transfer=true"
            state = "(s32[2], u32[], token[])"
            if what == "send":
                value = known[words[1] % len(known)]
                lines.append(f"open{at} = {state} send({value}, {token}), {marks}")
                lines.append(f"t{at} = token[] send-done(open{at}), {marks}")
            else:
                lines.append(f"open{at} = {state} recv({token}), {marks}")
                lines.append(f"d{at} = (s32[2], token[]) recv-done(open{at}), {marks}")
                lines.append(f"v{at} = s32[2] get-tuple-element(d{at}), index=0")
                lines.append(f"t{at} = token[] get-tuple-element(d{at}), index=1")
                known.append(f"v{at}")
            token = f"t{at}"
    return lines, known[-1], token


def told(actions, value, queues, written):
    """What the actions do, with lists of numbers for arrays; the last value."""
    known = [value]
    for what, *words in actions:
        if what == "add":
            left, right = (known[word % len(known)] for word in words)
            known.append([wrapped(a + b) for a, b in zip(left, right, strict=True)])
        elif what in ("infeed", "recv"):
            known.append(queues["_".join([what, *map(str, words)])].pop(0))
        else:
            stream = "_".join([what, *map(str, words[:-1])])
            number = sum(name.rpartition("_")[0] == stream for name in written)
            written[f"{stream}_{number}"] = known[words[-1] % len(known)]
    return known[-1]


def wrapped(number):
    """A number as s32."""
    return (number + 2**31) % 2**32 - 2**31


PROGRAM = """HloModule m

once {{
  x = s32[2] parameter(0)
  start = token[] after-all()
  {once}
}}

never {{
  ROOT x = s32[2] parameter(0)
}}

step {{
  s = (s32[], s32[2], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s32[2] get-tuple-element(s), index=1
  start = token[] get-tuple-element(s), index=2
  one = s32[] constant(1)
  n = s32[] add(i, one)
  {step}
}}

more {{
  s = (s32[], s32[2], token[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  e = s32[] constant({iterations})
  ROOT c = pred[] compare(i, e), direction=LT
}}

ENTRY e {{
  x = s32[2] parameter(0)
  p = pred[] parameter(1)
  zero = s32[] constant(0)
  first = s32[2] call(x), to_apply=once
  second = s32[2] conditional(p, first, first), true_computation=once, false_computation=never
  third = s32[2] call(second), to_apply=once
  start = token[] after-all()
  s = (s32[], s32[2], token[]) tuple(zero, third, start)
  w = (s32[], s32[2], token[]) while(s), condition=more, body=step
  ROOT r = s32[2] get-tuple-element(w), index=1
}}
"""


@given(
    st.lists(ACTIONS, max_size=4),
    st.lists(ACTIONS, max_size=5),
    st.integers(0, 3),
    st.booleans(),
    st.integers(0, 2**32),
)
@settings(max_examples=examples(40))
def test_streams_are_read_and_written_in_the_order_of_execution(
    once, step, iterations, taken, seed
):
    """Through calls, a conditional and a loop, as given and optimised."""
    chooser = random.Random(seed)
    counts = {"infeed": 0, "recv_3": 0, "recv_4": 0}
    runs = (once, *([once] if taken else []), once, *([step] * iterations))
    for what, *words in (action for actions in runs for action in actions):
        if what in ("infeed", "recv"):
            counts["_".join([what, *map(str, words)])] += 1
    queues = {
        stream: [[chooser.randrange(-(2**31), 2**31) for _ in range(2)] for _ in range(count)]
        for stream, count in counts.items()
    }
    given = {
        f"{stream}_{number}": np.array(pair, np.int32)
        for stream, pairs in queues.items()
        for number, pair in enumerate(pairs)
    }
    lines, last, token = body_of(step, "x")
    lines.append(f"ROOT r = (s32[], s32[2], token[]) tuple(n, {last}, {token})")
    callee, result, _ = body_of(once, "x")
    callee.append(f"ROOT r = s32[2] copy({result})")
    text = PROGRAM.format(once="\n  ".join(callee), step="\n  ".join(lines), iterations=iterations)

    x = [chooser.randrange(-99, 99) for _ in range(2)]
    written: dict[str, list[int]] = {}
    value = x
    for actions in runs:
        value = told(actions, value, queues, written)
    assert not any(queues.values())
    for got, put in run(text, given, [np.array(x, np.int32), np.array(taken)]):
        assert [array.tolist() for array in got] == [value]
        assert {name: array.tolist() for name, array in put.items()} == written


def test_what_is_written_stays_what_it_was():
    """A buffer that is updated in place afterwards does not change what went out before."""
    text = """HloModule m

step {
  s = (s32[], s32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  start = token[] after-all()
  t = token[] outfeed(x, start)
  nine = s32[1] constant({9})
  y = s32[4] dynamic-update-slice(x, nine, i)
  u = (s32[4], u32[], token[]) send(y, t), channel_id=1, is_host_transfer=true
  d = token[] send-done(u), channel_id=1, is_host_transfer=true
  ROOT r = (s32[], s32[4]) tuple(n, y)
}

more {
  s = (s32[], s32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  e = s32[] constant(3)
  ROOT c = pred[] compare(i, e), direction=LT
}

ENTRY e {
  x = s32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], s32[4]) tuple(zero, x)
  w = (s32[], s32[4]) while(s), condition=more, body=step
  ROOT r = s32[4] get-tuple-element(w), index=1
}
"""
    stages = [np.array([*[9] * count, *[1] * (4 - count)], np.int32) for count in range(4)]
    pairs = [(f"outfeed_{at}", stages[at]) for at in range(3)]
    pairs += [(f"send_1_{at}", stages[at + 1]) for at in range(3)]
    for got, put in run(text, {}, [np.ones(4, np.int32)]):
        assert got[0].tolist() == [9, 9, 9, 1]
        assert {name: array.tolist() for name, array in put.items()} == {
            name: array.tolist() for name, array in pairs
        }


# ---- streams that are drawn, end, or do not fit ---------------------------------------------------

FEED = """HloModule m

ENTRY e {
  start = token[] after-all()
  one = (f32[2], token[]) infeed(start)
  after = token[] get-tuple-element(one), index=1
  two = (f32[2], token[]) infeed(after)
  x = f32[2] get-tuple-element(one), index=0
  y = f32[2] get-tuple-element(two), index=0
  ROOT t = (f32[2], f32[2]) tuple(x, y)
}
"""


def test_nothing_given_is_drawn_from_the_seed():
    """The array of a number is the same in every form of the module; another seed gives other ones."""
    answers = run(FEED, seed=1)
    first = [array.tobytes() for array in answers[0][0]]
    for got, _ in answers:
        assert [array.tobytes() for array in got] == first
    others = [array.tobytes() for array in run(FEED, seed=2)[0][0]]
    assert len({*first, *others}) == 4


TWO = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"infeed_0": TWO},
            "host:7:3: two: infeed_1 is not given: the stream ends after infeed_0",
        ),
        (
            {"infeed_0": TWO, "infeed_1": np.zeros(3, np.float32)},
            "host:7:3: two: infeed_1 has dimensions [3], but f32[2] is to be read",
        ),
        (
            {"infeed_0": np.zeros(2), "infeed_1": TWO},
            "host:5:3: one: infeed_0 is f32, but the input is float64",
        ),
    ],
)
def test_an_array_that_is_missing_or_does_not_fit_is_named_with_its_place(given, message):
    """By the interpreter and by the executor, at the instruction that wants it."""
    module = hloopt.parse(FEED, "host")
    for evaluate in (hloopt.evaluate, lambda m, i, host: hloopt.compile(m).run(i, host)):
        with pytest.raises(EvaluationError) as error:
            evaluate(module, [], host=hloopt.Host(given))
        assert error.value.message == message


NO_NAME = "is not the name of an array for the host; these are infeed_0, infeed_1, ... and recv_CHANNEL_0, ..."


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["infeed_0", "infeed_2"], "infeed_1 is missing, infeed_2 is given"),
        (["recv_3_1"], "recv_3_0 is missing, recv_3_1 is given"),
        (["infeed_1.2"], "infeed_0.2 is missing, infeed_1.2 is given"),
        (["infeed0"], f"'infeed0' {NO_NAME}"),
        (["recv_0"], f"'recv_0' {NO_NAME}"),
        (["infeed_00"], f"'infeed_00' {NO_NAME}"),
    ],
)  # fmt: skip
def test_names_that_make_no_streams_are_refused(names, message):
    """A name that is none, and a number that is left out."""
    with pytest.raises(UsageError) as error:
        hloopt.Host(dict.fromkeys(names, TWO))
    assert error.value.message == message


def test_a_negative_seed_is_refused():
    """Where the host is made, not where it first draws."""
    with pytest.raises(UsageError, match="a seed must be non-negative, got -1"):
        hloopt.Host(seed=-1)


def test_a_host_goes_on_where_it_is_and_can_be_restarted():
    """Streams, numbers of what is written, and what nobody has read."""
    text = FEED.replace(
        "ROOT t = (f32[2], f32[2]) tuple(x, y)", "ROOT t = token[] outfeed(y, after)"
    )
    given = {f"infeed_{at}": np.full(2, at, np.float32) for at in range(5)}
    module = hloopt.parse(text)
    host = hloopt.Host(given)
    for _ in range(2):
        hloopt.evaluate(module, [], host=host)
    assert {name: array.tolist() for name, array in host.written.items()} == {
        "outfeed_0": [1, 1],
        "outfeed_1": [3, 3],
    }
    assert host.unread == ["infeed_4"]
    fresh = host.restarted()
    hloopt.compile(module).run([], fresh)
    assert fresh.written["outfeed_0"].tolist() == [1, 1]
    assert fresh.unread == ["infeed_2", "infeed_3", "infeed_4"]


def test_a_dynamic_dimension_takes_any_size_up_to_its_bound():
    """The array has its own size; a larger one is refused."""
    text = """HloModule m

ENTRY e {
  start = token[] after-all()
  fed = (f32[<=4,2], token[]) infeed(start)
  x = f32[<=4,2] get-tuple-element(fed), index=0
  after = token[] get-tuple-element(fed), index=1
  y = f32[<=4,2] add(x, x)
  ROOT t = token[] outfeed(y, after)
}
"""
    for size in (0, 3, 4):
        given = np.arange(size * 2, dtype=np.float32).reshape(size, 2)
        for _, put in run(text, {"infeed_0": given}):
            assert put["outfeed_0"].tolist() == [[4 * at, 4 * at + 2] for at in range(size)]
    with pytest.raises(
        EvaluationError, match=r"infeed_0 has dimensions \[5, 2\], but f32\[<=4,2\]"
    ):
        run(text, {"infeed_0": np.zeros((5, 2), np.float32)})


def test_what_is_drawn_is_not_what_parameters_are():
    """No stream begins with the data of a parameter, of whichever participant."""
    module = hloopt.parse(FEED.replace("start = token", "p = f32[2] parameter(0)\n  start = token"))
    inputs = [array.tolist() for some in generate_all(module, 0, 3, 1) for array in some]
    fed = [array.tolist() for array in hloopt.evaluate(module, [np.zeros(2, np.float32)])]
    assert not [array for array in fed if array in inputs]


def test_types_that_numpy_lacks_come_and_go_as_their_bits():
    """bf16 given as uint16; what is written has the type itself."""
    text = FEED.replace("f32", "bf16").replace(
        "ROOT t = (bf16[2], bf16[2]) tuple(x, y)", "ROOT t = token[] outfeed(y, after)"
    )
    bits = np.array([0x3F80, 0xC000], np.uint16)
    for _, put in run(text, {"infeed_0": bits, "infeed_1": bits}):
        assert put["outfeed_0"].dtype == DTYPES["bf16"].numpy
        assert [float(value) for value in put["outfeed_0"]] == [1, -2]


def test_participants_have_streams_of_their_own():
    """Each reads what all may read from its start, and what is written says who has written it."""
    text = FEED.replace(
        "ROOT t = (f32[2], f32[2]) tuple(x, y)", "ROOT t = token[] outfeed(y, after)"
    )
    given = {
        "infeed_0": np.full(2, 7, np.float32),
        "infeed_1": np.full(2, 8, np.float32),
        "infeed_0.1": np.full(2, 5, np.float32),
        "infeed_1.1": np.full(2, 6, np.float32),
    }
    host = hloopt.Host(given)
    module = hloopt.parse(text)
    for number in range(3):
        hloopt.evaluate(module, [], host=host.of(number))
    assert {name: array.tolist() for name, array in host.written.items()} == {
        "outfeed_0.0": [8, 8],
        "outfeed_0.1": [6, 6],
        "outfeed_0.2": [8, 8],
    }
    drawn = hloopt.Host(seed=4)
    plain = hloopt.parse(FEED)
    numbers = [hloopt.evaluate(plain, [], host=drawn.of(at))[0].tolist() for at in range(2)]
    assert numbers[0] != numbers[1]
