// What can be said of a page's accessibility by looking at it: names, labels, order, contrast. Returns sentences.
"use strict";
const faults = [];
const seen = (node) => node.checkVisibility({ visibilityProperty: true });
const described = (node) => `${node.tagName.toLowerCase()}#${node.id || "?"} "${node.textContent.trim().slice(0, 30)}"`;
const all = (selector) => [...document.querySelectorAll(selector)];

// -- names ------------------------------------------------------------------------------------------------------
const byIds = (ids) => ids.split(/\s+/).map((id) => document.getElementById(id));
function nameOf(node) {
  const labelledBy = node.getAttribute("aria-labelledby");
  if (labelledBy) return byIds(labelledBy).map((label) => label?.textContent ?? "").join(" ").trim();
  const own = node.getAttribute("aria-label") ?? "";
  const labels = node.labels ? [...node.labels].map((label) => label.textContent).join(" ") : "";
  return (own || labels || node.textContent).trim();
}
for (const field of all("input, select, textarea")) {
  if (field.labels.length === 0 && !field.getAttribute("aria-label")) faults.push(`no label: ${described(field)}`);
}
for (const named of all("button, a[href], nav, section, aside, [role=region], [role=search], [role=img]").filter(seen)) {
  if (!nameOf(named)) faults.push(`no name: ${described(named)}`);
}
for (const image of all("img")) if (!image.hasAttribute("alt")) faults.push(`no alt: ${image.src}`);

// -- structure --------------------------------------------------------------------------------------------------
if (!document.documentElement.lang) faults.push("no language");
if (!document.title) faults.push("no title");
for (const [selector, wanted] of [["main", 1], ["h1", 1], ["header.top", 1], ["nav", 1], ["footer", 1]]) {
  if (all(selector).length !== wanted) faults.push(`${all(selector).length} of ${selector}`);
}
let level = 0;
for (const heading of all("h1, h2, h3, h4").filter(seen)) {
  const own = Number(heading.tagName[1]);
  if (own > level + 1) faults.push(`a level is left out before ${described(heading)}`);
  level = own;
}
const ids = all("[id]").map((node) => node.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`id twice: ${id}`);
for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls"]) {
  for (const node of all(`[${attribute}]`)) {
    if (byIds(node.getAttribute(attribute)).includes(null)) faults.push(`${attribute} leads nowhere: ${described(node)}`);
  }
}
for (const table of all("table").filter(seen)) {
  if (!table.caption?.textContent.trim()) faults.push(`no caption: ${described(table)}`);
  for (const head of table.querySelectorAll("th")) if (!head.scope) faults.push(`no scope: ${described(head)}`);
}
for (const node of all("[tabindex]")) if (node.tabIndex > 0) faults.push(`tabindex above 0: ${described(node)}`);

// -- size of what is pressed (WCAG 2.2, 2.5.8) ------------------------------------------------------------------
for (const target of all("button, select, input, textarea, nav a").filter(seen)) {
  const { width, height } = target.getBoundingClientRect();
  if (width < 24 || height < 24) faults.push(`${Math.round(width)} by ${Math.round(height)}: ${described(target)}`);
}

// -- contrast (WCAG 2.2, 1.4.3) ---------------------------------------------------------------------------------
const parse = (color) => color.match(/[\d.]+/g).map(Number);
function luminance([r, g, b]) {
  const [x, y, z] = [r, g, b].map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}
function groundOf(node) {
  for (let at = node; at !== null; at = at.parentElement) {
    const [r, g, b, alpha = 1] = parse(getComputedStyle(at).backgroundColor);
    if (alpha === 1) return [r, g, b];
    if (alpha !== 0) faults.push(`a translucent ground can't be judged: ${described(at)}`);
  }
  return [255, 255, 255];
}
function contrast(a, b) {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let judged = 0;
while (walker.nextNode()) {
  const node = walker.currentNode.parentElement;
  if (!walker.currentNode.data.trim() || !seen(node) || node.closest("script, noscript, datalist, .unseen, .skip")) continue;
  if (node.closest(":disabled, [aria-disabled=true]")) continue;
  const { color, fontSize, fontWeight } = getComputedStyle(node);
  const size = parseFloat(fontSize);
  const least = size >= 24 || (size >= 18.66 && Number(fontWeight) >= 700) ? 3 : 4.5;
  const ratio = contrast(parse(color), groundOf(node));
  judged += 1;
  if (ratio < least) faults.push(`contrast ${ratio.toFixed(2)}: ${described(node)}`);
}
if (judged < 20) faults.push(`only ${judged} texts were judged`);
for (const field of all("input, select, textarea, button:not(.plain):not([aria-disabled=true])").filter(seen)) {
  const ratio = contrast(parse(getComputedStyle(field).borderColor), groundOf(field.parentElement));
  if (ratio < 3) faults.push(`border contrast ${ratio.toFixed(2)}: ${described(field)}`);
}
return faults;
