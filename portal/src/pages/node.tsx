// One node: its GPUs now and over the last hour, its jobs with their use, what it is made of, drain and resume.
import { useState } from 'preact/hooks';
import { address, call, send } from '../api/client';
import { useTopics } from '../api/live';
import { useResource } from '../api/resource';
import { may } from '../api/session';
import type { Processes as NodeProcesses } from '../api/schema';
import type { JobRow, NodeStatus, Series } from '../api/types';
import { Bar, Card, Facts, StateText } from '../components/basics';
import { Chart } from '../components/chart';
import { DaemonLog } from '../components/daemon-log';
import { ask } from '../components/dialog';
import { Elapsed } from '../components/elapsed';
import { TextField } from '../components/form';
import { quote, SameCard, SameFold, type Same } from '../components/same';
import type { Points } from '../components/spark';
import { Empty, Failed, Loaded, Loading } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { jobPath } from '../lib/router';
import type { PageProps } from '../shell/pages';
import { PageTop } from '../shell/shell';

const EVERY_MS = 2000;
const SERIES_MS = 15_000;
const PROCESSES_MS = 3000;
const HOUR_MS = 3_600_000;
const POINTS = 180;
const GPUS_CHARTED = 16;
const FIELDS = 'id,label,name,user,project,state,gpus_milli,cpus,memory_bytes,memory_now_bytes,gpu_use_milli,start_ms,end_ms,elapsed_ms';

type NodeJob = JobRow & { memory_now_bytes?: number };

export default function NodePage({ params }: PageProps) {
  useTopics('jobs');
  const name = params['name']!;
  const node = useResource(name, s => call('GET /v1/nodes/{name}', { path: { name }, signal: s }) as Promise<NodeStatus>, { everyMs: EVERY_MS });
  const s = node.state.value;
  if (s.data === null) {
    return (
      <>
        <PageTop title={name} />
        {s.status === 404 ? <Empty title={t('node.none', { name })}><a href="/nodes">{t('nav.nodes')}</a></Empty>
          : <div class="card">{s.error ? <Failed text={s.error} retry={node.refresh} /> : <Loading lines={8} />}</div>}
      </>
    );
  }
  const n = s.data;
  return (
    <>
      <PageTop title={n.name} beside={<StateText state={n.state} />} actions={may('nodes') && <DrainButton n={n} refresh={node.refresh} />} />
      {n.reason && <div class={n.state === 'down' || n.state === 'unreachable' ? 'banner error' : 'banner warning'} role="status">{reasonText(n.reason)}{n.by ? ` (${n.by}${n.reason_ms ? `, ${f.moment(n.reason_ms)}` : ''})` : ''}</div>}
      {n.missing && <div class="banner" role="status">{n.missing}</div>}
      <div class={s.error ? 'stack stale' : 'stack'}>
        <Figures n={n} />
        {n.gpus.length > 0 && <GpuCards n={n} />}
        <NodeCharts n={n} />
        <div class="two">
          <div class="stack"><NodeJobs name={n.name} /><Processes name={n.name} /></div>
          <div class="stack">
            <About n={n} />
            <SameCard actions={[{ cli: `acequia nodes ${quote(n.name)}`, path: `/v1/nodes/${n.name}` }, drainSame(n, '')]} />
          </div>
        </div>
        {may('audit') && <DaemonLog title={t('node.agentLog')} path={address('/v1/nodes/{name}/log', { name: n.name })} />}
      </div>
    </>
  );
}

function drainSame(n: NodeStatus, reason: string): Same {
  const drained = n.state === 'drained' || n.state === 'draining';
  return drained
    ? { cli: `acequia resume ${quote(n.name)}`, method: 'POST', path: `/v1/nodes/${n.name}/resume` }
    : { cli: `acequia drain ${quote(n.name)} --reason ${quote(reason || t('node.reasonExample'))}`, method: 'POST', path: `/v1/nodes/${n.name}/drain`, body: { reason: reason || t('node.reasonExample') } };
}

function DrainButton({ n, refresh }: { n: NodeStatus; refresh: () => void }) {
  const drained = n.state === 'drained' || n.state === 'draining';
  const resume = () => ask({
    title: t('node.resumeTitle', { name: n.name }), yes: t('node.resume'), body: <SameFold actions={[drainSame(n, '')]} />,
    act: async () => {
      await send('POST', address('/v1/nodes/{name}/resume', { name: n.name }));
      notify(t('node.resumed', { name: n.name }));
      refresh();
    },
  });
  const drain = () => {
    let reason = '';
    ask({
      title: t('node.drainTitle', { name: n.name }), yes: t('node.drain'), body: <DrainBody n={n} set={v => (reason = v)} />,
      act: async () => {
        if (!reason.trim()) throw new Error(t('node.needReason'));
        await send('POST', address('/v1/nodes/{name}/drain', { name: n.name }), { reason });
        notify(t('node.drained', { name: n.name }));
        refresh();
      },
    });
  };
  return <button class="button" onClick={drained ? resume : drain}>{drained ? t('node.resume') : t('node.drain')}</button>;
}

function DrainBody({ n, set }: { n: NodeStatus; set: (v: string) => void }) {
  const [reason, setReason] = useState('');
  return (
    <>
      <p class="muted">{t('node.drainText', { n: n.jobs })}</p>
      <TextField label={t('node.reason')} value={reason} required set={v => { setReason(v); set(v); }} />
      <SameFold actions={[drainSame(n, reason)]} />
    </>
  );
}

function Figure({ title, value, unit, part, foot }: { title: string; value: string; unit: string; part: number | null; foot: string }) {
  return (
    <section class="card figure">
      <h2>{title}</h2>
      <div class="value">{value}<small>{unit}</small></div>
      <div class="middle">{part !== null && <Bar part={part} label={`${title}: ${f.percent(part)}`} />}</div>
      <div class="foot">{foot}</div>
    </section>
  );
}

function Figures({ n }: { n: NodeStatus }) {
  const power = n.gpus_now.reduce((s, g) => s + (g.power_mw ?? 0), 0);
  return (
    <div class="figures">
      <Figure title={t('job.gpus')} value={f.gpus(n.gpus_used_milli)} unit={t('overview.of', { total: f.gpus(n.gpus_milli) })} part={n.gpus_milli ? n.gpus_used_milli / n.gpus_milli : null}
        foot={n.gpus[0]?.model ?? t('node.noGpus')} />
      <Figure title={t('job.cpus')} value={f.number(n.cpus_used)} unit={t('overview.of', { total: f.number(n.cpus) })} part={n.cpus ? n.cpus_used / n.cpus : null}
        foot={n.cpu_milli === null ? '' : t('node.cpuUse', { use: f.percent(n.cpu_milli ?? 0, 1000) })} />
      <Figure title={t('job.memory')} value={f.bytes(n.memory_used_bytes)} unit={`/ ${f.bytes(n.memory_bytes)}`} part={n.memory_bytes ? n.memory_used_bytes / n.memory_bytes : null}
        foot={n.memory_in_use_bytes === null ? '' : t('node.memoryUse', { bytes: f.bytes(n.memory_in_use_bytes ?? 0) })} />
      <Figure title={t('nav.jobs')} value={f.number(n.jobs)} unit="" part={null} foot={n.load_milli === null ? '' : t('node.load', { load: f.number((n.load_milli ?? 0) / 1000, 2) })} />
      <Figure title={t('overview.power')} value={f.watts(power).split(' ')[0]!} unit={f.watts(power).split(' ')[1]!} part={null} foot={t('node.powerNote')} />
    </div>
  );
}

function GpuCards({ n }: { n: NodeStatus }) {
  const charted = n.gpus.slice(0, GPUS_CHARTED).map((_, i) => i);
  const use = useResource(`use${n.name}`, async s => {
    const to = Date.now(), from = to - HOUR_MS;
    const all = await Promise.allSettled(charted.map(i => call('GET /v1/series', { query: { name: `gpu/${n.name}/${i}/utilisation`, from_ms: from, to_ms: to, step_ms: HOUR_MS / POINTS }, signal: s }) as Promise<Series>));
    return all.map(r => (r.status === 'fulfilled' ? (r.value.points as Points) : []));
  }, { everyMs: SERIES_MS });
  return (
    <div class="node-gpus">
      {n.gpus.map((g, i) => {
        const now = n.gpus_now[i];
        const points = use.state.value.data?.[i] ?? [];
        return (
          <section class="card" key={g.uuid ?? i}>
            <div class="card-head"><h2>{t('gpu.name', { index: i })}</h2><div class="note">{g.unhealthy ? <span class="bad">{t('gpu.outOfUse')}</span> : now && now.held_milli > 0 ? t('gpu.held', { held: f.gpus(now.held_milli) }) : t('gpu.free')}</div></div>
            {g.unhealthy && <p class="bad small">{g.unhealthy}</p>}
            <Chart title={t('charts.gpu')} lines={[{ points, colour: 1 }]} format={v => f.percent(v)} most={1} height={64} group={`node${n.name}`}
              {...(now?.use_milli === null || now?.use_milli === undefined ? {} : { now: f.percent(now.use_milli, 1000) })} />
            <Facts rows={[
              [t('job.memory'), now?.memory_used_bytes === null || now === undefined ? f.bytes(g.memory_bytes) : `${f.bytes(now.memory_used_bytes ?? 0)} / ${f.bytes(g.memory_bytes)}`],
              [t('charts.temperature'), now?.temperature_c === null || now === undefined ? null : `${now.temperature_c} °C`],
              [t('charts.power'), now?.power_mw === null || now === undefined ? null : f.watts(now.power_mw ?? 0)],
              [t('nav.jobs'), (now?.jobs ?? []).length ? now!.jobs.map(j => <span key={j.job}><a class="in-text" href={jobPath(j.job ?? '')}>{j.job}</a> {j.user}{j.stray ? <span class="bad"> {t('gpu.stray')}</span> : null} </span>) : null],
            ]} />
          </section>
        );
      })}
    </div>
  );
}

// What the machine itself did in the last hour: all its CPUs and memory, jobs or not.
function NodeCharts({ n }: { n: NodeStatus }) {
  const r = useResource(`charts${n.name}`, async s => {
    const to = Date.now(), from = to - HOUR_MS;
    const all = await Promise.allSettled(['cpu_utilisation', 'memory_bytes'].map(x => call('GET /v1/series', { query: { name: `node/${n.name}/${x}`, from_ms: from, to_ms: to, step_ms: HOUR_MS / POINTS }, signal: s }) as Promise<Series>));
    return all.map(x => (x.status === 'fulfilled' ? (x.value.points as Points) : []));
  }, { everyMs: SERIES_MS });
  const [cpu, memory] = r.state.value.data ?? [[], []];
  return (
    <Card title={t('node.charts')} note={t('node.lastHour')}>
      <Loaded of={r.state.value} retry={r.refresh} lines={3}>
        {() => (
          <div class="charts">
            <Chart title={t('charts.cpu')} lines={[{ points: cpu ?? [], colour: 5 }]} format={v => f.percent(v)} most={1} group={`node${n.name}`} axis />
            <Chart title={t('charts.memory')} lines={[{ points: memory ?? [], colour: 6 }]} format={f.bytes} most={n.memory_bytes} group={`node${n.name}`} axis />
          </div>
        )}
      </Loaded>
    </Card>
  );
}

function NodeJobs({ name }: { name: string }) {
  const r = useResource(`jobs${name}`, async s => ((await (await send('GET', address('/v1/jobs', {}, { node: name, fields: FIELDS }), undefined, s)).json()) as { jobs: NodeJob[] }).jobs,
    { everyMs: 5000, when: () => true, gapMs: 2000 });
  return (
    <Card title={t('nav.jobs')} flush>
      <Loaded of={r.state.value} retry={r.refresh}>
        {rows => (rows.length === 0 ? <Empty title={t('node.idle')} /> : (
          <table class="plain-table">
            <colgroup><col style={{ width: '64px' }} /><col /><col style={{ width: '48px' }} /><col class="wide-only" style={{ width: '48px' }} /><col class="wide-only" style={{ width: '120px' }} /><col style={{ width: '70px' }} /><col style={{ width: '84px' }} /></colgroup>
            <thead><tr><th scope="col">{t('job.id')}</th><th scope="col">{t('job.name')}</th><th scope="col" class="num">{t('job.gpus')}</th><th scope="col" class="num wide-only">{t('job.cpus')}</th>
              <th scope="col" class="num wide-only">{t('job.memory')}</th><th scope="col" class="num">{t('job.use')}</th><th scope="col" class="num">{t('job.time')}</th></tr></thead>
            <tbody>
              {rows.map(j => (
                <tr key={j.id}>
                  <td class="muted">{j.label}</td>
                  <td title={j.name}><a class="plain strong" href={jobPath(j.label)}>{j.name}</a> <span class="muted">{j.user} · {j.project}</span></td>
                  <td class="num">{j.gpus_milli ? f.gpus(j.gpus_milli) : '–'}</td>
                  <td class="num wide-only">{j.cpus}</td>
                  <td class="num wide-only">{f.bytes(j.memory_now_bytes ?? 0)} / {f.bytes(j.memory_bytes)}</td>
                  <td class="num">{j.gpu_use_milli === null || j.gpu_use_milli === undefined || !j.gpus_milli ? '–' : f.percent(j.gpu_use_milli, j.gpus_milli)}</td>
                  <td class="num"><Elapsed row={j} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        ))}
      </Loaded>
    </Card>
  );
}

// Processes of the jobs here, as the agent finds them; what a process is called only its owner may see.
function Processes({ name }: { name: string }) {
  const r = useResource(`processes${name}`, s => call('GET /v1/nodes/{name}/processes', { path: { name }, signal: s }) as Promise<NodeProcesses>, { everyMs: PROCESSES_MS });
  return (
    <Card title={t('node.processes')} note={r.state.value.data?.left_out ? t('overview.more', { n: r.state.value.data.left_out }) : undefined} flush>
      <Loaded of={r.state.value} retry={r.refresh}>
        {d => (d.processes.length === 0 ? <Empty title={t('node.noProcesses')} /> : (
          <div class="past-jobs" tabIndex={0} role="region" aria-label={t('node.processes')}>
            <table class="plain-table">
              <colgroup><col style={{ width: '64px' }} /><col style={{ width: '76px' }} /><col /><col style={{ width: '70px' }} /><col style={{ width: '84px' }} /><col class="wide-only" style={{ width: '70px' }} /></colgroup>
              <thead><tr><th scope="col">{t('job.id')}</th><th scope="col" class="num">PID</th><th scope="col">{t('node.process')}</th><th scope="col" class="num">{t('job.cpus')}</th>
                <th scope="col" class="num">{t('job.memory')}</th><th scope="col" class="num wide-only">{t('node.threads')}</th></tr></thead>
              <tbody>
                {[...d.processes].sort((a, b) => a.job - b.job || (b.cpu_milli ?? 0) - (a.cpu_milli ?? 0) || a.pid - b.pid).map(p => (
                  <tr key={p.pid}>
                    <td><a href={jobPath(String(p.job))}>{p.job}</a></td><td class="num muted">{p.pid}</td><td class="mono" title={p.name ?? ''}>{p.name ?? <span class="muted">{t('extend.hidden')}</span>}</td>
                    <td class="num">{p.cpu_milli === null || p.cpu_milli === undefined ? '–' : f.number(p.cpu_milli / 1000, 2)}</td><td class="num">{f.bytes(p.memory_bytes)}</td><td class="num wide-only">{p.threads}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        ))}
      </Loaded>
    </Card>
  );
}

function About({ n }: { n: NodeStatus }) {
  return (
    <Card title={t('job.about')}>
      <Facts rows={[
        [t('node.address'), n.address], [t('node.os'), n.os], [t('node.arch'), n.arch],
        [t('node.processors'), `${n.sockets} × ${n.cores_per_socket} × ${n.threads_per_core}`],
        [t('node.features'), (n.features ?? []).join(', ')], [t('node.partitions'), (n.partitions ?? []).join(', ')],
        [t('node.agent'), n.version], [t('node.booted'), n.boot_ms ? f.moment(n.boot_ms) : null],
        [t('node.containers'), n.containers ? t('action.yes') : t('action.no')],
      ]} />
    </Card>
  );
}
