// Server-sent events from text, for streams that fetch reads. Source: WHATWG HTML, section 9.2.6.

/** Parses a stream's text in chunks of any size, and returns the complete events. */
export class EventStreamParser {
  #rest = "";
  #event = "";
  #data = [];
  #id = null;

  /** The events that this chunk completes: {event, data, id}; id is null if none was ever received. */
  take(piece) {
    const events = [];
    // A carriage return at the very end may be the first half of CRLF.
    const lines = (this.#rest + piece).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === "") this.#dispatch(events);
      else this.#field(line);
    }
    return events;
  }

  #field(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return; // a comment: the heartbeat
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id" && !value.includes("\0")) this.#id = value;
  }

  #dispatch(events) {
    if (this.#data.length > 0) {
      events.push({ event: this.#event || "message", data: this.#data.join("\n"), id: this.#id });
    }
    this.#event = "";
    this.#data = [];
  }
}
