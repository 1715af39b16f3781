// A terminal in a folder. Nothing runs outside of a job here, so it is one: small, interactive, in that folder, and cancelled when the terminal is closed.
import { useEffect, useRef, useState } from 'preact/hooks';
import { call, errorText, send } from '../api/client';
import { onJobs } from '../api/live';
import type { Job } from '../api/types';
import { t } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { lazy } from '../lib/lazy';
import { jobPath } from '../lib/router';
import { ENDED } from './basics';
import { Dialog, ask } from './dialog';
import { SameFold, quote, type Same } from './same';
import { signal } from '@preact/signals';

const Terminal = lazy(() => import('./terminal'));
const CPUS = 1, MEMORY_GIB = 1, HOURS = 1;
const LOOK_MS = 2000;

interface Where {
  folder: string;
  node?: string | undefined;
  project?: string | undefined;
}

function requestOf(w: Where) {
  return {
    spec: {
      name: 'terminal', argv: ['sleep', String(HOURS * 3600)], workdir: w.folder, output: '/dev/null', cpus_per_task: CPUS, memory_per_node_bytes: MEMORY_GIB * 2 ** 30,
      time_limit_s: HOURS * 3600, requeue: false, ...(w.project ? { project: w.project } : {}), ...(w.node ? { nodelist: w.node } : {}),
    },
  };
}

function sameOf(w: Where): Same {
  const more = `${w.project ? ` --project ${quote(w.project)}` : ''}${w.node ? ` --nodelist ${quote(w.node)}` : ''}`;
  return { cli: `acequia run --pty --name terminal --chdir ${quote(w.folder)} --cpus ${CPUS} --memory ${MEMORY_GIB}G --time ${HOURS}h${more} -- bash`, method: 'POST', path: '/v1/jobs', body: requestOf(w) };
}

const shown = signal<{ where: Where; job: string } | null>(null);

/** Says what it will be, then submits the job and shows its terminal. */
export function openTerminal(where: Where): void {
  ask({
    title: t('terminal.folderTitle'), yes: t('terminal.start'),
    body: (
      <>
        <p>{t('terminal.isJob', { folder: where.folder, cpus: CPUS, memory: `${MEMORY_GIB} GB`, hours: HOURS })}</p>
        <SameFold actions={[sameOf(where), { cli: '', method: 'POST', path: '/v1/jobs/cancel', body: { ids: ['JOB'] } }]} />
      </>
    ),
    act: async () => {
      const made = (await (await send('POST', '/v1/jobs', requestOf(where))).json()) as { id: number };
      shown.value = { where, job: String(made.id) };
    },
  });
}

/** Where the terminal appears; part of the frame around all pages. */
export function FolderTerminals() {
  const s = shown.value;
  return s ? <Shown key={s.job} where={s.where} job={s.job} /> : null;
}

function cancel(job: string): void {
  void send('POST', '/v1/jobs/cancel', { ids: [job] }).catch(() => undefined);  // it may have ended by itself
}

function Shown({ where, job }: { where: Where; job: string }) {
  const [now, set] = useState<Job | null>(null);
  const [error, setError] = useState('');
  const over = useRef(false);
  useEffect(() => {
    const look = () => call('GET /v1/jobs/{job}', { path: { job } }).then(j => {
      over.current = ENDED.has((j as Job).state);
      set(j as Job);
    }, e => setError(errorText(e)));
    const off = onJobs(e => e.jobs.some(j => j.label === job) && void look());
    const timer = setInterval(() => void look(), LOOK_MS);
    const leave = () => !over.current && navigator.sendBeacon?.('/v1/jobs/cancel', new Blob([JSON.stringify({ ids: [job] })], { type: 'application/json' }));
    addEventListener('pagehide', leave);
    void look();
    return () => {
      off();
      clearInterval(timer);
      removeEventListener('pagehide', leave);
      if (!over.current) cancel(job);
    };
  }, [job]);
  const ready = now?.state === 'RUNNING';
  return (
    <Dialog title={t('terminal.title', { job })} wide close={() => (shown.value = null)}>
      {ready ? <Terminal job={job} node={0} folder={where.folder} /> : (
        <div class="stack">
          <p role="status">{now && over.current ? t('terminal.jobEnded', { reason: reasonText(now.reason) }) : t('terminal.waits', { job })}{now?.reason && !over.current ? ` ${reasonText(now.reason)}` : ''}</p>
          {error && <p class="bad" role="alert">{error}</p>}
          <p><a class="in-text" href={jobPath(job)} onClick={() => (shown.value = null)}>{t('terminal.why')}</a></p>
        </div>
      )}
      <p class="muted small">{t('terminal.closing')}</p>
    </Dialog>
  );
}
