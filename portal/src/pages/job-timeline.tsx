// What happened to a job, in words: its events, the newest last, those of one moment together.
import { call } from '../api/client';
import { useResource } from '../api/resource';
import type { Job } from '../api/types';
import { Card } from '../components/basics';
import { Loaded } from '../components/states';
import * as f from '../lib/format';
import { t, tWord } from '../lib/i18n';
import { reasonText } from '../lib/phrases';

interface Event {
  seq: number;
  at_ms: number;
  type: string;
  [name: string]: unknown;
}

const SHOWN = 40;
const DAY_MS = 86_400_000;

function textOf(e: Event, before: Event | undefined): string | null {
  const s = (name: string) => (e[name] === null || e[name] === undefined ? '' : String(e[name]));
  const reason = s('reason') ? `: ${reasonText(s('reason'))}` : '';
  switch (e.type) {
    case 'job_submitted': return t('event.submitted');
    case 'job_placed': return t('event.placed', { wait: f.span(e.at_ms - (before?.at_ms ?? e.at_ms)), nodes: nodesOf(e) });
    case 'job_started': return t('event.started', { node: s('node'), attempt: s('attempt') });
    case 'job_ending': return t('event.ending', { cause: tWord('event.cause', s('cause')) }) + reason;
    case 'job_ended': return t('event.ended', { state: tWord('job.state', s('state')) }) + reason;
    case 'job_requeued': return t('event.requeued') + reason;
    case 'job_held': return t('event.held', { by: s('by') }) + reason;
    case 'job_released': return t('event.released', { by: s('by') });
    case 'job_suspended': return t('event.suspended', { by: s('by') });
    case 'job_resumed': return t('event.resumed', { by: s('by') });
    case 'job_updated': return t('event.updated', { by: s('by') });
    case 'job_time_warning': return t('event.timeWarning', { percent: s('percent') });
    case 'job_resized': return t('event.resized', { by: s('by') });
    case 'step_started': return t('event.stepStarted', { step: s('step'), name: s('name') });
    case 'step_ended': return t('event.stepEnded', { step: s('step'), name: s('name') });
    case 'part_ended': return null;  // job_ended says it
    default: return e.type.replaceAll('_', ' ');
  }
}

function nodesOf(e: Event): string {
  const parts = e['parts'] as Array<{ node?: string }> | undefined;
  return Array.isArray(parts) ? parts.map(p => p.node).filter(Boolean).join(', ') : '';
}

function tone(e: Event): string {
  if (e.type === 'job_ended') return e['state'] === 'COMPLETED' ? '' : e['state'] === 'CANCELLED' ? 'warn' : 'bad';
  return /ending|requeued|held|suspended|warning/.test(e.type) ? 'warn' : '';
}

export function Timeline({ job, label }: { job: Job; label: string }) {
  const r = useResource(`events${label}`, s => call('GET /v1/jobs/{job}/events', { path: { job: label }, signal: s }) as Promise<{ events: unknown[] }>,
    { when: e => e.jobs.some(j => j.id === job.id), gapMs: 500 });
  return (
    <Card title={t('job.happened')}>
      <Loaded of={r.state.value} retry={r.refresh}>
        {d => {
          const events = d.events as Event[];
          const shown = events.slice(-SHOWN);
          const old = Date.now() - (shown[0]?.at_ms ?? 0) > DAY_MS;
          return (
            <ol class="time-line">
              {shown.map((e, i) => {
                const text = textOf(e, shown[i - 1]);
                return text && (
                  <li key={e.seq}>
                    <time dateTime={new Date(e.at_ms).toISOString()} title={f.fullMoment(e.at_ms)}>{old ? f.moment(e.at_ms).split(' ').slice(0, -1).join(' ') || f.moment(e.at_ms) : f.timeOfDay(e.at_ms)}</time>
                    <span class={`dot ${tone(e)}`} aria-hidden="true" />
                    <span>{text}</span>
                  </li>
                );
              })}
            </ol>
          );
        }}
      </Loaded>
    </Card>
  );
}
