// Numbers and times for people, in the same words as `postrider status` and the log.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

function bytes(n) {
  if (!isNumber(n)) return '–';
  if (n < 0) return '−' + bytes(-n);
  let unit = 0;
  while (n >= (unit ? 1023.95 : 1024) && unit < UNITS.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${unit ? n.toFixed(1) : Math.round(n)} ${UNITS[unit]}`;
}

const isNumber = (n) => typeof n === 'number' && Number.isFinite(n);

const perSecond = (n) => (isNumber(n) ? bytes(n) + '/s' : '–');

// count writes whole numbers in groups, and small rates with what matters of them.
function count(n) {
  if (!isNumber(n)) return '–';
  const digits = n !== 0 && Math.abs(n) < 10 && !Number.isInteger(n) ? 1 : 0;
  return n.toLocaleString('en-GB', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

const many = (n, one, several = one + 's') => `${count(n)} ${n === 1 ? one : several}`;

// duration writes seconds in their two largest units: 12s, 3m 12s, 5h 2m, 4d 7h.
function duration(seconds) {
  if (!isNumber(seconds)) return '–';
  if (seconds <= 0) return '0s';
  if (seconds < 0.001) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
  if (seconds < 1) return `${seconds < 0.01 ? (seconds * 1e3).toFixed(1) : Math.round(seconds * 1e3)} ms`;
  if (seconds < 10 && !Number.isInteger(seconds)) return `${seconds.toFixed(1)}s`;
  const s = Math.floor(seconds);
  const parts = [[Math.floor(s / 86400), 'd'], [Math.floor(s / 3600) % 24, 'h'], [Math.floor(s / 60) % 60, 'm'], [s % 60, 's']];
  const first = parts.findIndex(([n]) => n > 0);
  return parts.slice(first, first + 2).filter(([n], i) => n > 0 || i === 0).map(([n, unit]) => n + unit).join(' ');
}

// moment is the time of a JSON member in milliseconds; undefined: absent, or Go's zero time.
function moment(text) {
  if (!text || text.startsWith('0001-')) return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : at;
}

const clockTime = (at) => new Date(at).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });

// ahead is how far the relay's clock is ahead of the browser's, in milliseconds: ages are the relay's.
let ahead = 0;
const now = () => Date.now() + ahead;

// lsn is a position, or a dash: zero means that it is not known.
const lsn = (text) => (!text || text === '0/0' ? '–' : text);
