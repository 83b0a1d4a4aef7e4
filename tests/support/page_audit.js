// What axe-core does not judge: captions, the size of all that is pressed, contrast of borders. Returns sentences.
"use strict";
const faults = [];
const seen = (node) => node.checkVisibility({ visibilityProperty: true });
const described = (node) => `${node.tagName.toLowerCase()}#${node.id || "?"} "${node.textContent.trim().slice(0, 30)}"`;
const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);

for (const table of all("table")) {
  if (!table.caption?.textContent.trim()) faults.push(`no caption: ${described(table)}`);
}

// Of WCAG 2.2, 2.5.8 without its exceptions; axe-core grants space instead of size.
for (const target of all("button, select, input, textarea, nav a")) {
  const { width, height } = target.getBoundingClientRect();
  if (width < 24 || height < 24) faults.push(`${Math.round(width)} by ${Math.round(height)}: ${described(target)}`);
}

// WCAG 2.2, 1.4.11: 3:1 between a control's border and the ground around it.
const { Color } = axe.commons.color;
const colour = (text) => {
  const parsed = new Color();
  parsed.parseString(text);
  return parsed;
};
function groundOf(node) {
  for (let at = node; at !== null; at = at.parentElement) {
    const ground = colour(getComputedStyle(at).backgroundColor);
    if (ground.alpha === 1) return ground;
  }
  return colour("white");
}
for (const field of all("input, select, textarea, button:not(.plain):not([aria-disabled=true])")) {
  const border = colour(getComputedStyle(field).borderColor);
  const ratio = axe.commons.color.getContrast(groundOf(field.parentElement), border);
  if (ratio < 3) faults.push(`border contrast ${ratio.toFixed(2)}: ${described(field)}`);
}
return faults;
