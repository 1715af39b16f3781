// Types of the live stream, which the API's document describes in words only, and short names for those it has.
import type * as api from './schema';

export type { Action, Efficiency, Series, SeriesNames, Spec, Token, Why } from './schema';

// The document says of every text that it may be null; of these the controller always knows it.
type Known<T, K extends keyof T> = Omit<T, K> & { [N in K]-?: NonNullable<T[N]> };
export type Share = Known<api.Share, 'project'>;
export type Shares = Omit<api.Shares, 'projects'> & { projects: Share[] };
export type Part = Known<api.Part, 'node'>;
export type Job = Omit<Known<api.Job, 'label' | 'name' | 'user' | 'project'>, 'parts'> & { parts: Part[] | null };
export type NodeStatus = Known<api.NodeStatus, 'name'>;
export type NodeState = NodeStatus['state'];

export interface JobRow {
  id: number;
  array_id: number;
  array_index: number;
  label: string;
  name: string;
  user: string;
  project: string;
  partition: string;
  qos: string;
  class: string;
  state: string;
  reason: string | null;
  nodes: string | null;
  node_count: number;
  tasks: number;
  cpus: number;
  memory_bytes: number;
  gpus_milli: number;
  time_limit_s: number;
  submit_ms: number;
  eligible_ms: number;
  start_ms: number;
  end_ms: number;
  expected_start_ms: number;
  exit_code: number;
  exit_signal: number;
  attempt: number;
  hold: boolean;
  preempted: number;
  ending: string | null;
  elapsed_ms?: number;
  gpu_use_milli?: number | null;
  progress_milli?: number | null;
  why?: string | null;
  /** Name of the draft that the row stands for. */
  draft?: string;
  /** Where its programs are reached, while it runs. */
  urls?: string[] | null;
  array?: { elements: number; states: Record<string, number> } | null;
}

export interface GpuPart {
  project: string;
  milli: number;
}

export interface GpuNow {
  index: number;
  model: string;
  memory_bytes: number;
  held_milli: number;
  use_milli: number | null;
  memory_used_bytes: number | null;
  power_mw: number | null;
  temperature_c: number | null;
  unhealthy: string | null;
  parts: GpuPart[];
}

export interface NodeNow {
  name: string;
  state: NodeState;
  reason: string | null;
  cpus: number;
  cpus_used: number;
  cpu_milli: number | null;
  memory_bytes: number;
  memory_used_bytes: number;
  memory_in_use_bytes: number | null;
  jobs: number;
  gpus: GpuNow[];
}

export interface OverviewCounts {
  at_ms: number;
  seq: number;
  gpus: {
    total: number;
    allocated_milli: number;
    idle_allocated_milli: number;
    free_milli: number;
    out_of_use: number;
    measured: number;
    busy_milli: number;
    power_mw: number;
  };
  nodes: { total: number; up: number; drained: number; down: number };
  jobs: Record<string, number>;
  users: { live: number };
  projects: { live: number; running: number; pending: number };
  wait: { hours: number; jobs: number; median_ms: number; p90_ms: number };
  alerts: { open: number; acknowledged: number };
}

type Points = Array<[number, number]>;
export interface Overview extends OverviewCounts {
  cluster: string;
  version: string;
  cpus: { total: number; allocated: number };
  memory: { total_bytes: number; allocated_bytes: number };
  last_hour: { step_ms: number; utilisation: Points; power_watts: Points; gpus_allocated: Points; jobs_pending: Points; jobs_running: Points };
  shares: Shares;
  node_list: NodeNow[];
}

export interface TablePage {
  seq: number;
  now_ms: number;
  rows: JobRow[];
  next: string | null;
  total: number;
  jobs: number;
  states: Record<string, number>;
  complete: boolean;
}
