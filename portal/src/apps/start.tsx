// The form of an app, and starting it.
import { useEffect, useState } from 'preact/hooks';
import { address, errorText, send } from '../api/client';
import { Dialog } from '../components/dialog';
import { SelectField, TextField } from '../components/form';
import { quote, SameFold } from '../components/same';
import { notify } from '../components/toast';
import { foundHome, home } from '../files/home';
import { t } from '../lib/i18n';
import { defaults, valuesOf, type App, type Values } from './data';

export function StartDialog({ app, last, close, started }: {
  app: App;
  /** The job that it was started as last. */
  last: string | undefined;
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
        <div class="two-fields">
          {app.fields.map(x => (x.choices.length
            ? <SelectField key={x.name} label={x.title ?? x.name} hint={x.help ?? undefined} problem={wrong(x.name)} value={values[x.name] ?? ''} set={v => set({ ...values, [x.name]: v })}
                options={[...(x.required || x.value ? [] : ['']), ...x.choices].map(v => ({ value: v, text: v || '–' }))} />
            : <TextField key={x.name} label={x.title ?? x.name} hint={x.help ?? undefined} problem={wrong(x.name)} required={x.required ?? false} value={values[x.name] ?? ''}
                set={v => set({ ...values, [x.name]: v })} />))}
        </div>
        {problem && !app.fields.some(x => wrong(x.name)) && <div class="bad" role="alert">{problem}</div>}
      </form>
      <SameFold actions={[{ cli: `acequia app start ${app.name}${given.map(v => ` ${quote(v)}`).join('')}`, method: 'POST', path: address('/v1/apps/{name}', { name: app.name }), body }]} />
    </Dialog>
  );
}
