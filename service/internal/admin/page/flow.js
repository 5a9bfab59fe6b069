// Requests per second by outcome, since the page was opened and over five minutes at most: one stacked column per second.

import { $, el, say, svg } from './dom.js';
import { clock, count, rate } from './format.js';

export const outcomes = [
  ['allowed', 'allowed'], ['uncounted', 'uncounted'], ['shadow', 'would be refused'], ['refused', 'refused'], ['banned', 'banned'], ['error', 'no decision'],
];

const most = 300;
const levels = [1, 0.75, 0.5, 0.25]; // of the axis
let seconds = [];
let newest = 0; // when the last of them ended

export const begin = () => {
  for (const l of levels) {
    const label = el('span');
    label.style.top = `${100 - 100 * l}%`;
    $('levels').append(label);
  }
  $('flow').addEventListener('pointermove', tip);
  $('flow').addEventListener('pointerleave', () => { $('flow-tip').hidden = true; });
  $('legend').append(...outcomes.map(([name, text]) => el('li', { 'data-outcome': name }, text)));
  $('flow').setAttribute('viewBox', `0 0 ${most} 100`);
  $('flow').setAttribute('preserveAspectRatio', 'none');
  $('flow').append(
    svg('pattern', { id: 'stripes', width: 4, height: 5, patternUnits: 'userSpaceOnUse' },
      svg('rect', { width: 4, height: 5, class: 'pale' }), svg('rect', { width: 4, height: 3 })),
    svg('path', { class: 'grid' }),
    ...outcomes.map(([name]) => svg('path', { 'data-outcome': name })),
  );
};

export const add = (second, at) => { seconds = [...seconds, second].slice(-most); newest = at; draw(); };

// tip says what came in the second under the pointer.
const tip = (event) => {
  const box = $('flow').getBoundingClientRect();
  const at = Math.floor((event.clientX - box.left) / box.width * most);
  const second = seconds[at - (most - seconds.length)];
  $('flow-tip').hidden = !second;
  if (!second) return;
  const said = outcomes.filter(([name]) => second[name] > 0).map(([name, text]) => el('span', { 'data-outcome': name }, `${count(second[name])} ${text}`));
  $('flow-tip').replaceChildren(el('b', {}, clock(newest - (most - 1 - at) * 1000)), ...(said.length > 0 ? said : ['no requests']));
  const half = $('flow-tip').offsetWidth / 2;
  $('flow-tip').style.left = `${Math.max(half, Math.min(box.width - half, event.clientX - box.left))}px`;
};

// ceiling returns a round number of at least n.
const ceiling = (n) => {
  const ten = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 2, 4, 5, 8, 10].map((f) => f * ten).find((c) => c >= n);
};

// axis marks the whole minutes, by the clock of this browser.
const axis = () => {
  const minutes = [];
  for (let at = newest - newest % 60000; at > newest - 1000 * most; at -= 60000) minutes.push([at, most - (newest - at) / 1000]);
  $('flow').querySelector('.grid').setAttribute('d', `M0 50H${most}M0 25H${most}M0 75H${most}${minutes.map(([, x]) => `M${x} 0V100`).join('')}`);
  const labels = minutes.filter(([, x]) => x > 0.05 * most && x < 0.86 * most).map(([at, x]) => {
    const label = el('span', {}, clock(at, false));
    label.style.left = `${100 * x / most}%`;
    return label;
  });
  $('times').replaceChildren(...labels, el('span', { class: 'now' }, 'now'));
};

const draw = () => {
  axis();
  const sums = seconds.map((s) => outcomes.reduce((sum, [name]) => sum + s[name], 0));
  const top = ceiling(Math.max(4, ...sums));
  levels.forEach((l, i) => say($('levels').children[i], `${rate(top * l)} /s`));
  const below = new Array(seconds.length).fill(0);
  const first = most - seconds.length;
  for (const [name] of outcomes) {
    let d = '';
    seconds.forEach((s, i) => {
      if (s[name] === 0) return;
      const y = 100 - 100 * below[i] / top;
      below[i] += s[name];
      d += `M${first + i} ${y.toFixed(2)}H${first + i + 1}V${(100 - 100 * below[i] / top).toFixed(2)}H${first + i}Z`;
    });
    $('flow').querySelector(`path[data-outcome=${name}]`).setAttribute('d', d);
  }
};
