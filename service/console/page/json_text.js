// Keys and values for the API: the typed JSON, digit for digit, or a string.

/** Returns JSON for the typed text in that format. Throws SyntaxError for invalid text in format JSON. */
export function jsonOf(typed, format) {
  if (format !== "json") return JSON.stringify(typed);
  JSON.parse(typed); // otherwise two values, or none, would go into the body
  return typed;
}

/** Returns the error in typed JSON, in one sentence; null if it is valid. */
export function faultOf(typed, format) {
  try {
    jsonOf(typed, format);
    return null;
  } catch (error) {
    if (error instanceof SyntaxError) return `That is not JSON: ${error.message}`;
    throw error;
  }
}
