// node-redis as applications use it: node node_redis.js PORT_HERE PORT_THERE. What each step gave is JSON on the last line.
const { createClient, WatchError } = require("redis");
const [here, there] = process.argv.slice(2).map((port) => createClient({ socket: { host: "127.0.0.1", port: Number(port) } }));
const told = {};

async function arrived(check) {
  for (let tries = 0; tries < 3000; tries++) {
    if (await check()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`did not arrive: ${check}`);
}

async function main() {
  await Promise.all([here.connect(), there.connect()]);
  told.pipeline = await Promise.all([here.set("nr:text", "a"), here.hSet("nr:hash", { f: "1", g: "2" }), here.sAdd("nr:set", ["x", "y"])]);
  told.multi = await here.multi().incr("nr:n").incrBy("nr:n", 4).get("nr:n").exec();
  told.refused = await here.lPush("nr:list", "x").catch((error) => error.message);
  await arrived(async () => (await there.get("nr:n")) === "5");
  told.there = [await there.get("nr:text"), { ...(await there.hGetAll("nr:hash")) }, (await there.sMembers("nr:set")).sort()];
  await here.watch("nr:n");
  await there.incr("nr:n");
  await arrived(async () => (await here.get("nr:n")) === "6");
  told.watched = await here.multi().set("nr:n", "0").exec().catch((error) => error instanceof WatchError);
  const subscriber = here.duplicate();
  await subscriber.connect();
  let heard;
  const message = new Promise((resolve) => (heard = resolve));
  await subscriber.subscribe("nr:news", (text, channel) => heard([channel, text]));
  await here.publish("nr:news", "hello");
  told.message = await message;
  subscriber.destroy();
}

main()
  .then(() => console.log(JSON.stringify(told)))
  .catch((error) => {
    console.error(error);
    process.exitCode = 1;
  })
  .finally(() => [here, there].forEach((client) => client.isOpen && client.destroy()));
