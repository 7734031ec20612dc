// The charts of the last hour. One cursor runs through all of them: the same moment everywhere.

let cursor; // index of a sample; undefined: the newest

const MIN_SPAN = 5 * 60e3; // a relay that has just started is not shown as a line in a corner

function showHistory(h) {
  const samples = h.samples ?? [];
  if (!samples.length) {
    show(view('history'), el('p', { class: 'none' }, `the first sample comes ${duration(h.interval_seconds)} after the start`));
    return;
  }
  if (cursor >= samples.length) cursor = undefined;
  const to = moment(samples.at(-1).at);
  const from = Math.min(moment(samples[0].at), to - MIN_SPAN);
  const limit = data.slot?.limit?.effective;
  const charts = [
    { title: 'Published', write: (n) => count(n) + '/s', series: [{ name: 'messages', of: 'published_per_second', kind: 'a' }, { name: 'failed', of: 'failed_per_second', kind: 'bad' }] },
    { title: 'Commit to acknowledgement', write: duration, series: [{ name: 'p50', of: 'latency_p50_seconds', kind: 'a' }, { name: 'p99', of: 'latency_p99_seconds', kind: 'b' }] },
    { title: 'Lag', binary: true, write: bytes, series: [{ name: 'lag', of: 'lag_bytes', kind: 'a' }] },
    { title: 'Retained WAL', binary: true, write: bytes, limit, series: [{ name: 'retained', of: 'retained_bytes', kind: 'a' }] },
    { title: 'WAL', binary: true, write: perSecond, series: [{ name: 'written', of: 'wal_bytes_per_second', kind: 'a' }, { name: 'drained', of: 'drain_bytes_per_second', kind: 'b' }] },
  ];
  const at = moment(samples[cursor ?? samples.length - 1].at);
  show(view('history'),
    el('div', { class: 'charts' }, charts.map((spec) => chart(spec, samples, from, to, cursor))),
    el('p', { class: 'axis' }, el('span', {}, duration(Math.round((to - from) / 60e3) * 60) + ' ago'),
      el('span', { class: 'at' }, cursor === undefined ? '' : `at ${clockTime(at)}`), el('span', {}, 'now')));
}

// moveCursor puts the cursor on the sample at a part, 0 to 1, of the width; undefined: away.
function moveCursor(part) {
  const samples = data.history?.samples;
  if (!samples?.length) return;
  let found;
  if (part !== undefined) {
    const to = moment(samples.at(-1).at);
    const from = Math.min(moment(samples[0].at), to - MIN_SPAN);
    const at = from + part * (to - from);
    found = samples.reduce((best, s, i) => (Math.abs(moment(s.at) - at) < Math.abs(moment(samples[best].at) - at) ? i : best), 0);
  }
  if (found === cursor) return;
  cursor = found;
  showHistory(data.history);
}

// stepCursor moves it by samples, for the keyboard.
function stepCursor(by) {
  const length = data.history?.samples?.length ?? 0;
  if (!length) return;
  cursor = Math.max(0, Math.min(length - 1, (cursor ?? length - 1) + by));
  showHistory(data.history);
}

function listenToCharts(section) {
  section.addEventListener('pointermove', (e) => {
    const plot = e.target.closest?.('.plot');
    if (!plot) return;
    const box = plot.getBoundingClientRect();
    moveCursor((e.clientX - box.left) / box.width);
  });
  section.addEventListener('pointerleave', () => moveCursor(undefined));
  section.addEventListener('focusout', () => moveCursor(undefined));
  section.addEventListener('keydown', (e) => {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30, Home: -Infinity, End: Infinity }[e.key];
    if (by === undefined || !e.target.closest?.('.plot')) return;
    e.preventDefault();
    stepCursor(by);
  });
}
