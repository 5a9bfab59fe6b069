// The overview: tiles, rules, subjects and the store.

import { $, cells, el, rows, say } from './dom.js';
import { count, many, moment, percent, rate, span } from './format.js';
import * as flow from './flow.js';
import * as rates from './rates.js';

let described = new Map(); // domain and rule -> the rule in the configuration

export const begin = () => flow.begin();

export const configured = (config) => {
  described = new Map(config.rules.map((r) => [`${r.domain} ${r.rule}`, r]));
};

const sum = (by) => by.allowed + by.uncounted + by.refused + by.banned + by.shadow + by.error + by.invalid;

export const state = (s) => {
  const second = rates.add(s);
  if (second) flow.add(second, Date.parse(s.at));
  for (const [name] of flow.outcomes) {
    say($(`rate-${name}`), rate(s.requests.rate[name]));
    say($(`count-${name}`), count(s.requests.count[name]));
    const tile = $('tiles').querySelector(`[data-outcome=${name}]`);
    tile.classList.toggle('quiet', s.requests.rate[name] === 0);
    // What has not happened since counting began gives its place to the others.
    tile.hidden = name !== 'allowed' && s.requests.count[name] + (name === 'error' ? s.requests.count.invalid : 0) === 0;
    $('legend').querySelector(`[data-outcome=${name}]`).hidden = tile.hidden;
  }
  say($('count-invalid'), count(s.requests.count.invalid));
  say($('since'), moment(Date.parse(s.since)));
  rules(s.rules);
  idle(s.rules);
  subjects(s.top);
  store(s.store, s.latency);
};

const rules = (all) => {
  $('no-rules').hidden = all.length > 0;
  rows($('rules'), all, (r) => `${r.domain} ${r.rule}`, () => {
    const row = cells('name', 'n', 'n wide', 'n', 'share', ...columns.map(() => 'n wide'));
    row.cells[0].append(el('span', { class: 'main' }), el('span', { class: 'sub' }), el('span', { class: 'sub tried' }));
    row.cells[4].append(el('span', { class: 'meter' }, ...shares.map((name) => el('i', { 'data-outcome': name })), el('b', { class: 'ghost' })), el('span'));
    return row;
  }, (row, r) => {
    const [name, text, tried] = row.cells[0].children;
    say(name, r.rule);
    say(text, described.get(`${r.domain} ${r.rule}`)?.text ?? '');
    say(tried, candidate(r.candidate));
    tried.hidden = !r.candidate;
    const ghost = row.cells[4].firstChild.lastChild;
    ghost.hidden = !r.candidate || r.candidate.rate.requests === 0;
    if (!ghost.hidden) {
      ghost.style.width = `${100 * r.candidate.rate.refused / r.candidate.rate.requests}%`;
      row.cells[4].firstChild.title = candidate(r.candidate);
    }
    const calls = sum(r.rate);
    const refused = r.rate.refused + r.rate.banned;
    say(row.cells[1], rate(calls));
    say(row.cells[2], r.share.refused === null ? '–' : rate(refused));
    [r.rate.error, r.rate.uncounted, refused].forEach((n, i) => {
      row.cells[4].firstChild.children[i].style.width = calls > 0 ? `${100 * n / calls}%` : '0';
    });
    say(row.cells[3], r.longest_wait === 0 ? '0' : `up to ${span(r.longest_wait)}`);
    row.cells[3].classList.toggle('zero', r.longest_wait === 0);
    say(row.cells[4].lastChild, share(r));
    columns.forEach((o, i) => {
      say(row.cells[5 + i], count(r.count[o]));
      row.cells[5 + i].classList.toggle('zero', r.count[o] === 0);
    });
  });
};

// candidate says what a rule's candidate did, or would have done.
const candidate = (c) => {
  if (!c) return '';
  const now = c.rate.requests > 0 ? `${rate(c.rate.refused)} /s (${percent(c.rate.refused, c.rate.requests)})` : 'no calls now';
  return `candidate would refuse ${now}; ${count(c.refused)} of ${count(c.requests)} so far`;
};

const mostIdle = 200;

// idle lists the rules of the configuration that no request has reached.
const idle = (all) => {
  const busy = new Set(all.map((r) => `${r.domain} ${r.rule}`));
  const quiet = [...described.values()].filter((r) => !busy.has(`${r.domain} ${r.rule}`));
  $('idle').hidden = quiet.length === 0;
  say($('idle-count'), `${many(quiet.length, 'rule')} without a request${quiet.length > mostIdle ? `, of which ${mostIdle} are listed` : ''}`);
  if (!$('idle').open) return;
  rows($('idle').querySelector('table'), quiet.slice(0, mostIdle), (r) => `${r.domain} ${r.rule}`, () => cells('name', ''), (row, r) => {
    say(row.cells[0], r.rule);
    say(row.cells[1], r.text);
  });
};

const columns = ['allowed', 'uncounted', 'refused', 'shadow', 'banned', 'error'];
const shares = ['error', 'uncounted', 'refused'];

// share says what part of the calls nobody decided or counted, and what part of the others was refused.
const share = (r) => {
  const parts = [];
  if (r.share.error > 0) parts.push(`${percent(r.share.error, 1)} no decision`);
  if (r.share.uncounted > 0) parts.push(`${percent(r.share.uncounted, 1)} uncounted`);
  if (r.share.refused !== null) parts.push(`${percent(r.share.refused, 1)}${parts.length > 0 ? ' of the others' : ''} refused`);
  if (r.rate.local > 0) parts.push('decided locally');
  return parts.join(', ') || '–';
};

// subjectURL returns the fragment that opens a subject.
export const subjectURL = (domain, entries) => {
  const query = new URLSearchParams({ domain });
  for (const e of entries) query.append('entry', `${e.key}:${e.value}`);
  return `#/subject?${query}`;
};

const subjects = (top) => {
  $('subjects').hidden = !top;
  if (!top) {
    for (const id of ['top-units', 'top-refused']) $(id).tBodies[0].replaceChildren();
    return;
  }
  for (const t of document.getElementsByClassName('top-since')) say(t, moment(Date.parse(top.since)));
  const last = (s) => flow.outcomes.find(([name]) => name === s.last)?.[1] ?? s.last;
  table($('top-units'), top.units, last);
  table($('top-refused'), top.refused, (s) => s.refused_by ?? last(s));
};

const table = (table, lines, last) => {
  table.nextElementSibling.hidden = lines.length > 0;
  rows(table, lines, (s) => s.subject, (s) => {
    const row = cells('name', 'n', 'last');
    row.cells[0].append(s.entries ? el('a', { href: subjectURL(s.domain, s.entries) }) : el('span'));
    return row;
  }, (row, s) => {
    say(row.cells[0].firstChild, s.subject);
    say(row.cells[1], count(s.count));
    row.cells[1].title = s.at_most_over > 0 ? `at most ${count(s.at_most_over)} too high` : '';
    say(row.cells[2], last(s));
    row.cells[2].dataset.last = s.last;
  });
};

const words = { up: 'Redis up', down: 'Redis down', probing: 'Probing Redis', memory: 'In memory' };

// within says a time that a call took at most, in seconds.
const within = (s) => (s === null ? 'more than 1 s' : s < 0.001 ? `${+(1e3 * s).toPrecision(2)} ms` : `${1e3 * s} ms`);

const store = (s, latency) => {
  const ago = s.for == null ? 'since startup' : `for ${span(s.for)}`;
  const facts = [
    ['State', `${words[s.store] ?? s.store} ${ago}`, s.status === 'ok' ? 'good' : 'bad'],
    ['Instances', s.instances === 0 ? 'unknown' : count(s.instances)],
    ['Overrides', count(s.overrides)],
    ['Bans', count(s.bans)],
  ];
  if (s.store !== 'memory' && latency.p50 !== null) facts.splice(1, 0, ['Redis decides', `half within ${within(latency.p50)}, 99 % within ${within(latency.p99)}`]);
  const why = [];
  if (s.address) why.push(['Address', s.address]);
  if (s.reason) why.push(['Cause', `${s.reason} (${s.cause})`, 'bad']);
  if (s.error) why.push(['Last failure', s.error]);
  if (s.status !== 'ok') why.push(['Uncounted since then', many(s.uncounted, 'request'), 'bad']);
  else if (s.uncounted > 0) why.push(['Uncounted in the last outage', many(s.uncounted, 'request'), 'warn']);
  if (s.home) {
    const up = s.home.state === 'up';
    why.push(
      ['Home', `${s.home.address} ${up ? 'answers' : 'does not answer'}`, up ? 'good' : 'bad'],
      ['Calls to the home', `${count(s.home.calls)}, ${count(s.home.failed)} without an answer`],
      ['Leased from the home', many(s.home.leased, 'unit')],
    );
  }
  facts.splice(1, 0, ...why);
  if (s.store !== 'memory') {
    facts.push(
      ['Calls in flight', count(s.in_flight)],
      ['Waiting to be written to Redis', many(s.local.backlog, 'subject'), s.local.backlog > 0 ? 'warn' : ''],
      ['Written to Redis later', many(s.local.written, 'unit')],
      ['Lost', many(s.local.lost, 'unit'), s.local.lost > 0 ? 'warn' : ''],
      ['Possibly charged by Redis', many(s.local.doubtful, 'unit'), s.local.doubtful > 0 ? 'warn' : ''],
    );
  }
  if (!s.exceptions_current) facts.push(['Overrides and bans', 'last read failed', 'warn']);
  const list = $('store');
  const same = list.children.length === facts.length && facts.every(([name], i) => list.children[i].firstChild.textContent === name);
  if (!same) list.replaceChildren(...facts.map(([name]) => el('div', {}, el('dt', {}, name), el('dd'))));
  facts.forEach(([, text, how], i) => {
    say(list.children[i].lastChild, text);
    list.children[i].classList.toggle('long', text.length > 60);
    list.children[i].dataset.how = how ?? '';
  });
  const down = s.status !== 'ok';
  document.title = down ? `${s.store === 'memory' ? 'Store full' : 'Redis down'} · Sash` : 'Sash';
  $('alert').hidden = !down;
  $('alert').dataset.how = 'bad';
  say($('alert-what'), down ? `${unavailable(s)}${s.since ? ` since ${moment(Date.parse(s.since))}` : ''}.` : '');
  say($('alert-meanwhile'), down ? `Each rule’s on_unavailable answers${s.store === 'memory' ? ' where a new subject has no place' : ''}. ${many(s.uncounted, 'request')} went ahead uncounted since then.` : '');
};

// unavailable names the store and says why it does not decide.
export const unavailable = (s) => `${s.store === 'memory' ? 'The store in memory' : 'Redis'}${s.address ? ` at ${s.address}` : ''} ${s.reason ? `${s.reason} (${s.cause})` : 'does not decide'}`;
