// The live stream: /v1/watch, read with fetch (EventSource can't send a token); reconnects when it ends.

import { RefusedError } from "./api.js";
import { EventStreamParser } from "./sse.js";

const STATUS_MS = 1000;
/** After this many missed statuses the sidecar counts as gone, even if the connection is open. */
const SILENCE_MS = 5 * STATUS_MS;
const BACKOFF_MS = [250, 500, 1000, 2000, 4000];

/**
 * Keeps one stream open and reports its state:
 *
 *     connecting   nothing received yet
 *     live         received something within SILENCE_MS
 *     gone         no answer, or the stream went silent; retries
 *     refused      answered with an error (`error` has the message); retries
 *     token        answered 401: waits for `retry`
 *     paused       after `pause`: waits for `retry`
 *
 * `onEvent(event, data)` gets each event, `onState(state, error)` each change of state.
 */
export class Feed {
  #api;
  #onEvent;
  #onState;
  #lastId = null;
  #failures = 0;
  #attempt = null;
  #timer = 0;

  constructor(api, onEvent, onState) {
    this.#api = api;
    this.#onEvent = onEvent;
    this.#onState = onState;
  }

  /** Connects now, in any state. */
  retry() {
    clearTimeout(this.#timer);
    this.#attempt?.abort();
    this.#attempt = new AbortController();
    this.#run(this.#attempt);
  }

  /** Closes the connection: a browser has six per host, and a hidden page needs none. */
  pause() {
    clearTimeout(this.#timer);
    this.#attempt?.abort();
    this.#attempt = null;
    this.#onState("paused", null);
  }

  /** Forgets the last id, so that the next stream begins with a snapshot. */
  startAnew() {
    this.#lastId = null;
    this.retry();
  }

  async #run(attempt) {
    let error = null;
    try {
      await this.#read(attempt);
    } catch (caught) {
      error = caught;
    }
    if (attempt !== this.#attempt) return; // another attempt has started
    if (error instanceof RefusedError && error.status === 401) {
      this.#onState("token", error);
      return;
    }
    this.#onState(error instanceof RefusedError ? "refused" : "gone", error);
    const backoff = BACKOFF_MS[Math.min(this.#failures, BACKOFF_MS.length - 1)];
    this.#failures += 1;
    this.#timer = setTimeout(() => this.retry(), backoff * (0.8 + 0.4 * Math.random()));
  }

  /** An error of this page must not look like one of the sidecar. */
  #emit(event, data) {
    try {
      this.#onEvent(event, JSON.parse(data));
    } catch (fault) {
      reportError(fault);
    }
  }

  async #read(attempt) {
    const headers = this.#lastId === null ? {} : { "Last-Event-ID": this.#lastId };
    let silence = setTimeout(() => attempt.abort(), SILENCE_MS);
    try {
      const path = `/v1/watch?status_ms=${STATUS_MS}`;
      const response = await this.#api.ask(path, {
        headers: { Accept: "text/event-stream", ...headers },
        signal: attempt.signal,
      });
      const parser = new EventStreamParser();
      const pieces = response.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await pieces.read();
        if (done || attempt !== this.#attempt) return;
        clearTimeout(silence);
        silence = setTimeout(() => attempt.abort(), SILENCE_MS);
        for (const { event, data, id } of parser.take(value)) {
          if (id !== null) this.#lastId = id;
          this.#emit(event, data);
        }
        this.#failures = 0;
        this.#onState("live", null);
      }
    } finally {
      clearTimeout(silence);
    }
  }
}
