// A pool of Python workers: counts, its tasks, actors and values, and one of them with its error and the end of its output.
import { useState } from 'preact/hooks';
import { act, allowed } from '../actions/jobs';
import { useTopics } from '../api/live';
import { useResource } from '../api/resource';
import type { Job } from '../api/types';
import { Bar, Card, Facts, StateText, Tabs } from '../components/basics';
import { Dialog } from '../components/dialog';
import { Copyable } from '../components/same';
import { startText } from '../components/start';
import { Empty, Failed, Loaded, Loading } from '../components/states';
import * as f from '../lib/format';
import { t, tWord, type TextKey } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { jobPath } from '../lib/router';
import { askPool, loadPool, type PoolAnswer, type PoolList } from '../pools/data';
import type { PageProps } from '../shell/pages';
import { PageTop } from '../shell/shell';

const EVERY_MS = 3000;
const ROWS_SHOWN = 200;
type Row = PoolAnswer['rows'][number];
interface Column {
  key: string;
  title: TextKey;
  num?: boolean;
  wide?: boolean;
  cell?: (r: Row) => string;
}

const TONES: Record<string, string> = { running: 'run', given: 'run', ready: 'wait', waiting: 'wait', pending: 'wait', blocked: 'wait', starting: 'wait', finished: 'good', small: 'good', shared: 'good', failed: 'bad', ended: 'warn' };
const micros = (r: Row): string => {
  const us = Number(r['micros'] ?? r['age_us'] ?? 0);
  return us < 1e6 ? `${f.number(us / 1000, us < 10_000 ? 1 : 0)} ms` : f.span(us / 1000);
};
const milli = (key: string) => (r: Row) => (r[key] === undefined ? '–' : f.number(Number(r[key]) / 1000, 2));

const COLUMNS: Record<PoolList, Column[]> = {
  nodes: [{ key: 'cpus', title: 'job.cpus', num: true }, { key: 'gpus', title: 'job.gpus', num: true }, { key: 'workers', title: 'pools.workers', num: true },
    { key: 'memory', title: 'pools.memory', num: true, wide: true, cell: r => `${f.bytes(Number(r['memory_used_bytes'] ?? 0))} / ${f.bytes(Number(r['memory_bytes'] ?? 0))}` }],
  tasks: [{ key: 'state', title: 'job.stateTitle' }, { key: 'time', title: 'job.time', num: true, cell: micros }, { key: 'worker', title: 'pools.worker', num: true }, { key: 'node', title: 'nav.node', wide: true }, { key: 'tries', title: 'pools.tries', num: true, wide: true },
    { key: 'cpu_milli', title: 'job.cpus', num: true, wide: true, cell: milli('cpu_milli') }, { key: 'gpu_milli', title: 'job.gpus', num: true, wide: true, cell: milli('gpu_milli') }],
  actors: [{ key: 'state', title: 'job.stateTitle' }, { key: 'calls', title: 'pools.calls', num: true }, { key: 'waiting', title: 'pools.callsWaiting', num: true }, { key: 'restarts_left', title: 'pools.restartsLeft', num: true, wide: true },
    { key: 'worker', title: 'pools.worker', num: true, wide: true }],
  objects: [{ key: 'state', title: 'job.stateTitle' }, { key: 'bytes', title: 'files.size', num: true, cell: r => f.bytes(Number(r['bytes'] ?? 0)) }, { key: 'references', title: 'pools.references', num: true },
    { key: 'holders', title: 'pools.holders', num: true, wide: true }],
};

const text = (r: Row, c: Column): string => (c.cell ? c.cell(r) : r[c.key] === undefined ? '–' : typeof r[c.key] === 'string' ? String(r[c.key]) : f.number(Number(r[c.key])));

export default function PoolPage({ params }: PageProps) {
  useTopics('jobs');
  const label = params['job']!;
  const [list, setList] = useState<PoolList>('tasks');
  const [shown, setShown] = useState<string | null>(null);
  const r = useResource(`${label} ${list}`, s => loadPool(label, list, s), { everyMs: EVERY_MS });
  const { data, error, status } = r.state.value;
  if (data === null) {
    return (
      <>
        <PageTop title={t('pools.titleOf', { job: label })} />
        {status === 404 ? <Empty title={t('job.none', { job: label })}><a href="/clusters">{t('nav.clusters')}</a></Empty>
          : <div class="card">{error ? <Failed text={error} retry={r.refresh} /> : <Loading lines={8} />}</div>}
      </>
    );
  }
  const { job, answer } = data;
  return (
    <>
      <PageTop title={job.name} beside={<><StateText state={job.state} held={job.hold} /><a class="in-text nowrap wide-only" href={jobPath(job.label)}>{t('job.title', { job: job.label })}</a></>}
        actions={job.state === 'RUNNING' && allowed(job) ? <button class="button danger" onClick={() => act('cancel', [job], r.refresh)}>{t('clusters.end')}</button> : undefined} />
      {error && <div class="banner warning" role="status">{error}</div>}
      {!answer ? <Card><Waits job={job} /></Card> : (
        <div class="stack">
          <Summary s={answer.summary} />
          <Card>
            <Tabs label={t('pools.lists')} chosen={list} choose={k => { setShown(null); setList(k); }}
              tabs={(['tasks', 'actors', 'objects', ...(answer.summary['nodes']! > 1 ? ['nodes' as const] : [])] as const).map(k => ({ key: k, text: t(`pools.${k}`) }))} />
            <Rows list={list} rows={answer.rows} show={setShown} />
            {answer.rows.length > ROWS_SHOWN && <p class="muted small">{t('pools.rowsMost', { n: ROWS_SHOWN })}</p>}
          </Card>
          {list !== 'nodes' && <Card title={t('same.title')}><Copyable text={`acequia ${list} ${job.label}\nacequia ${list} ${job.label} --summary`} /></Card>}
        </div>
      )}
      {shown && <One job={job} list={list} id={shown} close={() => setShown(null)} />}
    </>
  );
}

function Waits({ job }: { job: Job }) {
  if (job.state === 'PENDING') return <Empty title={t('pools.notYet')}>{[startText(job), reasonText(job.reason)].filter(Boolean).join(' · ')}</Empty>;
  return <Empty title={t('pools.over')}><a href={jobPath(job.label)}>{t('job.title', { job: job.label })}</a></Empty>;
}

function Summary({ s }: { s: Record<string, number> }) {
  const n = (key: string) => s[key] ?? 0;
  const memory = n('memory_bytes');
  return (
    <div class="figures four">
      <section class="card figure"><h2>{t('pools.running')}</h2><div class="value">{f.number(n('given'))}</div><span /><div class="foot">{t('pools.waitingReady', { n: n('waiting') + n('ready') })}</div></section>
      <section class="card figure"><h2>{t('pools.finished')}</h2><div class="value">{f.number(n('finished'))}</div><span />
        <div class={n('failed') ? 'foot bad' : 'foot'}>{t('pools.failed', { n: n('failed') })}{n('retried') ? ` · ${t('pools.retried', { n: n('retried') })}` : ''}</div></section>
      <section class="card figure"><h2>{t('pools.workers')}</h2><div class="value">{f.number(n('workers'))}</div><span />
        <div class="foot">{t('why.holdsCpus', { n: n('cpus') })}{n('gpus') ? ` · ${t('why.holdsGpus', { n: n('gpus'), gpus: f.number(n('gpus')) })}` : ''} · {t('pools.actorCount', { n: n('actors') })}</div></section>
      <section class="card figure"><h2>{t('pools.memory')}</h2><div class="value">{f.bytes(n('memory_used_bytes'))}</div>
        <div class="middle"><Bar part={memory ? n('memory_used_bytes') / memory : 0} label={t('pools.memoryUsed', { percent: f.percent(n('memory_used_bytes'), memory || 1) })} /></div><div class="foot">{t('pools.of', { of: f.bytes(memory) })} · {t('pools.objectCount', { n: n('objects') })}</div></section>
    </div>
  );
}

// What runs comes first, then what waits, then what has ended, failures before the others.
const ORDER = ['running', 'blocked', 'given', 'failed', 'ready', 'waiting'];
const rank = (r: Row): number => {
  const i = ORDER.indexOf(String(r['state']));
  return i < 0 ? ORDER.length : i;
};

function Rows({ list, rows, show }: { list: PoolList; rows: Row[]; show: (id: string) => void }) {
  if (rows.length === 0) return <Empty title={t(`pools.none.${list}` as TextKey)} />;
  const columns = COLUMNS[list];
  const sorted = list === 'tasks' ? [...rows].sort((a, b) => rank(a) - rank(b)) : rows;
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={t(`pools.${list}`)}>
      <table>
        <thead><tr><th scope="col">{t(list === 'objects' ? 'pools.id' : 'job.name')}</th>{columns.map(c => <th key={c.key} scope="col" class={`${c.num ? 'num' : ''}${c.wide ? ' wide-only' : ''}`}>{t(c.title)}</th>)}</tr></thead>
        <tbody>
          {sorted.slice(0, ROWS_SHOWN).map(r => {
            const id = String(r['id'] ?? r['number']), state = String(r['state']);
            return (
              <tr key={id}>
                <td>{list === 'nodes' ? <span class="strong">{r['name']}</span> : <button class="link-button strong" onClick={() => show(id)} aria-label={list === 'objects' ? t('pools.show', { id }) : `${r['name'] || ''} ${t('pools.show', { id })}`}>{list === 'objects' ? <span class="mono">{id}</span> : r['name'] || id}</button>}</td>
                {columns.map(c => <td key={c.key} class={`${c.num ? 'num nowrap' : ''}${c.wide ? ' wide-only' : ''}`}>{c.key === 'state' ? <span class={`state ${TONES[state] ?? ''}`}>{tWord('pools.state', state)}</span> : text(r, c)}</td>)}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

// Everything that the pool knows of one: with the error and the end of its output if it failed.
function One({ job, list, id, close }: { job: Job; list: PoolList; id: string; close: () => void }) {
  const r = useResource(`${job.label} ${list} ${id}`, s => askPool(job, list, id, s));
  return (
    <Dialog title={t('pools.show', { id })} wide close={close}>
      <Loaded of={r.state.value} retry={r.refresh}>
        {a => {
          const row = a.rows[0];
          if (!row) return <Empty title={t('pools.forgotten')} />;
          return (
            <div class="stack">
              <Facts rows={[[t('job.name'), row['name']], [t('job.stateTitle'), tWord('pools.state', String(row['state']))],
                ...COLUMNS[list].filter(c => c.key !== 'state').map(c => [t(c.title), text(row, c)] as [string, string]).filter(([, v]) => v !== '–')]} />
              {row['error'] && <div><h3>{t('pools.error')}</h3><pre class="code wrap bad" tabIndex={0}>{row['error']}</pre></div>}
              {row['output'] && <div><h3>{t('pools.output')}</h3><pre class="code wrap" tabIndex={0}>{row['output']}</pre></div>}
              <p class="muted small">{t('pools.logsHint')} <a class="in-text" href={jobPath(job.label)}>{t('job.title', { job: job.label })}</a></p>
              <Copyable text={`acequia ${list} ${job.label} ${id}`} />
            </div>
          );
        }}
      </Loaded>
    </Dialog>
  );
}
