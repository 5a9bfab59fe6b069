'use strict';
// Times are microseconds since the start of the axis, which is the boundary of every window.

const $ = (id) => document.getElementById(id);
const second = 1e6;
const maxSpan = 366 * 86400 * second;

const examples = {
  'the boundary proof': 'limits=50/10s&span=20&calls=9:1x50,11:1x50&at=11',
  'a caller that never stops': `limits=10/10s&span=40&calls=${Array.from({ length: 80 }, (_, i) => `${i / 2}:1`)}&at=20`,
  'two limits that hold together': 'limits=5/1s,20/10s&span=20&calls=1:1x8,2:1x8,3:1x8,4:1x8,9:1x8,12:1x8&at=9',
  'costs': 'limits=100/1m&span=120&calls=5:40,20:50,30:25,55:10,66:40,90:60&at=66',
  'calls that wait for their turn': 'limits=3/10s&span=40&calls=2:1bx4,4:2b,6:1,15:1bx3&at=12',
};

const empty = () => ({ limits: '50/10s', algorithm: '', resolution: 0, span: 20 * second, calls: [], cursor: 10 * second });
let state = empty();
let selected = -1; // the number of a call
let tracks = [];
let playing = 0;

// --- A scenario as a link: #limits=50/10s&span=20&calls=9:1x50,11:2b&at=11, with times in seconds, and calls as
// TIME:COST, with b for a booked one and xN for several.

const seconds = (us) => String(+(us / second).toFixed(6));

const encode = (s) => {
  const parts = [`limits=${encodeURIComponent(s.limits).replaceAll('%2F', '/').replaceAll('%2C', ',')}`];
  if (s.algorithm) parts.push(`algorithm=${s.algorithm}`);
  if (s.resolution) parts.push(`resolution=${seconds(s.resolution)}`);
  parts.push(`span=${seconds(s.span)}`, `at=${seconds(s.cursor)}`);
  parts.push(`calls=${s.calls.map((c) => `${seconds(c.at)}:${c.cost}${c.book ? 'b' : ''}${c.count > 1 ? `x${c.count}` : ''}`)}`);
  return parts.join('&');
};

const time = (text, what) => {
  const us = Math.round(Number(text) * second);
  if (text === '' || !(us >= 0 && us <= maxSpan)) throw new Error(`${what} is ${JSON.stringify(text)}: write seconds, from 0 to a year`);
  return us;
};

const decode = (hash) => {
  const given = new URLSearchParams(hash);
  const s = empty();
  for (const [name, value] of given) {
    if (name === 'limits') s.limits = value;
    else if (name === 'algorithm') s.algorithm = value;
    else if (name === 'resolution') s.resolution = time(value, 'The resolution');
    else if (name === 'span') s.span = time(value, 'The axis') || second;
    else if (name === 'at') s.cursor = time(value, 'The end of the window');
    else if (name === 'calls') s.calls = value.split(',').filter(Boolean).map(call);
    else throw new Error(`The link has ${JSON.stringify(name)}, which this page does not know.`);
  }
  s.cursor = Math.min(s.cursor, s.span);
  return s;
};

const call = (text) => {
  const m = /^([0-9.]+):([0-9]+)(b?)(?:x([0-9]+))?$/.exec(text);
  if (!m) throw new Error(`The link has the call ${JSON.stringify(text)}: a call is TIME:COST, as in 9:1, 9:1x50 or 9:2b.`);
  return { at: time(m[1], 'The time of a call'), cost: Number(m[2]), book: m[3] === 'b', count: Number(m[4] || 1) };
};

// --- What people read.

const number = (n) => n.toLocaleString('en-US', { maximumFractionDigits: 6 });
const plural = (n, what) => `${number(n)} ${what}${n === 1 ? '' : 's'}`;
const instant = (us) => `${number(us / second)} s`;

const described = (c) => `${c.count > 1 ? `${number(c.count)} calls of ${plural(c.cost, 'unit')}` : `a call of ${plural(c.cost, 'unit')}`} at ${instant(c.at)}${c.book ? ', booked' : ''}`;

// windows returns the limits as the tracks have them, with their windows in microseconds.
const windows = () => {
  const of = (tracks.find((t) => t.worst.length) || { worst: [] }).worst;
  return of.map((w) => ({ name: w.limit, units: w.units, length: duration(w.limit.split('/')[1]) }));
};

const duration = (text) => {
  const unit = { us: 1, µs: 1, ms: 1e3, s: second, m: 60 * second, h: 3600 * second, d: 86400 * second };
  let sum = 0;
  for (const [, n, u] of text.matchAll(/([0-9.]+)(us|µs|ms|s|m|h|d)/g)) sum += Number(n) * unit[u];
  return Math.round(sum);
};

// inside returns the units that start in the window (ends - length, ends].
const inside = (track, length, ends) => track.answers.reduce((sum, a, i) =>
  sum + state.calls[i].cost * a.starts.filter((at) => at > ends - length && at <= ends).length, 0);

// --- Deciding.

const update = () => {
  const answer = window.decide({
    limits: state.limits, algorithms: state.algorithm ? [state.algorithm] : [], resolution: state.resolution, calls: state.calls,
  });
  complain(answer.error || '');
  tracks = answer.tracks || [];
  remember();
  draw();
};

// remember writes the scenario into the address, once for all changes of a while: browsers ignore or refuse to change it
// hundreds of times, as when something is dragged.
let remembering = 0;
const remember = () => { remembering ||= setTimeout(write, 200); };
const write = () => {
  clearTimeout(remembering);
  remembering = 0;
  history.replaceState(null, '', `#${encode(state)}`);
};

const complain = (text) => {
  $('error').textContent = text;
  $('error').hidden = text === '';
};

// --- Drawing.

const node = (tag, props = {}, ...children) => {
  const n = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(props)) n.setAttribute(name, value);
  n.append(...children);
  return n;
};

const top_ = 70; // the height of the lane of calls, with its times
let lane = 44;
let left = 120;
let width = 0; // of the axis
const x = (us) => left + (us / state.span) * width;

const draw = () => {
  const svg = $('axis');
  const whole = Math.max(svg.clientWidth, 320);
  most = state.calls.reduce((sofar, c) => Math.max(sofar, c.count * c.cost), 1);
  lane = whole < 620 ? 58 : 44; // with a line of text above the marks
  left = whole < 620 ? 12 : 128;
  const right = whole < 620 ? 12 : 108;
  width = whole - left - right;
  const height = top_ + tracks.length * lane + 8;
  svg.setAttribute('viewBox', `0 0 ${whole} ${height}`);
  svg.style.height = `${height}px`;
  const limits = windows();
  const focused = document.activeElement?.dataset?.call;
  svg.replaceChildren(
    ...band(limits, height), ...grid(height),
    node('rect', { id: 'ground', x: left, y: 20, width, height: top_ - 24 }),
    ...tracks.flatMap((t, i) => drawTrack(t, i, limits, whole)),
    node('line', { class: 'edge', x1: x(state.cursor), x2: x(state.cursor), y1: 18, y2: height }),
    ...state.calls.map(drawCall),
  );
  if (focused !== undefined) svg.querySelector(`[data-call="${focused}"]`)?.focus();
  form();
  table(limits);
};

const band = (limits, height) => limits.map((l) => {
  const from = Math.max(0, state.cursor - l.length);
  return node('rect', { class: 'windows', x: x(from), y: 18, width: Math.max(0, x(state.cursor) - x(from)), height: height - 18, opacity: 1 / limits.length });
});

// grid draws the times, at steps of 1, 2 or 5 times a power of ten.
const grid = (height) => {
  const rough = state.span / Math.max(3, Math.floor(width / 80));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const all = [];
  for (let at = 0; at <= state.span * 1.000001; at += step) {
    all.push(node('line', { class: 'grid', x1: x(at), x2: x(at), y1: 18, y2: height }));
    all.push(node('text', { class: 'soft', x: x(at), y: 12, 'text-anchor': 'middle' }, instant(at)));
  }
  return all;
};

let most = 1; // units of a call
const tall = (units) => 6 + 20 * Math.sqrt(units / most);

const drawCall = (c, i) => {
  const h = tall(c.count * c.cost);
  const label = c.count > 1 || c.cost > 1 ? `${c.count > 1 ? c.count : ''}${c.cost > 1 ? `×${c.cost}` : ''}` : '';
  return node('g', { class: 'call', tabindex: 0, role: 'button', 'aria-pressed': i === selected, 'aria-label': described(c), 'data-call': i },
    node('rect', { x: x(c.at) - 5, y: top_ - 8 - h, width: 10, height: h, rx: c.book ? 5 : 1 }),
    node('text', { x: x(c.at), y: top_ - 12 - h, 'text-anchor': 'middle' }, label));
};

const drawTrack = (t, i, limits, whole) => {
  const y = top_ + i * lane;
  const floor = y + lane - 8;
  const parts = [
    node('line', { class: 'grid', x1: left, x2: left + width, y1: floor, y2: floor }),
    node('rect', { class: 'lane', x: left, y, width, height: lane }),
  ];
  t.answers.forEach((a, j) => parts.push(...drawAnswer(t, a, state.calls[j], floor)));
  const held = limits.map((l) => `${number(inside(t, l.length, state.cursor))} of ${number(l.units)}`).join(', ');
  const over = limits.some((l) => inside(t, l.length, state.cursor) > l.units);
  if (left < 100) {
    parts.push(node('text', { x: left + 2, y: y + 10, class: over ? 'over' : 'soft' }, `${t.algorithm}: ${t.error ? 'none' : held}`));
  } else {
    parts.push(node('text', { x: left - 10, y: floor - 8, 'text-anchor': 'end' }, t.algorithm));
    parts.push(node('text', { x: whole - 100, y: floor - 8, class: over ? 'over' : '' }, t.error ? '' : held));
  }
  return parts;
};

const drawAnswer = (t, a, c, floor) => {
  const parts = [];
  const h = tall(c.count * c.cost);
  const admitted = (h * a.admitted) / c.count;
  const refused = (h * a.refused) / c.count;
  const waits = a.starts.filter((at) => at > c.at);
  if (refused > 0) {
    parts.push(node('rect', { class: 'refused', x: x(c.at) - 4, y: floor - h, width: 8, height: refused }));
    const fits = c.at + a.retryAfter;
    if (a.retryAfter > 0) parts.push(node('path', { class: 'retry', d: `M${x(c.at) + 6} ${floor - h / 2}H${x(Math.min(fits, state.span))}${fits <= state.span ? 'v8' : ''}` }));
  }
  if (a.admitted > waits.length) parts.push(node('rect', { class: 'admitted', x: x(c.at) - 4, y: floor - admitted, width: 8, height: admitted * (1 - waits.length / a.admitted) }));
  const last = Math.min(Math.max(c.at, ...waits), state.span);
  if (waits.length) parts.push(node('line', { class: 'booked', x1: x(c.at), x2: x(last), y1: floor - 4, y2: floor - 4 }));
  for (const at of new Set(waits)) if (at <= state.span) parts.push(node('circle', { class: 'booked', cx: x(at), cy: floor - 4, r: 4 }));
  if (parts.length) parts.unshift(node('title', {}, `${t.algorithm}: ${answered(a, c)}`));
  return [node('g', {}, ...parts)];
};

// answered says what one call was answered.
const answered = (a, c) => {
  if (a.note) return a.note;
  const parts = [];
  if (a.admitted) parts.push(a.refused ? `${number(a.admitted)} admitted` : 'admitted');
  const waits = a.starts.filter((at) => at > c.at);
  if (waits.length) parts.push(`${waits.length < a.starts.length ? `${number(waits.length)} of them wait, and` : ''} start${a.starts.length === 1 ? 's' : ''} at ${[...new Set(waits)].slice(0, 6).map(instant).join(', ')}`.trim());
  if (a.refused) parts.push(`${number(a.refused)} refused, fit${c.count === 1 ? 's' : ''} after ${instant(a.retryAfter)}`);
  return `${parts.join('; ')}; ${a.remaining.map(number).join(' and ')} left`;
};

const cell = (tag, text, over) => {
  const n = document.createElement(tag);
  n.textContent = text;
  if (tag === 'th') n.scope = 'row';
  if (over) n.className = 'over';
  return n;
};

const table = (limits) => {
  const c = state.calls[selected];
  $('selected').textContent = c ? described(c) : 'selected call: none';
  $('results').tBodies[0].replaceChildren(...tracks.map((t) => {
    const row = document.createElement('tr');
    row.dataset.algorithm = t.algorithm;
    const above = Math.max(0, ...t.worst.map((w) => w.most - w.units));
    row.append(
      cell('th', t.algorithm), cell('td', t.error ? '' : number(t.admitted)), cell('td', t.error ? '' : number(t.refused)),
      cell('td', t.worst.map((w) => `${number(w.most)} of ${w.limit}`).join(', ')), cell('td', t.error ? '' : number(above), above > 0),
      cell('td', t.error || (c && t.answers[selected] ? answered(t.answers[selected], c) : '')));
    return row;
  }));
};

// --- Controls.

const form = () => {
  const set = (id, value) => { if (document.activeElement !== $(id)) $(id).value = value; };
  const c = state.calls[selected];
  set('limits', state.limits);
  set('algorithm', state.algorithm);
  set('span', seconds(state.span));
  $('cursor').max = state.span;
  $('cursor').step = step();
  $('cursor').value = state.cursor;
  $('ends').textContent = instant(state.cursor);
  $('which').textContent = c ? 'The selected call:' : 'A click on the axis adds';
  if (c) {
    set('count', c.count);
    set('cost', c.cost);
    set('at', seconds(c.at));
    $('book').checked = c.book;
  }
  $('add').hidden = Boolean(c);
  $('remove').hidden = $('deselect').hidden = !c;
};

// step returns a step of about a pixel or two: a power of ten.
const step = () => Math.max(1, 10 ** Math.floor(Math.log10(state.span / 200)));
const snapped = (us) => Math.min(state.span, Math.max(0, Math.round(us / step()) * step()));
const pointed = (event) => snapped(((event.clientX - $('axis').getBoundingClientRect().left - left) / width) * state.span);

const wanted = (at) => ({ at, cost: Math.max(1, Math.round(Number($('cost').value)) || 1), count: Math.max(1, Math.round(Number($('count').value)) || 1), book: $('book').checked });

const put = (c) => {
  state.calls.push(c);
  selected = state.calls.length - 1;
  update();
};

const remove = () => {
  if (selected < 0) return;
  state.calls.splice(selected, 1);
  selected = -1;
  update();
};

const moved = (us) => {
  state.calls[selected].at = snapped(us);
  update();
};

const slide = (us) => {
  state.cursor = Math.min(state.span, Math.max(0, us));
  remember();
  draw();
};

// drag follows a pointer until it is lifted.
const drag = (event, to) => {
  event.preventDefault();
  const move = (e) => to(pointed(e));
  const end = () => {
    window.removeEventListener('pointermove', move);
    window.removeEventListener('pointerup', end);
    window.removeEventListener('pointercancel', end);
  };
  window.addEventListener('pointermove', move);
  window.addEventListener('pointerup', end);
  window.addEventListener('pointercancel', end);
};

const listen = () => {
  const svg = $('axis');
  svg.addEventListener('pointerdown', (event) => {
    const on = event.target.closest('.call');
    if (on) {
      selected = Number(on.dataset.call);
      on.focus();
      draw();
      drag(event, moved);
    } else if (event.target.id === 'ground') {
      put(wanted(pointed(event)));
      drag(event, moved);
    } else if (event.target.closest('.lane, .windows, g')) {
      slide(pointed(event));
      drag(event, slide);
    }
  });
  svg.addEventListener('keydown', (event) => {
    const on = event.target.closest('.call');
    if (!on) return;
    selected = Number(on.dataset.call);
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) moved(state.calls[selected].at + by * step() * (event.shiftKey ? 10 : 1));
    else if (event.key === 'Delete' || event.key === 'Backspace') remove();
    else if (event.key === 'Enter' || event.key === ' ') draw();
    else return;
    event.preventDefault();
  });
  $('limits').addEventListener('input', () => { state.limits = $('limits').value; update(); });
  $('algorithm').addEventListener('change', () => { state.algorithm = $('algorithm').value; update(); });
  $('span').addEventListener('change', () => attempt(() => {
    state.span = Math.max(1, time($('span').value, 'The axis'));
    state.cursor = Math.min(state.cursor, state.span);
  }));
  for (const id of ['count', 'cost', 'at', 'book']) {
    $(id).addEventListener('change', () => attempt(() => {
      if (selected >= 0) state.calls[selected] = wanted(time($('at').value, 'The time of the call'));
    }));
  }
  $('add').addEventListener('click', () => attempt(() => put(wanted($('at').value === '' ? state.cursor : time($('at').value, 'The time of the call')))));
  $('remove').addEventListener('click', remove);
  $('deselect').addEventListener('click', () => { selected = -1; draw(); });
  $('clear').addEventListener('click', () => { state.calls = []; selected = -1; update(); });
  $('example').addEventListener('change', () => {
    if ($('example').value) open_(examples[$('example').value]);
    $('example').value = '';
  });
  $('cursor').addEventListener('input', () => slide(Number($('cursor').value)));
  $('play').addEventListener('click', play);
  $('share').addEventListener('click', share);
  window.addEventListener('resize', draw);
  window.addEventListener('hashchange', () => open_(location.hash.slice(1)));
};

// attempt does something to the state that may fail, and says why.
const attempt = (change) => {
  try {
    change();
  } catch (err) {
    complain(err.message);
    draw(); // a page that opens with a link that is wrong has an axis too
    return;
  }
  update();
};

const open_ = (hash) => attempt(() => {
  clearTimeout(remembering); // of the scenario before
  remembering = 0;
  state = decode(hash);
  selected = -1;
});

const play = () => {
  if (playing) {
    cancelAnimationFrame(playing);
    playing = 0;
    $('play').textContent = 'Slide';
    return;
  }
  const from = state.cursor >= state.span ? 0 : state.cursor;
  const began = performance.now();
  const frame = (now) => {
    slide(from + ((now - began) / 8000) * state.span);
    playing = requestAnimationFrame(frame);
    if (state.cursor >= state.span) play();
  };
  $('play').textContent = 'Stop';
  playing = requestAnimationFrame(frame);
};

const share = async () => {
  write();
  try {
    await navigator.clipboard.writeText(location.href);
    $('shared').textContent = 'The link holds the whole scenario.';
  } catch {
    $('shared').textContent = 'The address of this page is the link: copy it from the address bar.';
  }
};

// --- The limiter is WebAssembly in this page, compressed, as base64.

const load = async () => {
  const packed = Uint8Array.from(atob($('core').textContent), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const go = new Go();
  const { instance } = await WebAssembly.instantiate(await new Response(stream).arrayBuffer(), go.importObject);
  go.run(instance);
};

document.addEventListener('ready', () => {
  for (const name of ['sliding-log', 'sliding-buckets', 'sliding-counter', 'fixed-window', 'gcra', 'sorted-set-log']) $('algorithm').append(new Option(name, name));
  for (const name of Object.keys(examples)) $('example').append(new Option(name, name));
  listen();
  open_(location.hash.slice(1) || examples['the boundary proof']);
  document.body.dataset.ready = 'true';
});

load().catch((err) => complain(`This browser cannot run the limiter: ${err.message}`));
