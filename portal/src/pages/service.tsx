// One service: replicas, requests, latency, queue, revisions and their parts of the requests, how many replicas it may have, who may call it, logs.
import { useRef, useState } from 'preact/hooks';
import { call, send } from '../api/client';
import { useTopics } from '../api/live';
import { useResource } from '../api/resource';
import type { Job } from '../api/types';
import { Bar, Card, Facts } from '../components/basics';
import { ask, Dialog } from '../components/dialog';
import { edit } from '../components/edit';
import { TextField } from '../components/form';
import { Copyable, quote, SameCard, SameFold, type Same } from '../components/same';
import { Spark, type Points } from '../components/spark';
import { Empty, Failed, Loaded, Loading } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t, tWord } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { go, jobPath, location } from '../lib/router';
import { LogViewer } from '../log/viewer';
import { loadService, msText, servicePath, TONES, userOption, type Revision, type Service } from '../services/data';
import { newRevision } from '../services/form';
import type { PageProps } from '../shell/pages';
import { PageTop } from '../shell/shell';

const EVERY_MS = 2000;
const KEPT = 300;  // of what was seen since the page was opened
const REPLICAS_MOST = 32;  // of the sliders, unless it has more

export default function ServicePage({ params }: PageProps) {
  useTopics('shares');
  const name = params['name']!, user = location.value.query.get('user');
  const r = useResource(`${name}/${user}`, s => loadService(name, user, s), { everyMs: EVERY_MS });
  const s = r.state.value;
  if (s.data === null) {
    return (
      <>
        <PageTop title={name} />
        {s.status === 404 ? <Empty title={t('services.noSuch', { name })}><a href="/services">{t('nav.services')}</a></Empty>
          : <div class="card">{s.error ? <Failed text={s.error} retry={r.refresh} /> : <Loading lines={8} />}</div>}
      </>
    );
  }
  return <Body s={s.data} at={s.at} stale={s.error} refresh={r.refresh} />;
}

function Body({ s, at, stale, refresh }: { s: Service; at: number; stale: string | null; refresh: () => void }) {
  const [log, setLog] = useState(0);
  const shown = log || s.replica_list.find(x => x.state === 'ready')?.job || s.replica_list[0]?.job || 0;
  return (
    <>
      <PageTop title={s.name} beside={
        <>
          <span class={`pill ${s.state === 'ready' ? 'good' : s.state === 'failing' ? 'error' : 'accent'}`}>{tWord('services.state', s.state)}</span>
          <span class="muted cut wide-only">{[s.project, s.user].join(' · ')}</span>
        </>
      } actions={
        <>
          <button class="button" onClick={() => newRevision(s, refresh)}>{t('services.newRevision')}</button>
          <button class="button danger" onClick={() => remove(s)}>{t('action.delete')}</button>
        </>
      } />
      {s.reason && <div class={s.state === 'failing' ? 'banner error' : 'banner warning'} role="status">{reasonText(s.reason)}</div>}
      <div class={stale ? 'stack stale' : 'stack'} title={stale ?? undefined}>
        <Figures s={s} at={at} />
        <div class="job-columns">
          <div class="stack">
            <Revisions s={s} refresh={refresh} />
            <Replicas s={s} shown={shown} show={setLog} />
            {shown > 0 && <Log key={shown} job={shown} />}
          </div>
          <div class="stack">
            <Address s={s} />
            <Scale key={`${s.replicas_min}-${s.replicas_max}`} s={s} refresh={refresh} />
            <Tokens s={s} />
            <Settings s={s} />
            <SameCard actions={[{ cli: `acequia serve get ${quote(s.name)}${userOption(s)}`, path: servicePath(s) }, { cli: `acequia serve list`, path: '/v1/services' }]} />
          </div>
        </div>
      </div>
    </>
  );
}

/** What was seen since the page was opened: the controller keeps the last minute only. */
function useSeen(value: number, at: number): Points {
  const seen = useRef<Points>([]);
  if (seen.current.at(-1)?.[0] !== at) seen.current = [...seen.current, [at, value] as [number, number]].slice(-KEPT);
  return seen.current;
}

function Figures({ s, at }: { s: Service; at: number }) {
  const rate = useSeen(s.requests_per_s, at), slow = useSeen(s.p99_ms, at), waits = useSeen(s.queued, at);
  return (
    <div class="figures four">
      <section class="card figure">
        <h2>{t('services.replicas')}</h2>
        <div class="value">{f.number(s.ready_replicas)}<small>{t('overview.of', { total: f.number(s.replicas) })}</small></div>
        <div class="middle"><Bar part={s.replicas_max ? s.ready_replicas / s.replicas_max : 0} label={t('services.readyLabel', { ready: s.ready_replicas, most: s.replicas_max })} /></div>
        <div class="foot">{t('services.between', { min: s.replicas_min, max: s.replicas_max })}</div>
      </section>
      <section class="card figure">
        <h2>{t('services.rate')}</h2>
        <div class="value">{f.number(s.requests_per_s, s.requests_per_s < 10 ? 1 : 0)}</div>
        <div class="middle"><Spark points={rate} label={t('services.rateLabel')} height={24} /></div>
        <div class="foot">{t('services.total', { n: s.requests })}{s.failures > 0 && <> · <span class="bad">{t('services.failed', { n: s.failures })}</span></>}</div>
      </section>
      <section class="card figure">
        <h2>{t('services.latency')}</h2>
        <div class="value">{msText(s.p99_ms, f.number)}<small>p99</small></div>
        <div class="middle"><Spark points={slow} label={t('services.latencyLabel')} height={24} /></div>
        <div class="foot">p50 {msText(s.p50_ms, f.number)}{s.latency_ms > 0 && ` · ${t('services.goal', { ms: s.latency_ms })}`}</div>
      </section>
      <section class="card figure">
        <h2>{t('services.queue')}</h2>
        <div class="value">{f.number(s.queued)}<small>{t('services.inFlightNow', { n: s.in_flight })}</small></div>
        <div class="middle"><Spark points={waits} label={t('services.queueLabel')} height={24} /></div>
        <div class="foot">{s.refused > 0 ? <span class="warn">{t('services.refused', { n: s.refused })}</span> : t('services.noneRefused')}</div>
      </section>
    </div>
  );
}

function act(s: Service, action: 'promote' | 'rollback', r: Revision, refresh: () => void): void {
  const body = { action };
  ask({
    title: t(`services.${action}Ask`, { number: r.number }), yes: t(`services.${action}`), danger: action === 'rollback',
    body: <><p>{t(`services.${action}Text`)}</p><SameFold actions={[{ cli: `acequia serve update ${quote(s.name)}${userOption(s)} --${action}`, method: 'POST', path: servicePath(s), body }]} /></>,
    act: async () => {
      await send('POST', servicePath(s), body);
      refresh();
    },
  });
}

function Revisions({ s, refresh }: { s: Service; refresh: () => void }) {
  const newest = s.revisions.at(-1);
  const tried = s.revisions.filter(r => r.state !== 'retiring').length > 1;
  return (
    <Card title={t('services.revisions')} note={newest && tried ? (
      <span class="row-actions">
        <button class="button" onClick={() => act(s, 'promote', newest, refresh)}>{t('services.promote')}</button>
        <button class="button danger" onClick={() => act(s, 'rollback', newest, refresh)}>{t('services.rollback')}</button>
      </span>
    ) : undefined} flush>
      <div class="scroll-x" tabIndex={0} role="region" aria-label={t('services.revisions')}>
        <table>
          <thead><tr><th scope="col">{t('services.revision')}</th><th scope="col">{t('job.stateTitle')}</th><th scope="col">{t('services.weight')}</th><th scope="col" class="num">{t('services.ready')}</th>
            <th scope="col" class="wide-only">{t('services.command')}</th><th scope="col" class="wide-only">{t('services.made')}</th></tr></thead>
          <tbody>
            {[...s.revisions].reverse().map(r => (
              <tr key={r.number}>
                <td class="strong">{r.number}</td>
                <td><span class={`state ${TONES[r.state] ?? ''}`}>{tWord('services.revisionState', r.state)}</span></td>
                <td><span class="use"><Bar part={r.weight / 100} label={t('services.weightLabel', { number: r.number, weight: r.weight })} /><span>{f.percent(r.weight, 100)}</span></span></td>
                <td class="num nowrap">{r.ready} / {r.replicas}</td>
                <td class="wide-only mono cut service-command" title={r.command}>{r.command}</td><td class="wide-only nowrap">{f.moment(r.made_ms)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Card>
  );
}

function Replicas({ s, shown, show }: { s: Service; shown: number; show: (job: number) => void }) {
  return (
    <Card title={t('services.replicas')} note={s.cold_start_ms > 0 ? t('services.coldStart', { span: f.span(s.cold_start_ms) }) : undefined} flush>
      {s.replica_list.length === 0 ? <p class="muted">{t('services.noReplicas')}</p> : (
        <div class="scroll-x" tabIndex={0} role="region" aria-label={t('services.replicas')}>
          <table>
            <thead><tr><th scope="col">{t('services.replica')}</th><th scope="col" class="num">{t('services.revision')}</th><th scope="col">{t('job.stateTitle')}</th><th scope="col" class="num">{t('services.inFlight')}</th>
              <th scope="col" class="num wide-only">{t('alerts.since')}</th><th scope="col" class="wide-only">{t('services.why')}</th><th scope="col"><span class="visually-hidden">{t('log.title')}</span></th></tr></thead>
            <tbody>
              {s.replica_list.map(x => (
                <tr key={x.job}>
                  <td><a href={jobPath(String(x.job))}>{x.job}</a>{x.optional && <> <span class="pill" title={t('services.optionalHint')}>{t('services.optional')}</span></>}</td>
                  <td class="num">{x.revision}</td><td><span class={`state ${TONES[x.state] ?? ''}`}>{tWord('services.replicaState', x.state)}</span></td>
                  <td class="num">{f.number(x.in_flight)}</td><td class="num nowrap wide-only">{f.span(x.state_s * 1000)}</td><td class="wide-only small">{reasonText(x.reason)}</td>
                  <td class="num"><button class="button" aria-pressed={x.job === shown} aria-label={t('services.logOf', { job: x.job })} onClick={() => show(x.job)}>{t('log.title')}</button></td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

function Log({ job }: { job: number }) {
  const r = useResource(`job${job}`, s => call('GET /v1/jobs/{job}', { path: { job }, signal: s }) as Promise<Job>, { everyMs: 10_000 });
  return (
    <Card title={t('services.logOf', { job })}>
      <Loaded of={r.state.value} retry={r.refresh}>
        {j => (j.attempt > 0 ? <LogViewer job={String(job)} nodes={1} attempt={j.attempt} hasError={!!j.error && j.error !== j.output} start_ms={j.start_ms} end_ms={j.end_ms} /> : <p class="muted">{t('services.notStarted')}</p>)}
      </Loaded>
    </Card>
  );
}

function Address({ s }: { s: Service }) {
  return <Card title={t('services.address')}>{s.url ? <Copyable text={s.url} /> : <p class="muted">{t('services.noAddress')}</p>}</Card>;
}

// Both ends of the range; one pushes the other along.
function Scale({ s, refresh }: { s: Service; refresh: () => void }) {
  const [min, setMin] = useState(s.replicas_min);
  const [max, setMax] = useState(s.replicas_max);
  const [problem, setProblem] = useState('');
  const most = Math.max(REPLICAS_MOST, s.replicas_max);
  const body = { replicas_min: min, replicas_max: max };
  const changed = min !== s.replicas_min || max !== s.replicas_max;
  const apply = () => send('POST', servicePath(s), body).then(() => { notify(t('services.scaled', { name: s.name, min, max })); setProblem(''); refresh(); }, e => setProblem(e instanceof Error ? e.message : String(e)));
  const slider = (id: string, label: string, value: number, least: number, set: (v: number) => void) => (
    <div class="field">
      <label for={id} class="spread"><span>{label}</span><b>{f.number(value)}</b></label>
      <input class="slider" id={id} type="range" min={least} max={most} value={value} onInput={e => set(Number(e.currentTarget.value))} />
    </div>
  );
  return (
    <Card title={t('services.scale')}>
      <div class="stack">
        {slider('scale-min', t('services.min'), min, 0, v => { setMin(v); if (v > max) setMax(v); })}
        {slider('scale-max', t('services.max'), max, 1, v => { setMax(v); if (v < min) setMin(v); })}
        {problem && <div class="bad" role="alert">{problem}</div>}
        <div class="row"><button class="button primary" disabled={!changed} onClick={() => void apply()}>{t('services.apply')}</button>
          {changed && <button class="button" onClick={() => { setMin(s.replicas_min); setMax(s.replicas_max); }}>{t('action.back')}</button>}</div>
        <SameFold actions={[{ cli: `acequia serve scale ${quote(s.name)}${userOption(s)} ${min}-${max}`, method: 'POST', path: servicePath(s), body }]} />
      </div>
    </Card>
  );
}

interface Token {
  id: string;
  label: string | null;
  by: string | null;
  made_ms: number;
}

function Tokens({ s }: { s: Service }) {
  const r = useResource(`tokens${s.user}/${s.name}`, async signal => ((await (await send('GET', servicePath(s, '/tokens'), undefined, signal)).json()) as { tokens: Token[] }).tokens);
  const [made, setMade] = useState('');
  const create = () => edit<string>({
    title: t('services.newToken'), yes: t('services.create'), first: '',
    form: (v, set) => <TextField focus label={t('services.tokenLabel')} hint={t('services.tokenHint')} value={v} set={set} />,
    same: v => ({ cli: `acequia serve token ${quote(s.name)}${userOption(s)} create${v ? ` --label ${quote(v)}` : ''}`, method: 'POST', path: servicePath(s, '/tokens'), body: v ? { label: v } : {} }),
    act: async v => {
      setMade(((await (await send('POST', servicePath(s, '/tokens'), v ? { label: v } : {})).json()) as { token: string }).token);
      r.refresh();
    },
  });
  const revoke = (x: Token) => ask({
    title: t('services.revokeToken', { label: x.label ?? x.id }), yes: t('share.revoke'), danger: true,
    body: <SameFold actions={[{ cli: `acequia serve token ${quote(s.name)}${userOption(s)} revoke ${x.id}`, method: 'DELETE', path: servicePath(s, '/tokens', { id: x.id }) }]} />,
    act: async () => {
      await send('DELETE', servicePath(s, '/tokens', { id: x.id }));
      r.refresh();
    },
  });
  return (
    <Card title={t('services.tokens')} note={<button class="link-button" onClick={create}>{t('services.newToken')}</button>}>
      <Loaded of={r.state.value} retry={r.refresh} lines={2}>
        {tokens => (tokens.length === 0 ? <p class="muted">{t('services.noTokens')}</p> : (
          <ul class="stack tight">
            {tokens.map(x => (
              <li key={x.id} class="spread">
                <span class="cut"><span class="strong">{x.label || x.id}</span> <span class="muted small">{[x.by, f.moment(x.made_ms)].filter(Boolean).join(' · ')}</span></span>
                <button class="button danger" aria-label={t('services.revokeToken', { label: x.label ?? x.id })} onClick={() => revoke(x)}>{t('share.revoke')}</button>
              </li>
            ))}
          </ul>
        ))}
      </Loaded>
      {made && (
        <Dialog title={t('services.tokenMade')} close={() => setMade('')} foot={<button class="button primary" onClick={() => setMade('')}>{t('action.close')}</button>}>
          <p>{t('services.tokenOnce')}</p>
          <Copyable text={made} />
          {s.url && <Copyable text={`curl -H "Authorization: Bearer ${made}" ${s.url}`} />}
        </Dialog>
      )}
    </Card>
  );
}

function Settings({ s }: { s: Service }) {
  return (
    <Card title={t('services.settings')}>
      <Facts rows={[
        [t('services.target'), f.number(s.target)], [t('services.limit'), f.number(s.limit)], [t('services.queueMost'), f.number(s.queue_max)],
        [t('services.waitMost'), f.span(s.wait_s * 1000)], [t('services.cooldown'), f.span(s.cooldown_s * 1000)],
        [t('services.zeroAfter'), s.replicas_min === 0 ? f.span(s.idle_s * 1000) : null], [t('services.readyPath'), s.ready], [t('services.made'), f.moment(s.made_ms)],
      ]} />
    </Card>
  );
}

function remove(s: Service): void {
  const same: Same = { cli: `acequia serve delete ${quote(s.name)}${userOption(s)}`, method: 'DELETE', path: servicePath(s) };
  ask({
    title: t('services.deleteAsk', { name: s.name }), yes: t('action.delete'), danger: true,
    body: <><p>{t('services.deleteText')}</p><SameFold actions={[same]} /></>,
    act: async () => {
      await send('DELETE', servicePath(s));
      notify(t('services.deleted', { name: s.name }));
      go('/services');
    },
  });
}
