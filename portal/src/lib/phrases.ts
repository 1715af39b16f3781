// What the controller explains, in the reader's language. A sentence of an explanation comes as its code and values; the text of why something happened
// is kept in English by the controller and is recognised by its phrase. English needs neither.
import { computed, signal } from '@preact/signals';
import type { Why } from '../api/types';
import * as f from './format';
import { alsoLoad, language, t, tWord, type Language } from './i18n';

type Value = string | number | Sentence[] | { gpus_milli: number } | { cpus: number } | { bytes: number } | { ms: number } | { from_ms: number; to_ms: number };
export interface Sentence {
  code: string;
  values: Record<string, Value>;
}
/** A translation, and, where texts are recognised, the English phrase. */
type Phrases = Record<string, [text: string, english?: string]>;

const phrases = signal<Phrases>({});
const PLACE = /\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g;

alsoLoad.push(async (l: Language) => {
  phrases.value = l === 'en' ? {} : ((await (l === 'es' ? import('../locales/phrases/es.json') : import('../locales/phrases/ca.json'))).default as unknown as Phrases);
});

// "Given back for job {job} of {project}" as an expression whose groups are the values.
const known = computed(() => Object.entries(phrases.value).filter(([, p]) => p[1]).map(([code, p]) => ({
  code, names: [...p[1]!.matchAll(PLACE)].map(m => m[1]!),
  pattern: new RegExp(`^${p[1]!.split(PLACE).map((s, i) => (i % 4 === 0 ? s.replace(/[.*+?^$()[\]\\|]/g, '\\$&') : i % 4 === 1 ? '(.+?)' : '')).join('')}$`),
})));

/** Why something happened, or what a job waits for in one word. */
export function reasonText(text: string | null | undefined): string {
  if (!text) return '';
  if (/^[A-Z]\w+$/.test(text)) return tWord('reason', text);
  for (const k of known.value) {
    const found = k.pattern.exec(text);
    if (found) return said({ code: k.code, values: Object.fromEntries(k.names.map((n, i) => [n, found[i + 1]!])) });
  }
  return text;
}

/** A text of a built-in app; those of others are as they were written. */
export function appText(text: string | null | undefined): string {
  return text ? (phrases.value[text]?.[0] ?? text) : '';
}

function valueText(name: string, v: Value | undefined): string {
  if (v === undefined) return '';
  if (typeof v === 'number') return f.number(v);
  if (typeof v === 'string') return name === 'state' ? tWord('job.state', v).toLocaleLowerCase(language.value) : name === 'why' || name === 'reason' ? reasonText(v) : v;
  if (Array.isArray(v)) return v.map(said).join(', ');
  if ('gpus_milli' in v) return t('why.holdsGpus', { n: v.gpus_milli / 1000, gpus: f.gpus(v.gpus_milli) });
  if ('cpus' in v) return t('why.holdsCpus', { n: v.cpus });
  if ('bytes' in v) return f.bytes(v.bytes);
  if ('ms' in v) return f.span(v.ms);
  const from = f.span(v.from_ms), to = f.span(v.to_ms);
  return from === to ? to : `${from} – ${to}`;
}

function said(s: Sentence): string {
  const rules = new Intl.PluralRules(language.value);
  return (phrases.value[s.code]?.[0] ?? s.code).replace(PLACE, (_, name: string, one?: string, other?: string) =>
    one === undefined ? valueText(name, s.values[name]) : (rules.select(Number(s.values[name])) === 'one' ? one : other!));
}

/** Shown beside the sentences in figures and tables of their own. */
const APART = /^why_(position|start|held_by$|holder)/;

/** The sentences of an explanation; `all`: also those that a page shows in another way. */
export function explained(w: Why, all = false): { code: string; text: string }[] {
  const sentences = (w.sentences ?? []) as Sentence[], lines = (w.lines ?? []) as string[];
  return sentences.map((s, i) => ({ code: s.code, text: s.code in phrases.value ? said(s) : (lines[i] ?? '').trim() }))
    .filter(s => all || !(APART.test(s.code) && ((w.holders ?? []).length || !s.code.startsWith('why_h'))));
}

