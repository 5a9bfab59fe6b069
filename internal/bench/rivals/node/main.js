// rate-limiter-flexible, as its manual has it fast: over ioredis with automatic pipelining. See internal/bench/languages.go.
const { readFileSync } = require('node:fs');
const readline = require('node:readline');
const Redis = require('ioredis');
const { RateLimiterRedis } = require('rate-limiter-flexible');

const [host, port] = process.argv[2].split(':');
const redis = new Redis(Number(port), host, { enableAutoPipelining: true });
const { version } = JSON.parse(readFileSync(`${__dirname}/node_modules/rate-limiter-flexible/package.json`));

// Decides for a time: so many callers, each of which awaits its answer before it calls again.
async function load(request) {
  const limiter = new RateLimiterRedis({ storeClient: redis, points: request.units, duration: request.window_ms / 1000 });
  const names = Array.from({ length: request.keys }, (_, i) => `bench:${i}`);
  const times = [];
  let admitted = 0;
  const began = performance.now();
  const end = began + request.for_ms;
  const caller = async () => {
    for (let now = began; now < end; ) {
      await limiter.consume(names[Math.floor(Math.random() * names.length)]).then(
        () => { admitted++; },
        (refused) => { if (refused instanceof Error) throw refused; },
      );
      const after = performance.now();
      times.push(after - now);
      now = after;
    }
  };
  await Promise.all(Array.from({ length: request.callers }, caller));
  const ms = performance.now() - began;
  times.sort((a, b) => a - b);
  const at = (percent) => times[Math.floor((times.length * percent) / 100)] * 1000;
  return { decisions: times.length, admitted, ms, p50_us: at(50), p99_us: at(99) };
}

const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
(async () => {
  say({ version: `rate-limiter-flexible ${version}, Node ${process.versions.node}` });
  for await (const line of readline.createInterface({ input: process.stdin })) say(await load(JSON.parse(line)));
  redis.disconnect();
})();
