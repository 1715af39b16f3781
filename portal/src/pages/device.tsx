// A program on another machine asks to be logged in (`acequia login`): its code is entered here, and what it would be given is shown before
// anybody agrees.
import { useEffect, useState } from 'preact/hooks';
import { address, errorText, send } from '../api/client';
import { me } from '../api/session';
import { Card, Facts } from '../components/basics';
import { TextField } from '../components/form';
import * as f from '../lib/format';
import { t, type TextKey } from '../lib/i18n';
import { location } from '../lib/router';
import { PageTop } from '../shell/shell';

interface Asked {
  user_code: string;
  client: string;
  from: string;
  scopes: string[];
  project: string | null;
  ttl_s: number;
  asked_ms: number;
}

const SCOPES: Record<string, TextKey> = { read: 'scope.read', submit: 'scope.submit', admin: 'scope.admin' };
export const scopeText = (s: string): string => (SCOPES[s] ? t(SCOPES[s]) : s);

export default function DevicePage() {
  const [code, setCode] = useState(location.value.query.get('code') ?? '');
  const [asked, setAsked] = useState<Asked | null>(null);
  const [problem, setProblem] = useState('');
  const [done, setDone] = useState<TextKey | null>(null);
  const look = async () => {
    setProblem('');
    try {
      setAsked((await (await send('GET', address('/v1/devices/{name}', { name: code.trim() }))).json()) as Asked);
    } catch (e) {
      setProblem(errorText(e));
    }
  };
  const answer = async (allow: boolean) => {
    setProblem('');
    try {
      await send('POST', address('/v1/devices/{name}', { name: asked?.user_code ?? '' }), { allow });
      setDone(allow ? 'device.allowed' : 'device.refused');
    } catch (e) {
      setProblem(errorText(e));
    }
  };
  useEffect(() => {
    if (code) void look();
  }, []);
  return (
    <>
      <PageTop title={t('nav.device')} />
      <Card>
        {done ? <p role="status">{t(done)}</p> : asked ? (
          <div class="stack">
            <p>{t('device.asks', { client: asked.client })}</p>
            <Facts rows={[
              [t('device.code'), asked.user_code], [t('device.client'), asked.client], [t('account.where'), asked.from], [t('device.asked'), f.moment(asked.asked_ms)],
              [t('device.as'), me.value?.user ?? ''], [t('device.may'), asked.scopes.map(scopeText).join(', ')], [t('job.project'), asked.project ?? t('device.all')],
              [t('account.valid'), f.span(asked.ttl_s * 1000)],
            ]} />
            <p class="warn">{t('device.only')}</p>
            <div class="row">
              <button class="button primary" onClick={() => void answer(true)}>{t('device.allow')}</button>
              <button class="button" onClick={() => void answer(false)}>{t('device.refuse')}</button>
            </div>
            {problem && <div class="bad" role="alert">{problem}</div>}
          </div>
        ) : (
          <form class="stack" onSubmit={e => { e.preventDefault(); void look(); }}>
            <p>{t('device.enter')}</p>
            <TextField label={t('device.code')} value={code} set={setCode} required problem={problem || undefined} placeholder="XXXX-XXXX" />
            <div><button class="button primary" type="submit">{t('device.next')}</button></div>
          </form>
        )}
      </Card>
    </>
  );
}
