// ioredis as applications use it: node ioredis.js PORT_HERE PORT_THERE. What each step gave is JSON on the last line.
const Redis = require("ioredis");
const [here, there] = process.argv.slice(2).map((port) => new Redis(Number(port), "127.0.0.1"));
const told = {};

async function arrived(check) {
  for (let tries = 0; tries < 3000; tries++) {
    if (await check()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`did not arrive: ${check}`);
}

async function main() {
  told.pipeline = await here.pipeline().set("io:text", "a").hset("io:hash", "f", "1").sadd("io:set", "x", "y").exec();
  told.multi = await here.multi().incr("io:n").incrby("io:n", 4).get("io:n").exec();
  told.refused = await here.lpush("io:list", "x").catch((error) => error.message);
  await arrived(async () => (await there.get("io:n")) === "5");
  told.there = [await there.get("io:text"), await there.hgetall("io:hash"), (await there.smembers("io:set")).sort()];
  await here.watch("io:n");
  await there.incr("io:n");
  await arrived(async () => (await here.get("io:n")) === "6");
  told.watched = await here.multi().set("io:n", "0").exec();
  const keys = [];
  for await (const some of here.scanStream({ match: "io:*" })) keys.push(...some);
  told.keys = [...new Set(keys)].sort();
  const subscriber = here.duplicate();
  await subscriber.subscribe("io:news");
  const message = new Promise((resolve) => subscriber.on("message", (channel, text) => resolve([channel, text])));
  await here.publish("io:news", "hello");
  told.message = await message;
  told.nx = [await here.set("io:lock", "1", "NX"), await here.set("io:lock", "2", "NX")];
  subscriber.disconnect();
}

main()
  .then(() => console.log(JSON.stringify(told)))
  .catch((error) => {
    console.error(error);
    process.exitCode = 1;
  })
  .finally(() => [here, there].forEach((client) => client.disconnect()));
