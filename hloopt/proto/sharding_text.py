"""Shardings, from the text HLO has for them to protos."""

from __future__ import annotations

from typing import Any

from hloopt.proto.annotation_texts import write_metadata
from hloopt.proto.messages import new
from hloopt.proto.problem import Problem
from hloopt.proto.sharding import MAXIMAL, OTHER, TUPLE, TYPES
from hloopt.proto.tokens import Tokens
from hloopt.proto.words import number_of
from hloopt.text.attributes import decode_metadata
from hloopt.types import Metadata

__all__ = ["write_mesh_axes", "write_sharding"]

_DEEPEST = 64


def write_sharding(text: str) -> Any:
    """An ``OpSharding``; raises ``Problem`` for what is no sharding."""
    proto = new("OpSharding")
    tokens = Tokens(text)
    _sharding(proto, tokens, 0)
    tokens.end()
    return proto


def _sharding(proto: Any, tokens: Tokens, depth: int) -> None:
    if depth > _DEEPEST:
        raise Problem(f"a sharding is nested more than {_DEEPEST} levels deep", "sharding")
    tokens.expect("{")
    if tokens.next in {"{", "}"}:
        proto.type = TUPLE
        while not tokens.accept("}"):
            _sharding(proto.tuple_shardings.add(), tokens, depth + 1)
            tokens.accept(",")
        return
    if tokens.next in {"mesh", "maximal_mesh"}:
        _named(proto.named_sharding, tokens)
        return
    while not tokens.accept("}"):
        _part(proto, tokens)


def _part(proto: Any, tokens: Tokens) -> None:
    word = tokens.take()
    if word == "devices":
        proto.type = OTHER
        tokens.expect("=")
        _devices(proto, tokens)
    elif word == "device":
        tokens.expect("=")
        proto.type = MAXIMAL
        proto.tile_assignment_dimensions.append(1)
        proto.tile_assignment_devices.append(tokens.integer())
    elif word == "last_tile_dim_replicate":
        proto.replicate_on_last_tile_dim = True
    elif word == "last_tile_dims":
        tokens.expect("=")
        tokens.expect("{")
        while not tokens.accept("}"):
            proto.last_tile_dims.append(number_of(TYPES, tokens.take()))
            tokens.accept(",")
    elif word in {"shard_as", "shard_like"}:
        proto.is_shard_group = True
        proto.shard_group_id = tokens.integer()
        proto.shard_group_type = int(word == "shard_like")
    elif word == "metadata":
        tokens.expect("=")
        _metadata(proto.metadata, tokens)
    elif word != ",":
        proto.type = number_of(TYPES, word)


def _devices(proto: Any, tokens: Tokens) -> None:
    proto.tile_assignment_dimensions.extend(tokens.integers("[", "]"))
    if tokens.accept("<="):
        proto.iota_reshape_dims.extend(tokens.integers("[", "]"))
        if tokens.accept("T"):
            proto.iota_transpose_perm.extend(tokens.integers("(", ")"))
        else:
            proto.iota_transpose_perm.extend(range(len(proto.iota_reshape_dims)))
        return
    proto.tile_assignment_devices.append(tokens.integer())
    while tokens.accept(","):
        proto.tile_assignment_devices.append(tokens.integer())


def _metadata(several: Any, tokens: Tokens) -> None:
    """One in braces, or a list of them in braces."""
    text = tokens.braces()
    inner = Tokens(text)
    inner.expect("{")
    texts = [text]
    if inner.next == "{":
        texts = []
        while not inner.accept("}"):
            texts.append(inner.braces())
            inner.accept(",")
    for part in texts:
        several.append(write_metadata(Metadata(part, decode_metadata)).SerializeToString())


# ---- meshes -----------------------------------------------------------------------------------------


def write_mesh_axes(text: str) -> Any:
    """A ``MeshAxesReplicaGroupList`` of ``mesh['x'=2] {'x'}``; raises ``Problem``."""
    proto = new("MeshAxesReplicaGroupList")
    tokens = Tokens(text)
    names = _mesh(proto.mesh, tokens)
    tokens.expect("{")
    while not tokens.accept("}"):
        _axis(proto.axes.add(), tokens, names)
        tokens.accept(",")
    tokens.end()
    return proto


def _named(proto: Any, tokens: Tokens) -> None:
    proto.SetInParent()
    names = _mesh(proto.mesh, tokens)
    while not tokens.accept("}"):
        if tokens.accept(","):
            continue
        if tokens.accept("["):
            while not tokens.accept("]"):
                _dimension(proto.dim_shardings.add(), tokens, names)
                tokens.accept(",")
            continue
        word = tokens.take()
        if word == "replicated" and tokens.next != "=":
            continue  # a mesh without axes shards nothing
        tokens.expect("=")
        if word == "metadata":
            _metadata(proto.metadata, tokens)
        elif word == "device_ids":
            _device_ids(proto.mesh, tokens, maximal=False)
        elif word in {"replicated", "unreduced", "manual"}:
            tokens.expect("{")
            while not tokens.accept("}"):
                _axis(getattr(proto, f"{word}_axes").add(), tokens, names)
                tokens.accept(",")
        else:
            raise Problem(f"{word!r} is no part of a sharding by a mesh", "sharding")


def _dimension(proto: Any, tokens: Tokens, names: list[str]) -> None:
    proto.is_closed = True
    tokens.expect("{")
    while not tokens.accept("}"):
        if tokens.accept("?"):
            proto.is_closed = False
        else:
            _axis(proto.axes.add(), tokens, names)
        tokens.accept(",")


def _axis(proto: Any, tokens: Tokens, names: list[str]) -> None:
    name = tokens.string()
    if name not in names:
        raise Problem(f"the mesh has no axis {name!r}", "sharding")
    proto.mesh_axis_index = names.index(name)
    if tokens.accept(":"):
        tokens.expect("(")
        proto.sub_axis_info.pre_size = tokens.integer()
        tokens.expect(")")
        proto.sub_axis_info.size = tokens.integer()


def _mesh(proto: Any, tokens: Tokens) -> list[str]:
    """The mesh; the names of its axes."""
    proto.SetInParent()
    maximal = tokens.take() == "maximal_mesh"
    names: list[str] = []
    tokens.expect("[")
    while not tokens.accept("]"):
        if tokens.next == "device_ids":
            tokens.take()
            tokens.expect("=")
            _device_ids(proto, tokens, maximal=maximal)
        else:
            names.append(tokens.string())
            tokens.expect("=")
            proto.axes.add(name=names[-1].encode("utf-8", "surrogateescape"), size=tokens.integer())
        tokens.accept(",")
    return names


def _device_ids(proto: Any, tokens: Tokens, *, maximal: bool) -> None:
    if maximal or not tokens.accept("("):
        proto.device_ids.append(tokens.integer())
        return
    if tokens.next == "[":
        proto.iota_transform.reshape_dims.extend(tokens.integers("[", "]"))
        if tokens.accept("T"):
            proto.iota_transform.transpose_perm.extend(tokens.integers("(", ")"))
        tokens.expect(")")
        return
    while not tokens.accept(")"):
        proto.device_ids.append(tokens.integer())
        tokens.accept(",")
