// What can be done to files: each action asks, shows the same from a shell, acts and reports.
import { signal } from '@preact/signals';
import { ApiError, address, call, send } from '../api/client';
import { ask } from '../components/dialog';
import { CheckField, TextField } from '../components/form';
import { SameFold, quote, type Same } from '../components/same';
import { notify } from '../components/toast';
import { t, type TextKey } from '../lib/i18n';
import { join, lastPart, parent, shown, typed, write, type Entry, type Listing, type Place } from './data';

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

/** Also a folder, with all that is in it. A name stays in the same folder, a path leads elsewhere. */
export function copy(at: Place, done: () => void): void {
  const name = lastPart(at.path);
  const dot = name.lastIndexOf('.');
  const value = signal(shown(dot > 0 ? `${name.slice(0, dot)}-copy${name.slice(dot)}` : `${name}-copy`));
  const to = () => (value.value.includes('/') || value.value.startsWith('~') ? typed(value.value) : join(parent(at.path), typed(value.value)));
  const Body = () => (
    <>
      <TextField focus label={t('files.copyTo')} hint={t('files.copyHint')} value={value.value} set={v => (value.value = v)} />
      <SameFold actions={[{ cli: cli('cp', at, at.path, to()), method: 'POST', path: '/v1/files/copy', body: { ...at, to: to() } }]} />
    </>
  );
  ask({
    title: t('files.copyTitle', { name: shown(name) }), yes: t('files.copy'), body: <Body />,
    act: async () => {
      if (!value.value || value.value === '.' || value.value === '..') throw new Error(t('files.badName'));
      await send('POST', '/v1/files/copy', { ...at, to: to() });
      notify(t('files.copied', { name: shown(name) }));
      done();
    },
  });
}

const NAMES_SHOWN = 10;

/** Folders that are not empty, and what running jobs use, go only when that is ticked. */
export function removeAll(folder: Place, entries: Entry[], done: () => void): void {
  const shownOf = (names: string[]) => names.slice(0, NAMES_SHOWN).map(shown).join(', ') + (names.length > NAMES_SHOWN ? ', …' : '');
  const folders = entries.filter(e => e.type === 'folder').map(e => e.name);
  const full = signal<string[] | null>(folders.length ? null : []);
  const whole = signal(false), force = signal(false), used = signal(false);
  const pathOf = (name: string) => join(folder.path, name);
  const query = (name: string) => ({ ...folder, path: pathOf(name), recursive: whole.value || undefined, force: force.value || undefined });
  // Of one that cannot be looked into, the node says when it comes to it.
  void Promise.all(folders.map(async name => {
    const inside = await call('GET /v1/files', { query: { ...folder, path: pathOf(name), limit: 1 } }).catch(() => null);
    return inside && (inside as Listing).entries.length === 0 ? [] : [name];
  })).then(all => (full.value = all.flat()));
  const flags = () => `${whole.value ? ' -r' : ''}${force.value ? ' --force' : ''}`;
  const Body = () => (
    <>
      <div class="break">{shownOf(entries.map(e => e.name))}</div>
      {full.value === null && <div class="muted" role="status">{t('files.looking')}</div>}
      {full.value !== null && full.value.length > 0 &&
        <CheckField label={t('files.notEmpty', { n: full.value.length, names: shownOf(full.value) })} value={whole.value} set={v => (whole.value = v)} />}
      {used.value && <CheckField label={t('files.inUse')} value={force.value} set={v => (force.value = v)} />}
      <div class="muted">{t('files.removeText')}</div>
      <SameFold actions={[{ cli: cli(`rm${flags()}`, folder, ...entries.map(e => pathOf(e.name))), method: 'DELETE', path: '/v1/files', query: query(entries[0]!.name) }]} />
    </>
  );
  ask({
    title: t('files.remove' as TextKey, { n: entries.length }),
    yes: t('files.removeYes'),
    danger: true,
    body: <Body />,
    act: async () => {
      if (full.value === null || (full.value.length > 0 && !whole.value)) throw new Error(t(full.value === null ? 'files.looking' : 'files.tickFirst'));
      let n = 0;
      try {
        for (const e of entries) {
          await send('DELETE', address('/v1/files', {}, query(e.name)));
          n++;
        }
      } catch (e) {
        if (e instanceof ApiError && e.code === 'EBUSY') used.value = true;
        entries.splice(0, n);  // the next try goes on with the rest
        throw e;
      } finally {
        if (n) notify(t('files.removed', { n }));
        if (n) done();
      }
    },
  });
}
