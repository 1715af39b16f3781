// The folder that the job will run in, with its files: looked at, made, filled and opened from beside the script.
import { useRef } from 'preact/hooks';
import { send } from '../api/client';
import { useResource } from '../api/resource';
import { me } from '../api/session';
import { Card } from '../components/basics';
import { ask } from '../components/dialog';
import { openTerminal } from '../components/folder-terminal';
import { SameFold, quote } from '../components/same';
import { Loading } from '../components/states';
import { newFile } from '../files/actions';
import { join, list, pageOf, shown, typed, type Listing } from '../files/data';
import { upload } from '../files/upload';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { go } from '../lib/router';

const SHOWN = 8;

interface Look {
  listing: Listing | null;  // null: there is no such folder yet
}

async function look(path: string, signal?: AbortSignal): Promise<Look> {
  const listing = await list({ path: typed(path), optional: true }, signal);
  return { listing: listing.entry ? listing : null };
}

/** `folder`: as the script names it; `own`: a folder of its own that the draft can be given. */
export function FolderCard({ folder, own, project, use }: { folder: string; own: string; project: string | undefined; use: (folder: string) => void }) {
  const r = useResource(`folder ${folder}`, signal => look(folder, signal));
  const input = useRef<HTMLInputElement>(null);
  const { data, error } = r.state.value;
  const listing = data?.listing ?? null;
  const at = { path: listing?.path ?? typed(folder) };
  const names = (listing?.entries ?? []).filter(e => !e.name.startsWith('.'));
  const isFolder = listing?.entry.type === 'folder';
  return (
    <Card title={t('new.folder')} note={isFolder ? <a href={pageOf(at)}>{t('new.openFolder')}</a> : undefined}>
      <div class="stack tight">
        <code class="break">{folder}</code>
        {!data && (error ? <div class="bad" role="alert">{error}</div> : <Loading lines={2} />)}
        {data && !listing && <div class="warn">▲ {t('new.noFolder')}</div>}
        {listing && !isFolder && <div class="bad">✕ {t('new.notFolder')}</div>}
        {isFolder && names.length === 0 && <div class="muted">{t('files.emptyFolder')}</div>}
        {isFolder && names.length > 0 && (
          <ul class="folder-files">
            {names.slice(0, SHOWN).map(e => (
              <li key={e.name}><a class="plain cut" href={pageOf({ path: join(at.path, e.name) })}><bdi>{shown(e.name)}{e.type === 'folder' ? '/' : ''}</bdi></a><span class="muted">{e.type === 'file' ? f.bytes(e.size) : ''}</span></li>
            ))}
            {names.length > SHOWN && <li class="muted">{t('new.moreFiles', { n: names.length - SHOWN })}</li>}
          </ul>
        )}
        {me.value?.may_submit && (
          <div class="row">
            {data && !listing && <button class="button" onClick={() => makeFolder(folder, r.refresh)}>{t('new.makeFolder')}</button>}
            {isFolder && <button class="button" onClick={() => input.current?.click()}>{t('files.upload')}</button>}
            {isFolder && <button class="button" onClick={() => newFile(at, path => go(pageOf({ path })))}>{t('files.newFile')}</button>}
            {isFolder && <button class="button" onClick={() => openTerminal({ folder: shown(at.path), project })}>{t('files.terminal')}</button>}
            {folder !== own && <button class="button quiet" onClick={() => makeFolder(own, () => use(own))}>{t('new.ownFolder')}</button>}
          </div>
        )}
        <input ref={input} class="visually-hidden" type="file" multiple tabIndex={-1} aria-label={t('files.upload')}
          onChange={e => { for (const x of e.currentTarget.files ?? []) upload(at, x, r.refresh); e.currentTarget.value = ''; }} />
      </div>
    </Card>
  );
}

function makeFolder(path: string, done: () => void): void {
  ask({
    title: t('new.makeFolder'), yes: t('new.makeFolder'),
    body: (
      <>
        <code class="break">{path}</code>
        <SameFold actions={[{ cli: `acequia files mkdir -p ${quote(path)}`, method: 'POST', path: '/v1/files/folder', body: { path: typed(path), parents: true } }]} />
      </>
    ),
    act: async () => {
      await send('POST', '/v1/files/folder', { path: typed(path), parents: true });
      done();
    },
  });
}
