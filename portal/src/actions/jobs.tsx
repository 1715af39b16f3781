// What can be done to jobs, alone or many at once: each action asks, shows the same from a shell, acts and reports.
import { address, call, send } from '../api/client';
import { mayAct } from '../api/session';
import type { Action, Job, JobRow, Spec } from '../api/types';
import { ENDED } from '../components/basics';
import { ask } from '../components/dialog';
import { SameFold, type Same } from '../components/same';
import { notify } from '../components/toast';
import { t, type TextKey } from '../lib/i18n';

export type Verb = 'cancel' | 'hold' | 'release' | 'requeue' | 'suspend' | 'resume' | 'resubmit';
export type ActedOn = Pick<JobRow, 'label' | 'state' | 'hold' | 'user' | 'project'>;

const CLI: Record<Verb, string> = {
  cancel: 'cancel', hold: 'hold', release: 'release', requeue: 'requeue', suspend: 'suspend', resume: 'continue', resubmit: 'resubmit',
};
const IDS_SHOWN = 12;

/** Whether the action makes sense for a job in this state. */
export function applies(verb: Verb, j: ActedOn): boolean {
  const ended = ENDED.has(j.state);
  switch (verb) {
    case 'cancel': return !ended;
    case 'hold': return j.state === 'PENDING' && !j.hold;
    case 'release': return j.state === 'PENDING' && j.hold;
    case 'requeue': return j.state === 'RUNNING' || j.state === 'SUSPENDED';
    case 'suspend': return j.state === 'RUNNING';
    case 'resume': return j.state === 'SUSPENDED';
    case 'resubmit': return true;
  }
}

export const allowed = (j: ActedOn): boolean => mayAct(j.user, j.project);

/** The action as a command line and as requests: who resubmits reads what was asked for, and submits it. */
export function sameOf(verb: Verb, labels: string[]): Same[] {
  const cli = `acequia ${CLI[verb]} ${labels.join(' ')}`;
  if (verb !== 'resubmit') return [{ cli, method: 'POST', path: `/v1/jobs/${verb}`, body: { ids: labels } }];
  return [{ cli, path: `/v1/jobs/${labels[0]}` }, { cli: '', method: 'POST', path: '/v1/jobs', body: { spec: { '…': '…' } } }];
}

function report(verb: Verb, a: Action): void {
  notify(t(`did.${verb}` as TextKey, { n: a.done }));
  if (a.errors.length) throw new Error(a.errors.slice(0, 3).map(e => `${e.id}: ${e.error?.message}`).join(' '));
}

// What the controller sets, and what was meant for the first time only, is left out.
export async function submitAgain(label: string): Promise<number> {
  const job = (await call('GET /v1/jobs/{job}', { path: { job: label } })) as Job;
  const spec: Partial<Spec> | null = job.spec ? { ...job.spec } : null;
  if (!spec) throw new Error(t('job.notYours', { job: label }));
  const hasScript = (spec.script_bytes ?? 0) > 0, hasEnvironment = (spec.environment_bytes ?? 0) > 0;
  for (const key of ['user', 'uid', 'gid', 'script_id', 'environment_id', 'submit_line', 'dependency', 'script_bytes', 'environment_bytes', 'hold'] as const)
    delete spec[key];
  if ((spec.begin_ms ?? 0) <= Date.now()) delete spec.begin_ms;
  if ((spec.deadline_ms ?? 0) <= Date.now()) delete spec.deadline_ms;
  const base = address('/v1/jobs/{job}', { job: label });
  const body: Record<string, unknown> = { spec, key: crypto.randomUUID?.() ?? String(Math.random()) };
  if (hasScript) body['script'] = await (await send('GET', `${base}/script`)).text();
  if (hasEnvironment) body['environment'] = ((await (await send('GET', `${base}/environment?list=1`)).json()) as { environment: string[] }).environment;
  return ((await (await send('POST', '/v1/jobs', body)).json()) as { id: number }).id;
}

async function resubmit(labels: string[]): Promise<void> {
  let n = 0;
  for (const label of labels) {
    await submitAgain(label);
    n++;
  }
  notify(t('did.resubmit', { n }));
}

/** Asks, then does it to those jobs that it applies to. */
export function act(verb: Verb, jobs: ActedOn[], done?: () => void): void {
  const on = jobs.filter(j => applies(verb, j));
  const labels = on.map(j => j.label);
  const left = jobs.length - on.length;
  const shown = labels.slice(0, IDS_SHOWN).join(', ') + (labels.length > IDS_SHOWN ? ', …' : '');
  ask({
    title: t(`ask.${verb}` as TextKey, { n: labels.length }),
    yes: t(`verb.${verb}` as TextKey),
    danger: verb === 'cancel',
    body: (
      <>
        <div>{shown}</div>
        {left > 0 && <div class="muted">{t('ask.left', { n: left })}</div>}
        <SameFold actions={sameOf(verb, labels)} />
      </>
    ),
    act: async () => {
      if (verb === 'resubmit') await resubmit(labels);
      else report(verb, (await (await send('POST', `/v1/jobs/${verb}`, { ids: labels })).json()) as Action);
      done?.();
    },
  });
}
