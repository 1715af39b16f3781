// Partitions, QoS and reservations: one table-driven editor. Each field says how it is typed, and its option of the command line.
import { address, send } from '../api/client';
import { useResource } from '../api/resource';
import { Card } from '../components/basics';
import { ask } from '../components/dialog';
import { edit } from '../components/edit';
import { CheckField, TextField } from '../components/form';
import { quote, SameFold, type Same } from '../components/same';
import { Empty, Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t, type TextKey } from '../lib/i18n';

type Kind = 'text' | 'names' | 'number' | 'gpus' | 'seconds' | 'moment' | 'yes';
interface Field {
  key: string;
  text: TextKey;
  kind: Kind;
  option: string;
  /** Not typed: null, which is no limit. */
  none?: boolean;
}
type Entity = Record<string, unknown> & { name: string };
type Values = Record<string, string | boolean> & { name: string };

export interface EntityKind {
  path: 'partitions' | 'qos' | 'reservations';
  command: string;
  title: TextKey;
  fields: Field[];
}

export const KINDS: Record<'partitions' | 'qos' | 'reservations', EntityKind> = {
  partitions: { path: 'partitions', command: 'partition', title: 'admin.partitions', fields: [
    { key: 'nodes', text: 'nav.nodes', kind: 'text', option: 'nodes' }, { key: 'is_default', text: 'entity.default', kind: 'yes', option: 'default' },
    { key: 'default_time_s', text: 'entity.defaultTime', kind: 'seconds', option: 'default-time', none: true }, { key: 'max_time_s', text: 'entity.maxTime', kind: 'seconds', option: 'max-time', none: true },
    { key: 'tier', text: 'entity.tier', kind: 'number', option: 'tier' }, { key: 'fifo', text: 'entity.fifo', kind: 'yes', option: 'fifo' },
    { key: 'down', text: 'entity.down', kind: 'yes', option: 'down' }, { key: 'closed', text: 'entity.closed', kind: 'yes', option: 'closed' },
  ] },
  qos: { path: 'qos', command: 'qos', title: 'admin.qos', fields: [
    { key: 'priority', text: 'entity.priority', kind: 'number', option: 'priority' }, { key: 'max_jobs_per_user', text: 'entity.maxJobs', kind: 'number', option: 'max-jobs-per-user', none: true },
    { key: 'max_gpus_per_user_milli', text: 'entity.maxGpus', kind: 'gpus', option: 'max-gpus-per-user', none: true }, { key: 'max_wall_s', text: 'entity.maxTime', kind: 'seconds', option: 'max-time', none: true },
    { key: 'preempts', text: 'entity.preempts', kind: 'names', option: 'preempts' }, { key: 'no_preempt', text: 'entity.noPreempt', kind: 'yes', option: 'no-preempt' },
  ] },
  reservations: { path: 'reservations', command: 'reservation', title: 'admin.reservations', fields: [
    { key: 'nodes', text: 'nav.nodes', kind: 'text', option: 'nodes' }, { key: 'start_ms', text: 'entity.start', kind: 'moment', option: 'start' }, { key: 'end_ms', text: 'entity.end', kind: 'moment', option: 'end' },
    { key: 'users', text: 'entity.users', kind: 'names', option: 'users' }, { key: 'projects', text: 'admin.projects', kind: 'names', option: 'projects' }, { key: 'maintenance', text: 'entity.maintenance', kind: 'yes', option: 'maintenance' },
  ] },
};

const names = (text: string) => text.split(/[\s,]+/).filter(Boolean);

function typed(field: Field, value: unknown): string | boolean {
  if (field.kind === 'yes') return value === true;
  if (value === null || value === undefined) return '';
  if (field.kind === 'gpus') return String(Number(value) / 1000);
  if (field.kind === 'names') return (value as string[]).join(', ');
  if (field.kind === 'moment') return Number(value) ? new Date(Number(value) - new Date(Number(value)).getTimezoneOffset() * 60_000).toISOString().slice(0, 16) : '';
  return String(value);
}

function read(field: Field, value: string | boolean): unknown {
  if (typeof value === 'boolean') return value;
  if (field.kind === 'names') return names(value);
  if (field.kind === 'text') return value;
  if (value.trim() === '') return field.none ? null : 0;
  if (field.kind === 'moment') return new Date(value).getTime();
  return field.kind === 'gpus' ? Math.round(Number(value) * 1000) : Number(value);
}

function shown(field: Field, value: unknown): string {
  if (field.kind === 'yes') return value ? t('action.yes') : '';
  if (value === null || value === undefined || value === '') return '–';
  if (field.kind === 'seconds') return f.span(Number(value) * 1000);
  if (field.kind === 'gpus') return f.gpus(Number(value));
  if (field.kind === 'moment') return f.moment(Number(value));
  return field.kind === 'names' ? (value as string[]).join(', ') || '–' : String(value);
}

function optionText(field: Field, value: string | boolean): string {
  if (typeof value === 'boolean') return ` --${field.option} ${value ? 'yes' : 'no'}`;
  const text = field.kind === 'names' ? names(value).join(',') : value.trim();
  if (!text) return field.none ? ` --${field.option} none` : '';
  return ` --${field.option} ${quote(field.kind === 'seconds' ? f.limitOption(Number(text)) : text)}`;
}

const bodyOf = (kind: EntityKind, v: Values) => Object.fromEntries(kind.fields.map(x => [x.key, read(x, v[x.key] ?? '')]).filter(([, value]) => value !== null));

function sameOf(kind: EntityKind, v: Values, exists: boolean): Same {
  const name = v.name || 'NAME';
  return { cli: `acequia ${kind.command} ${exists ? 'edit' : 'create'} ${quote(name)}${kind.fields.map(x => optionText(x, v[x.key] ?? '')).join('')}`, method: 'PUT', path: address(`/v1/${kind.path}/{name}`, { name }), body: bodyOf(kind, v) };
}

function change(kind: EntityKind, e: Entity | null, done: () => void): void {
  const first: Values = { name: e?.name ?? '' };
  for (const x of kind.fields) first[x.key] = typed(x, e?.[x.key]);
  edit<Values>({
    title: e ? t('admin.changePerson', { name: e.name }) : t('entity.new'), yes: t('action.save'), first,
    form: (v, set) => (
      <>
        {!e && <TextField label={t('job.name')} value={v.name} set={name => set({ ...v, name })} required />}
        {kind.fields.map(x => (x.kind === 'yes'
          ? <CheckField key={x.key} label={t(x.text)} value={v[x.key] === true} set={on => set({ ...v, [x.key]: on })} />
          : <TextField key={x.key} label={t(x.text)} value={String(v[x.key] ?? '')} type={x.kind === 'moment' ? ('datetime-local' as 'text') : 'text'} set={text => set({ ...v, [x.key]: text })}
              hint={x.none ? t('admin.noneHint') : x.kind === 'seconds' ? t('entity.seconds') : x.kind === 'names' ? t('entity.names') : undefined} />))}
      </>
    ),
    same: v => sameOf(kind, v, e !== null),
    act: async v => {
      const answer = (await (await send('PUT', address(`/v1/${kind.path}/{name}`, { name: v.name }), { ...bodyOf(kind, v), name: v.name })).json()) as { warnings?: string[] };
      notify([t('admin.saved', { name: v.name }), ...(answer.warnings ?? [])].join(' '));
      done();
    },
  });
}

function remove(kind: EntityKind, name: string, done: () => void): void {
  const path = address(`/v1/${kind.path}/{name}`, { name });
  ask({
    title: t('entity.remove', { name }), yes: t('admin.remove'), danger: true,
    body: <SameFold actions={[{ cli: `acequia ${kind.command} delete ${quote(name)}`, method: 'DELETE', path }]} />,
    act: async () => {
      await send('DELETE', path);
      done();
    },
  });
}

export function Entities({ kind }: { kind: EntityKind }) {
  const r = useResource(kind.path, async s => ((await (await send('GET', `/v1/${kind.path}`, undefined, s)).json()) as Record<string, Entity[]>)[kind.path] ?? []);
  return (
    <Card title={t(kind.title)} note={<button class="link-button" onClick={() => change(kind, null, r.refresh)}>{t('entity.new')}</button>} flush>
      <Loaded of={r.state.value} retry={r.refresh}>
        {rows => (rows.length === 0 ? <Empty title={t('entity.none')} /> : (
          <div class="scroll-x" tabIndex={0} role="region" aria-label={t(kind.title)}>
            <table>
              <thead><tr><th scope="col">{t('job.name')}</th>{kind.fields.map(x => <th key={x.key} scope="col" class="wide-only wrapped">{t(x.text).replace(/ \([^)]*\)$/, '')}</th>)}<th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th></tr></thead>
              <tbody>
                {rows.map(e => (
                  <tr key={e.name}>
                    <td class="strong">{e.name}</td>{kind.fields.map(x => <td key={x.key} class="wide-only">{shown(x, e[x.key])}</td>)}
                    <td class="num nowrap"><button class="button" onClick={() => change(kind, e, r.refresh)}>{t('admin.change')}</button>{' '}
                      <button class="button danger" onClick={() => remove(kind, e.name, r.refresh)}>{t('admin.remove')}</button></td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        ))}
      </Loaded>
    </Card>
  );
}
