// Keys and values as the API takes them: the reader's own JSON, digit for digit, or a string.

/** JSON for what was typed, in that format. Throws SyntaxError where JSON was announced and is none. */
export function jsonOf(typed, format) {
  if (format !== "json") return JSON.stringify(typed);
  JSON.parse(typed); // or two values, or none, would go into the body
  return typed;
}

/** What is wrong with typed JSON, in one sentence; null where it is some. */
export function faultOf(typed, format) {
  try {
    jsonOf(typed, format);
    return null;
  } catch (error) {
    if (error instanceof SyntaxError) return `That is not JSON: ${error.message}`;
    throw error;
  }
}
