// A small line with its area, without axes: the shape of the last hour.
export type Points = Array<[number, number]>;

export function Spark({ points, most, label, height = 32 }: { points: Points; most?: number; label: string; height?: number }) {
  if (points.length < 2) return <div class="spark" style={{ height: `${height}px` }} />;
  const from = points[0]![0], to = points[points.length - 1]![0];
  const top = Math.max(1e-9, most ?? Math.max(...points.map(p => p[1])) * 1.1);  // all zero: a line at the bottom
  const x = (ms: number) => ((ms - from) / Math.max(1, to - from)) * 100;
  const y = (v: number) => 30 - Math.min(1, v / top) * 28;
  const line = points.map(([ms, v], i) => `${i ? 'L' : 'M'}${x(ms).toFixed(2)} ${y(v).toFixed(2)}`).join('');
  return (
    <svg class="spark" viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label={label} style={{ height: `${height}px` }}>
      <path class="area" d={`${line}L100 30L0 30Z`} />
      <path class="line" d={line} />
    </svg>
  );
}
