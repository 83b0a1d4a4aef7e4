// Pages of a long list, so that the document has only the visible items.

import { make, setText, show } from "./dom.js";
import { count } from "./format.js";

/** Buttons and a range under a table. `onTurn` is called when the reader turns a page. */
export class Pager {
  #place;
  #size;
  #onTurn;
  #page = 0;
  #range = make("p", "range");
  #back = button("Previous");
  #forth = button("Next");

  constructor(place, size, noun, onTurn) {
    this.#place = place;
    this.#size = size;
    this.#onTurn = onTurn;
    this.#back.setAttribute("aria-label", `Previous ${noun}`);
    this.#forth.setAttribute("aria-label", `Next ${noun}`);
    this.#back.addEventListener("click", () => this.#turn(-1));
    this.#forth.addEventListener("click", () => this.#turn(1));
    place.append(this.#range, this.#back, this.#forth);
  }

  /** Returns to the first page. */
  reset() {
    this.#page = 0;
  }

  /** Returns the items of the present page; shows their range in the list. */
  cut(items) {
    const last = Math.max(0, Math.ceil(items.length / this.#size) - 1);
    this.#page = Math.min(this.#page, last);
    const from = this.#page * this.#size;
    const shown = items.slice(from, from + this.#size);
    show(this.#place, items.length > this.#size);
    setText(this.#range, `${count(from + 1)}–${count(from + shown.length)} of ${count(items.length)}`);
    this.#enable(this.#back, this.#page > 0);
    this.#enable(this.#forth, this.#page < last);
    return shown;
  }

  /** Does not use `disabled`: at the last page the pressed button would lose the focus. */
  #enable(turner, enabled) {
    turner.setAttribute("aria-disabled", `${!enabled}`);
  }

  #turn(by) {
    const turner = by < 0 ? this.#back : this.#forth;
    if (turner.getAttribute("aria-disabled") === "true") return;
    this.#page += by;
    this.#onTurn();
  }
}

function button(text) {
  const made = make("button", "", text);
  made.type = "button";
  return made;
}
