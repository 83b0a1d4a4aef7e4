// The top of the page: the headline, the problems, six figures.

import { byId, keyed, make, setAttribute, setFacts, setTag, setText, show } from "./dom.js";
import { bytes, count, duration } from "./format.js";
import { connectionsOf, findingsOf, headlineOf, isNearlyFull, staleHeadlineOf } from "./health.js";

export class StateView {
  #headline = byId("headline");
  #findings = byId("findings");
  #figures = byId("figures");

  /** Shows the model; `elapsedMs` is the time since its status was received. Returns the headline. */
  render(model, elapsedMs, isStale) {
    const findings = findingsOf(model);
    const headline = isStale ? staleHeadlineOf(model, findings) : headlineOf(model, findings);
    setTag(this.#headline, headline.tone, headline.text);
    show(this.#findings, findings.length > 0);
    keyed(this.#findings, findings, (_, index) => index, makeFinding, updateFinding);
    setFacts(this.#figures, model.status === null ? [] : figuresOf(model, elapsedMs));
    return headline;
  }
}

function makeFinding() {
  return make("li", "finding", make("strong"), " ", make("span"));
}

function updateFinding(item, finding) {
  setAttribute(item, "data-tone", finding.tone);
  setText(item.firstChild, finding.title);
  setText(item.lastChild, finding.text);
}

function figuresOf(model, elapsedMs) {
  const { status, totals } = model;
  const { down, all } = connectionsOf(model);
  const used = status.buffer.total_bytes - status.buffer.available_bytes;
  const age = status.metadata.age_ms;
  return [
    down > 0 ? ["Brokers down", `${count(down)} of ${count(all)}`, "bad"] : ["Brokers", count(all)],
    ["Without a leader", count(totals.leaderless), totals.leaderless > 0 ? "bad" : ""],
    ["Under-replicated", count(totals.under), totals.under > 0 ? "warn" : ""],
    ["Waiting requests", count(status.waiting_requests)],
    ["Buffer in use", bytes(used), isNearlyFull(status.buffer) ? "warn" : ""],
    ["Metadata age", age === null ? "none yet" : duration(age + elapsedMs)],
  ];
}
