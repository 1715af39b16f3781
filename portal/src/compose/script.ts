// A batch script and its directives (#ACEQUIA and #SBATCH lines before the first command), read into a request and changed in place, so that form
// and script say the same. What is not understood here is named, never dropped silently: the command line understands all of it.
import type { Spec } from '../api/types';
import { quote } from '../components/same';

export type Option = 'name' | 'project' | 'gpus' | 'memory' | 'time' | 'cpus' | 'tasks' | 'nodes' | 'partition' | 'qos' | 'output' | 'error' | 'chdir' |
  'array' | 'container' | 'constraint' | 'dependency' | 'tag' | 'comment';

interface Found {
  line: number;
  option: Option;
  /** As it is written: --name, -J, --job-name. */
  flag: string;
  value: string;
  slurm: boolean;
}

export interface Reading {
  found: Found[];
  values: Partial<Record<Option, string>>;
  /** Directives that are not understood here, and values that make no sense. */
  problems: string[];
}

const ACEQUIA: Record<string, Option> = {
  '--name': 'name', '-J': 'name', '--project': 'project', '-P': 'project', '--gpus': 'gpus', '-g': 'gpus', '--memory': 'memory', '-m': 'memory',
  '--time': 'time', '-t': 'time', '--cpus': 'cpus', '-c': 'cpus', '--tasks': 'tasks', '-n': 'tasks', '--nodes': 'nodes', '-N': 'nodes',
  '--partition': 'partition', '-p': 'partition', '--qos': 'qos', '-q': 'qos', '--output': 'output', '-o': 'output', '--error': 'error', '-e': 'error',
  '--chdir': 'chdir', '-D': 'chdir', '--array': 'array', '-a': 'array', '--container': 'container', '--constraint': 'constraint', '-C': 'constraint',
  '--dependency': 'dependency', '-d': 'dependency', '--tag': 'tag', '--comment': 'comment',
};
const SLURM: Record<string, Option> = {
  '--job-name': 'name', '-J': 'name', '--account': 'project', '-A': 'project', '--gpus': 'gpus', '-G': 'gpus', '--gres': 'gpus', '--mem': 'memory',
  '--time': 'time', '-t': 'time', '--cpus-per-task': 'cpus', '-c': 'cpus', '--ntasks': 'tasks', '-n': 'tasks', '--nodes': 'nodes', '-N': 'nodes',
  '--partition': 'partition', '-p': 'partition', '--qos': 'qos', '-q': 'qos', '--output': 'output', '-o': 'output', '--error': 'error', '-e': 'error',
  '--chdir': 'chdir', '-D': 'chdir', '--array': 'array', '-a': 'array', '--constraint': 'constraint', '-C': 'constraint', '--dependency': 'dependency', '-d': 'dependency', '--comment': 'comment',
};

/** Words of a line as a shell splits them: quotes hold together. */
export function words(text: string): string[] {
  const out: string[] = [];
  for (const m of text.matchAll(/(?:[^\s'"]+|'[^']*'|"[^"]*")+/g)) out.push(m[0].replace(/'([^']*)'|"([^"]*)"/g, (_, a?: string, b?: string) => a ?? b ?? ''));
  return out;
}

function directive(line: string): { rest: string; slurm: boolean } | null {
  const m = /^#(ACEQUIA|SBATCH)\s+(.*)$/.exec(line);
  return m ? { rest: m[2]!, slurm: m[1] === 'SBATCH' } : null;
}

export function read(script: string): Reading {
  const r: Reading = { found: [], values: {}, problems: [] };
  const lines = script.split('\n');
  for (let n = 0; n < lines.length; n++) {
    const line = lines[n]!;
    if (line.trim() && !line.startsWith('#')) break;  // the first command ends the directives
    const d = directive(line);
    if (!d) continue;
    const all = words(d.rest);
    for (let i = 0; i < all.length; i++) {
      const [flag, joined] = all[i]!.startsWith('--') && all[i]!.includes('=') ? split(all[i]!) : [all[i]!, undefined];
      const option = (d.slurm ? SLURM : ACEQUIA)[flag];
      if (flag.startsWith('#')) break;  // a comment
      const value = joined ?? all[i + 1];
      if (!option || value === undefined) {
        const own = joined === undefined && value !== undefined && !value.startsWith('-');  // what follows belongs to it
        r.problems.push(own ? `${all[i++]!} ${value}` : all[i]!);
        continue;
      }
      if (joined === undefined) i++;
      const plain = flag === '--gres' ? value.replace(/^gpu:/, '') : value;
      r.found.push({ line: n, option, flag, value, slurm: d.slurm });
      r.values[option] = option === 'tag' && r.values.tag ? `${r.values.tag},${plain}` : plain;
    }
  }
  return r;
}

function split(word: string): [string, string] {
  const at = word.indexOf('=');
  return [word.slice(0, at), word.slice(at + 1)];
}

function written(value: string): string {
  return /^[\w@%+=:,./\-[\]{}$]+$/.test(value) ? value : `'${value.replaceAll("'", '')}'`;
}

/** The script with this option set to the value, in the words of its own line; "" takes it out. */
export function change(script: string, option: Option, value: string): string {
  const lines = script.split('\n');
  const has = read(script).found.filter(x => x.option === option).pop();
  if (has) {
    const text = has.slurm && option === 'time' ? slurmTime(value) : has.flag === '--gres' ? `gpu:${value}` : value;
    const old = new RegExp(`(^|\\s)${has.flag}(?:=|\\s+)(?:'[^']*'|"[^"]*"|\\S+)`);
    const joint = has.slurm && has.flag.startsWith('--') ? '=' : ' ';
    const line = lines[has.line]!.replace(old, (_, before: string) => (value === '' ? '' : `${before}${has.flag}${joint}${written(text)}`));
    if (/^#(ACEQUIA|SBATCH)\s*$/.test(line)) lines.splice(has.line, 1);
    else lines[has.line] = line;
    return lines.join('\n');
  }
  if (value === '') return script;
  let at = lines[0]?.startsWith('#!') ? 1 : 0;
  for (let n = 0; n < lines.length && (!lines[n]!.trim() || lines[n]!.startsWith('#')); n++) if (directive(lines[n]!)) at = n + 1;
  lines.splice(at, 0, `#ACEQUIA --${option} ${written(value)}`);
  return lines.join('\n');
}

function slurmTime(value: string): string {
  const s = seconds(value);
  if (s === null) return value;
  const two = (n: number) => String(n).padStart(2, '0');
  const days = Math.floor(s / 86_400);
  return `${days ? `${days}-` : ''}${two(Math.floor((s % 86_400) / 3600))}:${two(Math.floor((s % 3600) / 60))}:${two(s % 60)}`;
}

/** 90m, 8h, 2-12:00:00, 1:30:00; a bare number is minutes. null: not a time. */
export function seconds(text: string): number | null {
  const unit = /^(\d+(?:\.\d+)?)\s*(s|m|min|h|d|w)$/.exec(text);
  if (unit) return Math.round(Number(unit[1]) * { s: 1, m: 60, min: 60, h: 3600, d: 86_400, w: 604_800 }[unit[2] as 's']);
  const m = /^(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?$/.exec(text);
  if (!m) return null;
  const [days, a, b, c] = [m[1], m[2], m[3], m[4]].map(x => (x === undefined ? undefined : Number(x)));
  if (days !== undefined) return days * 86_400 + a! * 3600 + (b ?? 0) * 60 + (c ?? 0);
  if (c !== undefined) return a! * 3600 + b! * 60 + c;
  return b !== undefined ? a! * 60 + b : a! * 60;
}

/** 64G, 512M; a bare number is megabytes. */
export function sizeBytes(text: string): number | null {
  const m = /^(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?$/i.exec(text);
  return m ? Math.round(Number(m[1]) * 2 ** ({ K: 10, M: 20, G: 30, T: 40 }[(m[2] || 'M').toUpperCase() as 'K'])) : null;
}

function arrayOf(text: string): Pick<Spec, 'array' | 'array_limit'> | null {
  const [list, limit] = text.split('%');
  const ranges = list!.split(',').map(p => /^(\d+)(?:-(\d+))?(?::(\d+))?$/.exec(p));
  if (ranges.some(m => m === null) || (limit !== undefined && !/^\d+$/.test(limit))) return null;
  return { array: ranges.map(m => ({ first: Number(m![1]), last: Number(m![2] ?? m![1]), step: Number(m![3] ?? 1) })), array_limit: Number(limit ?? 0) };
}

function nodesOf(text: string): Pick<Spec, 'nodes_min' | 'nodes_max'> | null {
  const m = /^(\d+)(?:-(\d+))?$/.exec(text);
  return m ? { nodes_min: Number(m[1]), nodes_max: Number(m[2] ?? 0) } : null;
}

function gpusOf(text: string): Pick<Spec, 'gpus_milli'> & Partial<Pick<Spec, 'gpu_model'>> | null {
  const m = /^(?:([A-Za-z][\w-]*):)?(\d*\.?\d+)$/.exec(text);
  return m ? { gpus_milli: Math.round(Number(m[2]) * 1000), ...(m[1] ? { gpu_model: m[1] } : {}) } : null;
}

const TEXTS: Partial<Record<Option, keyof Spec>> = {
  name: 'name', project: 'project', partition: 'partition', qos: 'qos', output: 'output', error: 'error', chdir: 'workdir', container: 'container', constraint: 'features',
  dependency: 'dependency', comment: 'comment',
};

/** The request that the values make; `wrong` names the options whose value makes no sense. */
export function specOf(values: Partial<Record<Option, string>>): { spec: Partial<Spec>; wrong: Option[] } {
  const spec: Record<string, unknown> = {};
  const wrong: Option[] = [];
  const put = (option: Option, fields: object | null) => (fields ? Object.assign(spec, fields) : wrong.push(option));
  const count = (text: string, field: string) => (/^\d+$/.test(text) ? { [field]: Number(text) } : null);
  for (const [option, value] of Object.entries(values) as Array<[Option, string]>) {
    const bytes = sizeBytes(value), time = seconds(value);
    if (TEXTS[option]) spec[TEXTS[option]] = value;
    else if (option === 'tag') spec['tags'] = value.split(',').filter(Boolean);
    else if (option === 'gpus') put(option, gpusOf(value));
    else if (option === 'memory') put(option, bytes === null ? null : { memory_per_node_bytes: bytes });
    else if (option === 'time') put(option, time === null ? null : { time_limit_s: time });
    else if (option === 'cpus') put(option, count(value, 'cpus_per_task'));
    else if (option === 'tasks') put(option, count(value, 'tasks'));
    else if (option === 'nodes') put(option, nodesOf(value));
    else if (option === 'array') put(option, arrayOf(value));
  }
  return { spec: spec as Partial<Spec>, wrong };
}

const gib = (bytes: number) => (bytes % 2 ** 30 === 0 ? `${bytes / 2 ** 30}G` : `${Math.ceil(bytes / 2 ** 20)}M`);

/** The values that a job was asked for with, to begin a new one from it. */
export function valuesOf(s: Partial<Spec>): Partial<Record<Option, string>> {
  const v: Partial<Record<Option, string>> = {};
  for (const [option, field] of Object.entries(TEXTS) as Array<[Option, keyof Spec]>) if (s[field] && option !== 'dependency') v[option] = String(s[field]);
  if (s.gpus_milli) v.gpus = `${s.gpu_model ? `${s.gpu_model}:` : ''}${s.gpus_milli / 1000}`;
  if (s.memory_per_node_bytes && !s.memory_default) v.memory = gib(s.memory_per_node_bytes);
  if (s.time_limit_s) v.time = s.time_limit_s % 3600 === 0 ? `${s.time_limit_s / 3600}h` : `${Math.ceil(s.time_limit_s / 60)}m`;
  if ((s.cpus_per_task ?? 0) > 1) v.cpus = String(s.cpus_per_task);
  if ((s.tasks ?? 0) > 1) v.tasks = String(s.tasks);
  if ((s.nodes_min ?? 0) > 1) v.nodes = String(s.nodes_min);
  if (s.tags?.length) v.tag = s.tags.join(',');
  if (s.array?.length) v.array = s.array.map(r => (r.first === r.last ? `${r.first}` : `${r.first}-${r.last}${r.step > 1 ? `:${r.step}` : ''}`)).join(',') + (s.array_limit ? `%${s.array_limit}` : '');
  return v;
}

/** The script with what is asked for in its directives; a job without one gets a script that runs its command. */
export function scriptOf(s: Partial<Spec>, script: string | null): string {
  let out = script ?? `#!/bin/sh\n\n${(s.argv ?? []).map(w => quote(w ?? '')).join(' ')}\n`;
  for (const [option, value] of Object.entries(valuesOf(s)) as Array<[Option, string]>)
    if (read(out).values[option] === undefined) out = change(out, option, value);
  return out;
}
