'use strict';
// Draws the charts of the report from the numbers in #data. Names from logs become text of nodes, never HTML.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const number = (n) => n.toLocaleString('en-US', { maximumFractionDigits: 2 });
  const count = (n, one) => `${number(n)} ${n === 1 ? one : one + 's'}`;
  const percent = (share) => `${(100 * share).toFixed(2)}%`;
  const short = (n) => n.toLocaleString('en-US', { notation: 'compact', maximumFractionDigits: 1 });
  const clock = (ms) => {
    const text = new Date(ms).toISOString();
    return `${text.slice(0, 10)} ${text.slice(11, 19)}`;
  };
  const one = data.noun.replace(/s$/, '');

  // tip makes the contents of a tooltip: a title and lines.
  const tip = (title, lines) => {
    const box = document.createElement('div');
    box.className = 'tip';
    const head = document.createElement('b');
    head.textContent = title;
    box.append(head);
    for (const text of lines) {
      const line = document.createElement('div');
      line.textContent = text;
      box.append(line);
    }
    return box;
  };

  // common is what all charts share.
  const common = () => ({
    animation: false,
    useUTC: true,
    textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: color('text') },
    tooltip: { confine: true, padding: 0, borderWidth: 0, backgroundColor: 'transparent', extraCssText: 'box-shadow: none' },
  });
  const axis = (name, more) => ({
    name, nameLocation: 'middle', nameTextStyle: { color: color('soft'), fontSize: 12 },
    axisLabel: { color: color('soft'), hideOverlap: true, ...more.label },
    axisLine: { show: true, lineStyle: { color: color('line') } }, axisTick: { lineStyle: { color: color('line') } },
    splitLine: { lineStyle: { color: color('line') } }, minorSplitLine: { show: false },
    ...more.axis,
  });
  const legend = (names) => ({
    type: 'scroll', top: 0, left: 8, right: 8, textStyle: { color: color('text') }, inactiveColor: color('soft'), data: names,
    pageTextStyle: { color: color('soft') }, pageIconColor: color('text'), pageIconInactiveColor: color('line'),
  });
  const pointer = () => ({ type: 'line', lineStyle: { color: color('soft') }, label: { show: false } });
  const grid = { left: 12, right: 18, top: 40, bottom: 10, outerBoundsMode: 'same', outerBoundsContain: 'all' };

  // before returns the last item whose key is not above x.
  const before = (items, x, key) => {
    let low = 0, high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (key(items[middle]) <= x) low = middle + 1; else high = middle;
    }
    return items[Math.max(0, low - 1)];
  };

  // levels returns how many lines the label of each mark is raised, so that none is over another. Marks are points in pixels.
  const levels = (marks) => {
    const placed = [];
    return marks.map(({ x, y, half }) => {
      let level = 0;
      while (placed.some((p) => Math.abs(p.x - x) < p.half + half && Math.abs(p.y - y - 15 * level) < 15)) level++;
      placed.push({ x, y: y + 15 * level, half });
      return level;
    });
  };

  // round returns the steps of an axis of time: the shortest of a round length of which at most so many are in a span.
  const round = (span, most) => [1, 5, 15, 60, 300, 900, 3600, 10800, 21600, 43200, 86400, 172800, 604800, 2592000].map((s) => 1000 * s).find((s) => span / s <= most) ?? span;
  // moment writes a round time, as finely as the steps are.
  const moment = (ms, step) => clock(ms).slice(step < 60e3 ? 11 : ms % 864e5 === 0 ? 5 : 11, step < 60e3 ? 19 : ms % 864e5 === 0 ? 10 : 16);

  const course = ({ traffic: { start: began, step: nanoseconds, counts: traffic }, refused: tried }) => (width, height) => {
    const start = Date.parse(began), step = nanoseconds / 1e6, refused = tried.slice(0, 6); // as many as there are colors
    const end = start + step * traffic.length, ticks = round(end - start, width / 75);
    const points = (counts) => [...counts.map((n, i) => [start + i * step, n]), [end, counts.at(-1)]];
    const time = (gridIndex, show) => ({
      gridIndex, type: 'time', min: start, max: end, splitLine: { show: true, lineStyle: { color: color('line') } }, axisTick: { show: false },
      axisLine: { lineStyle: { color: color('line') } },
      axisLabel: { show, color: color('soft'), hideOverlap: true, customValues: stops, formatter: (ms) => moment(ms, ticks) },
    });
    const stops = Array.from({ length: Math.floor((end - start) / ticks) + 1 }, (_, i) => Math.ceil(start / ticks) * ticks + i * ticks).filter((ms) => ms <= end);
    const counts = (gridIndex, name) => ({
      ...axis(name, { label: { formatter: short }, axis: { type: 'value', min: 0, minInterval: 1, splitNumber: 3, nameGap: 42 } }), gridIndex,
    });
    const line = (name, counts, grid, i, more) => ({
      name, type: 'line', step: 'end', showSymbol: false, xAxisIndex: grid, yAxisIndex: grid, color: i < 0 ? color('soft') : color(`line${1 + i}`), lineStyle: { width: i < 0 ? 1 : 2 }, data: points(counts), ...more,
    });
    const top = refused.length > 0 ? 24 * Math.ceil((refused.length * 210) / width) + 14 : 14;
    const both = refused.length > 0, tall = both ? (height - top - 48) / 2 : height - top - 30;
    return {
      ...common(),
      axisPointer: { link: [{ xAxisIndex: 'all' }] },
      legend: { ...legend(refused.map((r) => r.candidate)), type: 'plain', show: both },
      grid: both ? [{ left: 60, right: 18, top, height: tall }, { left: 60, right: 18, top: top + tall + 18, height: tall }] : [{ left: 60, right: 18, top, height: tall }],
      xAxis: both ? [time(0, false), time(1, true)] : [time(0, true)],
      yAxis: both ? [counts(0, 'requests'), counts(1, 'refused')] : [counts(0, 'requests')],
      tooltip: {
        ...common().tooltip, trigger: 'axis', axisPointer: { ...pointer(), snap: false },
        formatter: (all) => {
          const i = Math.max(0, Math.min(traffic.length - 1, Math.floor((all[0].axisValue - start) / step)));
          return tip(`${clock(start + i * step)} UTC`, [count(traffic[i], 'request'), ...refused.map((r) => `${number(r.counts[i])} refused by ${r.candidate}`)]);
        },
      },
      series: [line('all', traffic, 0, -1, { areaStyle: { opacity: 0.25 } }), ...refused.map((r, i) => line(r.candidate, r.counts, 1, i))],
    };
  };

  const curve = ({ lines, tried: unsorted }) => (width) => {
    const tried = unsorted.slice(0, 24).toSorted((a, b) => a.units - b.units);
    const name = (l) => `in any ${l.window}`;
    const largest = Math.max(2, ...lines.map((l) => l.points.at(-1).units), ...tried.map((m) => m.units));
    const ten = 10 ** Math.floor(Math.log10(largest)), most = ten * [1, 2, 5, 10].find((f) => f * ten >= largest);
    // The scale of shares begins below the smallest there is: its lowest line stands for none.
    const smallest = 100 * Math.min(1, ...lines.flatMap((l) => l.points.map((p) => p.share).filter((s) => s > 0)));
    const none = 10 ** (Math.ceil(Math.log10(smallest / 2)) - 1);
    const point = (p) => [p.units, Math.max(none, 100 * p.share)];
    const wide = width - 90, across = (m) => (wide * Math.log(m.units)) / Math.log(most);
    const up = (m) => (240 * Math.log(point(m)[1] / none)) / Math.log(100 / none);
    const level = levels(tried.map((m) => ({ x: Math.min(across(m), wide - 4 * m.limit.length), y: up(m), half: 4 * m.limit.length })));
    return {
      ...common(),
      legend: legend([...lines.map(name), ...(tried.length ? ['tried'] : [])]),
      grid,
      xAxis: axis('limit, units (logarithmic)', { label: { formatter: short }, axis: { type: 'log', min: 1, max: most, nameGap: 28 } }),
      yAxis: axis(`${data.noun} affected (logarithmic)`, { label: { formatter: (n) => (n < 1.01 * none ? 'none' : `${+n.toPrecision(1)}%`) }, axis: { type: 'log', min: none, max: 100, nameGap: 50 } }),
      tooltip: {
        ...common().tooltip, trigger: 'axis', axisPointer: { ...pointer(), snap: false },
        formatter: (all) => {
          const units = Math.max(1, Math.round(all[0].axisValue));
          return tip(`a limit of ${count(units, 'unit')}`, [
            ...lines.map((l) => {
              const p = before(l.points, units, (q) => q.units);
              return `${name(l)}: ${count(p.clients_affected, one)} affected (${percent(p.share)})`;
            }),
            ...tried.filter((m) => Math.abs(Math.log(m.units / units)) < 0.02).map((m) => `tried: ${m.limit}`)]);
        },
      },
      series: [
        ...lines.map((l, i) => ({
          name: name(l), type: 'line', step: 'end', showSymbol: false, color: color(`line${1 + i % 6}`), lineStyle: { width: 2 },
          data: [...l.points.map(point), [most, none]],
        })),
        {
          name: 'tried', type: 'scatter', symbol: 'diamond', symbolSize: 13, color: color('text'), z: 5,
          data: tried.map((m, i) => ({ value: point(m), name: m.limit, label: { distance: 8 + 15 * level[i], offset: [Math.min(0, wide - across(m) - 4 * m.limit.length), 0] }, itemStyle: { color: color(`line${1 + m.line % 6}`), borderColor: color('text'), borderWidth: 1.5 } })),
          label: { show: true, formatter: (p) => p.name, position: 'top', color: color('text'), textBorderColor: color('card'), textBorderWidth: 3 },
        },
      ],
    };
  };

  const drawings = [];
  const add = (id, options) => {
    const place = document.getElementById(id);
    if (place) drawings.push({ chart: echarts.init(place, null, { renderer: 'svg' }), place, options });
  };
  add('course', course(data));
  if (data.curve) add('curve', curve(data.curve));

  const draw = (d) => {
    d.chart.resize();
    d.chart.setOption(d.options(d.place.clientWidth, d.place.clientHeight), { notMerge: true });
  };
  const all = () => drawings.forEach(draw);
  const sized = new ResizeObserver((entries) => entries.forEach(({ target }) => draw(drawings.find((d) => d.place === target))));
  drawings.forEach(({ place }) => sized.observe(place));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', all);
  addEventListener('beforeprint', all);
  addEventListener('afterprint', all);

  // A table that is wider than the page says so.
  const wide = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    const more = target.classList.toggle('more', target.scrollWidth > target.clientWidth + 1);
    if (more) target.tabIndex = 0; else target.removeAttribute('tabindex'); // it is scrolled by keyboard too
  }));
  document.querySelectorAll('.wide').forEach((table) => wide.observe(table));
  document.documentElement.dataset.drawn = drawings.length;
})();
