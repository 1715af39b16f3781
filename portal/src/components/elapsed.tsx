// How long a job has run; of a running one it counts on by itself, with one timer for the whole page.
import { signal } from '@preact/signals';
import type { JobRow } from '../api/types';
import * as f from '../lib/format';

/** The time now, to the second; reading it in a component draws that every second. */
export const now = signal(Date.now());
setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);

export function Elapsed({ row }: { row: Pick<JobRow, 'state' | 'start_ms' | 'end_ms' | 'elapsed_ms'> }) {
  if (!row.start_ms) return <span class="muted">–</span>;
  if (row.state === 'RUNNING' || row.state === 'STARTING') return <>{f.clock(Math.max(0, now.value - row.start_ms))}</>;
  return <>{f.clock(row.elapsed_ms ?? Math.max(0, (row.end_ms || now.value) - row.start_ms))}</>;
}
