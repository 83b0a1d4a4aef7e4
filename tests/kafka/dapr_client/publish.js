// What a service does with Dapr's own SDK, over HTTP, at the sidecar on the given port.
// Arguments: PORT TOPIC MISSING_TOPIC. Prints one JSON object with what the SDK answered.
"use strict";

const { CommunicationProtocolEnum, DaprClient, LogLevel } = require("@dapr/dapr");

async function main([port, topic, missing]) {
  const client = new DaprClient({
    daprHost: "127.0.0.1",
    daprPort: port,
    communicationProtocol: CommunicationProtocolEnum.HTTP,
    daprApiToken: process.env.DAPR_API_TOKEN,
    logger: { level: LogLevel.Error },
  });
  const said = {};
  await client.start(); // polls /v1.0/metadata
  said.healthy = await client.health.isHealthy();
  await client.metadata.set("language", "JavaScript ❤");
  said.metadata = await client.metadata.get();

  const keyed = (key) => ({ metadata: { partitionKey: key } });
  said.published = [
    await client.pubsub.publish("pubsub", topic, { orderId: "100", total: 12.5 }, keyed("object")),
    await client.pubsub.publish("pubsub", topic, "grüße, 🌍", keyed("string")),
    await client.pubsub.publish("pubsub", topic, Buffer.from([0, 255, 128]), keyed("bytes")),
    await client.pubsub.publish(
      "pubsub",
      topic,
      { specversion: "1.0", type: "com.example.own", source: "/own", id: "own-1", data: { n: 1 } },
      keyed("event"),
    ),
    await client.pubsub.publish("pubsub", topic, { raw: true }, {
      metadata: { partitionKey: "raw", rawPayload: "true", correlationId: "c-1" },
    }),
  ];
  said.bulk = await client.pubsub.publishBulk("pubsub", topic, [
    "a string",
    { an: "object" },
    { entryID: "e-3", event: "with metadata", contentType: "text/plain", metadata: { partitionKey: "bulk" } },
  ]);
  const partly = await client.pubsub.publishBulk("pubsub", topic, [
    { entryID: "good", event: "good", contentType: "text/plain" },
    { entryID: "bad", event: "bad", contentType: "text/plain", metadata: { partitionNumber: "999" } },
  ]);
  said.failed = partly.failedMessages.map(({ message, error }) => [message.entryID, String(error)]);
  const refused = await client.pubsub.publish("pubsub", missing, "x");
  said.refused = refused.error === undefined ? null : refused.error.message;
  await client.stop();
  return said;
}

main(process.argv.slice(2)).then(
  (said) => console.log(JSON.stringify(said)),
  (error) => {
    console.error(error);
    process.exitCode = 1;
  },
);
