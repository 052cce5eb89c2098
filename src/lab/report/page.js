// Draws the plots of a report from the figures in the element #plots. The tables beside them hold the
// same figures; nothing is computed here that a reader can't find there.
(() => {
  'use strict';
  const plots = JSON.parse(document.getElementById('plots').textContent);
  const charts = [];
  let colours = {};

  const readColours = () => {
    const style = getComputedStyle(document.documentElement);
    for (const name of ['paper', 'ink', 'soft', 'line', 'mark', 'accent', 'band']) {
      colours[name] = style.getPropertyValue('--' + name).trim();
    }
  };
  const short = (text, length) => text.length > length ? text.slice(0, length - 1) + '…' : text;
  const axis = (title, more) => Object.assign({
    title: { display: true, text: title, color: colours.soft },
    ticks: { color: colours.soft, includeBounds: false }, grid: { color: colours.line, borderColor: colours.line },
  }, more);
  const options = (x, y, more) => Object.assign({
    responsive: true, maintainAspectRatio: false, animation: false,
    scales: { x, y },
    plugins: { legend: { labels: { color: colours.ink, usePointStyle: true, boxHeight: 7 } } },
  }, more);
  // A whole number on an axis is a place; between them is nothing.
  const places = (value) => Number.isInteger(value) ? String(value) : '';

  // Lines from low to high through each point, along x or y; an end that is null runs to the edge.
  const bars = (ends, along) => ({
    id: 'bars',
    beforeDatasetsDraw(chart) {
      const { ctx, chartArea: area, scales } = chart;
      const scale = scales[along], other = scales[along === 'x' ? 'y' : 'x'];
      const [start, end] = along === 'x' ? [area.left, area.right] : [area.bottom, area.top];
      ctx.save();
      ctx.beginPath();
      ctx.rect(area.left, area.top, area.right - area.left, area.bottom - area.top);
      ctx.clip();
      ctx.strokeStyle = colours.mark;
      ctx.lineWidth = 2;
      for (const { at, low, high } of ends) {
        const across = other.getPixelForValue(at);
        const from = low === null ? start : scale.getPixelForValue(low);
        const to = high === null ? end : scale.getPixelForValue(high);
        ctx.beginPath();
        const line = (a, b, c, d) => along === 'x' ? (ctx.moveTo(a, b), ctx.lineTo(c, d)) : (ctx.moveTo(b, a), ctx.lineTo(d, c));
        line(from, across, to, across);
        if (low !== null) line(from, across - 5, from, across + 5);
        if (high !== null) line(to, across - 5, to, across + 5);
        ctx.stroke();
      }
      ctx.restore();
    },
  });
  // A band from low to high along x, and a line at 0.
  const floor = (width) => ({
    id: 'floor',
    beforeDatasetsDraw(chart) {
      const { ctx, chartArea: area, scales } = chart;
      const at = (x) => Math.min(area.right, Math.max(area.left, scales.x.getPixelForValue(x)));
      ctx.save();
      if (width !== null) {
        ctx.fillStyle = colours.band;
        ctx.fillRect(at(-width), area.top, at(width) - at(-width), area.bottom - area.top);
      }
      ctx.strokeStyle = colours.soft;
      ctx.beginPath();
      ctx.moveTo(at(0), area.top);
      ctx.lineTo(at(0), area.bottom);
      ctx.stroke();
      ctx.restore();
    },
  });

  // Labels without what all of them say, under the numbers that they have in the table.
  const namesOf = (effects) => {
    const parts = effects.map((e) => e.label.split(', '));
    if (parts.length < 2) return effects.map((e) => e.label);
    return parts.map((own, i) => {
      const rest = own.filter((part) => !parts.every((other) => other.includes(part)));
      return `${i + 1}  ${(rest.length ? rest : own).join(', ')}`;
    });
  };

  const draw = {
    effects(plot) {
      const shown = plot.effects.slice(0, 60), names = namesOf(shown);
      const known = shown.flatMap((e) => [e.percent, e.low, e.high, ...e.values]).filter((v) => v !== null).concat(0);
      if (plot.provable_percent !== null) known.push(plot.provable_percent, -plot.provable_percent);
      const low = Math.min(...known), high = Math.max(...known), room = (high - low || 1) * 0.06;
      const values = shown.flatMap((e, i) => e.values.map((x) => ({ x, y: i + 0.26 })));
      const datasets = [{ label: 'estimate and interval', data: shown.map((e, i) => ({ x: e.percent, y: i })),
        backgroundColor: colours.mark, borderColor: colours.mark, pointRadius: 5, pointStyle: 'rectRot' }];
      if (values.length) datasets.push({ label: 'single values', data: values, pointRadius: 2.5, backgroundColor: colours.soft, borderColor: colours.soft });
      return { type: 'scatter', data: { datasets },
        plugins: [floor(plot.provable_percent), bars(shown.map((e, i) => ({ at: i, low: e.low, high: e.high })), 'x')],
        options: options(axis('tokens a second against the control, %', { min: low - room, max: high + room }),
          axis('', { min: -0.6, max: shown.length - 0.4, reverse: true, grid: { display: false },
            ticks: { color: colours.ink, autoSkip: false, stepSize: 1, callback: (v) => Number.isInteger(v) && shown[v] ? short(names[v], 52) : '' } }),
          { plugins: { legend: { labels: { color: colours.ink, usePointStyle: true, boxHeight: 7 } },
            tooltip: { callbacks: { label: (c) => `${short(shown[Math.round(c.parsed.y)]?.label ?? '', 60)}: ${c.parsed.x.toFixed(3)} %` } } } }) };
    },
    series(plot) {
      const at = (keep) => plot.values.flatMap((y, i) => keep(i) ? [{ x: i + 1, y }] : []);
      const datasets = [
        { label: 'in time', data: at((i) => !plot.outlier[i]), pointRadius: 4, backgroundColor: colours.mark, borderColor: colours.mark },
        { label: 'median between change points', type: 'line', pointRadius: 0, borderWidth: 2, borderColor: colours.accent, backgroundColor: colours.accent, spanGaps: false,
          data: plot.levels.flatMap((l) => [{ x: l.first + 0.6, y: l.value }, { x: l.last + 1.4, y: l.value }, { x: l.last + 1.4, y: NaN }]) },
      ];
      const out = at((i) => plot.outlier[i]);
      if (out.length) datasets.push({ label: 'far out (kept)', data: out, pointRadius: 5, pointStyle: 'triangle', backgroundColor: colours.paper, borderColor: colours.accent, borderWidth: 2 });
      return { type: 'scatter', data: { datasets },
        options: options(axis('place in time', { min: 0.5, max: plot.values.length + 0.5, ticks: { color: colours.soft, precision: 0, includeBounds: false, callback: places } }), axis(plot.unit),
          { plugins: { legend: { labels: { color: colours.ink, usePointStyle: true, boxHeight: 7 } },
            tooltip: { callbacks: { label: (c) => `${short(plot.names[Math.round(c.parsed.x) - 1] ?? '', 60)}: ${c.parsed.y.toFixed(3)}` } } } }) };
    },
    positions(plot) {
      const tints = [colours.mark, colours.accent, colours.soft, colours.ink];
      const length = Math.max(...plot.traces.map((t) => t.shares.length));
      return { type: 'bar',
        data: { labels: Array.from({ length }, (_, i) => String(i + 1)),
          datasets: plot.traces.map((t, i) => ({ label: short(t.label, 60), data: t.shares, backgroundColor: tints[i % tints.length] })) },
        options: options(axis('place in the draft'), axis('share of verify steps that accepted it', { min: 0, max: 1 })) };
    },
    ladder(plot) {
      const values = plot.rungs.flatMap((r) => [r.value - plot.half_width, r.value + plot.half_width]).concat(plot.others.map((o) => o[1]));
      const low = Math.min(...values), high = Math.max(...values), room = (high - low || 1) * 0.06;
      const xs = plot.rungs.map((r) => r.x).concat(plot.others.map((o) => o[0]));
      const datasets = [{ label: 'claimed', data: plot.rungs.map((r) => ({ x: r.x, y: r.value })), showLine: true, borderWidth: 1.5,
        pointRadius: 5, pointStyle: 'rectRot', backgroundColor: colours.accent, borderColor: colours.accent }];
      if (plot.others.length) datasets.push({ label: 'all rows', data: plot.others.map(([x, y]) => ({ x, y })), pointRadius: 2.5, backgroundColor: colours.soft, borderColor: colours.soft });
      return { type: 'scatter', data: { datasets },
        plugins: plot.half_width > 0 ? [bars(plot.rungs.map((r) => ({ at: r.x, low: r.value - plot.half_width, high: r.value + plot.half_width })), 'y')] : [],
        options: options(axis(plot.others.length ? 'row, in time' : 'claim', { min: Math.min(...xs) - 0.5, max: Math.max(...xs) + 0.5, ticks: { color: colours.soft, precision: 0, includeBounds: false, callback: places } }),
          axis(plot.unit, { min: low - room, max: high + room }),
          { plugins: { legend: { labels: { color: colours.ink, usePointStyle: true, boxHeight: 7 } },
            tooltip: { callbacks: { label: (c) => `${c.datasetIndex === 0 ? short(plot.rungs[c.dataIndex].label, 60) + ': ' : ''}${c.parsed.y.toFixed(3)}` } } } }) };
    },
  };

  const drawAll = () => {
    while (charts.length) charts.pop().destroy();
    readColours();
    Chart.defaults.font.family = 'system-ui, sans-serif';
    for (const canvas of document.querySelectorAll('canvas[data-section]')) {
      const plot = plots[Number(canvas.dataset.section)];
      charts.push(new Chart(canvas, draw[plot.kind](plot)));
    }
    document.documentElement.dataset.drawn = String(charts.length);
  };

  drawAll();
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
  addEventListener('beforeprint', () => { document.documentElement.dataset.print = ''; drawAll(); });
  addEventListener('afterprint', () => { delete document.documentElement.dataset.print; drawAll(); });
})();
