// Virtual clusters: jobs with a head and workers, made from apps that have the tag `cluster`. Their name is the job's.
import { address, call, send } from '../api/client';
import type { Job, JobRow } from '../api/types';
import type { App } from '../apps/data';
import { ENDED } from '../components/basics';

const SHOWN_MOST = 50;
const ENDED_MOST = 5, ENDED_MS = 86_400_000;
const ENDED_STATES = [...ENDED].join(',');
const HEAD = 'head';
const LIVE = 'PENDING,STARTING,RUNNING,SUSPENDED,COMPLETING';

export interface VirtualCluster {
  job: Job;
  kind: string;
  headReady: boolean;
  running: number;
  ready: number;
  waiting: number;
  min: number;
  max: number;
}

export const isCluster = (a: App): boolean => ((a.spec?.tags ?? []) as string[]).includes('cluster');

function clusterOf(job: Job): VirtualCluster {
  const there = (job.members ?? []).filter(m => !m.ended && m.state !== 'leaving');
  const workers = there.filter(m => m.component !== HEAD);
  const running = workers.filter(m => m.state === 'running');
  const asked = job.spec?.components?.find(c => c.name !== HEAD);
  return {
    job, kind: (job.tags as string[] | null ?? []).find(x => x.startsWith('app='))?.slice(4) ?? '',
    headReady: there.some(m => m.component === HEAD && m.state === 'running' && m.health === 'ready'),
    running: running.length, ready: running.filter(m => m.health === 'ready').length, waiting: workers.length - running.length,
    min: asked?.workers_min ?? workers.length, max: asked?.workers_max ?? workers.length,
  };
}

/** One's own that have ended lately: why, if it was not meant, is on the page of the job. */
export async function loadEnded(signal: AbortSignal): Promise<JobRow[]> {
  const query = { mine: true, state: ENDED_STATES, where: 'tag=cluster', since_ms: Date.now() - ENDED_MS, limit: ENDED_MOST };
  return ((await (await send('GET', address('/v1/table', {}, query), undefined, signal)).json()) as { rows: JobRow[] }).rows;
}

/** One's own that have not ended. */
export async function loadClusters(signal: AbortSignal): Promise<VirtualCluster[]> {
  const query = { mine: true, state: LIVE, where: 'tag=cluster', limit: SHOWN_MOST, fields: 'id,label' };
  const { rows } = (await (await send('GET', address('/v1/table', {}, query), undefined, signal)).json()) as { rows: Array<{ label: string }> };
  const jobs = await Promise.allSettled(rows.map(r => call('GET /v1/jobs/{job}', { path: { job: r.label }, signal }) as unknown as Promise<Job>));
  return jobs.flatMap(j => (j.status === 'fulfilled' ? [clusterOf(j.value)] : []));
}
