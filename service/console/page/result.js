// The result of a form: one sentence with a tone, and details.

import { RefusedError } from "./api.js";
import { make, setAttribute } from "./dom.js";

/** Writes it into an element that screen readers announce. */
export function answer(place, tone, sentence, remarks = []) {
  setAttribute(place, "data-tone", tone);
  place.replaceChildren(make("p", "sentence", sentence), ...remarks.map((remark) => make("p", "", remark)));
}

/** Writes the error, with the sidecar's message. */
export function answerError(place, error) {
  const remarks = error instanceof RefusedError ? error.remarks : [];
  answer(place, "bad", error.message, remarks);
}
