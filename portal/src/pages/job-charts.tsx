// The use of a job over its life, and after its end: its series, and the temperature of the GPUs it holds.
import { call } from '../api/client';
import { useResource } from '../api/resource';
import type { Job, Series, SeriesNames } from '../api/types';
import { Card, ENDED } from '../components/basics';
import { Chart, type Line } from '../components/chart';
import type { Points } from '../components/spark';
import { Loaded } from '../components/states';
import * as f from '../lib/format';
import { t } from '../lib/i18n';

const EVERY_MS = 10_000;
const POINTS = 240;
const GPUS_SHOWN = 8;

interface Found {
  name: string;
  points: Points;
}

async function series(name: string, from: number, to: number, signal: AbortSignal): Promise<Found> {
  const step = Math.max(1000, Math.ceil((to - from) / POINTS / 1000) * 1000);
  const s = (await call('GET /v1/series', { query: { name, from_ms: from, to_ms: to, step_ms: step }, signal })) as Series;
  return { name, points: s.points as Points };
}

async function load(job: Job, signal: AbortSignal): Promise<Found[]> {
  const to = ENDED.has(job.state) ? job.end_ms : Date.now();
  const prefix = `job/${job.id}/`;
  const names = ((await call('GET /v1/series', { query: { prefix }, signal })) as SeriesNames).names;
  const gpus = (job.parts ?? []).flatMap(p => p.gpus.map(g => `gpu/${p.node}/${g.index}/temperature_celsius`)).slice(0, GPUS_SHOWN);
  const wanted = [...names, ...gpus];
  const all = await Promise.allSettled(wanted.map(n => series(n, job.start_ms, to, signal)));
  return all.flatMap(r => (r.status === 'fulfilled' && r.value.points.length ? [r.value] : []));
}

export function JobCharts({ job }: { job: Job }) {
  const ended = ENDED.has(job.state);
  const data = useResource(`series${job.id}${job.attempt}${ended}`, s => load(job, s), { everyMs: ended ? 0 : EVERY_MS });
  const gpuCount = job.gpus_milli / 1000;
  return (
    <Card title={t('charts.title')} note={gpuCount ? t('charts.note', { n: gpuCount, gpus: f.gpus(job.gpus_milli), nodes: job.nodes ?? '' }) : undefined}>
      <Loaded of={data.state.value} retry={data.refresh} lines={5}>
        {all => (all.length === 0 ? <p class="muted">{t(ended ? 'charts.none' : 'charts.notYet')}</p> : <Charts job={job} all={all} />)}
      </Loaded>
    </Card>
  );
}

// The hottest of the GPUs at each time, as one line.
function hottest(all: Found[]): Line[] {
  const most = new Map<number, number>();
  for (const s of all) for (const [ms, v] of s.points) most.set(ms, Math.max(v, most.get(ms) ?? v));
  return most.size ? [{ points: [...most].sort((a, b) => a[0] - b[0]), colour: 4 }] : [];
}

function Charts({ job, all }: { job: Job; all: Found[] }) {
  const one = (suffix: string, colour: number): Line[] => all.filter(s => s.name === `job/${job.id}/${suffix}`).map(s => ({ points: s.points, colour }));
  const heat: Line[] = hottest(all.filter(s => s.name.startsWith('gpu/')));
  const live = job.live, gpus = Math.max(1, job.gpus_milli) / 1000;
  const memory = (live?.gpus ?? []).reduce((n, g) => n + g.memory_limit_bytes, 0);
  const group = `job${job.id}`;
  const charts: Array<[string, Line[], (v: number) => string, number?]> = [
    [t('charts.gpu'), one('gpu_utilisation', 1), v => f.percent(v, gpus), gpus],
    [t('charts.gpuMemory'), one('gpu_memory_bytes', 3), f.bytes, memory || undefined],
    [t('charts.power'), one('gpu_power_watts', 2), v => f.watts(v * 1000)],
    [t('charts.temperature'), heat, v => `${f.number(v)} °C`, 90],
    [t('charts.cpu'), one('cpu_cores', 5), v => f.number(v, 1), job.cpus],
    [t('charts.memory'), one('memory_bytes', 6), f.bytes, job.memory_bytes],
  ];
  return (
    <div class="charts">
      {charts.filter(c => c[1].length > 0).map(([title, lines, format, most]) => (
        <Chart key={title} title={title} lines={lines} format={format} group={group} axis height={128} {...(most === undefined ? {} : { most })} />
      ))}
    </div>
  );
}
