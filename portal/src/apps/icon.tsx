// The picture of an app: one or two characters, or its first letter where this browser has no font for them.
import type { App } from './data';

const drawn = new Map<string, boolean>();

/** Whether the browser can draw it: characters without a glyph are all as wide as one that never has any. */
function canDraw(text: string): boolean {
  let known = drawn.get(text);
  if (known === undefined) {
    const pen = document.createElement('canvas').getContext('2d');
    if (pen) pen.font = '32px system-ui, sans-serif';
    known = !pen || pen.measureText([...text][0]!).width !== pen.measureText('\u{10FFFD}').width;
    drawn.set(text, known);
  }
  return known;
}

export function AppIcon({ app, title }: { app: Pick<App, 'icon'> | undefined; title: string }) {
  const icon = app?.icon ?? '';
  return <span class="app-icon" aria-hidden="true">{icon && canDraw(icon) ? icon : title.slice(0, 1).toUpperCase()}</span>;
}
