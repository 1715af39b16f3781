// Backups that the controller makes: which there are, whether the last one failed, and one now.
import { call, send } from '../api/client';
import { useResource } from '../api/resource';
import type { Backups as Listed } from '../api/schema';
import { Card, Facts } from '../components/basics';
import { ask } from '../components/dialog';
import { SameCard, SameFold, type Same } from '../components/same';
import { Empty, Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';

const LOOK_MS = 5000;
const MAKE: Same = { cli: 'acequia backup --now', method: 'POST', path: '/v1/backups' };

function make(done: () => void): void {
  ask({
    title: t('backups.make'), yes: t('backups.make'),
    body: <><p>{t('backups.makeText')}</p><SameFold actions={[MAKE]} /></>,
    act: async () => {
      await send('POST', '/v1/backups');
      notify(t('backups.begun'));
      done();
    },
  });
}

export function Backups() {
  const r = useResource('backups', s => call('GET /v1/backups', { signal: s }) as Promise<Listed>, { everyMs: LOOK_MS });
  return (
    <Loaded of={r.state.value} retry={r.refresh}>
      {b => {
        const made = b.backups ?? [];
        return (
          <div class="stack">
            {b.problem && <div class="banner error" role="alert">{t('backups.failed', { problem: b.problem })}</div>}
            <Card title={t('admin.backups')} note={b.folder ? <button class="link-button" disabled={b.running} onClick={() => make(r.refresh)}>{b.running ? t('backups.running') : t('backups.make')}</button> : undefined}>
              {!b.folder
                ? <Empty title={t('backups.off')}><p>{t('backups.offText')}</p><pre class="code">{'[backup]\nfolder = /srv/backup/acequia\nevery = 1d\nkeep = 14'}</pre></Empty>
                : <Facts rows={[[t('job.folder'), <code class="break">{b.folder}</code>], [t('backups.every'), b.every_s ? f.span(b.every_s * 1000) : t('backups.never')], [t('backups.keep'), b.keep ? f.number(b.keep) : t('backups.all')]]} />}
            </Card>
            {b.folder && (
              <Card title={t('backups.made')} note={t('backups.count', { n: made.length })} flush>
                {made.length === 0 ? <Empty title={t('backups.none')} /> : (
                  <table>
                    <thead><tr><th scope="col">{t('backups.file')}</th><th scope="col" class="num">{t('backups.at')}</th><th scope="col" class="num">{t('files.size')}</th></tr></thead>
                    <tbody>{made.map(x => <tr key={x.file}><td class="break"><code>{x.file}</code></td><td class="num nowrap" title={f.fullMoment(x.made_ms)}>{f.moment(x.made_ms)}</td><td class="num nowrap">{f.bytes(x.bytes)}</td></tr>)}</tbody>
                  </table>
                )}
                <p class="muted small padded">{t('backups.restore')}</p>
              </Card>
            )}
            <SameCard actions={[{ cli: 'acequia backup --list', path: '/v1/backups' }]} />
          </div>
        );
      }}
    </Loaded>
  );
}
