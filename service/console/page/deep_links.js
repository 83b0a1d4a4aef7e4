// Addresses of a topic or a broker within the page: #topic=orders, #broker=2.

/** Puts the link into the address bar. It leads here again, and adds nothing to the history. */
export function setLink(kind, value) {
  history.replaceState(null, "", linkTo(kind, value));
}

/** Takes a link of this kind out of the address bar. */
export function clearLink(kind) {
  if (location.hash.startsWith(`#${kind}=`)) history.replaceState(null, "", location.pathname);
}

export function linkTo(kind, value) {
  return `#${kind}=${encodeURIComponent(value)}`;
}

/** Calls `onTopic(name)` or `onBroker(id)` for the present link and for each later one. */
export function followLinks({ onTopic, onBroker }) {
  const follow = () => {
    const link = new URLSearchParams(location.hash.slice(1).replaceAll("+", "%2B"));
    const [topic, broker] = [link.get("topic"), link.get("broker")];
    if (topic) onTopic(topic);
    else if (/^[0-9]{1,9}$/.test(broker ?? "")) onBroker(Number(broker));
  };
  addEventListener("hashchange", follow);
  follow();
}
