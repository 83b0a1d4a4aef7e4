// The partitions of one topic: their leaders and in-sync replicas.

import { clearLink, setLink } from "./deep_links.js";
import { byId, keyed, make, makeRow, setTag, setText, show } from "./dom.js";
import { count, counted, listed } from "./format.js";
import { Pager } from "./pager.js";
import { isUnderReplicated } from "./topic.js";

const LABELS = ["Partition", "Leader", "Epoch", "Replicas in sync", "State"];
const PAGE_SIZE = 50;

export class DetailView {
  #api;
  #model;
  #panel = byId("detail");
  #title = byId("detail-title");
  #said = byId("detail-said");
  #table = byId("detail-table");
  #rows = byId("detail-rows");
  #pager;
  #name = null;
  #trouble = "";
  /** Whether the model has had the topic since it was looked up. */
  #isKnown = false;
  #opener = null;

  /** `onUse(name)` is called when the reader wants the topic in the forms. */
  constructor(api, model, onUse) {
    this.#api = api;
    this.#model = model;
    this.#pager = new Pager(byId("detail-pager"), PAGE_SIZE, "partitions", () => this.render());
    byId("detail-close").addEventListener("click", () => this.#close());
    byId("detail-use").addEventListener("click", () => onUse(this.#name));
  }

  /** Opens the panel on a topic. An unknown topic is looked up, and the sidecar follows it from then on. */
  async open(name) {
    this.#opener = document.activeElement;
    this.#name = name;
    setLink("topic", name);
    this.#pager.reset();
    const asked = this.askAgain();
    this.#title.focus();
    await asked;
  }

  /**
   * Looks up the open topic, if the model does not have it: at first, once there is a token, and when it is
   * gone, because it was deleted or another sidecar process follows other topics.
   */
  async askAgain() {
    const name = this.#name;
    this.#trouble = "";
    this.#isKnown = false;
    this.render();
    if (name === null || this.#model.topics.has(name)) return;
    try {
      await this.#api.ask(`/v1/topics/${encodeURIComponent(name)}`);
    } catch (error) {
      if (this.#name !== name) return;
      this.#trouble = error.message;
      this.render();
    }
  }

  render() {
    show(this.#panel, this.#name !== null);
    if (this.#name === null) return;
    const topic = this.#model.topics.get(this.#name);
    if (topic === undefined && this.#isKnown) {
      this.askAgain();
      return;
    }
    this.#isKnown = topic !== undefined;
    const partitions = topic?.partitions ?? [];
    setText(this.#title, `Partitions of ${this.#name}`);
    setText(byId("detail-caption"), `Partitions of ${this.#name}: leaders, epochs and replicas`);
    setText(this.#said, this.#saying(topic));
    show(this.#table, partitions.length > 0);
    keyed(this.#rows, this.#pager.cut(partitions), (p) => p.partition, makePartition, (tr, partition) =>
      update(tr, partition, this.#model),
    );
  }

  #saying(topic) {
    if (topic === undefined) return this.#trouble || "Asking the brokers …";
    const { count: all, leaderless, under } = topic.summary;
    const words = [counted(all, "partition")];
    if (leaderless > 0) words.push(`${count(leaderless)} without a leader`);
    if (under > 0) words.push(`${count(under)} under-replicated`);
    return `${listed(words)}.`;
  }

  #close() {
    this.#name = null;
    clearLink("topic");
    this.render();
    if (this.#opener?.isConnected) this.#opener.focus();
    else byId("topics").focus();
  }
}

function makePartition() {
  const tr = makeRow(LABELS, [2]);
  tr.cells[1].append(make("span", "name"), make("span", "under"));
  tr.cells[3].append(make("span"), make("span", "under"));
  tr.cells[4].append(make("span", "tag"));
  return tr;
}

function update(tr, partition, model) {
  const [number, leader, epoch, replicas, state] = tr.cells;
  const { leader: id, leader_epoch: leaderEpoch, isr } = partition;
  setText(number, `${partition.partition}`);
  setText(leader.firstChild, id === null ? "none" : `${id}`);
  setText(leader.lastChild, id === null ? "" : (model.addressOf(id) ?? "address unknown"));
  setText(epoch, leaderEpoch === null ? "–" : `${leaderEpoch}`);
  setText(replicas.firstChild, isr.join(", ") || "none");
  const missing = partition.replicas.filter((replica) => !isr.includes(replica));
  setText(replicas.lastChild, missing.length > 0 ? `missing: ${missing.join(", ")}` : "");
  setTag(state.firstChild, ...stateOf(partition));
}

function stateOf(partition) {
  if (partition.leader === null) return ["bad", partition.error ?? "no leader"];
  if (isUnderReplicated(partition)) return ["warn", partition.error ?? "under-replicated"];
  return partition.error === null ? ["good", "in order"] : ["warn", partition.error];
}
