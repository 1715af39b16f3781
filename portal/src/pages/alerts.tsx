// Alerts: what is beyond a rule now, who looks after it, and the rules, which administrators set on any metric.
import { address, call, send } from '../api/client';
import { useResource } from '../api/resource';
import { admin, may } from '../api/session';
import type { Alert, AlertRuleNow, Alerts } from '../api/schema';
import { Card } from '../components/basics';
import { ask } from '../components/dialog';
import { edit } from '../components/edit';
import { CheckField, SelectField, TextField } from '../components/form';
import { quote, SameFold, type Same } from '../components/same';
import { Empty, Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { jobPath, nodePath } from '../lib/router';
import { PageTop } from '../shell/shell';

const EVERY_MS = 5000;
const METRICS = ['gpu/*/*/temperature_celsius', 'gpu/*/*/utilisation', 'gpu/*/*/memory_bytes', 'gpu/*/*/power_watts', 'gpu/*/*/healthy', 'node/*/up', 'node/*/cpu_utilisation', 'node/*/memory_bytes',
  'node/*/disk_free_ratio', 'job/*/gpu_idle_seconds', 'job/*/outside_gpu_limits', 'cluster/jobs_pending', 'cluster/gpu_utilisation'];

export default function AlertsPage() {
  const r = useResource('alerts', s => call('GET /v1/alerts', { signal: s }) as Promise<Alerts>, { everyMs: EVERY_MS });
  return (
    <>
      <PageTop title={t('nav.alerts')} actions={admin.value && <button class="button primary" onClick={() => setRule(null, r.refresh)}>{t('alerts.newRule')}</button>} />
      <Loaded of={r.state.value} retry={r.refresh} lines={8}>
        {a => (
          <div class="stack">
            <Card title={t('alerts.now')} flush>{a.alerts.length === 0 ? <Empty title={t('alerts.none')} /> : <Now rows={a.alerts} refresh={r.refresh} />}</Card>
            <Card title={t('alerts.rules')} note={t('alerts.rulesNote')} flush><Rules rows={a.rules} refresh={r.refresh} /></Card>
          </div>
        )}
      </Loaded>
    </>
  );
}

/** The node or job that a metric is about. */
function Subject({ metric }: { metric: string }) {
  const [kind, name] = metric.split('/');
  const href = kind === 'gpu' || kind === 'node' ? nodePath(name ?? '') : kind === 'job' ? jobPath(name ?? '') : null;
  return href ? <a class="in-text" href={href}>{metric}</a> : <>{metric}</>;
}

const value = (v: number | null | undefined) => (v === null || v === undefined ? '–' : f.number(v, Math.abs(v) < 10 ? 2 : 0));

function Now({ rows, refresh }: { rows: Alert[]; refresh: () => void }) {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={t('alerts.now')}>
      <table>
        <thead><tr><th scope="col">{t('alerts.rule')}</th><th scope="col" class="wide-only">{t('alerts.metric')}</th><th scope="col" class="num wide-only">{t('alerts.atRaise')}</th><th scope="col" class="num">{t('alerts.valueNow')}</th>
          <th scope="col" class="wide-only">{t('alerts.since')}</th><th scope="col">{t('alerts.acknowledged')}</th></tr></thead>
        <tbody>
          {rows.map(a => (
            <tr key={`${a.rule} ${a.subject}`}>
              <td><span class={a.by ? 'state warn' : 'state bad'}>{a.rule}</span><span class="narrow-only muted mono">{a.subject}</span></td>
              <td class="mono wide-only" title={a.text ?? ''}><Subject metric={a.subject ?? ''} /></td>
              <td class="num wide-only">{value(a.value)}</td><td class="num">{value(a.now)}</td><td class="nowrap wide-only">{f.moment(a.raised_ms)}</td>
              <td>{a.by ? <>{a.by}{a.comment && <span class="muted"> {a.comment}</span>}</> : may('nodes')
                ? <button class="button" onClick={() => acknowledge(a, refresh)}>{t('alerts.ack')}</button> : <span class="muted">{t('alerts.nobody')}</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function acknowledge(a: Alert, done: () => void): void {
  const body = (comment: string) => ({ rule: a.rule ?? '', subject: a.subject ?? '', ...(comment ? { comment } : {}) });
  edit<string>({
    title: t('alerts.ackTitle', { rule: a.rule ?? '' }), yes: t('alerts.ack'), first: '',
    form: (v, set) => <><p class="muted">{a.text}</p><TextField label={t('alerts.comment')} value={v} set={set} /></>,
    same: v => ({ cli: `acequia alert ack ${quote(a.rule ?? '')} ${quote(a.subject ?? '')}${v ? ` --comment ${quote(v)}` : ''}`, method: 'POST', path: '/v1/alerts/ack', body: body(v) }),
    act: async v => {
      await send('POST', '/v1/alerts/ack', body(v));
      notify(t('alerts.acked'));
      done();
    },
  });
}

function Rules({ rows, refresh }: { rows: AlertRuleNow[]; refresh: () => void }) {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={t('alerts.rules')}>
      <table>
        <thead><tr><th scope="col">{t('alerts.rule')}</th><th scope="col" class="wide-only">{t('alerts.metric')}</th><th scope="col">{t('alerts.when')}</th><th scope="col" class="wide-only">{t('alerts.to')}</th>
          <th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th></tr></thead>
        <tbody>
          {rows.map(r => (
            <tr key={r.name}>
              <td class="strong">{r.name} {r.disabled ? <span class="pill warning">{t('alerts.off')}</span> : !r.set && <span class="pill">{t('alerts.builtIn')}</span>}<span class="narrow-only muted mono">{r.metric}</span></td>
              <td class="mono wide-only">{r.metric}</td><td>{t(`alerts.${r.when}`, { value: value(r.value) })}{r.for_s ? ` ${t('alerts.for', { span: f.span(r.for_s * 1000) })}` : ''}</td>
              <td class="wide-only">{r.to ?? <span class="muted">{t('alerts.usual')}</span>}</td>
              <td class="num nowrap">{admin.value && <><button class="button" onClick={() => setRule(r, refresh)}>{t('admin.change')}</button>{' '}
                {r.set && <button class="button danger" onClick={() => removeRule(r, refresh)}>{t('admin.remove')}</button>}</>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RuleForm {
  name: string;
  metric: string;
  when: string;
  value: string;
  seconds: string;
  to: string;
  disabled: boolean;
}

const bodyOf = (v: RuleForm) => ({ metric: v.metric, when: v.when, value: Number(v.value), for_s: Number(v.seconds || '0'), ...(v.to.trim() ? { to: v.to.trim() } : {}), disabled: v.disabled });

function ruleSame(v: RuleForm): Same {
  const cli = `acequia alert set ${quote(v.name || 'NAME')} --metric ${quote(v.metric)} --${v.when} ${v.value || '0'}${Number(v.seconds) ? ` --for ${f.limitOption(Number(v.seconds))}` : ''}${v.to.trim() ? ` --to ${quote(v.to.trim())}` : ''}${v.disabled ? ' --off' : ''}`;
  return { cli, method: 'PUT', path: address('/v1/alerts/{name}', { name: v.name || 'NAME' }), body: bodyOf(v) };
}

function setRule(r: AlertRuleNow | null, done: () => void): void {
  edit<RuleForm>({
    title: r ? t('alerts.changeRule', { name: r.name ?? '' }) : t('alerts.newRule'), yes: t('action.save'),
    first: { name: r?.name ?? '', metric: r?.metric ?? METRICS[0]!, when: r?.when ?? 'above', value: String(r?.value ?? 85), seconds: String(r?.for_s ?? 120), to: r?.to ?? '', disabled: r?.disabled ?? false },
    form: (v, set) => (
      <>
        {!r && <TextField label={t('job.name')} value={v.name} set={name => set({ ...v, name })} required />}
        <TextField label={t('alerts.metric')} value={v.metric} set={metric => set({ ...v, metric })} hint={t('alerts.metricHint')} />
        <details><summary class="muted">{t('alerts.metrics')}</summary>
          <div class="row">{METRICS.map(m => <button key={m} class="link-button mono" type="button" onClick={() => set({ ...v, metric: m })}>{m}</button>)}</div></details>
        <SelectField label={t('alerts.when')} value={v.when} set={when => set({ ...v, when })} options={[{ value: 'above', text: t('alerts.aboveWord') }, { value: 'below', text: t('alerts.belowWord') }]} />
        <TextField label={t('alerts.value')} value={v.value} set={x => set({ ...v, value: x })} />
        <TextField label={t('alerts.seconds')} value={v.seconds} set={seconds => set({ ...v, seconds })} />
        <TextField label={t('alerts.to')} value={v.to} set={to => set({ ...v, to })} hint={t('alerts.toHint')} />
        <CheckField label={t('alerts.disabled')} value={v.disabled} set={disabled => set({ ...v, disabled })} />
      </>
    ),
    same: ruleSame,
    act: async v => {
      await send('PUT', address('/v1/alerts/{name}', { name: v.name }), bodyOf(v));
      notify(t('admin.saved', { name: v.name }));
      done();
    },
  });
}

function removeRule(r: AlertRuleNow, done: () => void): void {
  const path = address('/v1/alerts/{name}', { name: r.name ?? '' });
  ask({
    title: t('alerts.removeRule', { name: r.name ?? '' }), yes: t('admin.remove'), danger: true,
    body: <>{r.built_in && <p>{t('alerts.builtInBack')}</p>}<SameFold actions={[{ cli: `acequia alert delete ${quote(r.name ?? '')}`, method: 'DELETE', path }]} /></>,
    act: async () => {
      await send('DELETE', path);
      done();
    },
  });
}
