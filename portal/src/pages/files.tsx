// The user's files on a node: folders, their entries, and what is in a file. The address says where: ?path=, ?node=, ?job=.
import { useEffect, useRef, useState } from 'preact/hooks';
import { call } from '../api/client';
import { useResource } from '../api/resource';
import { me } from '../api/session';
import { Bar, Card } from '../components/basics';
import { Dialog, ask } from '../components/dialog';
import { openTerminal } from '../components/folder-terminal';
import { Grid, type Column, type Sort } from '../components/grid';
import { DownIcon } from '../components/icons';
import { Menu } from '../components/menu';
import { SameCard, quote } from '../components/same';
import { Empty, Failed, Loading } from '../components/states';
import { copy, newFile, newFolder, removeAll, rename } from '../files/actions';
import { contentUrl, join, list, pageOf, parent, shown, typed, zipUrl, type Entry, type Listing, type Place } from '../files/data';
import { forgetUploads, upload, uploads } from '../files/upload';
import { Viewer } from '../files/viewer';
import * as f from '../lib/format';
import { language, t, tWord } from '../lib/i18n';
import { lazy } from '../lib/lazy';
import { go, jobPath, location } from '../lib/router';
import { stored } from '../lib/stored';
import { PageTop } from '../shell/shell';

const Terminal = lazy(() => import('../components/terminal'));
const hiddenShown = stored<boolean>('files.hidden', false);

export default function FilesPage() {
  if (me.value && !me.value.may_submit) return <><PageTop title={t('nav.files')} /><Empty title={t('files.noUser')}>{t('account.lookOnly')}</Empty></>;
  return <Files />;
}

function Files() {
  const q = location.value.query;
  const at: Place = { path: q.get('path') ?? '', node: q.get('node') ?? undefined, job: q.get('job') ?? undefined };
  const key = JSON.stringify(at);
  const listing = useResource(key, signal => list(at, signal));
  const state = listing.state.value;
  return (
    <>
      <PageTop title={t('nav.files')} beside={at.job ? <a class="in-text" href={jobPath(at.job)}>{t('job.title', { job: at.job })}</a> : undefined} />
      {state.data === null
        ? <div class="card">{state.error ? <Failed text={state.error} retry={listing.refresh} /> : <Loading lines={8} />}</div>
        : <Place_ key={key} at={at} listing={state.data} stale={state.error} refresh={listing.refresh} />}
      <Uploads />
    </>
  );
}

function Place_({ at, listing, stale, refresh }: { at: Place; listing: Listing; stale: string | null; refresh: () => void }) {
  const here: Place = { ...at, path: listing.path };
  const folder = listing.entry.type === 'folder';
  return (
    <div class="stack">
      <Crumbs at={here} listing={listing} />
      {stale && <div class="banner error" role="alert">{stale}</div>}
      {folder ? <Folder at={here} listing={listing} refresh={refresh} /> : <File at={here} entry={listing.entry} refresh={refresh} />}
      <SameCard actions={folder
        ? [{ cli: `acequia files ls ${quote(shown(here.path))}`, path: '/v1/files', query: here },
          { cli: `acequia files put FILE ${quote(`${shown(here.path)}/`)}`, method: 'PUT', path: '/v1/files/content', query: { ...here, path: join(here.path, 'FILE') }, file: 'FILE' }]
        : [{ cli: `acequia files get ${quote(shown(here.path))}`, path: '/v1/files/content', query: here },
          { cli: `acequia files put FILE ${quote(shown(here.path))}`, method: 'PUT', path: '/v1/files/content', query: here, file: 'FILE' }]} />
    </div>
  );
}

function Crumbs({ at, listing }: { at: Place; listing: Listing }) {
  const parts = listing.path.split('/').filter(Boolean);
  const inHome = listing.path === listing.home || listing.path.startsWith(`${listing.home}/`);
  const skip = inHome ? listing.home.split('/').filter(Boolean).length : 0;
  const link = (path: string) => pageOf({ ...at, path });
  return (
    <nav class="crumbs" aria-label={t('files.path')}>
      <ol>
        <li><a href={link('/')}>/</a></li>
        {inHome && <li><a href={link(listing.home)} aria-current={parts.length === skip ? 'page' : undefined}>{t('files.home')}</a></li>}
        {parts.slice(skip).map((p, i) => {
          const path = `/${parts.slice(0, skip + i + 1).join('/')}`;
          return <li key={path}><a href={link(path)} aria-current={path === listing.path ? 'page' : undefined}><bdi>{shown(p)}</bdi></a></li>;
        })}
      </ol>
      <span class="muted">{!inHome && <a class="in-text" href={link('~')}>{t('files.home')}</a>} <NodeChoice at={at} node={listing.node} /></span>
    </nav>
  );
}

function NodeChoice({ at, node }: { at: Place; node: string }) {
  const nodes = useResource('files.nodes', s => call('GET /v1/nodes', { signal: s }) as unknown as Promise<{ nodes?: Array<{ name: string }> } | Array<{ name: string }>>);
  const data = nodes.state.value.data;
  const names = (Array.isArray(data) ? data : data?.nodes ?? []).map(n => n.name);
  if (names.length < 2) return <>{t('files.onNode', { node })}</>;
  return (
    <label class="row">{t('job.node')}
      <select class="select" value={node} onChange={e => go(pageOf({ ...at, node: e.currentTarget.value }))}>
        {names.map(n => <option key={n} value={n}>{n}</option>)}
      </select>
    </label>
  );
}

const ICON: Record<string, string> = { folder: '▸', link: '↗', other: '◇', file: '' };

function order(sort: Sort): (a: Entry, b: Entry) => number {
  const names = new Intl.Collator(language.value, { numeric: true });
  const by = (a: Entry, b: Entry) => (sort.column === 'size' ? a.size - b.size : sort.column === 'modified' ? a.modified_ms - b.modified_ms : 0) || names.compare(a.name, b.name);
  return (a, b) => Number(b.type === 'folder') - Number(a.type === 'folder') || (sort.down ? -by(a, b) : by(a, b));
}

function Folder({ at, listing, refresh }: { at: Place; listing: Listing; refresh: () => void }) {
  const [sort, setSort] = useState<Sort>({ column: 'name', down: false });
  const [selected, select] = useState<ReadonlySet<string>>(new Set());
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const visible = listing.entries.filter(e => hiddenShown.value || !e.name.startsWith('.')).sort(order(sort));
  const hidden = listing.entries.length - visible.length;
  const chosen = listing.entries.filter(e => selected.has(e.name));
  const clear = () => { select(new Set()); refresh(); };
  const open = (e: Entry) => go(pageOf({ ...at, path: join(at.path, e.name) }));
  const remove = () => chosen.length && removeAll(at, [...chosen], clear);
  const again = () => chosen.length === 1 && rename({ ...at, path: join(at.path, chosen[0]!.name) }, clear);
  const take = (files: Iterable<File>) => {
    const all = [...files], there = new Set(listing.entries.map(e => e.name));
    const twice = all.filter(x => there.has(typed(x.name)));
    const start = async () => all.forEach(x => upload(at, x, refresh));
    if (twice.length === 0) void start();
    else ask({ title: t('files.replaceTitle', { n: twice.length }), body: <div class="break">{twice.slice(0, 10).map(x => x.name).join(', ')}</div>, yes: t('files.replace'), danger: true, act: start });
  };
  const keys = (e: KeyboardEvent) => {
    if ((e.target as HTMLElement).tagName !== 'TR') return;
    if (e.key === 'Delete') remove();
    else if (e.key === 'F2') again();
    else if (e.key === 'Backspace') go(pageOf({ ...at, path: parent(at.path) }));
    else return;
    e.preventDefault();
  };
  const columns: Column<Entry>[] = [
    { key: 'name', title: t('files.name'), sort: 'name', hint: e => (e.target ? `${shown(e.name)} → ${shown(e.target)}` : shown(e.name)),
      cell: e => <><span class="file-icon" aria-hidden="true">{ICON[e.type]}</span><a class="plain" tabIndex={-1} href={pageOf({ ...at, path: join(at.path, e.name) })}><bdi>{shown(e.name)}</bdi></a>
        {e.type === 'link' && <span class="muted"> → <bdi>{shown(e.target ?? '')}</bdi></span>}</> },
    { key: 'type', title: t('files.type'), width: 90, wide: true, cell: e => <span class="muted">{tWord('files.is', e.type)}</span> },
    { key: 'size', title: t('files.size'), width: 100, num: true, sort: 'size', cell: e => (e.type === 'file' ? f.bytes(e.size) : '') },
    { key: 'modified', title: t('files.modified'), width: 150, num: true, wide: true, sort: 'modified', cell: e => f.moment(e.modified_ms), hint: e => f.fullMoment(e.modified_ms) },
  ];
  return (
    <section class={over ? 'drop over' : 'drop'} onKeyDown={keys} aria-label={t('nav.files')}
      onDragOver={e => { e.preventDefault(); setOver(true); }} onDragLeave={e => { if (e.target === e.currentTarget) setOver(false); }}
      onDrop={e => { e.preventDefault(); setOver(false); take(e.dataTransfer?.files ?? []); }}>
      <div class="tools">
        <button class="button primary" onClick={() => input.current?.click()}>{t('files.upload')}</button>
        <input ref={input} class="visually-hidden" type="file" multiple tabIndex={-1} aria-label={t('files.upload')}
          onChange={e => { take(e.currentTarget.files ?? []); e.currentTarget.value = ''; }} />
        <Menu button={<>{t('files.new')} <DownIcon /></>} left items={[
          { text: t('files.newFolder'), act: () => newFolder(at, refresh) },
          { text: t('files.newFile'), act: () => newFile(at, path => go(pageOf({ ...at, path }))) },
        ]} />
        <a class="button" href={zipUrl(at)} download>{t('files.zip')}</a>
        <OpenTerminal at={at} />
        <label class="check"><input type="checkbox" checked={hiddenShown.value} onChange={e => (hiddenShown.value = e.currentTarget.checked)} />{t('files.showHidden')}</label>
        <span class="muted">{t('files.count', { n: visible.length })}{hidden > 0 ? ` · ${t('files.hidden', { n: hidden })}` : ''}{listing.truncated ? ` · ${t('files.truncated')}` : ''}</span>
        <button class="button quiet" onClick={refresh}>{t('files.refresh')}</button>
      </div>
      {chosen.length > 0 && (
        <div class="bulk" role="status">
          <span>{t('files.selected', { n: chosen.length })}</span>
          <Download at={at} entry={chosen.length === 1 ? chosen[0] : undefined} />
          <button class="button" disabled={chosen.length !== 1} onClick={again}>{t('files.rename')}</button>
          <button class="button" disabled={chosen.length !== 1 || chosen[0]!.type === 'other'} onClick={() => copy({ ...at, path: join(at.path, chosen[0]!.name) }, clear)}>{t('files.copy')}</button>
          <button class="button danger" onClick={remove}>{t('files.removeYes')}</button>
        </div>
      )}
      <Grid label={shown(at.path)} columns={columns} total={visible.length} row={i => visible[i]} id={e => e.name} rowLabel={e => shown(e.name)} open={open}
        selected={selected} select={select} sort={sort} setSort={setSort} height="calc(100vh - 290px)"
        empty={<Empty title={t('files.emptyFolder')}>{t('files.dropHere')}</Empty>} />
    </section>
  );
}

function Download({ at, entry }: { at: Place; entry: Entry | undefined }) {
  if (!entry || entry.type === 'other') return null;
  const one = { ...at, path: join(at.path, entry.name) };
  return entry.type === 'folder' ? <a class="button" href={zipUrl(one)} download>{t('files.zip')}</a> : <a class="button" href={contentUrl(one)} download>{t('log.download')}</a>;
}

// A terminal is always a job's: of the one whose files these are, or one that is made for it.
function OpenTerminal({ at }: { at: Place }) {
  const [open, setOpen] = useState(false);
  const [running, setRunning] = useState(false);
  useEffect(() => {
    if (at.job) call('GET /v1/jobs/{job}', { path: { job: at.job } }).then(j => setRunning((j as { state: string }).state === 'RUNNING'), () => undefined);
  }, [at.job]);
  if (!at.job && me.value?.may_submit) return <button class="button" onClick={() => openTerminal({ folder: shown(at.path), node: at.node })}>{t('files.terminal')}</button>;
  if (!at.job || !running) return null;
  return (
    <>
      <button class="button" onClick={() => setOpen(true)}>{t('files.terminal')}</button>
      {open && <Dialog title={t('terminal.title', { job: at.job })} wide close={() => setOpen(false)}><Terminal job={at.job} node={0} folder={shown(at.path)} /></Dialog>}
    </>
  );
}

function File({ at, entry, refresh }: { at: Place; entry: Entry; refresh: () => void }) {
  const folder = { ...at, path: parent(at.path) };
  return (
    <Card title={<bdi>{shown(entry.name)}</bdi>} note={<>{f.bytes(entry.size)} · {f.moment(entry.modified_ms)}</>}>
      <div class="tools">
        {entry.type === 'file' && <a class="button" href={contentUrl(at)} download>{t('log.download')}</a>}
        <button class="button" onClick={() => rename(at, path => go(pageOf({ ...at, path }), true))}>{t('files.rename')}</button>
        {entry.type === 'file' && <button class="button" onClick={() => copy(at, () => go(pageOf(folder)))}>{t('files.copy')}</button>}
        <button class="button danger" onClick={() => removeAll(folder, [entry], () => go(pageOf(folder)))}>{t('files.removeYes')}</button>
      </div>
      <Viewer at={at} entry={entry} refresh={refresh} />
    </Card>
  );
}

function Uploads() {
  const all = uploads.value;
  if (all.length === 0) return null;
  return (
    <Card title={t('files.uploads')} note={<button class="button quiet" onClick={forgetUploads}>{t('files.forget')}</button>}>
      <ul class="stack">
        {all.map(u => (
          <li key={u.id} class="upload">
            <span class="cut"><bdi>{u.name}</bdi></span>
            <Bar part={u.size ? u.done / u.size : u.state === 'done' ? 1 : 0} low={u.state === 'failed'} label={t('files.progress', { name: u.name, percent: f.percent(u.done, u.size || 1) })} />
            <span class="muted nowrap" role="status">{f.bytes(u.done)} / {f.bytes(u.size)} · {tWord('files.upload', u.state)}</span>
            {u.state !== 'done' && u.state !== 'failed' && <button class="button quiet" onClick={u.cancel}>{t('verb.cancel')}</button>}
            {u.error && <span class={u.state === 'failed' ? 'bad' : 'warn'}>{u.error}</span>}
          </li>
        ))}
      </ul>
    </Card>
  );
}
