"""Asynchronous ops, transfers and threads: each constraint broken, and its valid neighbour."""

from __future__ import annotations

import pytest

from tests.helpers.neighbours import Pair, check_pair

WRAPPED = """
HloModule m
c {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p)
}
other {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p)
}
threaded {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p)
}, execution_thread="slow"
ENTRY e {
  p = f32[4] parameter(0)
"""
START = "  s = ((f32[4]), f32[4], u32[]) async-start(p), calls="
TRANSFER = """
HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  t = token[] after-all()
"""

PAIRS = [
    Pair(
        "a start is used by its end alone",
        "async-chain",
        f"{WRAPPED}{START}c\n  d = f32[4] async-done(s)\n  ROOT r = <>\n}}",
        "f32[4] negate(d)",
        "(f32[4], ((f32[4]), f32[4], u32[])) tuple(d, s)",
        16,
        "%s: is used by %d (async-done), %r (tuple); it must be used by one async-update or async-done",
    ),
    Pair(
        "a start is used",
        "async-chain",
        f"{WRAPPED}{START}c\n<>\n  ROOT r = f32[4] negate(p)\n}}",
        "  d = f32[4] async-done(s)",
        "",
        16,
        "%s: is used by nothing; it must be used by one async-update or async-done",
    ),
    Pair(
        "an end ends what was started",
        "async-chain",
        f"{WRAPPED}  q = ((f32[4]), f32[4], u32[]) <>, calls=c\n  ROOT d = f32[4] async-done(q)\n}}",
        "async-start(p)",
        'custom-call(p), custom_call_target="f", to_apply=c, api_version=API_VERSION_ORIGINAL',
        17,
        "%d: ends or goes on with %q, which is custom-call, not async-start or async-update",
    ),
    Pair(
        "an update stands between a start and an end",
        "async-chain",
        f"{WRAPPED}{START}c\n"
        "  u = ((f32[4]), f32[4], u32[]) async-update(s)\n<>  ROOT r = f32[4] negate(p)\n}",
        "  d = f32[4] async-done(u)\n",
        "",
        17,
        "%u: is used by nothing; it must be used by one async-update or async-done",
    ),
    Pair(
        "an end calls what the start calls",
        "async-chain",
        f"{WRAPPED}{START}c\n  ROOT d = f32[4] async-done(s), calls=<>\n}}",
        "c",
        "other",
        17,
        "%d: calls= is %other, %s calls %c",
    ),
    Pair(
        "an end through updates calls what the start calls",
        "async-chain",
        f"{WRAPPED}{START}c\n  u = ((f32[4]), f32[4], u32[]) async-update(s)\n"
        "  ROOT d = f32[4] async-done(u), calls=<>\n}",
        "c",
        "other",
        18,
        "%d: calls= is %other, %s calls %c",
    ),
    Pair(
        "an end is on the thread of the start",
        "execution-thread",
        f'{WRAPPED}{START}c, async_execution_thread="slow"\n'
        '  ROOT d = f32[4] async-done(s), async_execution_thread="<>"\n}',
        "slow",
        "quick",
        17,
        "%d: async_execution_thread='quick', that of %s is 'slow'",
    ),
    Pair(
        "a start is on the thread of what it calls",
        "execution-thread",
        f'{WRAPPED}{START}threaded, async_execution_thread="<>"\n  ROOT d = f32[4] async-done(s)\n}}',
        "slow",
        "quick",
        16,
        "%s: async_execution_thread='quick', %threaded runs on 'slow'",
    ),
    Pair(
        "a fusion stays on its thread",
        "execution-thread",
        f"{WRAPPED}  ROOT f = f32[4] fusion(p), kind=kLoop, calls=<>\n}}",
        "c",
        "threaded",
        16,
        "%f: runs on thread 'main' and calls %threaded, which runs on 'slow'",
    ),
    Pair(
        "what runs on a thread calls what runs there",
        "execution-thread",
        """
HloModule m
body {
  p = f32[4] parameter(0)
  ROOT n = f32[4] negate(p)
}, execution_thread="<>"
c {
  p = f32[4] parameter(0)
  ROOT n = f32[4] fusion(p), kind=kLoop, calls=body
}, execution_thread="slow"
ENTRY e {
  p = f32[4] parameter(0)
  s = ((f32[4]), f32[4], u32[]) async-start(p), async_execution_thread="slow", calls=c
  ROOT d = f32[4] async-done(s)
}
""",
        "slow",
        "main",
        8,
        "%n: runs on thread 'slow' and calls %body, which runs on 'main'",
    ),
    Pair(
        "an async-start wraps one op",
        "async-computation",
        """
HloModule m
c {
  p = f32[4] parameter(0)
  m = f32[4] negate(p)
  ROOT n = f32[4] negate(<>)
}
ENTRY e {
  p = f32[4] parameter(0)
  s = ((f32[4]), f32[4], u32[]) async-start(p), calls=c
  ROOT d = f32[4] async-done(s)
}
""".replace("  m = f32[4] negate(p)\n  ROOT n = f32[4] negate(<>)\n", "<>"),
        "  ROOT n = f32[4] negate(p)\n",
        "  m = f32[4] negate(p)\n  ROOT n = f32[4] negate(m)\n",
        2,
        "computation %c: is wrapped by %s and has %m beside its root",
    ),
    Pair(
        "an async-start may wrap a marked group of collectives",
        "async-computation",
        """
HloModule m
c {
  p = f32[4] parameter(0)
  m = f32[4] negate(p)
  ROOT n = f32[4] negate(m)
}
ENTRY e {
  p = f32[4] parameter(0)
  s = ((f32[4]), f32[4], u32[]) async-start(p), calls=c, frontend_attributes={<>=""}
  ROOT d = f32[4] async-done(s)
}
""",
        "_collectives_group",
        "_another_group",
        2,
        "computation %c: is wrapped by %s and has %m beside its root",
    ),
    Pair(
        "a copy is ended by its own op",
        "async-chain",
        """
HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  s = (f32[4], f32[4], u32[]) copy-start(p)
  d = f32[4] copy-done(s)
  ROOT r = <>
}
""",
        "f32[4] negate(d)",
        "(f32[4], (f32[4], f32[4], u32[])) tuple(d, s)",
        4,
        "%s: is used by %d (copy-done), %r (tuple); it must be used by one copy-done",
    ),
    Pair(
        "a copy that is ended was started",
        "async-chain",
        """
HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  u = u32[] constant(0)
  s = (f32[4], f32[4], u32[]) <>
  ROOT d = f32[4] copy-done(s)
}
""",
        "copy-start(p)",
        "tuple(p, p, u)",
        6,
        "%d: ends or goes on with %s, which is tuple, not copy-start",
    ),
    Pair(
        "an all-reduce is ended once",
        "async-chain",
        """
HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
ENTRY e {
  p = f32[4] parameter(0)
  s = f32[4] all-reduce-start(p), to_apply=sum
  d = f32[4] all-reduce-done(s)
  ROOT r = f32[4] add(d, <>)
}
""",
        "d",
        "s",
        9,
        "%s: is used by %d (all-reduce-done), %r (add); it must be used by one all-reduce-done",
    ),
    Pair(
        "a permutation that is ended was started",
        "async-chain",
        """
HloModule m
ENTRY e {
  p = f32[4] parameter(0)
  s = (f32[4], f32[4]) <>
  ROOT d = f32[4] collective-permute-done(s)
}
""",
        "collective-permute-start(p), source_target_pairs={{0,1}}",
        "tuple(p, p)",
        5,
        "%d: ends or goes on with %s, which is tuple, not collective-permute-start",
    ),
    Pair(
        "a transfer is ended by its own op",
        "async-chain",
        f"{TRANSFER}  s = (f32[4], u32[], token[]) send(p, t), channel_id=1\n"
        "  d = token[] send-done(s), channel_id=1\n  ROOT r = <>\n}",
        "f32[4] negate(p)",
        "((f32[4], u32[], token[])) tuple(s)",
        5,
        "%s: is used by %d (send-done), %r (tuple); it must be used by one send-done or tuple",
    ),
    Pair(
        "both ends of a transfer name one channel",
        "channel",
        f"{TRANSFER}  s = (f32[4], u32[], token[]) send(p, t), channel_id=1\n"
        "  ROOT d = token[] send-done(s), channel_id=<>\n}",
        "1",
        "2",
        5,
        "%s: channel_id=1, %d has 2",
    ),
    Pair(
        "both ends of a transfer are of one kind",
        "channel",
        f"{TRANSFER}  s = (f32[4], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true\n"
        "  ROOT d = (f32[4], token[]) recv-done(s), channel_id=1<>\n}",
        ", is_host_transfer=true",
        "",
        5,
        "%s: is_host_transfer=true, %d has 0",
    ),
    Pair(
        "transfers with the host on one channel are alike",
        "channel",
        f"{TRANSFER}  s = (f32[4], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true\n"
        "  d = (f32[4], token[]) recv-done(s), channel_id=1, is_host_transfer=true\n"
        "  again = (f32[<>], u32[], token[]) recv(t), channel_id=1, is_host_transfer=true\n"
        "  ROOT end = (f32[<>], token[]) recv-done(again), channel_id=1, is_host_transfer=true\n}",
        "4",
        "5",
        7,
        "%again: channel_id=1 to the host is also that of %s, which is recv of (f32[4], u32[], token[])",
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.name for pair in PAIRS])
def test_chains(pair: Pair) -> None:
    """The neighbour passes, the broken text is refused by name and line."""
    check_pair(pair)
