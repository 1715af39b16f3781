// More time for a job: asks for the new limit, shows the same from a shell, then updates it.
import { useState } from 'preact/hooks';
import { send } from '../api/client';
import type { Action, Job } from '../api/types';
import { ask } from '../components/dialog';
import { SameFold } from '../components/same';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';

const HOUR = 3600;
const STEPS = [1, 2, 4, 8, 12, 24, 48];

export function extend(job: Job, done: () => void): void {
  let chosen = job.time_limit_s + HOUR;
  ask({
    title: t('extend.title', { job: job.label }),
    yes: t('extend.yes'),
    body: <Body job={job} set={s => (chosen = s)} />,
    act: async () => {
      const a = (await (await send('POST', '/v1/jobs/update', { ids: [job.label], spec: { time_limit_s: chosen } })).json()) as Action;
      if (a.errors.length) throw new Error(a.errors[0]!.error?.message ?? '');
      notify(t('extend.did', { job: job.label, limit: f.span(chosen * 1000) }));
      done();
    },
  });
}

function Body({ job, set }: { job: Job; set: (s: number) => void }) {
  const [more, setMore] = useState(1);
  const limit = job.time_limit_s + more * HOUR;
  const choose = (h: number) => {
    setMore(h);
    set(job.time_limit_s + h * HOUR);
  };
  return (
    <>
      <div class="row" role="group" aria-label={t('extend.by')}>
        {STEPS.map(h => <button key={h} class="button" type="button" aria-pressed={h === more} onClick={() => choose(h)}>+{h} h</button>)}
      </div>
      <div>{t('extend.from', { before: f.span(job.time_limit_s * 1000), after: f.span(limit * 1000) })}
        {job.start_ms > 0 && <> · {t('extend.ends', { at: f.moment(job.start_ms + job.suspended_ms + limit * 1000) })}</>}</div>
      <SameFold actions={[{ cli: `acequia update ${job.label} --time ${f.limitOption(limit)}`, method: 'POST', path: '/v1/jobs/update', body: { ids: [job.label], spec: { time_limit_s: limit } } }]} />
    </>
  );
}
