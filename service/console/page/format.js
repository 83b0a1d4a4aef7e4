// Formats numbers and times for people. Always English, like the API's texts.

const COUNT = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** 12345 → 12,345 */
export function count(number) {
  return COUNT.format(number);
}

/** count(2, "topic") → 2 topics */
export function counted(number, noun, plural = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : plural}`;
}

/** Three digits are enough for a rate: 1,230 and 12.3 and 0.12. */
export function short(number) {
  return SHORT.format(number);
}

/** Milliseconds → 3 s, 2 min 5 s, 4 h 10 min, 3 d 4 h. Whole seconds unless `fine`, which shows 12 ms. */
export function duration(elapsedMs, fine = false) {
  const ms = Math.max(0, elapsedMs); // the browser's clock may have been set back
  if (fine && ms < SECOND) return `${short(ms)} ms`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return pair(ms, MINUTE, "min", SECOND, "s");
  if (ms < DAY) return pair(ms, HOUR, "h", MINUTE, "min");
  return pair(ms, DAY, "d", HOUR, "h");
}

function pair(ms, large, largeName, small, smallName) {
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/** A time (a Date, or an argument for one) → 09:27:01, in the browser's zone. */
export function clock(moment) {
  return CLOCK.format(new Date(moment));
}

/** 33554432 → 33.6 MB */
export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let size = number;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${short(size)} ${units[unit]}`;
}

/** ["a", "b", "c"] → a, b and c */
export function listed(words) {
  if (words.length < 2) return words.join("");
  return `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
