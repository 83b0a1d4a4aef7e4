// The page's DOM functions. Strings are inserted as text: no markup is parsed here.

/** Returns the element with this id; page and scripts ship together, so a missing one is a bug. */
export function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no element ${id}`);
  return found;
}

/** Creates an element with a class (or none) and children: elements, or texts. */
export function make(tag, className = "", ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

/** Sets a text if it changed, so that a live region speaks once and a selection survives. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute if it changed; null removes it. */
export function setAttribute(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

export function show(node, shown) {
  node.hidden = !shown;
}

/** The children that `keyed` created in each parent, by key. */
const CHILDREN = new WeakMap();

/**
 * Updates a parent's children to match a list: one each, kept as long as its key is in the list.
 *
 * A child that stays in its position is not touched, so focus, selection and scroll positions survive. Keys
 * must be unique.
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
 * Creates a table row, headed by its first cell. `labels` name the cells on narrow pages, where rows are
 * cards. The roles keep cards a table for screen readers.
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

/** Fills a definition list: [[term, text, tone]]. */
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
