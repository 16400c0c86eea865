"""The status page in a real browser, over a real state: with and without JavaScript, by keyboard, wide, narrow, light and dark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from storage_consumer.driver.lease import identity
from storage_consumer.model import TableName
from tests.contract.served_page import served
from tests.contract.state_rigs import Rig, progress, real_rig
from tests.contract.test_status_page import now_ts
from tests.harness.browser import Tab, chromium, tab
from tests.harness.servers import DatabaseServer

pytestmark = [pytest.mark.server, pytest.mark.alone]
TABLES = 10_000
HOSTILE = "<img src=evil onerror=alert(1)>"
BROKEN = ("shop.t00007", "shop.t00021")
RTL = "\u202eelbat"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests here; it is closed at their end, since it keeps an event loop running."""
    with chromium() as found:
        yield found


@pytest.fixture
def rig(mariadb: DatabaseServer) -> Iterator[Rig]:
    """A state of ten thousand tables, of which two are halted."""
    found = real_rig(mariadb)
    owner = found.owner(identity(1_790_000_000))
    save(owner, *BROKEN)
    yield found
    found.close()


def save(owner: Any, *broken: str) -> None:
    """Store all tables, some of them as halted."""
    names = [f"t{n:05}" for n in range(TABLES - 2)] + [HOSTILE, RTL]
    halted: dict[str, Any] = {"state": "halted", "follows": False, "error": "it broke"}
    tables = [
        progress(f"shop/{name}", now_ts(600), **halted)
        if str(TableName(schema="shop", table=name)) in broken
        else progress(f"shop/{name}", now_ts(9), follows=True)
        for name in names
    ]
    marks = {"checkpoint": now_ts(2), "storage_checkpoint": now_ts(1), "lowest": now_ts(600)}
    owner.progress.save(tables=tables, sequences={}, **marks)


@pytest.fixture
def address(mariadb: DatabaseServer, rig: Rig) -> Iterator[str]:
    """Where its page is."""
    with served(mariadb.port) as found:
        yield found


@pytest.fixture
def viewer(browser: Browser, address: str) -> Iterator[Tab]:
    """Someone who looks at the overview; nothing may be complained about until they leave."""
    with tab(browser, address) as found:
        found.page.goto(f"{address}/")
        yield found
        assert found.complaints == []


def test_overview(viewer: Tab) -> None:
    """The word, the commands with a button that copies them, and no more tables than fit a page."""
    page = viewer.page
    assert page.title().startswith("stopped · ")
    expect(page.get_by_role("heading", level=1)).to_contain_text("stopped")
    command = page.locator(".command").first
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    command.get_by_role("button", name="Copy").click()
    expect(command.get_by_role("button")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == command.locator("code").inner_text()
    assert page.locator("#list tbody tr").count() == 200


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/tables/shop.t00007"])
def test_contrast(browser: Browser, address: str, scheme: str, path: str) -> None:
    """In both colour schemes every text stands out from what is behind it, as WCAG's level AA asks: 4.5 to 1."""
    with tab(browser, address, color_scheme=scheme) as found:
        found.page.goto(f"{address}{path}")
        back = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert back == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}[scheme]
        assert found.page.evaluate(_CONTRAST) == []
        assert found.complaints == []


_CONTRAST = """() => {
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const shine = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const back = parts(getComputedStyle(element).backgroundColor);
      if (back.length === 3 || back[3] === 1) return back;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll("body *:not(script):not(style)")].filter((element) =>
    [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) && element.checkVisibility()
  ).map((element) => {
    const [one, two] = [shine(parts(getComputedStyle(element).color)), shine(behind(element))].sort((a, b) => b - a);
    return [element.outerHTML.slice(0, 80), (one + 0.05) / (two + 0.05)];
  }).filter(([, ratio]) => ratio < 4.5);
}"""


def test_filter_and_sort_by_keyboard(viewer: Tab) -> None:
    """The skip link comes first; typing filters at once and keeps the focus; a heading sorts by Enter, and says so."""
    page = viewer.page
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    assert page.locator(":focus").bounding_box()["x"] >= 0  # type: ignore[index] # it is shown
    page.get_by_label("Name contains").focus()
    page.keyboard.type("0000")
    expect(page.locator(".found")).to_have_text("10 tables")
    expect(page.get_by_label("Name contains")).to_be_focused()
    assert page.url.endswith("?q=0000")
    heading = page.get_by_role("link", name="table", exact=True)
    heading.focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("table")
    expect(page.locator("#sort-table")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("table")
    expect(page.locator("#list tbody tr").first).to_contain_text("shop.t00009")
    page.go_back()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("table")
    assert page.get_by_label("Name contains").input_value() == "0000"
    page.locator("#state-halted").press("Enter")
    expect(page.locator(".found")).to_have_text("1 table")


def test_focus_is_seen(viewer: Tab) -> None:
    """Whatever the keyboard reaches has an outline."""
    for _ in range(25):
        viewer.page.keyboard.press("Tab")
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert viewer.page.evaluate(style) == "solid", viewer.page.evaluate("document.activeElement.outerHTML")


def test_without_javascript(browser: Browser, address: str) -> None:
    """Filter, sorting, pages and a table's page work by links and a form; the button that needs JavaScript is not there."""
    with tab(browser, address, java_script_enabled=False) as found:
        page = found.page
        page.goto(f"{address}/")
        expect(page.get_by_role("button", name="Pause updates")).to_be_hidden()
        page.get_by_role("link", name="running").click()
        page.locator("#sort-table").click()
        page.locator("#page-next").click()
        assert "state=running" in page.url
        assert "page=2" in page.url
        page.get_by_label("Name contains").fill("0002")
        page.get_by_role("button", name="Filter").click()
        expect(page.locator(".found")).to_have_text("10 tables")
        assert "state=running" in page.url
        page.get_by_role("link", name="shop.t00020").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("shop.t00020")
        page.get_by_role("link", name="All tables").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("stopped")
        assert found.complaints == []


def test_updates_keep_what_the_viewer_chose(viewer: Tab, rig: Rig) -> None:
    """What changes in the state is shown without a click; filter, focus, scroll and opened details stay; a pause holds it."""
    page = viewer.page
    page.get_by_label("Name contains").fill("t0002")
    expect(page.locator(".found")).to_have_text("10 tables")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.get_by_role("link", name="shop.t00025", exact=True).focus()
    before = page.evaluate("scrollY")
    row = page.locator("#list tr", has_text="shop.t00025")
    expect(row).to_contain_text("running")
    owner = rig.handle()
    owner.open("file:///some/bucket")
    rig.expire()
    assert owner.lease.acquire(identity(1_790_000_001), 600) == ""
    save(owner, *BROKEN, "shop.t00025")
    expect(row).to_contain_text("halted", timeout=15_000)
    expect(page.get_by_label("Name contains")).to_have_value("t0002")
    expect(page.locator("#list tbody tr")).to_have_count(10)
    expect(page.get_by_role("link", name="shop.t00025", exact=True).last).to_be_focused()
    # Above the list there is one more stopped table now.
    assert page.evaluate("scrollY") >= before
    page.get_by_role("button", name="Pause updates").click()
    shown = page.locator("#updated").inner_text()
    time.sleep(7)
    assert page.locator("#updated").inner_text() == shown
    page.get_by_role("button", name="Resume updates").click()
    expect(page.locator("#updated")).not_to_have_text(shown)


def test_program_that_ended(browser: Browser, mariadb: DatabaseServer, rig: Rig) -> None:
    """The page says that nobody answers any more, and its word and colour say nothing of the feed until somebody does."""
    grey = "getComputedStyle(document.querySelector('#headline')).borderColor"
    with served(mariadb.port) as address:
        page = browser.new_page()
        page.goto(f"{address}/")
        expect(page.locator("#lost")).to_be_hidden()
        before = page.evaluate(grey)
    expect(page.locator("#lost")).to_contain_text("has not answered", timeout=15_000)
    expect(page.locator("#headline h1")).to_have_text("? unknown, was stopped")
    assert page.title().startswith("unknown")
    assert "6e7781" in (page.locator("link[rel=icon]").get_attribute("href") or "")
    assert page.evaluate(grey) != before
    expect(page.locator("#list tbody tr")).to_have_count(200)
    page.close()


def test_a_page_that_is_not_renewed(browser: Browser, address: str) -> None:
    """While updates are paused, and without JavaScript, an old page does not go on to say how the feed is."""
    page = browser.new_page()
    page.clock.install()
    page.goto(f"{address}/")
    page.get_by_role("button", name="Pause updates").click()
    page.clock.run_for(30_000)
    expect(page.locator("#headline h1")).to_have_text("? unknown, was stopped")
    expect(page.locator("#lost")).to_contain_text("Nothing was updated")
    page.get_by_role("button", name="Resume updates").click()
    expect(page.locator("#headline h1")).to_contain_text("✕ stopped")
    expect(page.locator("#lost")).to_be_hidden()
    page.close()
    with tab(browser, address, java_script_enabled=False) as found:
        found.page.goto(f"{address}/")
        expect(found.page.locator(".old")).to_be_hidden()
        # It shows after a minute by an animation, for which time goes faster here.
        found.page.context.new_cdp_session(found.page).send("Animation.setPlaybackRate", {"playbackRate": 30})
        expect(found.page.locator(".old")).to_be_visible()


@pytest.mark.parametrize(("width", "height"), [(360, 740), (1280, 900), (3840, 2160)])
@pytest.mark.parametrize("path", ["/", "/?q=evil", "/tables/shop.t00007"])
def test_widths(browser: Browser, address: str, width: int, height: int, path: str) -> None:
    """From a telephone to a wall the page itself is never wider than its window."""
    with tab(browser, address, viewport={"width": width, "height": height}) as found:
        found.page.goto(f"{address}{path}")
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width
        assert found.complaints == []


def test_hostile_names(viewer: Tab, address: str) -> None:
    """A name that is HTML, or turns the writing direction round, is text; its page is found by its link."""
    page = viewer.page
    page.get_by_label("Name contains").fill("evil")
    expect(page.locator(".found")).to_have_text("1 table")
    assert page.locator("#list img").count() == 0
    page.locator("#list tbody a").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE)
    page.goto(f"{address}/?q=elbat")
    page.locator("#list tbody a").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("shop.\\u202eelbat")


def test_print(viewer: Tab) -> None:
    """On paper there are no controls, and no colours of the night."""
    viewer.page.emulate_media(media="print", color_scheme="dark")
    for control in ("#filter", "#states", "#pause", ".command button"):
        expect(viewer.page.locator(control).first).to_be_hidden()
    assert viewer.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
