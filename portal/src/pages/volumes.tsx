// Volumes: folders on shared storage that jobs see where they ask for them. One's own, those of projects and those that others share.
import { useState } from 'preact/hooks';
import { address, call, send } from '../api/client';
import { liveShares, useTopics } from '../api/live';
import { useResource } from '../api/resource';
import { admin, me } from '../api/session';
import { Bar, Card, Facts } from '../components/basics';
import { ask } from '../components/dialog';
import { edit } from '../components/edit';
import { CheckField, SelectField, TextField } from '../components/form';
import { Copyable, quote, SameCard, SameFold } from '../components/same';
import { Empty, Failed, Loaded, Loading } from '../components/states';
import { notify } from '../components/toast';
import { sizeBytes } from '../compose/script';
import type * as api from '../api/schema';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { go, jobPath, location } from '../lib/router';
import type { PageProps } from '../shell/pages';
import { PageTop } from '../shell/shell';

const EVERY_MS = 5000;
const LIST_EVERY_MS = 15_000;
const GIB = 2 ** 30;

type Volume = Omit<api.Volume, 'name' | 'title' | 'user' | 'readers' | 'writers'> & { name: string; title: string; user: string; readers: string[]; writers: string[] };

const ownerOf = (v: Volume) => (v.project ? { project: v.project } : v.user === me.value?.user ? {} : { user: v.user });
const pathOf = (v: Volume) => address('/v1/volumes/{name}', { name: v.name }, ownerOf(v));
const pageOf = (v: Volume) => address('/volumes/{name}', { name: v.name }, ownerOf(v));
/** As one writes it: one's own by the name alone. */
const wordOf = (v: Volume) => (!v.project && v.user === me.value?.user ? v.name : v.title);
const mayChange = (v: Volume) => admin.value || v.user === me.value?.user || (v.project !== null && (me.value?.projects.some(p => p.lead && p.name === v.project) ?? false));
const mayWrite = (v: Volume) => v.user === me.value?.user || v.writers.includes(me.value?.user ?? '') || !v.readers.includes(me.value?.user ?? '');

export default function VolumesPage({ params }: PageProps) {
  return params['name'] === undefined ? <List /> : <One name={params['name']} />;
}

function List() {
  useTopics('shares');
  const r = useResource('volumes', async s => (await call('GET /v1/volumes', { signal: s })).volumes as Volume[], { everyMs: LIST_EVERY_MS });
  return (
    <>
      <PageTop title={t('nav.volumes')} actions={<button class="button primary" disabled={!me.value?.may_submit} onClick={() => create(r.refresh)}>{t('volumes.new')}</button>} />
      <Card flush>
        <Loaded of={r.state.value} retry={r.refresh} lines={6}>
          {rows => (rows.length === 0 ? <Empty title={t('volumes.none')}><span>{t('volumes.noneHint')} </span><code>acequia volume create data --size 100G</code></Empty> : <Rows rows={rows} refresh={r.refresh} />)}
        </Loaded>
      </Card>
    </>
  );
}

function Rows({ rows, refresh }: { rows: Volume[]; refresh: () => void }) {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={t('nav.volumes')}>
      <table>
        <thead><tr>
          <th scope="col">{t('volumes.volume')}</th><th scope="col" class="wide-only">{t('volumes.for')}</th><th scope="col" class="num">{t('volumes.size')}</th><th scope="col" class="wide-only">{t('volumes.folder')}</th>
          <th scope="col" class="wide-only">{t('services.made')}</th><th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th>
        </tr></thead>
        <tbody>
          {rows.map(v => (
            <tr key={v.title}>
              <td><a class="plain strong break" href={pageOf(v)}>{v.title}</a><span class="narrow-only muted"><ForWhom v={v} /></span></td>
              <td class="wide-only"><ForWhom v={v} /></td><td class="num nowrap">{v.size_bytes ? f.bytes(v.size_bytes) : <span class="muted">{t('volumes.noLimit')}</span>}</td>
              <td class="wide-only mono break">{v.folder ?? '–'}</td><td class="wide-only nowrap">{f.moment(v.made_ms)}</td>
              <td class="num">{mayChange(v) && <button class="button danger" aria-label={t('volumes.deleteOf', { name: v.title })} onClick={() => remove(v, refresh)}>{t('action.delete')}</button>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function ForWhom({ v }: { v: Volume }) {
  if (v.project) return <span class="pill accent">{t('share.project', { project: v.project })}</span>;
  const n = v.readers.length + v.writers.length;
  const owner = v.user === me.value?.user ? t('volumes.mine') : v.user;
  return <>{owner}{n > 0 && <span class="muted"> · {t('volumes.sharedWith', { n })}</span>}</>;
}

interface Form {
  name: string;
  size: string;
  project: string;
  at: string;
}

const sizeOf = (text: string): number => {
  const typed = text.trim();
  const bytes = typed === '' ? 0 : /^\d+(\.\d+)?$/.test(typed) ? Math.round(Number(typed) * GIB) : sizeBytes(typed);
  if (bytes === null) throw new Error(t('volumes.sizeWrong'));
  return bytes;
};
const bodyOf = (v: Form) => ({ name: v.name.trim(), size_bytes: sizeOf(v.size), ...(v.project ? { project: v.project } : {}), ...(v.at.trim() ? { at: v.at.trim() } : {}) });
const sizeWord = (text: string) => (/^\d+(\.\d+)?$/.test(text.trim()) ? `${text.trim()}G` : text.trim());

function shownBody(v: Form): object {
  try {
    return bodyOf(v);
  } catch {
    return { name: v.name };  // half typed
  }
}

function create(done: () => void): void {
  const all = (liveShares.value?.projects ?? []).map(p => p.project), mine = me.value?.projects.map(p => p.name) ?? [];
  const projects = admin.value ? all : mine;
  edit<Form>({
    title: t('volumes.new'), yes: t('services.create'), first: { name: '', size: '', project: '', at: '' },
    form: (v, set) => (
      <>
        <TextField focus label={t('job.name')} value={v.name} set={name => set({ ...v, name })} required />
        <TextField label={t('volumes.sizeField')} hint={t('volumes.sizeHint')} placeholder="100G" value={v.size} set={size => set({ ...v, size })} />
        <SelectField label={t('volumes.for')} value={v.project} set={project => set({ ...v, project })}
          options={[{ value: '', text: t('volumes.mine') }, ...projects.map(p => ({ value: p, text: t('share.project', { project: p }) }))]} />
        {admin.value && <TextField label={t('volumes.at')} hint={t('volumes.atHint')} value={v.at} set={at => set({ ...v, at })} />}
      </>
    ),
    same: v => ({ cli: `acequia volume create ${quote(v.name || 'NAME')}${v.size.trim() ? ` --size ${quote(sizeWord(v.size))}` : ''}${v.project ? ` --project ${quote(v.project)}` : ''}${v.at.trim() ? ` --at ${quote(v.at.trim())}` : ''}`,
      method: 'POST', path: '/v1/volumes', body: shownBody(v) }),
    act: async v => {
      await send('POST', '/v1/volumes', bodyOf(v));
      notify(t('volumes.created', { name: v.name.trim() }));
      done();
    },
  });
}

function remove(v: Volume, done: () => void): void {
  ask({
    title: t('volumes.deleteAsk', { name: v.title }), yes: t('action.delete'), danger: true,
    body: <><p>{t('volumes.deleteText')}</p><SameFold actions={[{ cli: `acequia volume delete ${quote(v.title)}`, method: 'DELETE', path: pathOf(v) }]} /></>,
    act: async () => {
      await send('DELETE', pathOf(v));
      notify(t('volumes.deleted', { name: v.title }));
      done();
    },
  });
}

// --- one of them ---

function One({ name }: { name: string }) {
  const q = location.value.query, project = q.get('project') ?? undefined, user = q.get('user') ?? undefined;
  const query = { ...(project ? { project } : {}), ...(user ? { user } : {}) };
  const r = useResource(`volume${name}/${project}/${user}`, async s => (await call('GET /v1/volumes/{name}', { path: { name }, query, signal: s })) as Volume, { everyMs: EVERY_MS });
  const s = r.state.value, v = s.data;
  if (v === null) {
    return (
      <>
        <PageTop title={name} />
        {s.status === 404 ? <Empty title={t('volumes.noSuch', { name })}><a href="/volumes">{t('nav.volumes')}</a></Empty>
          : <div class="card">{s.error ? <Failed text={s.error} retry={r.refresh} /> : <Loading lines={6} />}</div>}
      </>
    );
  }
  return (
    <>
      <PageTop title={v.title} actions={mayChange(v) && <button class="button danger" onClick={() => remove(v, () => go('/volumes'))}>{t('action.delete')}</button>} />
      <div class={s.error ? 'two stale' : 'two'}>
        <div class="stack">
          <Use v={v} />
          <Jobs v={v} />
          <Card title={t('job.about')}>
            <Facts rows={[[t('volumes.owner'), v.user], [t('job.project'), v.project], [t('volumes.folder'), v.folder && <code>{v.folder}</code>], [t('volumes.mode'), v.mode.toString(8).padStart(3, '0')],
              [t('services.made'), f.moment(v.made_ms)], [t('volumes.by'), v.by]]} />
          </Card>
        </div>
        <div class="stack">
          <Card title={t('volumes.inJobs')}><Copyable text={`acequia run -v ${quote(`${wordOf(v)}:/${v.name}${mayWrite(v) ? '' : ':ro'}`)} -- ls /${v.name}`} /></Card>
          <Shares v={v} refresh={r.refresh} />
          <SameCard actions={[{ cli: `acequia volume get ${quote(wordOf(v))}`, path: pathOf(v) }, { cli: 'acequia volume list', path: '/v1/volumes' }]} />
        </div>
      </div>
    </>
  );
}

// What is in the folder is the file system's to know. With a quota of its own the folder has those figures; else they are of the whole file system.
// Its owner may look; whether others may is seen when they try.
function Use({ v }: { v: Volume }) {
  const [asked, setAsked] = useState(v.user === me.value?.user);
  if (asked) return <UseNow v={v} />;
  return (
    <Card title={t('volumes.use')} note={<button class="link-button" onClick={() => setAsked(true)}>{t('volumes.look')}</button>}>
      <div class="figure bare"><div class="value">{v.size_bytes ? f.bytes(v.size_bytes) : t('volumes.noLimit')}</div></div>
    </Card>
  );
}

function UseNow({ v }: { v: Volume }) {
  const r = useResource(`use${v.folder}`, async s => (v.folder ? await call('GET /v1/files', { query: { path: v.folder.replaceAll('%', '%25'), optional: true, limit: 1 }, signal: s }) : null));
  const { data, error } = r.state.value;
  const limit = v.size_bytes;
  const quota = data !== null && limit > 0 && Math.abs(data.space_bytes - limit) <= limit / 1000;
  const used = data ? data.space_bytes - data.space_free_bytes : 0;
  return (
    <Card title={t('volumes.use')} note={v.folder && data?.entry ? <a href={address('/files', {}, { path: v.folder.replaceAll('%', '%25') })}>{t('volumes.browse')}</a> : undefined}>
      <div class="figure bare">
        <div class="value">{quota ? f.bytes(used) : limit ? f.bytes(limit) : t('volumes.noLimit')}{quota && <small>{t('overview.of', { total: f.bytes(limit) })}</small>}</div>
      </div>
      {quota && <Bar part={used / limit} low={used / limit > 0.9} label={t('volumes.useLabel', { used: f.bytes(used), size: f.bytes(limit) })} />}
      <p class="muted small use-note">{error ? t('volumes.notReadable') : data === null ? t('state.loading') : !data.entry ? t('volumes.notMade')
        : quota ? t('volumes.free', { free: f.bytes(data.space_free_bytes) }) : t(limit ? 'volumes.noQuota' : 'volumes.fileSystem', { free: f.bytes(data.space_free_bytes) })}</p>
    </Card>
  );
}

function Jobs({ v }: { v: Volume }) {
  const jobs = (v.jobs ?? []) as number[], more = (v.job ? 1 + v.other_jobs : 0) - jobs.length;
  return (
    <Card title={t('volumes.usedBy')}>
      {jobs.length === 0 ? <p class="muted">{t('volumes.unused')}</p>
        : <div class="row">{jobs.map(j => <a key={j} class="pill accent" href={jobPath(String(j))}>{t('job.title', { job: String(j) })}</a>)}{more > 0 && <span class="muted">{t('volumes.more', { n: more })}</span>}</div>}
    </Card>
  );
}

function Shares({ v, refresh }: { v: Volume; refresh: () => void }) {
  const path = address('/v1/volumes/{name}/shares', { name: v.name });
  const body = (user: string, readOnly: boolean) => ({ with: user.trim(), read_only: readOnly, ...ownerOf(v) });
  const share = () => edit<{ user: string; readOnly: boolean }>({
    title: t('share.title', { name: v.title }), yes: t('share.yes'), first: { user: '', readOnly: true },
    form: (x, set) => (
      <>
        <TextField focus label={t('share.user')} value={x.user} set={user => set({ ...x, user })} required />
        <CheckField label={t('volumes.readOnly')} value={x.readOnly} set={readOnly => set({ ...x, readOnly })} />
      </>
    ),
    same: x => ({ cli: `acequia volume share ${quote(wordOf(v))} --with ${quote(x.user.trim() || 'USER')}${x.readOnly ? ' --read-only' : ''}`, method: 'POST', path, body: body(x.user, x.readOnly) }),
    act: async x => {
      if (!x.user.trim()) throw new Error(t('share.needUser'));
      await send('POST', address('/v1/volumes/{name}/shares', { name: v.name }), body(x.user, x.readOnly));
      notify(t('share.didUser', { user: x.user.trim() }));
      refresh();
    },
  });
  const revoke = (user: string) => ask({
    title: t('share.revokeOf', { name: user }), yes: t('share.revoke'), danger: true,
    body: <SameFold actions={[{ cli: `acequia volume share ${quote(wordOf(v))} --with ${quote(user)} --revoke`, method: 'POST', path, body: { with: user, revoke: true, ...ownerOf(v) } }]} />,
    act: async () => {
      await send('POST', address('/v1/volumes/{name}/shares', { name: v.name }), { with: user, revoke: true, ...ownerOf(v) });
      notify(t('share.ended'));
      refresh();
    },
  });
  const people = [...v.writers.map(u => [u, false] as const), ...v.readers.map(u => [u, true] as const)];
  return (
    <Card title={t('share.now')} note={mayChange(v) && <button class="link-button" onClick={share}>{t('share.button')}</button>}>
      {v.project && <p>{t('share.project', { project: v.project })}</p>}
      {people.length === 0 ? (v.project ? null : <p class="muted">{t('volumes.nobody')}</p>) : (
        <ul class="stack tight">
          {people.map(([u, reads]) => (
            <li key={u} class="spread"><span class="cut">{u} <span class="muted small">{t(reads ? 'volumes.reads' : 'volumes.writes')}</span></span>
              {mayChange(v) && <button class="button danger" aria-label={t('share.revokeOf', { name: u })} onClick={() => revoke(u)}>{t('share.revoke')}</button>}</li>
          ))}
        </ul>
      )}
    </Card>
  );
}
