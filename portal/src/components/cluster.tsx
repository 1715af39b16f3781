// The cluster at a glance, now or at a time that is over: who holds how much against quota and share, and the GPUs of the nodes.
import type { NodeNow, Shares } from '../api/types';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { Card, projectColour } from './basics';
import { GpuRow } from './gpus';
import { Empty } from './states';

const NODES_SHOWN = 12;

export function SharesCard({ shares }: { shares: Shares }) {
  const rows = [...shares.projects].sort((a, b) => b.used_milligpu - a.used_milligpu || b.quota_milligpu - a.quota_milligpu || a.project.localeCompare(b.project));
  const most = Math.max(1, ...rows.map(r => Math.max(r.used_milligpu, r.quota_milligpu, r.share_milligpu))) * 1.06;
  const left = (v: number) => ({ left: `${Math.min(100, (v / most) * 100)}%` });
  return (
    <Card title={t('overview.shares')} note={<>{t('overview.sharesNote')} <b aria-hidden="true">┃</b> {t('overview.sharesNote2')} <b aria-hidden="true">•</b></>}>
      {rows.length === 0 && <Empty title={t('overview.noProjects')} />}
      <div class="shares">{rows.map(r => {
        const over = r.used_milligpu - r.quota_milligpu;
        const label = t('overview.shareLabel', { project: r.project, used: f.gpus(r.used_milligpu), quota: f.gpus(r.quota_milligpu), share: f.gpus(r.share_milligpu) });
        return (
          <div class="share" key={r.project}>
            <a class="plain cut" href={`/jobs?project=${encodeURIComponent(r.project)}`} title={r.project}>{r.project}</a>
            <div class="track" role="img" aria-label={label} title={label}>
              <div class={`fill ${projectColour(r.project)}`} style={{ width: `${(r.used_milligpu / most) * 100}%` }} />
              {r.quota_milligpu > 0 && <div class="quota" style={left(r.quota_milligpu)} />}
              <div class="now" style={left(r.share_milligpu)} />
            </div>
            <div class="figure-text">
              {t('overview.usedOf', { used: f.gpus(r.used_milligpu), quota: f.gpus(r.quota_milligpu) })}
              {over > 0 && <span class="warn"> {t('overview.lent', { gpus: f.gpus(over) })}</span>}
            </div>
          </div>
        );
      })}</div>
    </Card>
  );
}

export function NodesCard({ nodes, shares, note }: { nodes: NodeNow[]; shares: Shares; note?: string }) {
  const withGpus = nodes.filter(n => n.gpus.length > 0);
  const using = new Set(withGpus.flatMap(n => n.gpus.flatMap(g => g.parts.map(p => p.project))));
  const shown = withGpus.slice(0, NODES_SHOWN);
  const away = nodes.filter(n => n.state === 'down' || n.state === 'unreachable').length;
  const drained = nodes.filter(n => n.state === 'drained' || n.state === 'draining').length;
  return (
    <Card title={t('overview.nodes')} note={note ?? <>{t('nodes.count', { n: nodes.length })}{away > 0 && <span class="bad"> · {t('past.down', { n: away })}</span>}{drained > 0 && <span class="warn"> · {t('overview.drained', { n: drained })}</span>} · {t('overview.nodesNote')}</>}>
      {withGpus.length === 0
        ? <Empty title={t('overview.noGpus')}><a href="/nodes">{t('overview.allNodes', { n: nodes.length })}</a></Empty>
        : <div class="gpu-rows">{shown.map(n => <GpuRow key={n.name} node={n} />)}</div>}
      {withGpus.length > shown.length && <div class="legend"><a href="/nodes">{t('overview.allNodes', { n: nodes.length })}</a></div>}
      {using.size > 0 && (
        <div class="legend" aria-hidden="true">
          {shares.projects.filter(p => using.has(p.project)).map(p => <span key={p.project}><i class={projectColour(p.project)} />{p.project}</span>)}
        </div>
      )}
    </Card>
  );
}
