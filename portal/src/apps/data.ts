// Apps and their jobs. The site's apps and the built-in ones are told by the controller; a person's own are files of theirs, which are read as that
// person and sent along when one is started. Jobs of apps have the tag app=NAME, and what one was started with is read from its job.
import { address, call, send } from '../api/client';
import type * as api from '../api/schema';
import { me } from '../api/session';
import type { Job, JobRow, Spec } from '../api/types';
import { valuesOf as optionsOf } from '../compose/script';
import * as f from '../lib/format';
import { appText } from '../lib/phrases';

type Field = Omit<api.AppField, 'name' | 'choices'> & { name: string; choices: string[] };
export type App = Omit<api.App, 'name' | 'title' | 'fields' | 'origin'> & {
  name: string;
  title: string;
  origin: string;
  fields: Field[];
  /** Of one's own: its document, sent with the request that starts it. */
  document?: object;
};
export type Values = Record<string, string>;

export interface AppJob extends JobRow {
  tags: string[] | null;
  health?: string | null;
  health_reason?: string | null;
  warning?: string | null;
}

const OWN = '~/.config/acequia/apps';
const OWN_MOST = 64;
const FILE_MOST = 256 * 1024;
const FIELDS = 'id,label,name,user,project,state,reason,hold,nodes,gpus_milli,cpus,time_limit_s,submit_ms,eligible_ms,start_ms,end_ms,elapsed_ms,expected_start_ms,attempt,exit_code,ending,' +
  'tags,urls,health,health_reason,warning';
const SHOWN_DAYS = 30;
const SHOWN_MOST = 100;

function checked(a: api.App, origin: string): App {
  return { ...a, name: a.name ?? '', title: appText(a.title) || a.name || '', summary: appText(a.summary), origin,
    fields: (a.fields ?? []).map(x => ({ ...x, name: x.name ?? '', title: appText(x.title) || null, help: appText(x.help) || null, choices: (x.choices ?? []) as string[] })) };
}

async function textOf(path: string, signal: AbortSignal): Promise<string> {
  return (await send('GET', address('/v1/files/content', {}, { path }), undefined, signal)).text();
}

async function ownApp(path: string, name: string, script: boolean, signal: AbortSignal): Promise<App> {
  const document = JSON.parse(await textOf(`${path}/${name}.json`, signal)) as api.App;
  if (!document.script && script) document.script = await textOf(`${path}/${name}.sh`, signal);
  return { ...checked({ ...document, name, fields: (document.fields ?? []).map(x => ({ ...x, kind: x.kind ?? 'text' })) } as api.App, 'own'), document };
}

// A file that cannot be read is left out, as the command line does it.
async function ownApps(signal: AbortSignal): Promise<App[]> {
  const listing = await call('GET /v1/files', { query: { path: OWN, optional: true }, signal });
  const files = (listing.entries ?? []).filter(x => (x.size ?? 0) <= FILE_MOST).map(x => x.name ?? '');
  const names = files.filter(n => n.endsWith('.json')).map(n => n.slice(0, -5)).slice(0, OWN_MOST);
  const read = await Promise.allSettled(names.map(n => ownApp(listing.path ?? OWN, n, files.includes(`${n}.sh`), signal)));
  return read.flatMap(r => (r.status === 'fulfilled' ? [r.value] : []));
}

/** All apps; one's own take the place of others with their name. Without a node that reads files there are only the others. */
export async function loadApps(signal: AbortSignal): Promise<App[]> {
  const [known, own] = await Promise.all([call('GET /v1/apps', { signal }), me.value?.may_submit ? ownApps(signal).catch(() => []) : []]);
  const others = (known.apps ?? []).map(a => checked(a as api.App, a.origin ?? '')).filter(a => !own.some(o => o.name === a.name));
  return [...own, ...others];
}

export async function loadJobs(signal: AbortSignal): Promise<AppJob[]> {
  const query = { mine: true, where: 'tag=app', since_ms: Date.now() - SHOWN_DAYS * 86_400_000, limit: SHOWN_MOST, fields: FIELDS };
  return ((await (await send('GET', address('/v1/table', {}, query), undefined, signal)).json()) as { rows: AppJob[] }).rows;
}

export const appOf = (j: AppJob): string => (j.tags ?? []).find(x => x.startsWith('app='))?.slice(4) ?? '';

/** What a job of the app was started with, as one would type it. */
export async function valuesOf(app: App, label: string): Promise<Values> {
  const job = (await call('GET /v1/jobs/{job}', { path: { job: label } })) as Job;
  const spec = job.spec;
  if (!spec) return {};
  const lines = spec.environment_bytes
    ? ((await (await send('GET', address('/v1/jobs/{job}/environment', { job: label }, { list: true }))).json()) as { environment: string[] }).environment : [];
  const variables = new Map(lines.map(l => [l.slice(0, l.indexOf('=')), l.slice(l.indexOf('=') + 1)]));
  const options = optionsOf(spec as Partial<Spec>);
  const kinds: Record<string, string> = {
    gpus: options.gpus ?? '', cpus: options.cpus ?? '', memory: options.memory ?? '', time: options.time ?? '', idle: spec.idle_s ? f.limitOption(spec.idle_s) : '',
    container: spec.container ?? '', workdir: spec.workdir ?? '', project: spec.project ?? '', partition: spec.partition ?? '',
  };
  return Object.fromEntries(app.fields.map(x => [x.name, (x.kind ?? 'text') in kinds ? kinds[x.kind!]! : variables.get(`APP_${x.name.toUpperCase()}`) ?? x.value ?? '']));
}

export const defaults = (app: App): Values => Object.fromEntries(app.fields.map(x => [x.name, x.value ?? '']));
