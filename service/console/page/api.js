// HTTP requests to the sidecar. The token, if one is needed, is kept only here, as long as the page is open.

/** No answer: the sidecar has ended, or the connection to it is broken. */
export class UnreachableError extends Error {}

/** The sidecar rejected the request; has its message. */
export class RefusedError extends Error {
  constructor(status, problem) {
    super(problem.detail ?? problem.title ?? `HTTP status ${status}`);
    this.status = status;
    this.problem = problem;
  }

  /** The other fields of the problem, each as a sentence. */
  get remarks() {
    const { kafka_error: kafkaError, code, written, place, phase, waited_ms: waitedMs } = this.problem;
    const remarks = [];
    if (kafkaError) remarks.push(`Kafka calls it ${kafkaError} (${code}).`);
    if (phase) remarks.push(`It waited for ${phase}, for ${waitedMs} ms.`);
    if (written === "no") remarks.push("Nothing was written.");
    if (written === "unknown") remarks.push("It may have been written: sending it again may double it.");
    if (place) remarks.push(`Where: ${place}.`);
    if (this.problem.retriable) remarks.push("It may go better later.");
    return remarks;
  }
}

export class Api {
  #token = null;

  /** Uses this token from now on. */
  useToken(token) {
    this.#token = token;
  }

  get hasToken() {
    return this.#token !== null;
  }

  /** Returns a successful response. Throws UnreachableError, RefusedError, or AbortError by `signal`. */
  async ask(path, { method = "GET", json = null, headers = {}, signal = null } = {}) {
    const sent = new Headers(headers);
    if (json !== null) sent.set("Content-Type", "application/json");
    if (this.#token !== null) sent.set("Authorization", `Bearer ${this.#token}`);
    let response;
    try {
      response = await fetch(path, { method, headers: sent, body: json, signal, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new UnreachableError("The sidecar does not answer.", { cause: error });
    }
    if (!response.ok) throw new RefusedError(response.status, await problemOf(response));
    return response;
  }

  /** Returns the JSON of a successful response. Throws the errors of `ask`. */
  async read(path, options = {}) {
    const response = await this.ask(path, options);
    try {
      return await response.json();
    } catch (error) {
      throw new UnreachableError("The sidecar’s answer broke off.", { cause: error });
    }
  }
}

async function problemOf(response) {
  try {
    const problem = await response.json();
    return problem !== null && typeof problem === "object" ? problem : {};
  } catch {
    return {}; // a proxy may answer with an error that is not JSON
  }
}
