// The Node program of internal/bench/rivals, whose doc.go has the protocol: rate-limiter-flexible and the algorithms of
// @upstash/ratelimit, both over ioredis, and Sash over RESP.
const { createHash } = require('node:crypto');
const { readFileSync } = require('node:fs');
const readline = require('node:readline');
const Redis = require('ioredis');
const { RateLimiterRedis } = require('rate-limiter-flexible');
const { Ratelimit } = require('@upstash/ratelimit');

const connect = (address, options) => {
  const colon = address.lastIndexOf(':');
  return new Redis(Number(address.slice(colon + 1)), address.slice(0, colon), options);
};
const version = (name) => JSON.parse(readFileSync(`${__dirname}/node_modules/${name}/package.json`)).version;

// What @upstash/ratelimit calls of its client, which speaks HTTP to Upstash's service. The first line of its scripts names a
// flag that only Upstash has, so they run without it, by another hash.
const hashes = new Map();
const sha1 = (text) => createHash('sha1').update(text).digest('hex');
const over = (redis) => ({
  evalsha(hash, keys, args) {
    if (!hashes.has(hash)) throw new Error('NOSCRIPT');
    return redis.evalsha(hashes.get(hash), keys.length, ...keys, ...args);
  },
  eval(script, keys, args) {
    const plain = script.replace(/^#!lua.*\n/, '');
    hashes.set(sha1(script), sha1(plain));
    return redis.eval(plain, keys.length, ...keys, ...args);
  },
});

function upstash(redis, limiter) {
  return (units, windowMS) => {
    const limit = new Ratelimit({ redis: over(redis), limiter: limiter(units, `${windowMS} ms`) });
    return async (key) => (await limit.limit(key)).success;
  };
}

const flexible = (redis) => (units, windowMS) => {
  const limiter = new RateLimiterRedis({ storeClient: redis, points: units, duration: windowMS / 1000 });
  return (key) => limiter.consume(key).then(() => true, (refused) => {
    if (refused instanceof Error) throw refused;
    return false;
  });
};

const overRESP = (sash) => (units, windowMS) => {
  const limit = `${units}/${windowMS}ms`;
  return async (key) => (await sash.call('SASH.ALLOW', key, 'LIMIT', limit))[1] === 1; // after the name "allowed"
};

// Without automatic pipelining one caller is faster, and with it many are.
const connections = [];
const CONTENDERS = {};
for (const [suffix, options] of [['', {}], [', automatic pipelining', { enableAutoPipelining: true }]]) {
  const [redis, sash] = process.argv.slice(2, 4).map((address) => connect(address, options));
  connections.push(redis, sash);
  Object.assign(CONTENDERS, {
    [`rate-limiter-flexible, fixed window${suffix}`]: ['rate-limiter-flexible', flexible(redis)],
    [`upstash, sliding window${suffix}`]: ['@upstash/ratelimit', upstash(redis, Ratelimit.slidingWindow)],
    [`upstash, fixed window${suffix}`]: ['@upstash/ratelimit', upstash(redis, Ratelimit.fixedWindow)],
    [`upstash, token bucket${suffix}`]:
      ['@upstash/ratelimit', upstash(redis, (units, window) => Ratelimit.tokenBucket(units, window, units))],
    [`Sash over RESP, ioredis${suffix}`]: ['ioredis', overRESP(sash)],
  });
}

// Decides for a time: so many callers, each of which awaits its answer before it calls again.
async function load(decide, request) {
  const names = Array.from({ length: request.keys }, (_, i) => `${request.prefix}:${i}`);
  const times = [];
  let admitted = 0;
  let errors = 0;
  const began = performance.now();
  const end = began + request.for_ms;
  const caller = async () => {
    for (let now = began; now < end; ) {
      try {
        if (await decide(names[Math.floor(Math.random() * names.length)])) admitted++;
      } catch {
        errors++;
      }
      const after = performance.now();
      times.push(after - now);
      now = after;
    }
  };
  await Promise.all(Array.from({ length: request.callers }, caller));
  const took = performance.now() - began;
  times.sort((a, b) => a - b);
  const at = (percent) => times[Math.floor((times.length * percent) / 100)] * 1000;
  return { decisions: times.length - errors, admitted, errors, ms: took, p50_us: at(50), p99_us: at(99) };
}

const open = new Map(); // by contender and limit
async function answer(request) {
  const { op, contender, units, window_ms: windowMS } = request;
  const id = `${contender} ${units} ${windowMS}`;
  if (!open.has(id)) open.set(id, CONTENDERS[contender][1](units, windowMS));
  if (op === 'ask') return { allowed: await open.get(id)(request.key) };
  if (op === 'load') return load(open.get(id), request);
  throw new Error(`there is no operation ${op}`);
}

const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

(async () => {
  const contenders = Object.entries(CONTENDERS).map(([name, [library]]) => ({ name, version: version(library) }));
  say({ runtime: `Node ${process.versions.node}`, contenders });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    say(await Promise.resolve(JSON.parse(line)).then(answer).catch((e) => ({ error: String(e) })));
  }
  for (const connection of connections) connection.disconnect();
})();
