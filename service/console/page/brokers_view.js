// The table of brokers: one row each, from the cluster's data and the sidecar's connections.

import { byId, keyed, make, makeRow, setTag, setText, show } from "./dom.js";
import { count, duration } from "./format.js";
import { connectionOf } from "./health.js";

const LABELS = ["Broker", "Connection", "In flight", "Answers in", "Leads", "Last error"];
/** A request that takes longer is marked. */
const SLOW_MS = 1000;

export class BrokersView {
  #rows = byId("broker-rows");
  #empty = byId("brokers-empty");
  #onLeads;

  /** `onLeads(id)` is called when the reader asks for the topics that a broker leads. */
  constructor(onLeads) {
    this.#onLeads = onLeads;
  }

  render(model, elapsedMs) {
    const rows = rowsOf(model);
    show(this.#rows.parentElement, rows.length > 0);
    show(this.#empty, rows.length === 0);
    keyed(
      this.#rows,
      rows,
      (row) => row.id,
      (row) => this.#make(row),
      (tr, row) => update(tr, row, model, elapsedMs),
    );
  }

  #make({ id }) {
    const tr = makeRow(LABELS, [2, 3, 4]);
    const [name, connection, , , leads, error] = tr.cells;
    name.append(make("span", "name"), make("span", "under"));
    connection.append(make("span", "tag"), make("span", "under"));
    const button = make("button", "plain");
    button.type = "button";
    button.addEventListener("click", () => this.#onLeads(id));
    leads.append(button);
    error.append(make("span", "words"), make("span", "under"));
    return tr;
  }
}

/** Brokers by id; while none is known, the configured addresses. */
function rowsOf(model) {
  const nodes = new Map((model.status?.nodes ?? []).map((node) => [node.id, node]));
  const ids = new Set(model.brokers.keys());
  for (const id of nodes.keys()) if (id >= 0) ids.add(id);
  if (ids.size === 0) for (const id of nodes.keys()) ids.add(id);
  return [...ids].sort((a, b) => a - b).map((id) => ({ id, node: nodes.get(id) ?? null }));
}

function update(tr, { id, node }, model, elapsedMs) {
  const [name, connection, inFlight, latency, leads, error] = tr.cells;
  const broker = model.brokers.get(id) ?? node;
  setText(name.firstChild, id < 0 ? "Bootstrap" : `${id}`);
  setText(name.lastChild, `${broker.host}:${broker.port}${broker.rack ? `, rack ${broker.rack}` : ""}`);
  setTag(connection.firstChild, ...connectionOf(node));
  setText(connection.lastChild, pauseOf(node, elapsedMs));
  setText(inFlight, node === null ? "0" : count(node.in_flight_requests));
  setText(latency, latencyOf(node));
  const led = model.totals.ledBy.get(id) ?? 0;
  setText(leads.firstChild, count(led));
  leads.firstChild.disabled = led === 0;
  leads.firstChild.setAttribute("aria-label", `Broker ${id} leads ${led} partitions; show its topics`);
  const { words, when } = errorOf(node, elapsedMs);
  setText(error.firstChild, words);
  error.firstChild.classList.toggle("past", node === null || node.state === "ready" || when === "");
  setText(error.lastChild, when);
}

function pauseOf(node, elapsedMs) {
  if (node === null) return "";
  const backoffMs = node.backoff_left_ms - elapsedMs;
  if (node.state !== "ready" && backoffMs > 0) return `next try in ${duration(backoffMs, true)}`;
  const throttleMs = node.throttle_left_ms - elapsedMs;
  if (throttleMs > 0) return `throttled for ${duration(throttleMs, true)}`;
  const oldestMs = node.oldest_in_flight_age_ms;
  return oldestMs > SLOW_MS ? `oldest request ${duration(oldestMs + elapsedMs)}` : "";
}

function latencyOf(node) {
  const p99 = node?.produce?.p99_ms;
  return p99 === null || p99 === undefined ? "–" : duration(p99, true);
}

/** Returns the later failure: that of the connection or that of a produce. */
function errorOf(node, elapsedMs) {
  const found = [];
  if (node?.last_error) found.push({ words: node.last_error, ageMs: node.last_error_age_ms });
  const failure = node?.last_failure;
  if (failure) {
    // Kafka's name is enough; its explanation would fill a page.
    const times = failure.times > 1 ? ` (${count(failure.times)} times)` : "";
    found.push({ words: `${failure.error}${times}`, ageMs: failure.age_ms });
  }
  found.sort((a, b) => a.ageMs - b.ageMs);
  if (found.length === 0) return { words: "none", when: "" };
  return { words: found[0].words, when: `${duration(found[0].ageMs + elapsedMs)} ago` };
}
