"""What the product gives, recorded at one commit and compared at another: what guards a restructuring.

    baseline.py check                  record this state; compare it with the oldest ancestor that was recorded
    baseline.py record                 record this state, as COMMIT (COMMIT-DIGEST where the product is not committed)
    baseline.py compare OLD [NEW]      compare two records, or one with this state, which is recorded first
    baseline.py show ITEM OLD [NEW]    how an item differs: a unified diff of texts, a table of kernels

Of samples, corpus (HLOOPT_CORPUS) and random modules: optimised text, plans, bits of results, machine code; what the
golden cases answer; and how large the product is.  Texts, plans and bits must be equal; of machine code no kernel may be
more than 2 % longer or spill more.  Exit 1 where something differs otherwise.

A run that was stopped goes on where it was; rows of another record whose product, subject and questions are the same
are taken over.  ``--part``, ``--item`` and ``--only`` restrict everything; ``baseline_items.py`` says what is asked of which part,
``baseline_child.py`` what the answers are.  Records are of one machine: bits depend on its processor and its BLAS.
"""

from __future__ import annotations

import argparse
import difflib
import os
import platform
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from hloopt.workers.pool import answers
from hloopt.workers.process import Worker
from hloopt.workers.records import TaskAnswer, WorkerTask
from tests.baseline.baseline_child import Subject, work
from tests.baseline.baseline_compare import Comparison, compare, report
from tests.baseline.baseline_items import (
    KINDS,
    Item,
    belongs,
    corpus_items,
    golden_items,
    random_items,
    sample_items,
)
from tests.baseline.baseline_store import Record, Store
from tests.baseline.product_tokens import size
from tests.corpus.store import digest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

STORE = ROOT / ".corpus" / "baseline"
TARGET = "h200"
WAIT = 1200.0  # seconds for an answer, the compilers' time included
MEMORY = 12 << 30
SECONDS = 120  # ... of which this many may be the processor's in our own process
RANDOM = 2_000
_QUIET = {"HLOOPT_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
Row = dict[str, Any]


@dataclass(frozen=True)
class Chosen:
    """What the command line restricts a run to; empty tuples are everything."""

    parts: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    random: int = RANDOM
    workers: int = 1
    target: str = TARGET
    anew: bool = False

    def wants(self, name: str, part: str, kind: str) -> bool:
        """Whether a kind of an item of a part is asked for."""
        named = not self.names or any(fnmatchcase(name, pattern) for pattern in self.names)
        return named and belongs(part, self.parts) and (not self.kinds or kind in self.kinds)


# ---- which state this is --------------------------------------------------------------------------------------


def product_digest() -> str:
    """A hash of everything an answer depends on beside its subject."""
    found = [
        path
        for folder in ("hloopt", "grammar")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    ]
    return digest([*found, HERE / "baseline_child.py", HERE / "machine_code.py"])


def state_name(product: str) -> str:
    """The commit, and a part of the product's hash where the product is not what was committed."""
    commit = _git("rev-parse", "HEAD").strip()[:10]
    changed = _git("status", "--porcelain", "--", "hloopt", "grammar").strip()
    return f"{commit}-{product[:8]}" if changed else commit


def oldest_ancestor(store: Store, name: str) -> str | None:
    """The recorded commit that is furthest back from this one."""
    names = set(store.names()) - {name}
    found = [commit[:10] for commit in _git("rev-list", "HEAD").split() if commit[:10] in names]
    return found[-1] if found else None


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def machine() -> Row:
    """What else the bits of results depend on."""
    import numpy as np

    processor = platform.processor() or platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        lines = cpus.read_text().splitlines()
        processor = next((line.partition(": ")[2] for line in lines if "model name" in line), "")
    return {
        "processor": processor,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def subject_digest(subject: Subject) -> str:
    """A hash of a module and of the inputs beside it."""
    if not subject.path:
        return digest([], f"{subject.seed} {subject.text}")
    path = Path(subject.path)
    stem = path.with_name(path.name.split(".")[0])
    golden = stem.parent.parent / "golden" / stem.name
    beside = [one.with_name(one.name + end) for one in (stem, golden) for end in (".npz", ".json")]
    return digest([path, *(one for one in beside if one.exists())])


# ---- recording ------------------------------------------------------------------------------------------------


def items(store: Store, chosen: Chosen) -> Iterator[Item]:
    """All that are chosen; says where there is no corpus."""
    yield from sample_items()
    if corpus := os.environ.get("HLOOPT_CORPUS"):
        yield from corpus_items(Path(corpus))
    if belongs("random", chosen.parts):
        yield from random_items(store, chosen.random)
    yield from golden_items()


def record(store: Store, record: Record, chosen: Chosen, like: Record | None = None) -> None:
    """Ask whatever is not known of this state; of ``like`` only what it has."""
    product = product_digest()
    record.begin({"product": product, "target": chosen.target, **machine()})
    known = [] if chosen.anew else [store.record(name) for name in store.names()]
    waiting: list[_Asked] = []
    for item in items(store, chosen):
        kinds = [
            kind
            for kind in KINDS
            if chosen.wants(item.name, item.part, kind) and item.aspects(kind)
        ]
        if like is not None:
            kinds = [kind for kind in kinds if (item.name, kind) in like.rows]
        if not kinds:
            continue
        content = subject_digest(item.subject)
        for kind in kinds:
            state = digest([], f"{product} {content} {chosen.target} {item.aspects(kind)}")
            if not _taken_over(record, known, (item.name, kind), state):
                waiting.append(_Asked(item, kind, state))
    if chosen.wants("product", "product", "tokens"):
        key, state = ("product", "tokens"), digest([], product)
        if not _taken_over(record, known, key, state):
            row = {"item": key[0], "kind": key[1], "part": key[0], "state": state}
            record.add({**row, "found": size(), "cpu": 0.0})
    if waiting:
        _ask(store, record, chosen, waiting)


def _taken_over(record: Record, known: Sequence[Record], key: tuple[str, str], state: str) -> bool:
    for one in known:
        row = one.rows.get(key)
        if row is not None and row["state"] == state:
            if one.path != record.path:
                record.add(row)
            return True
    return False


@dataclass(frozen=True)
class _Asked:
    """A row to be made: what is asked of an item, and the state that the answers are of."""

    item: Item
    kind: str
    state: str

    def tasks(self) -> Iterator[WorkerTask]:
        """A question for each aspect; those of an item are of one worker."""
        for word in self.item.aspects(self.kind):
            question = [asdict(self.item.subject), [self.kind, *word.split()]]
            key = f"{self.item.name} {self.kind} {word}"
            yield WorkerTask(key, question, self.item.name)


def _ask(store: Store, record: Record, chosen: Chosen, waiting: Sequence[_Asked]) -> None:
    """Let workers answer, and say how far they are."""
    asks = ("-m", "tests.baseline.baseline", "work", "--target", chosen.target)
    cache = {"HLOOPT_CACHE_DIR": str(store.folder / "compiled")}
    make = partial(Worker, (sys.executable, *asks), WAIT, os.environ | _QUIET | cache)
    of_key = {task.key: (one, task) for one in waiting for task in one.tasks()}
    found: dict[_Asked, dict[str, TaskAnswer]] = {one: {} for one in waiting}
    cpu: Counter[tuple[str, str]] = Counter()
    done = 0
    for answer in answers([task for _, task in of_key.values()], make, chosen.workers):
        one, _ = of_key[answer.task.key]
        got = found[one]
        got[answer.task.key] = answer
        if len(got) < len(one.item.aspects(one.kind)):
            continue
        row = _row(store, one, [got[task.key] for task in one.tasks()])
        record.add(row)
        done += 1
        cpu[one.item.part, one.kind] += row["cpu"]
        line = f"{done}/{len(waiting)} {one.item.name} {one.kind}"
        print(f"\r{line:<79.79}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for (part, kind), seconds in sorted(cpu.items()):
        print(f"{part:<18} {kind:<9} {seconds:>9.1f} s of the processor", file=sys.stderr)


def _row(store: Store, one: _Asked, given: Sequence[TaskAnswer]) -> Row:
    found, seconds = {}, 0.0
    for word, answer in zip(one.item.aspects(one.kind), given, strict=True):
        if answer.failure is not None:
            found[word] = f"no answer: {answer.failure}"
            continue
        store.keep(answer.value["texts"])
        found[word] = answer.value["value"]
        seconds += answer.value["cpu"]
    row = {"item": one.item.name, "kind": one.kind, "part": one.item.part, "state": one.state}
    return {**row, "found": found, "cpu": round(seconds, 2)}


# ---- what is shown ----------------------------------------------------------------------------------------------


def differences(
    store: Store, item: str, old: Record, new: Record, kinds: Sequence[str]
) -> Iterator[str]:
    """How each value of an item differs; texts as unified diffs, CUDA C beside its machine code."""
    found = False
    for name, kind in sorted(old.rows):
        if name != item or (kinds and kind not in kinds):
            continue
        found = True
        before = old.rows[name, kind]["found"]
        after = new.rows.get((name, kind), {"found": {}})["found"]
        for word, value in before.items():
            if value != after.get(word):
                yield from _difference(
                    store, f"{item} {kind} {word}".strip(), value, after.get(word)
                )
    if not found:
        yield f"{old.path.stem} has nothing of {item}"


def _difference(store: Store, title: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        yield f"{title}: registers, spilled bytes, stack, instructions"
        for name in sorted(old["kernels"].keys() | new["kernels"].keys()):
            figures = [one["kernels"].get(name) for one in (old, new)]
            if figures[0] != figures[1]:
                yield f"  {name}: {figures[0]} -> {figures[1]}"
        old, new = old["source"], new["source"]
    texts = [_text(store, one) for one in (old, new)]
    if None in texts:
        yield f"{title}: {old} -> {new}"
        return
    lines = [(text or "").splitlines() for text in texts]
    yield from difflib.unified_diff(*lines, f"{title} before", f"{title} after", lineterm="", n=2)


def _text(store: Store, value: Any) -> str | None:
    try:
        return store.text(value) if isinstance(value, str) else None
    except KeyError:
        return None


def compared(old: Record, new: Record, chosen: Chosen) -> Comparison:
    """Two records; says so where they are of two machines."""
    for what in ("processor", "python", "numpy", "target"):
        before, after = old.header.get(what), new.header.get(what)
        if before != after:
            print(f"warning: {what} was {before!r}, is {after!r}", file=sys.stderr)
    return compare(old, new, chosen.wants)


# ---- the command line -------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--part", action="append", default=[], help="samples, jax, random ...")
    shared.add_argument("--only", action="append", default=[], choices=[*KINDS, "tokens"])
    shared.add_argument(
        "--item", action="append", default=[], metavar="PATTERN", help="samples/ad*"
    )
    shared.add_argument("--random", type=int, default=RANDOM, metavar="N", help="random modules")
    shared.add_argument("--workers", type=int, default=1)
    shared.add_argument("--target", default=TARGET, help="the GPU that plans are made for")
    shared.add_argument("--store", type=Path, default=STORE, help="default: .corpus/baseline")
    shared.add_argument("--name", help="of the record, where it is not the commit's")
    shared.add_argument("--anew", action="store_true", help="ask again what is known")
    shared.add_argument("--all", action="store_true", help="list every difference")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("check", "record"):
        commands.add_parser(name, parents=[shared])
    for name in ("compare", "show"):
        command = commands.add_parser(name, parents=[shared])
        if name == "show":
            command.add_argument("subject", metavar="ITEM")
        command.add_argument("old", metavar="OLD")
        command.add_argument("new", metavar="NEW", nargs="?")
    commands.add_parser("work", parents=[shared])
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Record, compare, show; 1 where something differs, 2 where a record is not there."""
    options = _parser().parse_args(arguments)
    if options.command == "work":
        work(options.target, MEMORY, SECONDS)
        return 0
    chosen = Chosen(
        tuple(options.part), tuple(options.only), tuple(options.item), options.random, options.workers, options.target, options.anew
    )  # fmt: skip
    store = Store(options.store)
    try:
        return _command(store, options, chosen)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        store.close()


def _command(store: Store, options: argparse.Namespace, chosen: Chosen) -> int:
    if options.command in ("compare", "show") and options.new:
        name = store.named(options.new)
    else:
        name = options.name or state_name(product_digest())
    if options.command == "record":
        record(store, store.record(name), chosen)
        print(f"recorded {name}")
        return 0
    if options.command == "check":
        options.new = None
        options.old = oldest_ancestor(store, name)
        if options.old is None:
            record(store, store.record(name), chosen)
            print(f"recorded {name}: no ancestor was, nothing is compared")
            return 0
    old = store.record(store.named(options.old))
    new = store.record(name)
    if options.command == "show":
        print("\n".join(differences(store, options.subject, old, new, options.only)))
        return 0
    if options.new is None:
        record(store, new, chosen, old)
    found = compared(old, new, chosen)
    print(f"{old.path.stem} -> {new.path.stem}")
    print("\n".join(report(found, sys.maxsize if options.all else 40)))
    return 1 if found.differences else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
