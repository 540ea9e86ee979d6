"""The language server: HLO documents by the language server protocol, on stdin and stdout."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlparse
from urllib.request import url2pathname

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInternalError
from pygls.lsp.server import LanguageServer

from hloopt.cost_models.predictor import Predictor
from hloopt.editor.answers import DocumentAnswers
from hloopt.editor.document import Document, Mistake
from hloopt.errors import HlooptError

if TYPE_CHECKING:
    from pygls.server import ServerErrors

__all__ = ["make_server"]

_PAUSE: Final = 0.3
"""Seconds without a change after which a text is read."""

_EXPLAIN: Final = "hloopt.explain"


class _Open:
    """The newest version of an open text, and what is known of it."""

    def __init__(self, text: str, name: str, version: int, predictor: Predictor) -> None:
        self.document = Document(text, name)
        self.version = version
        self.lines = text.splitlines(keepends=True)
        valid = self.document.valid
        self.answers = None if valid is None else DocumentAnswers(valid, predictor)


class HloServer(LanguageServer):
    """Texts by their URI; each is read when it has rested for a moment, or when something is asked of it."""

    def __init__(self, predictor: Predictor, version: str) -> None:
        super().__init__("hloopt", version)
        self.predictor = predictor
        self._texts: dict[str, _Open] = {}

    def report_server_error(self, error: Exception, source: ServerErrors) -> None:
        """Show an error in the editor, unless a message could not be sent to it.

        By default pygls reports a failure to send by sending another message, without end.
        """
        if source is not JsonRpcInternalError:
            super().report_server_error(error, source)

    def text(self, uri: str) -> _Open:
        """The newest version, read when it was not yet."""
        given = self.workspace.get_text_document(uri)
        version = given.version or 0
        known = self._texts.get(uri)
        if known is None or known.version != version:
            name = Path(url2pathname(urlparse(uri).path)).name or uri
            known = self._texts[uri] = _Open(given.source, name, version, self.predictor)
        return known

    def forget(self, uri: str) -> None:
        """Drop a text that was closed."""
        self._texts.pop(uri, None)

    def offset(self, uri: str, position: lsp.Position) -> int:
        """The character offset of a position, whose unit the client chose."""
        found: int = self.workspace.get_text_document(uri).offset_at_position(position)
        return found

    def range(self, text: _Open, offset: int, end: int) -> lsp.Range:
        """A range in the client's unit."""
        source = text.document.source
        places = [lsp.Position(*(n - 1 for n in source.line_column(at))) for at in (offset, end)]
        codec = self.workspace.position_codec
        found: lsp.Range = codec.range_to_client_units(text.lines, lsp.Range(*places))
        return found

    def named(self, text: _Open, offset: int, name: str) -> lsp.Range:
        """The range of a name that begins at an offset."""
        return self.range(text, offset, offset + len(name))


def make_server(predictor: Predictor, version: str) -> HloServer:
    """A server whose prices are the predictor's; ``version`` is hloopt's."""
    server = HloServer(predictor, version)
    _add_reading(server)
    _add_navigation(server)
    _add_prices(server)
    _add_fusion(server)
    return server


def _add_reading(server: HloServer) -> None:
    def publish(uri: str) -> None:
        text = server.text(uri)
        server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(
                uri=uri,
                version=text.version,
                diagnostics=[_diagnostic(server, text, one) for one in text.document.mistakes],
            )
        )

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        publish(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        await asyncio.sleep(_PAUSE)
        uri = params.text_document.uri
        if server.workspace.get_text_document(uri).version == params.text_document.version:
            publish(uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        server.forget(params.text_document.uri)


def _diagnostic(server: HloServer, text: _Open, mistake: Mistake) -> lsp.Diagnostic:
    severity = lsp.DiagnosticSeverity
    return lsp.Diagnostic(
        range=server.range(text, mistake.offset, mistake.offset + mistake.width),
        message=mistake.message,
        severity=severity.Warning if mistake.warning else severity.Error,
        code=mistake.rule or None,
        source="hloopt",
    )


def _add_navigation(server: HloServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        uri = params.text_document.uri
        text = server.text(uri)
        found = text.document.at(server.offset(uri, params.position))
        if found is None or found.offset < 0:
            return None
        return lsp.Location(uri, server.named(text, found.offset, found.name))

    @server.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        uri = params.text_document.uri
        text = server.text(uri)
        found = text.document.at(server.offset(uri, params.position))
        if found is None:
            return []
        own = [found.offset] if params.context.include_declaration and found.offset >= 0 else []
        places = [*own, *text.document.uses(found)]
        return [lsp.Location(uri, server.named(text, place, found.name)) for place in places]

    @server.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def symbols(params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        text = server.text(params.text_document.uri)
        return [*_symbols(server, text)]


def _symbols(server: HloServer, text: _Open) -> Iterator[lsp.DocumentSymbol]:
    for home, end, rows in text.document.symbols():
        ends = [*(one.offset for one in rows[1:]), end]
        children = [
            lsp.DocumentSymbol(
                name=one.name,
                detail=f"{one.opcode} {one.shape}",
                kind=lsp.SymbolKind.Variable,
                range=server.range(text, one.offset, max(one.offset + len(one.name), stop - 1)),
                selection_range=server.named(text, one.offset, one.name),
            )
            for one, stop in zip(rows, ends, strict=True)
        ]
        is_entry = text.document.module is not None and home is text.document.module.entry
        yield lsp.DocumentSymbol(
            name=home.name,
            detail="entry" if is_entry else "",
            kind=lsp.SymbolKind.Function,
            range=server.range(text, home.offset, end),
            selection_range=server.named(text, home.offset, home.name),
            children=children,
        )


def _add_prices(server: HloServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        uri = params.text_document.uri
        text, offset = server.text(uri), server.offset(uri, params.position)
        found = text.document.at(offset)
        if found is None or text.answers is None:
            return None
        start, name = text.document.name_at(offset)
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, text.answers.hover(found))
        return lsp.Hover(content, server.named(text, start, name))

    @server.feature(lsp.TEXT_DOCUMENT_INLAY_HINT)
    def hints(params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
        uri = params.text_document.uri
        text = server.text(uri)
        if text.answers is None:
            return []
        first = server.offset(uri, params.range.start)
        last = server.offset(uri, params.range.end)
        about = f"predicted on {server.predictor.target.name}, for the module as it stands"
        return [
            lsp.InlayHint(
                position=server.named(text, one.offset, one.name).end,
                label=label,
                tooltip=about,
                padding_left=True,
            )
            for one in text.answers.module.instructions()
            if first <= one.offset <= last and (label := text.answers.time(one))
        ]


def _add_fusion(server: HloServer) -> None:
    @server.feature(lsp.TEXT_DOCUMENT_CODE_LENS)
    @server.thread()
    def lenses(params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
        uri = params.text_document.uri
        text = server.text(uri)
        if text.answers is None:
            return []
        try:
            unfused = text.answers.unfused()
        except (
            HlooptError
        ) as error:  # no plan for this module: nobody asked about it, so no message
            server.window_log_message(lsp.LogMessageParams(lsp.MessageType.Log, str(error)))
            return []
        return [
            lsp.CodeLens(
                range=server.named(text, one.instruction.offset, one.instruction.name),
                command=lsp.Command(one.title, _EXPLAIN, arguments=[uri, one.instruction.name]),
            )
            for one in unfused
        ]

    @server.command(_EXPLAIN)
    @server.thread()
    def explained(uri: str, name: str) -> str:
        """What ``hloopt explain`` says of an instruction; shown, and returned."""
        answers = server.text(uri).answers
        if answers is None:
            return ""
        try:
            said = answers.explanation(name)
        except HlooptError as error:
            said = str(error)
        server.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Info, said))
        return said
