// See docs/migrating/upstash.md. It prints how twelve requests of one user are answered.
async function limit(identifier, cost = 1) {
  const res = await fetch(`${process.env.SASH_URL}/v1/allow`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ domain: 'web', entries: [{ key: 'user', value: identifier }], cost }),
  });
  if (res.status !== 200 && res.status !== 429) throw new Error(`sash: ${res.status} ${await res.text()}`);
  return res.json();
}

async function handler(request) {
  const { allowed, remaining, retry_after } = await limit(request.headers.get('X-User'));
  if (!allowed) {
    return new Response('Unable to process at this time', { status: 429, headers: { 'Retry-After': String(Math.ceil(retry_after)) } });
  }
  return new Response(`${remaining} left`);
}

(async () => {
  for (let call = 1; call <= 12; call++) {
    const res = await handler(new Request('http://localhost/', { headers: { 'X-User': 'ann' } }));
    console.log(res.status, await res.text());
  }
})();
