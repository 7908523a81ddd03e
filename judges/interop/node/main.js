// Reads and writes a cluster with kafkajs: node main.js kafkajs BOOTSTRAP. Prints what it saw as JSON.
const { Kafka, logLevel } = require("kafkajs");

const RECORDS = 300;
const kafka = new Kafka({ clientId: "interop", brokers: [process.argv[3]], logLevel: logLevel.ERROR });

async function group(topic, count) {
  const consumer = kafka.consumer({ groupId: `kafkajs-${topic}` });
  const read = {};
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await new Promise((done) => {
    let n = 0;
    consumer.run({
      eachMessage: async ({ partition, message }) => {
        (read[partition] ??= []).push(message.value.toString());
        if (++n === count) done();
      },
    });
  });
  await consumer.disconnect();
  return read;
}

async function main() {
  const producer = kafka.producer();
  await producer.connect();
  const reports = [];
  for (let i = 0; i < RECORDS; i++) {
    const [sent] = await producer.send({ topic: "orders", messages: [{ key: `${i}`, value: `${i}` }] });
    reports.push([sent.partition, Number(sent.baseOffset)]);
  }
  await producer.disconnect();
  const read = await group("orders", RECORDS);
  const writer = kafka.producer({ transactionalId: "kafkajs", idempotent: true, maxInFlightRequests: 1 });
  await writer.connect();
  for (const commit of [false, true]) {
    const transaction = await writer.transaction();
    await transaction.send({ topic: "paid", messages: [{ value: `${commit}` }] });
    await (commit ? transaction.commit() : transaction.abort());
  }
  await writer.disconnect();
  const committed = Object.values(await group("paid", 1)).flat();
  console.log(JSON.stringify({ reports, read, committed }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
