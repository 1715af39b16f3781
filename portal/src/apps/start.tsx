// The form of an app, and starting it.
import { useEffect, useState } from 'preact/hooks';
import { address, errorText, send } from '../api/client';
import { Dialog } from '../components/dialog';
import { SelectField, TextField } from '../components/form';
import { quote, SameFold } from '../components/same';
import { notify } from '../components/toast';
import { WorkersField } from '../components/workers';
import { foundHome, home } from '../files/home';
import { t } from '../lib/i18n';
import { defaults, valuesOf, type App, type Values } from './data';

export function StartDialog({ app, last, cluster, close, started }: {
  app: App;
  /** The job that it was started as last. */
  last: string | undefined;
  /** It makes a virtual cluster, which has a command of its own. */
  cluster?: boolean;
  close: () => void;
  started: (job: string) => void;
}) {
  const [values, set] = useState<Values>(defaults(app));
  const [from, setFrom] = useState<'last' | 'default'>('default');
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (last) takeLast(last);
  }, []);
  const takeLast = (label: string) => void valuesOf(app, label).then(v => { set({ ...defaults(app), ...v }); setFrom('last'); }, () => undefined);
  const given = app.fields.filter(x => (values[x.name] ?? '') !== (x.value ?? '')).map(x => `${x.name}=${values[x.name] ?? ''}`);
  const body = { values: given, workdir: home(), ...(app.document ? { app: app.document } : {}) };
  const words = given.filter(v => !cluster || !v.startsWith('name=')).map(v => ` ${quote(v)}`).join('');
  const cli = cluster ? `acequia cluster create ${app.name} ${quote(values['name'] || 'NAME')}${words}` : `acequia app start ${app.name}${words}`;
  const start = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    setProblem('');
    try {
      const made = (await (await send('POST', address('/v1/apps/{name}', { name: app.name }), { ...body, workdir: await foundHome(), key: `portal-${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}` })).json()) as { id: number };
      notify(t('apps.did', { app: app.title, job: String(made.id) }));
      started(String(made.id));
      close();
    } catch (error) {
      setProblem(errorText(error));
      setBusy(false);
    }
  };
  const wrong = (name: string) => (problem.startsWith(`${name}: `) ? problem.slice(name.length + 2) : undefined);
  // The sliders take a line of their own, where the app has that field.
  const at = app.fields.findIndex(x => x.kind === 'workers');
  const parts = (at < 0 ? [app.fields] : [app.fields.slice(0, at), [app.fields[at]!], app.fields.slice(at + 1)]).filter(p => p.length);
  const form = `app-${app.name}`;
  return (
    <Dialog title={t('apps.startOf', { app: app.title })} close={close} foot={
      <>
        <button class="button" onClick={close}>{t('action.back')}</button>
        <button class="button primary" type="submit" form={form} disabled={busy}>{t('apps.start')}</button>
      </>
    }>
      <p class="muted">{app.summary}</p>
      {last && (
        <div class="row small">
          <span class="muted grow">{t(from === 'last' ? 'apps.fromLast' : 'apps.fromDefaults')}</span>
          {from === 'last' ? <button class="link-button" onClick={() => { set(defaults(app)); setFrom('default'); }}>{t('apps.useDefaults')}</button>
            : <button class="link-button" onClick={() => takeLast(last)}>{t('apps.useLast')}</button>}
        </div>
      )}
      <form class="stack" id={form} onSubmit={e => void start(e)}>
        {app.fields.length === 0 && <p class="muted">{t('apps.noFields')}</p>}
        {parts.map((part, i) => (part[0]?.kind === 'workers'
          ? <WorkersField key={i} value={values[part[0].name] ?? ''} set={v => set({ ...values, [part[0]!.name]: v })} problem={wrong(part[0].name)} />
          : (
            <div class="two-fields" key={i}>
              {part.map(x => (x.choices.length
                ? <SelectField key={x.name} label={x.title ?? x.name} hint={x.help ?? undefined} problem={wrong(x.name)} value={values[x.name] ?? ''} set={v => set({ ...values, [x.name]: v })}
                    options={[...(x.required || x.value ? [] : ['']), ...x.choices].map(v => ({ value: v, text: v || '–' }))} />
                : <TextField key={x.name} label={x.title ?? x.name} hint={x.help ?? undefined} problem={wrong(x.name)} required={x.required ?? false} value={values[x.name] ?? ''}
                    set={v => set({ ...values, [x.name]: v })} />))}
            </div>
          )))}
        {problem && !app.fields.some(x => wrong(x.name)) && <div class="bad" role="alert">{problem}</div>}
      </form>
      <SameFold actions={[{ cli, method: 'POST', path: address('/v1/apps/{name}', { name: app.name }), body }]} />
    </Dialog>
  );
}
