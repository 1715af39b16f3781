// Light and dark: as the system has it, or as chosen.
import { effect, signal } from '@preact/signals';
import { stored } from './stored';

export type Theme = 'system' | 'light' | 'dark';
export const theme = stored<Theme>('theme', 'system');
const system = matchMedia('(prefers-color-scheme: dark)');
const systemDark = signal(system.matches);
system.addEventListener('change', e => (systemDark.value = e.matches));

/** Whether the page is dark now; charts that draw on a canvas depend on it. */
export const dark = signal(false);

effect(() => {
  const root = document.documentElement;
  if (theme.value === 'system') delete root.dataset['theme'];
  else root.dataset['theme'] = theme.value;
  dark.value = theme.value === 'dark' || (theme.value === 'system' && systemDark.value);
});

export function toggleTheme(): void {
  theme.value = dark.value ? 'light' : 'dark';
}

/** The value of a token of styles/tokens.css, for what is drawn on a canvas. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
