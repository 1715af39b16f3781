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
  /** Lines are areas on top of each other, in their order from below, with their names and values underneath. */
  stack?: boolean;
  /** With figures at the left. */
  axis?: boolean;
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

// Each line on top of those before it; the topmost first, so that the lower ones are painted over it.
function stacked([times, ...rows]: uPlot.AlignedData): uPlot.AlignedData {
  const sums: number[][] = [];
  for (const row of rows) {
    const below = sums.at(-1);
    sums.push([...row].map((v, i) => (v ?? 0) + (below?.[i] ?? 0)));
  }
  return [times, ...sums.reverse()] as uPlot.AlignedData;
}

const dataOf = (p: ChartProps): uPlot.AlignedData => (p.stack ? stacked(columns(p.lines)) : columns(p.lines));

function summary(p: ChartProps): string {
  const all = p.lines.flatMap(l => l.points.map(q => q[1]));
  if (!all.length) return `${p.title}: ${t('chart.none')}`;
  const sum = all.reduce((a, b) => a + b, 0);
  return t('chart.summary', { title: p.title, least: p.format(Math.min(...all)), mean: p.format(sum / all.length), most: p.format(Math.max(...all)) });
}

export function Chart(p: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef(p);
  shown.current = p;
  const [at, setAt] = useState<{ values: Array<number | null>; time: string } | null>(null);
  const height = p.height ?? 96;
  const isDark = dark.value;
  const empty = p.lines.every(l => l.points.length < 2);  // of one point there is no line

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
        const [times, ...rows] = columns(shown.current.lines);
        const values = rows.map(v => v[i] ?? null);
        if (times![i] === undefined || values.every(v => v === null)) return setAt(null);
        return setAt({ values, time: momentIn(p, times![i]! * 1000) });
      };
      plot.current = new UPlot(settings(p, el.clientWidth || 300, height, hover), dataOf(p), el);
      watch = new ResizeObserver(() => plot.current?.setSize({ width: el.clientWidth || 300, height }));
      watch.observe(el);
    });
    return () => {
      gone = true;
      watch?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [isDark, empty, p.lines.map(l => l.colour).join(), p.from]);
  useEffect(() => {
    plot.current?.setData(dataOf(p));
  }, [p.lines]);

  const last = p.lines[0]?.points.at(-1)?.[1];
  const total = (values: Array<number | null>) => values.reduce<number>((sum, v) => sum + (v ?? 0), 0);
  const value = at && (p.stack ? p.format(total(at.values)) : at.values.filter(v => v !== null).map(v => p.format(v!)).join(' · '));
  return (
    <figure>
      <figcaption class="chart-title">
        <span>{p.title}{at && ` · ${at.time}`}</span>
        <b>{value ?? p.now ?? (last === undefined ? '–' : p.format(last))}</b>
      </figcaption>
      {empty
        ? <div class="chart muted small" style={{ height: `${height}px` }}>{t(last === undefined ? 'chart.none' : 'overview.collecting')}</div>
        : <div class="chart" ref={box} role="img" aria-label={summary(p)} style={{ height: `${height}px` }} />}
      {p.stack && !empty && (
        <div class="legend">
          {p.lines.map((l, i) => <span key={l.name}><i class={`c${l.colour}`} />{l.name}{at && <b>{p.format(at.values[i] ?? 0)}</b>}</span>)}
        </div>
      )}
    </figure>
  );
}

const DAYS_MS = 36 * 3_600_000;
const long = (p: ChartProps) => (p.from && p.to ? p.to - p.from > DAYS_MS : false);
const momentIn = (p: ChartProps, ms: number) => (long(p) ? f.moment(ms) : f.timeOfDay(ms));

// As short as they can be and still differ: days, minutes or seconds; what repeats is left out.
function timeLabels(p: ChartProps, times: number[]): string[] {
  const short = times.length > 1 && times[times.length - 1]! - times[0]! < 600;
  const texts = times.map(s => (long(p) ? f.day : short ? f.timeOfDay : f.clockTime)(s * 1000));
  return texts.map((text, i) => (text === texts[i - 1] ? '' : text));
}

// Figures of the scale: a value that its format would show as nothing gets the digits it needs; what repeats is left out.
function marksOf(p: ChartProps, values: number[]): string[] {
  const nothing = p.format(0), unit = nothing.replace(/^[\d.,\s]+/, '');
  const texts = values.map(v => {
    const text = p.format(v);
    if (v <= 0 || text !== nothing) return text;
    const small = f.small(unit.includes('%') ? v * 100 : v);
    return unit ? `${small} ${unit}` : small;
  });
  return texts.map((text, i) => (i > 0 && i < texts.length - 1 && (text === texts[i - 1] || text === texts[i + 1]) ? '' : text));
}

const LABEL_PX = 6.5, LABEL_GAP_PX = 16;
// Steps between the labels of time: finer than uPlot's own, so that there is more than one of them.
const INCREMENTS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000];

/** A label of a time beyond the end of the scale would be cut off. */
function within(u: uPlot, times: number[], texts: string[]): string[] {
  const { min, max } = u.scales['x']!;
  return texts.map((text, i) => (times[i]! < (min ?? 0) || times[i]! > (max ?? Infinity) ? '' : text));
}

/** How wide a label of the time axis is, in this language. */
function labelWidth(p: ChartProps): number {
  const at = (p.to ?? Date.now()) / 1000;
  const texts = [...timeLabels(p, [at - 86_400, at]), ...timeLabels(p, [at - 60, at])];
  return LABEL_PX * Math.max(...texts.map(x => x.length));
}

function settings(p: ChartProps, width: number, height: number, hover: (u: uPlot) => void): uPlot.Options {
  const grid = { stroke: token('line'), width: 1 };
  const half = Math.ceil(labelWidth(p) / 2);
  const axis = { stroke: token('muted'), grid, ticks: { show: false }, font: '11px system-ui, sans-serif' };
  return {
    width, height,
    padding: [p.axis ? 8 : 4, half, 0, p.axis ? 0 : half],  // labels stand in the middle below their times: the first and the last need room beside them
    legend: { show: false },
    cursor: { y: false, ...(p.group ? { sync: { key: p.group } } : {}), drag: { x: true, y: false } },
    scales: {
      x: { time: true, ...(p.from && p.to ? { range: [p.from / 1000, p.to / 1000] as [number, number] } : {}) },
      y: { range: (_u, _min, max) => [0, Math.max(p.most ?? 0, (max ?? 0) * ((max ?? 0) <= (p.most ?? 0) ? 1 : 1.1)) || 1] },
    },
    axes: [
      { ...axis, size: p.axis ? 24 : 18, gap: p.axis ? 8 : 2, grid: { show: false }, space: Math.max(60, LABEL_GAP_PX + labelWidth(p)), incrs: INCREMENTS_S, values: (u, times) => within(u, times, timeLabels(p, times)) },
      { ...axis, size: p.axis ? 52 : 0, gap: p.axis ? 6 : 0, values: (_u, marks) => (p.axis ? marksOf(p, marks) : marks.map(() => '')), splits: (_u, _i, _min, max) => [0, max / 2, max] },
    ],
    series: [{}, ...(p.stack ? [...p.lines].reverse() : p.lines).map(l => ({
      stroke: token(`series-${l.colour}`), width: p.stack ? 1 : 1.6, points: { show: false }, spanGaps: true,
      ...(p.stack ? { fill: token(`series-${l.colour}`) } : {}),
    }))],
    hooks: { setCursor: [hover] },
  };
}
