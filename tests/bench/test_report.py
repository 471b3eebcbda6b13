"""What a complete run writes, and that a broken suite does not keep it from being written."""

from xml.etree import ElementTree as ET

import pytest

from tests.bench import report
from tests.bench.plots import HEIGHT, RIGHT, WIDTH, Plot, Series, svg
from tests.bench.table import Table, figure, p99_of

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def table():
    made = Table()
    made.section("One call", "What it costs.")
    made.ratio("a / b", [5, 1, 3], [2, 1, 4], unit="ms", most=2, meaning="A sentence.")
    made.ratio("c / d", 9, 2, unit="ms", most=2)
    made.note("p50 | p99", "1 ms")
    return made


def drawn(*series, **options):
    return Plot(name="rows", title="A < B", x="rows", y="ms", series=series, **options)


def test_the_page_has_the_rows_with_their_verdicts_and_meanings(table):
    page = report.text(table, {"Python": "3.11"}, "performance")

    assert "| a | 3 ms | 5 ms | b | 2 ms | 4 ms | 1.5 | ≤ 2 | yes | 3 |" in page
    assert "| c | 9 ms |  | d | 2 ms |  | 4.5 | ≤ 2 | **no** |  |" in page
    assert "- *a / b*: A sentence." in page
    assert "| p50 \\| p99 | 1 ms |" in page
    assert "| Python | 3.11 |" in page


def test_the_page_begins_with_the_limits_that_do_not_hold(table):
    page = report.text(table, {}, "performance")

    glance = page[page.index("## At a glance") : page.index("## Machine")]
    assert "1 of 2 limits are met." in glance
    assert "| c | 9 ms |" in glance
    assert "| a | 3 ms |" not in glance


def test_a_promise_about_the_slowest_is_a_ratio_of_p99s(table):
    table.ratio("e / f", [1, 2, 8], [2, 2, 4], unit="ms", most=1.5, by="p99")

    assert "| e | 2 ms | 8 ms | f | 2 ms | 4 ms | 2 of p99 | ≤ 1.5 | **no** | 3 |" in report.text(
        table, {}, "p"
    )


def test_of_rates_the_p99_is_the_low_end(table):
    table.ratio("g / h", [30, 10, 20], [40, 50, 30], unit="k/s", least=0.5)

    assert (table.rows[-1].measured.p99, table.rows[-1].floor.p99) == (10, 30)
    assert (table.rows[-1].ratio, table.rows[-1].verdict) == (0.5, "ok")


def test_a_p99_is_what_99_of_100_are_no_worse_than():
    assert p99_of(list(range(1000))) == 990
    assert p99_of(list(range(1000)), high=True) == 9
    assert p99_of([3, 1, 2]) == 3


def test_a_suite_that_failed_is_told_and_counts(table):
    before = sum(row.verdict in ("miss", "failed") for row in table.rows)

    table.failed("ValueError: x")

    assert table.close() == 1
    assert sum(row.verdict in ("miss", "failed") for row in table.rows) == before + 1
    assert "\n\nNot measured to the end: One call." in report.text(table, {}, "p")
    assert "| not measured | **failed**: ValueError: x |" in report.text(table, {}, "p")


def test_the_plots_lie_beside_the_page_and_old_ones_go(table, tmp_path):
    plots = tmp_path / "performance"
    plots.mkdir()
    (plots / "old.svg").write_text("x")
    table.plot(drawn(Series("s", [(1, 1), (10, 2)])))

    report.write(table, tmp_path / "performance.md", plots)

    assert [file.name for file in plots.iterdir()] == ["rows.svg"]
    assert "![A < B](performance/rows.svg)" in (tmp_path / "performance.md").read_text()


def test_a_plot_is_well_formed_and_names_each_line_within_its_frame():
    plot = drawn(
        Series("one", [(1, 1), (1000, 5)]), Series("two", [(1, 2), (1000, 5)], is_floor=True)
    )

    root = ET.fromstring(svg(plot))

    texts = {text.text: text for text in root.iter(f"{SVG}text")}
    assert {"A < B", "rows (log scale)", "ms (log scale)", "one: 5", "two: 5", "1k"} <= set(texts)
    assert abs(float(texts["one: 5"].get("y")) - float(texts["two: 5"].get("y"))) >= 15
    assert texts["two: 5"].get("class") == "df"
    for circle in root.iter(f"{SVG}circle"):
        assert 0 < float(circle.get("cx")) < WIDTH
        assert 0 < float(circle.get("cy")) < HEIGHT


def test_an_axis_ends_near_its_last_figure():
    plot = drawn(Series("one", [(10, 100), (1024 * 1024, 14_000)]))

    root = ET.fromstring(svg(plot))

    texts = {text.text for text in root.iter(f"{SVG}text")}
    assert {"10", "1M", "20k"} <= texts
    assert "10M" not in texts
    assert max(float(circle.get("cx")) for circle in root.iter(f"{SVG}circle")) < WIDTH - RIGHT + 1


def test_the_same_figures_give_the_same_bytes():
    plot = drawn(Series("one", [(1, 0.3), (1000, 5)]), log_y=False)

    assert svg(plot) == svg(plot)


@pytest.mark.parametrize(
    "value, shown",
    [(0, "0"), (0.12345, "0.123"), (9.876, "9.88"), (12.345, "12.3"), (1234.5, "1,234")],
)
def test_figures_have_three_digits_that_count(value, shown):
    assert figure(value) == shown
