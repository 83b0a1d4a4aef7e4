// The table of topics: those that the sidecar follows and, on request, all other names of the cluster.

import { UnreachableError } from "./api.js";
import { clearLink, setLink } from "./deep_links.js";
import { byId, keyed, make, makeRow, setTag, setText, show } from "./dom.js";
import { clock, count, counted } from "./format.js";
import { Pager } from "./pager.js";

const LABELS = ["Topic", "Partitions", "Leaders", "State"];
const PAGE_SIZE = 25;

const SHOWN = {
  all: () => true,
  trouble: ({ leaderless, under }) => leaderless > 0 || under > 0,
  leaderless: ({ leaderless }) => leaderless > 0,
  under: ({ under }) => under > 0,
};

export class TopicsView {
  #api;
  #model;
  #onOpen;
  #rows = byId("topic-rows");
  #table = byId("topic-table");
  #empty = byId("topics-empty");
  #said = byId("topics-said");
  #search = byId("topic-search");
  #shown = byId("topic-show");
  #leader = byId("topic-leader");
  #pager;
  #listed = [];
  #listedText = "";
  #isStale = true;

  /** `onOpen(name)` is called when the reader wants to see a topic's partitions. */
  constructor(api, model, onOpen) {
    this.#api = api;
    this.#model = model;
    this.#onOpen = onOpen;
    this.#pager = new Pager(byId("topic-pager"), PAGE_SIZE, "topics", () => this.#renew());
    byId("topic-filter").addEventListener("submit", (event) => event.preventDefault());
    this.#search.addEventListener("input", () => this.#filter());
    for (const choice of [this.#shown, this.#leader]) choice.addEventListener("change", () => this.#filter());
    byId("topic-list").addEventListener("click", () => this.#list());
  }

  /** Shows the topics of which this broker leads a partition. */
  showLedBy(id) {
    this.#offerLeaders(`${id}`);
    this.#leader.value = `${id}`;
    this.#shown.value = "all";
    this.#search.value = "";
    this.#filter();
    setLink("broker", id);
    byId("topics").focus();
    byId("topics").scrollIntoView();
  }

  /** Shows the model if it changed since the last time. */
  render(revision) {
    if (revision === this.renderedRevision && !this.#isStale) return;
    this.renderedRevision = revision;
    this.#isStale = false;
    this.#offerLeaders();
    const all = this.#all();
    const found = all.filter((topic) => this.#matches(topic));
    keyed(this.#rows, this.#pager.cut(found), (topic) => topic.name, (topic) => this.#make(topic), update);
    show(this.#table, found.length > 0);
    show(this.#empty, found.length === 0);
    setText(this.#empty, all.length === 0 ? NONE_FOLLOWED : "No topic is like that.");
    setText(this.#said, `${this.#foundText(found.length, all.length)}${this.#listedText}`);
  }

  #foundText(found, all) {
    if (all === 0) return "";
    return found === all ? `${counted(all, "topic")}. ` : `${count(found)} of ${counted(all, "topic")}. `;
  }

  /** Followed topics and other listed topics, by name. */
  #all() {
    const { topics } = this.#model;
    const others = this.#listed.filter((topic) => !topics.has(topic.name));
    return [...topics.values(), ...others].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  #matches({ name, summary }) {
    if (!name.toLowerCase().includes(this.#search.value.trim().toLowerCase())) return false;
    if (this.#shown.value === "all" && this.#leader.value === "") return true;
    if (summary === undefined) return false; // only followed topics have data
    if (!SHOWN[this.#shown.value](summary)) return false;
    return this.#leader.value === "" || summary.ledBy.has(Number(this.#leader.value));
  }

  /** Fills the broker filter; the choice stays. */
  #offerLeaders(chosen = this.#leader.value) {
    const offered = [...this.#model.brokers.keys()].sort((a, b) => a - b).map(String);
    if (chosen !== "" && !offered.includes(chosen)) offered.push(chosen);
    keyed(this.#leader, ["", ...offered], (id) => id, makeLeaderOption, () => {});
  }

  #make({ name }) {
    const tr = makeRow(LABELS, [1]);
    const button = make("button", "plain name", name);
    button.type = "button";
    button.addEventListener("click", () => this.#onOpen(name));
    tr.cells[0].append(button);
    tr.cells[3].append(make("span", "tag"));
    return tr;
  }

  #filter() {
    clearLink("broker");
    this.#pager.reset();
    this.#renew();
  }

  #renew() {
    this.#isStale = true;
    this.render(this.renderedRevision);
  }

  /** Requests all topics of the cluster, once: the sidecar itself follows only requested ones. */
  async #list() {
    setText(this.#said, "Asking the brokers for all topics …");
    try {
      const { topics } = await this.#api.read("/v1/topics?internal=true&max_age_ms=0");
      this.#listed = topics.map(({ name, partition_count }) => ({ name, count: partition_count }));
      this.#listedText = `All topics of the cluster as of ${clock(Date.now())}.`;
    } catch (error) {
      this.#listedText = error instanceof UnreachableError ? error.message : `No list: ${error.message}`;
    }
    this.#renew();
  }
}

const NONE_FOLLOWED =
  "This sidecar follows no topic yet. It follows those that it is asked for: look one up, send to one, " +
  "or list the whole cluster.";

function makeLeaderOption(id) {
  const option = make("option", "", id === "" ? "any broker" : `broker ${id}`);
  option.value = id;
  return option;
}

function update(tr, { summary, count: listedCount }) {
  const [, partitions, ledBy, state] = tr.cells;
  setText(partitions, count(summary?.count ?? listedCount));
  setText(ledBy, summary === undefined ? "–" : ledByText(summary.ledBy));
  setTag(state.firstChild, ...stateOf(summary));
}

/** The number of partitions that each broker leads: `1: 4, 2: 3, 3: 5`. */
function ledByText(ledBy) {
  const led = [...ledBy].sort(([a], [b]) => a - b);
  return led.map(([id, number]) => `${id}: ${count(number)}`).join(", ") || "none";
}

function stateOf(summary) {
  if (summary === undefined) return ["idle", "not followed"];
  const { leaderless, under } = summary;
  const words = [];
  if (leaderless > 0) words.push(`${count(leaderless)} without a leader`);
  if (under > 0) words.push(`${count(under)} under-replicated`);
  if (words.length === 0) return ["good", "in order"];
  return [leaderless > 0 ? "bad" : "warn", words.join(", ")];
}
