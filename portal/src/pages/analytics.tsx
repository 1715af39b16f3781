// Analytics: GPUs by project over time, and what projects, users or months used, waited and cost. The address holds the choice.
import { address, call, send } from '../api/client';
import { useResource } from '../api/resource';
import type { Analytics, AnalyticsGroup, Series } from '../api/schema';
import { Bar, Card, projectColour } from '../components/basics';
import { Chart, type Line } from '../components/chart';
import { SameCard } from '../components/same';
import type { Points } from '../components/spark';
import { Empty, Loaded } from '../components/states';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { location, setQuery } from '../lib/router';
import { PageTop } from '../shell/shell';

const HOUR_MS = 3_600_000, DAY_MS = 24 * HOUR_MS;
const SPANS = { '1d': DAY_MS, '7d': 7 * DAY_MS, '30d': 30 * DAY_MS, '90d': 90 * DAY_MS, '180d': 180 * DAY_MS };
type Span = keyof typeof SPANS;
const BY = ['project', 'user', 'month'] as const;
type By = (typeof BY)[number];
const EVERY_MS = 60_000;
const POINTS = 240;
const OWN_COLOURS = 5;  // the sixth is that of all others together

interface Found {
  groups: Analytics;
  /** By project or user, for the chart: months have no points. */
  charted: Analytics;
  use: Points;
  waiting: Points;
  power: Points;
}

interface Asked {
  from_ms: number;
  to_ms: number;
  by: By;
  step_ms?: number;
}

const analytics = async (q: Asked, signal: AbortSignal) => (await (await send('GET', address('/v1/analytics', {}, q), undefined, signal)).json()) as Analytics;

async function series(name: string, from_ms: number, to_ms: number, signal: AbortSignal): Promise<Points> {
  const step_ms = Math.max(1000, Math.ceil((to_ms - from_ms) / POINTS / 1000) * 1000);
  try {
    return ((await call('GET /v1/series', { query: { name, from_ms, to_ms, step_ms }, signal })) as Series).points as Points;
  } catch {
    return [];  // a cluster without GPUs has none of use
  }
}

async function load(span: Span, by: By, signal: AbortSignal): Promise<Found> {
  const to_ms = Date.now(), from_ms = to_ms - SPANS[span];
  const step_ms = span === '1d' ? HOUR_MS / 6 : span === '7d' ? HOUR_MS : DAY_MS / 4;
  const chart = by === 'user' ? 'user' : 'project';
  const [charted, use, waiting, power] = await Promise.all([
    analytics({ from_ms, to_ms, by: chart, step_ms }, signal), series('cluster/gpu_utilisation', from_ms, to_ms, signal),
    series('cluster/jobs_pending', from_ms, to_ms, signal), series('cluster/gpu_power_watts', from_ms, to_ms, signal),
  ]);
  return { groups: by === chart ? charted : await analytics({ from_ms, to_ms, by, step_ms: DAY_MS }, signal), charted, use, waiting, power };
}

// The most used users have a colour each, projects the one they have everywhere; the others are one area on top.
function areas(a: Analytics, by: By): Line[] {
  const points = (values: number[]): Points => values.map((v, i) => [a.from_ms + i * a.step_ms, v]);
  const used = a.groups.filter(g => g.gpu_hours > 0 && g.gpus.length > 0);
  const colourOf = (g: AnalyticsGroup, i: number) => (by === 'user' ? Math.min(i, OWN_COLOURS) + 1 : Number(projectColour(g.name ?? '').slice(1)));
  const coloured = used.map((g, i) => ({ g, colour: colourOf(g, i) }));
  const lines = coloured.filter(x => x.colour <= OWN_COLOURS).map(({ g, colour }) => ({ name: g.name ?? '', colour, points: points(g.gpus) }));
  const rest = coloured.filter(x => x.colour > OWN_COLOURS).map(x => x.g);
  if (rest.length === 1) return [...lines, { name: rest[0]!.name ?? '', colour: OWN_COLOURS + 1, points: points(rest[0]!.gpus) }];
  if (rest.length === 0) return lines;
  const sum = rest[0]!.gpus.map((_, i) => rest.reduce((n, g) => n + (g.gpus[i] ?? 0), 0));
  return [...lines, { name: t('analytics.others', { n: rest.length }), colour: OWN_COLOURS + 1, points: points(sum) }];
}

export default function AnalyticsPage() {
  const query = location.value.query;
  const span: Span = (query.get('span') ?? '') in SPANS ? (query.get('span') as Span) : '30d';
  const by: By = BY.find(b => b === query.get('by')) ?? 'project';
  const r = useResource(`${span}/${by}`, s => load(span, by, s), { everyMs: EVERY_MS });
  return (
    <>
      <PageTop title={t('nav.analytics')} />
      <div class="tools">
        <div class="views" role="group" aria-label={t('analytics.span')}>
          {(Object.keys(SPANS) as Span[]).map(k => <button key={k} class="button" type="button" aria-pressed={k === span} onClick={() => setQuery({ span: k === '30d' ? null : k })}>{t(`analytics.${k}`)}</button>)}
        </div>
        <div class="views" role="group" aria-label={t('analytics.by')}>
          {BY.map(k => <button key={k} class="button" type="button" aria-pressed={k === by} onClick={() => setQuery({ by: k === 'project' ? null : k })}>{t(`analytics.by.${k}`)}</button>)}
        </div>
        <a class="button" href={address('/v1/analytics', {}, { from_ms: Date.now() - SPANS[span], by, step_ms: DAY_MS, csv: true })} download={`acequia-${by}-${span}.csv`}>{t('analytics.csv')}</a>
      </div>
      <Loaded of={r.state.value} retry={r.refresh} lines={10}>{d => <Body d={d} span={span} by={by} />}</Loaded>
    </>
  );
}

function Body({ d, span, by }: { d: Found; span: Span; by: By }) {
  const from = d.charted.from_ms, to = d.charted.to_ms;
  const lines = areas(d.charted, by);
  const chart = { from, to, group: 'analytics', height: 110, axis: true };
  return (
    <div class="stack">
      <Totals groups={d.groups.groups} currency={d.groups.currency ?? null} />
      <Card title={by === 'user' ? t('analytics.gpusByUser') : t('analytics.gpusByProject')} note={t('analytics.gpusNote')}>
        {lines.length === 0
          ? <Empty title={t('analytics.noGpus')} />
          : <Chart title={t('analytics.held')} lines={lines} stack axis from={from} to={to} height={240} group="analytics" now="" format={v => f.number(v, v < 10 ? 1 : 0)} />}
      </Card>
      <div class="three">
        <Card><Chart title={t('charts.gpu')} lines={[{ points: d.use, colour: 1 }]} most={1} format={v => f.percent(v)} {...chart} /></Card>
        <Card><Chart title={t('overview.waiting')} lines={[{ points: d.waiting, colour: 3 }]} format={v => f.number(v)} {...chart} /></Card>
        <Card><Chart title={t('charts.power')} lines={[{ points: d.power, colour: 2 }]} format={v => f.watts(v * 1000)} {...chart} /></Card>
      </div>
      <Groups d={d.groups} by={by} />
      <SameCard actions={[{ cli: `acequia report --by ${by} --since ${new Date(Date.now() - SPANS[span]).toISOString().slice(0, 10)}`, path: '/v1/analytics', query: { from_ms: from, to_ms: to, by, step_ms: DAY_MS } }]} />
    </div>
  );
}

const sum = (groups: AnalyticsGroup[], of: (g: AnalyticsGroup) => number) => groups.reduce((n, g) => n + of(g), 0);
const money = (v: number, currency: string) => `${f.number(v, v < 100 ? 2 : 0)} ${currency}`;
const hours = (v: number) => f.number(v, v < 10 ? 2 : v < 1000 ? 1 : 0);
const energy = (kwh: number) => f.energy(kwh * 3.6e9);
/** How much of what ended jobs held they used; null: nothing ended, or nothing was measured. */
const efficiency = (busy: number, held: number) => (held > 0 ? Math.min(1, busy / held) : null);

function Totals({ groups, currency }: { groups: AnalyticsGroup[]; currency: string | null }) {
  const used = efficiency(sum(groups, g => g.gpu_busy_hours), sum(groups, g => g.gpu_ended_hours));
  const figures: Array<[string, string]> = [
    [t('analytics.gpuHours'), hours(sum(groups, g => g.gpu_hours))],
    [t('nav.jobs'), f.number(sum(groups, g => g.jobs))],
    [t('analytics.efficiency'), used === null ? '–' : f.percent(used)],
    [t('analytics.energy'), energy(sum(groups, g => g.energy_kwh))],
    [t('analytics.cost'), currency ? money(sum(groups, g => g.cost), currency) : '–'],
  ];
  return (
    <div class="figures short">
      {figures.map(([title, value]) => {
        const [amount, ...unit] = value.split(' ');
        return <section class="card figure" key={title}><h2>{title}</h2><div class="value">{amount}<small>{unit.join(' ')}</small></div></section>;
      })}
    </div>
  );
}

function Groups({ d, by }: { d: Analytics; by: By }) {
  const most = Math.max(1e-9, ...d.groups.map(g => g.gpu_hours));
  return (
    <Card title={t(`analytics.by.${by}`)} note={d.complete ? t('analytics.endedNote') : t('analytics.incomplete')} flush>
      {d.groups.length === 0 ? <Empty title={t('analytics.none')} /> : (
        <div class="scroll-x" tabIndex={0} role="region" aria-label={t(`analytics.by.${by}`)}>
          <table>
            <thead><tr>
              <th scope="col">{t(`analytics.by.${by}`)}</th><th scope="col" class="num">{t('nav.jobs')}</th><th scope="col" class="num">{t('analytics.gpuHours')}</th>
              <th scope="col" class="wide-only"><span class="visually-hidden">{t('analytics.part')}</span></th><th scope="col" class="num">{t('analytics.cpuHours')}</th>
              <th scope="col" class="num">{t('analytics.efficiency')}</th><th scope="col" class="num">{t('analytics.wait')}</th><th scope="col" class="num">{t('analytics.energy')}</th>
              {d.currency && <th scope="col" class="num">{t('analytics.cost')}</th>}
            </tr></thead>
            <tbody>
              {d.groups.map(g => {
                const used = efficiency(g.gpu_busy_hours, g.gpu_ended_hours);
                return (
                  <tr key={g.name}>
                    <td class="strong">{by === 'month' ? g.name : <a class="plain" href={`/jobs?${by}=${encodeURIComponent(g.name ?? '')}`}>{g.name}</a>}</td>
                    <td class="num">{f.number(g.jobs)}</td><td class="num">{hours(g.gpu_hours)}</td>
                    <td class="wide-only"><span class="use"><Bar part={g.gpu_hours / most} label={f.percent(g.gpu_hours, most)} /></span></td>
                    <td class="num">{hours(g.cpu_hours)}</td>
                    <td class="num">{used === null ? '–' : f.percent(used)}</td><td class="num">{f.span(g.wait_median_ms)}</td><td class="num">{energy(g.energy_kwh)}</td>
                    {d.currency && <td class="num">{money(g.cost, d.currency)}</td>}
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}
