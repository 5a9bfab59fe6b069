// Requests per second by outcome over the last five minutes: one stacked column per second.

import { $, el, say, svg } from './dom.js';
import { rate } from './format.js';

export const outcomes = [
  ['allowed', 'allowed'], ['uncounted', 'uncounted'], ['shadow', 'would be refused'], ['refused', 'refused'], ['banned', 'banned'], ['error', 'no decision'],
];

const most = 300;
let seconds = [];

export const begin = () => {
  $('legend').append(...outcomes.map(([name, text]) => el('li', { 'data-outcome': name }, text)));
  $('flow').setAttribute('viewBox', `0 0 ${most} 100`);
  $('flow').setAttribute('preserveAspectRatio', 'none');
  $('flow').append(
    svg('pattern', { id: 'stripes', width: 4, height: 5, patternUnits: 'userSpaceOnUse' },
      svg('rect', { width: 4, height: 5, class: 'pale' }), svg('rect', { width: 4, height: 3 })),
    svg('path', { class: 'grid', d: `M0 50H${most}M0 25H${most}M0 75H${most}` }),
    ...outcomes.map(([name]) => svg('path', { 'data-outcome': name })),
  );
};

export const history = (all) => { seconds = all.slice(-most); draw(); };

export const add = (second) => { seconds = [...seconds, second].slice(-most); draw(); };

// ceiling returns a round number of at least n.
const ceiling = (n) => {
  const ten = 10 ** Math.floor(Math.log10(Math.max(n, 1)));
  return [1, 2, 4, 5, 8, 10].map((f) => f * ten).find((c) => c >= n);
};

const draw = () => {
  const sums = seconds.map((s) => outcomes.reduce((sum, [name]) => sum + s[name], 0));
  const top = ceiling(Math.max(4, ...sums));
  say($('flow-top'), `${rate(top)} /s`);
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
