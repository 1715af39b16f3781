// More time for a job: asks for the new limit, shows whose start it moves (by the scheduler itself) and whether the rules allow it,
// and the same from a shell; then updates the limit.
import { useState } from 'preact/hooks';
import { address, call, send } from '../api/client';
import { useResource } from '../api/resource';
import type { Delay, Extension } from '../api/schema';
import type { Action, Job } from '../api/types';
import { ask } from '../components/dialog';
import { SameFold } from '../components/same';
import { Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { jobPath } from '../lib/router';

const HOUR = 3600;
const STEPS = [1, 2, 4, 8, 12, 24, 48];
const SHOWN = 8;

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
  const runs = job.start_ms > 0 && job.state !== 'PENDING';
  return (
    <>
      <div class="row" role="group" aria-label={t('extend.by')}>
        {STEPS.map(h => <button key={h} class="button" type="button" aria-pressed={h === more} onClick={() => choose(h)}>+{h} h</button>)}
      </div>
      <div>{t('extend.from', { before: f.span(job.time_limit_s * 1000), after: f.span(limit * 1000) })}
        {job.start_ms > 0 && <> · {t('extend.ends', { at: f.moment(job.start_ms + job.suspended_ms + limit * 1000) })}</>}</div>
      {runs && <Consequence key={limit} job={job} limit={limit} />}
      <SameFold actions={[
        ...(runs ? [{ cli: `acequia update ${job.label} --time ${f.limitOption(limit)} --dry-run`, path: address('/v1/jobs/{job}/extension', { job: job.label }), query: { time_limit_s: limit } }] : []),
        { cli: `acequia update ${job.label} --time ${f.limitOption(limit)}`, method: 'POST', path: '/v1/jobs/update', body: { ids: [job.label], spec: { time_limit_s: limit } } },
      ]} />
    </>
  );
}

function Consequence({ job, limit }: { job: Job; limit: number }) {
  const r = useResource(`extension${job.label}/${limit}`, s => call('GET /v1/jobs/{job}/extension', { path: { job: job.label }, query: { time_limit_s: limit }, signal: s }) as Promise<Extension>);
  return (
    <section aria-live="polite">
      <h3>{t('extend.consequence')}</h3>
      <Loaded of={r.state.value} retry={r.refresh} lines={3}>
        {x => (
          <div class="stack tight">
            {x.refused && <div class="banner warning" role="status">{x.refused}</div>}
            {x.moved.length === 0 ? <div class="ok">{t(x.complete ? 'extend.nobody' : 'extend.nobodyNext')}</div> : <Moved x={x} />}
          </div>
        )}
      </Loaded>
    </section>
  );
}

function Moved({ x }: { x: Extension }) {
  return (
    <>
      <div class={x.delayed ? 'warn' : undefined}>{t('extend.delayed', { n: x.delayed })}{x.earlier > 0 && ` ${t('extend.earlier', { n: x.earlier })}`}</div>
      <table class="plain-table">
        <colgroup><col style={{ width: '64px' }} /><col /><col style={{ width: '110px' }} class="wide-only" /><col style={{ width: '110px' }} /><col style={{ width: '84px' }} /></colgroup>
        <thead><tr><th scope="col">{t('job.id')}</th><th scope="col">{t('job.name')}</th><th scope="col" class="num wide-only">{t('extend.before')}</th>
          <th scope="col" class="num">{t('extend.after')}</th><th scope="col" class="num">{t('extend.move')}</th></tr></thead>
        <tbody>{x.moved.slice(0, SHOWN).map(d => <DelayRow key={d.job} d={d} />)}</tbody>
      </table>
      <p class="muted small">{x.moved.length > SHOWN && `${t('overview.more', { n: x.delayed + x.earlier - SHOWN })} · `}{t(x.complete ? 'extend.limits' : 'extend.limitsNext')}</p>
    </>
  );
}

function DelayRow({ d }: { d: Delay }) {
  const after = d.after_ms ?? null;
  const by = after === null ? null : after - d.before_ms;
  return (
    <tr>
      <td><a class="in-text" href={jobPath(d.job ?? '')}>{d.job}</a></td>
      <td title={`${d.name ?? ''} ${d.user ?? ''}`}>{d.name ?? <span class="muted">{t('extend.hidden')}</span>} <span class="muted">{[d.user, d.project].filter(Boolean).join(' · ')}</span></td>
      <td class="num wide-only">{f.moment(d.before_ms)}</td>
      <td class="num">{after === null ? t('extend.far') : f.moment(after)}</td>
      <td class={by !== null && by < 0 ? 'num ok' : 'num warn'}>{by === null ? '–' : `${by < 0 ? '−' : '+'}${f.span(Math.abs(by))}`}</td>
    </tr>
  );
}
