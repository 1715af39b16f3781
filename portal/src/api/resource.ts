// A resource is an answer of the API that a page shows and that is kept fresh: fetched at once, again when events make
// it old or an interval passes, never twice at a time, and not while the tab is hidden. Old data stays on the screen
// while new data is fetched or when that fails: the page says that it is stale.
import { signal, type ReadonlySignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { ApiError, errorText } from './client';
import { onJobs, onReload, type JobsChanged } from './live';

export interface State<T> {
  data: T | null;
  error: string | null;
  /** HTTP status of the error; 0: not reached. */
  status: number;
  /** When the data was fetched. */
  at: number;
}

export interface Resource<T> {
  state: ReadonlySignal<State<T>>;
  refresh(): void;
  stop(): void;
}

export interface ResourceOptions {
  /** Changes of jobs that make the data old; needs the topic jobs. */
  when?: (e: JobsChanged) => boolean;
  /** Also fetched after this time; 0: only after events. */
  everyMs?: number;
  /** Time between two fetches at least. */
  gapMs?: number;
}

const GAP_MS = 1000;

export function resource<T>(load: (signal: AbortSignal) => Promise<T>, options: ResourceOptions = {}): Resource<T> {
  const state = signal<State<T>>({ data: null, error: null, status: 0, at: 0 });
  const gap = options.gapMs ?? GAP_MS;
  let abort: AbortController | null = null;
  let again = false, stopped = false, startedAt = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const schedule = (ms: number) => {
    clearTimeout(timer);
    timer = setTimeout(fetchNow, ms);
  };
  const refresh = () => {
    if (stopped) return;
    if (abort) again = true;
    else schedule(Math.max(0, startedAt + gap - Date.now()));
  };
  const fetchNow = async () => {
    if (stopped || abort) return;
    if (document.hidden && state.value.data !== null) {
      again = true;
      return;
    }
    abort = new AbortController();
    again = false;
    startedAt = Date.now();
    try {
      const data = await load(abort.signal);
      if (!stopped) state.value = { data, error: null, status: 200, at: Date.now() };
    } catch (e) {
      if (!stopped) state.value = { ...state.value, error: errorText(e), status: e instanceof ApiError ? e.status : 0 };
    }
    abort = null;
    if (again) refresh();
    else if (options.everyMs) schedule(options.everyMs);
  };
  const visible = () => {
    if (!document.hidden && (again || options.everyMs)) refresh();
  };
  const offJobs = options.when ? onJobs(e => options.when!(e) && refresh()) : null;
  const offReload = onReload(refresh);
  document.addEventListener('visibilitychange', visible);
  void fetchNow();
  return {
    state,
    refresh,
    stop() {
      stopped = true;
      abort?.abort();
      clearTimeout(timer);
      offJobs?.();
      offReload();
      document.removeEventListener('visibilitychange', visible);
    },
  };
}

/** A resource for as long as a component is shown; made anew when `key` changes. */
export function useResource<T>(key: string, load: (signal: AbortSignal) => Promise<T>, options: ResourceOptions = {}): Resource<T> {
  const r = useMemo(() => resource(load, options), [key]);
  useEffect(() => () => r.stop(), [r]);
  return r;
}
