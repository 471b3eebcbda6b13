"""What a complete run writes, and that a broken suite does not keep it from being written."""

from xml.etree import ElementTree as ET

import pytest

from tests.bench import report
from tests.bench.plots import HEIGHT, WIDTH, Plot, Series, svg
from tests.bench.table import Table, figure

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def table():
    made = Table()
    made.section("One call", "What it costs.")
    made.ratio("a / b", 3, 2, unit="ms", most=2, meaning="A sentence.")
    made.ratio("c / d", 9, 2, unit="ms", most=2)
    made.note("p50 | p99", "1 ms")
    return made


def drawn(*series, **options):
    return Plot(name="rows", title="A < B", x="rows", y="ms", series=series, **options)


def test_the_page_has_the_rows_with_their_verdicts_and_meanings(table):
    page = report.text(table, {"Python": "3.11"}, "performance")

    assert "| a / b | 3 ms | 2 ms | 1.5 | ≤ 2 | ok |" in page
    assert "| c / d | 9 ms | 2 ms | 4.5 | ≤ 2 | miss |" in page
    assert "- *a / b*: A sentence." in page
    assert "| p50 \\| p99 | 1 ms |" in page
    assert "| Python | 3.11 |" in page


def test_a_suite_that_failed_is_told_and_counts(table):
    before = sum(row.verdict in ("miss", "failed") for row in table.rows)

    table.failed("ValueError: x")

    assert table.close() == 1
    assert sum(row.verdict in ("miss", "failed") for row in table.rows) == before + 1
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
    assert {"A < B", "rows", "ms", "one", "two", "1k"} <= set(texts)
    assert abs(float(texts["one"].get("y")) - float(texts["two"].get("y"))) >= 15
    for circle in root.iter(f"{SVG}circle"):
        assert 0 < float(circle.get("cx")) < WIDTH
        assert 0 < float(circle.get("cy")) < HEIGHT


def test_the_same_figures_give_the_same_bytes():
    plot = drawn(Series("one", [(1, 0.3), (1000, 5)]), log_y=False)

    assert svg(plot) == svg(plot)


@pytest.mark.parametrize(
    "value, shown",
    [(0, "0"), (0.12345, "0.123"), (9.876, "9.88"), (12.345, "12.3"), (1234.5, "1,234")],
)
def test_figures_have_three_digits_that_count(value, shown):
    assert figure(value) == shown
