// One's own account: who one is here, where one is logged in, and tokens for programs.
import { useState } from 'preact/hooks';
import { call, send } from '../api/client';
import { useResource } from '../api/resource';
import { me } from '../api/session';
import type { Token } from '../api/types';
import { Card, Facts } from '../components/basics';
import { ask } from '../components/dialog';
import { SelectField } from '../components/form';
import { Copyable, quote, SameFold } from '../components/same';
import { Empty, Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { PageTop } from '../shell/shell';

interface Session {
  id: string;
  from: string;
  agent: string;
  begun_ms: number;
  seen_ms: number;
  expires_ms: number;
  current: boolean;
}

const DAY = 86_400;
const LIVES = [{ value: String(DAY), n: 1 }, { value: String(30 * DAY), n: 30 }, { value: String(365 * DAY), n: 365 }];

export default function AccountPage() {
  const m = me.value;
  return (
    <>
      <PageTop title={t('nav.account')} />
      <div class="stack">
        <Card title={t('account.you')}>
          {m && (
            <Facts rows={[
              [t('account.user'), m.user], [t('account.name'), m.full_name], [t('account.role'), t(`role.${m.role}`)],
              [t('account.projects'), m.projects.map(p => (p.lead ? `${p.name} (${t('account.lead')})` : p.name)).join(', ')],
              [t('account.submit'), m.may_submit ? t('action.yes') : t('account.notMapped')],
            ]} />
          )}
        </Card>
        {m?.via === 'session' && <Sessions />}
        <Tokens />
      </div>
    </>
  );
}

function Sessions() {
  const r = useResource('sessions', async s => ((await (await send('GET', '/v1/sessions', undefined, s)).json()) as { sessions: Session[] }).sessions);
  const end = async (id: string) => {
    await send('DELETE', `/v1/sessions/${encodeURIComponent(id)}`);
    r.refresh();
  };
  return (
    <Card title={t('account.sessions')} note={<button class="link-button" onClick={() => void end('others')}>{t('account.endOthers')}</button>} flush>
      <Loaded of={r.state.value} retry={r.refresh}>
        {rows => (
          <table>
            <thead><tr><th scope="col">{t('account.where')}</th><th scope="col">{t('account.since')}</th><th scope="col">{t('account.seen')}</th><th scope="col">{t('account.until')}</th><th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th></tr></thead>
            <tbody>
              {rows.map(s => (
                <tr key={s.id}>
                  <td class="cut" title={s.agent}>{s.from} <span class="muted">{s.agent.slice(0, 60)}</span> {s.current && <span class="pill accent">{t('account.this')}</span>}</td>
                  <td>{f.moment(s.begun_ms)}</td><td>{f.moment(s.seen_ms)}</td><td>{f.moment(s.expires_ms)}</td>
                  <td class="num">{!s.current && <button class="button" onClick={() => void end(s.id)}>{t('account.end')}</button>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Loaded>
    </Card>
  );
}

function Tokens() {
  const r = useResource('tokens', async s => ((await call('GET /v1/tokens', { signal: s })) as { tokens: Token[] }).tokens);
  const [made, setMade] = useState('');
  const create = () => {
    let ttl = LIVES[1]!.value;
    ask({
      title: t('account.newToken'), yes: t('account.create'), body: <NewToken set={v => (ttl = v)} />,
      act: async () => {
        const answer = (await (await send('POST', '/v1/tokens', { kind: 'user', ttl_s: Number(ttl) })).json()) as { token: string };
        setMade(answer.token);
        r.refresh();
      },
    });
  };
  const revoke = (token: Token) => ask({
    title: t('account.revokeTitle', { id: token.id ?? '' }), yes: t('account.revoke'), danger: true,
    body: <SameFold actions={[{ cli: `acequia token revoke ${token.id}`, method: 'DELETE', path: `/v1/tokens/${token.id}` }]} />,
    act: async () => {
      await send('DELETE', `/v1/tokens/${encodeURIComponent(token.id ?? '')}`);
      notify(t('account.revoked'));
      r.refresh();
    },
  });
  return (
    <Card title={t('account.tokens')} note={<button class="link-button" onClick={create}>{t('account.newToken')}</button>} flush>
      {made && <div class="stack"><p>{t('account.made')}</p><Copyable text={made} /><span /></div>}
      <Loaded of={r.state.value} retry={r.refresh}>
        {tokens => (tokens.length === 0 ? <Empty title={t('account.noTokens')}>{t('account.noTokensText')}</Empty> : (
          <table>
            <thead><tr><th scope="col">Id</th><th scope="col">{t('account.kind')}</th><th scope="col">{t('account.user')}</th><th scope="col">{t('account.until')}</th><th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th></tr></thead>
            <tbody>
              {tokens.map(x => (
                <tr key={x.id}>
                  <td><code>{x.id}</code></td><td>{x.kind === 'agent' ? t('account.agentToken') : t('account.userToken')}</td><td>{x.user ?? x.node ?? '–'}</td>
                  <td>{f.moment(x.expires_ms ?? 0)}</td><td class="num"><button class="button danger" onClick={() => revoke(x)}>{t('account.revoke')}</button></td>
                </tr>
              ))}
            </tbody>
          </table>
        ))}
      </Loaded>
    </Card>
  );
}

function NewToken({ set }: { set: (v: string) => void }) {
  const [value, setValue] = useState(LIVES[1]!.value);
  return (
    <>
      <SelectField label={t('account.valid')} value={value} set={v => { setValue(v); set(v); }} options={LIVES.map(l => ({ value: l.value, text: t('account.days', { n: l.n }) }))} />
      <SameFold actions={[{ cli: `acequia token create --user ${quote(me.value?.user ?? '')} --ttl ${Number(value) / DAY}d`, method: 'POST', path: '/v1/tokens', body: { kind: 'user', ttl_s: Number(value) } }]} />
    </>
  );
}
