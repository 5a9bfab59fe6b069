// The page: the current view, the viewer’s access, and the state of the service, which it reads every second.

import { $, say } from './dom.js';
import { call, postForm } from './api.js';
import { moment } from './format.js';
import * as overview from './overview.js';
import * as subject from './subject.js';

let access = null;
let timer = 0;
let turn = 0; // counts readings, so that a late answer can be discarded

const connection = (state, text) => {
  $('connection').dataset.state = state;
  say($('connection'), text);
};

let heard = 0; // when the last state came
let began = 0; // when the page began to read
const silence = 4000;

// stale dims the numbers of the page if the service has not sent any for a while, and says since when they stand.
const stale = (is) => {
  for (const id of ['alert', 'overview', 'found']) $(id).classList.toggle('stale', is);
  $('stale').hidden = !is;
  if (!is) return;
  say($('stale'), `No word from this sash since ${moment(heard)}. The numbers on this page are from then.`);
};

setInterval(() => {
  if (!document.hidden && heard && Date.now() - Math.max(heard, began) > silence) stale(true); // the service hangs
}, 1000);

// watch begins to read the state. A hidden page reads nothing.
const watch = () => {
  clearTimeout(timer);
  began = Date.now();
  const mine = ++turn;
  if (!document.hidden) read(mine);
};

const read = async (mine) => {
  const s = await call('/admin/v1/state');
  if (mine !== turn) return;
  timer = setTimeout(() => read(mine), s.error ? 2000 : 1000);
  if (s.error) {
    connection('lost', 'disconnected, trying again');
    if (heard) stale(true);
    return;
  }
  heard = Date.now();
  stale(false);
  connection('live', 'live');
  overview.state(s);
  if (access && s.authenticated !== access.authenticated) configure(); // the session has expired
};

const configure = async () => {
  const config = await call('/admin/v1/config');
  if (config.error) return;
  access = config.access;
  overview.configured(config);
  subject.configured(config);
  const { authenticated } = access;
  $('locked').hidden = authenticated;
  $('login').hidden = !access.token;
  $('unset').hidden = access.token;
  $('search').hidden = !authenticated;
  $('logout').hidden = !access.by.startsWith('session');
  say($('by'), access.by.startsWith('certificate') ? access.by : '');
  route();
};

const route = () => {
  const [path, query] = location.hash.slice(1).split('?');
  const view = path === '/subject' ? 'subject' : 'overview';
  for (const section of document.querySelectorAll('main > [data-view]')) section.hidden = section.dataset.view !== view;
  for (const link of document.querySelectorAll('nav a')) {
    if (link.dataset.view === view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  if (view === 'subject' && access?.authenticated) subject.open(new URLSearchParams(query));
  else {
    subject.close();
    $('found').hidden = true;
  }
};

$('login').addEventListener('submit', async (e) => {
  e.preventDefault();
  const field = $('login').token;
  const error = await postForm('/login', { token: field.value });
  $('login-error').hidden = !error;
  say($('login-error'), error ? `${error[0].toUpperCase()}${error.slice(1)}.` : '');
  if (error) { field.select(); return; }
  field.value = '';
  await configure();
  watch();
  if (location.hash.startsWith('#/subject')) subject.focus();
  else $('main').focus({ preventScroll: true });
});

$('logout').addEventListener('click', async () => {
  await postForm('/logout');
  await configure();
  watch();
});

document.addEventListener('keydown', (e) => {
  const typing = e.target.closest('input, textarea, select');
  if (e.key !== '/' || typing || e.ctrlKey || e.metaKey || e.altKey) return;
  e.preventDefault();
  if (!location.hash.startsWith('#/subject')) location.hash = '#/subject';
  ready.then(() => requestAnimationFrame(() => (access?.authenticated ? subject.focus() : access?.token && $('login').token.focus())));
});

document.addEventListener('visibilitychange', () => {
  watch();
  route(); // starts or stops refreshing the subject
});
addEventListener('hashchange', route);

overview.begin();
subject.begin();
route();
const ready = configure();
await ready;
watch();
setInterval(() => { if (!document.hidden) configureQuietly(); }, 30000);

// configureQuietly picks up a reloaded configuration without changing the view.
async function configureQuietly() {
  const config = await call('/admin/v1/config');
  if (!config.error) { overview.configured(config); subject.configured(config); }
}
