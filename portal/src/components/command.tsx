// The command box (Ctrl+K, ⌘K or /): pages, jobs, nodes, projects and actions in one list. Modules add their own with
// `addCommands`; what they answer depends on what was typed.
import { signal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { t } from '../lib/i18n';
import { go } from '../lib/router';

export interface Command {
  group: string;
  text: string;
  note?: string;
  href?: string;
  act?: () => void;
}

type Source = (typed: string, signal: AbortSignal) => Command[] | Promise<Command[]>;
const sources: Source[] = [];
export const commandOpen = signal(false);

export function addCommands(s: Source): void {
  sources.push(s);
}

const SHOWN_MOST = 40;
const WAIT_MS = 120;

export function CommandBox() {
  return commandOpen.value ? <Box /> : null;
}

function Box() {
  const ref = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState('');
  const [found, setFound] = useState<Command[]>([]);
  const [at, setAt] = useState(0);
  const close = () => (commandOpen.value = false);
  useEffect(() => ref.current!.showModal(), []);
  useEffect(() => {
    const abort = new AbortController();
    const results: Command[][] = sources.map(() => []);
    const show = () => !abort.signal.aborted && setFound(results.flat().slice(0, SHOWN_MOST));
    const timer = setTimeout(() => sources.forEach((s, i) =>
      void Promise.resolve(s(typed.trim(), abort.signal)).then(r => { results[i] = r; show(); }, () => undefined)), typed ? WAIT_MS : 0);
    setAt(0);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [typed]);
  const run = (c: Command | undefined) => {
    if (!c) return;
    close();
    if (c.href) go(c.href);
    else c.act?.();
  };
  const keys = (e: KeyboardEvent) => {
    if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
      e.preventDefault();
      const n = Math.max(1, found.length);
      setAt((at + (e.key === 'ArrowDown' ? 1 : -1) + n) % n);
    } else if (e.key === 'Enter') {
      e.preventDefault();
      run(found[at]);
    }
  };
  useEffect(() => document.getElementById(`command-${at}`)?.scrollIntoView({ block: 'nearest' }), [at]);
  return (
    <dialog class="command" ref={ref} aria-label={t('search.title')} onClose={close} onClick={e => e.target === ref.current && close()}>
      <input class="command-input" type="text" autofocus role="combobox" aria-expanded="true" aria-controls="command-list" aria-autocomplete="list"
        aria-activedescendant={found.length ? `command-${at}` : undefined} aria-label={t('search.title')} placeholder={t('search.placeholder')}
        value={typed} onInput={e => setTyped(e.currentTarget.value)} onKeyDown={keys} />
      <div class="command-list" id="command-list" role="listbox" aria-label={t('search.title')}>
        {found.map((c, i) => [
          c.group !== found[i - 1]?.group && <h3 key={`g${c.group}`} role="presentation">{c.group}</h3>,
          <div key={`${c.group}/${c.text}/${c.href ?? ''}`} id={`command-${i}`} class="command-item" role="option" aria-selected={i === at}
            onPointerMove={() => setAt(i)} onClick={() => run(c)}>
            <span class="cut">{c.text}</span>{c.note && <span class="muted cut">{c.note}</span>}
          </div>,
        ])}
      </div>
      {found.length === 0 && <div class="empty">{t('search.nothing')}</div>}
    </dialog>
  );
}

export function startCommandKeys(): void {
  document.addEventListener('keydown', e => {
    const typing = (e.target as HTMLElement).closest('input, textarea, select, [contenteditable], .terminal');
    if ((e.key === 'k' && (e.ctrlKey || e.metaKey)) || (e.key === '/' && !typing && !e.ctrlKey && !e.metaKey && !e.defaultPrevented)) {
      e.preventDefault();
      commandOpen.value = true;
    }
  });
}
