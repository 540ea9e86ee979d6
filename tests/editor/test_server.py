"""A session with the language server, by pygls' own client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

import hloopt.cli.main
from tests.helpers.support import invoke

lsp = pytest.importorskip("lsprotocol.types", reason="pygls is not installed")
client = pytest.importorskip("pygls.lsp.client", reason="pygls is not installed")

URI = "file:///tmp/a%20b.hlo"
TEXT = """HloModule m

ENTRY main {
  x = f32[64,64] parameter(0)
  /* \N{GRINNING FACE} */ y = f32[64,64] exponential(x), metadata={op_name="exp" source_file="f.py" source_line=7}
  z = f32[64,64] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT w = f32[64,64] add(z, y)
}
"""
LINES = TEXT.split("\n")


class Session:
    """A client with an open document."""

    def __init__(self) -> None:
        self.client = client.LanguageClient("tests", "1")
        self.published: asyncio.Queue[Any] = asyncio.Queue()
        self.shown: asyncio.Queue[Any] = asyncio.Queue()
        self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(
            partial(self.published.put_nowait)
        )
        self.client.feature(lsp.WINDOW_SHOW_MESSAGE)(partial(self.shown.put_nowait))
        self.document = lsp.TextDocumentIdentifier(URI)

    def change(self, version: int, text: str) -> None:
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(version, URI),
                [lsp.TextDocumentContentChangeWholeDocument(text)],
            )
        )


def session(talk: Callable[[Session], Coroutine[Any, Any, None]], encoding: str = "") -> None:
    """Start a server, open ``TEXT``, talk, and end the server in order."""

    async def run() -> None:
        one = Session()
        await one.client.start_io(sys.executable, "-m", "hloopt", "lsp", "--target", "h100")
        general = lsp.GeneralClientCapabilities(position_encodings=[encoding] if encoding else None)
        capabilities = lsp.ClientCapabilities(general=general)
        await one.client.initialize_async(lsp.InitializeParams(capabilities=capabilities))
        one.client.initialized(lsp.InitializedParams())
        item = lsp.TextDocumentItem(URI, "hlo", 1, TEXT)
        one.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
        await talk(one)
        await one.client.shutdown_async(None)
        one.client.exit(None)
        await one.client.stop()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_mistakes_appear_and_go() -> None:
    """Of several quick changes only the last is answered."""

    async def talk(one: Session) -> None:
        assert (await one.published.get()).diagnostics == ()
        one.change(2, TEXT.replace("dot(y", "dot(q").replace("exponential(x)", "exponential(r)"))
        one.change(3, TEXT.replace("dot(y", "dot(q"))
        found = await one.published.get()
        (mistake,) = found.diagnostics
        assert found.version == 3
        assert "there is no instruction 'q'" in mistake.message
        column = LINES[5].index("y, x")
        assert mistake.range == lsp.Range(lsp.Position(5, column), lsp.Position(5, column + 1))
        assert mistake.severity is lsp.DiagnosticSeverity.Error
        params = lsp.HoverParams(one.document, lsp.Position(4, 30))
        assert await one.client.text_document_hover_async(params) is None
        one.change(4, TEXT)
        assert (await one.published.get()).diagnostics == ()

    session(talk)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_names_where_a_line_has_characters_of_several_units(encoding: str) -> None:
    """Hover, definition and uses, in the unit that the client chose."""
    prefix = LINES[4][: LINES[4].index("y =")]
    column = len(prefix.encode(f"{encoding}-le" if encoding != "utf-8" else encoding)) // int(
        {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
    )

    async def talk(one: Session) -> None:
        place = lsp.Position(4, column)
        hover = await one.client.text_document_hover_async(lsp.HoverParams(one.document, place))
        said = hover.contents.value
        assert "**`y`**: `exponential`" in said
        assert "`f32[64,64]`, 16 KiB" in said
        assert "predicted: " in said
        assert " on h100 by xla-2026" in said
        assert "`f.py:7`, `exp`" in said
        assert hover.range == lsp.Range(place, lsp.Position(4, column + 1))
        use = lsp.Position(5, LINES[5].index("y, x"))
        asked = lsp.DefinitionParams(one.document, use)
        found = await one.client.text_document_definition_async(asked)
        assert (found.uri, found.range.start) == (URI, place)
        context = lsp.ReferenceContext(include_declaration=True)
        asked = lsp.ReferenceParams(context, one.document, use)
        uses = await one.client.text_document_references_async(asked)
        assert [row.range.start for row in uses] == [
            place, use, lsp.Position(6, LINES[6].rindex("y")),
        ]  # fmt: skip

    session(talk, encoding)


def test_outline_times_and_what_is_not_fused() -> None:
    """Kernels have a time; arrays that go through memory say why, and more on request."""

    async def talk(one: Session) -> None:
        (main,) = await one.client.text_document_document_symbol_async(
            lsp.DocumentSymbolParams(one.document)
        )
        assert (main.name, main.detail) == ("main", "entry")
        assert [child.name for child in main.children] == ["x", "y", "z", "w"]
        assert main.children[1].detail == "exponential f32[64,64]"
        everything = lsp.Range(lsp.Position(0, 0), lsp.Position(9, 0))
        hints = await one.client.text_document_inlay_hint_async(
            lsp.InlayHintParams(one.document, everything)
        )
        assert [hint.position.line for hint in hints] == [4, 5, 6]
        assert all(hint.label.endswith("us") for hint in hints)
        lenses = await one.client.text_document_code_lens_async(lsp.CodeLensParams(one.document))
        titles = {lens.range.start.line: lens.command.title for lens in lenses}
        assert titles[4].startswith("16 KiB in memory for ")
        assert "priority-fusion: consumer-not-fusible" in titles[4]
        command = next(lens.command for lens in lenses if lens.range.start.line == 4)
        said = await one.client.workspace_execute_command_async(
            lsp.ExecuteCommandParams(command.command, command.arguments)
        )
        assert "%y = f32[64,64] exponential" in said
        assert (await one.shown.get()).message == said

    session(talk)


def test_without_pygls_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 5, and what installs it."""
    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    monkeypatch.delitem(sys.modules, "hloopt.editor.server", raising=False)
    assert "lsp" in hloopt.cli.main.COMMANDS
    result = invoke("lsp")
    assert result.exit_code == 5
    assert "hloopt lsp needs pygls: pip install " in result.stderr
