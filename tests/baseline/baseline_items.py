"""What a baseline is of: the samples, the corpus, random modules, golden cases; and what is asked of each part."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hloopt.presets import XLA_PRESETS
from tests.baseline.baseline_child import Subject, text_digest
from tests.baseline.baseline_store import Store
from tests.corpus.parts import tasks

__all__ = [
    "ARCHITECTURES",
    "KINDS",
    "Item",
    "belongs",
    "corpus_items",
    "golden_items",
    "random_items",
    "sample_items",
]

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("text", "plan", "bits", "code", "messages")
LEVELS = ("O1", "O2", "O3", *XLA_PRESETS)
FORMS = ("given", "O2", "O3")
ARCHITECTURES = ("sm_80", "sm_90")
_EXECUTORS = ("interpreter", "cpu", "native")


@dataclass(frozen=True)
class Item:
    """A subject of a part."""

    part: str
    subject: Subject

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.subject.name

    def aspects(self, kind: str) -> list[str]:
        """The words of the questions of a kind, none where the part has nothing to show there.

        What compilers take long for is asked of one form, but of the samples and of what JAX gave XLA.
        """
        if (kind == "messages") != (self.part == "messages"):
            return []
        if kind == "messages":
            return [""]
        if kind == "text":
            return list(LEVELS)
        xla_made = self.part in ("jax.prefusion", "jax.fused")
        whole = self.part in ("samples", "jax.before")
        forms = ("given",) if xla_made or self.part == "xla-tests" else FORMS
        compiled = forms if whole or xla_made else ("O2",)
        if kind == "plan":
            return _pairs(("gpu", "native"), forms)
        if kind == "code":
            return [] if self.part in _NO_CODE else _pairs(ARCHITECTURES, compiled)
        if xla_made or self.part in _NO_RESULTS:
            return []
        words = [*_pairs(_EXECUTORS[:2], forms), *_pairs(_EXECUTORS[2:], compiled)]
        return words + (_pairs(("emulator",), forms) if self.part == "samples" else [])


_NO_RESULTS = ("models", "xla-tests")  # too much work, and no inputs for which they end
_NO_CODE = ("models", "xla-tests", "xla-golden", "xla-golden.weak")


def _pairs(places: tuple[str, ...], forms: tuple[str, ...]) -> list[str]:
    return [f"{place} {form}" for form in forms for place in places]


def belongs(part: str, chosen: tuple[str, ...]) -> bool:
    """Whether a part is one of those chosen, or of their kind: ``jax`` is all that begin with ``jax.``."""
    return not chosen or any(part == one or part.startswith(f"{one}.") for one in chosen)


def sample_items(root: Path = ROOT) -> Iterator[Item]:
    """Every program below ``samples/``."""
    folder = root / "samples"
    for path in sorted(folder.rglob("*.hlo")):
        name = path.relative_to(folder).with_suffix("")
        yield Item("samples", Subject(f"samples/{name}", str(path)))


def corpus_items(corpus: Path) -> Iterator[Item]:
    """Every text of the corpus that can be read, under the part where most is known of it."""
    found: dict[Path, str] = {}
    for task in tasks(corpus, xla=False):
        if task.part.split(".")[0] in ("jax", "models", "xla-tests", "xla-golden"):
            found[task.path] = task.part
    for path, part in found.items():
        if part != "xla-tests.refused":
            name = path.relative_to(corpus).as_posix().removesuffix(".hlo")
            yield Item(part, Subject(name, str(path)))


def golden_items(root: Path = ROOT) -> Iterator[Item]:
    """Every file of golden cases."""
    folder = root / "tests" / "cases"
    for path in sorted(folder.rglob("*.test")):
        yield Item("messages", Subject(f"cases/{path.relative_to(folder)}", str(path)))


def random_items(store: Store, count: int) -> Iterator[Item]:
    """Random modules in which every opcode occurs: drawn once for a store."""
    for number in range(count):
        name = f"random/{number:04}"
        text = store.drawn(name)
        if text is None:
            from tests.campaigns.campaign_modules import OPCODES, campaign_module

            text = campaign_module(random.Random(name), OPCODES[number % len(OPCODES)])
            store.draw(name, text_digest(text), text)
        yield Item("random", Subject(name, text=text, seed=number))
