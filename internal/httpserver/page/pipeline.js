// The way of a position: from the server's WAL to the slot, with what lies between.

const PHASES = {
  starting: 'standby', snapshot: 'info', streaming: 'ok', standby: 'standby', backing_off: 'critical', paused: 'warning', draining: 'info',
  stopped: 'warning', halted: 'critical',
};
const MIB = 1024 ** 2;
// From when on a distance is one to look at. restart_lsn stays behind on a healthy server too.
const WIDE = [64 * MIB, 1024 * MIB];
const HELD = [1024 * MIB, 8192 * MIB];

const OLD = 30e3; // positions are read every few seconds

function showPipeline(p) {
  const d = p.distances ?? {};
  const r = p.rates ?? {};
  const stations = [
    { name: 'Server WAL', at: p.server_wal_lsn, says: [`writes ${perSecond(r.wal_bytes_per_second)}`] },
    { name: 'Received', at: p.received_lsn, gap: d.server_to_received, waits: 'to be read', says: [`${count(p.in_flight)} in flight`, bytes(p.in_flight_bytes)] },
    { name: 'Published', at: p.acked_lsn, gap: d.received_to_acked, waits: 'for Kafka', says: [`${count(r.published_per_second)} messages/s`, perSecond(r.published_bytes_per_second)] },
    { name: 'Confirmed', at: p.confirmed_flush_lsn, gap: d.acked_to_confirmed, waits: 'to be confirmed', says: [`drains ${perSecond(r.drain_bytes_per_second)}`] },
    { name: 'Restart', at: p.restart_lsn, gap: d.confirmed_to_restart, waits: 'held back', marks: HELD, says: [`retains ${bytes(data.slot?.slot?.retained_bytes)}`] },
  ];
  show(view('pipeline'),
    el('p', { class: 'doing' }, doing(p)),
    p.error && el('p', { class: 'failure' }, p.error),
    p.snapshot && snapshot(p.snapshot),
    el('ol', { class: 'strip' }, stations.map(station)));
}

function doing(p) {
  const [since, next, oldest, at] = [p.since, p.next_attempt, p.oldest_unacked, p.at].map(moment);
  return [
    badge(PHASES[p.phase] ?? 'unknown', p.phase.replace('_', ' ')),
    since !== undefined && el('span', {}, 'for ', ago(since, '')),
    p.paused && el('span', {}, paused(p.paused)),
    next !== undefined && next > now() && el('span', {}, `next attempt by ${clockTime(next)}`),
    el('span', {}, many(p.published, 'message') + ' published'),
    el('span', {}, many(p.sessions, 'session')),
    at !== undefined && now() - at > OLD && el('span', {}, `positions of ${clockTime(at)}: the server was not queried since`),
    p.rate?.limiting && el('span', {}, `held back by ${p.rate.limiting}: ${p.rate.limit}`),
    oldest !== undefined && el('span', {}, 'oldest not acknowledged: ', ago(oldest, ''), ' old'),
  ];
}

function paused({ until, reason }) {
  const end = moment(until);
  return (end === undefined ? 'until it is resumed' : `until ${clockTime(end)}`) + (reason ? ` (${reason})` : '');
}

function snapshot(s) {
  const percent = s.estimated_rows > 0 ? Math.min(99, Math.floor((100 * s.rows) / s.estimated_rows)) : 0;
  return el('p', { class: 'snapshot' },
    el('progress', { max: 100, value: percent, 'aria-label': 'Snapshot' }),
    ` ${s.table || 'snapshot'}: ${count(s.rows)} of about ${count(s.estimated_rows)} rows, ${percent} %, ${count(s.rows_per_second)} rows/s`);
}

function station({ name, at, gap, waits, marks = WIDE, says }) {
  const weight = !isNumber(gap) ? 'unknown' : gap >= marks[1] ? 'huge' : gap >= marks[0] ? 'wide' : 'small';
  return el('li', { 'data-key': name },
    waits && el('span', { class: 'gap ' + weight }, el('b', {}, bytes(gap)), el('span', {}, waits)),
    el('span', { class: 'station' }, el('span', { class: 'name' }, name), el('span', { class: 'lsn' }, lsn(at)),
      says.map((text) => el('span', { class: 'says' }, text))));
}
