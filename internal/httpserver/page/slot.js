// The slot: how much may still be written, how long that lasts, and the cause.

const WAL_STATUSES = ['reserved', 'extended', 'unreserved', 'lost'];

function showSlot(o) {
  const s = o.slot ?? {};
  const observed = moment(s.observed_at);
  if (observed === undefined) {
    show(view('slot'), el('p', { class: 'none' }, s.name && [el('code', {}, s.name), ' '], 'not observed yet'), s.error && el('p', { class: 'failure' }, s.error));
    return;
  }
  show(view('slot'),
    el('p', { class: 'doing' },
      el('code', { class: 'name' }, s.name || '–'),
      el('span', {}, 'observed ', ago(observed)),
      o.server?.standby && badge('standby', 'server is a standby')),
    s.error && el('p', { class: 'failure' }, `Last look failed: ${s.error}`),
    s.invalidation_reason && el('p', { class: 'failure' }, `Invalidated: ${s.invalidation_reason}`),
    walStatus(s),
    safeBar(o),
    forecasts(o.forecast),
    facts(slotFacts(o)),
    blockers(o.holders), standbys(o.gate), otherSlots(o.others), notes(o.notes), serverEvents(o.events));
}

function walStatus(s) {
  const at = WAL_STATUSES.indexOf(s.wal_status);
  return el('ol', { class: 'scale', 'aria-label': 'wal_status' }, WAL_STATUSES.map((name, i) =>
    el('li', { class: i === at ? `here at-${name}` : '', 'aria-current': i === at ? 'step' : undefined }, name)));
}

// severity is that of a condition of the verdict, which has the thresholds of the configuration and what else has to hold; empty: there is none.
function severity(name) {
  return data.verdict?.conditions?.find((c) => c.name === name)?.severity ?? '';
}

// safeBar is the limit, and what of it is used.
function safeBar(o) {
  const s = o.slot ?? {};
  if (!isNumber(s.safe_wal_size)) {
    const limit = o.limit?.max_slot_wal_keep_size;
    const why = s.wal_status === 'lost' ? 'nothing is kept for a slot that is lost'
      : isNumber(limit) ? 'not known' : 'no limit: max_slot_wal_keep_size is -1, and the disk is what ends it';
    return el('p', { class: 'safe-text' }, el('b', {}, `${bytes(s.retained_bytes)} retained`), `, ${why}`);
  }
  // The server removes whole segments, so more than the setting can be left: the limit is then the sum
  // of what is left and what is kept.
  const whole = s.safe_wal_size + (s.retained_bytes ?? 0);
  const limit = o.limit?.effective >= s.safe_wal_size ? o.limit.effective : whole;
  const left = limit > 0 ? Math.max(0, Math.min(1, s.safe_wal_size / limit)) : 0;
  const percent = Math.floor(left * 100);
  const kind = severity('PostriderSlotNearLoss') || severity('PostriderTimeToLoss') || 'ok';
  return el('div', { class: 'safe', 'data-key': 'safe' },
    el('p', { class: 'safe-text' }, el('b', { class: 'text-' + kind }, `${bytes(s.safe_wal_size)} left`), ` before the slot can be lost · ${percent} % of ${bytes(limit)} · ${bytes(s.retained_bytes)} retained`),
    el('div', { class: 'meter', role: 'meter', 'aria-label': 'Safe WAL size', 'aria-valuemin': 0, 'aria-valuemax': 100, 'aria-valuenow': percent, 'aria-valuetext': `${percent} % of the limit is left` },
      svg('svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
        svg('rect', { class: 'track', width: 100, height: 10 }),
        svg('rect', { class: 'used ' + kind, width: (100 - left * 100).toFixed(2), height: 10 }))));
}

function forecasts(f) {
  if (!f) return null;
  const kind = (name) => severity(name) && 'text-' + severity(name);
  const one = (name, e, className) => (isNumber(e?.seconds) || e?.assumption) && el('div', { 'data-key': name },
    el('dt', {}, name),
    // Without a time, or when it has come, the assumption shows how it stands.
    el('dd', {}, e.seconds > 0 ? [el('b', { class: className }, 'in ' + duration(e.seconds)), range(e), el('span', { class: 'assumption' }, e.assumption)]
      : e.assumption));
  return el('dl', { class: 'forecasts' },
    one('Slot lost', f.loss, kind('PostriderTimeToLoss')),
    one('Disk full', f.disk_full, kind('PostriderTimeToDiskFull')),
    one('Caught up', f.catch_up, ''));
}

function range(e) {
  if (!isNumber(e.seconds) || !isNumber(e.earliest)) return null;
  return el('span', { class: 'range' }, isNumber(e.latest) ? ` · ${duration(e.earliest)} to ${duration(e.latest)}` : ` · ${duration(e.earliest)} or later`);
}

const yesNo = (value) => (value === undefined ? undefined : value ? 'yes' : 'no');

function slotFacts(o) {
  const s = o.slot ?? {};
  const inactive = moment(s.inactive_since);
  const skew = o.clock && `${o.clock.skew_seconds < 0 ? '−' : '+'}${duration(Math.abs(o.clock.skew_seconds))} ± ${duration(o.clock.error_seconds)}`;
  return [
    ['active', s.active ? `pid ${s.active_pid || '–'}${reader(o.stream)}` : 'no'],
    ['inactive since', inactive === undefined ? undefined : ago(inactive)],
    ['lag', bytes(s.lag_bytes), 'server position − confirmed_flush_lsn'],
    ['publication', s.publication_ok === undefined ? undefined : s.publication_ok ? 'complete' : badge('critical', 'broken')],
    ['failover', yesNo(s.failover), 'standbys may keep a copy'],
    ['synced', yesNo(s.synced), 'this is a copy, on a standby'],
    ['conflicting', s.conflicting ? 'yes' : undefined],
    ['catalog_xmin age', isNumber(o.catalog_xmin_age) ? many(o.catalog_xmin_age, 'transaction') : undefined],
    ['WAL, 5 min / 1 h', pair(o.rates?.wal_5m, o.rates?.wal_1h), 'written by the whole server'],
    ['drained, 5 min / 1 h', pair(o.rates?.drain_5m, o.rates?.drain_1h), 'confirmed_flush_lsn moves'],
    ['spilled', o.decoding && `${bytes(o.decoding.spill_bytes)} in ${many(o.decoding.spill_transactions, 'transaction')}`, 'written to the server\'s disk while decoding'],
    ['checkpoint_timeout', o.limit?.checkpoint_timeout_seconds ? duration(o.limit.checkpoint_timeout_seconds) : undefined],
    ['idle timeout', o.limit?.idle_replication_slot_timeout_seconds ? duration(o.limit.idle_replication_slot_timeout_seconds) : undefined],
    ['pg_wal', isNumber(o.limit?.wal_directory) ? bytes(o.limit.wal_directory) + (o.limit.volume_size ? ` of ${bytes(o.limit.volume_size)}` : '') : undefined],
    ['server clock', skew || undefined, 'the server\'s minus ours'],
  ];
}

const reader = (w) => (w ? [w.application, w.user, w.state].filter(Boolean).map((t) => ` · ${t}`).join('') : '');
const pair = (a, b) => (isNumber(a) || isNumber(b) ? `${perSecond(a)} / ${perSecond(b)}` : undefined);

const KINDS = { transaction: 'transaction', prepared_transaction: 'prepared transaction', standby_feedback: 'standby feedback' };

function blockers(list) {
  if (!list?.length) return null;
  return el('div', { class: 'sub', 'data-key': 'blockers' }, el('h3', {}, 'Blockers'), table({
    name: 'Blockers', rows: list, key: (h) => [h.kind, h.pid, h.gid, h.xid, h.application].join(' '),
    columns: [
      { title: 'Blocker', cell: (h) => (KINDS[h.kind] ?? h.kind) + (h.pid ? ` of pid ${h.pid}` : '') + (h.gid ? ` '${h.gid}'` : '') },
      { title: 'Age', className: 'n', cell: (h) => ago(moment(h.since), '') },
      { title: 'Session', cell: (h) => [h.application, h.user, h.database, h.state].filter(Boolean).join(' · ') || '–' },
      { title: 'Blocks', cell: (h) => (h.holds_restart_lsn ? badge('warning', 'restart_lsn') : 'VACUUM') },
    ],
  }));
}

function standbys(list) {
  if (!list?.length) return null;
  return el('div', { class: 'sub', 'data-key': 'standbys' }, el('h3', {}, 'synchronized_standby_slots'), table({
    name: 'synchronized_standby_slots', rows: list, key: (g) => g.name,
    columns: [
      { title: 'Slot', cell: (g) => el('code', {}, g.name) },
      { title: 'Relay waits', cell: (g) => (g.blocks ? badge('critical', 'yes') : badge('ok', 'no')) },
      { title: 'State', cell: (g) => (!g.exists ? 'missing' : g.behind_seconds ? ['behind for ', duration(g.behind_seconds), isNumber(g.behind_bytes) && ` (${bytes(g.behind_bytes)})`] : g.active ? 'active' : ['inactive ', moment(g.inactive_since) !== undefined && ['for ', ago(moment(g.inactive_since), '')]]) },
      { title: 'wal_status', cell: (g) => g.wal_status || '–' },
    ],
  }));
}

function otherSlots(list) {
  if (!list?.length) return null;
  return el('div', { class: 'sub', 'data-key': 'others' }, el('h3', {}, 'Other slots of the server'), table({
    name: 'Other slots of the server', rows: list, key: (s) => s.name,
    columns: [
      { title: 'Slot', cell: (s) => el('code', {}, s.name) },
      { title: 'Reader', cell: (s) => (s.active ? `pid ${s.active_pid || '–'}` : badge('warning', 'inactive')) },
      { title: 'wal_status', cell: (s) => s.wal_status || '–' },
      { title: 'Retained', className: 'n', cell: (s) => bytes(s.retained_bytes) },
      { title: 'Left', className: 'n', cell: (s) => bytes(s.safe_wal_size) },
      { title: 'Database', cell: (s) => s.database || 'physical' },
    ],
  }));
}

const notes = (list) => list?.length > 0 && el('details', { class: 'sub', 'data-key': 'notes' },
  el('summary', {}, many(list.length, 'value') + ' not known'),
  el('ul', { class: 'lines' }, list.map((n) => el('li', { 'data-key': n.value }, el('code', {}, n.value), ' ', n.text))));

const serverEvents = (list) => list?.length > 0 && el('details', { class: 'sub', 'data-key': 'events', open: true },
  el('summary', {}, 'What happened to it'),
  el('ul', { class: 'lines' }, list.map((e) => el('li', { 'data-key': e.at + e.code }, ago(moment(e.at)), ' ', e.text))));
