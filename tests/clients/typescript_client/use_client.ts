// Typed calls with openapi-fetch: produce, look up, watch. Arguments: the sidecar's URL, a token.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const [baseUrl, token] = process.argv.slice(2);
assert(baseUrl !== undefined && token !== undefined);
const client = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${token}` } });
const path = { topic: "orders" };

const produced = await client.POST("/v1/topics/{topic}/records", {
  params: { path },
  body: { records: [{ key: "customer-7", value: { total: 12.5 } }] },
});
assert.equal(produced.response.status, 200);
const record = produced.data?.results[0];
assert(record?.partition !== undefined && record.error === undefined);

const bytes = await client.POST("/v1/topics/{topic}/records/bytes", {
  params: { path, query: { key: "customer-7" } },
  body: "any bytes",
  bodySerializer: (body) => body,
  headers: { "content-type": "application/octet-stream" },
});
assert.equal(bytes.data?.results[0]?.partition, record.partition);

const stream = await client.POST("/v1/topics/{topic}/records/stream", {
  params: { path },
  body: '{"value":1}\n{"value":2}\n',
  bodySerializer: (body) => body,
  headers: { "content-type": "application/octet-stream" },
  parseAs: "text",
});
assert.match(stream.data ?? "", /"acknowledged":2/);

const leader = await client.GET("/v1/topics/{topic}/leader", {
  params: { path, query: { partition: record.partition } },
});
assert.equal(leader.data?.leader?.host, "127.0.0.1");
const etag = leader.response.headers.get("etag");
assert(etag !== null);
const held = await client.GET("/v1/topics/{topic}/leader", {
  params: { path, query: { partition: record.partition }, header: { "If-None-Match": etag } },
});
assert.equal(held.response.status, 304);

const missing = await client.GET("/v1/topics/{topic}", { params: { path: { topic: "missing" } } });
const problem: components["schemas"]["ProblemAnswer"] | undefined = missing.error;
assert.equal(problem?.kafka_error, "UNKNOWN_TOPIC_OR_PARTITION");

const snapshot = await client.GET("/v1/watch/snapshot", {});
assert(snapshot.data !== undefined);
assert(snapshot.data.topics.some((topic) => topic.name === "orders"));
const changes = await client.GET("/v1/watch/changes", {
  params: { query: { last_event_id: snapshot.data.version, max_block_ms: 0 } },
});
assert.deepEqual(changes.data?.changes, []);

const events = await client.GET("/v1/watch", { parseAs: "stream" });
assert(events.data);
const reader = (events.data as ReadableStream<Uint8Array>).getReader();
const first = await reader.read();
assert.match(new TextDecoder().decode(first.value), /event: snapshot|retry: /);
await reader.cancel();
