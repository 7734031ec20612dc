// Elements from data. Text only ever becomes text: nothing here reads markup.

const SVG = 'http://www.w3.org/2000/svg';

// el makes an element; children are nodes, texts, or nothing.
function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) node.setAttribute(name, '');
    else if (value !== undefined && value !== null && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== ''));
  return node;
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute('data-key') : null);

// OWN are attributes that the reader changes, not the data.
const OWN = new Set(['open']);

// show makes the children of node what fresh is, and keeps every node that can stay: focus, selection, scroll position and
// what was unfolded survive each update.
function show(node, ...fresh) {
  const keep = new Set();
  const nodes = fresh.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false)
    .map((c) => (typeof c === 'string' ? document.createTextNode(c) : c));
  for (const f of nodes) if (keyOf(f)) keep.add(keyOf(f));
  const byKey = new Map();
  for (const child of [...node.children]) {
    const key = keyOf(child);
    if (key && keep.has(key)) byKey.set(key, child);
    else if (key) child.remove();
  }
  let at = node.firstChild;
  for (const f of nodes) {
    const key = keyOf(f);
    const old = key ? byKey.get(key) : at && !keyOf(at) && at.nodeName === f.nodeName ? at : null;
    if (!old) {
      node.insertBefore(f, at);
      continue;
    }
    if (old === at) at = at.nextSibling;
    else node.insertBefore(old, at);
    renew(old, f);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

// renew makes old what fresh is, which has the same name.
function renew(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !OWN.has(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (!OWN.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  show(old, [...fresh.childNodes]);
}

// view is where a part of the page stands.
const view = (name) => document.querySelector(`[data-view="${name}"]`);

const icon = (name) => svg('svg', { class: 'icon', 'aria-hidden': 'true' }, svg('use', { href: '#i-' + name }));

const ICONS = {
  ok: 'ok', info: 'info', warning: 'warning', degraded: 'warning', critical: 'critical', error: 'critical', failing: 'critical', standby: 'standby',
};

// badge shows a state by colour, shape and word.
const badge = (kind, text = kind) => el('span', { class: 'badge ' + kind }, icon(ICONS[kind] ?? 'unknown'), text);

// ago is a time as its age, which ticks; the time itself is its title.
function ago(at, suffix = ' ago') {
  if (at === undefined) return '–';
  const iso = new Date(at).toISOString();
  return el('time', { datetime: iso, title: `${new Date(at).toLocaleString('en-GB')} (${iso})`, 'data-suffix': suffix }, age(at, suffix));
}

const age = (at, suffix) => duration(Math.max(0, Math.floor((now() - at) / 1000))) + suffix;

function tickAges() {
  for (const time of document.querySelectorAll('time[data-suffix]')) {
    const text = age(Date.parse(time.dateTime), time.dataset.suffix);
    if (time.textContent !== text) time.textContent = text;
  }
}

// remark separates what to type from a remark behind it: `postrider slot show x   # then ...`, `SELECT ...; -- or ...`.
function remark(next) {
  const found = /^(.*?)(?:\s+#|\s+--) (.*)$/.exec(next);
  return found ? [found[1], found[2]] : [next, ''];
}

// A program or an SQL statement; anything else is a sentence, which is not to be pasted.
const TYPED = /^(postrider|psql|pg_\w+|createuser|kafka-\S+|systemctl|journalctl|timedatectl|kubectl|docker|openssl|curl|nc|kill) |^[A-Z]{3,} /;

// command has one line per step, with a button that copies what to type.
const command = (next) => next.split('\n').map(step);

function step(line) {
  const [text, why] = remark(line);
  if (!TYPED.test(text)) return el('p', {}, line);
  return el('div', { class: 'command' },
    el('code', { class: 'type' }, text),
    el('button', { type: 'button', 'data-action': 'copy', 'aria-label': `Copy: ${text}` }, 'Copy'),
    why && el('span', { class: 'why' }, why));
}

// runbook names a section of docs, "postriderstuck" of RUNBOOKS.md or "docs/CHECK.md#wal_level", and links to it where the server has it.
function runbook(section) {
  const place = section.replace(/^docs\//, '').replace(/^OPERATIONS\.md#/, '');
  const name = place.replace(/^.*#/, '').replace(/^\d+-/, '').replaceAll('-', ' ');
  const base = document.documentElement.dataset.runbooks;
  if (!base) return el('span', { class: 'runbook' }, `docs/${place.includes('#') ? place.replace('#', ', ') : 'RUNBOOKS.md, ' + name}`);
  return el('a', { class: 'runbook', href: base + encodeURIComponent(place), target: '_blank', rel: 'noopener' }, `Runbook: ${name}`);
}

// facts is a list of names and values; those without a value are left out.
function facts(pairs, className = 'facts') {
  return el('dl', { class: className }, pairs.filter(([, value]) => value !== undefined && value !== null && value !== '')
    .map(([name, value, title]) => el('div', { 'data-key': name, title }, el('dt', {}, name), el('dd', {}, value))));
}

async function copyText(button) {
  const code = button.parentElement.querySelector('code');
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    // Over plain HTTP from another machine there is no clipboard: the old way needs a selection, which helps if it fails too.
    getSelection().selectAllChildren(code);
    document.execCommand('copy');
  }
  button.textContent = 'Copied';
  announce('copied');
  setTimeout(() => { button.textContent = 'Copy'; }, 1500);
}

// announce has screen readers read a text.
function announce(text) {
  document.getElementById('hear').textContent = text;
}
