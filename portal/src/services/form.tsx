// The form of a service: a new one, or a new revision of one that is there.
import { send } from '../api/client';
import { me } from '../api/session';
import { liveShares } from '../api/live';
import { edit } from '../components/edit';
import { SelectField, TextField } from '../components/form';
import { quote } from '../components/same';
import { notify } from '../components/toast';
import { specOf, type Option } from '../compose/script';
import { foundHome, home } from '../files/home';
import { t } from '../lib/i18n';
import { go } from '../lib/router';
import { servicePage, servicePath, userOption, type Service } from './data';

interface Program {
  command: string;
  gpus: string;
  cpus: string;
  memory: string;
  container: string;
  project: string;
}
interface NewService extends Program {
  name: string;
  min: string;
  max: string;
}
interface NewRevision extends Program {
  canary: string;
}

const EMPTY: Program = { command: '', gpus: '', cpus: '', memory: '', container: '', project: '' };
const OPTIONS: Array<keyof Program & Option> = ['gpus', 'cpus', 'memory', 'container', 'project'];

// The command runs as a shell takes it, as it was typed.
function programOf(v: Program, workdir: string) {
  const values = Object.fromEntries(OPTIONS.filter(o => v[o].trim()).map(o => [o, v[o].trim()]));
  const { spec, wrong } = specOf(values);
  if (wrong.length) throw new Error(t('new.wrong', { option: wrong[0]!, value: values[wrong[0]!] ?? '' }));
  if (!v.command.trim()) throw new Error(t('services.needCommand'));
  return { spec: { ...spec, argv: ['/bin/sh', '-c', v.command.trim()], workdir } };
}

function tried<T>(make: () => T): T | object {
  try {
    return make();
  } catch {
    return {};  // half typed: what there is of it is shown
  }
}

const optionText = (v: Program) => OPTIONS.filter(o => v[o].trim()).map(o => ` --${o} ${quote(v[o].trim())}`).join('');
const commandText = (v: Program) => ` -- sh -c ${quote(v.command.trim() || 'COMMAND')}`;

function Fields<V extends Program>({ v, set }: { v: V; set: (v: V) => void }) {
  const projects = (liveShares.value?.projects ?? []).map(p => p.project);
  return (
    <>
      <TextField label={t('services.command')} hint={t('services.commandHint')} value={v.command} set={command => set({ ...v, command })} required />
      <div class="two-fields">
        <TextField label={t('job.gpus')} hint={t('services.perReplica')} value={v.gpus} set={gpus => set({ ...v, gpus })} />
        <TextField label={t('job.cpus')} value={v.cpus} set={cpus => set({ ...v, cpus })} />
        <TextField label={t('job.memory')} value={v.memory} set={memory => set({ ...v, memory })} placeholder="8G" />
      </div>
      <div class="two-fields">
        <TextField label={t('job.container')} value={v.container} set={container => set({ ...v, container })} placeholder="docker://…" />
        {projects.length > 0 && <SelectField label={t('job.project')} value={v.project} set={project => set({ ...v, project })}
          options={[{ value: '', text: t('new.default') }, ...projects.map(p => ({ value: p, text: p }))]} />}
      </div>
    </>
  );
}

const sizeOf = (v: NewService) => ({ replicas_min: Number(v.min || '0'), replicas_max: Number(v.max || '0') });

export function newService(): void {
  edit<NewService>({
    title: t('services.new'), yes: t('services.create'), first: { ...EMPTY, name: '', min: '1', max: '4' },
    form: (v, set) => (
      <>
        <TextField focus label={t('job.name')} hint={t('services.nameHint')} value={v.name} set={name => set({ ...v, name })} required />
        <Fields v={v} set={set} />
        <div class="two-fields">
          <TextField label={t('services.min')} hint={t('services.minHint')} type="number" value={v.min} set={min => set({ ...v, min })} />
          <TextField label={t('services.max')} type="number" value={v.max} set={max => set({ ...v, max })} />
        </div>
      </>
    ),
    same: v => ({ cli: `acequia serve --name ${quote(v.name || 'NAME')} --replicas ${v.min}-${v.max}${optionText(v)}${commandText(v)}`, method: 'POST', path: '/v1/services',
      body: { name: v.name, ...sizeOf(v), ...tried(() => programOf(v, home())) } }),
    act: async v => {
      await send('POST', '/v1/services', { name: v.name.trim(), ...sizeOf(v), ...programOf(v, await foundHome()) });
      notify(t('services.created', { name: v.name.trim() }));
      go(servicePage({ name: v.name.trim(), user: me.value?.user ?? '' }));
    },
  });
}

export function newRevision(s: Service, done: () => void): void {
  const newest = s.revisions.at(-1);
  const canary = (v: NewRevision) => (Number(v.canary || '0') > 0 ? { canary: Number(v.canary) } : {});
  edit<NewRevision>({
    title: t('services.revisionOf', { name: s.name }), yes: t('services.begin'), first: { ...EMPTY, command: (newest?.command ?? '').replace(/^(\/bin\/)?sh -c /, ''), canary: '' },
    form: (v, set) => (
      <>
        <p class="muted">{t('services.revisionText')}</p>
        <Fields v={v} set={set} />
        <TextField label={t('services.canary')} hint={t('services.canaryHint')} type="number" value={v.canary} set={c => set({ ...v, canary: c })} />
      </>
    ),
    same: v => ({ cli: `acequia serve update ${quote(s.name)}${userOption(s)}${Number(v.canary) > 0 ? ` --canary ${v.canary}%` : ''}${optionText(v)}${commandText(v)}`, method: 'POST',
      path: servicePath(s), body: { ...canary(v), ...tried(() => programOf(v, home())) } }),
    act: async v => {
      await send('POST', servicePath(s), { ...canary(v), ...programOf(v, await foundHome()) });
      notify(t('services.revisionBegan', { name: s.name }));
      done();
    },
  });
}
