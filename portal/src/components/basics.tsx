// Small pieces that every page uses: cards, states of jobs, bars, tabs, project colours.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { call } from '../api/client';
import { liveShares } from '../api/live';
import type { Shares } from '../api/types';
import * as f from '../lib/format';
import { t, tWord } from '../lib/i18n';

export function Card({ title, note, flush, children, id }: {
  title?: ComponentChildren;
  note?: ComponentChildren;
  flush?: boolean;
  id?: string;
  children: ComponentChildren;
}) {
  return (
    <section class={flush ? 'card flush' : 'card'} id={id}>
      {title !== undefined && (
        <div class="card-head">
          <h2>{title}</h2>
          {note !== undefined && <div class="note">{note}</div>}
        </div>
      )}
      {children}
    </section>
  );
}

const TONES: Record<string, string> = {
  PENDING: 'wait', STARTING: 'run', RUNNING: 'run', SUSPENDED: 'warn', COMPLETING: 'run', COMPLETED: 'good', FAILED: 'bad',
  CANCELLED: 'warn', TIMEOUT: 'bad', OUT_OF_MEMORY: 'bad', NODE_FAIL: 'bad', PREEMPTED: 'warn', DEADLINE: 'bad',
  idle: 'good', mixed: 'run', allocated: 'run', draining: 'warn', drained: 'warn', down: 'bad', unreachable: 'bad', cleaning: 'warn',
};

/** State of a job or node: a shape and colour, and always the word. */
export function StateText({ state, held }: { state: string; held?: boolean }) {
  if (held && state === 'PENDING') return <span class="state warn">{t('job.held')}</span>;
  return <span class={`state ${TONES[state] ?? ''}`}>{tWord('job.state', state)}</span>;
}

export const ENDED = new Set(['COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'OUT_OF_MEMORY', 'NODE_FAIL', 'PREEMPTED', 'DEADLINE']);

export function Bar({ part, idle = 0, low, label }: { part: number; idle?: number; low?: boolean; label: string }) {
  const width = (v: number) => ({ width: `${Math.max(0, Math.min(1, v)) * 100}%` });
  return (
    <span class="bar thin" role="img" aria-label={label}>
      <i class={low ? 'low' : undefined} style={width(part)} />
      {idle > 0 && <i class="idle" style={width(idle)} />}
    </span>
  );
}

/** How far a job says it has come: a bar and a figure; nothing where it does not say. */
export function Progress({ milli }: { milli: number | null | undefined }) {
  if (milli === null || milli === undefined) return <span class="muted">–</span>;
  const text = f.percent(milli, 1000);
  return <span class="use"><Bar part={milli / 1000} label={t('job.progressLabel', { percent: text })} /><span class="muted">{text}</span></span>;
}

// Six colours, in the order of the projects; more than six share the last one, so the name is always shown, too.
const SERIES = 6;
const known = signal<string[]>([]);
function setProjects(shares: Shares | null): void {
  const names = (shares?.projects ?? []).map(p => p.project).filter(n => n !== 'default').sort();
  if (shares && names.join() + ',default' !== known.value.join()) known.value = [...names, 'default'];
}
liveShares.subscribe(setProjects);

/** Loads which projects there are: their order gives the colours, the same ones on every page. */
export async function loadProjects(): Promise<void> {
  setProjects((await call('GET /v1/shares')) as unknown as Shares);
}

export function projectColour(name: string): string {
  const i = known.value.indexOf(name);
  return `c${i < 0 ? SERIES : Math.min(i, SERIES - 1) + 1}`;
}

export function Tabs<K extends string>({ tabs, chosen, choose, label }: {
  tabs: Array<{ key: K; text: string }>;
  chosen: K;
  choose: (k: K) => void;
  label: string;
}) {
  const list = useRef<HTMLDivElement>(null);
  // Of tabs that do not all fit, the chosen one is in view. Sideways only: the page stays where it is.
  useLayoutEffect(() => {
    const box = list.current!, tab = box.children[tabs.findIndex(x => x.key === chosen)] as HTMLElement | undefined;
    if (tab) box.scrollLeft = tab.offsetLeft - (box.clientWidth - tab.offsetWidth) / 2;
  }, [chosen, tabs.length]);
  const move = (e: KeyboardEvent) => {
    const step = e.key === 'ArrowRight' ? 1 : e.key === 'ArrowLeft' ? -1 : 0;
    if (!step) return;
    e.preventDefault();
    const at = (tabs.findIndex(x => x.key === chosen) + step + tabs.length) % tabs.length;
    choose(tabs[at]!.key);
    (list.current?.children[at] as HTMLElement | undefined)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} ref={list} onKeyDown={move}>
      {tabs.map(x => (
        <button key={x.key} class="tab" role="tab" type="button" aria-selected={x.key === chosen} tabIndex={x.key === chosen ? 0 : -1}
          onClick={() => choose(x.key)}>{x.text}</button>
      ))}
    </div>
  );
}

export function Facts({ rows }: { rows: Array<[string, ComponentChildren]> }) {
  return (
    <dl class="facts">
      {rows.filter(([, v]) => v !== null && v !== undefined && v !== '').map(([k, v]) => [<dt key={k}>{k}</dt>, <dd>{v}</dd>])}
    </dl>
  );
}
