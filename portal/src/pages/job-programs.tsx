// Programs of a running job that are reached in the browser: their addresses, and who else may use them.
import { useState } from 'preact/hooks';
import { address, call, errorText, send } from '../api/client';
import { useResource } from '../api/resource';
import type { Job } from '../api/types';
import { Card } from '../components/basics';
import { Dialog } from '../components/dialog';
import { SelectField, TextField } from '../components/form';
import { quote, SameFold } from '../components/same';
import { Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';

/** The port that an address of a program leads to: its host begins with the job and the port. */
export function portOf(url: string): string {
  return /^https?:\/\/\d+-(\d+)-/.exec(url)?.[1] ?? '';
}

export function OpenLink({ url, name, button }: { url: string; name: string; button?: boolean }) {
  const label = t('programs.openOf', { port: portOf(url), name });
  return <a class={button ? 'button primary' : 'pill accent open-link'} href={url} target="_blank" rel="noopener noreferrer" aria-label={label} title={label}>
    {t('programs.open')}{button ? '' : ` ${portOf(url)}`}</a>;
}

export function Programs({ job, mine }: { job: Job; mine: boolean }) {
  const [sharing, setSharing] = useState(false);
  const urls = job.urls ?? [];
  if (urls.length === 0) return null;
  const copy = (url: string) => void navigator.clipboard.writeText(url).then(() => notify(t('action.copied')), () => undefined);
  return (
    <Card title={t('programs.title')} note={mine && <button class="button" onClick={() => setSharing(true)}>{t('share.button')}</button>}>
      <ul class="stack">
        {urls.map(url => (
          <li key={url} class="program">
            <span class="strong nowrap">{t('programs.port', { port: portOf(url) })}</span>
            <a class="in-text cut" href={url} target="_blank" rel="noopener noreferrer" title={url}>{url.replace(/^https?:\/\//, '')}</a>
            <span class="row">
              <button class="button" onClick={() => copy(url)} aria-label={t('programs.copyOf', { port: portOf(url) })}>{t('action.copy')}</button>
              <OpenLink url={url} name={job.name} button />
            </span>
          </li>
        ))}
      </ul>
      {sharing && <Share job={job} ports={urls.map(portOf)} close={() => setSharing(false)} />}
    </Card>
  );
}

interface Shared {
  port: number;
  user: string | null;
  project: string | null;
  by: string | null;
  url: string | null;
  expires_ms: number;
}

const HOUR_S = 3600;
const TIMES = [1, 8, 24, 7 * 24, 30 * 24].map(h => h * HOUR_S);

function commandTime(s: number): string {
  return s % (24 * HOUR_S) === 0 ? `${s / (24 * HOUR_S)}d` : `${s / HOUR_S}h`;
}

export function Share({ job, ports, close }: { job: Pick<Job, 'label' | 'name' | 'project'>; ports: string[]; close: () => void }) {
  const path = address('/v1/jobs/{job}/shares', { job: job.label });
  const shares = useResource(`shares${job.label}`, async s => (await call('GET /v1/jobs/{job}/shares', { path: { job: job.label }, signal: s })) as unknown as { shares: Shared[] });
  const [port, setPort] = useState(ports[0]!);
  const [whom, setWhom] = useState<'user' | 'project'>('user');
  const [user, setUser] = useState('');
  const [time, setTime] = useState(8 * HOUR_S);
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState(false);
  const body = { port: Number(port), ...(whom === 'user' ? { user: user.trim() } : { project: true }), for_s: time };
  const whomOption = whom === 'user' ? `--with ${quote(user.trim() || 'USER')}` : '--with-project';
  const run = async (act: () => Promise<unknown>, done: string) => {
    setBusy(true);
    setProblem('');
    try {
      await act();
      notify(done);
      shares.refresh();
    } catch (e) {
      setProblem(errorText(e));
    }
    setBusy(false);
  };
  const share = (e: Event) => {
    e.preventDefault();
    if (whom === 'user' && !user.trim()) setProblem(t('share.needUser'));
    else void run(() => send('POST', path, body), whom === 'user' ? t('share.didUser', { user: user.trim() }) : t('share.didProject', { project: job.project }));
  };
  const end = (s: Shared) => void run(() => send('DELETE', address(path, {}, { port: s.port, ...(s.user ? { user: s.user } : { project: true }) })), t('share.ended'));
  return (
    <Dialog title={t('share.title', { name: job.name })} close={close} foot={<button class="button" onClick={close}>{t('action.close')}</button>}>
      <p class="muted">{t('share.text')}</p>
      <form class="stack" onSubmit={share}>
        {ports.length > 1 && <SelectField label={t('share.program')} value={port} set={setPort} options={ports.map(p => ({ value: p, text: t('programs.port', { port: p }) }))} />}
        <div class="two-fields">
          <SelectField label={t('share.with')} value={whom} set={v => setWhom(v as 'user' | 'project')}
            options={[{ value: 'user', text: t('share.colleague') }, { value: 'project', text: t('share.project', { project: job.project }) }]} />
          <SelectField label={t('share.for')} value={String(time)} set={v => setTime(Number(v))} options={TIMES.map(s => ({ value: String(s), text: f.span(s * 1000) }))} />
        </div>
        {whom === 'user' && <TextField focus label={t('share.user')} hint={t('share.userHint')} value={user} set={setUser} />}
        {problem && <div class="bad" role="alert">{problem}</div>}
        <div><button class="button primary" type="submit" disabled={busy}>{t('share.yes')}</button></div>
      </form>
      <div>
        <h3>{t('share.now')}</h3>
        <Loaded of={shares.state.value} retry={shares.refresh}>
          {data => (data.shares.length === 0 ? <p class="muted">{t('share.none')}</p> : (
            <div class="scroll-x">
              <table>
                <thead><tr><th scope="col">{t('share.with')}</th>{ports.length > 1 && <th scope="col" class="num">{t('programs.portTitle')}</th>}<th scope="col">{t('share.until')}</th><th><span class="visually-hidden">{t('share.revoke')}</span></th></tr></thead>
                <tbody>
                  {data.shares.map(s => (
                    <tr key={`${s.port}/${s.user}/${s.project}`}>
                      <td>{s.user ?? t('share.project', { project: s.project ?? '' })}</td>
                      {ports.length > 1 && <td class="num">{s.port}</td>}
                      <td>{f.moment(s.expires_ms)}</td>
                      <td class="num"><button class="button danger" disabled={busy} aria-label={t('share.revokeOf', { name: s.user ?? s.project ?? '' })} onClick={() => end(s)}>{t('share.revoke')}</button></td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          ))}
        </Loaded>
      </div>
      <SameFold actions={[
        { cli: `acequia share ${job.label} ${port} ${whomOption} --for ${commandTime(time)}`, method: 'POST', path, body },
        { cli: `acequia share ${job.label} --list`, path },
        { cli: `acequia share ${job.label} ${port} ${whomOption} --revoke`, method: 'DELETE', path, query: { port, ...(whom === 'user' ? { user: user.trim() } : { project: 1 }) } },
      ]} />
    </Dialog>
  );
}
