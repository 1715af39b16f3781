// The composer: a form and a script that say the same, checked while one types by the controller itself: what would be refused, when it would start,
// and when with more or fewer GPUs. The draft is kept in this browser until it is submitted.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { call, errorText, send, text } from '../api/client';
import { liveNodes, liveShares, useTopics } from '../api/live';
import { me } from '../api/session';
import type { Job, Spec } from '../api/types';
import type { When } from '../api/schema';
import { change, read, specOf, valuesOf, type Option } from '../compose/script';
import { Card } from '../components/basics';
import { ask } from '../components/dialog';
import { SelectField, TextField } from '../components/form';
import { DownIcon } from '../components/icons';
import { Menu } from '../components/menu';
import { quote, SameCard } from '../components/same';
import { Loading } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t, tWord, type TextKey } from '../lib/i18n';
import { go, jobPath, location } from '../lib/router';
import { stored } from '../lib/stored';
import { PageTop } from '../shell/shell';

interface Template {
  name: string;
  script: string;
}

const FIRST = '#!/bin/bash\n#ACEQUIA --name train --gpus 1 --memory 16G --time 4h\n\npython train.py\n';
const BUILT_IN: Array<{ name: TextKey; script: string }> = [
  { name: 'new.tTrain', script: FIRST },
  { name: 'new.tSweep', script: '#!/bin/bash\n#ACEQUIA --name sweep --array 0-31%8 --gpus 0.5 --memory 8G --time 1h\n\npython train.py --seed $ACEQUIA_ARRAY_INDEX\n' },
  { name: 'new.tMpi', script: '#!/bin/bash\n#ACEQUIA --name mpi --nodes 2 --tasks 8 --memory 32G --time 2h\n\nmpirun ./solver\n' },
  { name: 'new.tCpu', script: '#!/bin/bash\n#ACEQUIA --name prepare --cpus 8 --memory 32G --time 2h\n\npython prepare.py\n' },
];
const draft = stored('draft', FIRST);
const templates = stored<Template[]>('templates', []);
const CHECK_WAIT_MS = 500;
const GPU_CHOICES = [0.5, 1, 2, 4, 8, 16];

function home(): string {
  const user = me.value?.user ?? '';
  return user === 'root' ? '/root' : `/home/${user}`;
}

async function scriptOfJob(label: string): Promise<string> {
  const job = (await call('GET /v1/jobs/{job}', { path: { job: label } })) as Job;
  if (!job.spec) throw new Error(t('job.private'));
  let script = job.spec.script_bytes ? await text(`/v1/jobs/${encodeURIComponent(label)}/script`) : `#!/bin/sh\n\n${(job.spec.argv ?? []).map(w => quote(w ?? '')).join(' ')}\n`;
  for (const [option, value] of Object.entries(valuesOf(job.spec as Spec)) as Array<[Option, string]>)
    if (read(script).values[option] === undefined) script = change(script, option, value);
  return script;
}

export default function NewPage() {
  useTopics('nodes', 'shares');
  const from = location.value.query.get('from');
  const [script, setScript] = useState(from ? '' : draft.value);
  const [failed, setFailed] = useState('');
  useEffect(() => {
    if (from) scriptOfJob(from).then(setScript, e => { setFailed(errorText(e)); setScript(draft.value); });
  }, [from]);
  useEffect(() => {
    if (script && !from) draft.value = script;
  }, [script]);
  // The first draft asks for a GPU, which a cluster without any would refuse.
  const hasGpus = liveNodes.value?.some(n => n.gpus.length > 0) ?? true;
  useEffect(() => {
    if (!hasGpus && script === FIRST) setScript(change(FIRST, 'gpus', ''));
  }, [hasGpus]);
  if (!script && from) return <><PageTop title={t('nav.new')} /><div class="card"><Loading /></div></>;
  return <Composer script={script} set={setScript} failed={failed} />;
}

function Composer({ script, set, failed }: { script: string; set: (s: string) => void; failed: string }) {
  const reading = useMemo(() => read(script), [script]);
  const { spec, wrong } = useMemo(() => specOf(reading.values), [reading]);
  const request = useMemo(() => ({ spec: { ...spec, workdir: spec.workdir ?? home() }, script }), [spec, script]);
  const check = useCheck(request);
  const [busy, setBusy] = useState(false);
  const [key, setKey] = useState(() => newKey());
  const put = (option: Option, value: string) => set(change(script, option, value));
  const submit = async () => {
    setBusy(true);
    try {
      const made = (await (await send('POST', '/v1/jobs', { ...request, key })).json()) as { id: number };
      notify(t('new.did', { job: String(made.id) }));
      setKey(newKey());
      go(jobPath(String(made.id)));
    } catch (e) {
      check.fail(errorText(e));
    }
    setBusy(false);
  };
  const bad = check.error !== '' || wrong.length > 0 || !me.value?.may_submit;
  return (
    <>
      <PageTop title={t('nav.new')} beside={<span class="pill wide-only">{t('new.kept')}</span>} actions={
        <>
          <Menu button={<>{t('new.from')} <DownIcon /></>} items={templateItems(script, set)} />
          <button class="button primary" disabled={busy || bad} onClick={() => void submit()}>{t('new.submit')}</button>
        </>
      } />
      {failed && <div class="banner error" role="alert">{failed}</div>}
      {me.value && !me.value.may_submit && <div class="banner warning" role="status">{t('account.notMapped')}</div>}
      <div class="composer">
        <Card title={t('new.needs')}><Form values={reading.values} wrong={wrong} put={put} /></Card>
        <Card title={t('new.script')} note={t('new.inStep')}>
          <textarea class="editor" aria-label={t('new.script')} spellcheck={false} value={script} onInput={e => set(e.currentTarget.value)} />
          <UploadLine set={set} />
        </Card>
        <div class="stack">
          <StartCard when={check.when} gpus={spec.gpus_milli ?? 0} request={request} put={put} />
          <Card title={t('new.check')}>
            <ul class="checks" aria-live="polite">
              {check.error ? <li class="bad">✕ {check.error}</li> : <li class="ok">✓ {t('new.accepted')}</li>}
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

function templateItems(script: string, set: (s: string) => void) {
  const save = () => {
    let name = '';
    ask({
      title: t('new.saveTemplate'), yes: t('action.save'), body: <TemplateName set={v => (name = v)} />,
      act: async () => {
        if (!name.trim()) throw new Error(t('views.needName'));
        templates.value = [...templates.value.filter(x => x.name !== name.trim()), { name: name.trim(), script }];
      },
    });
  };
  return [
    ...BUILT_IN.map(b => ({ text: t(b.name), act: () => set(b.script) })),
    ...templates.value.map((x, i) => ({ text: x.name, divided: i === 0, act: () => set(x.script) })),
    { text: t('new.saveTemplate'), divided: true, act: save },
  ];
}

function TemplateName({ set }: { set: (v: string) => void }) {
  const [value, setValue] = useState('');
  return <TextField label={t('account.name')} value={value} set={v => { setValue(v); set(v); }} />;
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

interface Request {
  spec: Partial<Spec>;
  script: string;
}

async function whenOf(spec: Partial<Spec>, signal: AbortSignal): Promise<When> {
  return (await (await send('POST', '/v1/when', { spec }, signal)).json()) as When;
}

// Asks the controller, a little after the last key: would it be taken, and when would it start.
function useCheck(request: Request) {
  const [error, setError] = useState('');
  const [when, setWhen] = useState<When | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(() => {
      send('POST', '/v1/jobs', { ...request, dry_run: true }, abort.signal).then(() => {
        setError('');
        return whenOf(request.spec, abort.signal).then(setWhen);
      }).catch(e => !abort.signal.aborted && (setError(errorText(e)), setWhen(null)));
    }, CHECK_WAIT_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [request]);
  return { error, when, fail: setError };
}

function startOf(w: When | null): string {
  const s = w?.variants?.[0]?.start;
  if (!s) return '–';
  if (s.basis === 'now') return t('job.startNow');
  return s.late_ms ? f.moment(s.late_ms) : tWord('why.basis', s.basis);
}

// When it would start with other numbers of GPUs: the real scheduler is asked for each.
function StartCard({ when, gpus, request, put }: { when: When | null; gpus: number; request: Request; put: (o: Option, v: string) => void }) {
  const [others, setOthers] = useState<Array<[number, string]>>([]);
  useEffect(() => {
    if (!when || !gpus) return setOthers([]);
    const abort = new AbortController();
    const nodes = Math.max(1, request.spec.nodes_min ?? 1);
    const most = nodes * Math.max(1, ...(liveNodes.value ?? []).map(n => n.gpus.length));
    const ask = GPU_CHOICES.filter(n => n <= most && n >= nodes / 2 && (nodes === 1 || n % nodes === 0)).map(n => whenOf({ ...request.spec, gpus_milli: n * 1000 }, abort.signal).then(w => [n, startOf(w)] as [number, string]));
    void Promise.allSettled(ask).then(all => !abort.signal.aborted && setOthers(all.flatMap(r => (r.status === 'fulfilled' ? [r.value] : []))));
    return () => abort.abort();
  }, [when]);
  const late = when?.variants?.[0]?.start?.late_ms;
  return (
    <Card title={t('new.when')}>
      <div class="figure bare"><div class="value">{startOf(when)}{late && late > Date.now() ? <small>{t('new.atLatest', { span: f.span(late - Date.now()) })}</small> : null}</div></div>
      {others.length > 0 && (
        <div class="choices" role="group" aria-label={t('new.others')}>
          {others.map(([n, start]) => (
            <button key={n} type="button" class="button" aria-pressed={n * 1000 === gpus} onClick={() => put('gpus', String(n))}>
              <b>{f.gpus(n * 1000)} GPU</b><span class="muted">{start}</span>
            </button>
          ))}
        </div>
      )}
      <div class="muted small">{(when?.lines ?? []).slice(1).map((l, i) => <div key={i}>{l}</div>)}</div>
    </Card>
  );
}
