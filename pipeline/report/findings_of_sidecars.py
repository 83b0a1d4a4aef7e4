"""Findings about sidecars and their events: late or silent sidecars, wrong clocks, lost or unreadable lines.

A missing event makes every other number of its sidecar a lower bound, so it is reported too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.report import words
from pipeline.report.words import Finding, Grade

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from pipeline.report.view import ClusterView

#: A smaller share of lost events does not matter.
_MISSING: Final = 0.001
_MOST: Final = 3
_LONGEST_REASON: Final = 300
#: Why a line is rejected, in words, and what to do about it.
REASONS: Final = {
    "too_long": "longer than 256 KiB: no sidecar writes such lines, so look who else writes to this place",
    "invalid_utf8": "not UTF-8: bytes were lost or changed on the way",
    "not_json": "not JSON: most often half a line, because a file was copied while it was written",
    "not_an_object": "JSON, but no object: something else than a sidecar writes there",
    "no_version": "without a version: something else than a sidecar writes there",
    "unknown_version": "of a version unknown to this pipeline: update the pipeline before the sidecars",
    "wrong_type": "with a field of the wrong type: something else than a sidecar writes there",
    "unknown_type": "of a type unknown to this pipeline: update the pipeline before the sidecars",
    "missing_field": "without a field that every sidecar writes: something cuts fields out on the way",
    "bad_time": "with an invalid time",
    "clock_ahead": "from more than an hour ahead: the clock of that sidecar's host is wrong",
    "too_old": "from before 2020: the clock of that sidecar's host is not set",
    "out_of_range": "with a value that no sidecar writes, as partition -7: see who else writes to this place",
    "inconsistent": "with values that contradict each other: see who else writes to this place",
}


def late(view: ClusterView) -> Iterator[Finding]:
    """Finds sidecars that did not see an epoch within twice their refresh interval."""
    of_sidecars = view.staleness_summary[view.staleness_summary["sidecar_id"].notna()]
    beyond = of_sidecars[of_sidecars["beyond_twice_the_interval"] > 0].sort_values(
        ["beyond_twice_the_interval", "sidecar_id"], ascending=[False, True]
    )
    wrong_clocks = set(view.quality[view.quality["is_clock_suspect"]]["sidecar_id"])
    trusted = beyond[~beyond["sidecar_id"].isin(wrong_clocks)]
    if trusted.empty:
        return
    worst = trusted.iloc[0]
    more = len(trusted) - 1
    reported = [
        f"{words.name(row.sidecar_id)} ({words.count(row.beyond_twice_the_interval)})"
        for row in trusted.itertuples()
    ]
    never = f" It never saw {words.count(worst['censored'])} of them." if worst["censored"] else ""
    yield Finding(
        Grade.SOON,
        f"Sidecar {words.name(worst['sidecar_id'])}"
        + (f" and {words.counted(more, 'other')}" if more else "")
        + " did not refresh in time: the first saw"
        f" {words.counted(worst['beyond_twice_the_interval'], 'new leader')} after more than twice its"
        " refresh interval.",
        f"Its longest delay was {words.duration(worst['max_ms'])}, of"
        f" {words.counted(worst['observations'], 'new leader')} that the fleet saw.{never}"
        + (f" By sidecar: {words.listed(reported, 6)}." if more else ""),
        "Its process was delayed: a CPU limit that throttles it, a frozen or swapping host, no connection to"
        " any broker. Its /v1/status shows which. Meanwhile it sent records to brokers that no longer led.",
        "staleness",
    )


def silent(view: ClusterView) -> Iterator[Finding]:
    """Finds sidecars without recent events, also those that were stopped on purpose."""
    gone = view.quality[view.quality["is_silent"]].sort_values(["last_event", "sidecar_id"])
    if gone.empty:
        return
    names = [words.name(sidecar_id) for sidecar_id in gone["sidecar_id"].unique()]
    yield Finding(
        Grade.SOON,
        f"{words.counted(len(names), 'sidecar has', 'sidecars have')} sent no event for more than three"
        f" minutes: {words.listed(names)}.",
        f"The first since {words.moment(gone.iloc[0]['last_event'])}; the last event of the fleet was at"
        f" {words.moment(view.until)}.",
        "If it was not stopped on purpose, see whether the process still runs: it was killed (out of memory,"
        " node lost), or its events don't get out (a full disk, no broker takes them). This report lacks"
        " everything that it saw since.",
        "quality",
    )


def lossy(view: ClusterView) -> Iterator[Finding]:
    """Finds sidecars with missing events."""
    sums = view.quality.groupby("sidecar_id")[["received", "missing", "dropped_reported"]].sum()
    lost = (sums["missing"] / (sums["received"] + sums["missing"]).clip(lower=1)).sort_values(
        ascending=False, kind="stable"
    )
    lost = lost[lost >= _MISSING]
    if lost.empty:
        return
    worst = lost.index[0]
    dropped, missing = sums["dropped_reported"][worst], sums["missing"][worst]
    yield Finding(
        Grade.SOON if lost.iloc[0] >= 10 * _MISSING else Grade.KNOW,
        f"Events of {words.counted(len(lost), 'sidecar')} are missing; the most from {words.name(worst)}:"
        f" {words.share(lost.iloc[0])} of its events.",
        f"{words.count(missing)} of its events never arrived. It dropped"
        f" {words.count(min(dropped, missing))} of them itself, because its queue was full.",
        "Dropped by the sidecar: its sink is too slow or was away, so give the queue more room or repair the"
        " sink. Lost on the way: see who ships the files, and whether the topic keeps records long enough.",
        "quality",
    )


def wrong_clocks(view: ClusterView) -> Iterator[Finding]:
    """Finds sidecars whose clock differs from the others'."""
    wrong = view.quality[view.quality["is_clock_suspect"]]
    wrong = wrong.loc[wrong["clock_offset_ms"].abs().sort_values(ascending=False, kind="stable").index]
    wrong = wrong.drop_duplicates("sidecar_id")
    if wrong.empty:
        return
    reported = [
        f"{words.name(row.sidecar_id)} ({_how_wrong(row.clock_offset_ms)})" for row in wrong.itertuples()
    ]
    if not view.quality["is_left_out"].any():
        yield Finding(
            Grade.NOW,
            f"Clocks can't be judged: {words.counted(len(wrong), 'sidecar differs', 'sidecars differ')} from"
            " the others, which is half or more of those that can be compared:"
            f" {words.listed(reported)}.",
            "Events do not show which half is right. So no sidecar is left out: first sights, shortages of"
            " replicas, delays and advice may be wrong.",
            "Have all hosts keep time (NTP, chrony), and don't act on times in this report before that.",
            "quality",
        )
        return
    yield Finding(
        Grade.SOON,
        f"The clock of {words.counted(len(wrong), 'sidecar')} is wrong: {words.listed(reported)}.",
        "This is the least error that explains when each sidecar saw the same new leaders. It may be more.",
        "Have their hosts keep time (NTP, chrony). Until then this report takes no times of new leaders or of"
        " shortages of replicas from them. It corrects their other times, where the error is known well"
        " enough.",
        "quality",
    )


def left_out(view: ClusterView) -> str:
    """Returns which boots are not compared with others, and the consequences; empty if none."""
    boots = view.quality[view.quality["is_left_out"]]
    if boots.empty:
        return ""
    names = [words.name(sidecar_id) for sidecar_id in sorted(boots["sidecar_id"].unique())]
    history = view.history
    only_theirs = history.groupby(["topic_key", "partition"])["is_clock_suspect"].all().sum()
    return (
        f"Left out because of a wrong clock: {words.count(len(boots))} of"
        f" {words.counted(len(view.quality), 'boot')}, of {words.listed(names, 6)}. Such a boot gives no"
        " time of a new leader or of a shortage of replicas. Its produce windows count, with corrected times;"
        " its delays count only if the error is known to within five seconds."
        + (
            f" No other sidecar follows {words.counted(only_theirs, 'partition')}: no shortage is shown."
            if only_theirs
            else ""
        )
    )


def _how_wrong(offset_ms: float) -> str:
    return f"{words.duration(abs(offset_ms))} {'behind' if offset_ms < 0 else 'ahead'}"


def failed_tables(failed: Mapping[str, str]) -> Iterator[Finding]:
    """Finds tables that the last run could not make."""
    if not failed:
        return
    names = [words.name(name) for name in failed]
    reported = [f"{words.name(name)}: {words.name(why, _LONGEST_REASON)}" for name, why in failed.items()]
    yield Finding(
        Grade.NOW,
        f"{words.counted(len(failed), 'table is', 'tables are')} not up to date, as the last run could not"
        f" make {'it' if len(failed) == 1 else 'them'}: {words.listed(names, 13)}.",
        " ".join(reported),
        "The sections below on these tables are of an earlier run, or missing. Run the job again with"
        " --verbose and see what Spark says; --rebuild makes silver and gold of all of bronze.",
        "quality",
    )


def unreadable(rejects: pd.DataFrame) -> Iterator[Finding]:
    """Finds lines that are no events."""
    if rejects.empty:
        return
    worst = rejects.iloc[0]
    reasons = [f"{row.reason} ({words.count(row.lines)})" for row in rejects.itertuples()]
    what = REASONS.get(str(worst["reason"]), "for a reason that this report does not know")
    yield Finding(
        Grade.KNOW,
        f"{words.counted(rejects['lines'].sum(), 'line')} could not be read.",
        f"By reason: {words.listed(reasons, 12)}. None of them is in any other number here.",
        f"Most are {what}. An example of each is below.",
        "quality",
    )
