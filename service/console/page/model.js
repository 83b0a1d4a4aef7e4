// The page's data: the cluster from the watch, the sidecar's status, and the recent changes.

import { Topic } from "./topic.js";

const MAX_CHANGES = 200;

/** Changed only by `apply`. `topicsRevision` grows with each change that a list of topics would show. */
export class Model {
  clusterId = null;
  hasSnapshot = false;
  brokers = new Map();
  topics = new Map();
  topicsRevision = 0;
  status = null;
  /** When the status was received, by the browser's clock: its ages count from there. */
  statusAtMs = null;
  /** The newest first: {key, at, tone, subject, text}. */
  changes = [];
  /** Why the sidecar ended the stream, if it gave a reason: {reason, detail}. */
  farewell = null;
  #totals = totalsOf([]);
  #totalsRevision = 0;
  #notes = 0;

  /** Applies one event of /v1/watch (docs/watch.md), received at this time by the browser's clock. */
  apply(event, data, nowMs) {
    TAKERS[event]?.(this, data, nowMs);
  }

  /** Sums over all topics: {partitions, leaderless, under, ledBy: broker id → how many}. */
  get totals() {
    if (this.#totalsRevision !== this.topicsRevision) {
      this.#totals = totalsOf(this.topics.values());
      this.#totalsRevision = this.topicsRevision;
    }
    return this.#totals;
  }

  /** Returns a broker's address; null if it is unknown. */
  addressOf(id) {
    const broker = this.brokers.get(id);
    return broker === undefined ? null : `${broker.host}:${broker.port}`;
  }

  /** Adds a change, unless there is one with the same key. */
  note(change) {
    if (change.key !== undefined && this.changes.some((known) => known.key === change.key)) return;
    this.#notes += 1;
    const noted = { key: `note-${this.#notes}`, ...change, at: new Date(change.at) };
    const place = this.changes.findIndex((known) => known.at <= noted.at);
    this.changes.splice(place < 0 ? this.changes.length : place, 0, noted);
    this.changes.length = Math.min(this.changes.length, MAX_CHANGES);
  }

  takeSnapshot(data) {
    this.clusterId = data.cluster_id;
    this.hasSnapshot = true;
    this.farewell = null;
    this.brokers = new Map(data.brokers.map((broker) => [broker.id, broker]));
    this.topics = new Map(data.topics.map((topic) => [topic.name, Topic.of(topic)]));
    this.topicsRevision += 1;
  }

  takeStatus(status, nowMs) {
    this.status = status;
    this.statusAtMs = nowMs;
    for (const change of status.leader_changes ?? []) {
      this.note(leaderChange(change.at, change, change.old_leader, change.new_leader));
    }
  }

  takePartitions(data) {
    const topic = this.topics.get(data.topic);
    if (topic === undefined) return;
    for (const partition of data.partitions) {
      const isNew = !topic.has(partition.partition);
      topic.put(partition);
      const { previous_leader: before, leader: now } = partition;
      if (!isNew && before !== undefined && before !== now) {
        this.note(leaderChange(data.at, { topic: data.topic, ...partition }, before, now));
      }
    }
    this.topicsRevision += 1;
  }

  takeTopic(data) {
    const { topic, change } = data;
    if (change === "gone" || change === "forgotten") this.topics.delete(topic);
    else if (change !== "grew") this.topics.set(topic, new Topic(topic, data.internal));
    const tone = change === "gone" ? "bad" : "idle";
    this.note({ at: data.at, tone, subject: topic, text: topicChange(data) });
    this.topicsRevision += 1;
  }

  takeBroker(data) {
    const { broker, change } = data;
    const hasLeft = change === "left";
    if (hasLeft) this.brokers.delete(broker.id);
    else this.brokers.set(broker.id, broker);
    const text = hasLeft ? "left the cluster" : `${change}, at ${broker.host}:${broker.port}`;
    this.note({ at: data.at, tone: hasLeft ? "bad" : "good", subject: `Broker ${broker.id}`, text });
  }

  takeReset(data, nowMs) {
    const text = RESETS[data.reason];
    // The first broker's first answer turns an empty cluster into one: not a change to show.
    if (text === undefined || this.clusterId === null) return;
    this.note({ at: nowMs, tone: "idle", subject: "Sidecar", text });
  }
}

const TAKERS = {
  snapshot: (model, data) => model.takeSnapshot(data),
  status: (model, data, nowMs) => model.takeStatus(data, nowMs),
  leader: (model, data) => model.takePartitions(data),
  replicas: (model, data) => model.takePartitions(data),
  topic: (model, data) => model.takeTopic(data),
  broker: (model, data) => model.takeBroker(data),
  reset: (model, data, nowMs) => model.takeReset(data, nowMs),
  end: (model, data) => {
    model.farewell = data;
  },
};

const RESETS = {
  other_process: "was started anew; what it was before is not known",
  gap: "did not keep all changes for us",
  cluster_changed: "follows another cluster now",
};

/** Both the watch and the status report it, so its key is the same in both. */
function leaderChange(at, { topic, partition, leader_epoch: epoch }, before, now) {
  const name = (id) => (id === null ? "no leader" : `broker ${id}`);
  return {
    key: `${topic}/${partition}/${epoch}/${now}`,
    at,
    tone: now === null ? "bad" : "good",
    subject: `${topic}, partition ${partition}`,
    text: before === now ? `${name(now)} leads again, epoch ${epoch}` : `${name(before)} → ${name(now)}`,
  };
}

function topicChange({ change, partition_count: now, previous_partition_count: before }) {
  if (change === "appeared") return `now followed, ${now === 1 ? "1 partition" : `${now} partitions`}`;
  if (change === "grew") return `grew from ${before} to ${now} partitions`;
  if (change === "recreated") return "was deleted and made again";
  if (change === "forgotten") return "no longer followed: not in use";
  return "gone: the brokers do not know it any more";
}

function totalsOf(topics) {
  const totals = { partitions: 0, leaderless: 0, under: 0, ledBy: new Map() };
  for (const topic of topics) {
    const { count, leaderless, under, ledBy } = topic.summary;
    totals.partitions += count;
    totals.leaderless += leaderless;
    totals.under += under;
    for (const [id, led] of ledBy) totals.ledBy.set(id, (totals.ledBy.get(id) ?? 0) + led);
  }
  return totals;
}
