// One subject: its limits, and what is used of them.

import { $, cells, el, rows, say } from './dom.js';
import { call } from './api.js';
import { clock, count, moment, span } from './format.js';
import { subjectURL, unavailable } from './overview.js';

let shown = null; // {domain, entries, query, now, said}
let timer = 0;
let visit = 0; // counts openings, so that late answers can be discarded

const form = () => $('search');

export const begin = () => {
  $('add').addEventListener('click', () => entry().focus());
  form().addEventListener('submit', (e) => {
    e.preventDefault();
    find();
  });
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
  shown = { ...named(), query: query.toString(), said: null };
  await refresh();
};

// close stops refreshing.
export const close = () => {
  visit++;
  shown = null;
  clearTimeout(timer);
};

// refresh reads the limits every second.
const refresh = async () => {
  const mine = visit;
  const s = shown;
  let next = 1000;
  const answer = await call(`/admin/v1/subject?${s.query}`);
  if (mine !== visit) return;
  if (answer.error) {
    showError(answer.error);
    next = 5000; // the service logs each failed attempt
    if (answer.status !== 503) { $('found').hidden = true; return; }
  } else {
    showError(null);
    s.now = answer;
    if (readable(answer) && !answer.blocked_until) s.said = answer; // a block hides what is used
    show();
  }
  timer = setTimeout(refresh, next);
};

// readable reports whether the store answered, or there is nothing to ask it.
const readable = (answer) => answer.source !== 'policy' && answer.source !== 'local';

// last returns what the store said last to this page, {at, limits}; null is nothing.
const last = () => (shown.said?.at ? shown.said : null);

const show = () => {
  const s = shown.now;
  const known = readable(s);
  const before = known ? null : last();
  $('found').hidden = false;
  $('limits').classList.toggle('stale', s.source === 'policy');
  $('known').hidden = known;
  say($('known'), known ? '' : standing(s, before));
  if (s.source === 'policy') {
    s.limits = s.limits.map((l) => ({ ...l, ...pick(before?.limits.find((b) => b.name === l.name)) }));
  }
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
  say($('clock'), s.at ? `clock of ${s.source === 'local' ? 'this instance' : 'the store'} ${clock(Date.parse(s.at))}` : '');
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
    say(row.cells[3], left(l.release_after));
    say(row.cells[4], left(l.reset_after));
  });
  $('limits').hidden = all.length === 0;
};

const left = (seconds) => (seconds === null ? '–' : seconds > 0 ? span(seconds) : 'free');

const used = (l) => {
  if (l.used === null) return 'not known';
  return `${count(l.used)} of ${l.share === undefined ? count(l.units) : `${count(l.share)}, the share of ${count(l.units)}`}`;
};
