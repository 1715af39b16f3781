// Who is logged in. A controller that knows no sessions yet (the unix socket, an earlier release) tells the user by
// its status: then there is nothing to log in to or out of.
import { computed, signal } from '@preact/signals';
import { t } from '../lib/i18n';
import { match } from '../lib/router';
import { address, ApiError, send, whenUnauthorized } from './client';

export interface Me {
  user: string;
  identity?: string | null;
  full_name: string | null;
  role: 'user' | 'operator' | 'admin';
  may_submit: boolean;
  projects: Array<{ name: string; lead: boolean }>;
  via: 'socket' | 'token' | 'session';
  capabilities: string[];
}

export interface LoginMethods {
  cluster: string;
  methods: string[];
  providers: Array<{ name: string; title: string }>;
}

export const me = signal<Me | null>(null);
/** Not logged in: the login page is shown, and afterwards the page that was asked for. */
export const loginNeeded = signal(false);
export const loginError = signal('');
export const admin = computed(() => me.value?.role === 'admin');

export const may = (capability: string): boolean => me.value?.capabilities.includes(capability) ?? false;

/** Whether the person may act on a job of this user and project. */
export function mayAct(user: string, project: string): boolean {
  const m = me.value;
  if (!m) return false;
  return m.user === user || may('jobs') || m.projects.some(p => p.lead && p.name === project);
}

whenUnauthorized(() => {
  me.value = null;
  loginNeeded.value = true;
});

const ALL = ['submit', 'jobs', 'nodes', 'reservations', 'projects', 'policy', 'tokens', 'audit', 'reload'];

async function fromStatus(): Promise<Me> {
  const s = (await (await send('GET', '/v1/status')).json()) as { user: string; admin: boolean };
  return { user: s.user, full_name: null, role: s.admin ? 'admin' : 'user', may_submit: true, projects: [], via: 'socket',
    capabilities: s.admin ? ALL : ['submit'] };
}

export async function loadMe(): Promise<void> {
  try {
    me.value = (await (await send('GET', '/v1/me')).json()) as Me;
  } catch (e) {
    if (e instanceof ApiError && e.status === 404) me.value = await fromStatus();
    else throw e;
  }
  loginNeeded.value = false;
}

export async function loginMethods(): Promise<LoginMethods> {
  return (await (await send('GET', '/v1/login')).json()) as LoginMethods;
}

export async function login(method: string, user: string, password: string): Promise<void> {
  await send('POST', '/v1/login', { method, user, password });
  await loadMe();
}

export async function logout(): Promise<void> {
  await send('POST', '/v1/logout', {});
  me.value = null;
  loginNeeded.value = true;
}

const NEXT = 'acequia.next';

/** Goes to a provider's login page. The page to come back to stays in this tab: no address decides it. */
export async function loginAt(provider: string): Promise<void> {
  const answer = (await (await send('POST', address('/v1/login/oidc/{name}', { name: provider }))).json()) as { url: string };
  sessionStorage.setItem(NEXT, location.pathname + location.search);
  location.assign(answer.url);
}

function takeNext(): string {
  const next = sessionStorage.getItem(NEXT) ?? '/';
  sessionStorage.removeItem(NEXT);
  return next.startsWith('/') && !next.startsWith('//') && !next.startsWith('/login/') ? next : '/';
}

/** Back from a provider: /login/NAME/callback?code=…&state=… */
async function finishLogin(provider: string): Promise<void> {
  const query = new URLSearchParams(location.search);
  const code = query.get('code'), state = query.get('state'), iss = query.get('iss'), refused = query.get('error');
  history.replaceState(null, '', takeNext());
  if (!code || !state) {
    loginError.value = refused === 'access_denied' ? t('login.denied') : t('login.failed');
    return;
  }
  await attempt(() => send('POST', address('/v1/login/oidc/{name}/finish', { name: provider }), iss ? { code, state, iss } : { code, state }));
}

async function attempt(act: () => Promise<unknown>): Promise<void> {
  try {
    await act();
  } catch (e) {
    loginError.value = e instanceof Error ? e.message : String(e);
  }
}

/** Takes a one-time code (`#code=…`) or a provider's answer out of the address. */
export async function takeCode(): Promise<void> {
  const back = match('/login/:provider/callback', location.pathname);
  if (back) return finishLogin(back['provider'] ?? '');
  const code = new URLSearchParams(location.hash.slice(1)).get('code');
  if (!code) return;
  history.replaceState(null, '', location.pathname + location.search);
  await attempt(() => send('POST', '/v1/login/code', { code }));
}
