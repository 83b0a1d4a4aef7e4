// The connection to the sidecar: the word at the top, the banner when it is gone, the form for a token.

import { RefusedError } from "./api.js";
import { byId, setTag, setText, show } from "./dom.js";
import { clock, duration } from "./format.js";

const WORDS = {
  connecting: ["idle", "Connecting"],
  live: ["good", "Live"],
  gone: ["bad", "Not reachable"],
  refused: ["bad", "Refused"],
  token: ["warn", "Token wanted"],
  paused: ["idle", "Paused"],
};

export class LinkView {
  #state = "connecting";
  #error = null;
  #sinceMs = null;
  #heardMs = null;
  #api;
  #link = byId("link");
  #banner = byId("banner");

  /** `onToken(token)` is called with the reader's token, `onRetry()` when they choose to retry now. */
  constructor(api, { onToken, onRetry }) {
    this.#api = api;
    byId("banner-retry").addEventListener("click", onRetry);
    byId("token-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const input = byId("token-value");
      setText(byId("token-said"), "");
      onToken(input.value);
      input.value = "";
    });
  }

  /** Sets the feed's state (feed.js) at this time. */
  take(state, error, nowMs) {
    if (state === "live") this.#heardMs = nowMs;
    if (state === this.#state && state !== "token") return;
    const wasAway = isAway(this.#state);
    this.#state = state;
    this.#error = error;
    if (isAway(state) && !wasAway) this.#sinceMs = this.#heardMs ?? nowMs;
    show(byId("token"), state === "token");
    if (state === "token") this.#askForToken();
  }

  /** Whether the page shows old data. */
  get isStale() {
    return this.#heardMs !== null && this.#state !== "live";
  }

  /** The connection's state, in a word or two. */
  get word() {
    return WORDS[this.#state][1];
  }

  /** When the sidecar last sent something; null if never. */
  get heardMs() {
    return this.#heardMs;
  }

  render(model, nowMs) {
    setTag(this.#link, ...WORDS[this.#state]);
    document.body.classList.toggle("stale", this.isStale);
    const age = this.isStale ? `as of ${clock(this.#heardMs)}, ${duration(nowMs - this.#heardMs)} ago` : "";
    for (const place of document.querySelectorAll(".as-of")) setText(place, age);
    setText(byId("banner-title"), this.#title());
    setText(byId("banner-text"), this.#text(model));
    show(this.#banner, isAway(this.#state));
  }

  #title() {
    if (this.#state === "refused") return "The sidecar refuses to be watched";
    return this.#heardMs === null
      ? "The sidecar does not answer"
      : `The sidecar has not answered since ${clock(this.#sinceMs ?? this.#heardMs)}`;
  }

  #text(model) {
    if (this.#state === "refused") return this.#error.message;
    const { farewell } = model;
    const goodbye = farewell === null ? "" : `It announced its end: ${farewell.detail ?? farewell.reason}. `;
    const old = this.#heardMs === null ? "" : "The page shows the last known state. ";
    return `${goodbye}${old}This page keeps trying.`;
  }

  #askForToken() {
    const wrong = this.#api.hasToken && this.#error instanceof RefusedError;
    setText(byId("token-said"), wrong ? `That one was not taken: ${this.#error.message}` : "");
    byId("token-value").focus();
  }
}

function isAway(state) {
  return state === "gone" || state === "refused";
}
