// Jobs that are not submitted yet, as rows of the job table. They are few, so they come all at once; the filters that make
// sense for them are applied here.
import { signal } from '@preact/signals';
import { resource, type Resource } from '../api/resource';
import { drafts, type Draft } from '../api/saved';
import { me } from '../api/session';
import type { JobRow } from '../api/types';
import { DRAFTS, type Filter } from './jobs-data';

export class DraftRows {
  readonly rows = signal<JobRow[]>([]);
  private readonly list: Resource<Draft[]>;
  private readonly off: () => void;

  constructor(filter: Filter) {
    this.list = resource(drafts);
    this.off = this.list.state.subscribe(s => {
      this.rows.value = (s.data ?? []).map(rowOf).filter(r => passes(r, filter)).sort((a, b) => b.submit_ms - a.submit_ms);
    });
  }

  refresh(): void {
    this.list.refresh();
  }

  stop(): void {
    this.off();
    this.list.stop();
  }
}

function passes(r: JobRow, f: Filter): boolean {
  const search = f.search.toLowerCase();
  return (f.state === '' || f.state === DRAFTS) && f.where === '' && (f.user === '' || f.user === r.user) && (f.project === '' || f.project === r.project) &&
    [r.name, r.user, r.project].some(x => x.toLowerCase().includes(search));
}

function rowOf(d: Draft): JobRow {
  const s = d.spec;
  return {
    id: 0, array_id: 0, array_index: 0, label: '', draft: d.name, name: d.title ?? d.name, user: me.value?.user ?? '', project: d.project ?? '', partition: s.partition ?? '',
    qos: s.qos ?? '', class: '', state: DRAFTS, reason: null, nodes: null, node_count: 0, tasks: 0, cpus: (s.cpus_per_task ?? 0) * Math.max(1, s.tasks ?? 1), memory_bytes: 0,
    gpus_milli: s.gpus_milli ?? 0, time_limit_s: s.time_limit_s ?? 0, submit_ms: d.set_ms, eligible_ms: 0, start_ms: 0, end_ms: 0, expected_start_ms: 0, exit_code: 0, exit_signal: 0,
    attempt: 0, hold: false, preempted: 0, ending: null,
  };
}
