// One topic with its partitions, and its summary.

/** Its partitions by number. The summary is computed on demand, after a change. */
export class Topic {
  #partitions = new Map();
  #sorted = null;
  #summary = null;

  constructor(name, internal) {
    this.name = name;
    this.internal = internal;
  }

  /** Creates a topic from a snapshot. */
  static of({ name, internal, partitions }) {
    const topic = new Topic(name, internal);
    for (const partition of partitions) topic.put(partition);
    return topic;
  }

  has(number) {
    return this.#partitions.has(number);
  }

  /** Replaces a partition. */
  put(partition) {
    this.#partitions.set(partition.partition, partition);
    this.#sorted = this.#summary = null;
  }

  /** The partitions in order. */
  get partitions() {
    this.#sorted ??= [...this.#partitions.values()].sort((a, b) => a.partition - b.partition);
    return this.#sorted;
  }

  /** {count, leaderless, under, ledBy: broker id → how many}. */
  get summary() {
    this.#summary ??= summaryOf(this.#partitions.values());
    return this.#summary;
  }
}

/** Whether a replica is not in sync. */
export function isUnderReplicated(partition) {
  return partition.isr.length < partition.replicas.length;
}

function summaryOf(partitions) {
  const summary = { count: 0, leaderless: 0, under: 0, ledBy: new Map() };
  for (const partition of partitions) {
    summary.count += 1;
    if (partition.leader === null) summary.leaderless += 1;
    else summary.ledBy.set(partition.leader, (summary.ledBy.get(partition.leader) ?? 0) + 1);
    if (isUnderReplicated(partition)) summary.under += 1;
  }
  return summary;
}
