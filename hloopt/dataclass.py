"""``dataclass``, its methods written when they are first called.

The standard one compiles up to six functions for each class, half a millisecond of a start that has
hundreds of classes and calls few of their methods.  This one means the same: fields, ``replace``, ``asdict``,
comparison, hashing, patterns, pickling and inheritance, also from and by classes of the standard one.
``InitVar``, ``order`` and ``kw_only`` are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    from collections.abc import Callable
    from functools import partial
    from reprlib import recursive_repr
    from typing import Any

    def dataclass(
        cls: type | None = None,
        /,
        *,
        frozen: bool = False,
        slots: bool = False,
        eq: bool = True,
    ) -> Any:
        """As ``dataclasses.dataclass``, with these of its options."""
        if cls is None:
            return partial(_made, frozen=frozen, slots=slots, eq=eq)
        return _made(cls, frozen=frozen, slots=slots, eq=eq)

    def _made(cls: type, *, frozen: bool, slots: bool, eq: bool) -> type:
        own = frozenset(cls.__dict__)
        hashed = "__hash__" in own and not (cls.__hash__ is None and "__eq__" in own)
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # or the standard one works out a signature
        # It insists that a class is frozen where a base is; else its way costs two functions more.
        inherited = any(
            base.__dataclass_params__.frozen
            for base in cls.__mro__[1:]
            if "__dataclass_params__" in base.__dict__
        )
        cls = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, frozen=frozen and inherited
        )(cls)
        if "__init__" not in own:
            _later(cls, "__init__", _write_init, frozen)
        if cls.__repr__ is object.__repr__:
            cls.__repr__ = _repr
        if eq:
            if "__eq__" not in own:
                _later(cls, "__eq__", _write_eq)
            if not hashed:
                cls.__hash__ = None
                if frozen:
                    _later(cls, "__hash__", _write_hash)
        if frozen:
            cls.__dataclass_params__.frozen = True
            _freeze(cls, own, slots)
        cls.__dataclass_params__.init = True
        cls.__dataclass_params__.repr = True
        cls.__dataclass_params__.eq = eq
        return cls

    def _later(cls: type, name: str, write: Callable[..., Callable[..., Any]], *more: bool) -> None:
        """A method that replaces itself when it is first called."""

        def method(self: Any, /, *given: Any, **named: Any) -> Any:
            written = write(cls, *more)
            written.__qualname__ = method.__qualname__
            written.__module__ = cls.__module__
            setattr(cls, name, written)
            return written(self, *given, **named)

        method.__name__ = name
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)

    def _compiled(name: str, text: str, names: dict[str, Any]) -> Callable[..., Any]:
        exec(text, names)  # noqa: S102 - of field names alone
        made: Callable[..., Any] = names[name]
        return made

    def _write_init(cls: type, frozen: bool) -> Callable[..., None]:
        """Parameters in the fields' order; a frozen one is set past its own ``__setattr__``."""
        names: dict[str, Any] = {"_set": object.__setattr__, "_MADE": _MADE}
        parameters, lines = [], []
        for field in dataclasses.fields(cls):
            name, value = field.name, field.name
            if field.default is not dataclasses.MISSING:
                names[f"_of_{name}"] = field.default
                default = f"_of_{name}"
            elif field.default_factory is not dataclasses.MISSING:
                names[f"_of_{name}"] = field.default_factory
                default = "_MADE"
                value = f"_of_{name}() if {name} is _MADE else {name}"
            else:
                default = ""
            if field.init:
                parameters.append(f"{name}={default}" if default else name)
            elif default == "_MADE":
                value = f"_of_{name}()"
            elif default:
                value = default
            else:
                continue
            lines.append(f" _set(self,{name!r},{value})" if frozen else f" self.{name}={value}")
        if hasattr(cls, "__post_init__"):
            lines.append(" self.__post_init__()")
        text = f"def __init__(self,{','.join(parameters)}):\n" + "\n".join(lines or [" pass"])
        return _compiled("__init__", text, names)

    _MADE = object()

    def _compared(cls: type, of: str, hashing: bool) -> str:
        """The tuple of what is compared, or hashed."""
        names = [
            field.name
            for field in dataclasses.fields(cls)
            if (field.compare if field.hash is None or not hashing else field.hash)
        ]
        return "(" + "".join(f"{of}.{name}," for name in names) + ")"

    def _write_eq(cls: type) -> Callable[..., Any]:
        mine, other = _compared(cls, "self", False), _compared(cls, "other", False)
        text = (
            "def __eq__(self,other):\n"
            f" return {mine}=={other} if other.__class__ is self.__class__ else NotImplemented"
        )
        return _compiled("__eq__", text, {})

    def _write_hash(cls: type) -> Callable[..., int]:
        text = f"def __hash__(self):\n return hash({_compared(cls, 'self', True)})"
        return _compiled("__hash__", text, {})

    @recursive_repr("...")
    def _repr(self: Any) -> str:
        parts = (
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.repr
        )
        return f"{type(self).__qualname__}({', '.join(parts)})"

    def _freeze(cls: type, own: frozenset[str], slots: bool) -> None:
        names = frozenset(cls.__dataclass_fields__)

        def set_one(self: Any, name: str, value: Any) -> None:
            if type(self) is cls or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def delete_one(self: Any, name: str) -> None:
            if type(self) is cls or name in names:
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        cls.__setattr__ = set_one
        cls.__delattr__ = delete_one
        if slots and "__getstate__" not in own:
            cls.__getstate__ = _state
        if slots and "__setstate__" not in own:
            cls.__setstate__ = _set_state

    def _state(self: Any) -> list[Any]:
        return [getattr(self, field.name) for field in dataclasses.fields(self)]

    def _set_state(self: Any, state: list[Any]) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, field.name, value)


__all__ = ["dataclass"]
