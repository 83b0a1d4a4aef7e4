// The two forms: look up a leader, and send a test record.

import { RefusedError } from "./api.js";
import { linkTo } from "./deep_links.js";
import { byId, keyed, make, setText } from "./dom.js";
import { clock, counted } from "./format.js";
import { faultOf, jsonOf } from "./json_text.js";
import { answer, answerError } from "./result.js";

/** A person waits for the answer, so this is shorter than a program's timeout. */
const SEND_TIMEOUT_MS = 15_000;
const OFFERED_TOPICS = 50;

/** Wires a form: `ask` gets the element for the answer; the form is disabled until it is done. */
function onSubmit(form, place, ask) {
  let isAsking = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (isAsking) return;
    isAsking = true;
    answer(place, "idle", "Asking …");
    try {
      await ask(place);
    } catch (error) {
      answerError(place, error);
    } finally {
      isAsking = false;
    }
  });
}

/** Suggests a few topic names that begin with the typed text. */
function offerTopics(model, input) {
  const offered = byId("topic-names");
  const offer = () => {
    const names = [...model.topics.keys()].filter((name) => name.includes(input.value)).sort();
    keyed(offered, names.slice(0, OFFERED_TOPICS), (name) => name, makeOption, () => {});
  };
  input.addEventListener("input", offer);
  input.addEventListener("focus", offer);
}

function makeOption(name) {
  const option = make("option");
  option.value = name;
  return option;
}

export function wireLookup(api, model) {
  const [topic, by, value] = ["lookup-topic", "lookup-by", "lookup-value"].map(byId);
  offerTopics(model, topic);
  const isByPartition = () => by.value === "partition";
  by.addEventListener("change", () => setText(byId("lookup-label"), isByPartition() ? "Partition" : "Key"));
  onSubmit(byId("lookup-form"), byId("lookup-result"), async (place) => {
    const fault = isByPartition() ? partitionFault(value.value) : faultOf(value.value, by.value);
    if (fault !== null) return answer(place, "bad", fault);
    const wanted = isByPartition() ? `"partition":${Number(value.value)}` : keyMember(value.value, by.value);
    // In the body, so that the key is in no access log.
    const json = `{"lookups":[{"topic":${JSON.stringify(topic.value)},${wanted}}]}`;
    const { results } = await api.read("/v1/leaders", { method: "POST", json });
    const [{ error }] = results;
    if (error) throw new RefusedError(200, { detail: error.message, ...error });
    answerLeader(place, results[0]);
  });
}

function keyMember(typed, format) {
  return `"key":${jsonOf(typed, format)},"key_format":"${format}"`;
}

function partitionFault(typed) {
  return /^[0-9]{1,9}$/.test(typed.trim()) ? null : "A partition is a whole number from 0 on.";
}

function answerLeader(place, { topic, partition, leader, leader_epoch: epoch }) {
  const where = `${topic}, partition ${partition}`;
  if (leader === null) {
    answer(place, "bad", `${where}: no leader`, ["The brokers have elected none yet."]);
    return;
  }
  const rack = leader.rack === null ? "" : `, rack ${leader.rack}`;
  const address = `${leader.host}:${leader.port}${rack}; leader epoch ${epoch}`;
  answer(place, "good", `${where}: broker ${leader.id}`, [address]);
}

export function wireSend(api, model) {
  const [topic, partition, key, keyFormat, value, valueFormat] = [
    "send-topic",
    "send-partition",
    "send-key",
    "send-key-format",
    "send-value",
    "send-value-format",
  ].map(byId);
  offerTopics(model, topic);
  onSubmit(byId("send-form"), byId("send-result"), async (place) => {
    const hasKey = key.value !== "";
    const hasPartition = partition.value.trim() !== "";
    const fault =
      (hasPartition ? partitionFault(partition.value) : null) ??
      (hasKey ? labelled("Key", faultOf(key.value, keyFormat.value)) : null) ??
      labelled("Value", faultOf(value.value, valueFormat.value));
    if (fault !== null) return answer(place, "bad", fault, ["Nothing was sent."]);
    const members = [`"value":${jsonOf(value.value, valueFormat.value)}`];
    if (hasKey) members.push(`"key":${jsonOf(key.value, keyFormat.value)}`);
    if (hasPartition) members.push(`"partition":${Number(partition.value)}`);
    const formats = `"key_format":"${keyFormat.value}","value_format":"${valueFormat.value}"`;
    const path = `/v1/topics/${encodeURIComponent(topic.value)}/records`;
    const json = `{${formats},"records":[{${members.join(",")}}]}`;
    const startedMs = performance.now();
    const { results } = await produce(api, path, json);
    const tookMs = performance.now() - startedMs;
    answerReceipt(place, model, topic.value, results[0], tookMs);
    const { partition: number, offset } = results[0];
    const remarks = await standingOf(api, topic.value, number, offset);
    answerReceipt(place, model, topic.value, results[0], tookMs, remarks);
  });
}

/** Produces with a short timeout. A sidecar with a shorter limit rejects ours before it writes anything. */
async function produce(api, path, json) {
  try {
    const query = `timeout_ms=${SEND_TIMEOUT_MS}&max_block_ms=${SEND_TIMEOUT_MS}`;
    return await api.read(`${path}?${query}`, { method: "POST", json });
  } catch (error) {
    if (error.problem?.place !== "query.timeout_ms") throw error;
    return api.read(path, { method: "POST", json });
  }
}

function labelled(label, fault) {
  return fault === null ? null : `${label}: ${fault}`;
}

/** Says where the record went: topic, partition, offset and leader, with a link to the topic's partitions. */
function answerReceipt(place, model, topic, { partition, offset, timestamp }, tookMs, more = []) {
  const where = `partition ${partition}, ${offset === null ? "offset unknown" : `offset ${offset}`}`;
  const how = `In ${Math.round(tookMs)} ms, with the timestamp ${clock(timestamp)}.`;
  const leader = model.topics.get(topic)?.partitions.find((known) => known.partition === partition)?.leader;
  const link = make("a", "", `Show ${topic}`);
  link.href = linkTo("topic", topic);
  const remarks = [how, ...more];
  if (leader !== undefined && leader !== null) {
    remarks.unshift(`Its leader is broker ${leader}, ${model.addressOf(leader) ?? "address unknown"}.`);
  }
  answer(place, "good", `Written: ${where}`, [...remarks, link]);
}

/** Says how many records came after it, as its leader knows; nothing if the leader does not answer soon. */
async function standingOf(api, topic, partition, offset) {
  try {
    const path = `/v1/topics/${encodeURIComponent(topic)}/partitions/${partition}/offsets?max_block_ms=2000`;
    const { beginning_offset: first, end_offset: end } = await api.read(path);
    const later = offset === null ? "" : ` ${counted(Math.max(0, end - offset - 1), "record")} came after it.`;
    return [`The partition keeps the offsets ${first} to ${end - 1}.${later}`];
  } catch {
    return [];
  }
}

/** Fills a topic into both forms. */
export function useTopic(name) {
  byId("lookup-topic").value = name;
  byId("send-topic").value = name;
  byId("lookup-value").focus();
}
