// Recent changes, the newest first: leaders, topics, brokers.

import { byId, keyed, make, setAttribute, setText, show } from "./dom.js";
import { clock } from "./format.js";

const SHOWN = 50;

export class ChangesView {
  #list = byId("changes");
  #empty = byId("changes-empty");

  render({ changes }) {
    show(this.#list, changes.length > 0);
    show(this.#empty, changes.length === 0);
    keyed(this.#list, changes.slice(0, SHOWN), (change) => change.key, makeChange, () => {});
  }
}

/** A change never changes, so it is rendered once. */
function makeChange({ at, tone, subject, text }) {
  const time = make("time", "", clock(at));
  time.dateTime = at.toISOString();
  const item = make("li", "change", time, make("strong", "", subject), " ", make("span", "", text));
  setAttribute(item, "data-tone", tone);
  return item;
}
