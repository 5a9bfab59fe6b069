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
    return `${text.slice(0, 10)} ${text.slice(11, 19)}${text.slice(19, 23) === '.000' ? '' : text.slice(19, 23)}`;
  };
  const isolated = (name) => `\u2068${name}\u2069`; // the direction of a name's text ends with it
  // middle leaves out the middle of a name that is longer than a number of characters: many differ only at their ends.
  const middle = (name, most) => {
    const all = [...name], half = Math.floor((most - 1) / 2);
    return all.length <= most ? name : `${all.slice(0, half).join('')}…${all.slice(-half).join('')}`;
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

  const curve = ({ lines, tried: unsorted }) => (width) => {
    const tried = unsorted.toSorted((a, b) => a.units - b.units);
    const name = (l) => `in any ${l.window}`;
    const most = Math.max(2, ...lines.map((l) => l.points.at(-1).units), ...tried.map((m) => m.units));
    const point = (p) => [p.units, 100 * p.share];
    const wide = width - 90, across = (m) => (wide * Math.log(m.units)) / Math.log(1.1 * most);
    const highest = 1.1 * Math.max(...lines.map((l) => l.points[0].share), 0.01);
    const level = levels(tried.map((m) => ({ x: Math.min(across(m), wide - 4 * m.limit.length), y: (240 * m.share) / highest, half: 4 * m.limit.length })));
    return {
      ...common(),
      legend: legend([...lines.map(name), ...(tried.length ? ['tried'] : [])]),
      grid,
      xAxis: axis('limit, units (logarithmic)', { label: { formatter: short }, axis: { type: 'log', min: 1, max: 1.1 * most, nameGap: 28 } }),
      yAxis: axis(`${data.noun} affected, %`, { label: { formatter: (n) => `${number(n)}%` }, axis: { type: 'value', min: 0, nameGap: 46 } }),
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
          data: [...l.points.map(point), [1.1 * most, 100 * l.points.at(-1).share]],
        })),
        {
          name: 'tried', type: 'scatter', symbol: 'diamond', symbolSize: 13, color: color('text'), z: 5,
          data: tried.map((m, i) => ({ value: point(m), name: m.limit, label: { distance: 8 + 15 * level[i], offset: [Math.min(0, wide - across(m) - 4 * m.limit.length), 0] }, itemStyle: { color: color(`line${1 + m.line % 6}`), borderColor: color('text'), borderWidth: 1.5 } })),
          label: { show: true, formatter: (p) => p.name, position: 'top', color: color('text'), textBorderColor: color('card'), textBorderWidth: 3 },
        },
      ],
    };
  };

  const heat = ({ names, start, step, steps, cells, most }) => (width) => {
    const label = Math.min(300, Math.max(90, 0.36 * width));
    const at = (i) => start + i * step;
    const span = step * steps, day = 864e5;
    const fine = (text) => (step < 6e4 ? text : text.slice(0, 19)); // no milliseconds where a step is long
    const [first, last] = span > 14 * day ? [0, 10] : span > day ? [5, 16] : span > 3600e3 ? [11, 16] : [11, step < 1000 ? 23 : 19];
    const time = (i) => clock(at(i)).slice(first, last);
    return {
      ...common(),
      grid: { left: 12, right: 18, top: 8, bottom: 64, outerBoundsMode: 'same', outerBoundsContain: 'all' },
      xAxis: axis('', {
        label: { formatter: (_, i) => time(i), interval: Math.max(0, Math.ceil(steps / Math.max(1, (width - label) / 95)) - 1) },
        axis: { type: 'category', data: Array.from({ length: steps }, (_, i) => i), splitLine: { show: false }, axisTick: { show: false } },
      }),
      yAxis: axis('', {
        label: { interval: 0, hideOverlap: false, width: label, overflow: 'truncate', color: color('text'), formatter: (name) => isolated(middle(name, Math.floor(label / 7))) },
        axis: { type: 'category', inverse: true, data: names.map((name, i) => ({ value: name || `(no name ${i + 1})` })), splitLine: { show: false }, axisTick: { show: false } },
      }),
      visualMap: {
        type: 'continuous', dimension: 3, min: 0, max: Math.max(1e-9, Math.log(most)), calculable: width > 500, orient: 'horizontal', left: 'center', bottom: 0, itemHeight: Math.min(240, width / 3), itemWidth: 14,
        inRange: { color: [color('heat1'), color('heat2'), color('heat3')] }, text: [count(most, 'unit'), '1'], textStyle: { color: color('text') },
        formatter: (n) => number(Math.round(Math.exp(n))),
      },
      tooltip: {
        ...common().tooltip,
        formatter: ({ value: [i, j, units] }) => tip(names[j], [`${count(units, 'unit')} from ${fine(clock(at(i)))}`, `to ${fine(clock(at(i + 1)))} UTC`]),
      },
      series: [{ type: 'heatmap', data: cells.map(([i, j, units]) => [i, j, units, Math.log(units)]), emphasis: { itemStyle: { borderColor: color('text'), borderWidth: 1.5 } } }],
    };
  };

  const drawings = [];
  const add = (id, options) => {
    const place = document.getElementById(id);
    if (place) drawings.push({ chart: echarts.init(place, null, { renderer: 'svg' }), place, options });
  };
  if (data.curve) add('curve', curve(data.curve));
  if (data.heat) {
    document.getElementById('heat').style.setProperty('--tall', `${100 + 22 * data.heat.names.length}px`);
    add('heat', heat(data.heat));
  }

  const draw = (d) => {
    d.chart.resize();
    d.chart.setOption(d.options(d.place.clientWidth), { notMerge: true });
  };
  const all = () => drawings.forEach(draw);
  const sized = new ResizeObserver((entries) => entries.forEach(({ target }) => draw(drawings.find((d) => d.place === target))));
  drawings.forEach(({ place }) => sized.observe(place));
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', all);
  addEventListener('beforeprint', all);
  addEventListener('afterprint', all);

  // A table that is wider than the page says so.
  const wide = new ResizeObserver((entries) => entries.forEach(({ target }) => target.classList.toggle('more', target.scrollWidth > target.clientWidth + 1)));
  document.querySelectorAll('.wide').forEach((table) => wide.observe(table));
  document.documentElement.dataset.drawn = drawings.length;
})();
