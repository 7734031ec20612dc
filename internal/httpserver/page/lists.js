// Topics, events, errors, check, configuration and build.

const topicColumns = [
  { title: 'Topic', by: (t) => t.topic, className: 'first', cell: (t) => [el('span', {}, t.topic), (t.warnings ?? []).map((w) => el('span', { class: 'row-warning', 'data-key': w }, icon('warning'), w))] },
  { title: 'Messages/s', className: 'n', by: (t) => t.published_per_second, cell: (t) => count(t.published_per_second) },
  { title: 'Bytes/s', className: 'n', by: (t) => t.bytes_per_second, cell: (t) => bytes(t.bytes_per_second) },
  { title: 'Published', className: 'n', by: (t) => t.published, cell: (t) => count(t.published) },
  { title: 'Bytes', className: 'n', by: (t) => t.bytes, cell: (t) => bytes(t.bytes) },
  { title: 'Refused', className: 'n', by: (t) => t.failed, cell: (t) => (t.failed ? el('b', { class: 'text-critical' }, count(t.failed)) : '0') },
  { title: 'Last', className: 'n', by: (t) => moment(t.last_published), cell: (t) => ago(moment(t.last_published)) },
  { title: 'Partitions', className: 'n', by: (t) => t.partitions, cell: (t) => (t.partitions ? count(t.partitions) + (t.replication_factor ? ` × ${t.replication_factor}` : '') : '–') },
];
const topicSort = { by: 'Topic', down: false };

function showTopics({ topics }) {
  show(view('topics'), topics?.length
    ? table({ name: 'Topics', tall: true, columns: topicColumns, rows: sorted(topics, topicColumns, topicSort), key: (t) => t.topic, sort: topicSort })
    : el('p', { class: 'none' }, 'nothing has been published since the start'));
}

function sortTopics(by) {
  topicSort.down = topicSort.by === by ? !topicSort.down : by !== 'Topic';
  topicSort.by = by;
  showTopics(data.topics);
}

const eventKey = (e) => [e.at, e.lsn, e.event_id, e.topic].join(' ');
const eventColumns = [
  { title: 'Acknowledged', className: 'n', cell: (e) => ago(moment(e.at)) },
  { title: 'Topic', className: 'first', cell: (e) => el('span', {}, e.topic) },
  { title: 'Relation', cell: (e) => e.relation },
  { title: 'Event id', cell: (e) => el('code', {}, e.event_id || '–') },
  { title: 'LSN', className: 'n', cell: (e) => el('code', {}, lsn(e.lsn)) },
  { title: 'After commit', className: 'n', cell: (e) => duration(e.latency_seconds) },
  { title: 'Size', className: 'n', cell: (e) => bytes(e.bytes) },
];

let frozen; // the events as they were when they were paused; undefined: live
let frozenAt;

function showEvents({ events }) {
  const live = events ?? [];
  const shown = frozen ?? live;
  const seen = new Set((frozen ?? []).map(eventKey));
  const newer = frozen ? live.filter((e) => !seen.has(eventKey(e))).length : 0;
  show(view('paused'), frozen ? `paused at ${clockTime(frozenAt)}, ${newer >= 100 ? 'more than 100' : count(newer)} newer` : 'a sample, the newest first, without content');
  show(view('events'), shown.length
    ? table({ name: 'Recent events', tall: true, columns: eventColumns, rows: shown, key: eventKey })
    : el('p', { class: 'none' }, 'nothing has been published since the start'));
}

function pauseEvents(button) {
  frozen = frozen ? undefined : (data.events?.events ?? []);
  frozenAt = now();
  button.setAttribute('aria-pressed', String(Boolean(frozen)));
  button.textContent = frozen ? 'Resume' : 'Pause';
  if (data.events) showEvents(data.events);
}

function showErrors({ errors }) {
  show(view('errors'), errors?.length
    ? el('ul', { class: 'groups' }, errors.map((e) => el('li', { 'data-key': e.reason },
      el('p', { class: 'doing' }, badge('error', e.reason), el('b', {}, `${count(e.count)} ×`), el('span', {}, 'last ', ago(moment(e.last_seen))),
        el('span', {}, 'first ', ago(moment(e.first_seen))), e.class && el('span', {}, e.class)),
      el('p', { class: 'text' }, e.text),
      explained(e))))
    : el('p', { class: 'none' }, icon('ok'), 'no session has ended with an error since the start'));
}

const GRAVITY = ['error', 'warning', 'info', 'ok'];

function showCheck(c) {
  const findings = c.findings ?? [];
  const at = moment(c.at);
  const number = (severity) => findings.filter((f) => f.severity === severity).length;
  const open = findings.filter((f) => f.severity !== 'ok').sort((a, b) => GRAVITY.indexOf(a.severity) - GRAVITY.indexOf(b.severity));
  const passed = findings.filter((f) => f.severity === 'ok');
  show(view('check'),
    el('p', { class: 'doing' },
      at !== undefined && (c.ok ? badge(number('warning') ? 'warning' : 'ok', number('warning') ? 'runs, with warnings' : 'everything is in place') : badge('error', 'something is missing')),
      GRAVITY.filter(number).map((s) => el('span', { 'data-key': s }, s === 'ok' ? `${number(s)} ok` : many(number(s), s, s === 'info' ? s : s + 's'))),
      at !== undefined && el('span', {}, 'looked at ', ago(at)),
      c.running && el('span', {}, 'looking …')),
    open.length > 0 && el('ul', { class: 'groups' }, open.map(finding)),
    passed.length > 0 && el('details', { class: 'sub', 'data-key': 'passed' },
      el('summary', {}, `${passed.length} in order`),
      el('ul', { class: 'lines' }, passed.map((f) => el('li', { 'data-key': f.code + f.subject + f.observed }, icon('ok'), el('code', {}, f.code), ' ', f.subject && f.subject + ': ', f.observed)))));
}

const finding = (f) => el('li', { 'data-key': [f.severity, f.code, f.subject, f.observed].join(' ') },
  el('p', { class: 'doing' }, badge(f.severity), el('b', {}, f.code), f.subject !== f.code && el('span', {}, f.subject)),
  el('p', { class: 'text' }, f.observed, f.required && el('span', { class: 'required' }, ` Needed: ${f.required}`)),
  explained({ wal: f.wal, next: f.fix, runbook: f.docs }));

const configColumns = [
  { title: 'Key', className: 'first', cell: (v) => el('span', {}, el('code', {}, v.key)) },
  { title: 'Value', cell: (v) => el('code', {}, v.toml || '–') },
  { title: 'From', cell: (v) => origin(v.origin) },
];

// origin is without the directories of the file, which stand above the table.
function origin(from) {
  const file = data.config?.file;
  return file && from.startsWith(file + ':') ? file.replace(/^.*[/\\]/, '') + from.slice(file.length) : from;
}

function showConfig({ file, values }) {
  const all = values ?? [];
  const wanted = document.getElementById('filter-keys').value.trim().toLowerCase();
  const withDefaults = document.getElementById('all-keys').checked || wanted !== '';
  const rows = all.filter((v) => (withDefaults || v.origin !== 'default') && v.key.toLowerCase().includes(wanted));
  show(view('config'),
    el('p', { class: 'note' }, (file ? `${file} · ` : 'no file · ') + `${count(rows.length)} of ${many(all.length, 'key')}, secrets masked`),
    rows.length > 0 && table({ name: 'Configuration', tall: true, columns: configColumns, rows, key: (v) => v.key }));
}

function showBuild(b) {
  const started = moment(b.started_at);
  show(view('build'), facts([
    ['version', b.version],
    ['commit', b.commit && el('code', {}, b.commit.slice(0, 12) + (b.modified ? ' + changes' : ''))],
    ['Go', b.go_version],
    ['platform', [b.os, b.arch].filter(Boolean).join('/')],
    ['PostgreSQL', b.server_version],
    ['pid', b.pid && String(b.pid)],
    ['started', started === undefined ? undefined : ago(started)],
  ]));
}

function showWho() {
  const slot = data.slot?.slot?.name;
  const server = data.build?.server_version ?? data.slot?.server?.version;
  const started = moment(data.build?.started_at);
  show(view('who'), slot && el('span', {}, 'slot ', el('b', {}, slot)), server && el('span', {}, `PostgreSQL ${server}`),
    started !== undefined && el('span', {}, 'up ', ago(started, '')));
}
