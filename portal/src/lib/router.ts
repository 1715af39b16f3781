// Which page is shown: the address is the state. Links are plain <a href>; clicks on them do not load the page anew.
import { signal } from '@preact/signals';

export interface Location {
  path: string;
  query: URLSearchParams;
}

function current(): Location {
  return { path: window.location.pathname, query: new URLSearchParams(window.location.search) };
}

export const location = signal<Location>(current());

/** One part of a path. Dots are escaped as well, so that a server can tell a page from a file. */
export function segment(text: string): string {
  return encodeURIComponent(text).replaceAll('.', '%2E');
}

export const jobPath = (label: string) => `/jobs/${segment(label)}`;
export const nodePath = (name: string) => `/nodes/${segment(name)}`;

export function go(href: string, replace = false): void {
  if (replace) history.replaceState(null, '', href);
  else history.pushState(null, '', href);
  const before = location.value.path;
  location.value = current();
  if (location.value.path !== before && !replace) scrollTo(0, 0);
}

/** Changes parameters of the address without a new entry in the history; null removes one. */
export function setQuery(values: Record<string, string | null>): void {
  const query = new URLSearchParams(location.value.query);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === '') query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  go(location.value.path + (text ? `?${text}` : ''), true);
}

/** Matches "/jobs/:id" against a path; the values of its names, decoded, or null. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const want = pattern.split('/'), have = path.replace(/\/+$/, '').split('/');
  if (pattern === '/') return have.join('') === '' ? {} : null;
  const rest = want[want.length - 1] === '*';
  if (rest ? have.length < want.length - 1 : want.length !== have.length) return null;
  const values: Record<string, string> = {};
  for (let i = 0; i < want.length; i++) {
    const w = want[i]!;
    if (w === '*') {
      values['rest'] = have.slice(i).map(decode).join('/');
      return values;
    }
    const h = decode(have[i]!);
    if (w.startsWith(':')) values[w.slice(1)] = h;
    else if (w !== h) return null;
  }
  return values;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function startRouter(): void {
  location.value = current();
  addEventListener('popstate', () => (location.value = current()));
  document.addEventListener('click', e => {
    if (e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return;
    const link = (e.target as Element | null)?.closest('a');
    if (!link || link.target || link.hasAttribute('download') || link.origin !== window.location.origin) return;
    if (/^\/(v1|metrics)(\/|$)/.test(link.pathname) || link.getAttribute('href')?.startsWith('#')) return;
    e.preventDefault();
    go(link.pathname + link.search + link.hash);
  });
}
