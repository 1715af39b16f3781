// Numbers, sizes, times for people, in the language in use. Tabular figures come from the style sheet.
import { language, t } from './i18n';

// Making a format takes a hundred times as long as using one: each is made once for a language.
const FORMATS = {
  clockTime: { hour: '2-digit', minute: '2-digit', hour12: false },
  day: { day: 'numeric', month: 'short' },
  dayOfYear: { day: 'numeric', month: 'short', year: 'numeric' },
  timeOfDay: { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false },
  full: { dateStyle: 'medium', timeStyle: 'medium', hour12: false },
} satisfies Record<string, Intl.DateTimeFormatOptions>;
const made = new Map<string, Intl.DateTimeFormat>();
const numbers = new Map<string, Intl.NumberFormat>();

function formatted(name: keyof typeof FORMATS, ms: number): string {
  const key = `${language.value} ${name}`;
  let f = made.get(key);
  if (!f) made.set(key, (f = new Intl.DateTimeFormat(language.value, FORMATS[name])));
  return f.format(ms);
}

const MINUTE = 60, HOUR = 3600, DAY = 86400;

export function number(n: number, digits = 0): string {
  const key = `${language.value} ${digits}`;
  let f = numbers.get(key);
  if (!f) numbers.set(key, (f = new Intl.NumberFormat(language.value, { maximumFractionDigits: digits })));
  return f.format(n);
}

/** A small number with two digits that say something: 0.0031. */
export function small(n: number): string {
  return n.toLocaleString(language.value, { maximumSignificantDigits: 2 });
}

/** 21m, 2h, 3d, as the language writes it. */
export function shortUnit(n: number, unit: string): string {
  return Math.round(n).toLocaleString(language.value, { style: 'unit', unit, unitDisplay: 'narrow' }).replace(/\s/g, '\u202f');
}

/** GPUs from thousandths: 8, 0.5. */
export function gpus(milli: number): string {
  return number(milli / 1000, milli % 1000 === 0 ? 0 : 2);
}

export function percent(part: number, whole = 1): string {
  if (whole <= 0) return '–';
  return (part / whole).toLocaleString(language.value, { style: 'percent', maximumFractionDigits: 0 });
}

export function bytes(n: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB', 'PB'];
  let i = 0;
  let v = n;
  while (v >= 1000 && i < units.length - 1) {
    v /= 1024;
    i++;
  }
  return `${number(v, v < 10 && i > 0 ? 1 : 0)} ${units[i]}`;
}

export function watts(mw: number): string {
  const w = mw / 1000;
  return w >= 999.5 ? `${(w / 1000).toLocaleString(language.value, { minimumFractionDigits: 1, maximumFractionDigits: 1 })} kW` : `${number(w)} W`;
}

export function energy(mj: number): string {
  const wh = mj / 3_600_000;
  if (wh >= 1e6) return `${number(wh / 1e6, 2)} MWh`;
  return wh >= 1000 ? `${number(wh / 1000, 1)} kWh` : `${number(wh, wh < 10 ? 1 : 0)} Wh`;
}

/** A running time that lines up: 0:41:20, 2-03:00:00. */
export function clock(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  const two = (n: number) => String(n).padStart(2, '0');
  const days = Math.floor(s / DAY);
  const rest = `${days ? two(Math.floor((s % DAY) / HOUR)) : Math.floor(s / HOUR)}:${two(Math.floor((s % HOUR) / MINUTE))}:${two(s % MINUTE)}`;
  return days ? `${days}-${rest}` : rest;
}

/** A rough span in words: 21 s, 6 min, 1 h 42, 3 d. */
export function span(ms: number): string {
  const s = Math.round(Math.max(0, ms) / 1000);
  if (s < MINUTE) return `${s} s`;
  const minutes = Math.round(s / MINUTE), hours = Math.round(s / HOUR);  // rounded first: 59.9 min are an hour
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 600) return minutes % 60 ? `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, '0')}` : `${minutes / 60} h`;
  if (hours < 24) return `${hours} h`;
  return hours % 24 && hours < 96 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${Math.round(hours / 24)} d`;
}

function sameDay(a: Date, b: Date): boolean {
  return a.getDate() === b.getDate() && a.getMonth() === b.getMonth() && a.getFullYear() === b.getFullYear();
}

/** 16:51 */
export function clockTime(ms: number): string {
  return formatted('clockTime', ms);
}

/** 12 Nov */
export function day(ms: number): string {
  return formatted('day', ms);
}

/** A moment, as short as it can be: 16:51, tomorrow 03:10, 12 Nov 16:51. */
export function moment(ms: number, now = Date.now()): string {
  const d = new Date(ms), today = new Date(now);
  const time = clockTime(ms);
  if (sameDay(d, today)) return time;
  if (sameDay(d, new Date(now + DAY * 1000))) return `${t('time.tomorrow')} ${time}`;
  if (sameDay(d, new Date(now - DAY * 1000))) return `${t('time.yesterday')} ${time}`;
  return `${formatted(d.getFullYear() === today.getFullYear() ? 'day' : 'dayOfYear', ms)} ${time}`;
}

export function timeOfDay(ms: number): string {
  return formatted('timeOfDay', ms);
}

export function fullMoment(ms: number): string {
  return formatted('full', ms);
}

/** A time limit as the command line takes it: 90m, 8h, 2-12:00:00. */
export function limitOption(s: number): string {
  if (s % HOUR === 0) return `${s / HOUR}h`;
  if (s % MINUTE === 0) return `${s / MINUTE}m`;
  return `${s}s`;
}

/** Where a connection came from, without its port. */
export function host(from: string): string {
  return from.replace(/:\d+$/, '').replace(/^\[(.*)\]$/, '$1');
}
