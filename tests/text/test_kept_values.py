"""Values that keep their text: what the grammar makes of them, and what that prints."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloopt.proto import read_proto, write_module
from hloopt.text.attributes import verbatim
from hloopt.text.parser import parse_module
from hloopt.types import (
    AxisRef,
    DimSharding,
    Domain,
    FrontendAttributes,
    IotaList,
    Mesh,
    Metadata,
    NamedSharding,
    Origin,
    OriginalArray,
    OriginTree,
    Sharding,
    Tiles,
    Verbatim,
)
from tests.helpers.rarely import examples

WORDS = st.sampled_from(["replicated", "manual", "unreduced", "unknown"])
NAMES = st.text(alphabet="abxy_0 '\"\\é\n", min_size=1, max_size=4)
NUMBERS = st.integers(0, 9)


def several(one: st.SearchStrategy) -> st.SearchStrategy:
    """A tuple of up to three."""
    return st.lists(one, max_size=3).map(tuple)


METADATA = several(st.builds(lambda name: Metadata.of({"op_name": name, "source_line": 3}), NAMES))
IOTAS = st.permutations([0, 1, 2]).map(lambda order: IotaList((2, 4, 3), (4, 3, 2), tuple(order)))
GRIDS = st.one_of(
    IOTAS.map(lambda iota: (iota.dims, iota)),
    st.tuples(several(NUMBERS), st.lists(NUMBERS, min_size=1, max_size=4).map(tuple)),
)
TILES = st.builds(
    lambda grid, whole, last: Tiles(*grid, whole, last),
    GRIDS,
    st.booleans(),
    st.none() | several(WORDS).filter(bool),
)
GROUPS = st.none() | st.tuples(st.sampled_from(["shard_as", "shard_like"]), NUMBERS)
PLAIN = st.one_of(
    st.builds(Sharding, WORDS, group=GROUPS, metadata=METADATA),
    st.builds(Sharding, st.just("maximal"), NUMBERS, metadata=METADATA),
    st.builds(Sharding, tiles=TILES, group=GROUPS, metadata=METADATA),
)
MESHES = st.builds(
    Mesh,
    st.lists(st.tuples(NAMES, NUMBERS), min_size=1, max_size=3, unique_by=lambda axis: axis[0]).map(
        tuple
    ),
    st.none()
    | st.lists(NUMBERS, min_size=1, max_size=4).map(tuple)
    | IOTAS.map(lambda iota: replace(iota, dims=(24,))),
)


@st.composite
def named(draw: st.DrawFn) -> Sharding:
    """A sharding by the axes of a mesh, whole or in part."""
    mesh = draw(MESHES)
    refs = st.builds(AxisRef, st.sampled_from([name for name, _ in mesh.axes]))
    axes = several(refs | refs.map(lambda ref: replace(ref, before=2, size=4)))
    dims = draw(several(st.builds(DimSharding, axes, st.booleans())))
    words = ("replicated", "unreduced", "manual")
    others = tuple((word, draw(axes.filter(bool))) for word in words if draw(st.booleans()))
    return Sharding(named=NamedSharding(mesh, dims, others), metadata=draw(METADATA))


SHARDINGS = st.one_of(PLAIN, named(), several(PLAIN | named()).map(lambda e: Sharding(elements=e)))
ARRAYS = st.builds(OriginalArray, NAMES, several(NUMBERS))
TREES = st.recursive(
    ARRAYS | st.just(OriginalArray()), lambda tree: several(tree).filter(bool), max_leaves=6
)


@settings(max_examples=examples(100), deadline=None)
@given(SHARDINGS)
def test_shardings_are_read_as_they_were_printed(sharding: Sharding) -> None:
    """Every form, with metadata and names of any characters; and what printed it has the same text."""
    kept = verbatim("sharding", str(sharding))
    assert kept.value == sharding
    assert kept.text == str(kept) == str(sharding)
    bare = sharding.without_metadata()
    assert verbatim("sharding", str(bare)).value == bare
    assert "metadata=" not in str(bare)


@settings(max_examples=examples(100), deadline=None)
@given(SHARDINGS, TREES)
def test_protos_hold_what_the_texts_say(sharding: Sharding, tree: OriginTree) -> None:
    """Written and read they are the same values, with the same texts."""
    line = f"sharding={sharding}, origin={Origin(tree)}, frontend_attributes={{a={{x}}, b='y'}}"
    module = parse_module(f"ENTRY e {{ ROOT p = f32[2] parameter(0), {line} }}")
    found = read_proto(write_module(module), "m.pb").entry.root.attributes
    assert found["sharding"] == Verbatim.of(sharding)
    assert found["sharding"].value == sharding
    assert found["origin"].value == Origin(tree)
    assert list(FrontendAttributes.of(found).items()) == [("a", "{x}"), ("b", "y")]


@settings(max_examples=examples(50), deadline=None)
@given(PLAIN, PLAIN, TREES)
def test_domains_and_origins_are_read_as_they_were_printed(
    entry: Sharding, leave: Sharding, tree: OriginTree
) -> None:
    """The records that have others in them."""
    for name, record in (("domain", Domain("sharding", entry, leave)), ("origin", Origin(tree))):
        assert verbatim(name, str(record)).value == record


@pytest.mark.parametrize(
    ("spelled", "plain"),
    [
        ("{ devices=[2,1]0 , 1 }", "{devices=[2,1]0,1}"),
        ("{device=3 maximal}", "{maximal device=3}"),
        ('{devices=[2]<=[2] metadata={op_name="a"} last_tile_dim_replicate}',
         '{devices=[2]<=[2] last_tile_dim_replicate metadata={op_name="a"}}'),
        ('{mesh["x"=2] [{"x"}]}', "{mesh['x'=2], [{'x'}]}"),
        ("{mesh['x'=2,device_ids=(1,0)], [{'x'}]}", "{mesh['x'=2], device_ids=(1,0), [{'x'}]}"),
        ("{mesh['x'=4], device_ids=([4]<=[2,2]T(1,0)), [{'x'}]}",
         "{mesh['x'=4], device_ids=([2,2]T(1,0)), [{'x'}]}"),
        ("{maximal_mesh[device_ids=(3)]}", "{maximal_mesh[device_ids=3]}"),
        ("{ {replicated},/*index=1*/{manual} }", "{{replicated}, {manual}}"),
    ],
)  # fmt: skip
def test_other_spellings_keep_their_text(spelled: str, plain: str) -> None:
    """They are the same sharding, and a module prints them as they were."""
    kept = verbatim("sharding", spelled)
    assert str(kept.value) == plain
    assert kept.value == verbatim("sharding", plain).value
    line = f"ENTRY e {{ ROOT p = f32[2] parameter(0), sharding={spelled} }}"
    assert f"sharding={spelled}\n" in parse_module(line).to_text()


def test_frontend_attributes() -> None:
    """Strings without their quotes, braces as they are written, the last of two values of a name."""
    text = '{a="\\"x\\"",b={"k": {{{{{{{ deep }}}}}}} }, c=\'y\',c="z"}'
    found = verbatim("frontend_attributes", text).value
    assert isinstance(found, FrontendAttributes)
    assert [found.get(name) for name in "abcd"] == [
        '"x"', '{"k": {{{{{{{ deep }}}}}}} }', "z", None
    ]  # fmt: skip


def test_numbers_of_a_mesh_and_of_its_devices() -> None:
    """In the order of the grid."""
    mesh = verbatim(
        "sharding", "{mesh['x'=2,'y'=3], device_ids=([3,2]T(1,0)), []}"
    ).value.named.mesh
    assert mesh.devices == (0, 2, 4, 1, 3, 5)
    assert Mesh((("x", 2), ("y", 2))).devices == (0, 1, 2, 3)


@pytest.mark.parametrize("text", ["{{{replicated}}}", "{" * 900 + "}" * 900])
def test_tuples_of_tuples_of_shardings_are_warned_about(text: str) -> None:
    """XLA has none; they are kept without being looked into."""
    module = parse_module(f"ENTRY e {{ ROOT p = f32[2] parameter(0), sharding={text} }}")
    assert "one sharding for each of its leaves" in module.warnings[0][1]
    assert module.entry.root.attributes["sharding"].value is None


def test_deep_origins_are_warned_about() -> None:
    """They are kept without being looked into."""
    text = "{" + "(" * 3000 + '{"a"}' + ")" * 3000 + "}"
    module = parse_module(f"ENTRY e {{ ROOT p = f32[2] parameter(0), origin={text} }}")
    assert "an origin is nested more than 64 levels deep" in module.warnings[0][1]
    assert module.entry.root.attributes["origin"].value is None
