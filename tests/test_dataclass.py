"""Our ``dataclass`` means what the standard one means, and every class of the package is made by it."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import hloopt.dataclass
from tests.helpers.package_trees import PACKAGE, files, statements, tree

Decorator = Callable[..., Any]
WAYS = [dataclasses.dataclass, hloopt.dataclass.dataclass]


def classes(dataclass: Decorator) -> dict[str, type]:
    """The kinds of classes there are, made one way."""

    @dataclass
    class Open:
        """Values that change."""

        first: int
        second: list[int] = dataclasses.field(default_factory=list)
        kind: ClassVar[str] = "open"

    @dataclass(frozen=True)
    class Frozen:
        first: int
        second: str = "b"

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError("less than nothing")

    @dataclass(frozen=True, slots=True)
    class Slots:
        first: int
        second: tuple[int, ...] = ()
        apart: str = dataclasses.field(default="x", compare=False)
        unhashed: dict[str, int] = dataclasses.field(default_factory=dict, hash=False)
        unseen: int = dataclasses.field(default=3, repr=False)

    @dataclass(frozen=True)
    class Derived(Frozen):
        third: float = 0.5

    @dataclass(slots=True)
    class Made:
        first: int
        inner: list[int] = dataclasses.field(init=False, default_factory=list)
        later: int = dataclasses.field(init=False)

        def __post_init__(self) -> None:
            self.later = self.first + 1

    @dataclass(frozen=True, eq=False)
    class Itself:
        first: int = 1

    @dataclass(frozen=True, slots=True)
    class Own:
        first: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    @dataclass
    class Empty:
        pass

    found = (Open, Frozen, Slots, Derived, Made, Itself, Own, Empty)
    return {one.__name__: one for one in found}


STANDARD, OURS = (classes(way) for way in WAYS)

CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Open", (1,), {}),
    ("Open", (1, [2]), {}),
    ("Open", (), {}),
    ("Open", (1, [2], 3), {}),
    ("Frozen", (1,), {"second": "c"}),
    ("Frozen", (-1,), {}),
    ("Frozen", (1,), {"third": 1}),
    ("Slots", (1, (2,)), {"apart": "y"}),
    ("Slots", (1,), {"unhashed": {"a": 1}}),
    ("Slots", (1,), {"unseen": 4}),
    ("Derived", (1, "d", 2.5), {}),
    ("Derived", (), {"third": 2.5, "first": 3}),
    ("Made", (4,), {}),
    ("Made", (4, []), {}),
    ("Itself", (), {}),
    ("Own", (5,), {}),
    ("Empty", (), {}),
    ("Empty", (1,), {}),
]


def outcome(work: Callable[[], Any]) -> Any:
    """What it gives, or how it fails; as text that does not tell which way a class was made."""
    try:
        return str(work()).replace("<locals>.", "")
    except Exception as error:  # noqa: BLE001 - both ways must fail alike
        return type(error).__name__, str(error).replace("<locals>.", "")


@pytest.mark.parametrize(("name", "given", "named"), CALLS)
def test_objects_are_made_shown_hashed_and_changed_alike(
    name: str, given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """The same values, texts, hashes and failures, and a second object is like the first."""

    def tell(of: type) -> list[Any]:
        made = outcome(lambda: of(*given, **named))
        if isinstance(made, tuple):
            return [made]
        one, other = of(*given, **named), of(*given, **named)
        return [
            made,
            one == other,
            one == object(),
            outcome(lambda: hash(one)) if of.__name__ != "Itself" else None,
            outcome(lambda: dataclasses.asdict(one)),
            outcome(lambda: dataclasses.replace(one, first=9)),
            outcome(lambda: setattr(one, "first", 8)),
            outcome(lambda: delattr(other, "first")),
            # With slots the standard one of 3.11 fails in a way of its own.
            None if hasattr(of, "__slots__") else outcome(lambda: setattr(other, "unknown", 8)),
            outcome(lambda: copy.copy(one)),
            outcome(lambda: copy.deepcopy(one)),
        ]

    assert tell(OURS[name]) == tell(STANDARD[name])


@pytest.mark.parametrize("name", list(STANDARD))
def test_classes_are_described_alike(name: str) -> None:
    """Fields, parameters, patterns and slots."""
    theirs, ours = STANDARD[name], OURS[name]

    def described(of: Any) -> list[Any]:
        parameters = of.__dataclass_params__
        return [
            [(one.name, one.type, one.init, one.compare) for one in dataclasses.fields(of)],
            (parameters.init, parameters.repr, parameters.eq, parameters.frozen),
            of.__match_args__,
            getattr(of, "__slots__", None),
            of.__hash__ is None,
            of.__name__,
        ]

    assert described(ours) == described(theirs)


def test_what_is_compared_and_hashed() -> None:
    """Fields that do not count do not; other classes are never equal."""
    slots = OURS["Slots"]
    assert slots(1, apart="x") == slots(1, apart="y")
    assert hash(slots(1, unhashed={"a": 1})) == hash(slots(1, unhashed={"b": 1}))
    assert slots(1, unhashed={"a": 1}) != slots(1, unhashed={"b": 1})
    assert OURS["Frozen"](1, "a") != OURS["Derived"](1, "a")
    assert OURS["Itself"]() != OURS["Itself"]()


@hloopt.dataclass.dataclass(frozen=True, slots=True)
class Kept:
    """A class that pickle finds by its name."""

    first: int
    second: str = "a"


def test_frozen_objects_with_slots_are_pickled() -> None:
    """They come back equal, and frozen."""
    back = pickle.loads(pickle.dumps(Kept(3, "c")))
    assert back == Kept(3, "c")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
        back.first = 4


@pytest.mark.parametrize("base", WAYS)
@pytest.mark.parametrize("derived", WAYS)
def test_both_ways_inherit_from_each_other(base: Decorator, derived: Decorator) -> None:
    """A pass of somebody else's is made by the standard one; frozen stays frozen."""

    @base(frozen=True)
    class Base:
        first: int = 1

    @derived(frozen=True)
    class Derived(Base):
        second: int = 2

    one = Derived(second=5)
    assert (one.first, one.second) == (1, 5)
    assert one == Derived(1, 5)
    assert one != Derived(1, 6)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.first = 3
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):

        @derived
        class Open(Base):
            third: int = 3


def test_a_recursive_object_is_shown() -> None:
    """As the standard one shows it."""
    one, other = (made["Open"](1) for made in (OURS, STANDARD))
    for made in (one, other):
        made.second.append(made)
    assert repr(one) == repr(other)


def test_methods_know_where_they_are_from() -> None:
    """Before and after they are written."""
    made = classes(hloopt.dataclass.dataclass)["Frozen"]
    before = made.__init__.__qualname__
    made(1)
    assert made.__init__.__qualname__ == before
    assert before.endswith("Frozen.__init__")
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        made()


def test_no_module_uses_the_standard_one() -> None:
    """It would cost each start half a millisecond a class."""
    for path in files():
        if path == PACKAGE / "dataclass.py":
            continue
        for node in statements(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses":
                assert "dataclass" not in {alias.name for alias in node.names}, path
