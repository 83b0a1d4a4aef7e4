// What a form answers: one sentence with a tone, and what else there is to say.

import { RefusedError } from "./api.js";
import { make, setAttribute } from "./dom.js";

/** Writes it into a place that screen readers announce. */
export function answer(place, tone, sentence, remarks = []) {
  setAttribute(place, "data-tone", tone);
  place.replaceChildren(make("p", "sentence", sentence), ...remarks.map((remark) => make("p", "", remark)));
}

/** Writes what went wrong, in the sidecar's words. */
export function answerError(place, error) {
  const remarks = error instanceof RefusedError ? error.remarks : [];
  answer(place, "bad", error.message, remarks);
}
