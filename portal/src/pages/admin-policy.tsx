// The rules of sharing. Before a change is set it is tried on the jobs of the last days, by the controller's own scheduler.
import { useEffect, useState } from 'preact/hooks';
import { call, errorText, send } from '../api/client';
import { useResource } from '../api/resource';
import type { PolicySettings, PolicyTrial, TrialRun } from '../api/schema';
import { Card } from '../components/basics';
import { ask } from '../components/dialog';
import { CheckField, SelectField, TextField } from '../components/form';
import { SameFold } from '../components/same';
import { Failed, Loaded, Loading } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t, tWord } from '../lib/i18n';

const WORDS: Record<string, string[]> = { order: ['fair', 'fcfs'], backfill: ['in_order', 'shortest', 'none'], placement: ['fragment', 'pack', 'spread', 'first'] };
type Change = Record<string, unknown>;

function commandOf(changed: Change, dry: boolean): string {
  const words = Object.entries(changed).map(([k, v]) => (k.endsWith('_s') ? `${k.slice(0, -2)}=${v}s` : `${k}=${v}`));
  return `acequia policy set ${dry ? '--dry-run ' : ''}${words.join(' ')}`;
}

export function Policy() {
  const r = useResource('policy', s => call('GET /v1/policy', { signal: s }) as Promise<PolicySettings>);
  const [changed, setChanged] = useState<Change>({});
  const save = () => ask({
    title: t('admin.savePolicy'), yes: t('action.save'), wide: true,
    body: (
      <>
        <Trial changed={changed} />
        <SameFold actions={[{ cli: commandOf(changed, true), method: 'POST', path: '/v1/policy/dry-run', body: { change: changed } },
          { cli: commandOf(changed, false), method: 'PUT', path: '/v1/policy', body: changed }]} />
      </>
    ),
    act: async () => {
      await send('PUT', '/v1/policy', changed);
      setChanged({});
      notify(t('admin.saved', { name: t('admin.policy') }));
      r.refresh();
    },
  });
  return (
    <Card title={t('admin.policy')} note={<button class="button primary" disabled={Object.keys(changed).length === 0} onClick={save}>{t('admin.tryAndSave')}</button>}>
      <Loaded of={r.state.value} retry={r.refresh}>
        {p => (
          <div class="policy">
            {Object.entries(p).map(([key, now]) => {
              const v = key in changed ? changed[key] : now;
              const put = (x: unknown) => {
                const { [key]: _, ...others } = changed;
                setChanged(x === now ? others : { ...others, [key]: x });
              };
              // The name is that of the configuration and the command line; what it means is said below it.
              const hint = tWord('policy', key);
              if (typeof now === 'boolean') return <CheckField key={key} label={key} hint={hint} value={v as boolean} set={put} />;
              if (WORDS[key]) return <SelectField key={key} label={key} hint={hint} value={String(v)} set={put} options={WORDS[key]!.map(w => ({ value: w, text: w }))} />;
              return <TextField key={key} label={key} hint={hint} value={String(v)} set={x => put(x === '' || Number.isNaN(Number(x)) ? x : Number(x))} />;
            })}
          </div>
        )}
      </Loaded>
    </Card>
  );
}

// --- what it would have done ---

function Trial({ changed }: { changed: Change }) {
  const [trial, set] = useState<PolicyTrial | null>(null);
  const [error, setError] = useState('');
  useEffect(() => {
    const abort = new AbortController();
    send('POST', '/v1/policy/dry-run', { change: changed }, abort.signal).then(a => a.json()).then(x => set(x as PolicyTrial), e => !abort.signal.aborted && setError(errorText(e)));
    return () => abort.abort();
  }, []);
  if (error) return <Failed text={error} />;
  if (!trial) return <><p class="muted" role="status">{t('trial.running')}</p><Loading lines={3} /></>;
  if (!trial.jobs) return <p role="status">{t('trial.nothing')}</p>;
  const rows = [...(trial.projects ?? []).map(p => ({ name: p.project ?? '', jobs: p.jobs ?? 0, now: p.now!, changed: p.changed! })), { name: t('trial.all'), jobs: trial.jobs, now: trial.now!, changed: trial.changed! }];
  return (
    <div class="stack tight" role="status">
      <p>{t('trial.title', { n: trial.jobs })}</p>
      <div class="scroll-x">
        <table>
          <thead><tr><th scope="col">{t('job.project')}</th><th scope="col" class="num">{t('nav.jobs')}</th><th scope="col" class="num">{t('trial.median')}</th><th scope="col" class="num">{t('trial.p95')}</th>
            <th scope="col" class="num">{t('trial.preempted')}</th><th scope="col" class="num">{t('trial.gpuHours')}</th></tr></thead>
          <tbody>{rows.map(r => (
            <tr key={r.name}>
              <th scope="row" class="strong">{r.name}</th><td class="num">{f.number(r.jobs)}</td>
              <Both {...r} of={x => x.wait_median_s} text={s => f.span(s * 1000)} /><Both {...r} of={x => x.wait_p95_s} text={s => f.span(s * 1000)} />
              <Both {...r} of={x => x.preemptions} text={n => f.number(n)} /><Both {...r} of={x => x.gpu_hours} text={h => f.number(h, h < 10 ? 2 : 0)} />
            </tr>
          ))}</tbody>
        </table>
      </div>
      <p>{t('trial.moved', { sooner: trial.sooner ?? 0, later: trial.later ?? 0 })}</p>
      <p class="muted small">{t('trial.note')}{!trial.complete && ` ${t('trial.newest')}`}</p>
    </div>
  );
}

function Both({ now, changed, of, text }: { now: TrialRun; changed: TrialRun; of: (r: TrialRun) => number | undefined; text: (n: number) => string }) {
  const before = text(of(now) ?? 0), after = text(of(changed) ?? 0);
  return <td class="num nowrap">{before === after ? <span class="muted">{before}</span> : <><span class="muted">{before} →</span> <b>{after}</b></>}</td>;
}
