// Apps: programs that are started as jobs and used in the browser. Cards with a form; those that run, with what can be done to them; those that
// have ended, to be started again as they were.
import { useState } from 'preact/hooks';
import { act, applies, submitAgain } from '../actions/jobs';
import { errorText } from '../api/client';
import { useTopics } from '../api/live';
import { useResource } from '../api/resource';
import { me } from '../api/session';
import { appOf, loadApps, loadJobs, type App, type AppJob } from '../apps/data';
import { AppIcon } from '../apps/icon';
import { StartDialog } from '../apps/start';
import { isCluster } from '../clusters/data';
import { Card, ENDED, StateText } from '../components/basics';
import { ask } from '../components/dialog';
import { Elapsed } from '../components/elapsed';
import { SameFold } from '../components/same';
import { startText } from '../components/start';
import { Empty, Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { language, t, tWord } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { jobPath } from '../lib/router';
import { PageTop } from '../shell/shell';
import { OpenLink, portOf, Share } from './job-programs';

const EVERY_MS = 5000;
const ENDED_SHOWN = 6;
/** Virtual clusters have a page of their own. */
const own = (j: AppJob) => !(j.tags ?? []).includes('cluster');

export default function AppsPage() {
  useTopics('jobs');
  const apps = useResource(`apps ${language.value}`, async s => (await loadApps(s)).filter(a => !isCluster(a)));
  const jobs = useResource('app-jobs', loadJobs, { everyMs: EVERY_MS, when: () => true });
  const [starting, setStarting] = useState<App | null>(null);
  const [sharing, setSharing] = useState<AppJob | null>(null);
  const all = (jobs.state.value.data ?? []).filter(own);
  const titles = new Map((apps.state.value.data ?? []).map(a => [a.name, a]));
  const ended = all.filter(j => ENDED.has(j.state));
  return (
    <>
      <PageTop title={t('nav.apps')} />
      {me.value && !me.value.may_submit && <div class="banner warning" role="status">{t('account.lookOnly')}</div>}
      <div class="stack">
        <Card title={t('apps.running')} flush>
          <Loaded of={jobs.state.value} retry={jobs.refresh}>
            {rows => {
              const live = rows.filter(j => own(j) && !ENDED.has(j.state));
              return live.length === 0 ? <Empty title={t('apps.none')}>{t('apps.noneHint')}</Empty>
                : <ul class="instances">{live.map(j => <Instance key={j.id} job={j} app={titles.get(appOf(j))} share={() => setSharing(j)} refresh={jobs.refresh} />)}</ul>;
            }}
          </Loaded>
        </Card>
        <Loaded of={apps.state.value} retry={apps.refresh} lines={8}>
          {list => (list.length === 0 ? <Empty title={t('apps.noApps')} /> : (
            <ul class="app-cards">
              {list.map(a => <AppCard key={a.name} app={a} start={() => setStarting(a)} />)}
            </ul>
          ))}
        </Loaded>
        {ended.length > 0 && (
          <Card title={t('apps.ended')} note={<a href="/jobs?where=tag%3Dapp&mine=1">{t('apps.allOfThem')}</a>} flush>
            <ul class="instances">{ended.slice(0, ENDED_SHOWN).map(j => <Ended key={j.id} job={j} app={titles.get(appOf(j))} refresh={jobs.refresh} />)}</ul>
          </Card>
        )}
      </div>
      {starting && <StartDialog app={starting} last={all.find(j => appOf(j) === starting.name)?.label} close={() => setStarting(null)} started={jobs.refresh} />}
      {sharing && <Share job={sharing} ports={(sharing.urls ?? []).map(portOf)} close={() => setSharing(null)} />}
    </>
  );
}

function AppCard({ app, start }: { app: App; start: () => void }) {
  return (
    <li class="card app-card">
      <AppIcon app={app} title={app.title} />
      <div class="grow">
        <h2>{app.title}{app.origin !== 'built-in' && <> <span class="pill">{tWord('apps.origin', app.origin)}</span></>}</h2>
        <p class="muted small">{app.summary}</p>
      </div>
      <button class="button primary" disabled={!me.value?.may_submit} aria-label={t('apps.startOf', { app: app.title })} onClick={start}>{t('apps.start')}</button>
    </li>
  );
}

const READY = new Set(['ready', 'idle']);
const isReady = (j: AppJob) => j.state === 'RUNNING' && (!j.health || READY.has(j.health));

/** In a word how far it is; and what it waits for. */
function progressText(j: AppJob): string {
  if (j.state === 'PENDING') return [startText(j), reasonText(j.reason)].filter(Boolean).join(' · ');
  if (j.state === 'RUNNING' && j.health_reason) return j.health_reason;
  return j.nodes ?? '';
}

function Instance({ job, app, share, refresh }: { job: AppJob; app: App | undefined; share: () => void; refresh: () => void }) {
  const left = job.time_limit_s && job.start_ms ? Math.max(0, job.start_ms + job.time_limit_s * 1000 - Date.now()) : 0;
  const title = app?.title ?? appOf(job);
  const ready = isReady(job) && (job.urls?.length ?? 0) > 0;
  return (
    <li class="instance">
      <AppIcon app={app} title={title} />
      <div class="grow">
        <div class="row"><a class="plain strong cut" href={jobPath(job.label)}>{job.name}</a>{job.name !== title && <span class="muted">{title}</span>}
          {job.state === 'RUNNING' && job.health ? <span class={`state ${READY.has(job.health) ? 'good' : job.health === 'sick' ? 'bad' : 'wait'}`}>{tWord('apps.health', job.health)}</span>
            : <StateText state={job.state} held={job.hold} />}</div>
        <div class="muted small">{[t('job.title', { job: job.label }), job.gpus_milli ? t('new.gpus', { n: job.gpus_milli / 1000 }) : '', progressText(job)].filter(Boolean).join(' · ')}
          {job.start_ms > 0 && <> · <Elapsed row={job} />{left > 0 && ` · ${t('apps.left', { span: f.span(left) })}`}</>}</div>
        {(job.warning || job.ending) && <div class="warn small" role="status">{job.ending ?? job.warning}</div>}
      </div>
      <div class="row-actions">
        {ready ? job.urls!.map(url => <OpenLink key={url} url={url} name={job.name} button />) : <button class="button" disabled>{t('programs.open')}</button>}
        <button class="button" disabled={!job.urls?.length} aria-label={t('share.title', { name: job.name })} onClick={share}>{t('share.button')}</button>
        <button class="button danger" disabled={!applies('cancel', job)} aria-label={t('apps.stopOf', { name: job.name })} onClick={() => act('cancel', [job], refresh)}>{t('apps.stop')}</button>
      </div>
    </li>
  );
}

function Ended({ job, app, refresh }: { job: AppJob; app: App | undefined; refresh: () => void }) {
  const title = app?.title ?? appOf(job);
  const again = () => ask({
    title: t('apps.againAsk', { app: title }), yes: t('apps.again'),
    body: <><p>{t('apps.againText', { job: job.label })}</p><SameFold actions={[{ cli: `acequia resubmit ${job.label}`, method: 'POST', path: '/v1/jobs', body: { spec: { '…': '…' } } }]} /></>,
    act: async () => {
      notify(t('apps.did', { app: title, job: String(await submitAgain(job.label).catch(e => { throw new Error(errorText(e)); })) }));
      refresh();
    },
  });
  return (
    <li class="instance">
      <AppIcon app={app} title={title} />
      <div class="grow">
        <div class="row"><a class="plain strong cut" href={jobPath(job.label)}>{job.name}</a><StateText state={job.state} /></div>
        <div class="muted small">{[t('job.title', { job: job.label }), t('job.endedAt', { at: f.moment(job.end_ms) }), reasonText(job.reason)].filter(Boolean).join(' · ')}</div>
      </div>
      <div class="row-actions"><button class="button" disabled={!me.value?.may_submit} aria-label={t('apps.againOf', { name: job.name })} onClick={again}>{t('apps.again')}</button></div>
    </li>
  );
}
