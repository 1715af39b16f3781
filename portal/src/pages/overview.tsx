// The overview: who holds what, what is idle though held, who waits and why, when it starts. Loaded once, then live.
import { useComputed } from '@preact/signals';
import { address, send } from '../api/client';
import { liveNodes, liveShares, liveStatus, useTopics } from '../api/live';
import { useResource } from '../api/resource';
import type { JobRow, Overview, OverviewCounts, TablePage } from '../api/types';
import { Bar, Card, Progress } from '../components/basics';
import { NodesCard, SharesCard } from '../components/cluster';
import { Spark, type Points } from '../components/spark';
import { Empty, Loaded } from '../components/states';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { jobPath } from '../lib/router';
import { PageTop } from '../shell/shell';
import { Elapsed, now } from '../components/elapsed';
import { startText } from '../components/start';

const SERIES_EVERY_MS = 30_000;
const JOBS_EVERY_MS = 5_000;
const ROWS = 5;
const WAITING_LOOKED_AT = 100;
const LOW_USE = 300;  // thousandths: below it the bar is amber

async function get<T>(path: string, query: object, signal: AbortSignal): Promise<T> {
  return (await (await send('GET', address(path, {}, query), undefined, signal)).json()) as T;
}

export default function OverviewPage() {
  useTopics('jobs', 'nodes', 'shares');
  const overview = useResource('overview', s => get<Overview>('/v1/overview', {}, s), { everyMs: SERIES_EVERY_MS });
  const running = useResource('running', s => get<TablePage>('/v1/table',
    { state: 'RUNNING,STARTING,COMPLETING', sort: '-gpus_milli', limit: ROWS,
      fields: 'id,label,name,user,project,gpus_milli,gpu_use_milli,progress_milli,start_ms,elapsed_ms,state,time_limit_s,array_id' }, s),
    { everyMs: JOBS_EVERY_MS, when: () => true, gapMs: 2000 });
  const waiting = useResource('waiting', s => get<TablePage>('/v1/table', { state: 'PENDING', sort: 'expected_start_ms', limit: WAITING_LOOKED_AT }, s),
    { everyMs: JOBS_EVERY_MS, when: () => true, gapMs: 2000 });
  const data = useComputed(() => {
    const o = overview.state.value;
    if (o.data === null) return o;
    return { ...o, data: { ...o.data, ...(liveStatus.value ?? {}), shares: liveShares.value ?? o.data.shares, node_list: liveNodes.value ?? o.data.node_list } };
  }).value;
  return (
    <>
      <PageTop title={t('nav.overview')} beside={data.data && <span class="pill">{data.data.cluster}</span>} />
      <Loaded of={data} retry={overview.refresh} lines={10}>
        {o => (
          <div class="stack">
            <Figures o={o} />
            <div class="two">
              <SharesCard shares={o.shares} />
              <NodesCard nodes={o.node_list} shares={o.shares} />
            </div>
            <div class="two">
              <Card title={t('overview.running')} note={t('overview.byGpus')} flush>
                <Loaded of={running.state.value} retry={running.refresh}>{p => <Running rows={p.rows} total={p.total} />}</Loaded>
              </Card>
              <Card title={t('overview.waiting')} note={`${t('jobs.count', { n: waiting.state.value.data?.jobs ?? 0 })} · ${t('overview.inOrder')}`} flush>
                <Loaded of={waiting.state.value} retry={waiting.refresh}>{p => <Waiting rows={inOrder(p.rows)} total={p.total} />}</Loaded>
              </Card>
            </div>
            <TimeStrip points={o.last_hour.gpus_allocated} most={o.gpus.total} at={o.at_ms} />
          </div>
        )}
      </Loaded>
    </>
  );
}

function Figures({ o }: { o: Overview & OverviewCounts }) {
  const g = o.gpus;
  const total = g.total * 1000;
  const idle = g.idle_allocated_milli, busy = Math.max(0, g.allocated_milli - idle);
  const use = g.measured > 0 ? g.busy_milli / (g.measured * 1000) : null;
  const held = t('overview.gpusLabel', { busy: f.gpus(busy), idle: f.gpus(idle), free: f.gpus(g.free_milli) });
  return (
    <div class="figures">
      <section class="card figure">
        <h2>{t('overview.gpusInUse')}</h2>
        <div class="value">{f.gpus(g.allocated_milli)}<small>{t('overview.of', { total: f.number(g.total) })}</small></div>
        <div class="middle"><Bar part={total ? busy / total : 0} idle={total ? idle / total : 0} label={held} /></div>
        <div class="foot">
          {t('overview.busy', { gpus: f.gpus(busy) })} · <span class={idle ? 'warn' : undefined}>{t('overview.idle', { gpus: f.gpus(idle) })}</span>
          {' · '}{t('overview.free', { gpus: f.gpus(g.free_milli) })}
          {g.out_of_use > 0 && <> · <span class="bad">{t('overview.outOfUse', { n: g.out_of_use })}</span></>}
        </div>
      </section>
      <section class="card figure">
        <h2>{t('overview.running')}</h2>
        <div class="value">{f.number(o.jobs['RUNNING'] ?? 0)}</div><div />
        <div class="foot">{t('overview.users', { n: o.users.live })} · {t('overview.projects', { n: o.projects.running })}</div>
      </section>
      <section class="card figure">
        <h2>{t('overview.waiting')}</h2>
        <div class="value">{f.number(o.jobs['PENDING'] ?? 0)}</div><div />
        <div class="foot">{o.wait.jobs > 0 ? t('overview.medianWait', { span: f.span(o.wait.median_ms) }) : t('overview.noWaits')}</div>
      </section>
      <section class="card figure">
        <h2>{t('overview.use')}</h2>
        <div class="value">{use === null ? '–' : f.number(use * 100)}<small>%</small></div>
        <div class="middle"><Spark points={o.last_hour.utilisation} most={1} label={t('overview.useLabel')} /></div><div />
      </section>
      <section class="card figure">
        <h2>{t('overview.power')}</h2>
        <Power mw={g.power_mw} /><div />
        <div class="foot">{t('overview.energyHour', { energy: energyText(o.last_hour.power_watts) })}</div>
      </section>
    </div>
  );
}

function Power({ mw }: { mw: number }) {
  const [value, unit] = f.watts(mw).split(' ');
  return <div class="value">{value}<small>{unit}</small></div>;
}

function energyText(points: Points): string {
  let joules = 0;
  for (let i = 1; i < points.length; i++) joules += (points[i]![0] - points[i - 1]![0]) / 1000 * points[i]![1];
  return f.energy(joules * 1000);
}

function Running({ rows, total }: { rows: JobRow[]; total: number }) {
  if (rows.length === 0) return <Empty title={t('overview.nothingRuns')} />;
  return (
    <>
      <table class="plain-table">
        <colgroup><col style={{ width: '58px' }} /><col /><col class="wide-only" style={{ width: '84px' }} /><col style={{ width: '44px' }} />
          <col class="use-col" /><col class="wide-only" style={{ width: '88px' }} /><col style={{ width: '76px' }} /></colgroup>
        <thead>
          <tr><th scope="col">{t('job.id')}</th><th scope="col">{t('job.name')}</th><th scope="col" class="wide-only">{t('job.project')}</th>
            <th scope="col" class="num">{t('job.gpus')}</th><th scope="col">{t('job.use')}</th><th scope="col" class="wide-only">{t('job.progress')}</th><th scope="col" class="num">{t('job.time')}</th></tr>
        </thead>
        <tbody>
          {rows.map(r => (
            <tr key={r.id}>
              <td class="muted">{r.label}</td>
              <td title={`${r.name} · ${r.user}`}><JobName r={r} /></td>
              <td class="wide-only" title={r.project}>{r.project}</td>
              <td class="num">{r.gpus_milli ? f.gpus(r.gpus_milli) : '–'}</td>
              <td><Use milli={usePart(r)} /></td>
              <td class="wide-only"><Progress milli={r.progress_milli} /></td>
              <td class="num"><Elapsed row={r} /></td>
            </tr>
          ))}
        </tbody>
      </table>
      {total > rows.length && <More href="/jobs?state=RUNNING" n={total - rows.length} />}
    </>
  );
}

// Of an array also how many of its elements are in the state that the table is about.
function JobName({ r }: { r: JobRow }) {
  const elements = r.array ? ` [${f.number(r.array.elements)}]` : '';
  return <><a class="plain strong" href={jobPath(r.label)}>{r.name ?? t('job.masked')}{elements}</a> <span class="muted">{r.user}</span></>;
}

// How much of what it holds the job uses, in thousandths; null: not measured.
function usePart(r: JobRow): number | null {
  return r.gpus_milli && r.gpu_use_milli !== null && r.gpu_use_milli !== undefined ? (r.gpu_use_milli * 1000) / r.gpus_milli : null;
}

function Use({ milli }: { milli: number | null | undefined }) {
  if (milli === null || milli === undefined) return <span class="muted">–</span>;
  const text = f.percent(milli, 1000);
  return <span class="use"><Bar part={milli / 1000} low={milli < LOW_USE} label={text} /><span class="muted">{text}</span></span>;
}

// Jobs whose start is known in order of it, then the others as they came.
function inOrder(rows: JobRow[]): JobRow[] {
  return [...rows.filter(r => r.expected_start_ms > 0), ...rows.filter(r => !(r.expected_start_ms > 0))].slice(0, ROWS);
}

function Waiting({ rows, total }: { rows: JobRow[]; total: number }) {
  if (rows.length === 0) return <Empty title={t('overview.nothingWaits')} />;
  return (
    <>
      <table class="plain-table">
        <colgroup><col style={{ width: '58px' }} /><col /><col style={{ width: '44px' }} /><col class="wide-only" style={{ width: '24%' }} /><col class="wide-only" style={{ width: '64px' }} /><col style={{ width: '96px' }} /></colgroup>
        <thead>
          <tr><th scope="col">{t('job.id')}</th><th scope="col">{t('job.name')}</th><th scope="col" class="num">{t('job.gpus')}</th>
            <th scope="col" class="wide-only">{t('job.why')}</th><th scope="col" class="num wide-only">{t('job.waited')}</th><th scope="col" class="num">{t('job.starts')}</th></tr>
        </thead>
        <tbody>
          {rows.map(r => (
            <tr key={r.id}>
              <td class="muted">{r.label}</td>
              <td title={`${r.name} · ${r.user}`}><JobName r={r} /></td>
              <td class="num">{r.gpus_milli ? f.gpus(r.gpus_milli) : '–'}</td>
              <td class="wide-only muted" title={reasonText(r.reason)}><div class="two-lines">{reasonText(r.reason) || '–'}</div></td>
              <td class="num wide-only">{f.span(now.value - Math.max(r.submit_ms, Math.min(r.eligible_ms, now.value)))}</td>
              <td class="num" title={startText(r)}>{startText(r)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {total > rows.length && <More href="/jobs?state=PENDING" n={total - rows.length} />}
    </>
  );
}

function More({ href, n }: { href: string; n: number }) {
  return <div class="legend"><a href={href}>{t('overview.more', { n })}</a></div>;
}

function TimeStrip({ points, most, at }: { points: Points; most: number; at: number }) {
  return (
    <section class="card">
      <div class="row">
        <span class="muted small">{t('overview.lastHour')}</span>
        <div class="grow">{points.length < 2 ? <span class="muted small">{t('overview.collecting')}</span> : <a href="/past"><Spark points={points} most={most} label={t('overview.heldLabel')} height={36} /></a>}</div>
        <span class="muted small">{f.moment(at)}</span>
      </div>
    </section>
  );
}
