// The GPUs of a node as squares: colour is the project, height the use now, hatched what is held and idle, framed what is
// broken. Fractions stand side by side inside a square. Each square says the same in its title, for eyes and ears.
import type { GpuNow, NodeNow } from '../api/types';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { nodePath } from '../lib/router';
import { projectColour } from './basics';

const IDLE_BELOW = 10;  // thousandths: less use than this is idle, as the controller counts it

export function gpuText(g: GpuNow): string {
  if (g.unhealthy) return t('gpu.broken', { index: g.index, why: g.unhealthy });
  const who = g.parts.map(p => (p.milli === 1000 ? p.project : `${p.project} ${f.gpus(p.milli)}`)).join(', ');
  const parts = [t('gpu.name', { index: g.index }), who || t('gpu.free')];
  if (g.held_milli > 0 && g.use_milli !== null) parts.push(t('gpu.use', { use: f.percent(g.use_milli, 1000) }));
  if (g.memory_used_bytes !== null && g.memory_bytes) parts.push(`${f.bytes(g.memory_used_bytes)} / ${f.bytes(g.memory_bytes)}`);
  if (g.temperature_c !== null) parts.push(`${g.temperature_c} °C`);
  if (g.power_mw !== null) parts.push(f.watts(g.power_mw));
  return parts.join(' · ');
}

export function GpuSquare({ gpu }: { gpu: GpuNow }) {
  const idle = gpu.held_milli > 0 && gpu.use_milli !== null && gpu.use_milli < IDLE_BELOW;
  const text = gpuText(gpu);
  const height = { height: `${gpu.use_milli === null ? 100 : Math.max(8, Math.min(100, gpu.use_milli / 10))}%` };
  return (
    <span class={`gpu${gpu.unhealthy ? ' broken' : ''}${idle ? ' idle-held' : ''}`} role="img" aria-label={text} title={text}>
      {gpu.parts.map((p, i) => (
        <span key={i} class="part" style={{ width: `${p.milli / 10}%` }}>
          <i class={`held ${projectColour(p.project)}`} />
          {!idle && <i class={projectColour(p.project)} style={height} />}
        </span>
      ))}
    </span>
  );
}

export function hottest(n: NodeNow): number | null {
  const all = n.gpus.map(g => g.temperature_c).filter(c => c !== null) as number[];
  return all.length ? Math.max(...all) : null;
}

function sum(n: NodeNow, of: (g: GpuNow) => number | null, format: (v: number) => string): string {
  const all = n.gpus.map(of).filter(v => v !== null) as number[];
  return all.length ? format(all.reduce((a, b) => a + b, 0)) : '';
}

const HOT = 85;

export function GpuRow({ node }: { node: NodeNow }) {
  const heat = hottest(node);
  const off = node.state === 'down' || node.state === 'unreachable';
  return (
    <div class="gpu-row">
      <a class="name cut" href={nodePath(node.name)} title={node.reason ? `${node.name}: ${reasonText(node.reason)}` : node.name}>{node.name}</a>
      <div class={off ? 'gpu-cells off' : 'gpu-cells'}>{node.gpus.map(g => <GpuSquare key={g.index} gpu={g} />)}</div>
      <span class={heat !== null && heat >= HOT ? 'heat bad' : 'heat'}>{off ? t('node.down') : heat === null ? '' : `${heat} °C`}</span>
      <span class="heat wide-only">{sum(node, g => g.power_mw, f.watts)}</span>
      <span class="heat wide-only" title={t('charts.gpuMemory')}>{sum(node, g => g.memory_used_bytes, f.bytes)}</span>
    </div>
  );
}
