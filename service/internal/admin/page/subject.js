// One subject: its windows and the charges of its log.

import { $, cells, el, rows, say } from './dom.js';
import { call } from './api.js';
import { Axis } from './axis.js';
import { clock, count, moment, span } from './format.js';
import { subjectURL, unavailable } from './overview.js';

let axis;
let shown = null; // {domain, entries, query, now, at, receivedAt, said, log, logAt, pick, frozen}
let timer = 0;
let animation = 0;
let visit = 0; // counts openings, so that late answers can be discarded

const calm = matchMedia('(prefers-reduced-motion: reduce)');
const form = () => $('search');

export const begin = () => {
  axis = new Axis($('axis'));
  $('add').addEventListener('click', () => entry().focus());
  form().addEventListener('submit', (e) => {
    e.preventDefault();
    find();
  });
  $('charges').addEventListener('toggle', charges);
  entry();
};

export const configured = (config) => {
  $('domains').replaceChildren(...config.domains.map((d) => el('option', { value: d })));
  const keys = new Set(config.rules.flatMap((r) => r.path.map((e) => e.key)));
  $('keys').replaceChildren(...[...keys].map((k) => el('option', { value: k })));
  if (!form().domain.value && config.domains.length === 1) form().domain.value = config.domains[0];
};

// entry adds a row to the form and returns its first field.
const entry = (key = '', value = '') => {
  const n = $('entries').querySelectorAll('.entry').length + 1;
  const name = el('input', { class: 'key', list: 'keys', required: true, placeholder: 'key', 'aria-label': `Key of entry ${n}`, spellcheck: 'false', autocapitalize: 'off' });
  const text = el('input', { class: 'value', placeholder: 'value', 'aria-label': `Value of entry ${n}`, spellcheck: 'false', autocapitalize: 'off' });
  name.value = key;
  text.value = value;
  const row = el('div', { class: 'entry' }, name, text);
  if (n > 1) {
    row.append(el('button', { type: 'button', class: 'icon', 'aria-label': `Remove entry ${n}`, onclick: () => { row.remove(); $('add').focus(); } }, '×'));
  }
  $('entries').append(row);
  return name;
};

// find opens the subject that the form names, under the entries that the service gives it: a secret value does not get
// into the address or the history of the browser.
const find = async () => {
  const { domain, entries } = named();
  const answer = await call(`/admin/v1/subject?${query(subjectURL(domain, entries))}`);
  if (answer.error) { showError(answer.error); return; }
  const to = subjectURL(domain, answer.entries);
  if (location.hash === to) open(new URLSearchParams(query(to)));
  else location.hash = to;
};

const query = (url) => url.slice(url.indexOf('?') + 1);

// named returns the subject that the form names.
const named = () => ({
  domain: form().domain.value,
  entries: [...$('entries').querySelectorAll('.entry')].map((r) => ({ key: r.querySelector('.key').value, value: r.querySelector('.value').value })),
});

const showError = (text) => {
  $('search-error').hidden = !text;
  say($('search-error'), text ? `${text[0].toUpperCase()}${text.slice(1)}.` : '');
};

export const focus = () => {
  const key = $('entries').querySelector('.key');
  const field = !form().domain.value ? form().domain : key.value ? $('entries').querySelector('.value') : key;
  field.focus();
  field.select();
};

// open shows the subject that a query names, if any.
export const open = async (query) => {
  close();
  if (!query.has('domain')) { $('found').hidden = true; return; }
  form().domain.value = query.get('domain');
  $('entries').querySelectorAll('.entry').forEach((r) => r.remove());
  for (const text of query.getAll('entry')) {
    const at = text.indexOf(':');
    entry(at < 0 ? text : text.slice(0, at), at < 0 ? '' : text.slice(at + 1));
  }
  if (query.getAll('entry').length === 0) entry();
  shown = { ...named(), query: query.toString(), pick: null, log: null, logAt: 0, said: null, frozen: null };
  await refresh();
};

// close stops refreshing.
export const close = () => {
  visit++;
  shown = null;
  clearTimeout(timer);
  cancelAnimationFrame(animation);
};

// refresh reads the windows every second, and the log as often as its size allows.
const refresh = async () => {
  const mine = visit;
  const s = shown;
  let next = 1000;
  const answer = await call(`/admin/v1/subject?${s.query}`);
  if (mine !== visit) return;
  if (answer.error) {
    showError(answer.error);
    freeze();
    next = 5000; // the service logs each failed attempt
    if (answer.status !== 503) { $('found').hidden = true; return; }
  } else {
    showError(null);
    s.now = answer;
    s.receivedAt = performance.now();
    s.at = answer.at ? Date.parse(answer.at) : Date.now();
    s.frozen = null;
    if (!readable(answer)) {
      show();
      timer = setTimeout(refresh, next);
      return;
    }
    if (!answer.blocked_until) s.said = answer; // a block hides what is used
    const interval = !s.log ? 0 : s.log.algorithm === 'sorted-set-log' && s.log.count > 1000 ? 60000 : Math.max(1000, s.log.count);
    if (Date.now() - s.logAt >= interval) {
      const log = await call(`/admin/v1/charges?${s.query}`);
      if (mine !== visit) return;
      if (!log.error) { s.log = log; s.logAt = Date.now(); }
    }
    show();
  }
  timer = setTimeout(refresh, next);
};

// readable reports whether the store answered, or there is nothing to ask it.
const readable = (answer) => answer.source !== 'policy' && answer.source !== 'local';

// now returns the time by the store's clock, or when the store said what is shown.
const now = () => shown.frozen ?? shown.at + performance.now() - shown.receivedAt;

// freeze stops the clock of what is shown, which grows old, until the next answer.
export const freeze = () => {
  if (!shown?.now || shown.frozen !== null) return;
  shown.frozen = now();
  wait(); // at once: the next frame may be late
};

// last returns what the store said last to this page, {at, limits}; null is nothing.
const last = () => (shown.said?.at ? shown.said : null);

const show = () => {
  const s = shown.now;
  const known = readable(s);
  const before = known ? null : last();
  $('found').hidden = false;
  for (const id of ['axis', 'limits', 'charges']) $(id).classList.toggle('stale', s.source === 'policy' || (!known && id !== 'limits'));
  $('known').hidden = known;
  say($('known'), known ? '' : standing(s, before));
  if (s.source === 'policy') {
    s.limits = s.limits.map((l) => ({ ...l, ...pick(before?.limits.find((b) => b.name === l.name)) }));
  }
  if (!known && before) shown.frozen = Date.parse(before.at);
  say($('h-window'), s.subject);
  const badges = [];
  if (s.ban) badges.push(['bad', `banned until ${moment(Date.parse(s.ban.expires))}${s.ban.subject === s.subject ? '' : ` as ${s.ban.subject}`}${s.ban.reason ? `: ${s.ban.reason}` : ''}`]);
  if (s.blocked_until) badges.push(['bad', `blocked until ${moment(Date.parse(s.blocked_until))}: refused too often`]);
  if (s.override) badges.push(['warn', `override until ${moment(Date.parse(s.override.expires))}${s.override.reason ? `: ${s.override.reason}` : ''}`]);
  if (s.source === 'policy') badges.push(['bad', 'not known now']);
  if (s.source === 'local') badges.push(['warn', 'decided locally']);
  if (s.source === 'cache') badges.push(['', 'answered by cache']);
  if (s.rule?.shadow_mode) badges.push(['', 'shadow mode']);
  if ($('badges').textContent !== badges.map((b) => b[1]).join('')) $('badges').replaceChildren(...badges.map(([how, text]) => el('span', { 'data-how': how }, text)));
  say($('rule'), s.rule ? `${s.rule.rule}: ${s.rule.text}` : 'No rule matches these entries. Requests are allowed, and nothing is counted.');
  limits(s.limits);
  picks(s.limits);
  draw();
  charges();
};

// pick returns what a limit had when the store said so last.
const pick = (l) => (l ? { used: l.used, remaining: l.remaining } : {});

// standing says what is known while the store does not answer, from where, and since when.
const standing = (s, before) => {
  const away = s.store.status === 'ok' ? `Redis did not answer (${s.cause})` : `${unavailable(s.store)}${s.store.since ? ` since ${moment(Date.parse(s.store.since))}` : ''}`;
  const ago = before ? `${span((Date.now() - Date.parse(before.at)) / 1000)} ago, at ${moment(Date.parse(before.at))}` : '';
  if (s.source === 'policy') return `Not known: ${away}. ${before ? `The numbers below are what Redis said ${ago}, without any call since then.` : 'No earlier answer about this subject is at hand.'}`;
  const then = before ? ` Redis said ${ago}: ${before.limits.map((l) => `${count(l.used)} of ${count(l.units)} used (${l.name})`).join(', ')}.` : '';
  return `${away}. This instance decides alone, over its share of each limit.${then}`;
};

const limits = (all) => {
  rows($('limits'), all, (l) => l.name, () => {
    const row = cells('lim', 'fill', 'n', 'n', 'n wide');
    row.cells[1].append(el('span', { class: 'meter' }, el('i')), el('span'));
    return row;
  }, (row, l) => {
    say(row.cells[0], l.name);
    row.cells[1].firstChild.firstChild.style.width = `${Math.min(100, 100 * (l.used ?? 0) / Math.max(1, l.share ?? l.units))}%`;
    row.cells[1].classList.toggle('full', l.remaining === 0);
    say(row.cells[1].lastChild, used(l));
    say(row.cells[2], l.remaining === null ? '–' : count(l.remaining));
    row.dataset.release = l.release_after ?? '';
    row.dataset.reset = l.reset_after ?? '';
  });
  $('limits').hidden = all.length === 0;
  wait();
};

const used = (l) => {
  if (l.used === null) return 'not known';
  return `${count(l.used)} of ${l.share === undefined ? count(l.units) : `${count(l.share)}, the share of ${count(l.units)}`}`;
};

// wait updates the countdowns.
const wait = () => {
  const gone = (performance.now() - shown.receivedAt) / 1000;
  const left = (seconds) => (seconds === '' ? '–' : seconds > 0 ? span(seconds - gone) : 'free');
  for (const row of $('limits').tBodies[0].rows) {
    say(row.cells[3], left(row.dataset.release));
    say(row.cells[4], left(row.dataset.reset));
  }
  say($('clock'), shown.now.source === 'policy' ? '' : shown.now.source === 'local' ? `clock of this instance ${clock(shown.at)}` : `store clock ${clock(now())}`);
};

const picks = (all) => {
  if (!all.some((l) => l.name === shown.pick)) {
    const tightest = all.reduce((a, b) => (a && a.remaining / a.units <= b.remaining / b.units ? a : b), null);
    shown.pick = tightest?.name;
  }
  const names = all.map((l) => l.name);
  const there = [...$('picks').querySelectorAll('input')].map((i) => i.value);
  $('picks').hidden = names.length < 2;
  if (names.join('\n') !== there.join('\n')) {
    $('picks').replaceChildren(...names.map((name) => el('label', {}, el('input', { type: 'radio', name: 'pick', value: name, onchange: () => { shown.pick = name; draw(); charges(); } }), el('span', {}, name))));
  }
  for (const i of $('picks').querySelectorAll('input')) i.checked = i.value === shown.pick;
};

// draw hands the axis its data and starts the animation.
const draw = () => {
  const limit = shown.now.limits.find((l) => l.name === shown.pick);
  const log = shown.log;
  const drawable = limit && log?.entries;
  $('axis').style.display = drawable ? '' : 'none';
  if (!drawable) {
    say($('caption'), log?.why ? `No charges to draw: ${log.why}.` : readable(shown.now) ? '' : 'No charges to draw: they are not known.');
    cancelAnimationFrame(animation);
    tick();
    return;
  }
  const cut = log.limits.find((l) => l.name === limit.name);
  axis.set({
    entries: log.entries.map((e) => ({ at: Date.parse(e.at), units: e.units })),
    units: limit.units,
    free: shown.frozen === null && limit.release_after > 0 ? shown.at + 1000 * limit.release_after : null,
    ...(limit.window > 0 ? { window: 1000 * limit.window } : { from: Date.parse(cut?.from), until: Date.parse(cut?.until) }),
  });
  const many = log.merged > 0 ? ` There are ${count(log.count)} charges; those in the same ${span(log.merged)} are drawn as one, at the latest of their times.` : '';
  const band = limit.window > 0 ? 'The shaded window moves with the store clock' : `The shaded period ends at ${moment(Date.parse(cut?.until))}`;
  say($('caption'), `Each mark is a charge, hollow if it is booked. ${shown.frozen === null ? band : `Redis listed them last at ${moment(shown.frozen)}`}. The line is the number of units used; to the right it shows what will be in use if no further call arrives.${many}`);
  cancelAnimationFrame(animation);
  tick();
};

let drawn = 0;
const tick = () => {
  if (!shown?.now) return;
  if (shown.frozen !== null) {
    axis.draw(now(), clock(now()));
    wait();
    return;
  }
  const t = performance.now();
  const pace = calm.matches ? 1 : axis.pace();
  if (t - drawn >= 1000 / pace - 4 || t < drawn) {
    drawn = t;
    axis.draw(now());
    wait();
  }
  animation = requestAnimationFrame(tick);
};

// charges fills the table of charges, newest first.
const charges = () => {
  const log = shown?.log;
  $('charges').hidden = !log?.entries?.length;
  if (!$('charges').open || !log?.entries) return;
  const limit = shown.now.limits.find((l) => l.name === shown.pick);
  const until = Date.parse(log.limits.find((l) => l.name === shown.pick)?.until);
  rows($('charges').querySelector('table'), log.entries.slice(-50).reverse(), (e) => e.at, () => cells('', 'n', 'n'), (row, e) => {
    const at = Date.parse(e.at);
    say(row.cells[0], moment(at));
    say(row.cells[1], count(e.units));
    const leaves = limit?.window > 0 ? at + 1000 * limit.window : until;
    say(row.cells[2], leaves <= now() ? 'has left' : moment(leaves));
  });
};
