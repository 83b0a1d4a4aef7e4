// The few ways in which this page touches its document. Text gets in as text: nothing here parses markup.

/** The element of that id; the page and its scripts are one, so a missing one is a bug. */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no element ${id}`);
  return found;
}

/** A new element with a class (or none) and children: elements, or texts. */
export function make(tag, className = "", ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** Sets a text where it changed, so that a live region speaks once and a selection survives. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute where it changed; null takes it away. */
export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function show(node, shown) {
  node.hidden = !shown;
}

/** The children that `keyed` has given each parent, by key. */
const CHILDREN = new WeakMap();

/**
 * Makes a parent's children those of a list: one each, kept as long as its key is in the list.
 *
 * A child that stays where it is is not touched, so focus, selection and scroll positions survive. Keys are
 * different from each other.
 */
export function keyed(parent, items, keyOf, makeOne, update) {
  const old = CHILDREN.get(parent) ?? new Map();
  const kept = new Map();
  for (const [index, item] of items.entries()) {
    const key = keyOf(item, index);
    const child = old.get(key) ?? makeOne(item);
    old.delete(key);
    kept.set(key, child);
    update(child, item);
  }
  for (const child of old.values()) child.remove();
  let place = parent.firstChild;
  for (const child of kept.values()) {
    if (child === place) place = place.nextSibling;
    else parent.insertBefore(child, place);
  }
  CHILDREN.set(parent, kept);
}

/**
 * A row of a table, headed by its first cell. `labels` name the cells where there is no room for columns:
 * rows are shown as cards then, and would be no table to screen readers any more but for the roles.
 */
export function makeRow(labels, numbers = []) {
  const row = make("tr");
  row.role = "row";
  labels.forEach((label, index) => {
    const cell = make(index === 0 ? "th" : "td", numbers.includes(index) ? "number" : "");
    if (index === 0) cell.scope = "row";
    cell.role = index === 0 ? "rowheader" : "cell";
    cell.dataset.label = label;
    row.append(cell);
  });
  return row;
}

/** A tag: a word with a tone (good, warn, bad or idle), which shows as a colour and as a shape. */
export function setTag(node, tone, text) {
  setAttribute(node, "data-tone", tone);
  setText(node, text);
}

/** Fills a list of terms and what they are: [[term, text, tone]]. */
export function setFacts(list, facts) {
  keyed(
    list,
    facts,
    ([term]) => term,
    ([term]) => make("div", "fact", make("dt", "", term), make("dd")),
    (fact, [, text, tone = ""]) => {
      setText(fact.lastChild, text);
      setAttribute(fact, "data-tone", tone || null);
    },
  );
}
