// The login page: what the cluster offers, and afterwards the page that was asked for.
import { useEffect, useState } from 'preact/hooks';
import { errorText } from '../api/client';
import { login, loginAt, loginError, loginMethods, type LoginMethods } from '../api/session';
import { Tabs } from '../components/basics';
import { TextField } from '../components/form';
import { Waves } from '../components/icons';
import { Failed, Loading } from '../components/states';
import { chooseLanguage, language, LANGUAGES, t, type Language } from '../lib/i18n';

export function Login() {
  const [offered, setOffered] = useState<LoginMethods | null>(null);
  const [failed, setFailed] = useState('');
  const load = () => {
    setFailed('');
    loginMethods().then(setOffered, e => setFailed(errorText(e)));
  };
  useEffect(load, []);
  useEffect(() => {
    document.title = `${t('login.title')} · Acequia`;
  });
  return (
    <main class="login" key={language.value}>
      <div class="card">
        <div class="brand"><Waves />Acequia</div>
        {failed ? <Failed text={failed} retry={load} /> : offered ? <Form offered={offered} /> : <Loading />}
        <div class="row small">
          {Object.entries(LANGUAGES).map(([k, name]) => (
            <button key={k} class="link-button" lang={k} aria-current={language.value === k ? 'true' : undefined} onClick={() => void chooseLanguage(k as Language)}>{name}</button>
          ))}
        </div>
      </div>
    </main>
  );
}

function Form({ offered }: { offered: LoginMethods }) {
  const passwords = offered.methods.filter(m => m === 'own' || m === 'pam');
  const [method, setMethod] = useState(passwords[0] ?? '');
  const [user, setUser] = useState('');
  const [password, setPassword] = useState('');
  const [problem, setProblem] = useState(loginError.value);
  const [busy, setBusy] = useState(false);
  const submit = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    setProblem('');
    try {
      await login(method, user, password);
      loginError.value = '';
    } catch (x) {
      setProblem(errorText(x));
      setPassword('');
    }
    setBusy(false);
  };
  const leave = async (provider: string) => {
    setBusy(true);
    setProblem('');
    try {
      await loginAt(provider);
    } catch (x) {
      setProblem(errorText(x));
      setBusy(false);
    }
  };
  return (
    <>
      <h1>{t('login.to', { cluster: offered.cluster })}</h1>
      {offered.providers.map(p => (
        <button key={p.name} class="button primary" type="button" disabled={busy} onClick={() => void leave(p.name)}>{t('login.with', { name: p.title })}</button>
      ))}
      {passwords.length > 1 && <Tabs label={t('login.how')} chosen={method} choose={setMethod} tabs={passwords.map(m => ({ key: m, text: t(m === 'pam' ? 'login.pam' : 'login.own') }))} />}
      {passwords.length > 0 && (
        <form class="stack" onSubmit={e => void submit(e)}>
          <TextField label={t('login.user')} value={user} set={setUser} autocomplete="username" required />
          <TextField label={t('login.password')} value={password} set={setPassword} type="password" autocomplete="current-password" required problem={(user && problem) || undefined} />
          <button class="button primary" type="submit" disabled={busy}>{t('login.yes')}</button>
        </form>
      )}
      {(passwords.length === 0 || (problem && !user)) && problem && <div class="bad" role="alert">{problem}</div>}
      <p class="muted small">{t('login.link')} <code>acequia portal</code></p>
    </>
  );
}
