// The console of one sidecar. Draws at most once a frame, and once a second to update ages.

import { Api } from "./api.js";
import { BrokersView } from "./brokers_view.js";
import { ChangesView } from "./changes_view.js";
import { DetailView } from "./detail_view.js";
import { followLinks } from "./deep_links.js";
import { byId, setText } from "./dom.js";
import { FailedView } from "./failed_view.js";
import { Feed } from "./feed.js";
import { useTopic, wireLookup, wireSend } from "./forms.js";
import { LinkView } from "./link_view.js";
import { Model } from "./model.js";
import { StateView } from "./state_view.js";
import { TopicsView } from "./topics_view.js";
import { TrafficView } from "./traffic_view.js";

const TICK_MS = 1000;
const REFRESH_WAIT_MS = 10_000;

const api = new Api();
const model = new Model();
const feed = new Feed(api, onEvent, onState);
const link = new LinkView(api, { onToken, onRetry: () => feed.retry() });
const detail = new DetailView(api, model, useTopic);
const topics = new TopicsView(api, model, (name) => detail.open(name));
const brokers = new BrokersView((id) => topics.showLedBy(id));
const state = new StateView();
const traffic = new TrafficView();
const failed = new FailedView();
const changes = new ChangesView();
let isDue = false;

function onEvent(event, data) {
  model.apply(event, data, Date.now());
  drawSoon();
}

function onState(feedState, error) {
  link.take(feedState, error, Date.now());
  drawSoon();
}

function onToken(token) {
  api.useToken(token);
  feed.startAnew();
  detail.askAgain();
}

/** A hidden or cached page closes its stream, and resumes it when it is shown again. */
function wireVisibility() {
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) feed.pause();
    else feed.retry();
  });
  addEventListener("pagehide", () => feed.pause());
  addEventListener("pageshow", (event) => {
    if (event.persisted) feed.retry();
  });
}

function drawSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(draw);
}

function draw() {
  isDue = false;
  const nowMs = Date.now();
  link.render(model, nowMs);
  // Ages are the sidecar's: without it they do not change, and the page shows their time.
  const elapsedMs = model.statusAtMs === null || link.isStale ? 0 : nowMs - model.statusAtMs;
  const headline = state.render(model, elapsedMs, link.isStale);
  brokers.render(model, elapsedMs);
  topics.render(model.topicsRevision);
  detail.render();
  traffic.render(model, elapsedMs, link.isStale);
  failed.render(model);
  changes.render(model);
  const { clusterId } = model;
  setText(byId("cluster"), clusterId === null ? "Kafka metadata sidecar" : `Cluster ${clusterId}`);
  const title = link.isStale ? link.word : headline.text;
  if (document.title !== `${title} – Pilotfish`) document.title = `${title} – Pilotfish`;
}

function wireRefresh() {
  const said = byId("refresh-said");
  byId("refresh").addEventListener("click", async () => {
    setText(said, "Asking the brokers …");
    try {
      const path = `/v1/metadata/refresh?max_block_ms=${REFRESH_WAIT_MS}`;
      const { waited_ms: waitedMs } = await api.read(path, { method: "POST" });
      setText(said, `Refreshed in ${waitedMs} ms.`);
    } catch (error) {
      setText(said, error.message);
    }
  });
}

wireLookup(api, model);
wireSend(api, model);
wireRefresh();
wireVisibility();
followLinks({ onTopic: (name) => detail.open(name), onBroker: (id) => topics.showLedBy(id) });
setInterval(drawSoon, TICK_MS);
if (!document.hidden) feed.retry();
