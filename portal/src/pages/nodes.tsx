// All nodes: state, what is held and used, their GPUs.
import { useState } from 'preact/hooks';
import { address, send } from '../api/client';
import { liveNodes, useTopics } from '../api/live';
import { useResource } from '../api/resource';
import type { NodeNow, Overview } from '../api/types';
import { Bar, StateText } from '../components/basics';
import { Grid, type Column, type Sort } from '../components/grid';
import { GpuSquare, hottest } from '../components/gpus';
import { Empty, Failed, Loading } from '../components/states';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { go, nodePath } from '../lib/router';
import { PageTop } from '../shell/shell';

const SORTS: Record<string, (n: NodeNow) => string | number> = {
  name: n => n.name, state: n => n.state, jobs: n => n.jobs, cpus: n => n.cpus_used / Math.max(1, n.cpus),
  memory: n => n.memory_used_bytes / Math.max(1, n.memory_bytes), gpus: n => n.gpus.reduce((s, g) => s + g.held_milli, 0), heat: n => hottest(n) ?? -1,
};

function sorted(nodes: NodeNow[], sort: Sort): NodeNow[] {
  const key = SORTS[sort.column] ?? SORTS['name']!;
  const compare = (a: NodeNow, b: NodeNow) => {
    const x = key(a), y = key(b);
    const order = typeof x === 'string' ? x.localeCompare(String(y), undefined, { numeric: true }) : x - Number(y);
    return (sort.down ? -order : order) || a.name.localeCompare(b.name, undefined, { numeric: true });
  };
  return [...nodes].sort(compare);
}

function Held({ used, all, text }: { used: number; all: number; text: string }) {
  return <span class="use"><Bar part={all ? used / all : 0} label={text} /><span class="muted">{text}</span></span>;
}

function columns(): Column<NodeNow>[] {
  return [
    { key: 'name', title: t('job.node'), width: 110, sort: 'name', hint: n => n.name, cell: n => <a class="plain strong" href={nodePath(n.name)}>{n.name}</a> },
    { key: 'state', title: t('job.stateTitle'), width: 116, sort: 'state', hint: n => reasonText(n.reason), cell: n => <StateText state={n.state} /> },
    { key: 'gpus', title: t('job.gpus'), sort: 'gpus', cell: n => (n.gpus.length ? <span class="gpu-cells">{n.gpus.map(g => <GpuSquare key={g.index} gpu={g} />)}</span> : <span class="muted">–</span>) },
    { key: 'heat', title: '°C', width: 60, num: true, sort: 'heat', wide: true, cell: n => hottest(n) ?? '–' },
    { key: 'jobs', title: t('nav.jobs'), width: 70, num: true, sort: 'jobs', wide: true, cell: n => f.number(n.jobs) },
    { key: 'cpus', title: t('job.cpus'), width: 150, sort: 'cpus', wide: true, cell: n => <Held used={n.cpus_used} all={n.cpus} text={`${f.number(n.cpus_used)} / ${f.number(n.cpus)}`} /> },
    { key: 'memory', title: t('job.memory'), width: 190, sort: 'memory', wide: true, cell: n => <Held used={n.memory_used_bytes} all={n.memory_bytes} text={`${f.bytes(n.memory_used_bytes)} / ${f.bytes(n.memory_bytes)}`} /> },
  ];
}

export default function NodesPage() {
  useTopics('nodes', 'shares');
  const [typed, setTyped] = useState('');
  const [sort, setSort] = useState<Sort>({ column: 'name', down: false });
  const first = useResource('nodes', async s => (await (await send('GET', address('/v1/overview'), undefined, s)).json()) as Overview);
  const state = first.state.value;
  const nodes = liveNodes.value ?? state.data?.node_list ?? null;
  const shown = nodes && sorted(nodes.filter(n => n.name.toLowerCase().includes(typed.toLowerCase())), sort);
  return (
    <>
      <PageTop title={t('nav.nodes')} beside={nodes && <span class="pill">{t('nodes.count', { n: nodes.length })}</span>} />
      <div class="tools">
        <input class="input search" type="search" aria-label={t('nodes.search')} placeholder={t('nodes.search')} value={typed} onInput={e => setTyped(e.currentTarget.value)} />
      </div>
      {shown === null
        ? <div class="card">{state.error ? <Failed text={state.error} retry={first.refresh} /> : <Loading lines={8} />}</div>
        : <Grid label={t('nav.nodes')} columns={columns()} total={shown.length} row={i => shown[i]} id={n => n.name} open={n => go(nodePath(n.name))} sort={sort} setSort={setSort}
            height="calc(100vh - 150px)" empty={<Empty title={typed ? t('nodes.noneMatch') : t('nodes.none')}>{!typed && <code>acequia token create</code>}</Empty>} />}
    </>
  );
}
