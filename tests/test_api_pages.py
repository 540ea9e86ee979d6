"""The pages of the Python interface: every public name has an entry with its docstring, and an example that runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import hloopt

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted((ROOT / "docs" / "api").glob("*.md"))
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE

_CODE = re.compile(r"^(?:>>>|\.\.\. |    ).*", re.MULTILINE)
_DIRECTIVE = re.compile(r"^::: .*(?:\n {4}.*)*", re.MULTILINE)
EXAMPLES = "\n".join(
    line for page in PAGES for line in _CODE.findall(_DIRECTIVE.sub("", page.read_text()))
)


@pytest.mark.parametrize("page", [page.stem for page in PAGES if ">>>" in page.read_text()])
def test_the_examples_of_a_page_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the top of the repository, one after the other."""
    monkeypatch.chdir(ROOT)
    text = re.sub(
        r"^```.*$", "", (ROOT / "docs" / "api" / f"{page}.md").read_text(), flags=re.MULTILINE
    )
    test = doctest.DocTestParser().get_doctest(text, {}, page, f"docs/api/{page}.md", 0)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert not result.failed, "".join(said)
    assert result.attempted > 3


def entries() -> dict[str, object]:
    """What has an entry on a page, by its dotted name; a module stands for all it lists."""
    found: dict[str, object] = {}
    for page in PAGES:
        for name, members in re.findall(
            r"^::: ([\w.]+)(?:\n +options:\n +members: \[([^]]*)\])?",
            page.read_text(),
            re.MULTILINE,
        ):
            if name.startswith(("hloopt.jax", "hloopt.torch")):
                continue
            if members:
                home = importlib.import_module(name)
                found |= {f"{name}.{one}": getattr(home, one) for one in members.split(", ")}
                continue
            home_name, _, last = name.rpartition(".")
            value = getattr(importlib.import_module(home_name), last)
            if inspect.ismodule(value):
                found |= {f"{name}.{one}": getattr(value, one) for one in value.__all__}
            else:
                found[name] = value
    return found


def test_every_public_name_has_an_entry_and_an_example() -> None:
    listed, used = entries(), EXAMPLES
    wanted = [f"hloopt.{name}" for name in hloopt.__all__]
    missing = [
        name for name in wanted if name not in listed and f"hloopt.ir.{name[7:]}" not in listed
    ]
    assert not missing, "give them an entry (::: NAME) on a page of docs/api/"
    unused = [name for name in listed if not re.search(rf"\b{name.rpartition('.')[2]}\b", used)]
    assert not unused, "use them in an example on a page of docs/api/"


def test_every_entry_has_types_and_a_docstring() -> None:
    for name, value in entries().items():
        if inspect.isfunction(value):
            signature = inspect.signature(value)
            untyped = [p.name for p in signature.parameters.values() if p.annotation is p.empty]
            assert not untyped, f"{name} is public: give its parameters types"
            assert signature.return_annotation is not signature.empty, f"{name} has no return type"
        if inspect.isfunction(value) or inspect.isclass(value):
            assert inspect.getdoc(value), f"{name} is public: give it a docstring"


def test_every_error_that_a_function_raises_is_in_its_docstring() -> None:
    """Those that its own lines raise."""
    missing: dict[str, list[str]] = {}
    for name, value in entries().items():
        if not inspect.isfunction(value):
            continue
        raised = set(re.findall(r"^\s+raise (\w+)\(", inspect.getsource(value), re.MULTILINE))
        missing[name] = [one for one in raised if one not in (inspect.getdoc(value) or "")]
    unsaid = {name: kinds for name, kinds in missing.items() if kinds}
    assert not unsaid, "their docstrings have to say that they raise it"


def test_every_public_method_has_a_docstring() -> None:
    for name, value in entries().items():
        if inspect.isclass(value) and value.__module__.startswith("hloopt."):
            bare = [
                method
                for method, function in vars(value).items()
                if inspect.isfunction(function)
                and not method.startswith("_")
                and not inspect.getdoc(getattr(value, method))
            ]
            assert not bare, f"methods of {name}, which is public: give them docstrings"


UNITS = (
    "seconds bytes flops ulp launches instructions tests participants threads replicas partitions processes "
    "cores cases runs rewrites times steps findings kernels buffers elements rows iterations rounds numbers"
)
_UNIT = re.compile(
    rf"\b({'|'.join(f'{one}?' if one.endswith('s') else one for one in UNITS.split())}"
    r"|count(ed|s)?|how (many|often|far)|exit code|the number of|seed|relative|ULPs?|[Ss]hare|dimension|identifier|ns|us|ms|numbered|absolute)\b"
)


def numbers(value: object) -> list[tuple[str, str]]:
    """The parameters, fields and results of a public name that are numbers, each with the docstring that has its unit."""
    own = inspect.getdoc(value) or ""
    if inspect.isfunction(value):
        return [
            (one.name, own)
            for one in inspect.signature(value).parameters.values()
            if is_number(one.annotation)
        ]
    found: list[tuple[str, str]] = []
    if inspect.isclass(value) and value.__module__.startswith("hloopt."):
        found = [
            (name, own)
            for name, kind in inspect.get_annotations(value).items()
            if is_number(kind) and not name.startswith("_")
        ]
        for name, member in vars(value).items():
            function = getattr(member, "fget", None) or getattr(member, "func", member)
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            text = inspect.getdoc(function) or ""
            if is_number(inspect.signature(function).return_annotation):
                found.append((name, f"{name}  {text}"))
            found += [(f"{name}.{one}", f"{own}\n{text}") for one, _ in numbers(function)]
    return found


def is_number(annotation: object) -> bool:
    return bool(re.fullmatch(r"(int|float)( \| None)?", str(annotation)))


def names_unit(name: str, docstring: str) -> bool:
    """Whether the unit of a number is in its name, or in the sentence or row of a table that names it."""
    last = name.rpartition(".")[2]
    if _UNIT.search(last.replace("_", " ")):
        return True
    pieces = re.split(r"(?<=[.;])\s+|\n\n|\n(?=\w+ {2,})", docstring)
    said = [piece for piece in pieces if re.search(rf"\b{last}\b", piece)]
    return any(_UNIT.search(piece.replace(last, "", 1)) for piece in said)


def test_every_number_has_a_unit() -> None:
    """In its name or where its docstring tells of it: seconds, bytes, what is counted, what it is relative to."""
    without = [
        f"{name}: {number}"
        for name, value in entries().items()
        for number, docstring in numbers(value)
        if not names_unit(number, docstring)
    ]
    assert not without, "say in their docstrings what they count or measure"


@pytest.mark.parametrize(
    ("docstring", "is_said"),
    [
        ("``limit`` is in bytes.", True),
        ("``limit`` is how many rounds there may be.", True),
        ("Takes ``limit``.  Takes three seconds.", False),
        ("limit  what there is room for\nother  seconds until the end", False),
        ("Nothing of it, for some seconds.", False),
    ],
)
def test_a_unit_is_said_beside_the_name(docstring: str, is_said: bool) -> None:
    assert names_unit("limit", docstring) is is_said
