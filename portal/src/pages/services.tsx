// Services: programs that answer requests under one address, with as many replicas as there is work for.
import { useState } from 'preact/hooks';
import { useTopics } from '../api/live';
import { useResource } from '../api/resource';
import { admin, me } from '../api/session';
import { Card } from '../components/basics';
import { CheckField } from '../components/form';
import { Empty, Loaded } from '../components/states';
import * as f from '../lib/format';
import { t, tWord } from '../lib/i18n';
import { loadServices, msText, servicePage, TONES, type Service } from '../services/data';
import { newService } from '../services/form';
import { PageTop } from '../shell/shell';

const EVERY_MS = 3000;

export default function ServicesPage() {
  useTopics('shares');
  const [all, setAll] = useState(false);
  const r = useResource(`services${all}`, s => loadServices(all, s), { everyMs: EVERY_MS });
  return (
    <>
      <PageTop title={t('nav.services')} actions={<button class="button primary" disabled={!me.value?.may_submit} onClick={newService}>{t('services.new')}</button>} />
      {admin.value && <div class="tools"><CheckField label={t('services.all')} value={all} set={setAll} /></div>}
      <Card flush>
        <Loaded of={r.state.value} retry={r.refresh} lines={6}>
          {rows => (rows.length === 0 ? <Empty title={t('services.none')}><span>{t('services.noneHint')} </span><code>acequia serve --name echo -- python3 server.py</code></Empty> : <Rows rows={rows} all={all} />)}
        </Loaded>
      </Card>
    </>
  );
}

function Rows({ rows, all }: { rows: Service[]; all: boolean }) {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={t('nav.services')}>
      <table>
        <thead><tr>
          <th scope="col">{t('job.name')}</th>{all && <th scope="col">{t('job.user')}</th>}<th scope="col">{t('job.stateTitle')}</th><th scope="col" class="num">{t('services.replicas')}</th>
          <th scope="col" class="num">{t('services.rate')}</th><th scope="col" class="num wide-only">p50</th><th scope="col" class="num">p99</th>
          <th scope="col" class="num wide-only">{t('services.inFlight')}</th><th scope="col" class="num">{t('services.queue')}</th>
          <th scope="col" class="num wide-only">{t('services.revision')}</th><th scope="col" class="wide-only">{t('job.project')}</th>
        </tr></thead>
        <tbody>
          {rows.map(s => (
            <tr key={`${s.user}/${s.name}`}>
              <td><a class="plain strong" href={servicePage(s)}>{s.name}</a></td>{all && <td>{s.user}</td>}
              <td title={s.reason ?? ''}><span class={`state ${TONES[s.state] ?? ''}`}>{tWord('services.state', s.state)}</span></td>
              <td class="num nowrap">{t('services.readyOf', { ready: s.ready_replicas, replicas: s.replicas })} <span class="muted">({s.replicas_min}–{s.replicas_max})</span></td>
              <td class="num">{f.number(s.requests_per_s, s.requests_per_s < 10 ? 1 : 0)}</td><td class="num nowrap wide-only">{msText(s.p50_ms, f.number)}</td><td class="num nowrap">{msText(s.p99_ms, f.number)}</td>
              <td class="num wide-only">{f.number(s.in_flight)}</td><td class={s.queued ? 'num warn' : 'num'}>{f.number(s.queued)}</td>
              <td class="num nowrap wide-only">{s.revisions.filter(v => v.state !== 'retiring').map(v => (v.weight < 100 ? `${v.number} (${f.percent(v.weight, 100)})` : v.number)).join(' · ') || '–'}</td>
              <td class="wide-only">{s.project}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
