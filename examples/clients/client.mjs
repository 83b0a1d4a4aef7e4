// Which broker leads this key's partition, and a record for it: with JavaScript's fetch. Run by `node client.mjs`.
const api = `${process.env.SIDECAR_URL ?? "http://127.0.0.1:8085"}/v1/topics/demo`;
console.log(await (await fetch(`${api}/leader?key=customer-7`)).text());
const records = JSON.stringify({ records: [{ key: "customer-7", value: { total: 12.5 } }] });
const answer = await fetch(`${api}/records`, {
  method: "POST", headers: { "Content-Type": "application/json" }, body: records,
});
console.log(await answer.text());
process.exitCode = answer.ok ? 0 : 1;
