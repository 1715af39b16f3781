// What can be done to files: each action asks, shows the same from a shell, acts and reports.
import { signal } from '@preact/signals';
import { address, send } from '../api/client';
import { ask } from '../components/dialog';
import { TextField } from '../components/form';
import { SameFold, quote, type Same } from '../components/same';
import { notify } from '../components/toast';
import { t, type TextKey } from '../lib/i18n';
import { join, lastPart, parent, shown, typed, write, type Place } from './data';

const where = (at: Place): string => `${at.job ? ` --job ${quote(at.job)}` : ''}${at.node ? ` --node ${quote(at.node)}` : ''}`;
const cli = (verb: string, at: Place, ...paths: string[]): string => `acequia files ${verb}${where(at)} ${paths.map(p => quote(shown(p))).join(' ')}`;

function checked(name: string): string {
  if (!name || name === '.' || name === '..' || name.includes('/')) throw new Error(t('files.badName'));
  return typed(name);
}

/** Asks for a name, and does something with it. */
function askName(title: string, first: string, same: (name: string) => Same, act: (name: string) => Promise<void>): void {
  const name = signal(first);
  const Body = () => (
    <>
      <TextField focus label={t('files.name')} value={name.value} set={v => (name.value = v)} />
      <SameFold actions={[same(typed(name.value))]} />
    </>
  );
  ask({ title, yes: t('action.save'), body: <Body />, act: () => act(checked(name.value)) });
}

export function newFolder(folder: Place, done: () => void): void {
  const same = (name: string): Same => ({ cli: cli('mkdir', folder, join(folder.path, name)), method: 'POST', path: '/v1/files/folder', body: { ...folder, path: join(folder.path, name) } });
  askName(t('files.newFolder'), '', same, async name => {
    await send('POST', '/v1/files/folder', { ...folder, path: join(folder.path, name) });
    done();
  });
}

export function newFile(folder: Place, done: (path: string) => void): void {
  const same = (name: string): Same => ({ method: 'PUT', path: '/v1/files/content', query: { ...folder, path: join(folder.path, name) } });
  askName(t('files.newFile'), '', same, async name => {
    const path = join(folder.path, name);
    await write({ ...folder, path }, new Blob([]), { create: true });
    done(path);
  });
}

export function rename(at: Place, done: (path: string) => void): void {
  const to = (name: string) => join(parent(at.path), name);
  const same = (name: string): Same => ({ cli: cli('mv', at, at.path, to(name)), method: 'POST', path: '/v1/files/move', body: { ...at, to: to(name) } });
  askName(t('files.rename'), shown(lastPart(at.path)), same, async name => {
    if (to(name) !== at.path) await send('POST', '/v1/files/move', { ...at, to: to(name) });
    done(to(name));
  });
}

const NAMES_SHOWN = 10;

export function removeAll(folder: Place, names: string[], done: () => void): void {
  const paths = names.map(n => join(folder.path, n));
  const list = names.slice(0, NAMES_SHOWN).map(shown).join(', ') + (names.length > NAMES_SHOWN ? ', …' : '');
  ask({
    title: t('files.remove' as TextKey, { n: names.length }),
    yes: t('files.removeYes'),
    danger: true,
    body: (
      <>
        <div class="break">{list}</div>
        <div class="muted">{t('files.removeText')}</div>
        <SameFold actions={[{ cli: cli('rm -r', folder, ...paths), method: 'DELETE', path: '/v1/files', query: { ...folder, path: paths[0], recursive: true } }]} />
      </>
    ),
    act: async () => {
      let n = 0;
      try {
        for (const path of paths) {
          await send('DELETE', address('/v1/files', {}, { ...folder, path, recursive: true }));
          n++;
        }
      } finally {
        if (n) notify(t('files.removed', { n }));
        done();
      }
    },
  });
}
