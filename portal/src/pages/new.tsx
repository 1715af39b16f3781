// The composer: a form and a script that say the same, checked while one types by the controller itself: what would be refused, when it would start,
// and when with other GPUs and time limits. What is typed is kept as a draft until it is submitted.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { call, errorText, send, text } from '../api/client';
import { liveNodes, liveShares, useTopics } from '../api/live';
import { draft } from '../api/saved';
import { me } from '../api/session';
import type { Job, Spec } from '../api/types';
import { useDraft, type Kept, type OpenedDraft } from '../compose/draft';
import { FolderCard } from '../compose/folder';
import { change, read, scriptOf, specOf, type Option } from '../compose/script';
import { StartCard, useCheck } from '../compose/start';
import { TemplateMenu } from '../compose/templates';
import { Card } from '../components/basics';
import { ask } from '../components/dialog';
import { SelectField, TextField } from '../components/form';
import { foundHome, home } from '../files/home';
import { SameCard, SameFold } from '../components/same';
import { Loading } from '../components/states';
import { notify } from '../components/toast';
import { t } from '../lib/i18n';
import { go, jobPath, location } from '../lib/router';
import { PageTop } from '../shell/shell';

const FIRST = '#!/bin/bash\n#ACEQUIA --name train --gpus 1 --memory 16G --time 4h\n\npython train.py\n';

async function scriptOfJob(label: string): Promise<string> {
  const job = (await call('GET /v1/jobs/{job}', { path: { job: label } })) as Job;
  if (!job.spec) throw new Error(t('job.private'));
  return scriptOf(job.spec as Spec, job.spec.script_bytes ? await text(`/v1/jobs/${encodeURIComponent(label)}/script`) : null);
}

async function openDraft(name: string): Promise<Opening> {
  const d = await draft(name);
  return { draft: { name, version: String(d.set_ms) }, script: scriptOf(d.spec, d.script) };
}

interface Opening {
  draft: OpenedDraft | null;
  script: string;
}

interface Opened extends Opening {
  number: number;  // of the opening: a new one begins the composer anew
  failed: string;
}

export default function NewPage() {
  useTopics('nodes', 'shares');
  const query = location.value.query;
  const from = query.get('from'), name = query.get('draft');
  const [opened, setOpened] = useState<Opened | null>(null);
  const current = useRef<string | null>(null);  // the draft that is in the composer already
  const openings = useRef(0);
  const open = () => {
    setOpened(null);
    current.current = name;
    const opening: Promise<Opening> = name ? openDraft(name) : (from ? scriptOfJob(from) : Promise.resolve(FIRST)).then(script => ({ draft: null, script }));
    const number = ++openings.current;
    opening.then(o => setOpened({ number, ...o, failed: '' }), e => setOpened({ number, draft: null, script: FIRST, failed: errorText(e) }));
  };
  useEffect(() => {
    if (!name || name !== current.current) open();
  }, [from, name]);
  if (!opened) return <><PageTop title={t('nav.new')} /><div class="card"><Loading /></div></>;
  return <Composer key={opened.number} opened={opened} onName={d => (current.current = d)} again={open} />;
}

function Composer({ opened, onName, again }: { opened: Opened; onName: (draft: string) => void; again: () => void }) {
  const [script, set] = useState(opened.script);
  const failed = opened.failed;
  const reading = useMemo(() => read(script), [script]);
  const { spec, wrong } = useMemo(() => specOf(reading.values), [reading]);
  const request = useMemo(() => ({ spec: { ...spec, workdir: spec.workdir ?? home() }, script }), [spec, script, home()]);
  const check = useCheck(request);
  const kept = useDraft(opened.draft, opened.script, script, spec, onName);
  // The first script asks for a GPU, which a cluster without any would refuse.
  const hasGpus = liveNodes.value?.some(n => n.gpus.length > 0) ?? true;
  useEffect(() => {
    if (!hasGpus && script === FIRST) set(change(FIRST, 'gpus', ''));
  }, [hasGpus]);
  const [busy, setBusy] = useState(false);
  const [key, setKey] = useState(() => newKey());
  const put = (option: Option, value: string) => set(change(script, option, value));
  const submit = async () => {
    setBusy(true);
    try {
      const made = (await (await send('POST', '/v1/jobs', { ...request, spec: { ...spec, workdir: spec.workdir ?? await foundHome() }, key })).json()) as { id: number };
      notify(t('new.did', { job: String(made.id) }));
      setKey(newKey());
      await kept.drop().catch(e => notify(errorText(e)));
      go(jobPath(String(made.id)));
    } catch (e) {
      check.fail(errorText(e));
    }
    setBusy(false);
  };
  const bad = check.error !== '' || wrong.length > 0 || !me.value?.may_submit;
  return (
    <>
      <PageTop title={t('nav.new')} beside={<KeptText kept={kept} />} actions={
        <>
          <TemplateMenu script={script} spec={spec} set={set} more={kept.name ? [{ text: t('new.dropDraft'), divided: true, danger: true, act: () => dropNow(kept) }] : []} />
          <button class="button primary" disabled={busy || bad} onClick={() => void submit()}>{t('new.submit')}</button>
        </>
      } />
      {failed && <div class="banner error" role="alert">{failed}</div>}
      {kept.state === 'stale' && <Stale kept={kept} again={again} />}
      {me.value && !me.value.may_submit && <div class="banner warning" role="status">{t('account.lookOnly')}</div>}
      <div class="composer">
        <Card title={t('new.needs')}><Form values={reading.values} wrong={wrong} put={put} /></Card>
        <Card title={t('new.script')} note={t('new.inStep')}>
          <textarea class="editor" aria-label={t('new.script')} spellcheck={false} value={script} onInput={e => set(e.currentTarget.value)} />
          <UploadLine set={set} />
        </Card>
        <div class="stack">
          <StartCard check={check} spec={spec} put={put} />
          {me.value?.may_submit && <FolderCard folder={request.spec.workdir} own={`${home()}/jobs/${folderName(spec.name)}`} project={spec.project ?? undefined} use={v => put('chdir', v)} />}
          <Card title={t('new.check')}>
            <ul class="checks" aria-live="polite">
              {check.error ? <li class="bad">✕ {check.error}</li> : check.ok ? <li class="ok">✓ {t('new.accepted')}</li> : <li class="muted" aria-busy="true">{t('new.checking')}</li>}
              {reading.found.filter(x => x.slurm && !wrong.includes(x.option)).map(x => (
                <li key={`${x.line} ${x.flag}`} class="ok">✓ <code>#SBATCH {x.flag} {x.value}</code> → --{x.option} {reading.values[x.option]}</li>
              ))}
              {wrong.map(o => <li key={o} class="bad">✕ {t('new.wrong', { option: o, value: reading.values[o] ?? '' })}</li>)}
              {reading.problems.map(p => <li key={p} class="warn">▲ {t('new.unknown', { option: p })}</li>)}
            </ul>
          </Card>
          <SameCard actions={[{ cli: 'acequia submit script.sh', method: 'POST', path: '/v1/jobs', body: request }]} />
        </div>
      </div>
    </>
  );
}

function newKey(): string {
  return `portal-${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}`;
}

/** A name for a folder, from the name of the job. */
function folderName(name: string | null | undefined): string {
  return (name ?? '').replace(/[^\w.-]+/g, '-').replace(/^[.-]+/, '') || 'job';
}

// Somewhere else another version was kept: nothing is lost on either side until the person has chosen.
function Stale({ kept, again }: { kept: Kept; again: () => void }) {
  return (
    <div class="banner warning" role="alert">
      <span class="grow">{t('new.stale')}</span>
      <button class="button" onClick={again}>{t('new.takeOther')}</button>
      <button class="button" onClick={kept.replace}>{t('new.keepMine')}</button>
      <button class="button" onClick={kept.keepBoth}>{t('new.keepBoth')}</button>
    </div>
  );
}

function KeptText({ kept }: { kept: Kept }) {
  if (kept.state === 'new') return null;
  return <span class={kept.state === 'failed' || kept.state === 'stale' ? 'pill error' : 'pill wide-only'} role="status" title={kept.error || undefined}>{t(`new.draft.${kept.state}`)}</span>;
}

function dropNow(kept: Kept): void {
  ask({
    title: t('new.dropDraftAsk'), yes: t('action.delete'), danger: true,
    body: <SameFold actions={[{ cli: `acequia draft delete ${kept.name}`, method: 'DELETE', path: `/v1/drafts/${kept.name}` }]} />,
    act: async () => {
      await kept.drop();
      go('/jobs');
    },
  });
}

function UploadLine({ set }: { set: (s: string) => void }) {
  return (
    <label class="link-button small">
      {t('new.upload')}
      <input class="visually-hidden" type="file" onChange={e => void e.currentTarget.files?.[0]?.text().then(set)} />
    </label>
  );
}

function Form({ values, wrong, put }: { values: Partial<Record<Option, string>>; wrong: Option[]; put: (o: Option, v: string) => void }) {
  const projects = (liveShares.value?.projects ?? []).map(p => p.project);
  const field = (option: Option, label: string, example = '') => (
    <TextField label={label} value={values[option] ?? ''} set={v => put(option, v)} placeholder={example} problem={wrong.includes(option) ? t('new.wrongShort') : undefined} />
  );
  return (
    <div class="stack">
      {field('name', t('job.name'))}
      <SelectField label={t('job.project')} value={values.project ?? ''} set={v => put('project', v)}
        options={[{ value: '', text: t('new.default') }, ...[...new Set([...projects, ...(values.project ? [values.project] : [])])].map(p => ({ value: p, text: p }))]} />
      <div class="pair">{field('gpus', t('job.gpus'), t('new.gpusHint'))}{field('cpus', t('job.cpus'))}</div>
      <div class="pair">{field('memory', t('job.memory'), '64G')}{field('time', t('new.limit'), '8h, 90m, 2-12:00:00')}</div>
      <div class="pair">{field('tasks', t('new.tasks'))}{field('nodes', t('nav.nodes'))}</div>
      {field('array', t('new.array'), '0-99%10')}
      {field('container', t('job.container'), 'docker://…')}
      {field('chdir', t('job.folder'), home())}
      {field('output', t('job.output'), 'acequia-%j.out')}
    </div>
  );
}
