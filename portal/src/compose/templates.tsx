// Templates in the composer: one's own, those of one's projects, and those that come with Acequia; earlier jobs to begin from.
import { useState } from 'preact/hooks';
import { errorText } from '../api/client';
import { useResource } from '../api/resource';
import { dropTemplate, keepTemplate, newName, template, templates, type Template } from '../api/saved';
import { me } from '../api/session';
import type { Spec } from '../api/types';
import { ask } from '../components/dialog';
import { SameFold, quote } from '../components/same';
import { SelectField, TextField } from '../components/form';
import { DownIcon } from '../components/icons';
import { Menu, type MenuItem } from '../components/menu';
import { notify } from '../components/toast';
import { t, tWord } from '../lib/i18n';
import { go, segment } from '../lib/router';
import { scriptOf } from './script';

function titleOf(x: Template): string {
  const known = tWord('new.template', x.name);
  if (x.of === 'built_in' && known !== x.name) return known;
  return x.of === 'project' ? `${x.title ?? x.name} (${x.project})` : x.title ?? x.name;
}

export function TemplateMenu({ script, spec, set, more }: { script: string; spec: Partial<Spec>; set: (script: string) => void; more: MenuItem[] }) {
  const list = useResource('templates', templates);
  const all = list.state.value.data ?? [];
  const use = (x: Template) => void template(x).then(found => set(scriptOf(found.spec, found.script)), e => notify(errorText(e)));
  const entries = (of: Template['of']): MenuItem[] => all.filter(x => x.of === of).map((x, i) => ({ text: titleOf(x), divided: i === 0 && of !== 'built_in', act: () => use(x) }));
  const own = all.filter(x => x.of !== 'built_in');
  const items: MenuItem[] = [...entries('built_in'), ...entries('own'), ...entries('project'), { text: t('new.fromJob'), divided: true, act: askJob }];
  if (me.value?.may_submit) items.push({ text: t('new.saveTemplate'), divided: true, act: () => askSave(script, spec, own, list.refresh) });
  if (own.length > 0) items.push({ text: t('new.dropTemplate'), act: () => askDrop(own, list.refresh) });
  return <Menu button={<>{t('new.from')} <DownIcon /></>} items={[...items, ...more]} />;
}

function askJob(): void {
  let job = '';
  ask({
    title: t('new.fromJob'), yes: t('new.use'), body: <Typed label={t('new.jobNumber')} set={v => (job = v)} />,
    act: async () => {
      if (!/^\d+(_\d+)?$/.test(job.trim())) throw new Error(t('new.needJob'));
      go(`/new?from=${segment(job.trim())}`);
    },
  });
}

function askSave(script: string, spec: Partial<Spec>, own: Template[], done: () => void): void {
  const choice = { title: spec.name ?? '', project: '' };
  ask({
    title: t('new.saveTemplate'), yes: t('action.save'), body: <SaveForm choice={choice} script={script} spec={spec} />,
    act: async () => {
      const title = choice.title.trim();
      if (!title) throw new Error(t('new.needTitle'));
      const old = own.find(x => titleOf({ ...x, of: 'own' }) === title && (x.project ?? '') === choice.project);
      await keepTemplate(old?.name ?? newName(), { title, project: choice.project || null, spec, script });
      done();
    },
  });
}

function SaveForm({ choice, script, spec }: { choice: { title: string; project: string }; script: string; spec: Partial<Spec> }) {
  const [title, setTitle] = useState(choice.title);
  const [project, setProject] = useState('');
  const projects = me.value?.projects ?? [];
  return (
    <div class="stack">
      <TextField label={t('account.name')} value={title} set={v => setTitle((choice.title = v))} />
      {projects.length > 0 && <SelectField label={t('new.templateFor')} value={project} set={v => setProject((choice.project = v))}
        options={[{ value: '', text: t('new.forMe') }, ...projects.map(p => ({ value: p.name, text: p.name }))]} />}
      <SameFold actions={[{ cli: `acequia template save${project ? ` --share ${quote(project)}` : ''} my-template script.sh`, method: 'PUT', path: '/v1/templates/my-template', body: { title, project: project || null, spec, script } }]} />
    </div>
  );
}

function askDrop(own: Template[], done: () => void): void {
  const choice = { at: 0 };
  ask({
    title: t('new.dropTemplate'), yes: t('action.delete'), danger: true, body: <DropForm own={own} choice={choice} />,
    act: async () => {
      await dropTemplate(own[choice.at]!);
      done();
    },
  });
}

function DropForm({ own, choice }: { own: Template[]; choice: { at: number } }) {
  const [at, setAt] = useState(0);
  const chosen = own[at]!;
  return (
    <>
      <SelectField label={t('new.templateName')} value={String(at)} set={v => setAt((choice.at = Number(v)))} options={own.map((x, i) => ({ value: String(i), text: titleOf(x) }))} />
      <SameFold actions={[{ cli: `acequia template delete${chosen.project ? ` --share ${quote(chosen.project)}` : ''} ${quote(chosen.name)}`, method: 'DELETE', path: `/v1/templates/${chosen.name}`, query: { project: chosen.project } }]} />
    </>
  );
}

function Typed({ label, set }: { label: string; set: (v: string) => void }) {
  const [value, setValue] = useState('');
  return <TextField label={label} value={value} set={v => { setValue(v); set(v); }} />;
}
