// ioredis. Arguments: the name of a subject, the protocol (2).
const Redis = require('ioredis');
const [name] = process.argv.slice(2);
const connect = (password) => new Redis({ port: Number(process.env.SASH_PORT), password, retryStrategy: null });

(async () => {
  const redis = connect(process.env.SASH_TOKEN);
  console.log('throttle', ...(await redis.call('CL.THROTTLE', name, 2, 3, 60)));
  const calls = Array.from({ length: 7 }, () => redis.call('SASH.ALLOW', 'web', 'ENTRY', 'user', name)); // a pipeline
  console.log('allowed', (await Promise.all(calls)).reduce((sum, reply) => sum + reply[1], 0));
  const once = [`${name} once`, 0, 1, 60];
  redis.defineCommand('throttle', { numberOfKeys: 1, lua: "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])" });
  const replies = await redis.multi().call('CL.THROTTLE', ...once).throttle(...once).exec();
  console.log('multi', ...replies.map(([, reply]) => reply[0]), (await redis.throttle(...once))[0]);
  await redis.call('SASH.ALLOW', 'web', 'ENTRY').catch((e) => console.log('error', e.message));
  await redis.auth('wrong').catch((e) => console.log('denied', e.message));
  redis.disconnect();
})();
