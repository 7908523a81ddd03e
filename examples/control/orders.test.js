// A test in JavaScript that scripts its Kafka: node --test orders.test.js, with kafkajs installed and fletchlog on PATH.
const assert = require("node:assert");
const { spawn } = require("node:child_process");
const { createInterface } = require("node:readline");
const { after, before, test } = require("node:test");
const { Kafka, logLevel } = require("kafkajs");

let server, bootstrap, control;

// One request to the control interface.
async function call(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(`${control}/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
  const answer = await response.json();
  assert.ok(response.ok, answer.message);
  return answer;
}

before(async () => {
  const words = ["serve", "--memory", "--auto-create", "1", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0", "--print-address", "--with-parent"];
  server = spawn("fletchlog", words, { stdio: ["pipe", "pipe", "ignore"] });
  for await (const line of createInterface({ input: server.stdout })) {
    ({ bootstrap, control } = JSON.parse(line));
    break;
  }
});

after(() => server.kill());

test("an order is written once when an acknowledgement is lost", async () => {
  await call("POST", "/faults", { rules: [{ api: "Produce", topic: "orders", nth: 1, lose_response: true }] });

  const kafka = new Kafka({ clientId: "shop", brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 10 } });
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  await producer.send({ topic: "orders", messages: [{ value: "order 1" }] });
  await producer.disconnect();

  const admin = kafka.admin();
  await admin.connect();
  const [{ high }] = await admin.fetchTopicOffsets("orders");
  await admin.disconnect();
  assert.equal(high, "1");
  const { requests } = await call("GET", "/requests?api=Produce&client_id=shop");
  assert.deepEqual(requests.map((request) => request.outcome), ["response lost", "answered"]);
  const { rules } = await call("GET", "/faults");
  assert.deepEqual(rules.map((rule) => rule.applied), [1]);
});
