// The last failed requests, the latest first: who asked for what, what it waited for, why, and its trace.

import { byId, keyed, make, setAttribute, setText, show } from "./dom.js";
import { clock, count, duration } from "./format.js";

export class FailedView {
  #list = byId("failed");
  #empty = byId("failed-empty");

  render({ status }) {
    const failed = status?.failed_requests ?? [];
    show(this.#list, failed.length > 0);
    show(this.#empty, failed.length === 0);
    keyed(this.#list, failed, keyOf, makeFailed, update);
  }
}

function keyOf({ caller, method, route, topic, type }) {
  return [caller, method, route, topic, type].join("\n");
}

function makeFailed({ caller, method, route, topic, type, status, written }) {
  const path = topic === null ? route : route.replace(/\{topic(:path)?\}/, () => topic);
  const reason = make("a", "", type.replace("/problems/", ""));
  reason.href = type;
  const item = make("li", "change", make("time"), make("strong", "", `${method} ${path}`), " ", make("span"), " ", reason);
  item.append(make("p", "under"));
  item.dataset.status = `${status}`;
  setAttribute(item, "data-tone", status >= 500 || written === "unknown" ? "bad" : "warn");
  item.title = `Caller: ${caller}`;
  return item;
}

function update(item, failed) {
  const [time, , said] = item.children;
  const at = new Date(failed.at);
  setText(time, clock(at));
  time.dateTime = at.toISOString();
  const times = failed.times > 1 ? `, ${count(failed.times)} times` : "";
  setText(said, `${failed.status}${times}, caller ${failed.caller}:`);
  setText(item.lastChild, detailsOf(failed).join(" "));
}

function detailsOf({ detail, phase, waited_ms: waitedMs, cause, written, trace_id: traceId }) {
  const details = [detail.endsWith(".") ? detail : `${detail}.`];
  if (phase !== undefined) details.push(`Waited for ${phase}, for ${duration(waitedMs, true)}.`);
  if (cause !== undefined) {
    const where = cause.node === null ? "" : ` at broker ${cause.node}`;
    details.push(`Cause: ${cause.kafka_error}${where}, ${count(cause.attempts)} attempts.`);
  }
  if (written === "unknown") details.push("It may have been written.");
  if (traceId !== null) details.push(`Trace ${traceId}.`);
  return details;
}
