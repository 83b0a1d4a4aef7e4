// The headline and the problems that need attention. Pure: a model in, sentences out.

import { count, counted } from "./format.js";

const ENDED = ["closing", "closed"];

/** Titles of the states in which records wait (docs/http.md, "Why is it slow"). */
const SLOW = {
  client: "Client",
  metadata: "Metadata",
  buffer: "Buffer memory",
  queue: "Records wait",
  delivery: "Delivery",
};

/** A failure older than this, with none after it, is not shown. */
const RECENT_MS = 15_000;
/** Normal ends of a connection: it is opened again when it is needed. */
const HARMLESS = /closed|idle/;

/** A connection's state for people: [tone, words]. */
export function connectionOf(node) {
  if (node === null) return ["idle", "not needed so far"];
  if (node.state === "ready") return ["good", "connected"];
  if (node.state === "authentication_failed") return ["bad", "refused: authentication"];
  const isFailing = node.last_error !== null && !HARMLESS.test(node.last_error);
  if (isFailing && node.last_error_age_ms < RECENT_MS) return ["bad", "down"];
  if (node.state !== "disconnected") return ["warn", "connecting"];
  if (node.waiting.records > 0) return ["bad", "down"];
  if (isFailing) return ["warn", "last try failed"];
  return ["idle", node.last_error === null ? "not needed so far" : "not connected"];
}

/** Brokers by the state of their connections. */
export function connectionsOf(model) {
  const nodes = model.status?.nodes ?? [];
  const known = nodes.filter((node) => node.id >= 0);
  const down = known.filter((node) => connectionOf(node)[0] === "bad").length;
  return {
    all: Math.max(model.brokers.size, known.length),
    down,
    isAnyReady: nodes.some((node) => node.state === "ready"),
  };
}

/** Whether no broker answers, as far as the sidecar has tried. */
function areAllGone({ all, down, isAnyReady }, metadata) {
  if (isAnyReady) return false;
  const isRefreshFailing = metadata.last_error !== null && metadata.last_error_age_ms < RECENT_MS;
  return isRefreshFailing || (all > 0 && down === all);
}

/** Whether little of buffer.memory is left: soon produces will wait for it. */
export function isNearlyFull({ total_bytes: total, available_bytes: available }) {
  return available < 0.1 * total;
}

/** Returns problems as {tone, title, text}; the most severe first. */
export function findingsOf(model) {
  const { status, totals } = model;
  if (status === null) return [];
  const findings = [];
  if (status.draining || ENDED.includes(status.state)) {
    findings.push({ tone: "bad", title: "Shutting down", text: "The sidecar takes no new records." });
  }
  if (totals.leaderless > 0) {
    const text = "Records for them wait until the brokers elect a leader.";
    const title = `${counted(totals.leaderless, "partition")} without a leader`;
    findings.push({ tone: "bad", title, text });
  }
  for (const { node, phase, detail } of status.slow ?? []) {
    findings.push({ tone: phase === "client" ? "bad" : "warn", title: slowTitle(node, phase), text: detail });
  }
  if (totals.under > 0) {
    const text = "A replica is not in sync: one more loss may cost records, or stop acks=all.";
    findings.push({ tone: "warn", title: `${counted(totals.under, "partition")} under-replicated`, text });
  }
  return findings;
}

function slowTitle(node, phase) {
  const what = SLOW[phase] ?? phase;
  if (node === null) return what;
  return `${node < 0 ? "Bootstrap address" : `Broker ${node}`}: ${what.toLowerCase()}`;
}

/** Returns {tone, text}: the headline. It has no changing numbers, so a screen reader speaks it once. */
export function headlineOf(model, findings) {
  if (model.status === null) return { tone: "idle", text: "Waiting for the sidecar’s first word" };
  const connections = connectionsOf(model);
  const { down, all } = connections;
  if (model.clusterId === null) {
    const isTrying = model.status.metadata.last_error === null && findings.length === 0;
    if (isTrying) return { tone: "idle", text: "No broker has answered yet" };
    return { tone: "bad", text: "No broker can be reached" };
  }
  if (areAllGone(connections, model.status.metadata)) {
    return { tone: "bad", text: "No broker can be reached; leaders are from memory" };
  }
  if (down > 0) return { tone: "bad", text: `${count(down)} of ${counted(all, "broker")} cannot be reached` };
  if (findings.length > 0) {
    const tone = findings.some((finding) => finding.tone === "bad") ? "bad" : "warn";
    const text = findings.length === 1 ? "One thing needs" : `${findings.length} things need`;
    return { tone, text: `${text} attention` };
  }
  return { tone: "good", text: "Everything is in order" };
}

/** The headline when the sidecar is gone: the old state may no longer be true. */
export function staleHeadlineOf(model, findings) {
  const { text } = headlineOf(model, findings);
  return { tone: "idle", text: `Not known. Last heard: ${text[0].toLowerCase()}${text.slice(1)}` };
}
