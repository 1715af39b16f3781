// One's own account: who one is here, where one is logged in, and tokens for programs.
import { useState } from 'preact/hooks';
import { address, call, send } from '../api/client';
import { useResource } from '../api/resource';
import { me } from '../api/session';
import type { Token } from '../api/types';
import { Card, Facts } from '../components/basics';
import { ask } from '../components/dialog';
import { edit } from '../components/edit';
import { SelectField, TextField } from '../components/form';
import { Copyable, quote, SameFold } from '../components/same';
import { Empty, Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { PageTop } from '../shell/shell';
import { scopeText } from './device';

interface Session {
  id: string;
  identity: string;
  user: string | null;
  from: string;
  agent: string | null;
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
              [t('account.identity'), m.identity],
            ]} />
          )}
          {m?.identity?.startsWith('own:') && <p><button class="button" onClick={changePassword}>{t('account.password')}</button></p>}
        </Card>
        {m?.via === 'session' && <Sessions />}
        <Tokens />
      </div>
    </>
  );
}

function changePassword(): void {
  const name = (me.value?.identity ?? '').slice('own:'.length);
  edit<{ current: string; password: string }>({
    title: t('account.password'), yes: t('action.save'), first: { current: '', password: '' },
    form: (v, set) => (
      <>
        <TextField label={t('account.current')} value={v.current} set={current => set({ ...v, current })} type="password" autocomplete="current-password" required />
        <TextField label={t('account.fresh')} value={v.password} set={password => set({ ...v, password })} type="password" autocomplete="new-password" required />
      </>
    ),
    same: () => ({ cli: `acequia user passwd ${quote(name)}`, method: 'PUT', path: `/v1/users/${name}/password`, body: { current: '…', password: '…' } }),
    act: async v => {
      await send('PUT', address('/v1/users/{name}/password', { name }), v);
      notify(t('account.passwordSet'));
    },
  });
}

function Sessions() {
  const own = me.value?.user;
  // Administrators are sent everybody's; those are on the page of people.
  const r = useResource('sessions', async s => ((await (await send('GET', '/v1/sessions', undefined, s)).json()) as { sessions: Session[] }).sessions.filter(x => x.current || x.user === own || x.identity === own));
  const end = (id: string) => ask({
    title: id === 'others' ? t('account.endOthers') : t('account.end'), yes: t('account.end'), danger: true,
    body: <SameFold actions={[{ cli: `acequia session revoke ${id}`, method: 'DELETE', path: `/v1/sessions/${id}` }]} />,
    act: async () => {
      await send('DELETE', `/v1/sessions/${encodeURIComponent(id)}`);
      r.refresh();
    },
  });
  return (
    <Card title={t('account.sessions')} note={<button class="link-button" onClick={() => end('others')}>{t('account.endOthers')}</button>} flush>
      <Loaded of={r.state.value} retry={r.refresh}>
        {rows => (
          <div class="scroll-x"><table>
            <thead><tr><th scope="col">{t('account.where')}</th><th scope="col" class="wide-only">{t('account.since')}</th><th scope="col">{t('account.seen')}</th><th scope="col" class="wide-only">{t('account.until')}</th><th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th></tr></thead>
            <tbody>
              {rows.map(s => (
                <tr key={s.id}>
                  <td title={s.agent ?? ''}>{f.host(s.from)} <span class="muted">{program(s.agent ?? '')}</span> {s.current && <span class="pill accent">{t('account.this')}</span>}</td>
                  <td class="wide-only">{f.moment(s.begun_ms)}</td><td class="nowrap">{f.moment(s.seen_ms)}</td><td class="wide-only">{f.moment(s.expires_ms)}</td>
                  <td class="num">{!s.current && <button class="button" onClick={() => end(s.id)}>{t('account.end')}</button>}</td>
                </tr>
              ))}
            </tbody>
          </table></div>
        )}
      </Loaded>
    </Card>
  );
}

/** The browser's name out of what it says of itself. */
const program = (agent: string) => /(Firefox|Edg|Chrome|Safari)\/[\d.]+/.exec(agent)?.[0].replace('Edg/', 'Edge/') ?? agent.slice(0, 30);

interface TokenForm {
  ttl: string;
  scopes: string;
  project: string;
}

// What a token may do, from all to least; admin only for those who have such a role.
const SCOPES = ['', 'read,submit', 'read'];
const scopesText = (scopes: string) => (scopes ? scopes.split(',').map(scopeText).join(', ') : t('account.all'));

function tokenBody(v: TokenForm): Record<string, unknown> {
  return { kind: 'user', ttl_s: Number(v.ttl), ...(v.scopes && { scopes: v.scopes.split(',') }), ...(v.project && { project: v.project }) };
}

function newToken(done: (token: string) => void): void {
  edit<TokenForm>({
    title: t('account.newToken'), yes: t('account.create'), first: { ttl: LIVES[1]!.value, scopes: '', project: '' },
    form: (v, set) => (
      <>
        <SelectField label={t('account.valid')} value={v.ttl} set={ttl => set({ ...v, ttl })} options={LIVES.map(l => ({ value: l.value, text: t('account.days', { n: l.n }) }))} />
        <SelectField label={t('account.may')} value={v.scopes} set={scopes => set({ ...v, scopes })} options={SCOPES.map(x => ({ value: x, text: scopesText(x) }))} />
        <SelectField label={t('account.onlyProject')} value={v.project} set={project => set({ ...v, project })}
          options={[{ value: '', text: t('account.anyProject') }, ...(me.value?.projects ?? []).map(p => ({ value: p.name, text: p.name }))]} />
      </>
    ),
    same: v => ({
      cli: `acequia token create --user ${quote(me.value?.user ?? '')} --ttl ${Number(v.ttl) / DAY}d${v.scopes ? ` --scopes ${v.scopes}` : ''}${v.project ? ` --project ${quote(v.project)}` : ''}`,
      method: 'POST', path: '/v1/tokens', body: tokenBody(v),
    }),
    act: async v => done(((await (await send('POST', '/v1/tokens', tokenBody(v))).json()) as { token: string }).token),
  });
}

function Tokens() {
  const r = useResource('tokens', async s => ((await call('GET /v1/tokens', { signal: s })) as { tokens: Token[] }).tokens);
  const [made, setMade] = useState('');
  const create = () => newToken(token => {
    setMade(token);
    r.refresh();
  });
  const revoke = (token: Token) => ask({
    title: t('account.revokeTitle', { id: token.id ?? '' }), yes: t('account.revoke'), danger: true,
    body: <SameFold actions={[{ cli: `acequia token revoke ${token.id}`, method: 'DELETE', path: `/v1/tokens/${token.id}` }]} />,
    act: async () => {
      await send('DELETE', address('/v1/tokens/{name}', { name: token.id ?? '' }));
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
            <thead><tr><th scope="col">Id</th><th scope="col">{t('account.kind')}</th><th scope="col">{t('account.user')}</th><th scope="col" class="wide-only">{t('account.may')}</th><th scope="col">{t('account.until')}</th><th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th></tr></thead>
            <tbody>
              {tokens.map(x => (
                <tr key={x.id}>
                  <td><code>{x.id}</code></td><td>{x.kind === 'agent' ? t('account.agentToken') : t('account.userToken')}</td><td>{x.user ?? x.node ?? '–'}</td>
                  <td class="wide-only">{(x.scopes ?? []).map(scopeText).join(', ')}{x.project && ` (${x.project})`}</td>
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
