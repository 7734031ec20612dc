// The search for one event. Its answer has no payload and no key.

const TRACE_STATES = {
  published: 'ok', waiting: 'info', dead_letter: 'warning', discarded: 'warning', not_published: 'error', undecided: 'warning', not_found: 'warning',
};

async function findEvent(form) {
  const id = form.elements.id.value.trim();
  if (!id) return;
  const button = form.querySelector('button');
  button.disabled = true;
  show(view('trace'), el('p', { class: 'none' }, 'looking …'));
  try {
    const answer = await fetch('api/trace?id=' + encodeURIComponent(id));
    showTrace(await answer.json());
  } catch (error) {
    showTrace({ error: `the relay does not answer: ${error.message}` });
  } finally {
    button.disabled = false;
  }
}

function showTrace(r) {
  if (r.error) {
    show(view('trace'), el('p', { class: 'doing' }, badge('warning', 'not searched'), r.error), explained({ next: r.next }));
    announce(r.error);
    return;
  }
  show(view('trace'),
    el('p', { class: 'doing' }, badge(TRACE_STATES[r.state] ?? 'unknown', r.state.replace('_', ' ')), el('b', {}, r.answer)),
    r.why && el('p', { class: 'text' }, r.why),
    explained({ next: r.next }),
    r.events.map((e) => facts(traceFacts(e), 'facts traced')),
    (r.notes ?? []).map((note) => el('p', { class: 'note' }, note)),
    el('p', { class: 'note' }, `Searched: ${searchedIn(r.searched) || 'nothing'}.`));
  announce(r.answer);
}

const legTime = (l) => [new Date(l.at).toISOString(), l.seconds === undefined ? '' : ` (${l.seconds < 0 ? '−' : '+'}${duration(Math.abs(l.seconds))})`, ` ${l.by}`].join('');

function traceFacts(e) {
  const row = e.row;
  return [
    ['table', row && row.table + (row.partition ? `, ${row.partition}` : '')],
    ['xid', row && String(row.xid)],
    ...(e.legs ?? []).map((l) => [l.name, legTime(l)]),
    ['commit LSN', e.commit.lsn ? el('code', {}, e.commit.lsn) : e.commit.at_most && el('code', {}, `at most ${e.commit.at_most}`)],
    ['slot', e.commit.passed === undefined ? '' : e.commit.passed ? 'has passed it' : 'has not passed it'],
    ...(e.records ?? []).map((r, i) => [i ? `repetition ${i}` : 'record', `${r.topic}, partition ${r.partition}, offset ${r.offset}`]),
    ['routed to', e.records ? '' : e.route?.topic],
    ...(e.dead_letters ?? []).map((l, i) => [i ? `dead letter ${i + 1}` : 'dead letter', `${l.id}, ${l.cause}, ${l.action || 'open'}`]),
  ];
}

function searchedIn(searched) {
  const topics = searched.topics.map((t) => `topic ${t.topic} partition ${t.partition} offsets ${t.from} to ${t.to} of ${t.end}${t.complete ? '' : ' (limit reached)'}`);
  return [...searched.tables, ...topics, searched.dead_letters && `dead letters in ${searched.dead_letters}`].filter(Boolean).join('; ');
}

document.getElementById('find-event').addEventListener('submit', (e) => {
  e.preventDefault();
  findEvent(e.target);
});
