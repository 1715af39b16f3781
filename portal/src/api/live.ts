// The live connection: one server-sent stream for the whole page (GET /v1/live). Pages say which topics they need; the
// stream is opened anew, from where it was, when that changes. The last message of each kind stays readable as a signal.
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { named } from '../lib/masked';
import type { JobRow, NodeNow, OverviewCounts, Shares } from './types';

export type Topic = 'jobs' | 'nodes' | 'shares' | 'status';
export interface JobsChanged {
  seq: number;
  jobs: JobRow[];
  gone: number[];
}

export type LiveState = 'connecting' | 'live' | 'lost';
export const liveState = signal<LiveState>('connecting');
/** When the connection was lost; 0: it is there. */
export const lostAt = signal(0);
export const liveNodes = signal<NodeNow[] | null>(null);
export const liveShares = signal<Shares | null>(null);
export const liveStatus = signal<OverviewCounts | null>(null);

/** The event that the stream began behind: what was loaded before it may miss some. */
export const liveSince = signal(0);

type Listener = (e: JobsChanged) => void;
const listeners = new Set<Listener>();
const reloads = new Set<() => void>();
const wanted = new Map<Topic, number>([['status', 1]]);
let source: EventSource | null = null;
let opened = '';
let lastSeq = 0;
let retryMs = 0;
let started = false;
let timer: ReturnType<typeof setTimeout> | undefined;

const RETRY_FIRST_MS = 500;
const RETRY_MOST_MS = 10_000;
const REST_AFTER_MS = 5000;  // out of sight
const SETTLE_MS = 50;  // a change of page takes topics back and asks for others: one new stream

/** Calls f with every change of jobs from now on; answers how to stop. */
export function onJobs(f: Listener): () => void {
  listeners.add(f);
  return () => listeners.delete(f);
}

/** Calls f when everything may have changed: after a lost connection, or one that could not keep up. */
export function onReload(f: () => void): () => void {
  reloads.add(f);
  return () => reloads.delete(f);
}

function want(topics: Topic[], step: 1 | -1): void {
  for (const t of topics) wanted.set(t, (wanted.get(t) ?? 0) + step);
  if (!started) return;
  clearTimeout(timer);
  timer = setTimeout(() => !resting && topicText() !== opened && connect(), SETTLE_MS);
}

/** These topics are needed while the component is shown. */
export function useTopics(...topics: Topic[]): void {
  useEffect(() => {
    want(topics, 1);
    return () => want(topics, -1);
  }, []);
}

function topicText(): string {
  return [...wanted].filter(([, n]) => n > 0).map(([t]) => t).sort().join(',');
}

function lost(): void {
  source?.close();
  source = null;
  if (liveState.value !== 'lost') lostAt.value = Date.now();
  liveState.value = 'lost';
  retryMs = Math.min(RETRY_MOST_MS, retryMs ? retryMs * 2 : RETRY_FIRST_MS);
  clearTimeout(timer);
  timer = setTimeout(connect, retryMs * (0.75 + Math.random() / 2));
}

function reload(): void {
  for (const f of reloads) f();
}

function take<T>(name: string, f: (data: T) => void): void {
  source!.addEventListener(name, m => f(JSON.parse((m as MessageEvent<string>).data) as T));
}

function connect(): void {
  clearTimeout(timer);
  source?.close();
  opened = topicText();
  source = new EventSource(`/v1/live?topics=${opened}${lastSeq ? `&after=${lastSeq}` : ''}`);
  source.onopen = () => {
    const again = lostAt.value !== 0;
    liveState.value = 'live';
    lostAt.value = 0;
    retryMs = 0;
    if (again) reload();
  };
  source.onerror = lost;
  take<{ seq: number }>('hello', e => (liveSince.value = e.seq));
  take<JobsChanged>('jobs', e => {
    lastSeq = e.seq;
    const event = { ...e, jobs: e.jobs.map(named) };
    for (const f of listeners) f(event);
  });
  take<{ nodes: NodeNow[] }>('nodes', e => (liveNodes.value = e.nodes));
  take<Shares>('shares', e => (liveShares.value = e));
  take<OverviewCounts>('status', e => (liveStatus.value = e));
  take<{ seq: number }>('reset', e => {
    lastSeq = e.seq;
    reload();
  });
}

export function startLive(): void {
  started = true;
  connect();
}

export function stopLive(): void {
  started = false;
  clearTimeout(timer);
  source?.close();
  source = null;
}

// A browser opens six connections to a server at most, all tabs and the pages it keeps for "back" taken together: a page
// that nobody sees gives its stream back, and goes on from where it was when it is seen again.
let resting = false;
let hiding: ReturnType<typeof setTimeout> | undefined;

function rest(): void {
  if (!started || resting) return;
  resting = true;
  clearTimeout(timer);
  source?.close();
  source = null;
}

function wake(): void {
  clearTimeout(hiding);
  if (!started || !resting) return;
  resting = false;
  connect();
}

document.addEventListener('visibilitychange', () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(rest, REST_AFTER_MS);
  else wake();
});
addEventListener('pagehide', rest);
addEventListener('pageshow', wake);
addEventListener('online', () => {
  if (started && !resting && liveState.value === 'lost') connect();
});
