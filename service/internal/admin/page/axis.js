// The charges of a log on a time axis, and a window that slides over them.
//
//	         window ________________ now
//	               |        ┌───────|──┐                used: the sum of the charges from the window's left edge to now;
//	               |   ┌────┘       |  └───┐            right of now: what remains of it as the window slides on,
//	  .    .  . ___|.__┘.___.__.____|______└_____       with the bookings there, if no further call arrives
//	  charges       ^ leaves next
//
// Times are milliseconds of the store's clock.

import { svg } from './dom.js';
import { clock, count, day } from './format.js';

const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000].map((s) => s * 1000);
const left = 8, right = 8, top = 26, level = 132, lane = 34, height = top + level + lane + 26;

export class Axis {
  constructor(root) {
    this.root = root;
    this.width = 0;
    this.data = null;
    this.parts = {
      band: svg('rect', { class: 'band', y: top, height: level + lane }),
      grid: svg('g', { class: 'ticks' }),
      limit: svg('line', { class: 'limit' }),
      area: svg('path', { class: 'area' }),
      ahead: svg('path', { class: 'ahead' }),
      lane: svg('line', { class: 'base' }),
      marks: svg('g', { class: 'marks' }),
      free: svg('g', { class: 'free' }, svg('line'), svg('text', { y: top - 14 })),
      now: svg('g', { class: 'now' }, svg('line', { y1: top - 6, y2: top + level + lane }), svg('text', { y: top - 14, 'text-anchor': 'middle' }, 'now')),
      cap: svg('text', { class: 'cap', x: left + 4 }),
    };
    root.append(...Object.values(this.parts));
    new ResizeObserver(() => this.fit()).observe(root);
  }

  fit() {
    const width = Math.round(this.root.getBoundingClientRect().width);
    if (width === this.width || width === 0) return;
    this.width = width;
    this.root.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.root.setAttribute('height', height);
    this.frame = null;
    if (this.data && this.at !== undefined) this.draw(this.at, this.parts.now.lastChild.textContent);
  }

  // set takes {entries: [{at, units}], window} or {…, from, until}, the limit's units, and when the next unit is free.
  set(data) {
    this.data = data;
    this.frame = null;
  }

  // pace returns how many redraws per second are worthwhile.
  pace() {
    if (!this.frame || !this.data) return 4;
    const pixels = (this.width - left - right) / (this.frame[1] - this.frame[0]) * 1000; // per second
    return Math.max(1, Math.min(30, 4 * pixels));
  }

  x(t) { return left + (t - this.frame[0]) / (this.frame[1] - this.frame[0]) * (this.width - left - right); }

  // draw draws the window at a time, which is now unless it has another name.
  draw(now, name = 'now') {
    this.at = now;
    this.parts.now.lastChild.textContent = name;
    if (!this.data) return;
    if (this.width === 0) { this.fit(); return; }
    const d = this.data;
    const from = d.window ? now - d.window : d.from;
    if (!this.frame || now > this.frame[2]) this.reframe(now, from);
    const inside = d.entries.filter((e) => e.at > from && e.at <= now);
    const used = inside.reduce((sum, e) => sum + e.units, 0);
    const booked = d.entries.filter((e) => e.at > now && !(e.at > d.until));
    const most = Math.max(d.units, used, 1);
    const y = (n) => (top + level - (level - 8) * n / most).toFixed(1);
    const p = this.parts;

    const end = d.window ? now : d.until;
    attr(p.band, { x: this.x(from), width: Math.max(1, this.x(end) - this.x(from)) });
    attr(p.limit, { x1: left, x2: this.width - right, y1: y(d.units), y2: y(d.units) });
    p.cap.textContent = `limit ${count(d.units)}`;
    attr(p.cap, { y: Number(y(d.units)) + 13 });
    attr(p.now.firstChild, { x1: this.x(now), x2: this.x(now) });
    attr(p.now.lastChild, { x: this.x(now) });

    let sum = 0;
    let path = `M${this.x(from)} ${y(0)}`;
    for (const e of inside) path += `H${this.x(e.at).toFixed(1)}V${y(sum += e.units)}`;
    path += `H${this.x(now).toFixed(1)}`;
    p.area.setAttribute('d', `${path}V${y(0)}Z`);
    path = `M${this.x(now)} ${y(used)}`;
    const changes = [...inside, ...booked].map((e) => [d.window ? e.at + d.window : d.until, -e.units]).concat(booked.map((e) => [e.at, e.units]));
    changes.sort((a, b) => a[0] - b[0] || a[1] - b[1]); // a unit leaves before the one that waited for it comes
    for (const [at, units] of changes) if (at <= this.frame[1]) path += `H${this.x(at).toFixed(1)}V${y(sum += units)}`;
    p.ahead.setAttribute('d', changes.length > 0 ? `${path}H${this.width - right}` : '');

    for (const mark of p.marks.children) {
      mark.classList.toggle('gone', Number(mark.dataset.at) <= from);
      mark.classList.toggle('booked', Number(mark.dataset.at) > now);
    }
    const free = d.free != null && d.free > now && d.free <= this.frame[1] && used > 0;
    p.free.style.display = free ? '' : 'none';
    if (free) {
      const x = this.x(d.free);
      const label = `next unit free ${this.label(Math.ceil(d.free / 1000 - 0.002) * 1000, 1000)}`;
      const room = label.length * 6; // its approximate width
      attr(p.free.firstChild, { x1: x, x2: x, y1: top - 6, y2: top + level });
      attr(p.free.lastChild, { x: Math.max(this.x(now) + 18, Math.min(x - 4, this.width - right - room)) });
      p.free.lastChild.textContent = label;
    }
  }

  reframe(now, from) {
    const d = this.data;
    if (d.window) {
      const q = d.window / 4;
      const begin = Math.floor(from / q) * q;
      this.frame = [begin, begin + 2.3 * d.window, begin + q + d.window];
    } else {
      const whole = d.until - from;
      this.frame = [from - whole * 0.03, d.until + whole * 0.1, d.until];
    }
    const [t0, t1] = this.frame;
    const wide = (this.width - left - right) / (t1 - t0);
    const step = steps.find((s) => s * wide >= (this.width < 500 ? 74 : 100)) ?? steps.at(-1);
    const shift = new Date(t0).getTimezoneOffset() * 60000;
    const base = top + level + lane;
    this.parts.grid.replaceChildren();
    for (let t = Math.ceil((t0 - shift) / step) * step + shift; t <= t1; t += step) {
      const x = this.x(t);
      if (x < 24 || x > this.width - 24) continue;
      this.parts.grid.append(svg('line', { x1: x, x2: x, y1: top, y2: base + 4 }), svg('text', { x, y: base + 18, 'text-anchor': 'middle' }, this.label(t, step)));
    }
    attr(this.parts.lane, { x1: left, x2: this.width - right, y1: top + level, y2: top + level });
    const most = Math.max(...d.entries.map((e) => e.units), 1);
    const slim = Math.max(1.5, Math.min(4, (this.width - left - right) / Math.max(1, d.entries.length) / 3));
    this.parts.marks.replaceChildren(...d.entries.filter((e) => e.at >= t0).map((e) => {
      const h = 6 + (lane - 10) * e.units / most;
      return svg('rect', { x: this.x(e.at) - slim, y: base - h, width: slim, height: h, 'data-at': e.at },
        svg('title', {}, `${count(e.units)} at ${clock(e.at)}`));
    }));
  }

  label(t, step) {
    if (step >= 86400000) return day(t).slice(5);
    return clock(t, step < 60000);
  }
}

const attr = (node, props) => {
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, typeof value === 'number' ? value.toFixed(1) : value);
};
