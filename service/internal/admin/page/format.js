// Numbers and times for display.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export const count = (n) => whole.format(n);

export const many = (n, what) => `${count(n)} ${what}${n === 1 ? '' : 's'}`;

// rate keeps one decimal where it is significant.
export const rate = (n) => (n === 0 ? '0' : n < 0.05 ? '<0.1' : n < 9.95 ? n.toFixed(1) : whole.format(n));

export const percent = (part, all) => (all <= 0 ? '' : part === 0 ? '0 %' : part / all < 0.001 ? '<0.1 %' : `${(100 * part / all).toFixed(1)} %`);

const two = (n) => String(n).padStart(2, '0');

// span formats seconds, rounded up, so that a unit shown as free by then is free.
export const span = (s) => {
  if (s <= 0) return 'now';
  if (s < 10) return `${(Math.ceil(s * 10) / 10).toFixed(1)} s`;
  s = Math.ceil(s);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${two(Math.floor(s % 3600 / 60))} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
};

export const clock = (ms, seconds = true) => {
  const t = new Date(ms);
  return `${two(t.getHours())}:${two(t.getMinutes())}${seconds ? `:${two(t.getSeconds())}` : ''}`;
};

export const day = (ms) => {
  const t = new Date(ms);
  return `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
};

// moment formats a time of day, preceded by the date unless it is today.
export const moment = (ms) => (day(ms) === day(Date.now()) ? clock(ms) : `${day(ms)} ${clock(ms)}`);
