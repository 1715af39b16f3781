// Who is logged in. A controller that knows no sessions yet (the unix socket, an earlier release) tells the user by
// its status: then there is nothing to log in to or out of.
import { computed, signal } from '@preact/signals';
import { ApiError, send, whenUnauthorized } from './client';

export interface Me {
  user: string;
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
  oidc_name: string | null;
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

/** Takes a one-time code, or an error of a provider, out of the address: `#code=…`, `#login_error=…`. */
export async function takeCode(): Promise<void> {
  const values = new URLSearchParams(location.hash.slice(1));
  const code = values.get('code'), error = values.get('login_error');
  if (!code && !error) return;
  history.replaceState(null, '', location.pathname + location.search);
  if (error) loginError.value = error;
  if (!code) return;
  try {
    await send('POST', '/v1/login/code', { code });
  } catch (e) {
    loginError.value = e instanceof Error ? e.message : String(e);
  }
}
