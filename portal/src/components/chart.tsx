// A line chart over time (uPlot, loaded when the first one is shown). Charts of one `group` share their cursor.
import { useEffect, useRef, useState } from 'preact/hooks';
import type uPlot from 'uplot';
import { t } from '../lib/i18n';
import { dark, token } from '../lib/theme';
import * as f from '../lib/format';
import type { Points } from './spark';

export interface Line {
  points: Points;
  /** Which colour of the series, 1 to 6. */
  colour: number;
  name?: string;
}

export interface ChartProps {
  title: string;
  lines: Line[];
  format: (v: number) => string;
  /** The value of now in the title; else that of the last point. */
  now?: string;
  from?: number;
  to?: number;
  /** The top of the scale at least. */
  most?: number;
  group?: string;
  height?: number;
}

let loading: Promise<typeof uPlot> | null = null;
const load = () => (loading ??= import('uplot').then(m => m.default));

// uPlot wants one list of times with a value, or null, of each line at each.
function columns(lines: Line[]): uPlot.AlignedData {
  const times = [...new Set(lines.flatMap(l => l.points.map(p => p[0])))].sort((a, b) => a - b);
  const rows = lines.map(l => {
    const values = new Map(l.points);
    return times.map(ms => values.get(ms) ?? null);
  });
  return [times.map(ms => ms / 1000), ...rows] as uPlot.AlignedData;
}

function summary(p: ChartProps): string {
  const all = p.lines.flatMap(l => l.points.map(q => q[1]));
  if (!all.length) return `${p.title}: ${t('chart.none')}`;
  const sum = all.reduce((a, b) => a + b, 0);
  return t('chart.summary', { title: p.title, least: p.format(Math.min(...all)), mean: p.format(sum / all.length), most: p.format(Math.max(...all)) });
}

export function Chart(p: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<{ value: string; time: string } | null>(null);
  const height = p.height ?? 96;
  const isDark = dark.value;
  const empty = p.lines.every(l => l.points.length === 0);

  useEffect(() => {
    if (empty) return undefined;
    let gone = false;
    let watch: ResizeObserver | null = null;
    void load().then(UPlot => {
      const el = box.current;
      if (gone || !el) return;
      const hover = (u: uPlot) => {
        const i = u.cursor.idx;
        if (i === null || i === undefined || (u.cursor.left ?? -1) < 0) return setAt(null);
        const values = u.data.slice(1).map(v => v[i]).filter(v => v !== null && v !== undefined) as number[];
        if (values.length === 0) return setAt(null);
        return setAt({ value: values.map(p.format).join(' · '), time: f.timeOfDay(u.data[0]![i]! * 1000) });
      };
      plot.current = new UPlot(settings(p, el.clientWidth || 300, height, hover), columns(p.lines), el);
      watch = new ResizeObserver(() => plot.current?.setSize({ width: el.clientWidth || 300, height }));
      watch.observe(el);
    });
    return () => {
      gone = true;
      watch?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [isDark, empty, p.lines.length, p.from]);
  useEffect(() => {
    plot.current?.setData(columns(p.lines));
  }, [p.lines]);

  const last = p.lines[0]?.points.at(-1)?.[1];
  return (
    <figure>
      <figcaption class="chart-title">
        <span>{p.title}{at && ` · ${at.time}`}</span>
        <b>{at?.value ?? p.now ?? (last === undefined ? '–' : p.format(last))}</b>
      </figcaption>
      {empty
        ? <div class="chart muted small" style={{ height: `${height}px` }}>{t('chart.none')}</div>
        : <div class="chart" ref={box} role="img" aria-label={summary(p)} style={{ height: `${height}px` }} />}
    </figure>
  );
}

function settings(p: ChartProps, width: number, height: number, hover: (u: uPlot) => void): uPlot.Options {
  const grid = { stroke: token('line'), width: 1 };
  const axis = { stroke: token('muted'), grid, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  return {
    width, height,
    padding: [4, 18, 0, 0],  // room for the last label of the time axis
    legend: { show: false },
    cursor: { y: false, ...(p.group ? { sync: { key: p.group } } : {}), drag: { x: true, y: false } },
    scales: {
      x: { time: true, ...(p.from && p.to ? { range: [p.from / 1000, p.to / 1000] as [number, number] } : {}) },
      y: { range: (_u, _min, max) => [0, Math.max(p.most ?? 0, (max ?? 0) * 1.1, 1e-6)] },
    },
    axes: [
      { ...axis, size: 18, gap: 2, grid: { show: false }, space: 70, values: (_u, times) => times.map(s => f.moment(s * 1000).split(' ').pop()!) },
      { ...axis, size: 0, gap: 0, values: (_u, marks) => marks.map(() => ''), splits: (_u, _i, _min, max) => [0, max / 2, max] },
    ],
    series: [{}, ...p.lines.map(l => ({ stroke: token(`series-${l.colour}`), width: 1.6, points: { show: false }, spanGaps: true }))],
    hooks: { setCursor: [hover] },
  };
}
