// Swagger UI for this sidecar's OpenAPI document. It uses no other host: no validator, no fonts.
// Where tokens are in use, the page asks for one, and keeps it only here, as long as it is open.

/** What Swagger UI's markup lacks for screen readers and the keyboard: [selector, attribute, value or null]. */
const MENDED = [
  [".info .title", "aria-level", "2"], // the page's own title is the h1, and h3 follows
  ["a.nostyle", "href", null], // a link in a button; the button itself sets the address
  [".copy-to-clipboard > button", "aria-label", "Copy"],
  [".close-modal", "aria-label", "Close"],
  [".auth-btn-wrapper [aria-label]", "aria-label", null], // not the words that are on the button
  ["table[role=region]", "role", null], // a table; several regions without a name
  [".body-param__text", "aria-label", "Request body"],
  ["pre.microlight", "tabindex", "0"], // scrolls sideways
];

const form = document.getElementById("token-form");
const field = document.getElementById("token-value");
const said = document.getElementById("said");
const dark = matchMedia("(prefers-color-scheme: dark)");
let token = null;

follow();
dark.addEventListener("change", follow);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  token = field.value;
  show();
});
new MutationObserver(mend).observe(document.getElementById("reference"), { childList: true, subtree: true });
show();

/** Sets the class that Swagger UI's own dark colours need. */
function follow() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

async function show() {
  said.textContent = "";
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  let response;
  try {
    response = await fetch("/openapi.json", { headers });
  } catch {
    said.textContent = "The sidecar does not answer. Reload this page to try again.";
    return;
  }
  if (response.status === 401) {
    said.textContent = token === null ? "" : "The sidecar does not know this token.";
    form.hidden = false;
    field.focus();
  } else if (response.ok) {
    form.hidden = true;
    field.value = "";
    draw(await response.json());
  } else {
    said.textContent = `The sidecar refused the document: HTTP status ${response.status}.`;
  }
}

function draw(spec) {
  SwaggerUIBundle({
    spec,
    dom_id: "#reference",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    docExpansion: "list",
    validatorUrl: null,
    syntaxHighlight: { theme: "tomorrow-night" }, // all its colours keep 4.5:1
    // Requests go to this page's origin, whatever the document says.
    presets: [SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
    requestInterceptor: withToken,
  });
}

/** Runs after each rendering: React leaves alone what it did not set, and what it set until that changes. */
function mend() {
  for (const [selector, attribute, value] of MENDED) {
    for (const node of document.querySelectorAll(`#reference ${selector}`)) {
      if (value === null) node.removeAttribute(attribute);
      else node.setAttribute(attribute, value);
    }
  }
}

/** Adds the page's token to a tried call, unless the call has its own or goes to another origin. */
function withToken(request) {
  const isOurs = new URL(request.url, location.href).origin === location.origin;
  if (token !== null && isOurs && !("Authorization" in request.headers)) {
    request.headers.Authorization = `Bearer ${token}`;
  }
  return request;
}
