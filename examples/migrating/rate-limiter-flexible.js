// See docs/migrating/rate-limiter-flexible.md. It prints how seven requests of one visitor are answered.
const Redis = require('ioredis');
const redis = new Redis({ port: Number(process.env.SASH_PORT || 6380), maxRetriesPerRequest: 1 });

async function consume(key, points = 1) {
  const reply = await redis.call('SASH.ALLOW', 'web', 'ENTRY', 'visitor', key, 'COST', points);
  return Object.fromEntries(reply.flatMap((_, i) => (i % 2 ? [] : [[reply[i], reply[i + 1]]])));
}

async function limited(req, res, next) {
  const answer = await consume(req.ip);
  if (!answer.allowed) {
    res.set('Retry-After', String(Math.ceil(Number(answer.retry_after))));
    return res.status(429).send('Too Many Requests');
  }
  next();
}

(async () => {
  for (let call = 1; call <= 7; call++) {
    const fields = {};
    const res = {
      set: (name, value) => { fields[name] = value; },
      status: (code) => ({ send: () => console.log(code, Number(fields['Retry-After']) > 50) }),
    };
    await limited({ ip: '203.0.113.9' }, res, () => console.log('served'));
  }
  redis.disconnect();
})();
