// Pools of Python workers. A pool's lists are asked from its own process, over the unix port of its job (src/tasks/include/tasks/wire.h): nothing of them is
// stored elsewhere.
import { address, call, send, socket } from '../api/client';
import type { Job, JobRow } from '../api/types';
import { t } from '../lib/i18n';

export type PoolList = 'tasks' | 'actors' | 'objects' | 'nodes';
export interface PoolAnswer {
  summary: Record<string, number>;
  rows: Array<Record<string, string | number>>;
}

const LISTS: Record<PoolList, number> = { tasks: 0, actors: 1, objects: 2, nodes: 4 };
declare const TASKS_VERSION: number;  // of this release, by the build
const HELLO = 1, LIST = 13, LISTED = 36, VIEWER = 2;
const PORTS_PER_JOB = 16, CHOSEN_FIRST = 20_000, CHOSEN_COUNT = 10_000;  // src/model/port.c
const HEAD = 5, ANSWER_MOST = 16 << 20, PATIENCE_MS = 30_000;
const SHOWN_MOST = 50;
const ROWS_MOST = 1000;

/** One's own that have not ended. */
export async function loadPools(signal: AbortSignal): Promise<JobRow[]> {
  const query = { mine: true, state: 'PENDING,STARTING,RUNNING,SUSPENDED,COMPLETING', where: 'tag=pool', limit: SHOWN_MOST };
  return ((await (await send('GET', address('/v1/table', {}, query), undefined, signal)).json()) as { rows: JobRow[] }).rows;
}

/** The number of the port that stands for the pool's socket; 0: the job is no pool. */
export function poolPort(job: Job): number {
  const i = ((job.spec?.ports ?? []) as string[]).findIndex(p => p.startsWith('unix:/tmp/acequia-'));
  return i < 0 ? 0 : CHOSEN_FIRST + ((job.id * PORTS_PER_JOB + i) % CHOSEN_COUNT);
}

function frame(type: number, body: number[]): number[] {
  const length = body.length + 1;
  return [length & 255, (length >> 8) & 255, (length >> 16) & 255, length >>> 24, type, ...body];
}

const u32 = (v: number) => [v & 255, (v >> 8) & 255, (v >> 16) & 255, v >>> 24];
const u64 = (hex: string) => {
  const v = BigInt(`0x${hex || '0'}`);
  return Array.from({ length: 8 }, (_, i) => Number((v >> BigInt(8 * i)) & 255n));
};

function question(what: PoolList, id: string): Uint8Array {
  return new Uint8Array([...frame(HELLO, [...u32(TASKS_VERSION), VIEWER, 0]), ...frame(LIST, [LISTS[what], ...u64(id), ...u32(ROWS_MOST)])]);
}

// Frames, in whatever pieces they come; the text of the list, or null while it has not come.
class Frames {
  private held = new Uint8Array(0);

  add(piece: ArrayBuffer): string | null {
    const all = new Uint8Array(this.held.length + piece.byteLength);
    all.set(this.held);
    all.set(new Uint8Array(piece), this.held.length);
    let at = 0;
    while (all.length - at >= HEAD) {
      const length = new DataView(all.buffer).getUint32(at, true);
      if (length < 1 || length > ANSWER_MOST) throw new Error(t('pools.otherRelease'));
      if (all.length - at < 4 + length) break;
      if (all[at + 4] === LISTED) return new TextDecoder().decode(all.subarray(at + HEAD, at + 4 + length));
      at += 4 + length;
    }
    this.held = all.slice(at);
    return null;
  }
}

/** One list of a running pool, or one row of it. */
export function askPool(job: Job, what: PoolList, id: string, signal: AbortSignal): Promise<PoolAnswer> {
  return new Promise((resolve, reject) => {
    const ws = socket(address('/v1/jobs/{job}/connect', { job: job.label }, { port: poolPort(job) }));
    const frames = new Frames();
    const timer = setTimeout(() => end(new Error(t('pools.silent'))), PATIENCE_MS);
    const end = (e: Error | null) => {
      clearTimeout(timer);
      ws.close();
      if (e) reject(e);
    };
    signal.addEventListener('abort', () => end(new DOMException('', 'AbortError')));
    ws.onopen = () => ws.send(question(what, id));
    ws.onclose = () => end(new Error(t('pools.closed')));
    ws.onmessage = m => {
      try {
        if (typeof m.data === 'string') {
          const error = (JSON.parse(m.data) as { error?: { message: string } }).error;
          return end(new Error(error?.message ?? t('pools.closed')));
        }
        const text = frames.add(m.data as ArrayBuffer);
        if (text === null) return undefined;
        resolve(JSON.parse(text) as PoolAnswer);
        return end(null);
      } catch (e) {
        return end(e as Error);
      }
    };
  });
}

export async function loadPool(label: string, what: PoolList, signal: AbortSignal): Promise<{ job: Job; answer: PoolAnswer | null }> {
  const job = (await call('GET /v1/jobs/{job}', { path: { job: label }, signal })) as Job;
  if (!poolPort(job)) throw new Error(t('pools.isNone', { job: label }));
  return { job, answer: job.state === 'RUNNING' ? await askPool(job, what, '', signal) : null };
}
