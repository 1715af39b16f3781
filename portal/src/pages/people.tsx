// Accounts of people: roles, the Unix user their jobs run as, their logins.
import { address, send } from '../api/client';
import { useResource } from '../api/resource';
import { Card } from '../components/basics';
import { ask } from '../components/dialog';
import { edit } from '../components/edit';
import { CheckField, SelectField, TextField } from '../components/form';
import { Menu } from '../components/menu';
import { quote, SameFold } from '../components/same';
import { Empty, Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t, type TextKey } from '../lib/i18n';

interface Person {
  name: string;
  full_name: string | null;
  email: string | null;
  role: string;
  unix_user: string | null;
  identities: string[];
  has_password: boolean;
  disabled: boolean;
}

interface Login {
  id: string;
  identity: string;
  user: string | null;
  from: string;
  agent: string | null;
  seen_ms: number;
  current: boolean;
}

const list = (text: string) => text.split(/[\s,]+/).filter(Boolean);

interface PersonForm extends Omit<Person, 'identities' | 'has_password'> {
  identities: string;
}

function command(v: PersonForm, exists: boolean): string {
  const options: Array<[string, string | null]> = [['full-name', v.full_name], ['email', v.email], ['unix-user', v.unix_user], ['identities', list(v.identities).join(',')]];
  const given = options.filter(([, x]) => x || exists).map(([k, x]) => ` --${k} ${quote(x || '') || "''"}`).join('');
  return `acequia user ${exists ? 'set' : 'add'} ${quote(v.name || 'NAME')} --role ${v.role}${given}${v.disabled || exists ? ` --disabled ${v.disabled ? 'yes' : 'no'}` : ''}`;
}

function editPerson(p: Person | null, done: () => void): void {
  const body = (v: PersonForm) => ({ full_name: v.full_name ?? '', email: v.email ?? '', role: v.role, unix_user: v.unix_user ?? '', identities: list(v.identities), disabled: v.disabled });
  const { has_password: _, ...rest } = p ?? { name: '', full_name: '', email: '', role: 'user', unix_user: '', identities: [], has_password: false, disabled: false };
  edit<PersonForm>({
    title: p ? t('admin.changePerson', { name: p.name }) : t('admin.newPerson'), yes: t('action.save'),
    first: { ...rest, identities: rest.identities.join(', ') },
    form: (v, set) => (
      <>
        {!p && <TextField label={t('account.user')} value={v.name} set={name => set({ ...v, name })} required />}
        <TextField label={t('account.name')} value={v.full_name ?? ''} set={full_name => set({ ...v, full_name })} />
        <TextField label={t('admin.mail')} value={v.email ?? ''} set={email => set({ ...v, email })} />
        <TextField label={t('admin.unix')} value={v.unix_user ?? ''} set={unix_user => set({ ...v, unix_user })} hint={t('admin.unixHint')} />
        <TextField label={t('admin.identities')} value={v.identities} set={identities => set({ ...v, identities })} hint={t('admin.identitiesHint')} />
        <SelectField label={t('account.role')} value={v.role} set={role => set({ ...v, role })} options={(['user', 'operator', 'admin'] as const).map(k => ({ value: k, text: t(`role.${k}`) }))} />
        <CheckField label={t('admin.disabled')} value={v.disabled} set={disabled => set({ ...v, disabled })} />
      </>
    ),
    same: v => ({ cli: command(v, p !== null), method: 'PUT', path: `/v1/users/${v.name || 'NAME'}`, body: body(v) }),
    act: async v => {
      await send('PUT', address('/v1/users/{name}', { name: v.name }), body(v));
      notify(t('admin.saved', { name: v.name }));
      done();
    },
  });
}

function setPassword(name: string, done: () => void): void {
  edit<string>({
    title: t('admin.resetTitle', { name }), yes: t('action.save'), first: '',
    form: (v, set) => <TextField label={t('account.fresh')} value={v} set={set} type="password" autocomplete="new-password" hint={t('admin.resetHint')} required />,
    same: () => ({ cli: `acequia user passwd ${quote(name)}`, method: 'PUT', path: `/v1/users/${name}/password`, body: { password: '…' } }),
    act: async password => {
      await send('PUT', address('/v1/users/{name}/password', { name }), { password });
      notify(t('admin.passwordSet', { name }));
      done();
    },
  });
}

function removePerson(name: string, done: () => void): void {
  ask({
    title: t('admin.removePerson', { name }), yes: t('admin.remove'), danger: true,
    body: <SameFold actions={[{ cli: `acequia user remove ${quote(name)}`, method: 'DELETE', path: `/v1/users/${name}` }]} />,
    act: async () => {
      await send('DELETE', address('/v1/users/{name}', { name }));
      done();
    },
  });
}

function endLogins(name: string, logins: Login[], done: () => void): void {
  const ids = logins.map(l => l.id);
  ask({
    title: t('admin.endLoginsTitle', { name }), yes: t('admin.endLogins'), danger: true,
    body: <SameFold actions={[{ cli: `acequia session revoke ${ids.join(' ')}`, method: 'DELETE', path: `/v1/sessions/${ids[0]}` }]} />,
    act: async () => {
      for (const id of ids) await send('DELETE', address('/v1/sessions/{name}', { name: id }));
      notify(t('admin.loginsEnded', { name }));
      done();
    },
  });
}

const isOf = (p: Person) => (l: Login) =>
  !l.current && (l.identity === `own:${p.name}` || p.identities.includes(l.identity) || (l.user !== null && l.user === p.unix_user));

export function People() {
  const r = useResource('users', async s => ((await (await send('GET', '/v1/users', undefined, s)).json()) as { users: Person[] }).users);
  const logins = useResource('logins', async s => ((await (await send('GET', '/v1/sessions', undefined, s)).json()) as { sessions: Login[] }).sessions, { everyMs: 30_000 });
  const open = logins.state.value.data ?? [];
  const again = () => {
    r.refresh();
    logins.refresh();
  };
  return (
    <>
      <Card title={t('admin.people')} note={<button class="link-button" onClick={() => editPerson(null, again)}>{t('admin.newPerson')}</button>} flush>
        <Loaded of={r.state.value} retry={r.refresh}>
          {rows => (rows.length === 0 ? <Empty title={t('admin.noPeople')} /> : (
            <table>
              <thead><tr><th scope="col">{t('account.user')}</th><th scope="col" class="wide-only">{t('account.name')}</th><th scope="col">{t('account.role')}</th>
                <th scope="col" class="wide-only">{t('admin.unix')}</th><th scope="col" class="wide-only">{t('account.identity')}</th><th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th></tr></thead>
              <tbody>
                {rows.map(p => {
                  const own = open.filter(isOf(p));
                  return (
                    <tr key={p.name}>
                      <td class="strong">{p.name} {p.disabled && <span class="pill error">{t('admin.disabledShort')}</span>}</td><td class="wide-only">{p.full_name}</td>
                      <td>{t(`role.${p.role}` as TextKey)}</td><td class="wide-only">{p.unix_user || <span class="warn">{t('admin.notMapped')}</span>}</td>
                      <td class="wide-only cut">{[...(p.has_password ? [t('admin.hasPassword')] : []), ...p.identities].join(', ')}</td>
                      <td class="num"><button class="button" onClick={() => editPerson(p, again)}>{t('admin.change')}</button>{' '}
                        <Menu label={t('jobs.actions')} button="…" items={[
                          { text: t('admin.resetPassword'), act: () => setPassword(p.name, again) },
                          { text: t('admin.endLogins'), act: () => endLogins(p.name, own, again), disabled: own.length === 0 },
                          { text: t('admin.remove'), act: () => removePerson(p.name, again), danger: true },
                        ]} /></td>
                    </tr>
                  );
                })}
              </tbody>
            </table>
          ))}
        </Loaded>
      </Card>
      <Card title={t('admin.sessions')} flush>
        <Loaded of={logins.state.value} retry={logins.refresh}>
          {rows => (rows.length === 0 ? <Empty title={t('admin.noSessions')} /> : (
            <table>
              <thead><tr><th scope="col">{t('account.identity')}</th><th scope="col">{t('admin.unix')}</th><th scope="col" class="wide-only">{t('account.where')}</th><th scope="col">{t('account.seen')}</th>
                <th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th></tr></thead>
              <tbody>
                {rows.map(l => (
                  <tr key={l.id}>
                    <td class="cut">{l.identity} {l.current && <span class="pill accent">{t('account.this')}</span>}</td><td>{l.user ?? <span class="warn">{t('admin.notMapped')}</span>}</td>
                    <td class="wide-only cut" title={l.agent ?? ''}>{f.host(l.from)}</td><td>{f.moment(l.seen_ms)}</td>
                    <td class="num">{!l.current && <button class="button danger" onClick={() => endLogins(l.identity, [l], again)}>{t('account.end')}</button>}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          ))}
        </Loaded>
      </Card>
    </>
  );
}
