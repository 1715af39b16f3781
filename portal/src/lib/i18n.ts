// Texts in the reader's language. The English catalogue is part of the program and says which texts there are; others
// are loaded when chosen. An entry is a text, or one text per plural form ("one", "other", …) chosen by {n}.
import { signal } from '@preact/signals';
import english from '../locales/en.json';
import { stored } from './stored';

export type TextKey = keyof typeof english;
type Entry = string | Record<string, string>;
type Catalogue = Record<TextKey, Entry>;
export type Values = Record<string, string | number>;

export const LANGUAGES = { en: 'English', es: 'Español', ca: 'Català' } as const;
export type Language = keyof typeof LANGUAGES;

const chosen = stored<Language | ''>('language', '');
const catalogue = signal<Catalogue>(english as Catalogue);
/** The language in use; reading it in a component draws that again when it changes. */
export const language = signal<Language>('en');

function preferred(): Language {
  if (chosen.value && chosen.value in LANGUAGES) return chosen.value;
  for (const tag of navigator.languages) {
    const short = tag.slice(0, 2).toLowerCase();
    if (short in LANGUAGES) return short as Language;
  }
  return 'en';
}

async function load(l: Language): Promise<Catalogue> {
  if (l === 'en') return english as Catalogue;
  const { default: texts } = await (l === 'es' ? import('../locales/es.json') : import('../locales/ca.json'));
  const list = texts as unknown as Entry[];  // the build leaves the keys out
  return Object.fromEntries(Object.keys(english).map((key, i) => [key, list[i]])) as Catalogue;
}

/** Loads what else is in the language; set by whoever needs it. */
export const alsoLoad: ((l: Language) => Promise<void>)[] = [];

async function apply(l: Language): Promise<void> {
  const [texts] = await Promise.all([load(l), ...alsoLoad.map(f => f(l))]);
  catalogue.value = texts;
  language.value = l;
  document.documentElement.lang = l;
}

export async function startLanguage(): Promise<void> {
  try {
    await apply(preferred());
  } catch {
    await apply('en');
  }
}

export async function chooseLanguage(l: Language): Promise<void> {
  chosen.value = l;
  await apply(l);
}

export function t(key: TextKey, values: Values = {}): string {
  let entry: Entry = catalogue.value[key] ?? english[key] ?? key;
  if (typeof entry !== 'string') {
    const form = new Intl.PluralRules(language.value).select(Number(values['n'] ?? 0));
    entry = entry[form] ?? entry['other'] ?? '';
  }
  return entry.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const v = values[name];
    if (v === undefined) return whole;
    return typeof v === 'number' ? v.toLocaleString(language.value) : v;
  });
}

/** The text of a word of the API, as a state: the word itself where there is no text. */
export function tWord(prefix: string, word: string): string {
  const key = `${prefix}.${word}` as TextKey;
  return key in english ? t(key) : word;
}
