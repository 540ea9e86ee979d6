"""A page served on this machine alone: made again when its file changes, with any other plan priced on demand.

Every address begins with a secret token, and requests have to name this host, so that other pages in the
browser cannot ask anything.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

from hloopt.errors import HlooptError, UsageError
from hloopt.pages.page import page_html

__all__ = ["PageServer", "ServedPage"]

_HOST: Final = "127.0.0.1"
_MOST_ASKED: Final = 65_536
"""Bytes of a question."""


class ServedPage(Protocol):
    """What is shown of a module, and what can be asked about it."""

    @property
    def overview(self) -> Mapping[str, Any]:
        """What is shown at once."""

    @property
    def parts(self) -> Mapping[str, Any]:
        """What is shown when a section is opened."""

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a question; raises ``HlooptError`` where there is none."""


class PageServer(ThreadingHTTPServer):
    """Serves one page at ``address``; ``make`` makes it, again where one of ``files`` has changed.

    Raises ``UsageError`` for a port that is taken.
    """

    daemon_threads = True

    def __init__(self, make: Callable[[], ServedPage], files: list[Path], port: int = 0) -> None:
        self.token = secrets.token_urlsafe(18)
        self.make = make
        self.files = files
        self.lock = Lock()
        self.page = make()
        self.made_of = self.state()
        self.problem = ""
        try:
            super().__init__((_HOST, port), _Handler)
        except OSError as error:
            raise UsageError(f"port {port}: {error.strerror or error}") from error

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        return f"http://{_HOST}:{self.server_port}/{self.token}/"

    def state(self) -> str:
        """Changes when one of the files does."""
        return "-".join(map(_state, self.files))

    def html(self) -> str:
        """The page as the files are now; of one that cannot be read the last one, with the reason."""
        with self.lock:
            state = self.state()
            if state != self.made_of:
                self.made_of, self.problem = state, ""
                try:
                    self.page = self.make()
                except HlooptError as error:
                    self.problem = str(error)
            overview = {
                **self.page.overview,
                "live": self.token,
                "state": state,
                "problem": self.problem,
            }
            return page_html(overview, self.page.parts, live=True)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """What a plan would cost, or a kernel's code; ``error`` says why that is not known."""
        with self.lock:
            try:
                return self.page.ask(question)
            except HlooptError as error:
                return {"error": error.message}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Show all errors except that the browser closed the connection."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def _state(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:  # an editor may be about to put another in its place
        return "none"
    return f"{found.st_ino}.{found.st_mtime_ns}.{found.st_size}"


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = 30  # seconds that a request may take to arrive

    def do_GET(self) -> None:
        """The page, and what it is made of."""
        if self._refused():
            return
        place = self.path.removeprefix(f"/{self.server.token}/")
        if place == "":
            self._send(self.server.html(), "text/html; charset=utf-8")
        elif place == "state":
            self._send(json.dumps({"state": self.server.state()}), "application/json")
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        """A question about another plan, or about the code of a kernel."""
        length = self.headers.get("Content-Length", "")
        if self._refused():
            return
        if not _equal(self.headers.get("X-Token", ""), self.server.token):
            self.send_error(403)
        elif not self.path.endswith("/ask"):
            self.send_error(404)
        elif not (length.isascii() and length.isdigit() and int(length) <= _MOST_ASKED):
            self.send_error(413)
        else:
            self._reply(self.rfile.read(int(length)))

    def _reply(self, content: bytes) -> None:
        try:
            question = json.loads(content)
        except (ValueError, RecursionError):
            question = None
        if not isinstance(question, dict):
            self.send_error(400)
            return
        self._send(json.dumps(self.server.answer(question)), "application/json")

    def _refused(self) -> bool:
        """Whether it is not from the page, which has the token, at this host's address."""
        host = self.headers.get("Host", "")
        given = self.path.split("/")[1] if "/" in self.path else ""
        known = _equal(given, self.server.token)
        if not known or host not in {
            f"{one}:{self.server.server_port}" for one in (_HOST, "localhost")
        }:
            self.send_error(403)
            return True
        return False

    def _send(self, text: str, kind: str) -> None:
        content = text.encode()
        self.send_response(200)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: stderr is for people."""


def _equal(given: str, token: str) -> bool:
    """In a time that does not depend on how much of it is right."""
    return hmac.compare_digest(given.encode(), token.encode())
