// Rates from the counters of the state: the page keeps its own series.

const over = 10500; // milliseconds: a rate is the mean over the last ten states
let states = []; // the oldest first: at, count by series, tried by series, latency
let since = ''; // when the service began to count

const key = (r) => `${r.domain} ${r.rule}`;
const less = (x, y) => Object.fromEntries(Object.keys(x).map((name) => [name, x[name] - (y?.[name] ?? 0)]));
const times = (counts, f) => Object.fromEntries(Object.keys(counts).map((name) => [name, Math.round(100 * counts[name] * f) / 100]));

const sum = (by) => by.allowed + by.uncounted + by.refused + by.banned + by.shadow + by.error + by.invalid;

// share returns the parts of a rate. Without a decision nothing is refused or allowed.
const share = (rate) => {
  const part = (n, of) => (of > 0 ? n / of : null);
  const refused = rate.refused + rate.banned;
  return { refused: part(refused, refused + rate.allowed + rate.shadow), uncounted: part(rate.uncounted, sum(rate)), error: part(rate.error, sum(rate)) };
};

// quantile returns the bound that a part of the calls since an earlier state did not exceed, or null.
const quantile = (now, before, part) => {
  const counts = now.counts.map((n, i) => n - (before.counts[i] ?? 0));
  const all = counts.at(-1);
  const i = counts.findIndex((n) => n >= Math.ceil(part * all));
  return all > 0 && i < now.bounds.length ? now.bounds[i] : null;
};

// add gives the series of a state their rates and shares, orders the rules, the busiest first, and returns what came
// since the last state: null if that is not a second ago.
export const add = (s) => {
  if (s.since !== since) { // it is another process
    states = [];
    since = s.since;
  }
  const at = Date.parse(s.at);
  const last = states.at(-1);
  while (states.length > 0 && at - states[0].at > over) states.shift();
  const before = states[0] ?? { at: at - 1000, series: new Map([s.requests, ...s.rules].map((r) => [key(r), r])), latency: s.latency };
  const f = 1000 / Math.max(1, at - before.at);
  for (const r of [s.requests, ...s.rules]) {
    const was = before.series.get(key(r));
    r.rate = times(less(r.count, was?.count), f);
    r.share = share(r.rate);
    if (r.candidate) r.candidate.rate = times(less({ requests: r.candidate.requests, refused: r.candidate.refused }, was?.candidate), f);
  }
  s.rules.sort((x, y) => sum(y.rate) - sum(x.rate) || sum(y.count) - sum(x.count));
  s.latency = { ...s.latency, p50: quantile(s.latency, before.latency, 0.5), p99: quantile(s.latency, before.latency, 0.99) };
  const second = last && at - last.at < 2000 && less(s.requests.count, last.series.get(key(s.requests)).count);
  states.push({ at, latency: { counts: s.latency.counts }, series: new Map([s.requests, ...s.rules].map((r) => [key(r), { count: r.count, candidate: r.candidate && { requests: r.candidate.requests, refused: r.candidate.refused } }])) });
  return second || null;
};
