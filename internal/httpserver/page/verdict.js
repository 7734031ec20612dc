// The verdict: well or not, why, what it means, what to type.

const STATES = { ok: 'OK', degraded: 'Degraded', failing: 'Failing', standby: 'Standby' };
const COLOURS = { ok: '#1f883d', degraded: '#b26a00', failing: '#d1242f', standby: '#0969da', unknown: '#808a96' };

// lastVerdict is shown, as old, while the relay does not answer.
function lastVerdict(v) {
  view('verdict').className = 'card verdict unknown';
  show(view('verdict'),
    headline('unknown', 'No data'),
    el('div', { class: 'finding' },
      el('p', { class: 'reason' }, v ? `the relay does not answer; its last verdict was “${STATES[v.state] ?? v.state}: ${v.reason}”` : 'the relay does not answer'),
      explained({ next: 'postrider status   (where the relay runs; if it does not, it queries the database)' })));
  tell('unknown', { state: 'No data', reason: 'the relay does not answer' });
}

const headline = (state, text) => el('div', { class: 'state ' + state }, el('span', { class: 'disc' }, icon(ICONS[state] ?? 'unknown')), el('h1', {}, text));

function showVerdict(v) {
  const conditions = v.conditions ?? [];
  const lead = conditions.find((c) => c.reason === v.reason) ?? (conditions.length === 1 ? conditions[0] : undefined);
  const others = conditions.filter((c) => c !== lead);
  const known = v.state in STATES ? v.state : 'unknown';
  view('verdict').className = `card verdict ${known}`;
  show(view('verdict'),
    headline(known, STATES[v.state] ?? v.state),
    el('div', { class: 'finding' },
      sentence(v.reason),
      lead && el('p', { class: 'lead' }, el('b', {}, lead.name), since(lead, ' · '), cause(lead)),
      explained({ ...v, runbook: v.runbook && (lead?.name ?? v.runbook) })),
    others.length > 0 && el('ul', { class: 'conditions', 'aria-label': 'Further conditions' }, others.map(condition)));
  tell(known, v, lead);
}

// explained is what it means and what to do, of a verdict, a condition or an error.
function explained({ wal, next, runbook: section }) {
  return el('dl', { class: 'explained' },
    wal && el('div', { 'data-key': 'wal' }, el('dt', {}, 'Means'), el('dd', {}, wal)),
    next && el('div', { 'data-key': 'next' }, el('dt', {}, 'Do'), el('dd', {}, command(next))),
    section && el('div', { 'data-key': 'runbook' }, el('dt', {}, 'Read'), el('dd', {}, runbook(section))));
}

// sentence is a reason, "what: why", with the first part in bold.
function sentence(reason) {
  const end = reason.search(/: /);
  return el('p', { class: 'reason' }, el('b', {}, end < 0 ? reason : reason.slice(0, end + 1)), end >= 0 && reason.slice(end + 1));
}

function since(c, before = '') {
  const at = moment(c.since);
  return at !== undefined && [before + 'for ', ago(at, '')];
}

// cause names the cause, unless the reason does.
const cause = (c) => c.culprit && !c.reason.includes(c.culprit) && ` · because of ${c.culprit}`;

const condition = (c) => el('li', { 'data-key': c.name + (c.culprit ?? '') },
  el('details', {},
    el('summary', {}, badge(c.severity), el('b', {}, c.name), el('span', { class: 'reason' }, c.reason, cause(c)), el('span', { class: 'lead' }, since(c))),
    explained({ ...c, runbook: c.name })));

let announced = '';

// tell shows it where the page itself is not seen: in the tab, and to a screen reader when it changes, not with every figure.
function tell(state, v, lead) {
  const name = data.slot?.slot?.name;
  document.title = [STATES[state] ?? 'No data', name !== 'postrider' && name, 'postrider'].filter(Boolean).join(' · ');
  paintIcon(state);
  const key = state + (lead?.name ?? '');
  if (key !== announced) announce(`${STATES[state] ?? v.state}: ${v.reason}`);
  announced = key;
}

const MARKS = { ok: 'M4 8.5l3 3 5-6', failing: 'M5 5l6 6M11 5l-6 6', degraded: 'M8 4v5M8 11.8v.2', standby: 'M6 5v6M10 5v6', unknown: 'M5 8h6' };

function paintIcon(state) {
  const drawn = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><circle cx="8" cy="8" r="8" fill="${COLOURS[state]}"/>` +
    `<path d="${MARKS[state]}" fill="none" stroke="white" stroke-width="2" stroke-linecap="round"/></svg>`;
  const link = document.getElementById('icon');
  const href = 'data:image/svg+xml,' + encodeURIComponent(drawn);
  if (link.getAttribute('href') !== href) link.setAttribute('href', href);
}
