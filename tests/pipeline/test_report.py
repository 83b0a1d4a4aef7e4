"""The report: its sentences for given tables, escaping of texts, and a size that does not grow with data."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pytest
from click.testing import CliRunner

from pipeline import tables
from pipeline.cli import main
from pipeline.report import report_html, words
from pipeline.report.figures.amounts import share_reached
from pipeline.report.findings_of_load import typical_hour
from pipeline.report.findings_of_sidecars import REASONS
from pipeline.report.page import findings_of
from pipeline.report.view import ParquetGold, StoreGold, views_of
from pipeline.stores.formats import open_store
from pipeline.stores.store import DELTA, PARQUET, StoreError
from tests.pipeline.gold_samples import CLUSTER, Gold, healthy, joined, troubled, write_gold
from tests.pipeline.simulate.delivery import BREAK

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

NOTHING = "Nothing to do."


class Outcome(HTMLParser):
    """The tags of a page and its text, as a browser would take them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(folder: Path, gold: Gold, cluster: str | None = None) -> str:
    return report_html(ParquetGold(write_gold(folder, gold)), cluster)


def sentences(folder: Path, gold: Gold) -> list[str]:
    (view,) = views_of(ParquetGold(write_gold(folder, gold)))
    return [finding.sentence for finding in findings_of(view)]


@pytest.fixture(scope="module")
def troubled_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Shared by many tests, because drawings take most of a second."""
    return page_of(tmp_path_factory.mktemp("gold"), troubled())


def test_the_report_of_a_healthy_fleet_has_nothing_to_do(tmp_path: Path) -> None:
    """No boot is reported as left out. A table that an older job did not make counts as empty."""
    folder = write_gold(tmp_path, healthy())
    for path in (folder / tables.GOLD_INCIDENTS).iterdir():
        path.unlink()
    (folder / tables.GOLD_INCIDENTS).rmdir()
    (view,) = views_of(ParquetGold(folder))
    assert findings_of(view) == []
    page = Outcome(report_html(ParquetGold(folder))).text
    assert NOTHING in page
    assert "Every line could be read." in page
    assert "There was none." in page
    assert "left out" not in page


def test_each_trouble_has_its_sentence_and_the_worst_come_first(tmp_path: Path) -> None:
    assert sentences(tmp_path, troubled()) == [
        "1 partition has no leader: orders-4.",
        "Sidecars name different leaders for the same epoch of 1 partition.",
        "Broker 2 acknowledges slowly: for 12 of 12 topics its p99 is 4 times that of the other brokers or"
        " more, typically 8 times.",
        "Sidecar billing-000 and 1 other did not refresh in time: the first saw 42 new leaders after more"
        " than twice its refresh interval.",
        "1 sidecar has sent no event for more than three minutes: search-001.",
        "The clock of 1 sidecar is wrong: checkout-002 (1 min 30 s ahead).",
        "Events of 1 sidecar are missing; the most from billing-001: 19 % of its events.",
        "Broker 2 leads 25 % of the partitions; 17 % would be fair.",
        "Broker 1 takes 37 % of the bytes and leads 21 % of the partitions.",
        "orders is 85 % of all records.",
    ]


def test_the_first_screen_says_what_happened_why_what_it_hurt_and_whether_it_is_over(
    troubled_page: str,
) -> None:
    page = " ".join(unescape(re.sub(r"<[^>]+>", " ", troubled_page)).split())
    said = [
        "12 incidents in 3 h: 3 outages of brokers, 7 partitions short of replicas, 1 flapping leader and 1"
        " topic with failing records. 2,892 records failed in them. 1 is not over.",
        "Not over orders-0 has been short of replicas for 2 h 30 min, since 2026-09-01 09:30:00. No record"
        " failed.",
        "Records for topic-012 failed for 10 min (TOPIC_AUTHORIZATION_FAILED), from 2026-09-01 10:00:00 to"
        " 10:10:00. Hurt: 1,200 records failed, of billing and checkout: TOPIC_AUTHORIZATION_FAILED (1,200).",
        "Over Broker 3 was down for 5 min, from 2026-09-01 09:31:00 to 09:36:00. Hurt: 5 leaders moved, 12"
        " partitions were short of replicas and 564 records failed for orders, payments, shipments and 1"
        " more, of billing and checkout: REQUEST_TIMED_OUT (564).",
        "Broker 3 went down 4 times within 6 min, from 2026-09-01 10:35:00 to 10:41:00.",
        "Down at the same time: broker 5.",
        "The leader of payments-1 changed 12 times within 22 min",
        "And 6 more incidents.",
        "What else to do",
    ]
    places = [page.index(words) for words in said]
    assert places == sorted(places)


def test_each_finding_has_its_evidence_its_remedy_and_leads_to_its_numbers(troubled_page: str) -> None:
    beyond = troubled_page[troubled_page.index("What else to do") :]
    findings = re.findall(r"<li><p><span class=\"grade.*?</li>", beyond, re.DOTALL)
    assert len(findings) == 11
    ids = set(re.findall(r'id="([^"]+)"', troubled_page))
    for finding in findings:
        assert "What to do:" in finding
        assert 'class="evidence"' in finding
        assert set(re.findall(r'href="#([^"]+)"', finding)) <= ids


def with_changes(gold: Gold, table: str, changes: dict[str, Any], where: dict[str, Any]) -> Gold:
    """The tables with other values in the rows that have these."""
    for row in gold[table]:
        if where.items() <= row.items():
            row.update(changes)
    return gold


def test_one_topic_that_is_slow_on_one_broker_is_named(tmp_path: Path) -> None:
    slow = {"topic": "orders", "broker": 2}
    gold = with_changes(healthy(), tables.GOLD_PRODUCE_SLO, {"p50_us": 20_000, "p99_us": 120_000}, slow)
    (sentence,) = sentences(tmp_path, gold)
    assert re.fullmatch(r"Topic orders: its p99 on broker 2 is 9 times that of its other brokers\.", sentence)


def test_a_broker_that_is_slow_only_now_and_then_is_said_to_pause(tmp_path: Path) -> None:
    gold = with_changes(healthy(), tables.GOLD_PRODUCE_SLO, {"p99_us": 150_000}, {"broker": 4})
    (sentence,) = sentences(tmp_path, gold)
    assert sentence.startswith("Broker 4 pauses now and then: for 6 of 6 topics its p99 is 4 times that of")


def test_too_few_data_are_not_reported(tmp_path: Path) -> None:
    cases: dict[str, dict[str, Any]] = {
        "nobody feels nine milliseconds": {"p99_us": 9_000, "p50_us": 900},
        "three records are chance": {"p99_us": 120_000, "p50_us": 20_000, "records": 3},
        "its median is that of the others, so a leader moved there": {"p99_us": 120_000},
        "nothing was acknowledged there": {"p99_us": None, "records": 0},
    }
    for number, (why, changes) in enumerate(cases.items()):
        others = with_changes(healthy(), tables.GOLD_PRODUCE_SLO, {"p99_us": 1_000}, {})
        gold = with_changes(others, tables.GOLD_PRODUCE_SLO, changes, {"topic": "orders", "broker": 2})
        assert sentences(tmp_path / str(number), gold) == [], why


def test_a_wrong_clock_is_not_taken_for_a_sidecar_that_was_held_back(tmp_path: Path) -> None:
    gold = healthy()
    late = {"beyond_twice_the_interval": 5}
    with_changes(gold, tables.GOLD_STALENESS_SUMMARY, late, {"sidecar_id": "billing-001"})
    wrong = {"is_clock_suspect": True, "is_left_out": True, "clock_offset_ms": -600_000}
    with_changes(gold, tables.GOLD_DATA_QUALITY, wrong, {"sidecar_id": "billing-001"})
    assert sentences(tmp_path, gold) == ["The clock of 1 sidecar is wrong: billing-001 (10 min behind)."]


def test_who_is_left_out_is_named_before_anything_else_is_said(troubled_page: str) -> None:
    page = Outcome(troubled_page).text
    said = "Left out because of a wrong clock: 1 of 24 boots, of checkout-002. Such a boot gives no time"
    assert said in page
    assert page.index(said) < page.index("What happened")


def test_clocks_of_which_half_differ_cannot_be_judged_and_that_comes_first(tmp_path: Path) -> None:
    gold = healthy()
    for row in gold[tables.GOLD_DATA_QUALITY][:5]:
        row.update(is_clock_suspect=True, clock_offset_ms=900_000)
    (sentence,) = sentences(tmp_path, gold)
    assert sentence.startswith("Clocks can't be judged: 5 sidecars differ from the others")


def living(gold: Gold) -> Gold:
    """What is known of the sidecars alone: a page without drawings."""
    return {tables.GOLD_DATA_QUALITY: gold[tables.GOLD_DATA_QUALITY]}


def test_tables_that_could_not_be_made_are_named_with_the_reason(tmp_path: Path) -> None:
    folder = write_gold(tmp_path, living(healthy()))
    failed = {"gold_urp": "[ARITHMETIC_OVERFLOW] long overflow"}
    # A driver that was killed while it replaced the file leaves it beside its place.
    for name in ("_failed.json", "_failed.json.new"):
        (folder / "_failed.json").unlink(missing_ok=True)
        (folder / name).write_text(json.dumps(failed))
        page = Outcome(report_html(ParquetGold(folder))).text
        assert "1 table is not up to date, as the last run could not make it: gold_urp." in page
        assert failed["gold_urp"] in page


def test_percentiles_are_those_of_the_hour_in_which_half_of_the_records_lie(tmp_path: Path) -> None:
    gold = healthy()
    for row, (p99_us, records) in zip(
        gold[tables.GOLD_PRODUCE_SLO], [(5, 400), (900, 100), (7, 600)], strict=False
    ):
        row.update(topic="orders", broker=1, p99_us=p99_us, records=records)
    gold[tables.GOLD_PRODUCE_SLO] = gold[tables.GOLD_PRODUCE_SLO][:3]
    (view,) = views_of(ParquetGold(write_gold(tmp_path, gold)))
    assert typical_hour(view.produce, ["topic", "broker"], "p99_us").to_dict() == {("orders", 1): 7}


def test_sidecars_that_still_wait_lower_the_share_that_knows() -> None:
    """Ten: four know at once, two stop waiting, two know later, two wait on. Kaplan and Meier by hand."""
    reached, censored = np.array([4.0, 0.0, 2.0, 0.0]), np.array([0.0, 2.0, 0.0, 2.0])
    assert share_reached(reached, censored) == pytest.approx([0.4, 0.4, 0.7, 0.7])
    assert share_reached(reached, np.zeros(4))[-1] == pytest.approx(1.0)


HOSTILE = "<script>alert('x')</script>\"&amp;${7*7}\\$\\frac{{1}}{{2}}$\u202egnp.exe\x00 {n} " + "ü🐟漢" * 90


def test_whatever_names_hold_is_text_and_nothing_else(tmp_path: Path) -> None:
    gold = troubled(name=HOSTILE, topics=14)
    bad = "</svg></style><img src=x onerror=alert(1)>"
    for row in gold[tables.GOLD_DATA_QUALITY][:8]:
        row["service"] = row["version"] = bad
    for table in (tables.GOLD_CHURN, tables.GOLD_CURRENT_LEADER, tables.GOLD_LEADER_HISTORY, tables.GOLD_URP):
        with_changes(gold, table, {"topic": bad}, {"topic": "payments"})
    for row in gold[tables.GOLD_STALENESS_SUMMARY]:
        row["sidecar_id"] = row["sidecar_id"] and f"{row['sidecar_id']}{bad}"
    gold[tables.GOLD_REJECTS][0]["reason"] = bad
    page = page_of(tmp_path, gold)
    reported = Outcome(page)
    assert {tag for tag, _ in reported.tags} & {
        "script",
        "img",
        "iframe",
        "object",
        "link",
        "base",
        "form",
    } == set()
    assert [name for _, attributes in reported.tags for name in attributes if name.startswith("on")] == []
    assert bad in reported.text
    assert "\u202e" not in page
    assert "\x00" not in page


def test_nothing_comes_from_elsewhere(troubled_page: str) -> None:
    for tag, attributes in Outcome(troubled_page).tags:
        for name in ("href", "src", "xlink:href", "style", "action", "content"):
            value = attributes.get(name) or ""
            assert "//" not in value, (tag, name, value)
            assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", value))
        if "href" in attributes or "xlink:href" in attributes:
            assert str(attributes.get("href") or attributes.get("xlink:href")).startswith("#")
    assert "default-src 'none'; style-src 'unsafe-inline'" in unescape(troubled_page)
    assert "@import" not in troubled_page


def test_every_drawing_says_what_it_shows_and_no_id_is_there_twice(tmp_path: Path) -> None:
    page = page_of(tmp_path, joined(troubled(topics=6, sidecars=7), healthy(cluster="the-other")))
    drawings = re.findall(r"<svg .*?</svg>", page, re.DOTALL)
    assert len(drawings) == 6 + 5
    for drawing in drawings:
        assert re.match(r'<svg class="plot" role="img" aria-labelledby="([\w-]+)" aria-describedby=', drawing)
        assert (
            len(re.findall(r"<title id=[^>]+>[^<]{10,}</title><desc id=[^>]+>[^<]{10,}</desc>", drawing)) == 1
        )
        assert re.search(r"#[0-9a-f]{6}", drawing) is None, "a colour of its own, for light alone"
        assert "DejaVu" not in drawing
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:xlink:href="|url\()#([\w-]+)', page)) <= set(ids)


def test_the_same_tables_give_the_same_page_in_whatever_order_their_rows_lie(
    tmp_path: Path, troubled_page: str
) -> None:
    backwards = {table: rows[::-1] for table, rows in troubled().items()}
    # As a matplotlibrc of the user's has it.
    with mpl.rc_context({"timezone": "Asia/Tokyo", "font.size": 30}):
        assert page_of(tmp_path, backwards) == troubled_page


def test_the_report_of_a_large_fleet_is_hardly_longer_and_names_what_it_leaves_out(
    tmp_path: Path, troubled_page: str
) -> None:
    """Of 200 topics and 50 brokers it shows few more than of 12 and 6."""
    large = page_of(tmp_path, troubled(topics=200, brokers=50, sidecars=36))
    assert len(large) < 1.8 * len(troubled_page)
    text = Outcome(large).text
    assert "And 180 more topics." in text
    assert "And 30 more brokers." in text
    assert re.search(r"And [\d,]+ more incidents\.", text)


def test_several_clusters_are_distinguished_and_one_can_be_chosen(tmp_path: Path) -> None:
    gold = joined(living(healthy()), living(healthy(cluster="second")))
    both = Outcome(page_of(tmp_path, gold)).text
    assert both.index(f"Cluster {CLUSTER}") < both.index("Cluster second")
    one = Outcome(page_of(tmp_path, gold, "second")).text
    assert CLUSTER not in one
    with pytest.raises(StoreError, match=r"No sidecar reported the cluster third\. Known: \S+ and second\."):
        page_of(tmp_path, gold, "third")


def test_clusters_that_are_not_even_named_are_counted(tmp_path: Path) -> None:
    gold = joined(*(living(healthy(cluster=f"cluster-{n:02}", sidecars=1)) for n in range(27)))
    page = Outcome(page_of(tmp_path, gold)).text
    assert "cluster-05, cluster-06" in page
    assert "cluster-24 and 2 more." in page


def test_a_boot_is_listed_with_each_of_its_problems(tmp_path: Path) -> None:
    gold = living(healthy())
    gold[tables.GOLD_DATA_QUALITY][0]["epoch_conflicts"] = 173
    page = page_of(tmp_path, gold)
    assert re.search(r"Epochs with two leaders</th>.*>173</td>", page, re.DOTALL)


def test_sidecars_that_never_reached_a_cluster_are_named(tmp_path: Path) -> None:
    gold = living(healthy())
    lost = dict(gold[tables.GOLD_DATA_QUALITY][0], cluster_id="", sidecar_id="lonely-000")
    gold[tables.GOLD_DATA_QUALITY].append(lost)
    said = "1 sidecar has not reached a cluster since its last start: lonely-000."
    assert said in Outcome(page_of(tmp_path, gold)).text


def test_a_sidecar_that_reached_its_cluster_when_it_was_started_again_has_not_failed_to(
    tmp_path: Path,
) -> None:
    gold = living(healthy())
    boot = gold[tables.GOLD_DATA_QUALITY][0]
    earlier = {"cluster_id": "", "first_event": boot["first_event"] - timedelta(minutes=9), "boot_id": 1}
    gold[tables.GOLD_DATA_QUALITY].append(boot | earlier)
    assert "reached a cluster" not in Outcome(page_of(tmp_path, gold)).text
    later = {"cluster_id": "", "first_event": boot["last_event"], "boot_id": boot["boot_id"] + 1}
    gold[tables.GOLD_DATA_QUALITY].append(boot | later)
    assert f"since its last start: {boot['sidecar_id']}." in Outcome(page_of(tmp_path, gold)).text


def test_tables_without_rows_are_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="let `pilotfish-pipeline run` read some events first"):
        page_of(tmp_path, {})


def test_why_there_is_no_report_is_said(tmp_path: Path) -> None:
    rejects = {tables.GOLD_REJECTS: troubled()[tables.GOLD_REJECTS][:1]}
    with pytest.raises(StoreError, match=r"no line is an event\. By reason: not_json \("):
        page_of(tmp_path, rejects)
    lost = [dict(row, cluster_id="") for row in healthy(sidecars=1)[tables.GOLD_DATA_QUALITY]]
    with pytest.raises(StoreError, match=r"1 sidecar has not reached a cluster .* By reason: not_json \("):
        page_of(tmp_path, rejects | {tables.GOLD_DATA_QUALITY: lost})
    folder = write_gold(tmp_path, {})
    (folder / "_failed.json").write_text(json.dumps({tables.GOLD_DATA_QUALITY: "No space left on device"}))
    with pytest.raises(StoreError, match=r"could not make it: .* No space left on device"):
        report_html(ParquetGold(folder))


def test_a_share_is_of_what_it_is_said_to_be(tmp_path: Path) -> None:
    """Of records that were sent and of bytes; gold_leader_skew has no share of records."""
    gold = healthy()
    with_changes(gold, tables.GOLD_PRODUCE_SLO, {"records": 0, "failed": 0}, {})
    gold[tables.GOLD_PRODUCE_SLO][0].update(records=300, failed=100)
    with_changes(gold, tables.GOLD_LEADER_SKEW, {"records": 100, "load_share": 0.1}, {})
    gold[tables.GOLD_LEADER_SKEW][0].update(load_share=0.7)
    page = Outcome(page_of(tmp_path, gold)).text
    assert "sent 400 records, of which 25 % failed." in page
    assert "Broker 1 takes 70 % of the bytes" in page
    assert "Share of bytes" in page
    assert "of the records taken" not in page


def test_an_incident_that_ends_on_another_day_has_the_day(tmp_path: Path) -> None:
    gold = troubled()
    (row,) = (row for row in gold[tables.GOLD_INCIDENTS] if row["kind"] == "leader_flapping")
    row["began_by"] = row["over_by"] - timedelta(days=2, minutes=5)
    gold = living(gold) | {tables.GOLD_INCIDENTS: [row]}
    page = Outcome(page_of(tmp_path, gold)).text
    assert re.search(r"within 2 d, from 2026-08-30 \d\d:\d\d:\d\d to 2026-09-01 \d\d:\d\d:\d\d\.", page)


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0"), (999, "999"), (1_234, "1.23 k"), (999_499, "999 k"), (999_500, "1 M"), (2**63 - 1, "9.22 E")],
)
def test_a_short_number_has_three_digits(number: int, said: str) -> None:
    assert words.compact(number) == said


def test_a_fleet_that_only_lives_has_a_report_as_well(tmp_path: Path) -> None:
    page = page_of(tmp_path, living(healthy()))
    assert NOTHING in page
    assert "<svg" not in page


def test_every_reason_of_a_reject_has_its_words() -> None:
    assert set(REASONS) == set(BREAK)


def test_the_store_gives_what_the_files_give(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_gold(tmp_path, troubled(topics=4, sidecars=6))
    by_spark = report_html(StoreGold(open_store(spark, str(folder))))
    assert by_spark == report_html(ParquetGold(folder))


def test_a_spark_session_that_was_running_reads_delta_tables_and_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    some = (tables.GOLD_DATA_QUALITY, tables.GOLD_PRODUCE_SLO)
    folder = write_gold(tmp_path / "parquet", {table: healthy()[table] for table in some})
    delta = open_store(spark, str(tmp_path / "delta"), DELTA, to_write=True)
    for table in some:
        delta.replace(table, spark.read.parquet(str(folder / table)))
    for tables_folder, store in ((folder, PARQUET), (delta.out, DELTA)):
        out = tmp_path / f"{store}.html"
        words = ["report", "--tables", str(tables_folder), "--store", store, "--out", str(out)]
        assert CliRunner().invoke(main, words).exit_code == 0
    assert (tmp_path / "delta.html").read_bytes() == (tmp_path / "parquet.html").read_bytes()
    assert spark.range(3).count() == 3


def test_the_command_writes_a_file_and_says_where(tmp_path: Path) -> None:
    write_gold(tmp_path / "tables", living(healthy()))
    out = tmp_path / "report.html"
    ended = CliRunner().invoke(main, ["report", "--tables", str(tmp_path / "tables"), "--out", str(out)])
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert str(out) in ended.stdout
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "tables"]


def test_wrong_input_is_said_in_a_sentence(tmp_path: Path) -> None:
    write_gold(tmp_path / "tables", living(healthy()))
    for name, mark in (("delta", '{"store": "delta", "layout": 1}'), ("broken", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_pilotfish.json").write_text(mark)
    for arguments, said in {
        ("--tables", ""): "--tables is empty: is a variable of the shell not set?",
        ("--tables", "{}/none"): "holds no tables: `pilotfish-pipeline run`",
        ("--tables", "{}/tables", "--out", "{}/no/report.html"): "There is no folder",
        ("--tables", "{}/delta"): "say --store delta",
        ("--tables", "{}/broken"): "is no JSON",
    }.items():
        ended = CliRunner().invoke(main, ["report", *(word.format(tmp_path) for word in arguments)])
        assert (ended.exit_code, ended.stdout) == (2, ""), arguments
        assert said in ended.stderr, arguments
        assert len(ended.stderr.splitlines()) == 1, arguments
