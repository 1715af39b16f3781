// When the job would start, as sliders over GPUs, the part of a GPU and the time limit. The real scheduler is asked for every stop of each slider before it
// is moved; the bar above a stop is the wait there.
import { useEffect, useId, useMemo, useState } from 'preact/hooks';
import { errorText, send } from '../api/client';
import { liveNodes } from '../api/live';
import type { When } from '../api/schema';
import type { Spec } from '../api/types';
import { Card } from '../components/basics';
import * as f from '../lib/format';
import { t, tWord } from '../lib/i18n';
import type { Option } from './script';

const CHECK_WAIT_MS = 500;
const ALTERNATIVES_MAX = 11;  // of one question
const WHOLE = [0, 1000, 2000, 4000, 8000, 16_000];
const PARTS = [100, 250, 500, 750, 1000];
const TIMES = [900, 3600, 4 * 3600, 12 * 3600, 86_400, 7 * 86_400];
const MINUTE_MS = 60_000, WEEK_MS = 7 * 86_400_000;

export interface Request {
  spec: Partial<Spec>;
  script: string;
}

type Variant = When['variants'][number];

/** What the sliders change; a time limit of 0 is the partition's own. */
interface Asked {
  gpus_milli: number;
  time_limit_s: number;
}

interface Axis {
  label: string;
  stops: Asked[];
  /** The stop that the request is at; -1: none, the slider cannot be moved. */
  at: number;
  text: (a: Asked) => string;
  option: 'gpus' | 'time';
}

const keyOf = (a: Asked) => `${a.gpus_milli} ${a.time_limit_s}`;
const askedOf = (spec: Partial<Spec>): Asked => ({ gpus_milli: spec.gpus_milli ?? 0, time_limit_s: spec.time_limit_s ?? 0 });

function axesOf(spec: Partial<Spec>): Axis[] {
  const now = askedOf(spec), gpus = now.gpus_milli, limit = now.time_limit_s;
  const nodes = Math.max(1, spec.nodes_min ?? 1);
  const most = nodes * Math.max(0, ...(liveNodes.value ?? []).map(n => n.gpus.length)) * 1000;
  // The value that was typed is a stop, too.
  const axis = (option: Axis['option'], label: string, values: number[], value: number, make: (v: number) => Asked, text: Axis['text']): Axis => {
    const all = [...new Set([...values, value])].sort((a, b) => a - b);
    return { option, label, stops: all.map(make), at: all.indexOf(value), text };
  };
  const axes: Axis[] = [];
  const ofGpus = (v: number): Asked => ({ gpus_milli: v, time_limit_s: limit });
  const gpuText = (a: Asked) => f.gpus(a.gpus_milli);
  if (most) {
    axes.push(axis('gpus', t('job.gpus'), WHOLE.filter(n => n <= most && n % (nodes * 1000) === 0), gpus, ofGpus, gpuText));
    const part = axis('gpus', t('new.part'), PARTS, gpus > 0 && gpus < 1000 ? gpus : 1000, ofGpus, gpuText);
    axes.push(gpus > 0 && gpus <= 1000 && nodes === 1 ? part : { ...part, at: -1 });
  }
  const time = axis('time', t('new.limit'), TIMES, limit || 900, v => ({ gpus_milli: gpus, time_limit_s: v }), a => (a.time_limit_s ? f.span(a.time_limit_s * 1000) : '–'));
  if (!limit) time.at = time.stops.push(now) - 1;  // without a limit of its own: beyond the longest
  axes.push(time);
  return axes;
}

async function ask(request: Request, instead: Asked[], signal: AbortSignal): Promise<When> {
  return (await (await send('POST', '/v1/when', { ...request, check: true, instead }, signal)).json()) as When;
}

/** Asks the controller, a little after the last key: would it be taken, when would it start, and when at every stop of the sliders. */
export function useCheck(request: Request) {
  const [error, setError] = useState('');
  const [ok, setOk] = useState(false);
  const [starts, setStarts] = useState(new Map<string, Variant>());
  const known = liveNodes.value !== null;
  const axes = useMemo(() => axesOf(request.spec), [request, known, t('new.limit')]);
  useEffect(() => {
    const abort = new AbortController();
    const here = keyOf(askedOf(request.spec));
    const others = [...new Map(axes.filter(a => a.at >= 0).flatMap(a => a.stops).map(a => [keyOf(a), a])).values()].filter(a => keyOf(a) !== here);
    const timer = setTimeout(async () => {
      const found = new Map<string, Variant>();
      try {
        for (let i = 0; i < Math.max(1, others.length); i += ALTERNATIVES_MAX) {
          const some = others.slice(i, i + ALTERNATIVES_MAX);
          const when = await ask(request, some, abort.signal);
          setError(when.refused ?? '');
          setOk(!when.refused);
          if (when.refused) break;
          when.variants.forEach((v, n) => found.set(n ? keyOf(some[n - 1]!) : here, v));
          setStarts(new Map(found));
        }
      } catch (e) {
        if (abort.signal.aborted) return;
        setError(errorText(e));
        setOk(false);
      }
    }, CHECK_WAIT_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [request, axes]);
  return { error, ok, starts, axes, fail: setError };
}

function startText(v: Variant | undefined): string {
  if (!v) return '…';
  if (v.refused || !v.start) return t('new.refused');
  if (v.start.basis === 'now') return t('job.startNow');
  return v.start.late_ms ? f.moment(v.start.late_ms) : tWord('why.basis', v.start.basis);
}

/** The wait, in as few letters as possible. */
function waitText(v: Variant | undefined): string {
  if (!v) return '';
  if (v.refused || !v.start) return '✕';
  if (v.start.basis === 'now') return t('job.startNow');
  if (!v.start.late_ms) return '–';
  const minutes = Math.max(0, v.start.late_ms - Date.now()) / MINUTE_MS;
  const [n, unit] = minutes < 1 ? [minutes * 60, 'second'] : minutes < 60 ? [minutes, 'minute'] : minutes < 36 * 60 ? [minutes / 60, 'hour'] : [minutes / 1440, 'day'];
  return f.shortUnit(n, unit);
}

/** From 0 to 1; a minute, an hour, a day and a week are told apart. */
function height(v: Variant | undefined): number {
  if (!v?.start || v.start.basis === 'now') return 0;
  if (!v.start.late_ms) return 1;
  return Math.min(1, Math.log1p(Math.max(0, v.start.late_ms - Date.now()) / MINUTE_MS) / Math.log1p(WEEK_MS / MINUTE_MS));
}

function Slider({ axis, starts, put }: { axis: Axis; starts: Map<string, Variant>; put: (a: Asked) => void }) {
  const id = useId();
  const n = axis.stops.length, still = axis.at < 0;
  const at = still ? n - 1 : axis.at;
  return (
    <div class="start-axis">
      <label for={id}>{axis.label}</label>
      {!still && <div class="start-stops" aria-hidden="true">
        {axis.stops.map((s, i) => {
          const v = starts.get(keyOf(s));
          return (
            <button key={keyOf(s)} type="button" tabIndex={-1} class={i === at ? 'here' : undefined} title={startText(v)} onClick={() => put(s)}>
              <span>{waitText(v)}</span><i style={{ height: `${2 + Math.round(height(v) * 28)}px` }} />
            </button>
          );
        })}
      </div>}
      <input id={id} type="range" min={0} max={n - 1} step={1} value={at} disabled={still} style={{ width: `calc(${100 - 100 / n}% + 16px)`, marginLeft: `calc(${50 / n}% - 8px)` }}
        aria-valuetext={still ? t('new.partOfOne') : `${axis.text(axis.stops[at]!)}: ${startText(starts.get(keyOf(axis.stops[at]!)))}`}
        onInput={e => put(axis.stops[Number(e.currentTarget.value)]!)} />
      {still ? <div class="hint">{t('new.partOfOne')}</div> :
        <div class="start-stops" aria-hidden="true">{axis.stops.map((s, i) => <span key={keyOf(s)} class={i === at ? 'here' : undefined}>{axis.text(s)}</span>)}</div>}
    </div>
  );
}

export function StartCard({ check, spec, put }: { check: ReturnType<typeof useCheck>; spec: Partial<Spec>; put: (o: Option, v: string) => void }) {
  const here = check.error ? undefined : check.starts.get(keyOf(askedOf(spec)));
  const late = here?.start?.basis === 'now' ? 0 : (here?.start?.late_ms ?? 0);
  const model = spec.gpu_model ? `${spec.gpu_model}:` : '';
  const change = (axis: Axis, a: Asked) => {
    if (axis.option === 'time') put('time', a.time_limit_s ? f.limitOption(a.time_limit_s) : '');
    else put('gpus', a.gpus_milli ? `${model}${a.gpus_milli / 1000}` : '');
  };
  return (
    <Card title={t('new.when')}>
      <div class="figure bare" aria-live="polite">
        <div class="value">{check.error ? '–' : startText(here)}{late > Date.now() ? <small>{t('new.atLatest', { span: f.span(late - Date.now()) })}</small> : null}</div>
      </div>
      {check.axes.map(a => <Slider key={a.label} axis={a} starts={check.error ? new Map() : check.starts} put={s => change(a, s)} />)}
    </Card>
  );
}
