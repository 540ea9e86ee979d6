"""The page in a browser: Chromium without a window, driven by Playwright; skipped where one of them is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import hloopt
from hloopt.findings import chosen_kinds
from hloopt.pages.serving import PageServer
from tests.pages.test_page import EVIL, PROGRAM

api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")
SECTIONS = [
    "overview",
    "source",
    "graph",
    "kernels",
    "decisions",
    "whatif",
    "passes",
    "memory",
    "roofline",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One browser for all tests."""
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> str:
    """A page about a sample."""
    path = tmp_path_factory.mktemp("page") / "p.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hloopt.driver.whatif._MOST", 2)
        # One kind of finding: all of them evaluate the sample's loop for many seconds.
        patch.setattr("hloopt.driver.page.chosen_kinds", lambda _: chosen_kinds(("loop-kernels",)))
        path.write_text(hloopt.page(samples / "kalman_scan.hlo").to_html())
    return path.as_uri()


def opened(
    browser: Any, address: str, width: int = 1280, theme: str = "light"
) -> tuple[Any, list[str]]:
    """The page, and a list to which what goes wrong is appended."""
    page = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=theme
    ).new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on(
        "request",
        lambda asked: (
            wrong.append(asked.url) if not asked.url.startswith(("file:", "blob:")) else None
        ),
    )
    page.on("dialog", lambda dialog: (wrong.append(dialog.message), dialog.dismiss()))
    page.goto(address)
    page.wait_for_selector("main h2")
    return page, wrong


@pytest.mark.parametrize(
    ("width", "theme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")]
)
def test_every_section_is_shown(browser: Any, address: str, width: int, theme: str) -> None:
    """Nothing fails, nothing is loaded, nothing is wider than the window."""
    page, wrong = opened(browser, address, width, theme)
    for section in SECTIONS:
        page.evaluate("name => { location.hash = name; }", section)
        page.wait_for_function(
            "name => document.querySelector(`#sections [aria-current]`)?.hash === `#${name}`",
            arg=section,
        )
        page.wait_for_function("document.querySelector('main').innerText.length > 30")
        page.wait_for_function("!document.querySelector('main [aria-busy]')")
        assert page.locator(".problem").count() == 0, section
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), section
    assert wrong == []
    page.context.close()


def test_nothing_jumps(browser: Any, address: str) -> None:
    """No layout shift while the page opens and while sections are walked through; it prints as it is."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.add_init_script(
        "window.shifts = 0; new PerformanceObserver(list => {"
        " for (const one of list.getEntries()) window.shifts += one.value;"
        "}).observe({ type: 'layout-shift', buffered: true })"
    )
    page.goto(address)
    page.wait_for_selector("main h2")
    page.wait_for_function("!document.querySelector('main [aria-busy]')")
    for section in SECTIONS:
        page.evaluate("name => { location.hash = name; }", section)
        page.wait_for_timeout(80)
    assert page.evaluate("window.shifts") < 0.01
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="print")
    assert page.locator("#find").is_hidden()
    page.context.close()


def test_lines_of_the_program_are_text(browser: Any, tmp_path: Path) -> None:
    """Beside the instruction, its own line marked, and what looks like HTML shown as it is."""
    (tmp_path / "m.py").write_text(f"one\ntwo\nthree {EVIL}\nfour\nfive\nsix\n")
    path = tmp_path / "p.html"
    path.write_text(hloopt.page(hloopt.parse(PROGRAM), sources=tmp_path).to_html())
    page, wrong = opened(browser, f"{path.as_uri()}#source")
    page.wait_for_function("document.querySelector('main').innerText.includes('three')")
    page.goto(f"{path.as_uri()}#i/e%2Fd")
    page.wait_for_selector("#panel .program")
    assert page.locator("#panel .program .named").inner_text().strip() == f"3  three {EVIL}"
    assert page.locator("#panel .program > span").count() == 5
    assert page.locator("img").count() == 0
    assert wrong == []
    page.context.close()


def test_an_instruction_has_an_address(browser: Any, address: str) -> None:
    """With its HLO and its code; its graph is a step away, and Escape closes it."""
    made, wrong = opened(browser, f"{address}#kernels")
    made.locator("tbody tr").first.click()
    made.wait_for_selector("#panel:not([hidden])")
    name = made.locator("#panel h3").inner_text()
    assert made.url.endswith(f"%2F{name}")
    made.wait_for_function("document.querySelector('#panel').innerText.includes('__global__')")
    assert f"%{name} =" in made.locator("#panel pre").first.inner_text()
    again, _ = opened(browser, made.url)
    again.wait_for_selector("#panel:not([hidden])")
    assert again.locator("#panel h3").inner_text() == name
    again.get_by_role("button", name="show in the graph").click()
    again.wait_for_selector(".stage .sought")
    assert again.locator(".sought").get_attribute("data-key") == name
    again.keyboard.press("Escape")
    assert again.locator("#panel").is_hidden()
    assert wrong == []


def test_search_and_keys(browser: Any, address: str) -> None:
    """A slash searches, the costliest come first, Enter opens; digits are sections, j goes down rows."""
    page, wrong = opened(browser, address)
    page.keyboard.press("/")
    page.keyboard.type("while")
    page.wait_for_selector("#hits a")
    assert page.locator("#hits a b").first.inner_text() == "while.8"
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel:not([hidden])")
    assert page.locator("#panel h3").inner_text() == "while.8"
    page.keyboard.press("Escape")
    page.keyboard.press("4")
    page.wait_for_selector("main tbody tr")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert (
        page.evaluate(
            "[...document.querySelectorAll('main tbody tr')].indexOf(document.activeElement)"
        )
        == 1
    )
    page.keyboard.press("t")
    assert page.locator("#theme").inner_text() == "theme: light"
    page.goto(f"{address}#i/nothing")
    page.wait_for_selector(".problem")
    assert "No instruction is called nothing" in page.locator(".problem").inner_text()
    assert wrong == []


def test_a_chosen_pair_is_a_lock_file(browser: Any, address: str) -> None:
    """What is marked stands in a text to copy."""
    page, wrong = opened(browser, f"{address}#whatif")
    page.locator("tbody input").first.check()
    text = page.locator("main pre").inner_text()
    assert text.startswith("# What is fused")
    assert "[[nofuse]]" in text or "[[fuse]]" in text
    assert wrong == []


PARTED = """HloModule m

ENTRY e {
  x = f32[512,512] parameter(0)
  t = f32[512,512] transpose(x), dimensions={1,0}
  d = f32[512,512] dot(t, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[512,512] sine(d)
  c = f32[512,512] cosine(s)
  ROOT r = f32[512,512] add(s, c)
}
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page about a product and a kernel that reads it."""
    path = tmp_path_factory.mktemp("small") / "p.html"
    path.write_text(hloopt.page(hloopt.parse(PARTED, "m.hlo")).to_html())
    return path.as_uri()


@pytest.mark.parametrize("by", ["click", "key", "panel"])
def test_two_marked_boxes_are_a_pair(browser: Any, small: str, by: str) -> None:
    """By a click, by a key, or beside the instruction; kernels would be fused, and the lock file has it."""
    page, wrong = opened(browser, f"{small}#graph")

    def mark(name: str) -> None:
        box = page.locator(f'.stage g[data-key="{name}"]')
        if by == "click":
            box.click(modifiers=["Shift"])
        elif by == "key":
            box.focus()
            page.keyboard.press("m")
        else:
            box.click()
            page.wait_for_selector(f'#panel h3:has-text("{name}")')
            page.get_by_role("button", name="mark", exact=True).click()
            page.get_by_role("button", name="unmark", exact=True).wait_for()
        page.wait_for_selector(f'.stage g[data-key="{name}"][aria-pressed="true"]')

    mark("d")
    assert "Mark what it could be fused with" in page.locator("#marks").inner_text()
    mark("loop_add_fusion")
    said = page.locator("#marks")
    page.wait_for_function("() => document.querySelector('#marks').innerText.includes('Fuse')")
    assert "Fuse d into s:" in said.inner_text().replace("\n", " ")
    assert "--serve prices any pair" in said.inner_text()
    said.get_by_role("checkbox").check()
    page.evaluate("location.hash = 'whatif'")
    page.wait_for_selector("main h3:has-text('Lock file')")
    row = '[[fuse]]\ncomputation = "e"\nproducer = "d"\nconsumer = "s"\n'
    assert page.locator("main pre").inner_text().endswith(row)
    assert "not priced" in page.locator("main table").inner_text()
    said.get_by_role("button", name="clear").click()
    assert said.is_hidden()
    assert wrong == []
    page.context.close()


def test_within_a_kernel_two_are_parted(browser: Any, small: str) -> None:
    """With the price that the page has; what is no pair says why."""
    page, wrong = opened(browser, f"{small}#graph")
    page.evaluate("part('whatif')")
    page.locator('.stage g[data-key="loop_add_fusion"]').dblclick()
    page.wait_for_selector('.stage g[data-key="c"]')
    page.locator('.stage g[data-key="c"]').click(modifiers=["Shift"])
    page.locator('.stage g[data-key="s"]').click(modifiers=["Shift"])
    page.wait_for_function("() => document.querySelector('#marks').innerText.includes('Part')")
    said = page.locator("#marks").inner_text().replace("\n", " ")
    priced = page.evaluate(
        "part('whatif').then(found => { const row = found.rows.find(one => one.pairs[0].producer === 's'"
        " && one.pairs[0].consumer === 'c'); return row && changeText(row.seconds - found.seconds); })"
    )
    assert priced is not None
    assert f"Part s from c: {priced}" in said
    page.evaluate("location.hash = 'graph'")
    page.wait_for_selector('.stage g[data-key="d"]')
    page.locator('.stage g[data-key="x"]').click(modifiers=["Shift"])
    page.wait_for_function("() => document.querySelector('#marks').innerText.includes('Neither')")
    assert wrong == []
    page.context.close()


def test_marks_are_priced_by_the_server(browser: Any, tmp_path: Path) -> None:
    """Any pair, as the lock file of the answer has it; and the other device's code where the page lacks it."""
    file = tmp_path / "m.hlo"
    file.write_text(PARTED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hloopt.driver.whatif._MOST", 0)
        patch.setattr("hloopt.driver.page_code._WORK", 0)
        server = PageServer(lambda: hloopt.page(file), [file])
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
        page.goto(f"{server.address}#graph/e")
        page.locator('.stage g[data-key="d"]').click(modifiers=["Shift"])
        page.locator('.stage g[data-key="loop_add_fusion"]').click(modifiers=["Shift"])
        page.get_by_role("button", name="price it").click()
        page.wait_for_function(
            "() => /no other plan|none|[+-][0-9.]+ .s/.test($('marks').innerText)"
        )
        page.evaluate("location.hash = 'i/e%2Floop_add_fusion'")
        page.get_by_role("button", name="write the C++").click()
        page.wait_for_function("() => $('panel').innerText.includes('static void')")
        page.context.close()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_equal_kernels_are_one_row(browser: Any, tmp_path: Path) -> None:
    """With the time and the launches of all; each by itself where that is chosen."""
    layers = "".join(
        f"  d{at} = f32[64,64] dot({f'y{at - 1}' if at else 'x'}, x), lhs_contracting_dims={{1}}, "
        f"rhs_contracting_dims={{0}}\n  y{at} = f32[64,64] sine(d{at})\n"
        for at in range(4)
    )
    text = f"HloModule m\n\nENTRY e {{\n  x = f32[64,64] parameter(0)\n{layers}  ROOT r = f32[64,64] negate(y3)\n}}\n"
    path = tmp_path / "p.html"
    path.write_text(hloopt.page(hloopt.parse(text, "m.hlo")).to_html())
    page, wrong = opened(browser, f"{path.as_uri()}#kernels")
    page.wait_for_selector("main tbody tr")
    # Three products, three sines, the first product, whose sides are one array, and the last fusion.
    assert page.locator("main tbody tr").count() == 4
    sums = page.evaluate(
        "part('kernels').then(async rows => [await together(rows), rows].map("
        "list => [list.reduce((all, row) => all + row.seconds, 0), list.reduce((all, row) => all + row.counted, 0)]))"
    )
    assert sums[0] == pytest.approx(sums[1])
    first = page.locator("main tbody tr").first.inner_text()
    assert "and 2 equal ones" in first
    page.get_by_label("rows", exact=True).select_option("each")
    page.wait_for_function("() => document.querySelectorAll('main tbody tr').length === 8")
    assert "equal" not in page.locator("main tbody").inner_text()
    assert wrong == []
    page.context.close()


def test_times_by_computation_and_name_scope(browser: Any, address: str) -> None:
    """Beside those of source lines; a computation leads to its graph."""
    page, wrong = opened(browser, f"{address}#source")
    choose = page.get_by_label("what times are added up by")
    choose.select_option("computation")
    page.wait_for_selector('th:has-text("computation")')
    whole = page.evaluate("overview.seconds")
    first = page.locator("tbody tr").first
    assert first.locator("td.share").inner_text().strip().endswith("%")
    computation = first.locator("a").first.inner_text()
    page.get_by_label("what times are added up by").select_option("namespace")
    page.wait_for_selector('th:has-text("name scope")')
    rows = page.evaluate(
        "part('kernels').then(rows => rows.reduce((all, row) => all + row.seconds, 0))"
    )
    assert rows == pytest.approx(whole)
    page.goto(f"{address}#graph/{computation}")
    page.wait_for_selector(f'.crumbs b:has-text("{computation}")')
    assert wrong == []


def test_xla_s_plan_is_beside_ours(browser: Any, tmp_path: Path, samples: Path) -> None:
    """Group by group; a click shows the HLO of both, and a plan of another kind of device is said to be one."""
    dumped = samples / "dump" / "module_0002.jit_normalize.before_optimizations.txt"
    path = tmp_path / "p.html"
    path.write_text(hloopt.page(dumped).to_html())
    page, wrong = opened(browser, f"{path.as_uri()}#xla", 360)
    page.wait_for_selector("main tbody tr")
    assert "for a CPU, where it chooses other kernels" in page.locator("main .problem").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = page.locator("main .table").bounding_box()
    heads = page.locator("main th:visible")
    last = heads.nth(heads.count() - 1).bounding_box()
    assert last["x"] + last["width"] <= box["x"] + box["width"] + 1
    page.locator("main tbody tr").first.locator("td").last.click()
    page.wait_for_selector("#panel:not([hidden])")
    assert "%" in page.locator("#panel pre").first.inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#panel").is_hidden()
    assert wrong == []


def test_boxes_of_the_graph_open(browser: Any, address: str) -> None:
    """A loop's box opens its body, and the path leads back."""
    page, wrong = opened(browser, f"{address}#graph")
    page.locator('.stage g[data-key="while.8"]').dblclick()
    page.wait_for_function("document.querySelectorAll('.crumbs a').length === 1")
    body = page.locator(".crumbs b").inner_text()
    assert page.url.endswith(f"#graph/{body}")
    before = page.locator(".stage svg").get_attribute("viewBox")
    page.get_by_role("button", name="+", exact=True).click()
    assert page.locator(".stage svg").get_attribute("viewBox") != before
    page.locator(".crumbs a").click()
    page.wait_for_function("document.querySelectorAll('.crumbs a').length === 0")
    assert wrong == []


def test_names_of_the_module_run_nothing(browser: Any, tmp_path: Path) -> None:
    """Names that are HTML are shown as they are."""
    path = tmp_path / "p.html"
    path.write_text(hloopt.page(hloopt.parse(PROGRAM)).to_html())
    page, wrong = opened(browser, f"{path.as_uri()}#source")
    page.wait_for_function("document.querySelector('main').innerText.includes('onerror')")
    assert EVIL in page.locator("main").inner_text()
    for section in SECTIONS:
        page.evaluate("name => { location.hash = name; }", section)
        page.wait_for_timeout(50)
    assert page.locator("img").count() == 0
    assert wrong == []
