// Time travel: queue, nodes and shares as they were at any minute of the journal. The address holds the minute, so a link shows
// others the same. Each minute is one request, made when the slider rests; while it plays, the next is asked for when the last has come.
import { useEffect, useRef, useState } from 'preact/hooks';
import { address, ApiError, call, errorText, send } from '../api/client';
import { useResource } from '../api/resource';
import type { JobRow, NodeNow, Series, Shares, Why } from '../api/types';
import { Card, StateText } from '../components/basics';
import { NodesCard, SharesCard } from '../components/cluster';
import { Dialog } from '../components/dialog';
import { SameCard } from '../components/same';
import { Spark, type Points } from '../components/spark';
import { Empty, Failed, Loaded, Loading } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t, tWord } from '../lib/i18n';
import { explained } from '../lib/phrases';
import { jobPath, location, setQuery } from '../lib/router';
import { PageTop } from '../shell/shell';

const MINUTE_MS = 60_000, HOUR_MS = 60 * MINUTE_MS, DAY_MS = 24 * HOUR_MS;
const SPANS = { '1h': HOUR_MS, '1d': DAY_MS, '7d': 7 * DAY_MS, '30d': 30 * DAY_MS };
type Span = keyof typeof SPANS;
const REST_MS = 150;       // of the slider, before it is asked for
const PLAY_MS = 500;       // between two steps, at least
const RETRY_MS = 250;      // when others are looking back
const RETRIES = 12;
const ROWS = 200;
const POINTS = 200;

interface At {
  time_ms: number;
  seq: number;
  oldest_ms: number;
  states: Record<string, number>;
  jobs: JobRow[];
  complete: boolean;
  nodes: NodeNow[];
  shares: Shares;
}

const minute = (ms: number) => Math.floor(ms / MINUTE_MS) * MINUTE_MS;
const wait = (ms: number) => new Promise(done => setTimeout(done, ms));

async function load(time_ms: number, signal: AbortSignal): Promise<At> {
  for (let n = 0; ; n++) {
    try {
      return (await (await send('GET', address('/v1/at', {}, { time_ms }), undefined, signal)).json()) as At;
    } catch (e) {
      if (!(e instanceof ApiError) || e.code !== 'EAGAIN' || n >= RETRIES) throw e;
    }
    await wait(RETRY_MS);
    signal.throwIfAborted();
  }
}

/** What was at a time; while another time is loaded the one before stays, and says that it is old. */
function useAt(time: number) {
  const [data, setData] = useState<At | null>(null);
  const [error, setError] = useState<{ text: string; gone: boolean } | null>(null);
  const [tries, setTries] = useState(0);
  const asked = useRef(0);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => {
      asked.current = Date.now();
      load(time, abort.signal).then(d => { setData(d); setError(null); }, e => {
        if (!abort.signal.aborted) setError({ text: errorText(e), gone: e instanceof ApiError && e.status === 404 });
      });
    }, Date.now() - asked.current < REST_MS ? REST_MS : 0);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [time, tries]);
  return { data, error, loading: data?.time_ms !== time && !error, retry: () => setTries(n => n + 1) };
}

export default function PastPage() {
  const query = location.value.query;
  const [opened] = useState(() => Date.now());
  const given = Number(query.get('at'));
  const time = given > 0 ? Math.min(given, Date.now()) : opened;
  const { data, error, loading, retry } = useAt(time);
  const [playing, setPlaying] = useState(false);
  const [step, setStep] = useState(MINUTE_MS);
  const move = (to: number) => setQuery({ at: String(Math.max(data?.oldest_ms ?? 0, Math.min(to, Date.now()))) });
  useEffect(() => {
    if (!playing || loading) return undefined;
    if (error || time + step > Date.now()) {
      setPlaying(false);
      return undefined;
    }
    const timer = setTimeout(() => move(time + step), PLAY_MS);
    return () => clearTimeout(timer);
  }, [playing, loading, time, step, error]);
  const keys = (e: KeyboardEvent) => {
    if ((e.target as HTMLElement).closest('input, select, dialog')) return;
    const by = e.key === 'ArrowLeft' ? -MINUTE_MS : e.key === 'ArrowRight' ? MINUTE_MS : 0;
    if (!by || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    move(time + (e.shiftKey ? by * 60 : by));
  };
  useEffect(() => {
    document.addEventListener('keydown', keys);
    return () => document.removeEventListener('keydown', keys);
  });
  const gone = error?.gone || (data !== null && time < data.oldest_ms);
  return (
    <>
      <PageTop title={t('nav.past')} />
      <div class="stack">
        <Controls time={time} oldest={data?.oldest_ms ?? 0} move={move} playing={playing} play={() => setPlaying(!playing)} step={step} setStep={setStep} />
        {gone && <Card><Empty title={t('past.notKept')}><button class="button" onClick={() => setQuery({ at: null })}>{t('past.now')}</button></Empty></Card>}
        {error && !gone && <Card><Failed text={error.text} retry={retry} /></Card>}
        {!data && !error && <Card><Loading lines={10} /></Card>}
        {data && !error && !gone && <div class={loading ? 'stack stale' : 'stack'} aria-busy={loading}><Body d={data} /></div>}
      </div>
    </>
  );
}

function Controls({ time, oldest, move, playing, play, step, setStep }: {
  time: number; oldest: number; move: (to: number) => void; playing: boolean; play: () => void; step: number; setStep: (ms: number) => void;
}) {
  const [span, setSpan] = useState<Span>(() => (Object.keys(SPANS) as Span[]).find(k => Date.now() - time < SPANS[k]) ?? '30d');
  const now = Date.now();
  const from = Math.min(minute(time), minute(Math.max(oldest, now - SPANS[span]))), to = from + Math.max(1, Math.ceil((Math.max(now, time) - from) / MINUTE_MS)) * MINUTE_MS;
  const strip = useResource(span, async signal => {
    const end = Date.now(), begin = end - SPANS[span];
    const held = (await call('GET /v1/series', { query: { name: 'cluster/gpus_allocated', from_ms: begin, to_ms: end, step_ms: Math.ceil(SPANS[span] / POINTS / 1000) * 1000 }, signal })) as Series;
    return held.points as Points;
  });
  const share = () => void navigator.clipboard.writeText(`${window.location.origin}/past?at=${time}`).then(() => notify(t('past.linkCopied')), () => undefined);
  const points = (strip.state.value.data ?? []).filter(p => p[0] >= from);
  const buttons: Array<[string, number, string]> = [['−1 h', -HOUR_MS, t('past.hourBack')], ['−1 min', -MINUTE_MS, t('past.minuteBack')], ['+1 min', MINUTE_MS, t('past.minuteOn')], ['+1 h', HOUR_MS, t('past.hourOn')]];
  const steps: Array<[number, string]> = [[MINUTE_MS, t('past.perMinute')], [10 * MINUTE_MS, t('past.perTen')], [HOUR_MS, t('past.perHour')]];
  return (
    <Card>
      <div class="past-strip">
        <Spark points={points} label={t('past.stripLabel')} height={44} />
        <input class="slider" type="range" aria-label={t('past.slider')} aria-valuetext={f.fullMoment(time)} min={from} max={to} step={MINUTE_MS} value={time} onInput={e => move(Number(e.currentTarget.value))} />
        <div class="spread muted small"><span>{f.moment(from)}</span><b class="past-now" aria-live="polite">{f.fullMoment(time)}</b><span>{f.moment(now)}</span></div>
      </div>
      <div class="tools past-tools">
        <button class="button primary" onClick={play} aria-pressed={playing}>{playing ? t('past.pause') : t('past.play')}</button>
        {buttons.map(([text, by, label]) => <button key={by} class="button" title={label} disabled={by > 0 && time + by > Date.now()} onClick={() => move(time + by)}>{text}</button>)}
        <button class="button" onClick={() => move(Date.now())}>{t('past.now')}</button>
        <select class="select" aria-label={t('past.speed')} value={step} onChange={e => setStep(Number(e.currentTarget.value))}>{steps.map(([ms, text]) => <option key={ms} value={ms}>{text}</option>)}</select>
        <select class="select" aria-label={t('past.span')} value={span} onChange={e => setSpan(e.currentTarget.value as Span)}>{(Object.keys(SPANS) as Span[]).map(k => <option key={k} value={k}>{t(`past.${k}`)}</option>)}</select>
        <input class="input" type="datetime-local" aria-label={t('past.moment')} value={localText(time)} max={localText(Date.now())}
          onChange={e => { const ms = new Date(e.currentTarget.value).getTime(); if (ms > 0) move(ms); }} />
        <button class="button" onClick={share}>{t('past.share')}</button>
      </div>
    </Card>
  );
}

// As the field wants it: local time, without a zone.
function localText(ms: number): string {
  return new Date(ms - new Date(ms).getTimezoneOffset() * MINUTE_MS).toISOString().slice(0, 16);
}

function Body({ d }: { d: At }) {
  const running = d.jobs.filter(j => j.state !== 'PENDING'), waiting = d.jobs.filter(j => j.state === 'PENDING');
  const total = d.nodes.reduce((n, x) => n + x.gpus.length, 0);
  const held = d.nodes.reduce((n, x) => n + x.gpus.reduce((s, g) => s + g.held_milli, 0), 0);
  const down = d.nodes.filter(n => n.state === 'down' || n.state === 'unreachable').length;
  const figures: Array<[string, string, string]> = [
    [t('overview.gpusInUse'), f.gpus(held), t('overview.of', { total: f.number(total) })],
    [t('overview.running'), f.number(d.states['RUNNING'] ?? 0), ''], [t('overview.waiting'), f.number(d.states['PENDING'] ?? 0), ''],
    [t('nav.nodes'), f.number(d.nodes.length), down ? t('past.down', { n: down }) : ''], [t('past.event'), f.number(d.seq), ''],
  ];
  return (
    <>
      <div class="figures short">{figures.map(([title, value, unit]) => <section class="card figure" key={title}><h2>{title}</h2><div class="value">{value}<small>{unit}</small></div></section>)}</div>
      <div class="two"><SharesCard shares={d.shares} /><NodesCard nodes={d.nodes} shares={d.shares} note={t('past.nodesNote')} /></div>
      <div class="two">
        <Card title={t('overview.running')} flush><Jobs rows={running} at={d.time_ms} empty={t('past.nothingRan')} /></Card>
        <Card title={t('overview.waiting')} flush><Jobs rows={waiting} at={d.time_ms} waiting empty={t('past.nothingWaited')} /></Card>
      </div>
      {!d.complete && <p class="muted small">{t('past.incomplete')}</p>}
      <SameCard actions={[{ cli: `acequia list --at ${localText(d.time_ms)}`, path: '/v1/at', query: { time_ms: d.time_ms } }]} />
    </>
  );
}

function Jobs({ rows, at, waiting, empty }: { rows: JobRow[]; at: number; waiting?: boolean; empty: string }) {
  const [why, setWhy] = useState<JobRow | null>(null);
  if (rows.length === 0) return <Empty title={empty} />;
  return (
    <div class="past-jobs" tabIndex={0} role="region" aria-label={waiting ? t('overview.waiting') : t('overview.running')}>
      <table class="plain-table">
        <colgroup><col style={{ width: '68px' }} /><col /><col class="wide-only" style={{ width: '96px' }} /><col style={{ width: '52px' }} /><col style={{ width: waiting ? '168px' : '116px' }} /></colgroup>
        <thead><tr><th scope="col">{t('job.id')}</th><th scope="col">{t('job.name')}</th><th scope="col" class="wide-only">{t('job.project')}</th><th scope="col" class="num">{t('job.gpus')}</th>
          <th scope="col" class={waiting ? undefined : 'num'}>{waiting ? t('job.why') : t('job.time')}</th></tr></thead>
        <tbody>
          {rows.slice(0, ROWS).map(r => (
            <tr key={r.id}>
              <td><a href={jobPath(r.label)}>{r.label}</a></td>
              <td title={`${r.name} · ${r.user}`}><span class="strong">{r.name}</span> <span class="muted">{r.user}</span></td>
              <td class="wide-only" title={r.project}>{r.project}</td><td class="num">{r.gpus_milli ? f.gpus(r.gpus_milli) : '–'}</td>
              {waiting ? <td><button class="link-button cut" onClick={() => setWhy(r)} title={tWord('reason', r.reason ?? 'None')}>{r.hold ? t('job.held') : tWord('reason', r.reason ?? 'None')}</button></td>
                : <td class="num">{r.state === 'RUNNING' && r.start_ms ? f.clock(at - r.start_ms) : <StateText state={r.state} />}</td>}
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > ROWS && <div class="legend">{t('overview.more', { n: rows.length - ROWS })}</div>}
      {why && <WhyThen job={why} at={at} close={() => setWhy(null)} />}
    </div>
  );
}

// The scheduler's explanation, made from the state of that time.
function WhyThen({ job, at, close }: { job: JobRow; at: number; close: () => void }) {
  const r = useResource(`${job.label}/${at}`, s => call('GET /v1/jobs/{job}/why', { path: { job: job.label }, query: { at_ms: at }, signal: s }) as Promise<Why>);
  return (
    <Dialog title={t('past.whyTitle', { job: job.label, at: f.fullMoment(at) })} close={close}>
      <Loaded of={r.state.value} retry={r.refresh}>{w => <div>{explained(w, true).map((s, i) => <div key={i} class={i ? 'muted' : undefined}>{s.text}</div>)}</div>}</Loaded>
    </Dialog>
  );
}
