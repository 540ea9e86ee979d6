"""Words that no variable of a kernel may have."""

from __future__ import annotations

import re
from importlib.resources import files

from hloopt.codegen.device import names
from hloopt.codegen.writer import reserved
from hloopt.kernel_ir.scope import Names, identifier

_CALLED = re.compile(r"([A-Za-z_]\w*)(?:<[^<>]*>)?\(")


def test_what_the_device_library_calls_is_reserved() -> None:
    """Whatever stands before parentheses in the library's code: a variable of that name would hide it."""
    folder = files("hloopt.codegen.device")
    sources = [file for file in folder.iterdir() if file.name.endswith(".cu")]
    called = set()
    for file in sources:
        code = re.sub(r"//.*", "", file.read_text("utf-8"))
        called |= set(_CALLED.findall(code))
    assert len(sources) > 5
    assert called & names()
    assert "hypot" in called
    # What begins with underscores cannot be a variable's name.
    assert {name for name in called if identifier(name) == name} <= reserved()


def test_a_variable_has_another_name_than_a_word() -> None:
    """A hint that is reserved gets a number."""
    taken = Names(reserved=reserved())
    assert taken.fresh("float") == "float_1"
    assert taken.fresh("widen_f16") == "widen_f16_1"
    assert taken.fresh("memcpy") == "memcpy_1"
    assert taken.fresh("widen") == "widen"
