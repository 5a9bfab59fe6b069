// Makes a history of a limiter for sash verify: drive.mjs LIMITER ADDRESS <load >history.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { createRequire } from 'node:module';

const require = createRequire(`${process.cwd()}/`); // the packages are where this is run
const limiters = {
  'rate-limiter-flexible': (address) => {
    const { RateLimiterRedis } = require('rate-limiter-flexible');
    const Redis = require('ioredis');
    const limiter = new RateLimiterRedis({ storeClient: new Redis(`redis://${address}`), points: 20, duration: 2 });
    return (key) => limiter.consume(key).then(() => true, (refused) => { if (refused instanceof Error) throw refused; return false; });
  },
  'express-rate-limit': () => {
    const { rateLimit } = require('express-rate-limit');
    const limit = rateLimit({ limit: 20, windowMs: 2000, keyGenerator: (req) => req.key, validate: false });
    return (key) => new Promise((resolve, reject) => {
      const res = { setHeader() {}, status() { return res; }, send() { resolve(false); }, on() {} };
      limit({ key, app: { get() {} }, headers: {} }, res, (error) => (error ? reject(error) : resolve(true)));
    });
  },
};
const allow = limiters[process.argv[2]](process.argv[3]);
const now = () => Date.now() / 1000; // performance.now() of several processes is not one clock

await allow('warm-up');
for (const line of readFileSync(0, 'utf8').trim().split('\n')) {
  const [at, key] = line.split(' ');
  const left = 1000 * (at - now());
  if (left > 0) await sleep(left);
  const call = { key, sent: now() };
  try {
    call.admitted = await allow(key);
  } catch (error) { // no answer
    console.error(String(error));
  }
  call.received = now() + 0.001; // not rounded down
  console.log(JSON.stringify(call));
}
process.exit();
