"""Report pages in headless Chromium: they draw everything, complain of nothing, fetch nothing, and fit their window."""

import os
import pathlib
import runpy
import subprocess

import pytest

from browser import Browser, find_program

TESTS = pathlib.Path(__file__).resolve().parent.parent
PAGES = {"one": ["hierarchical"], "several": ["hierarchical", "flat", "none"], "regression": ["regression"],
         "stopped": ["stopped"], "many_classes": ["many_classes"], "hostile": ["hostile"],
         "hostile_several": ["hostile", "stopped", "none", "many_classes"], "items": ["items"], "labels": ["labels"],
         "tasks": ["hierarchical", "items", "flat", "regression", "labels"]}
WIDTHS = [1280, 400]


@pytest.fixture(scope="module")
def program():
    path = pathlib.Path(os.environ.get("RAMIFY_PROGRAM", TESTS.parent / "build" / "release" / "ramify"))
    if not path.exists():
        pytest.skip(f"no program at {path}: build it, or name it in RAMIFY_PROGRAM")
    return path


@pytest.fixture(scope="module")
def browser():
    found = find_program()
    if not found:
        pytest.skip("no chromium")
    with Browser(found) as started:
        yield started


@pytest.fixture(scope="module")
def pages(program, tmp_path_factory):
    """The runs that are kept with the tests, and those that would only take space there."""
    folder = tmp_path_factory.mktemp("runs")
    runpy.run_path(str(TESTS / "data" / "make_runs.py"))["make_all"](folder)
    for kept in (TESTS / "data" / "runs").iterdir():
        (folder / kept.name).mkdir(exist_ok=True)
        for file in kept.iterdir():
            (folder / kept.name / file.name).write_bytes(file.read_bytes())
    for name, runs in PAGES.items():
        subprocess.run([program, "report", *(folder / run for run in runs), "--out", folder / f"{name}.html"], check=True,
                       capture_output=True)
    return folder


@pytest.fixture
def opened(browser, pages, request):
    """Opens a page; whatever a test does with it, it has not complained and fetched nothing at the end."""
    made = []

    def open_page(name, **options):
        path = pages / f"{name}.html"
        page = browser.open(path, **options)
        made.append((path, page))
        return page

    yield open_page
    for path, page in made:
        complaints, requests = page.complaints(), page.requests()
        page.close()
        assert complaints == []
        assert requests == [path.as_uri()]


def count(page, selector):
    return page.evaluate(f"document.querySelectorAll({selector!r}).length")


def open_all(page):
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


def widths(page):
    """Of the page, and of what sticks out to the right of it without a box that scrolls."""
    return page.evaluate("""(() => {
      const scrolls = (element) => element.closest('.scroll') !== null;
      const out = [...document.querySelectorAll('main *')].filter((element) => !scrolls(element) &&
          element.getBoundingClientRect().right > innerWidth + 1);
      return [document.documentElement.scrollWidth, out.map((element) => element.outerHTML.slice(0, 100))];
    })()""")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_page_fits_its_window(opened, name, width):
    page = opened(name, width=width)
    assert widths(page) == [width, []]
    open_all(page)
    assert widths(page) == [width, []]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_shade(opened, scheme):
    """The contrast of the web's accessibility guidelines: 4.5 for text, a little less on strong shades."""
    page = opened("one", scheme=scheme)
    contrasts = page.evaluate("""(() => {
      const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
      const blend = ([r, g, b, a = 1], under) => [r, g, b].map((part, i) => part * a + under[i] * (1 - a));
      const linear = (part) => part <= 10.31 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4;
      const light = (colour) => colour.map(linear).reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
      const page = numbers(getComputedStyle(document.body).backgroundColor);
      const contrast = (element) => {
        const style = getComputedStyle(element);
        const a = light(blend(numbers(style.color), page)), b = light(blend(numbers(style.backgroundColor), page));
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      };
      const least = (selector) => Math.min(...[...document.querySelectorAll(selector)].map(contrast));
      return {page: light(page), text: least('body'), soft: least('.hint, .soft, .meta'), tokens: least('.flow span'),
              legend: least('.shades i'), cells: least('.confusion td:not(:empty)')};
    })()""")
    assert contrasts["page"] > 0.9 if scheme == "light" else contrasts["page"] < 0.05
    assert contrasts["text"] >= 12
    assert contrasts["soft"] >= 4.5
    assert min(contrasts["tokens"], contrasts["legend"], contrasts["cells"]) >= 3.9, contrasts


@pytest.mark.parametrize("width", WIDTHS)
def test_charts_are_drawn_and_readable(opened, width):
    page = opened("several", width=width)
    assert count(page, ".chart svg[role=img]") >= 5
    drawn = page.evaluate("""[...document.querySelectorAll('.charts')][0].querySelectorAll('.chart').length &&
      [...[...document.querySelectorAll('.charts')][0].querySelectorAll('.chart')].map((chart) => ({
        lines: [...chart.querySelectorAll('polyline')].map((line) => line.getBoundingClientRect().width),
        ticks: [...chart.querySelectorAll('.axes text')].map((text) => text.getBoundingClientRect().height),
        height: chart.querySelector('svg').getBoundingClientRect().height,
        box: chart.getBoundingClientRect().width,
      }))""")
    assert len(drawn) == 3
    for chart in drawn:
        assert len(chart["lines"]) >= 3 and min(chart["lines"]) > 0.6 * (chart["box"] - 60)
        assert len(chart["ticks"]) >= 7 and min(chart["ticks"]) >= 11
        assert chart["height"] >= 150


def test_curves_stand_where_their_values_say(opened):
    page = opened("one")
    assert page.evaluate("""(() => {
      const plot = document.querySelector('.plot'), group = plot.querySelector('g.strong');
      const values = group.dataset.values.split(' ').map((pair) => Number(pair.split(',')[0]));
      const xs = group.querySelector('polyline').getAttribute('points').split(' ').map((p) => Number(p.split(',')[0]));
      const low = Number(plot.dataset.xLow), high = Number(plot.dataset.xHigh);
      return values.length === 6 && xs.every((x, i) => Math.abs(x / 1000 - (values[i] - low) / (high - low)) < 1e-3);
    })()""")


def test_values_show_under_the_pointer(opened):
    page = opened("one")
    box = page.evaluate("""(() => { const plot = document.querySelector('.plot'); plot.scrollIntoView();
      const box = plot.getBoundingClientRect(); return [box.left, box.top, box.width, box.height]; })()""")
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] / 2, y=box[1] + box[3] / 2)
    shown = page.evaluate("document.querySelector('.values').innerText")
    assert shown.startswith("epoch ") and "train" in shown and "valid" in shown
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    assert count(page, ".values") == 0


def test_trees_are_drawn(opened):
    page = opened("one")
    assert count(page, ".tree") == 2
    assert count(page, ".flow span[class^=s]") > 100
    assert count(page, ".patches i") == 64
    assert page.evaluate("document.querySelector('.patches').getBoundingClientRect().width") > 100
    colours = page.evaluate("""(() => { const colours = [...document.querySelectorAll('.flow span')].map(
      (token) => getComputedStyle(token).backgroundColor); return new Set(colours).size; })()""")
    assert colours >= 5
    bars = page.evaluate("""[...document.querySelectorAll('.tree')[0].querySelectorAll('.track i')].slice(0, 5).map(
      (bar) => bar.getBoundingClientRect().width / bar.parentElement.getBoundingClientRect().width)""")
    assert bars[0] == pytest.approx(1, abs=0.01) and 0 < bars[1] < 0.5
    page.evaluate("document.querySelector('[data-fold=close]').click()")
    assert count(page, ".tree details[open]") < 8
    page.evaluate("document.querySelector('[data-fold=open]').click()")
    assert page.evaluate("[...document.querySelector('.tree').querySelectorAll('details')].every((each) => each.open)")


def test_confusion_and_classes(opened):
    page = opened("one")
    assert page.evaluate("document.querySelector('.confusion').querySelectorAll('td').length") == 400
    numbers = """[...document.querySelector('.data').tBodies[0].rows].map((row) => Number(row.cells[3].dataset.order))"""
    page.evaluate("document.querySelector('.data').tHead.rows[0].cells[3].querySelector('button').click()")
    falling = page.evaluate(numbers)
    assert len(falling) == 20 and falling == sorted(falling, reverse=True)
    page.evaluate("document.querySelector('.data').tHead.rows[0].cells[3].querySelector('button').click()")
    assert page.evaluate(numbers) == sorted(falling)
    assert page.evaluate("document.querySelector('.data').tHead.rows[0].cells[3].ariaSort") == "ascending"
    page.evaluate("document.querySelector('.data').tHead.rows[0].cells[0].querySelector('button').click()")
    names = page.evaluate("[...document.querySelector('.data').tBodies[0].rows].map((row) => row.cells[0].innerText)")
    assert names[0] == "alt.atheism" and names[-1] == "talk.religion.misc"


def test_many_classes_are_condensed(opened):
    page = opened("many_classes")
    assert page.evaluate("document.querySelector('.confusion').querySelectorAll('td').length") == 900
    assert count(page, ".picture path") >= 2
    drawn = "Math.max(...[...document.querySelectorAll('.picture path')].map((path) => path.getBoundingClientRect().width))"
    assert page.evaluate(drawn) > 200


@pytest.mark.parametrize("width", WIDTHS)
def test_labels_of_items_stand_beside_them(opened, width):
    page = opened("items", width=width)
    lefts = page.evaluate("[...document.querySelectorAll('.item')].map((item) => item.getBoundingClientRect().left)")
    assert len(lefts) == 6 and min(lefts) > 0 and max(lefts) - min(lefts) < 1
    assert count(page, ".item .no") == 2


def test_points_of_training_are_rings(opened):
    page = opened("items")
    fills = page.evaluate("""[...document.querySelectorAll('.chart circle')].map((point) =>
      [point.classList.contains('faint'), getComputedStyle(point).fill === getComputedStyle(document.body).backgroundColor])""")
    assert [True, True] in fills and [False, False] in fills
    assert all(is_training == is_hollow for is_training, is_hollow in fills)


def test_tasks_are_not_ranked_against_each_other(opened):
    page = opened("tasks")
    assert count(page, ".problem") == 4
    assert page.evaluate("[...document.querySelectorAll('.problem')].map((part) => part.querySelectorAll('b bdi').length)")[1:] \
        == [1, 1, 1]  # the name of the target; nothing is the best of one


def test_scatter_is_drawn(opened):
    page = opened("regression")
    assert count(page, ".dots circle") == 300
    assert count(page, ".columns rect") == 25


def test_hostile_data_stays_text(opened):
    page = opened("hostile")
    open_all(page)
    assert count(page, "script") == 1
    assert count(page, "img, iframe, object, embed, link, [onerror], [onload], [src], [href]") == 0
    text = page.evaluate("document.body.textContent")
    assert "</script><script>alert(1)</script>" in text
    assert count(page, ".tree") == 2
    assert "depth 899" in text


def test_a_script_from_data_would_not_run(browser, pages, tmp_path):
    """The second wall: were something not escaped, the page's policy would still refuse it."""
    html = (pages / "one.html").read_text()
    path = tmp_path / "injected.html"
    path.write_text(html.replace("<main>", "<main><script>document.title = 'ran'</script><img src=\"http://localhost/x\">"))
    page = browser.open(path)
    assert page.evaluate("document.title") != "ran"
    assert any("Content Security Policy" in complaint for complaint in page.complaints())
    page.close()


@pytest.mark.parametrize("name", ["one", "several"])
def test_page_prints(opened, name):
    page = opened(name)
    pdf = page.send("Page.printToPDF", printBackground=False)["data"]
    assert len(pdf) > 20000
    page.send("Emulation.setDeviceMetricsOverride", width=720, height=1000, deviceScaleFactor=1, mobile=False)
    page.send("Emulation.setEmulatedMedia", media="print")
    assert widths(page) == [720, []]
    assert page.evaluate("[...document.querySelectorAll('.scroll')].every((box) => box.scrollWidth <= innerWidth)")
