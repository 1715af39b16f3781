// The log of a job: live, searched, with times, a million lines without a stutter. Only the lines in view are drawn; where
// their height would be more than a browser can, the scroll bar is scaled.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { address } from '../api/client';
import { SearchIcon } from '../components/icons';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { LogFeed } from './feed';
import { LogStore } from './store';

const LINE = 18;
const HEIGHT_MOST = 12_000_000;
const OVERSCAN = 6;
const TAIL = 20_000;
const SHORT_MS = 2000;     // of a job that ran for less, lines have the time of its start: nobody looked while it ran
const SEARCH_SLICE_MS = 8;
const FOUND_MOST = 100_000;

export interface LogProps {
  job: string;
  nodes: number;
  attempt: number;
  hasError: boolean;
  /** Start and end of the newest attempt; 0: not yet. */
  start_ms: number;
  end_ms: number;
}

export function LogViewer(p: LogProps) {
  const [source, setSource] = useState<'output' | 'error'>('output');
  const [node, setNode] = useState(0);
  const [attempt, setAttempt] = useState(p.attempt);
  const [all, setAll] = useState(false);
  const [times, setTimes] = useState(true);
  useEffect(() => setAttempt(p.attempt), [p.attempt]);
  const options = (n: number, text: (i: number) => string, first: number) =>
    Array.from({ length: Math.min(n, 256) }, (_, i) => <option key={i} value={i + first}>{text(i + first)}</option>);
  const download = address('/v1/jobs/{job}/logs', { job: p.job }, { source, node: node || undefined, attempt: attempt || undefined });
  const choices = (
    <>
      {p.hasError && (
        <select class="select" aria-label={t('log.source')} value={source} onChange={e => setSource(e.currentTarget.value as 'output' | 'error')}>
          <option value="output">{t('log.output')}</option><option value="error">{t('log.error')}</option>
        </select>
      )}
      {p.nodes > 1 && <select class="select" aria-label={t('job.node')} value={node} onChange={e => setNode(Number(e.currentTarget.value))}>{options(p.nodes, i => t('log.node', { n: i }), 0)}</select>}
      {p.attempt > 1 && <select class="select" aria-label={t('job.attempt')} value={attempt} onChange={e => setAttempt(Number(e.currentTarget.value))}>{options(p.attempt, i => t('log.attempt', { n: i }), 1)}</select>}
      <button class="button" type="button" aria-pressed={times} title={t('log.timesHint')} onClick={() => setTimes(!times)}>{t('log.times')}</button>
      <a class="button" href={download} download={`acequia-${p.job}.${source === 'error' ? 'err' : 'out'}`}>{t('log.download')}</a>
    </>
  );
  return <Lines key={`${source}/${node}/${attempt}/${all}`} job={p.job} source={source} node={node} attempt={attempt} tail={all ? -1 : TAIL}
    times={times} shortMs={attempt === p.attempt && p.end_ms > 0 && p.end_ms - p.start_ms < SHORT_MS ? p.start_ms : 0} choices={choices} loadAll={all ? undefined : () => setAll(true)} />;
}

interface LinesProps {
  job: string;
  source: 'output' | 'error';
  node: number;
  attempt: number;
  tail: number;
  times: boolean;
  shortMs: number;
  choices: preact.ComponentChildren;
  loadAll: (() => void) | undefined;
}

function useFeed(p: LinesProps) {
  const store = useMemo(() => new LogStore(), []);
  const [, drawn] = useState(0);
  const [status, setStatus] = useState<{ text: string; bad: boolean } | null>(null);
  useEffect(() => {
    let frame = 0;
    const draw = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        drawn(n => n + 1);
      });
    };
    const feed = new LogFeed({ job: p.job, source: p.source, node: p.node, attempt: p.attempt, tail: p.tail }, {
      data: (bytes, at_ms) => {
        store.append(bytes, at_ms || p.shortMs);
        draw();
      },
      restart: () => {
        store.clear();
        draw();
      },
      note: text => setStatus({ text, bad: true }),
      ended: () => setStatus({ text: t('log.ended'), bad: false }),
      failed: text => setStatus({ text, bad: true }),
    });
    return () => {
      feed.stop();
      cancelAnimationFrame(frame);
    };
  }, []);
  return { store, status };
}

// Lines that hold the text, found piece by piece between other work.
function useSearch(store: LogStore, typed: string) {
  const [found, setFound] = useState<number[]>([]);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    setFound([]);
    if (!typed) return undefined;
    const needle = new TextEncoder().encode(typed.replace(/[A-Z]/g, c => c.toLowerCase()));
    const lines: number[] = [];
    let from = 0, stopped = false;
    let timer = setTimeout(step, 120);
    function step() {
      if (stopped) return;
      const before = lines.length;
      const next = store.search(needle, from, SEARCH_SLICE_MS, n => lines.length < FOUND_MOST && lines.push(n));
      from = next < 0 ? store.lines : next;
      setBusy(next >= 0);
      if (lines.length !== before) setFound([...lines]);
      timer = setTimeout(step, next < 0 ? 1000 : 0);  // then what has come meanwhile
    }
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [typed]);
  return { found, busy };
}

function Lines(p: LinesProps) {
  const { store, status } = useFeed(p);
  const box = useRef<HTMLDivElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(420);
  const [follow, setFollow] = useState(true);
  const [typed, setTyped] = useState('');
  const [at, setAt] = useState(-1);
  const { found, busy } = useSearch(store, typed);
  const total = store.lines;
  const space = Math.min(HEIGHT_MOST, total * LINE);
  const visible = Math.ceil(height / LINE);
  const scaled = total * LINE > HEIGHT_MOST;
  const most = Math.max(0, space - height);
  const first = scaled ? Math.round((top / Math.max(1, most)) * Math.max(0, total - visible)) : Math.max(0, Math.floor(top / LINE) - OVERSCAN);
  const last = Math.min(total, first + visible + 2 * OVERSCAN);

  useLayoutEffect(() => {
    const watch = new ResizeObserver(() => box.current && setHeight(box.current.clientHeight));
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [total, follow]);
  const scrolled = () => {
    const b = box.current;
    if (!b) return;  // the browser tells of scrolling a little later: the log may be gone
    setTop(b.scrollTop);
    setFollow(b.scrollTop + b.clientHeight >= b.scrollHeight - LINE);
  };
  const show = (line: number) => {
    const b = box.current!;
    setFollow(false);
    b.scrollTop = scaled ? (line / Math.max(1, total - visible)) * most : Math.max(0, (line - visible / 2) * LINE);
  };
  const early = useRef(0);  // Enter before the search has come to anything: it counts when it has
  const step = (by: number) => {
    early.current = found.length === 0 ? by : 0;
    if (found.length === 0) return;
    const n = (at + by + found.length) % found.length;
    setAt(n);
    show(found[n]!);
  };
  const keys = (e: KeyboardEvent) => {
    if (e.key === 'Enter') {
      e.preventDefault();
      step(e.shiftKey ? -1 : 1);
    } else if (e.key === 'Escape') setTyped('');
  };
  useEffect(() => {
    setAt(-1);
  }, [typed]);
  useEffect(() => {
    if (early.current && found.length) step(early.current);
  }, [found]);
  const current = found[at];
  return (
    <>
      <div class="log-tools">
        <label class="visually-hidden" for="log-search">{t('log.search')}</label>
        <input class="input" id="log-search" ref={input} type="search" placeholder={t('log.search')} value={typed} onInput={e => { early.current = 0; setTyped(e.currentTarget.value); }} onKeyDown={keys} />
        {typed && <span class="muted small" role="status">{at >= 0 ? `${f.number(at + 1)} / ` : ''}{t('log.found', { n: found.length })}{busy ? ' …' : ''}</span>}
        {typed && <button class="button icon" type="button" aria-label={t('log.next')} onClick={() => step(1)}><SearchIcon /></button>}
        <span class="grow" />
        {p.choices}
        <button class="button" type="button" aria-pressed={follow} onClick={() => setFollow(!follow)}>{t('log.follow')}</button>
      </div>
      <div class={total ? 'log' : 'log short'} ref={box} onScroll={scrolled} tabIndex={0} role="log" aria-label={t('log.title')} aria-live="off"
        onKeyDown={e => { if (e.key === '/') { e.preventDefault(); input.current?.focus(); } }}>
        {total === 0 && <div class="muted small log-none">{status?.bad ? status.text : t('log.none')}</div>}
        <div class="log-space" style={{ height: `${space}px` }}>
          <div class="log-lines" style={{ transform: `translateY(${scaled ? top : first * LINE}px)` }}>
            {Array.from({ length: last - first }, (_, k) => first + k).map(i => (
              <div key={i} class={i === current ? 'log-line current' : 'log-line'}>
                {p.times && store.time(i) > 0 && <span class="at" title={f.fullMoment(store.time(i))}>{f.timeOfDay(store.time(i))}</span>}
                <Marked text={store.text(i)} typed={typed} />
              </div>
            ))}
          </div>
        </div>
      </div>
      <div class="legend">
        <span>{t('log.lines', { n: total + store.dropped })} · {f.bytes(store.bytes)}</span>
        {store.dropped > 0 && <span class="warn">{t('log.dropped', { n: store.dropped })}</span>}
        {total >= TAIL && p.loadAll && <button class="link-button" onClick={p.loadAll}>{t('log.loadAll')}</button>}
        {status && total > 0 && <span class={status.bad ? 'warn' : undefined}>{status.text}</span>}
      </div>
    </>
  );
}

function Marked({ text, typed }: { text: string; typed: string }) {
  if (!typed) return <>{text}</>;
  const parts: preact.ComponentChildren[] = [];
  const low = text.toLowerCase(), want = typed.toLowerCase();
  let from = 0;
  for (let i = low.indexOf(want); i >= 0 && parts.length < 200; i = low.indexOf(want, from)) {
    parts.push(text.slice(from, i), <mark>{text.slice(i, i + want.length)}</mark>);
    from = i + want.length;
  }
  return <>{parts}{text.slice(from)}</>;
}
