// Middleware of Express: each visitor may send five requests a minute. A function of Node's http server calls it the same
// way: limited(req, res, () => answer(req, res)).
const Redis = require('ioredis');
const express = require('express');
// 250 ms to connect, and 500 ms for each answer, also while there is no connection.
const sash = new Redis({ port: Number(process.env.SASH_PORT || 6380), maxRetriesPerRequest: 1, connectTimeout: 250, commandTimeout: 500 });
sash.on('error', (err) => console.error('no decision:', err.message));

async function limited(req, res, next) {
  const reply = await sash.call('SASH.ALLOW', 'web', 'ENTRY', 'visitor', req.socket.remoteAddress).catch(() => null);
  if (!reply) return next(); // no decision: let it through
  const answer = Object.fromEntries(reply.flatMap((_, i) => (i % 2 ? [] : [[reply[i], reply[i + 1]]])));
  if (answer.allowed) return next();
  res.writeHead(429, { 'Retry-After': Math.ceil(Number(answer.retry_after)) }).end('slow down\n');
}

const app = express();
app.use(limited);
app.get('/', (req, res) => res.send('hello\n'));
const server = app.listen(Number(process.env.PORT || 8000), '127.0.0.1', () => console.log('listening on', server.address().port));
