// The data: server-sent events, one for each part that changed, and a tick a second. When they stay away, the page shows that.

const data = {};

const VIEWS = {
  verdict: showVerdict, pipeline: showPipeline, slot: showSlot, history: showHistory, topics: showTopics, events: showEvents, errors: showErrors,
  check: showCheck, config: showConfig, build: showBuild, who: showWho,
};
// What else has to be drawn when a part changes.
const ALSO = { verdict: ['slot'], slot: ['pipeline', 'history', 'who'], build: ['who'] };

const SILENT = 5e3; // after that long without a tick the data is called old
const REPLACE_AFTER = 15e3; // after that long a connection that sends nothing is replaced

const changed = new Set();
let source;
let lastTick; // when the last tick came, by the browser's clock; undefined: never
let answered = false; // a tick came since the connection was last lost
let opened; // when the present attempt began
let failures = 0;
let retry; // {at, timer} while waiting for the next attempt

function connect() {
  clearTimeout(retry?.timer);
  retry = undefined;
  source?.close();
  opened = Date.now();
  source = new EventSource('api/stream');
  for (const part of Object.keys(VIEWS)) {
    source.addEventListener(part, (e) => {
      data[part] = JSON.parse(e.data);
      changed.add(part);
      for (const other of ALSO[part] ?? []) changed.add(other);
    });
  }
  source.addEventListener('tick', (e) => {
    ahead = moment(JSON.parse(e.data).at) - Date.now();
    lastTick = Date.now();
    answered = true;
    failures = 0;
    draw();
    showLive();
  });
  source.addEventListener('error', lost);
  showLive();
}

// lost closes the connection: the browser's own attempts end for good with the first answer that is an error.
function lost() {
  source.close();
  answered = false; // and another attempt is no answer
  failures++;
  const wait = Math.min(10e3, 500 * 2 ** Math.min(failures - 1, 5));
  retry = { at: Date.now() + wait, timer: setTimeout(connect, wait) };
  showLive();
}

let build; // of the binary that this page came from

function draw() {
  const running = data.build && data.build.version + data.build.commit;
  build ??= running;
  if (build !== running) {
    location.reload(); // the page belongs to its binary
    return;
  }
  for (const part of changed) {
    changed.delete(part);
    if (part !== 'who' && !data[part]) continue;
    try {
      VIEWS[part](data[part]);
    } catch (error) {
      console.error(`part ${part} not shown`, error); // the others are
    }
  }
}

// showLive shows whether the figures are those of now.
function showLive() {
  const silent = lastTick === undefined ? Date.now() - opened : Date.now() - lastTick;
  const live = answered && silent < SILENT;
  const state = live ? 'live' : lastTick === undefined && failures === 0 && silent < SILENT ? 'connecting' : 'lost';
  const root = document.documentElement;
  const before = root.dataset.stream;
  root.dataset.stream = state;
  const next = retry ? ` Next attempt in ${duration(Math.max(1, Math.ceil((retry.at - Date.now()) / 1000)))}.` : ' Trying …';
  show(view('live'), el('span', { class: 'dot', 'aria-hidden': 'true' }), state === 'live' ? 'live' : state === 'lost' ? 'no connection' : 'connecting');
  const banner = document.getElementById('banner');
  banner.hidden = state !== 'lost';
  if (state === 'lost') {
    show(banner, el('b', {}, lastTick === undefined ? 'The relay does not answer.' : `Data is ${duration(Math.max(1, Math.floor(silent / 1000)))} old: the relay does not answer.`),
      lastTick !== undefined && ` Everything below is as it was at ${clockTime(lastTick)}.`, next, ' ',
      el('button', { type: 'button', 'data-action': 'reconnect' }, 'Try now'));
    lastVerdict(data.verdict);
  } else if (before === 'lost' && data.verdict) {
    VIEWS.verdict(data.verdict);
  }
}

const THEMES = ['auto', 'light', 'dark'];
const theme = () => document.documentElement.dataset.theme ?? 'auto';

function setTheme(name) {
  if (name === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem('postrider-theme', name);
  } catch {
    // It lasts as long as the page, then.
  }
  nameTheme();
}

function nameTheme() {
  document.querySelector('[data-action="theme"]').textContent = `Theme: ${theme()}`;
}

const ACTIONS = {
  theme: () => setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]),
  copy: copyText,
  pause: pauseEvents,
  sort: (button) => sortTopics(button.dataset.by),
  reconnect: connect,
};

document.addEventListener('click', (e) => {
  const button = e.target.closest?.('[data-action]');
  if (button) ACTIONS[button.dataset.action](button);
});
document.addEventListener('input', (e) => {
  if (e.target.dataset?.change === 'keys' && data.config) showConfig(data.config);
});
listenToCharts(document.getElementById('history'));
nameTheme();
setInterval(() => {
  tickAges();
  if (!retry && Date.now() - Math.max(lastTick ?? 0, opened) > REPLACE_AFTER) connect();
  showLive();
}, 1000);
connect();
