// The traffic: produce as two plots, waiting records by reason, and the metadata's age.

import { byId, setFacts, setText } from "./dom.js";
import { bytes, clock, count, counted, duration, short } from "./format.js";
import { isNearlyFull } from "./health.js";
import { Plot } from "./plot.js";

/** The phases of a produce, in order, with labels for people. */
const PHASES = [
  ["metadata", "For metadata"],
  ["buffer", "For buffer memory"],
  ["queue", "To be sent"],
  ["delivery", "To be acknowledged"],
];

export class TrafficView {
  #rate = new Plot(byId("plot-rate"), "Records", "a second", short);
  #latency = new Plot(byId("plot-latency"), "Latency", "", milliseconds, {
    classes: ["line", "line faint"],
    legend: "mean; thin: longest",
  });

  render({ status, statusAtMs }, elapsedMs, isStale) {
    if (status === null) return;
    this.#renderProduce(status.produce, isStale ? `at ${clock(statusAtMs)}` : "now");
    setFacts(byId("waiting"), waitingOf(status, elapsedMs));
    setFacts(byId("metadata"), metadataOf(status, elapsedMs));
  }

  #renderProduce({ latency, per_second: perSecond, records, failed_records: failed }, end) {
    const rate = perSecond.records.at(-1) ?? 0;
    const total = `${count(records)} since the start${failed > 0 ? `, ${count(failed)} failed` : ""}`;
    this.#rate.render([perSecond.records], `${short(rate)}/s`, total, end);
    const series = [perSecond.mean_ms, perSecond.max_ms];
    if (latency.count === 0) {
      this.#latency.render(series, "–", "nothing sent lately", end);
      return;
    }
    const most = `half within that; 99 % within ${milliseconds(latency.p99_ms)}`;
    this.#latency.render(series, milliseconds(latency.p50_ms), most, end);
  }
}

function milliseconds(ms) {
  return duration(ms, true);
}

function waitingOf(status, elapsedMs) {
  const { buffer, phases } = status;
  const used = buffer.total_bytes - buffer.available_bytes;
  const facts = [
    ["Requests", `${count(status.waiting_requests)} with ${bytes(status.waiting_bytes)}`],
    ["Buffer", `${bytes(used)} of ${bytes(buffer.total_bytes)}`, isNearlyFull(buffer) ? "warn" : ""],
  ];
  for (const [name, title] of PHASES) {
    const { waiting, oldest_ms: oldestMs } = phases[name];
    const howLong = waiting === 0 ? "" : `, for ${duration(oldestMs + elapsedMs, true)}`;
    facts.push([title, `${count(waiting)}${howLong}`]);
  }
  return facts;
}

function metadataOf({ metadata, version }, elapsedMs) {
  const age = metadata.age_ms === null ? "none yet" : duration(metadata.age_ms + elapsedMs);
  const facts = [
    ["Version", version],
    ["Age", metadata.refresh_in_progress ? `${age}, refreshing` : age],
    ["Follows", `${counted(metadata.topics, "topic")}, ${counted(metadata.partitions, "partition")}`],
  ];
  if (metadata.last_error !== null) {
    const when = `${duration(metadata.last_error_age_ms + elapsedMs)} ago`;
    facts.push(["Last error", `${metadata.last_error} (${when})`]);
  }
  return facts;
}
