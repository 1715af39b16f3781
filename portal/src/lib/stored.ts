// Signals kept in the browser: choices of this person on this machine (theme, language, saved views).
import { effect, signal, type Signal } from '@preact/signals';

export function stored<T>(name: string, otherwise: T): Signal<T> {
  const key = `acequia.${name}`;
  let first = otherwise;
  try {
    const text = localStorage.getItem(key);
    if (text !== null) first = typeof otherwise === 'string' ? (text as T) : (JSON.parse(text) as T);
  } catch {
    // Storage that is full, forbidden or damaged is no reason to fail: the default holds.
  }
  const s = signal<T>(first);
  effect(() => {
    const v = s.value;
    try {
      localStorage.setItem(key, typeof v === 'string' ? v : JSON.stringify(v));
    } catch {
      // As above.
    }
  });
  return s;
}
