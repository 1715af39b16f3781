// Virtual clusters of Dask, IPython, MPI, Ray and Spark: made from a form, resized while they run, opened in the browser. Below them the pools of Python
// workers, which are jobs of one's own, too.
import { useState } from 'preact/hooks';
import { act } from '../actions/jobs';
import { send } from '../api/client';
import { useTopics } from '../api/live';
import { useResource } from '../api/resource';
import { me } from '../api/session';
import { loadApps, type App } from '../apps/data';
import { AppIcon } from '../apps/icon';
import { StartDialog } from '../apps/start';
import { isCluster, loadClusters, loadEnded, type VirtualCluster } from '../clusters/data';
import { Card, StateText } from '../components/basics';
import { Dialog } from '../components/dialog';
import { edit } from '../components/edit';
import { Elapsed } from '../components/elapsed';
import { DownIcon } from '../components/icons';
import { Menu } from '../components/menu';
import { Copyable, quote, type Same } from '../components/same';
import { startText } from '../components/start';
import { Empty, Loaded } from '../components/states';
import { notify } from '../components/toast';
import { workersOf, WorkersField, workersText } from '../components/workers';
import * as f from '../lib/format';
import { language, t } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { jobPath } from '../lib/router';
import { loadPools } from '../pools/data';
import { PageTop } from '../shell/shell';
import { OpenLink } from './job-programs';

const EVERY_MS = 3000, ENDED_EVERY_MS = 15_000;

export default function ClustersPage() {
  useTopics('jobs');
  const apps = useResource(`kinds ${language.value}`, async s => (await loadApps(s)).filter(isCluster));
  const list = useResource('clusters', loadClusters, { everyMs: EVERY_MS, when: () => true });
  const ended = useResource('ended-clusters', loadEnded, { everyMs: ENDED_EVERY_MS, when: () => true });
  const pools = useResource('pools', loadPools, { everyMs: EVERY_MS, when: () => true });
  const [starting, setStarting] = useState<App | null>(null);
  const [using, setUsing] = useState<VirtualCluster | null>(null);
  const kinds = apps.state.value.data ?? [];
  const titles = new Map(kinds.map(a => [a.name, a]));
  return (
    <>
      <PageTop title={t('nav.clusters')} actions={me.value?.may_submit && kinds.length > 0
        ? <Menu button={<>{t('clusters.new')} <DownIcon /></>} buttonClass="button primary" items={kinds.map(a => ({ text: a.title, act: () => setStarting(a) }))} /> : undefined} />
      {me.value && !me.value.may_submit && <div class="banner warning" role="status">{t('account.lookOnly')}</div>}
      <div class="stack">
        <Card title={t('clusters.own')} flush>
          <Loaded of={list.state.value} retry={list.refresh}>
            {rows => (rows.length === 0 ? <Empty title={t('clusters.none')}><span>{t('clusters.noneHint')} </span><code>acequia cluster create dask lab --workers 2-8</code></Empty>
              : <ul class="instances">{rows.map(c => <Cluster key={c.job.id} c={c} app={titles.get(c.kind)} use={() => setUsing(c)} refresh={list.refresh} />)}</ul>)}
          </Loaded>
        </Card>
        <Card title={t('pools.title')} flush>
          <Loaded of={pools.state.value} retry={pools.refresh}>
            {rows => (rows.length === 0 ? <Empty title={t('pools.none')}><span>{t('pools.noneHint')} </span><code>acequia.Pool(cpus=8)</code></Empty>
              : (
                <ul class="instances">{rows.map(j => (
                  <li class="instance" key={j.id}>
                    <div class="grow">
                      <div class="row"><a class="plain strong cut" href={`/pools/${j.label}`}>{j.name}</a><StateText state={j.state} held={j.hold} /></div>
                      <div class="muted small">{[t('job.title', { job: j.label }), t('why.holdsCpus', { n: j.cpus }), j.state === 'PENDING' ? reasonText(j.reason) : j.nodes].filter(Boolean).join(' · ')}
                        {j.start_ms > 0 && <> · <Elapsed row={j} /></>}</div>
                    </div>
                    <div class="row-actions"><a class="button" href={`/pools/${j.label}`} aria-label={t('pools.lookOf', { name: j.name, job: j.label })}>{t('pools.look')}</a></div>
                  </li>
                ))}</ul>
              ))}
          </Loaded>
        </Card>
        {(ended.state.value.data ?? []).length > 0 && (
          <Card title={t('clusters.ended')} flush>
            <ul class="instances">{ended.state.value.data!.map(j => (
              <li class="instance" key={j.id}>
                <div class="grow">
                  <div class="row"><a class="plain strong cut" href={jobPath(j.label)}>{j.name}</a><StateText state={j.state} /></div>
                  <div class="muted small">{[t('job.title', { job: j.label }), t('job.endedAt', { at: f.moment(j.end_ms) }), reasonText(j.reason)].filter(Boolean).join(' · ')}</div>
                </div>
                <div class="row-actions"><a class="button" href={jobPath(`${j.label}+0`)} aria-label={t('clusters.headLogOf', { name: j.name })}>{t('clusters.headLog')}</a></div>
              </li>
            ))}</ul>
          </Card>
        )}
      </div>
      {starting && <StartDialog app={starting} last={undefined} cluster close={() => setStarting(null)} started={list.refresh} />}
      {using && <Use c={using} close={() => setUsing(null)} />}
    </>
  );
}

function resizeSame(c: VirtualCluster, size: string): Same {
  const w = workersOf(size);
  return { cli: `acequia cluster resize ${quote(c.job.name)} ${size}`, method: 'POST', path: `/v1/jobs/${c.job.label}/resize`,
    body: { component: 'worker', workers_min: w?.min ?? 0, workers_max: w?.max ?? 0 } };
}

function resize(c: VirtualCluster, refresh: () => void): void {
  edit<string>({
    title: t('clusters.resizeOf', { name: c.job.name }), yes: t('clusters.resize'), first: workersText(c.min, c.max),
    form: (v, set) => <WorkersField value={v} set={set} />,
    same: v => resizeSame(c, v),
    act: async v => {
      const s = resizeSame(c, v);
      await send('POST', s.path, s.body);
      notify(t('clusters.resized', { name: c.job.name, size: v }));
      refresh();
    },
  });
}

function Cluster({ c, app, use, refresh }: { c: VirtualCluster; app: App | undefined; use: () => void; refresh: () => void }) {
  const { job } = c;
  const title = app?.title ?? c.kind;
  const workers = [t('clusters.ready', { ready: c.ready, size: c.min === c.max ? String(c.max) : `${c.min}–${c.max}` }), c.running > c.ready ? t('clusters.starting', { n: c.running - c.ready }) : '', c.waiting ? t('clusters.waiting', { n: c.waiting }) : ''];
  return (
    <li class="instance">
      <AppIcon app={app} title={title} />
      <div class="grow">
        <div class="row"><a class="plain strong cut" href={jobPath(job.label)}>{job.name}</a><span class="muted">{title}</span>
          {job.state === 'RUNNING' ? <span class={`state ${c.headReady ? 'good' : 'wait'}`}>{t(c.headReady ? 'apps.health.ready' : 'apps.health.starting')}</span> : <StateText state={job.state} held={job.hold} />}</div>
        <div class="muted small">{[t('job.title', { job: job.label }), ...(job.state === 'PENDING' ? [startText(job), reasonText(job.reason)] : workers)].filter(Boolean).join(' · ')}
          {job.start_ms > 0 && <> · <Elapsed row={job} /></>}</div>
        {(job.warning || job.ending) && <div class="warn small" role="status">{job.ending ?? job.warning}</div>}
      </div>
      <div class="row-actions">
        {c.headReady && (job.urls ?? []).filter((u): u is string => u !== null).map(url => <OpenLink key={url} url={url} name={job.name} button />)}
        <button class="button" aria-label={t('clusters.useOf', { name: job.name })} onClick={use}>{t('clusters.use')}</button>
        <button class="button" aria-label={t('clusters.resizeOf', { name: job.name })} onClick={() => resize(c, refresh)}>{t('clusters.resize')}</button>
        <button class="button danger" aria-label={t('clusters.endOf', { name: job.name })} onClick={() => act('cancel', [job], refresh)}>{t('clusters.end')}</button>
      </div>
    </li>
  );
}

// The lines that use it: in Python, or beside its head.
function Use({ c, close }: { c: VirtualCluster; close: () => void }) {
  const name = quote(c.job.name);
  return (
    <Dialog title={t('clusters.useOf', { name: c.job.name })} close={close}>
      {!c.headReady && <div class="banner warning" role="status">{t('clusters.notReady')}</div>}
      {c.kind === 'mpi' ? <><p>{t('clusters.useMpi')}</p><Copyable text={`acequia cluster exec ${name} -- mpirun ./program`} /></> : (
        <>
          <p>{t('clusters.useLine')}</p>
          <Copyable text={`acequia cluster connect ${name}`} />
          <p>{t('clusters.useExec')}</p>
          <Copyable text={`acequia cluster exec ${name} -- python3 work.py`} />
        </>
      )}
    </Dialog>
  );
}
