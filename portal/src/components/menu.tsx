// A button that opens a list of actions: arrows move, Escape closes, a click outside closes.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';

export interface MenuItem {
  text: ComponentChildren;
  act?: () => void;
  href?: string;
  danger?: boolean;
  disabled?: boolean;
  /** A line above it. */
  divided?: boolean;
  checked?: boolean;
}

export function Menu({ label, button, buttonClass = 'button', items, left }: {
  label?: string;
  button: ComponentChildren;
  buttonClass?: string;
  items: MenuItem[];
  left?: boolean;
}) {
  const [open, setOpen] = useState(false);
  const ref = useRef<HTMLDivElement>(null);
  const entries = () => [...(ref.current?.querySelectorAll<HTMLElement>('[role^=menuitem]:not(:disabled)') ?? [])];
  useEffect(() => {
    if (!open) return undefined;
    const outside = (e: Event) => !ref.current?.contains(e.target as Node) && setOpen(false);
    document.addEventListener('pointerdown', outside);
    entries()[0]?.focus();
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);
  const keys = (e: KeyboardEvent) => {
    if (!open) return;
    const all = entries();
    const at = all.indexOf(document.activeElement as HTMLElement);
    if (e.key === 'Escape' || e.key === 'Tab') {
      setOpen(false);
      if (e.key === 'Escape') {
        e.stopPropagation();
        ref.current?.querySelector('button')?.focus();
      }
    } else if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
      e.preventDefault();
      all[(at + (e.key === 'ArrowDown' ? 1 : -1) + all.length) % all.length]?.focus();
    }
  };
  const pick = (i: MenuItem) => {
    setOpen(false);
    i.act?.();
  };
  return (
    <div class="menu" ref={ref} onKeyDown={keys}>
      <button class={buttonClass} type="button" aria-haspopup="menu" aria-expanded={open} aria-label={label} onClick={() => setOpen(!open)}>{button}</button>
      {open && (
        <div class={left ? 'menu-list left' : 'menu-list'} role="menu" aria-label={label}>
          {items.map((i, n) => [
            i.divided && <hr key={`line${n}`} />,
            i.href
              ? <a key={n} class="menu-item" role="menuitem" href={i.href} onClick={() => setOpen(false)}>{i.text}</a>
              : <button key={n} type="button" class={i.danger ? 'menu-item danger' : 'menu-item'} disabled={i.disabled}
                  role={i.checked === undefined ? 'menuitem' : 'menuitemradio'} aria-checked={i.checked} onClick={() => pick(i)}>
                  {i.text}{i.checked && <span aria-hidden="true">✓</span>}
                </button>,
          ])}
        </div>
      )}
    </div>
  );
}
