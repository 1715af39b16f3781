// A job's page: what it does, what it used, what happened, why it waits and when it starts, its log, a terminal.
import { lazy } from '../lib/lazy';
import { useState } from 'preact/hooks';
import { act, allowed, applies, sameOf, type Verb } from '../actions/jobs';
import { extend } from '../actions/extend';
import { call, text } from '../api/client';
import { useTopics } from '../api/live';
import { useResource } from '../api/resource';
import type { Efficiency, Job, Why } from '../api/types';
import { Bar, Card, ENDED, Facts, Tabs } from '../components/basics';
import { now } from '../components/elapsed';
import { Dialog } from '../components/dialog';
import { DownIcon } from '../components/icons';
import { Menu, type MenuItem } from '../components/menu';
import { Copyable, SameCard, type Same } from '../components/same';
import { Empty, Failed, Loaded, Loading } from '../components/states';
import * as f from '../lib/format';
import { t, tWord, type TextKey } from '../lib/i18n';
import { explained, reasonText } from '../lib/phrases';
import { named } from '../lib/masked';
import { jobPath, nodePath } from '../lib/router';
import { LogViewer } from '../log/viewer';
import { poolPort } from '../pools/data';
import { PAGES, type PageProps } from '../shell/pages';
import { PageTop } from '../shell/shell';
import { JobCharts } from './job-charts';
import { Programs } from './job-programs';
import { Timeline } from './job-timeline';

const Terminal = lazy(() => import('../components/terminal'));
const EVERY_MS = 3000;
const SLOW_MS = 15_000;
const TONE: Record<string, string> = { RUNNING: 'accent', STARTING: 'accent', COMPLETING: 'accent', COMPLETED: 'good', PENDING: '', SUSPENDED: 'warning', CANCELLED: 'warning' };

export default function JobPage({ params }: PageProps) {
  useTopics('jobs');
  const label = params['job']!;
  const job = useResource(label, async s => named((await call('GET /v1/jobs/{job}', { path: { job: label }, signal: s })) as Job),
    { everyMs: EVERY_MS, when: e => e.jobs.some(j => j.label === label || String(j.id) === label) });
  const state = job.state.value;
  if (state.data === null) {
    return (
      <>
        <PageTop title={t('job.title', { job: label })} />
        {state.status === 404
          ? <Empty title={t('job.none', { job: label })}><a href="/jobs">{t('jobs.showAll')}</a></Empty>
          : <div class="card">{state.error ? <Failed text={state.error} retry={job.refresh} /> : <Loading lines={8} />}</div>}
      </>
    );
  }
  return <JobBody job={state.data} label={label} refresh={job.refresh} />;
}

function JobBody({ job, label, refresh }: { job: Job; label: string; refresh: () => void }) {
  const [terminal, setTerminal] = useState(false);
  const ended = ENDED.has(job.state);
  const where = [job.label, job.project, job.user, job.nodes].filter(Boolean).join(' · ');
  return (
    <>
      <PageTop title={job.name} beside={
        <>
          <span class={`pill ${TONE[job.state] ?? (ended ? 'error' : '')}`}>{job.hold && job.state === 'PENDING' ? t('job.held') : tWord('job.state', job.state)}</span>
          <span class="muted cut wide-only" title={where}>{where}</span>
        </>
      } actions={<Actions job={job} openTerminal={() => setTerminal(true)} refresh={refresh} />} />
      {job.warning && <div class="banner warning" role="status">{job.warning}</div>}
      {job.ending && !ended && <div class="banner warning" role="status">{job.ending}</div>}
      <div class="stack">
        <TimeCard job={job} />
        <div class="job-columns">
          <div class="stack">
            {job.start_ms > 0 && <JobCharts job={job} />}
            {job.attempt > 0
              ? <Card title={t('log.title')}>{!job.workdir ? <p class="muted">{t('job.private')}</p> : <LogViewer job={label} nodes={Math.max(1, job.node_count)} attempt={job.attempt} hasError={!!job.error && job.error !== job.output} start_ms={job.start_ms} end_ms={job.end_ms} />}</Card>
              : <WhyCard label={label} job={job} />}
            <Sources job={job} label={label} />
          </div>
          <div class="stack">
            {job.attempt > 0 && job.state === 'PENDING' && <WhyCard label={label} job={job} />}
            <Programs job={job} mine={allowed(job)} />
            {job.start_ms > 0 && <UsedCard key={job.state} label={label} ended={ended} />}
            <Timeline job={job} label={label} />
            <Placement job={job} />
            <About job={job} />
            <SameCard actions={sames(job)} />
          </div>
        </div>
      </div>
      {terminal && (
        <Dialog title={t('terminal.title', { job: job.label })} wide close={() => setTerminal(false)}>
          <Terminal job={label} node={0} />
        </Dialog>
      )}
    </>
  );
}

function sames(job: Job): Same[] {
  const id = job.label;
  const list: Same[] = [{ cli: `acequia get ${id}`, path: `/v1/jobs/${id}` }];
  if (job.attempt > 0) list.push({ cli: `acequia logs -f ${id}`, path: `/v1/jobs/${id}/logs`, query: { follow: 1 } });
  if (job.urls?.length) list.push({ cli: `acequia open ${id}`, method: 'POST', path: `/v1/jobs/${id}/open` });
  if (job.state === 'RUNNING') list.push({ cli: `acequia bash ${id}`, path: `/v1/jobs/${id}/exec` });
  if (job.state === 'PENDING') list.push({ cli: `acequia why ${id}`, path: `/v1/jobs/${id}/why` });
  if (job.start_ms) list.push({ cli: `acequia efficiency ${id}`, path: `/v1/jobs/${id}/efficiency` });
  if (!ENDED.has(job.state)) list.push(...sameOf('cancel', [id]));
  return list;
}

function Actions({ job, openTerminal, refresh }: { job: Job; openTerminal: () => void; refresh: () => void }) {
  const row = { label: job.label, state: job.state, hold: job.hold, user: job.user, project: job.project };
  const mine = allowed(row);
  const clone = PAGES.some(p => p.path === '/new');
  const menu: Verb[] = ['hold', 'release', 'requeue', 'suspend', 'resume', 'resubmit'];
  const items: MenuItem[] = menu.filter(v => applies(v, row)).map(v => ({ text: t(`verb.${v}` as TextKey), disabled: !mine, act: () => act(v, [row], refresh) }));
  return (
    <>
      {job.state === 'RUNNING' && <button class="button wide-only" disabled={!mine} onClick={openTerminal}>{t('terminal.open')}</button>}
      {poolPort(job) > 0 && <a class="button" href={`/pools/${job.label}`}>{t('pools.look')}</a>}
      {clone && <a class="button wide-only" href={`/new?from=${job.label}`}>{t('verb.clone')}</a>}
      {!ENDED.has(job.state) && <button class="button wide-only" disabled={!mine} onClick={() => extend(job, refresh)}>{t('extend.button')}</button>}
      {applies('cancel', row) && <button class="button danger" disabled={!mine} onClick={() => act('cancel', [row], refresh)}>{t('verb.cancel')}</button>}
      {items.length > 0 && <Menu button={<>{t('jobs.more')} <DownIcon /></>} items={items} />}
    </>
  );
}

function TimeCard({ job }: { job: Job }) {
  const limit = job.time_limit_s * 1000;
  if (!job.start_ms) return null;
  const ended = ENDED.has(job.state);
  const elapsed = ended || job.state === 'SUSPENDED' ? job.elapsed_ms : Math.max(job.elapsed_ms, now.value - job.start_ms - job.suspended_ms);
  const left = Math.max(0, limit - elapsed);
  const live = !ended && job.live?.progress_milli !== null && job.live?.progress_milli !== undefined ? job.live : null;
  const right = ended ? t('job.endedAt', { at: f.moment(job.end_ms) })
    : limit ? t('job.left', { left: f.span(left), limit: f.span(limit), ends: f.moment(now.value + left) }) : t('job.noLimit');
  return (
    <section class="card">
      <div class="spread">
        <span>{live && <b>{live.progress_text || f.percent(live.progress_milli ?? 0, 1000)} · </b>}<b>{t('job.ran', { time: f.clock(elapsed) })}</b>{ended && job.reason ? <span class="muted"> · {reasonText(job.reason)}</span> : null}
          {ended && job.state === 'FAILED' && <span class="muted"> · {job.exit_signal ? t('job.signal', { signal: String(job.exit_signal) }) : t('job.exit', { code: String(job.exit_code) })}</span>}</span>
        <span class="muted">{live?.left_ms ? `${t('job.progressLeft', { left: f.span(live.left_ms) })} · ` : ''}{right}</span>
      </div>
      {live && <div class="time-bar"><Bar part={(live.progress_milli ?? 0) / 1000} label={t('job.progressLabel', { percent: f.percent(live.progress_milli ?? 0, 1000) })} /></div>}
      {limit > 0 && !live && <div class="time-bar"><Bar part={elapsed / limit} low={!ended && left < limit / 10} label={t('job.timeUsed', { percent: f.percent(elapsed, limit) })} /></div>}
    </section>
  );
}

function WhyCard({ label, job }: { label: string; job: Job }) {
  const why = useResource(`why${label}`, s => call('GET /v1/jobs/{job}/why', { path: { job: label }, signal: s }) as Promise<Why>, { everyMs: SLOW_MS, when: () => job.state === 'PENDING', gapMs: 5000 });
  if (job.state !== 'PENDING') return null;
  return (
    <Card title={t('why.title')}>
      <Loaded of={why.state.value} retry={why.refresh}>
        {w => (
          <div class="stack">
            <StartText why={w} held={job.hold} />
            <div>{explained(w).map((l, i) => <div key={i} class={i ? 'muted' : undefined}>{l.text}</div>)}</div>
            {(w.holders ?? []).length > 0 && (
              <div>
                <h3>{t('why.holders')}</h3>
                {w.holders!.map(h => (
                  <div class="spread" key={h.job}>
                    <span class="cut"><a class="in-text" href={jobPath(String(h.job))}>{h.job}</a> {h.name} <span class="muted">{h.user} · {h.project}</span></span>
                    <span class="nowrap muted">{h.gpus_milli ? `${t('why.holdsGpus', { n: h.gpus_milli / 1000, gpus: f.gpus(h.gpus_milli) })}, ` : ''}{t('why.holdsCpus', { n: h.cpus })}{h.end_ms ? ` · ${f.moment(h.end_ms)}` : ''}</span>
                  </div>
                ))}
              </div>
            )}
          </div>
        )}
      </Loaded>
    </Card>
  );
}

function StartText({ why, held }: { why: Why; held: boolean }) {
  const s = why.start;
  if (!s) return null;
  const range = s.early_ms && s.late_ms
    ? (f.moment(s.early_ms) === f.moment(s.late_ms) ? f.moment(s.late_ms) : `${f.moment(s.early_ms)} – ${f.moment(s.late_ms)}`)
    : s.late_ms ? f.moment(s.late_ms) : null;
  return (
    <div class="figure bare">
      <h2>{t('why.starts')}</h2>
      <div class="value">{range ?? (held ? t('job.held') : tWord('why.basis', s.basis))}{why.position ? <small>{t('why.position', { n: why.position, of: why.waiting ?? why.position })}</small> : null}</div>
    </div>
  );
}

const LOW = 40;
function UsedCard({ label, ended }: { label: string; ended: boolean }) {
  const efficiency = useResource(`eff${label}`, s => call('GET /v1/jobs/{job}/efficiency', { path: { job: label }, signal: s }) as Promise<Efficiency>, { everyMs: ended ? 0 : SLOW_MS });
  return (
    <Card title={t('used.title')}>
      <Loaded of={efficiency.state.value} retry={efficiency.refresh}>
        {e => {
          const rows = (e.rows ?? []).filter(r => r.what !== 'energy' && (r.asked ?? 0) > 0);
          const options = rows.map(r => r.option).filter(Boolean) as string[];
          const wh = (e.rows ?? []).find(r => r.what === 'energy')?.used;
          return (
            <>
              <table>
                <thead class="visually-hidden"><tr><th scope="col">{t('used.what')}</th><th scope="col">{t('used.asked')}</th><th scope="col">{t('used.used')}</th><th scope="col">%</th></tr></thead>
                <tbody>
                  {rows.map(r => (
                    <tr key={r.what}>
                      <td>{tWord('used', r.what ?? '')}</td>
                      <td class="num">{amount(r.what ?? '', r.asked)}</td>
                      <td class="num">{r.used === null ? <span class="muted">{t('used.unknown')}</span> : amount(r.what ?? '', r.used)}</td>
                      <td class="num">{r.percent === null ? '' : <span class={`pill ${r.option ? 'warning' : (r.percent ?? 0) < LOW ? '' : 'accent'}`}>{r.percent} %</span>}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
              <p class="muted small">
                {wh ? t('used.energy', { energy: f.energy(wh * 1000) }) : ''} {e.too_short ? t('used.tooShort') : options.length ? <>{t('used.next')} <code>{options.join(' ')}</code></> : !e.failed && e.final ? t('used.fits') : ''}
              </p>
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}

function amount(what: string, v: number | null | undefined): string {
  if (v === null || v === undefined) return '–';
  if (what === 'cpu' || what === 'gpu') return f.number(v / 1000, 1);
  if (what === 'time') return f.span(v * 1000);
  return f.bytes(v);
}

function Placement({ job }: { job: Job }) {
  const parts = job.parts ?? [];
  if (parts.length === 0) return null;
  return (
    <Card title={t('job.placement')} flush>
      <table>
        <thead><tr><th scope="col">{t('job.node')}</th><th scope="col" class="num">{t('job.cpus')}</th><th scope="col" class="num">{t('job.memory')}</th><th scope="col" class="num">{t('job.gpus')}</th></tr></thead>
        <tbody>
          {parts.map(p => (
            <tr key={p.node}>
              <td><a href={nodePath(p.node)}>{p.node}</a></td>
              <td class="num" title={p.cpu_ids ?? ''}>{p.cpus}</td>
              <td class="num">{f.bytes(p.memory_bytes)}</td>
              <td class="num">{p.gpus.length ? p.gpus.map(g => (g.milli === 1000 ? String(g.index) : `${g.index} (${f.gpus(g.milli)})`)).join(', ') : '–'}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}

function About({ job }: { job: Job }) {
  return (
    <Card title={t('job.about')}>
      <Facts rows={[
        [t('job.command'), job.command_text && <code>{job.command_text}</code>],
        [t('job.folder'), job.workdir && <a class="in-text" href={`/files?job=${encodeURIComponent(job.label)}`}><code>{job.workdir}</code></a>],
        [t('job.output'), job.output && <code>{job.output}</code>],
        [t('job.container'), job.container && <code>{job.container}</code>],
        [t('job.partition'), job.partition], ['QoS', job.qos], [t('job.dependency'), job.dependency],
        [t('job.tags'), (job.tags ?? []).length ? job.tags!.map(x => <span key={x} class="pill">{x}</span>) : null],
        [t('job.comment'), job.comment],
        [t('job.attempt'), job.attempt > 1 ? f.number(job.attempt) : null],
        [t('job.preempted'), job.preempted ? `${f.number(job.preempted)}${job.preempted_why ? `: ${reasonText(job.preempted_why)}` : ''}` : null],
      ]} />
    </Card>
  );
}

function Sources({ job, label }: { job: Job; label: string }) {
  const [tab, setTab] = useState<'script' | 'environment' | 'spec'>('script');
  return (
    <Card>
      <Tabs label={t('job.sources')} chosen={tab} choose={setTab} tabs={[{ key: 'script', text: t('job.script') }, { key: 'environment', text: t('job.environment') }, { key: 'spec', text: t('job.asked') }]} />
      <div class="stack">
        <span />
        {!job.workdir || !job.spec ? <p class="muted">{t('job.private')}</p>
          : tab === 'spec' ? <Copyable text={JSON.stringify(slim(job.spec), null, 2)} />
            : (tab === 'script' ? job.spec.script_bytes : job.spec.environment_bytes) ? <SourceText key={tab} label={label} part={tab} />
              : <p class="muted">{t(tab === 'script' ? 'job.noScript' : 'job.noEnvironment')}</p>}
      </div>
    </Card>
  );
}

function slim(spec: object): object {
  return Object.fromEntries(Object.entries(spec).filter(([, v]) => v !== null && v !== 0 && v !== false && v !== '' && !(Array.isArray(v) && v.length === 0)));
}

function SourceText({ label, part }: { label: string; part: 'script' | 'environment' }) {
  const r = useResource(`${label}/${part}`, s => text(`/v1/jobs/${encodeURIComponent(label)}/${part}`, s));
  return <Loaded of={r.state.value} retry={r.refresh}>{body => <Copyable text={body} />}</Loaded>;
}
