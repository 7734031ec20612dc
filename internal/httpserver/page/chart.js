// Small charts of the last hour, drawn as SVG.

const WIDTH = 360;
const HEIGHT = 56;

// nice is the next round number, so that the scale does not move with every sample.
function nice(max, binary) {
  if (!(max > 0)) return binary ? 1024 : 1;
  const base = binary ? 1024 ** Math.floor(Math.log(max) / Math.log(1024)) : 1;
  const rest = max / base;
  const power = 10 ** Math.floor(Math.log10(rest));
  for (const step of [1, 1.5, 2, 3, 5, 7.5, 10]) if (rest <= step * power) return step * power * base;
  return 10 * power * base;
}

// ordinary is the highest value, without the few that stand far above all others: they would flatten everything else.
function ordinary(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const peak = sorted.at(-1) ?? 0;
  const most = sorted[Math.floor(0.97 * (sorted.length - 1))] ?? 0;
  return most > 0 && peak > 4 * most ? 1.5 * most : peak;
}

// path joins neighbouring values; where one is absent the line breaks.
function path(points) {
  let d = '';
  let joined = false;
  for (const [x, y] of points) {
    if (y === undefined) {
      joined = false;
      continue;
    }
    // h0 gives a value without neighbours a dot.
    d += `${joined ? 'L' : 'M'}${x.toFixed(1)} ${y.toFixed(1)}${joined ? '' : 'h0'}`;
    joined = true;
  }
  return d;
}

// area closes each run of values to the base line.
function area(points) {
  let d = '';
  let run = [];
  const close = () => {
    if (run.length > 1) {
      d += `M${run[0][0].toFixed(1)} ${HEIGHT}` + run.map(([x, y]) => `L${x.toFixed(1)} ${y.toFixed(1)}`).join('') + `L${run.at(-1)[0].toFixed(1)} ${HEIGHT}Z`;
    }
    run = [];
  };
  for (const p of points) {
    if (p[1] === undefined) close();
    else run.push(p);
  }
  close();
  return d;
}

// chart draws spec = {title, binary, write, limit, series: [{name, of, kind}]} of samples, from the time `from` on, with a cursor at a sample.
function chart(spec, samples, from, to, cursor) {
  const values = spec.series.map((s) => samples.map((sample) => (isNumber(sample[s.of]) ? sample[s.of] : undefined)));
  const peak = Math.max(0, ...values.map((of) => ordinary(of.filter(isNumber))));
  // The limit is drawn once it is in sight: a scale up to a far limit would hide everything else.
  const limit = spec.limit && spec.limit < 4 * peak ? spec.limit : undefined;
  const top = nice(Math.max(peak, limit ?? 0), spec.binary);
  const x = (sample) => ((moment(sample.at) - from) / (to - from)) * WIDTH;
  const y = (value) => (value === undefined ? undefined : HEIGHT - Math.min(value / top, 1) * (HEIGHT - 3));
  const lines = values.map((of) => samples.map((sample, i) => [x(sample), y(of[i])]));
  const beyond = values.flatMap((of) => of.map((value, i) => [i, value]).filter(([, value]) => value > top));
  const at = cursor ?? samples.length - 1;
  const read = (i) => (isNumber(values[i][at]) ? spec.write(values[i][at]) : '–');
  const all = (i) => values[i].filter(isNumber);
  const label = `${spec.title}, last hour. ` + spec.series.map((s, i) => (all(i).length
    ? `${s.name}: ${read(i)}, lowest ${spec.write(Math.min(...all(i)))}, highest ${spec.write(Math.max(...all(i)))}`
    : `${s.name}: not known`)).join('. ');

  return el('figure', { class: 'chart', 'data-key': spec.title },
    el('figcaption', {}, el('span', { class: 'title' }, spec.title),
      spec.series.map((s, i) => el('span', { class: 'value' }, el('i', { class: s.kind, 'aria-hidden': 'true' }), spec.series.length > 1 && s.name + ' ', el('b', {}, read(i))))),
    el('div', { class: 'plot', tabindex: '0', role: 'img', 'aria-label': label },
      svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        svg('path', { class: 'grid', d: `M0 ${HEIGHT / 2}H${WIDTH}` }),
        svg('path', { class: 'area ' + spec.series[0].kind, d: area(lines[0]) }),
        limit && svg('path', { class: 'limit', d: `M0 ${y(limit).toFixed(1)}H${WIDTH}` }),
        lines.map((points, i) => svg('path', { class: 'line ' + spec.series[i].kind, d: path(points) })),
        beyond.length > 0 && svg('path', { class: 'beyond', d: beyond.map(([i]) => `M${(x(samples[i]) - 3).toFixed(1)} 5l3 -5l3 5z`).join('') }),
        cursor !== undefined && samples[cursor] && svg('path', { class: 'cursor', d: `M${x(samples[cursor]).toFixed(1)} 0V${HEIGHT}` })),
      el('span', { class: 'top-value' }, spec.write(top), beyond.length > 0 && el('b', {}, ` ▲ ${spec.write(Math.max(...beyond.map(([, value]) => value)))}`)),
      limit && el('span', { class: 'limit-value' }, `limit ${spec.write(limit)}`)));
}
