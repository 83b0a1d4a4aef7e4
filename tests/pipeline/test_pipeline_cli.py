"""`pilotfish-pipeline run`: a wrong call is reported in one sentence, mostly before Spark starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import pytest
from click.testing import CliRunner

from pipeline.cli import main
from pipeline.commands.run import one_writer, stop_at_signals
from pipeline.commands.run_options import RunOptionsError, kafka_settings
from pipeline.gold import GOLD
from pipeline.silver import SILVER
from pipeline.stores.folders import MARK, mark_of
from pipeline.stores.store import CLOSED_LAYOUT, DELTA, PARQUET
from pipeline.tables import BRONZE_EVENTS, BRONZE_REJECTS, GOLD_REJECTS
from tests.pipeline.simulate import plan_for, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.whole_pipeline import WholeRun


def _refused(*words: object) -> str:
    """What a call says that is wrong: one line."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 2, result.output
    said = result.output.strip().splitlines()
    assert len(said) == 1, said
    assert result.stdout == ""
    return said[0]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


def test_the_list_of_commands_and_the_help_of_run_need_no_spark() -> None:
    program = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from pipeline.cli import main\n"
        "for words in (['--help'], ['run', '--help'], ['jars', '--help']):\n"
        "    result = CliRunner().invoke(main, words)\n"
        "    assert result.exit_code == 0, result.output\n"
        "    print(result.output)\n"
        "assert not [name for name in sys.modules if name.partition('.')[0] in ('pyspark', 'service')]\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "Read events, and bring every table up to date." in done.stdout
    assert "--bootstrap-servers" in done.stdout


def test_a_source_without_its_place_or_with_options_of_the_other_one_is_refused(tmp_path: Path) -> None:
    cases: dict[tuple[str, ...], str] = {
        ("files",): "--source files reads a folder: give it by --input",
        ("kafka",): "give them by --bootstrap-servers host:port",
        ("kafka", "--bootstrap-servers", ""): "--bootstrap-servers is empty: is a variable",
        ("kafka", "--bootstrap-servers", "h:1", "--input", "x"): "--input is for --source files",
        ("files", "--input", "x", "--bootstrap-servers", "h:1"): "--bootstrap-servers is for",
        ("files", "--input", "x", "--kafka", "a=b"): "--kafka is for --source kafka, and this is",
        ("files", "--input", "x", "--max-records-per-batch", "1"): "--max-records-per-batch is for",
    }
    said = {words: _refused("run", "--source", *words, "--out", tmp_path) for words in cases}
    assert {words: sentence for words, sentence in cases.items() if sentence not in said[words]} == {}, said


def test_a_place_that_cannot_be_read_or_written_is_refused(events: Path, tmp_path: Path) -> None:
    file, none, out = tmp_path / "file", tmp_path / "none", tmp_path / "out"
    file.write_text("")
    (tmp_path / "link").symlink_to(events)
    among_events = "where tables would be read as events: put it elsewhere"
    cases = {
        (none, out): f"--input {none} is not there: it may be empty, but make it first",
        (file, out): f"--input {file} is a file: give the folder",
        (events, events): among_events,
        (events, events / "tables"): among_events,
        (events, tmp_path / "link" / "tables"): among_events,
        (events, file): f"--out {file} is a file",
        (events, tmp_path / "out[1]"): f"--out {tmp_path / 'out[1]'}: Spark takes [ ] {{ }} * ? and \\ for a",
        (events, file / "out"): f"--out {file / 'out'} can't be written: Not a directory.",
        ("", out): "--input is empty: is a variable of the shell not set?",
        (events, ""): "--out is empty",
    }
    said = {
        each: _refused("run", "--source", "files", "--input", each[0], "--out", each[1]) for each in cases
    }
    assert {each: sentence for each, sentence in cases.items() if sentence not in said[each]} == {}, said


def test_tables_of_the_other_store_or_layout_are_refused(events: Path, tmp_path: Path) -> None:
    run = ("run", "--source", "files", "--input", events, "--out", tmp_path)
    (tmp_path / MARK).write_text(json.dumps(mark_of(DELTA)))
    assert "are of the store delta: say --store delta, or give a new --out" in _refused(*run)

    (tmp_path / MARK).write_text(json.dumps(mark_of(PARQUET) | {"layout": CLOSED_LAYOUT + 1}))
    assert f"are of layout {CLOSED_LAYOUT + 1}" in _refused(*run)

    (tmp_path / MARK).write_text("{")
    assert "is no JSON" in _refused(*run)
    unreadable = f"{tmp_path / MARK} can't be read, or is not Pilotfish's: give another --out"
    (tmp_path / MARK).write_bytes(b"\xff")
    assert unreadable in _refused(*run)
    (tmp_path / MARK).unlink()
    (tmp_path / MARK).mkdir()
    assert unreadable in _refused(*run)


def test_a_second_run_into_the_same_folder_is_refused_while_the_first_one_is_there(
    events: Path, tmp_path: Path
) -> None:
    words = ("run", "--source", "files", "--input", events, "--out", tmp_path / "out")
    with one_writer(str(tmp_path / "out")):
        assert f"Another run is writing into {tmp_path / 'out'}: let it end" in _refused(*words)
    with one_writer(str(tmp_path / "out")):
        pass


def test_missing_connector_jars_are_reported_with_the_command_that_fetches_them(
    events: Path, tmp_path: Path
) -> None:
    for words in (
        ("--source", "files", "--input", events, "--store", "delta"),
        ("--source", "kafka", "--bootstrap-servers", "127.0.0.1:1"),
    ):
        said = _refused("run", *words, "--out", tmp_path / "out", "--jars", tmp_path / "jars")
        assert f"pilotfish-pipeline jars --to {tmp_path / 'jars'}" in said


def test_a_trigger_is_a_time(events: Path, tmp_path: Path) -> None:
    for typed in ("5", "0s", "soon", "-1s"):
        result = CliRunner().invoke(
            main, ["run", "--source", "files", "--input", str(events), "--out", "x", f"--trigger={typed}"]
        )
        assert result.exit_code == 2
        assert f"{typed!r} is no time: say 30s, 5m or 1h." in result.output


def test_kafka_settings_come_from_a_file_and_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text(
        '# of the cluster\n! as Java has it\n\nsecurity.protocol=SSL\nsasl.jaas.config = a b="c=d";\n'
    )

    assert kafka_settings(["security.protocol=SASL_SSL"], file) == {
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": 'a b="c=d";',
    }


def test_a_kafka_setting_without_a_value_is_named_by_its_place_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("security.protocol=SSL\nhunter2\n")

    with pytest.raises(
        RunOptionsError, match=r"kafka\.properties, line 2: a Kafka setting is name=value"
    ) as refused:
        kafka_settings([], file)
    assert "hunter2" not in str(refused.value)
    with pytest.raises(RunOptionsError, match="--kafka: a Kafka setting is name=value"):
        kafka_settings(["=hunter2"], None)


def test_a_kafka_setting_on_several_lines_is_refused(tmp_path: Path) -> None:
    """Java's properties may be so. Here the second line would be a setting named password."""
    file = tmp_path / "kafka.properties"
    file.write_text('sasl.jaas.config=a.b.PlainLoginModule required username=u \\\n  password="hunter2";\n')
    said = _refused(
        *("run", "--source", "kafka", "--bootstrap-servers", "h:1", "--kafka-file", file),
        *("--out", tmp_path / "out"),
    )
    assert f"{file}, line 1 ends with a backslash: write the whole setting on one line." in said
    assert "hunter2" not in said
    assert kafka_settings(["sasl.password=ends-so\\"], None) == {"sasl.password": "ends-so\\"}


def test_spark_that_does_not_start_leaves_what_java_said(events: Path, tmp_path: Path) -> None:
    program = ("-m", "pipeline.cli", "run", "--source", "files", "--input", str(events))
    wrong = ("--out", str(tmp_path / "out"), "--memory", "4x")
    done = subprocess.run([sys.executable, *program, *wrong], capture_output=True, text=True, check=False)
    why, where = done.stderr.splitlines()
    assert done.returncode == 1
    assert "look at --master, --memory" in why
    log = Path(where.rpartition(" ")[2])
    assert "Invalid maximum heap size: -Xmx4x" in log.read_text()
    log.unlink()


def test_a_file_of_kafka_settings_may_begin_with_a_byte_order_mark_and_must_be_utf_8(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_bytes(b"\xef\xbb\xbfsecurity.protocol=SSL\r\n")
    assert kafka_settings([], file) == {"security.protocol": "SSL"}
    file.write_bytes("sasl.jaas.config=gr\xfcn".encode("latin-1"))
    with pytest.raises(RunOptionsError, match=r"kafka\.properties can't be read: it is not UTF-8"):
        kafka_settings([], file)


def test_the_first_signal_asks_for_a_stop_and_the_second_one_does_not_wait() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        with stop_at_signals() as stop:
            os.kill(os.getpid(), number)
            assert stop.is_set()
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is before


#: In a process group of its own, as systemd and `timeout` signal it.
_SIGNALLED: Final = """
import os, signal
from pipeline.commands.run import session, stop_at_signals
from pipeline.commands.sentences import JavaLog

options = {"needs_jars": False, "master": "local[1]", "memory": None, "is_short": True}
with session(JavaLog(None), None, **options) as spark, stop_at_signals() as stop:
    os.killpg(0, signal.SIGTERM)
    print([spark.range(rows).count() for rows in range(1, 20)], stop.is_set())
"""


@pytest.mark.spark
def test_a_sigterm_to_the_whole_process_group_leaves_java_to_the_batch_that_ends(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SIGNALLED],
        cwd=tmp_path,
        env=dict(os.environ) | {"PYTHONPATH": str(Path(__file__).parents[2])},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{[*range(1, 20)]} True\n"


def test_a_run_ends_with_what_it_read_and_where_it_is(whole_run: WholeRun, tmp_path: Path) -> None:
    """Every table is made of those before it alone: the folder held none of them."""
    rejects = cast("dict[str, int]", whole_run.truth["rejects"])
    broken = sum(rejects.values())
    first, where, *lines = whole_run.said.stdout.splitlines()
    why = ", ".join(f"{reason} {count}" for reason, count in rejects.items())
    assert first.startswith(f"{1_010 + broken:,} lines in 1 batch: 1,010 events, {broken} rejects ({why}); ")
    assert where == f"Tables in {whole_run.out} (parquet):"
    rows = dict(line.split() for line in lines)
    assert list(rows) == [BRONZE_EVENTS, BRONZE_REJECTS, *(table.name for table in SILVER), *GOLD]
    assert (rows[BRONZE_EVENTS], rows[BRONZE_REJECTS]) == (f"{whole_run.already + 1_010:,}", f"{broken}")
    assert "batch 0: " in whole_run.said.stderr

    again = CliRunner().invoke(main, whole_run.words)
    assert again.exit_code == 0, again.output
    first, *same = again.stdout.splitlines()
    assert first.startswith("0 lines in 0 batches: 0 events, 0 rejects; ")
    assert same == [where, *lines]

    out, other = whole_run.out, tmp_path / "other"
    other.mkdir()
    assert f"{out} has read {whole_run.events} so far, but this run reads {other}" in _refused(
        *whole_run.words[:4], other, "--out", out
    )
    assert "No broker at 127.0.0.1:9 answered" in _refused(
        *("run", "--source", "kafka", "--bootstrap-servers", "127.0.0.1:9", "--out", out),
        *("--kafka", "default.api.timeout.ms=2000", "--kafka", "request.timeout.ms=1000"),
    )


def test_a_run_in_which_tables_fail_makes_the_others_names_them_and_ends_with_1(
    spark: SparkSession, tmp_path: Path
) -> None:
    events, out = tmp_path / "events", tmp_path / "out"
    write(plan_for(1_000, seed=5, broken=0.05), events, tmp_path / "truth.json")
    out.mkdir()
    # Where silver is written on its way, nobody can write: not even root.
    for table in SILVER:
        (out / f".{table.name}.new").symlink_to("/proc/nowhere")

    done = CliRunner().invoke(main, ["run", "--source", "files", "--input", str(events), "--out", str(out)])

    assert done.exit_code == 1, done.output
    said = done.stderr.splitlines()
    failed = [*(table.name for table in SILVER), *(name for name in GOLD if name != GOLD_REJECTS)]
    for name, line in zip(failed, said, strict=True):
        assert line.startswith(f"pilotfish-pipeline: {name} was not made, and is as it was before: ")
    assert f"{out}/.silver_epoch_sights.new/" in said[0]
    assert said[-1].endswith("which failed.")
    lines = done.stdout.splitlines()[2:]
    assert [line.split()[0] for line in lines if line.endswith(" not made")] == failed
    rows = dict(line.split() for line in lines if not line.endswith(" not made"))
    assert list(rows) == [BRONZE_EVENTS, BRONZE_REJECTS, GOLD_REJECTS]
    assert "0" not in rows.values()
