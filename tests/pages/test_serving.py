"""The page served: to this machine, to who knows the token; again when the file changes; any plan on demand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import hloopt
from hloopt.pages.serving import PageServer
from tests.helpers.support import invoke
from tests.pages.test_page import PROGRAM


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PageServer, Path]]:
    """A server in this process, of a file."""
    monkeypatch.setattr("hloopt.driver.whatif._MOST", 1)
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM)
    with PageServer(lambda: hloopt.page(file), [file]) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server, file
        server.shutdown()
        thread.join()


def asked(
    server: PageServer, place: str, body: str | None = None, **headers: str
) -> tuple[int, str]:
    """Status and content of an answer."""
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET" if body is None else "POST", place, body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def test_the_page_follows_its_file(served: tuple[PageServer, Path]) -> None:
    """What is served changes with the file; one that cannot be read leaves the page, with the reason."""
    server, file = served
    assert server.server_address[0] == "127.0.0.1"
    start = f"/{server.token}/"
    status, text = asked(server, start)
    assert status == 200
    assert "connect-src 'self'" in text
    assert "attack" in text
    before = asked(server, f"{start}state")
    file.write_text(PROGRAM.replace("attack", "changed_since"))
    assert asked(server, f"{start}state") != before
    assert "changed_since" in asked(server, start)[1]
    file.write_text("HloModule broken\n\nENTRY e {")
    text = asked(server, start)[1]
    assert "changed_since" in text
    assert f'"problem": "{file}:3:' in text
    file.unlink()
    text = asked(server, start)[1]
    assert "changed_since" in text
    assert str(file) in text.split('"problem": ')[1]
    other = file.with_suffix(".new")
    other.write_text(PROGRAM.replace("attack", "put_in_its_place"))
    other.replace(file)
    text = asked(server, start)[1]
    assert "put_in_its_place" in text
    assert '"problem": ""' in text


def test_any_pair_is_priced(served: tuple[PageServer, Path]) -> None:
    """As the page has those that were priced before; what is no question is refused."""
    server, _ = served
    token = {"X-Token": server.token}
    place = f"/{server.token}/ask"
    pair = {"what": "part", "producer": "s", "consumer": "r"}
    status, text = asked(server, place, json.dumps({"pairs": [pair]}), **token)
    row: dict[str, Any] = json.loads(text)
    assert (status, row["pairs"][0]["fuse"], row["made"]) == (200, False, True)
    assert row["seconds"] > server.page.parts["whatif"]["seconds"]
    assert '[[nofuse]]\nproducer = "s"' in row["lock"]
    same = {"what": "fuse", "producer": "d", "consumer": "s"}
    kept = json.loads(asked(server, place, json.dumps({"pairs": [same]}), **token)[1])
    assert not kept["made"]
    assert kept["reason"] == "the producer cannot be computed element by element"
    unknown = {**same, "consumer": "q"}
    kept = json.loads(asked(server, place, json.dumps({"pairs": [unknown]}), **token)[1])
    assert kept["reason"] == "nothing is called q before fusion"
    assert row["reason"] == ""
    more = {"what": "part", "producer": "c", "consumer": "r"}
    both = json.loads(asked(server, place, json.dumps({"pairs": [pair, more]}), **token)[1])
    assert both["kernels"] == row["kernels"] + 1
    assert both["lock"].count("[[nofuse]]") == 2
    wrong = json.dumps({"pairs": [{**pair, "producer": "/(/"}]})
    assert (
        "is not a regular expression"
        in json.loads(asked(server, place, wrong, **token)[1])["error"]
    )
    none = "a pair has 'what', fuse or part, 'producer' and 'consumer'"
    for bad in ({"what": "fuse"}, {**pair, "what": "join"}, {**pair, "computation": 3}, "s", None):
        text = asked(server, place, json.dumps({"pairs": [bad]}), **token)[1]
        assert json.loads(text)["error"] == none
    for question in ({}, {"pairs": []}, {"pairs": [pair] * 65}, {"pairs": "s"}):
        text = asked(server, place, json.dumps(question), **token)[1]
        assert json.loads(text)["error"] == "a question has 'pairs', a list of 1 to 64"
    assert asked(server, place, "[]", **token)[0] == 400
    assert asked(server, place, "[" * 60_000, **token)[0] == 400
    assert asked(server, place, "{", **token)[0] == 400
    assert asked(server, place, "x" * 70_000, **token)[0] == 413


def test_the_code_of_any_kernel_is_written(served: tuple[PageServer, Path]) -> None:
    """In both languages, whether the page has it or not; of what is no kernel there is none."""
    server, _ = served
    token = {"X-Token": server.token}

    def code_of(place: object) -> dict[str, str]:
        status, text = asked(server, f"/{server.token}/ask", json.dumps({"code": place}), **token)
        assert status == 200
        answer: dict[str, str] = json.loads(text)
        return answer

    found = code_of("e/loop_add_fusion")
    assert "__global__ void" in found["own"]
    assert "static void" in found["other"]
    assert code_of("e/x") == {"error": "no kernel is at e/x"}
    assert code_of(["e"]) == {"error": "no kernel is at ['e']"}


def test_others_are_refused(served: tuple[PageServer, Path]) -> None:
    """Without the token, by another host's name, from a form of another page."""
    server, _ = served
    start = f"/{server.token}/"
    assert asked(server, "/")[0] == 403
    other = "y" if server.token.endswith("x") else "x"
    assert asked(server, f"/{server.token[:-1]}{other}/")[0] == 403
    assert asked(server, start, Host="evil.example")[0] == 403
    assert asked(server, f"{start}ask", "{}")[0] == 403
    assert asked(server, f"{start}ask", "{}", **{"X-Token": "\xe9"})[0] == 403
    assert asked(server, f"{start}../../../../../etc/passwd")[0] == 404
    assert asked(server, f"{start}%2e%2e/%2e%2e/etc/passwd")[0] == 404
    assert asked(server, f"{start}etc/passwd")[0] == 404
    assert asked(server, f"{start}other", "{}", **{"X-Token": server.token})[0] == 404


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("-o", "p.html"),
            "--serve shows the page in a browser: it goes with neither -o nor --json",
        ),
        (("--json",), "--serve shows the page in a browser: it goes with neither -o nor --json"),
    ],
)
def test_what_does_not_go_with_it(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM)
    done = invoke("report", str(file), "--serve", *options)
    assert done.exit_code == 2
    assert message in done.stderr
    done = invoke("report", "--serve", stdin=PROGRAM)
    assert (
        done.exit_code,
        "--serve follows a file, and standard input is none" in done.stderr,
    ) == (2, True)
