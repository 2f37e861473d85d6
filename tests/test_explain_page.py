"""The page of an explanation in a real browser: what lights up, what opens, what overlaps, what it asks the network for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import weft
from tests import browser
from tests.test_explain import attention, latest, reference_loop
from weft.explain import refusal
from weft.kernels import LIBRARY

pytestmark = pytest.mark.slow
ROWS = "float32[64,1024]"


def _long(statements: int) -> str:
    """A program of so many statements, each of which reads several before it."""
    lines = [f"        a{k} = x[i] * {k}.0 + a{max(0, k - 3)} * a{max(0, k - 7)} - a{k // 2}" for k in range(1, statements - 1)]
    head = "def long(x):\n    y = torch.empty_like(x)\n    for i in range(x.shape[0]):\n        a0 = x[i] + 1.0\n"
    return head + "\n".join(lines) + f"\n        y[i] = a{statements - 2}\n    return y\n"


def coupled(x, y, z, k: int):
    for i in range(1, y.shape[0]):
        x[i] = y[i - 1] + 1.0
        y[i] = 2.0 * x[i] + z[i - 1]
        x[i + k] = 0.0
        z[i] = math.sin(y[i]) * x[i - 1] + z[i - 1]
        t = z[i] * 2.0
        if t > 0.0:
            x[i + 1] = t


def refused(x):
    i = 0
    while i < 3:
        i = i + 1
    return x


def chained(a, b, c, d):
    for i in range(1, a.shape[0]):
        a[i] = math.sin(b[i - 1])
        b[i] = math.cos(a[i])
        c[i] = a[i] + b[i] * c[i - 1] * d[i - 1]
        d[i] = c[i] * c[i - 1]


def nothing(x):
    return torch.zeros_like(x)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    html = {
        "linrec": LIBRARY["linrec"].explain(format="html"),
        "attention": attention.explain("float32[128,64]", "float32[256,64]", "float32[256,64]", format="html"),
        "reference_loop": reference_loop.explain(ROWS, ROWS, format="html"),
        "latest": weft.analyze(latest).explain(format="html"),
        "coupled": weft.analyze(coupled).explain(format="html"),
        "chained": weft.analyze(chained).explain(format="html"),
        "long": weft.analyze(_long(30)).explain(format="html"),
        "nothing": weft.analyze(nothing).explain(format="html"),
    }
    with pytest.raises(weft.errors.WeftError) as caught:
        weft.analyze(refused)
    html["refused"] = refusal("refused", caught.value)
    for name, text in html.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in html}


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    lacking = browser.missing()
    if lacking:
        pytest.skip(lacking)
    with browser.chromium() as driver:
        yield driver


PAGES = ("linrec", "attention", "reference_loop", "latest", "coupled", "chained", "long", "nothing", "refused")


def every(driver: Any, selector: str) -> list[Any]:
    return driver.find_elements("css selector", selector)


def one(driver: Any, selector: str) -> Any:
    return driver.find_element("css selector", selector)


def rectangles(driver: Any, selector: str) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of elements."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].map(e => e.getBoundingClientRect())"
        ".map(r => [r.left, r.top, r.right, r.bottom])"
    )
    return [tuple(r) for r in driver.execute_script(script, selector)]


def apart(a: tuple[float, ...], b: tuple[float, ...], by: float = 0.0) -> bool:
    return a[2] <= b[0] + by or b[2] <= a[0] + by or a[3] <= b[1] + by or b[3] <= a[1] + by


def hover(driver: Any, element: Any) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(driver).move_to_element(element).perform()


def press(driver: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(driver).send_keys(*keys).perform()


def lit(driver: Any, selector: str, name: str) -> set[str]:
    """An attribute of the elements that are lit."""
    return {e.get_attribute(name) for e in every(driver, f"{selector}.lit")}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_needs_no_network_and_logs_nothing(driver: Any, pages: dict[str, Path], name: str) -> None:
    browser.requested(driver), browser.logged(driver)
    browser.show(driver, pages[name])
    for button in every(driver, "button"):
        driver.execute_script("arguments[0].click()", button)
    asked = [address for address in browser.requested(driver) if not address.startswith("data:")]
    assert asked == [pages[name].as_uri()] and browser.logged(driver) == []


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1400, 700])
def test_a_page_is_no_wider_than_the_window(driver: Any, pages: dict[str, Path], name: str, width: int) -> None:
    browser.resize(driver, width)
    browser.show(driver, pages[name])
    for button in every(driver, ".verdict, [role=tab]"):
        driver.execute_script("arguments[0].click()", button)
        assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    browser.resize(driver, 1400)


@pytest.mark.parametrize("name", PAGES[:-2])
def test_boxes_labels_and_lines_are_apart(driver: Any, pages: dict[str, Path], name: str) -> None:
    browser.resize(driver, 1400)
    browser.show(driver, pages[name])
    boxes, labels = rectangles(driver, ".node rect"), rectangles(driver, ".label")
    texts = rectangles(driver, ".node text:last-child")
    assert len(boxes) == len(every(driver, ".node")) == len(texts)
    for k, a in enumerate([*boxes, *labels]):
        for b in [*boxes, *labels][k + 1 :]:
            assert apart(a, b, by=0.5), (a, b)
    for box, text in zip(boxes, texts, strict=True):
        assert box[0] < text[0] and text[2] < box[2] and box[1] < text[1] and text[3] < box[3], "a text leaves its box"
    frames = rectangles(driver, ".frame rect")
    for a, b in ((a, b) for a in frames for b in [*boxes, *labels]):
        inside = a[0] < b[0] and b[2] < a[2] and a[1] < b[1] and b[3] < a[3]
        assert inside or apart(a, b), "a frame cuts a box or a label"
    assert through(driver) == []


def through(driver: Any) -> list[str]:
    """The lines that run through a box or a label of another arrow: points along each line, held against their insides."""
    script = """
        const inner = e => { const r = e.getBBox(); return [r.x + 1, r.y + 1, r.x + r.width - 1, r.y + r.height - 1]; };
        const things = [...document.querySelectorAll('.node rect, .label')].map(e => [e, inner(e)]);
        const bad = [];
        for (const path of document.querySelectorAll('.scroll .arrow .line')) {
          const length = path.getTotalLength();
          for (let at = 0; at <= length; at += 2) {
            const p = path.getPointAtLength(at);
            for (const [e, [l, t, r, b]] of things)
              if (p.x > l && p.x < r && p.y > t && p.y < b) bad.push(path.parentNode.dataset.arrows + ': ' + e.outerHTML);
          }
        }
        return bad;
    """
    return driver.execute_script(script)


def test_a_line_lights_its_statements_and_what_depends_on_it(driver: Any, pages: dict[str, Path]) -> None:
    browser.show(driver, pages["linrec"])
    first, second = every(driver, ".line[data-nodes]")
    hover(driver, second)
    assert lit(driver, ".node", "data-node") == {"S2"} and lit(driver, ".line", "data-nodes") == {"S2"}
    assert len(every(driver, ".arrow.lit")) == 1
    assert "S1 → S2: RAW (flow) of h" in one(driver, "#told").text
    hover(driver, first)
    assert lit(driver, ".node", "data-node") == {"S1"} and len(every(driver, ".arrow.lit")) == 2
    hover(driver, one(driver, "h1"))
    assert not every(driver, ".lit") and "Point at a line" in one(driver, "#told").text


def test_an_arrow_lights_both_ends_and_says_all_of_itself(driver: Any, pages: dict[str, Path]) -> None:
    browser.show(driver, pages["linrec"])
    between = next(e for e in every(driver, ".label") if e.text == "h")
    hover(driver, between)
    assert lit(driver, ".node", "data-node") == {"S1", "S2"} and lit(driver, ".line", "data-nodes") == {"S1", "S2"}
    carried = next(e for e in every(driver, ".label") if "l (0, 1)" in e.text)
    hover(driver, carried)
    assert lit(driver, ".line", "data-nodes") == {"S1"}
    said = "S1 → S1: RAW (flow) of h at distance (0, 1), carried by l, e.g. (r = 0, l = 0) then (r = 0, l = 1)"
    assert said in one(driver, "#told").text
    assert one(driver, ".arrow.carried .line").value_of_css_property("stroke-dasharray") != "none"
    assert one(driver, ".arrow:not(.carried) .line").value_of_css_property("stroke-dasharray") == "none"


def test_a_verdict_opens_why_and_closes_again(driver: Any, pages: dict[str, Path]) -> None:
    browser.show(driver, pages["latest"])
    button, why = one(driver, ".verdict"), one(driver, "#why-i")
    assert button.text.startswith("i: sequential") and not why.is_displayed()
    assert button.get_attribute("aria-expanded") == "false"
    button.click()
    assert why.is_displayed() and button.get_attribute("aria-expanded") == "true"
    for words in ("WAW at distance (<)", "(i = 0) then (i = 1)", "remedy", "loop over the elements of seen"):
        assert words in why.text
    button.click()
    assert not why.is_displayed()


def test_lines_are_marked_with_the_classes_of_their_loops(driver: Any, pages: dict[str, Path]) -> None:
    browser.show(driver, pages["attention"])
    script = "return [...arguments[0].querySelectorAll('.rails i')].map(i => i.classList[0])"
    line = next(e for e in every(driver, ".line") if "score = score +" in e.text)
    assert driver.execute_script(script, line)[0] == "parallel" and len(driver.execute_script(script, line)) == 3
    outside = next(e for e in every(driver, ".line") if e.text.endswith("return out"))
    assert driver.execute_script(script, outside) == []


def test_the_keyboard_reaches_everything(driver: Any, pages: dict[str, Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.show(driver, pages["linrec"])
    met = []
    for _ in range(20):
        press(driver, Keys.TAB)
        active = driver.switch_to.active_element
        met.append(active.get_attribute("class").split(" ")[0] or active.get_attribute("role") or active.tag_name)
        if active.get_attribute("data-nodes") == "S2":
            assert lit(driver, ".node", "data-node") == {"S2"}, "what has the focus lights up"
        if active.get_attribute("aria-controls") == "why-l":
            press(driver, Keys.ENTER)
            assert one(driver, "#why-l").is_displayed()
        if active.get_attribute("role") == "tab":
            break
    assert met[0] == "theme" and {"verdict", "line", "node", "label"} <= set(met) and met[-1] == "tab"
    press(driver, Keys.ARROW_RIGHT)
    assert one(driver, "#dependences").is_displayed() and not one(driver, "#program").is_displayed()
    assert driver.switch_to.active_element.get_attribute("id") == "tab-dependences"
    press(driver, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert one(driver, "#plan").is_displayed() and "64 blocks of 64 threads" in one(driver, "#plan").text


def _ground(driver: Any) -> tuple[str, str]:
    body = one(driver, "body")
    return body.value_of_css_property("background-color"), body.value_of_css_property("color")


def test_the_theme_follows_the_system_until_it_is_chosen(driver: Any, pages: dict[str, Path]) -> None:
    seen = {}
    for scheme in ("light", "dark"):
        browser.prefer(driver, scheme)
        browser.show(driver, pages["linrec"])
        seen[scheme] = _ground(driver)
    assert seen["light"] != seen["dark"]
    one(driver, "#theme").click()
    assert _ground(driver) == seen["light"]
    one(driver, "#theme").click()
    assert _ground(driver) == seen["dark"]
    browser.prefer(driver, "light")
    assert _ground(driver) == seen["dark"], "the reader's choice stays"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["attention", "chained"])
def test_texts_stand_out_from_what_is_behind_them(driver: Any, pages: dict[str, Path], name: str, scheme: str) -> None:
    """A ratio of 4.5 at least, as the accessibility guidelines ask of text."""
    browser.prefer(driver, scheme)
    browser.show(driver, pages[name])
    for button in every(driver, ".verdict"):
        button.click()
    script = """
        const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
        const over = (stack) => { canvas.clearRect(0, 0, 1, 1);
          for (const c of stack) { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); }
          return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
        const light = rgb => { const [r, g, b] = rgb.map(v => { v /= 255;
          return v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
        const found = [];
        for (const e of document.querySelectorAll('body *')) {
          const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
          if (!own || !e.checkVisibility() || ['SCRIPT', 'STYLE'].includes(e.tagName)) continue;
          const stack = [];
          for (let a = e; a; a = a.parentElement) stack.unshift(getComputedStyle(a).backgroundColor);
          const svg = e instanceof SVGElement, style = getComputedStyle(e);
          const box = svg && e.parentNode.querySelector('rect');
          const fill = box ? getComputedStyle(box).fill : 'none';
          if (fill !== 'none') stack.push(fill);
          const behind = over(stack), front = over([...stack, svg ? style.fill : style.color]);
          const [a, b] = [light(behind), light(front)].sort((x, y) => y - x);
          found.push([(a + .05) / (b + .05), e.textContent.slice(0, 30)]);
        }
        return found;
    """
    found = driver.execute_script(script)
    assert len(found) > 30 and not [(ratio, text) for ratio, text in found if ratio < 4.5]
    browser.prefer(driver, "light")


def test_every_control_has_a_name_and_every_reference_leads_somewhere(driver: Any, pages: dict[str, Path]) -> None:
    browser.show(driver, pages["attention"])
    for element in every(driver, "button, [role], svg[role], [tabindex]"):
        named = element.get_attribute("aria-label") or element.get_attribute("aria-labelledby") or element.text
        assert named or element.get_attribute("role") == "tabpanel", element.get_attribute("outerHTML")
    for attribute in ("aria-controls", "aria-labelledby"):
        for element in every(driver, f"[{attribute}]"):
            assert every(driver, f"#{element.get_attribute(attribute)}")
    ids = [e.get_attribute("id") for e in every(driver, "[id]")]
    assert len(ids) == len(set(ids))


def test_a_refusal_says_where_why_and_what_to_do(driver: Any, pages: dict[str, Path]) -> None:
    browser.show(driver, pages["refused"])
    text = one(driver, "body").text
    assert "refused" in text and "while i < 3:" in text and "remedy" in text
