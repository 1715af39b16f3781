// The frame around every page: navigation, title, search, who is logged in, and whether what is shown is live.
import { signal } from '@preact/signals';
import type { ComponentChildren, ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { liveState, liveStatus, lostAt } from '../api/live';
import { loginNeeded, logout, may, me } from '../api/session';
import { CommandBox, commandOpen } from '../components/command';
import { Questions } from '../components/dialog';
import { FolderTerminals } from '../components/folder-terminal';
import { MenuIcon, SearchIcon, Waves } from '../components/icons';
import { Menu, type MenuItem } from '../components/menu';
import { Empty, Failed, Loading } from '../components/states';
import { notifyError, Toasts } from '../components/toast';
import * as f from '../lib/format';
import { chooseLanguage, language, LANGUAGES, t, type Language, type TextKey } from '../lib/i18n';
import { location, match } from '../lib/router';
import { theme, type Theme } from '../lib/theme';
import { PAGES, type Page, type PageProps } from './pages';

const menuOpen = signal(false);

function found(path: string): { page: Page; params: Record<string, string> } | null {
  for (const page of PAGES) {
    const params = match(page.path, path);
    if (params) return { page, params };
  }
  return null;
}

function count(page: Page): string {
  const s = liveStatus.value;
  if (!s) return '';
  if (page.path === '/jobs') return f.number((s.jobs['RUNNING'] ?? 0) + (s.jobs['PENDING'] ?? 0) + (s.jobs['STARTING'] ?? 0));
  if (page.path === '/alerts') return s.alerts?.open ? f.number(s.alerts.open) : '';
  return page.path === '/nodes' ? f.number(s.nodes.total) : '';
}

function Nav({ current }: { current: string }) {
  const sections: Array<['work' | 'cluster', TextKey | null]> = [['work', null], ['cluster', 'nav.cluster']];
  return (
    <nav class="nav" aria-label={t('nav.label')} id="nav">
      <a class="brand" href="/"><Waves />Acequia</a>
      {sections.map(([section, title]) => (
        <div key={section}>
          {title && <h2>{t(title)}</h2>}
          <ul>
            {PAGES.filter(p => p.section === section && (!p.needs || may(p.needs))).map(p => (
              <li key={p.path}>
                <a href={p.path} aria-current={p.path === current ? 'page' : undefined} onClick={() => (menuOpen.value = false)}>
                  {t(p.title)}<span class="count">{count(p)}</span>
                </a>
              </li>
            ))}
          </ul>
        </div>
      ))}
      <div class="nav-foot"><Connection /></div>
    </nav>
  );
}

function Connection() {
  const s = liveState.value;
  const text: TextKey = s === 'live' ? 'live.live' : s === 'lost' ? 'live.lost' : 'live.connecting';
  return <div class="connection" data-state={s} role="status"><i aria-hidden="true" />{t(text)}</div>;
}

function initials(name: string): string {
  return name.split(/[\s._-]+/).filter(Boolean).map(w => w[0]!).slice(0, 2).join('').toUpperCase();
}

function Account() {
  const m = me.value;
  const themes: Theme[] = ['system', 'light', 'dark'];
  const items: MenuItem[] = [
    { text: <span><b>{m?.full_name ?? m?.user}</b><br /><span class="muted small">{m && t(`role.${m.role}`)}</span></span>, href: '/account' },
    ...themes.map((k, i) => ({ text: t(`theme.${k}`), checked: theme.value === k, divided: i === 0, act: () => (theme.value = k) })),
    ...Object.entries(LANGUAGES).map(([k, name], i) => ({
      text: name, checked: language.value === k, divided: i === 0, act: () => void chooseLanguage(k as Language),
    })),
    ...(m?.via === 'session' ? [{ text: t('action.logout'), divided: true, act: () => void logout().catch(notifyError) }] : []),
  ];
  return <Menu label={t('nav.account')} button={initials(m?.full_name ?? m?.user ?? '?')} buttonClass="avatar" items={items} />;
}

// What the page puts into the bar: its title, beside it, and its actions.
interface Top {
  title: ComponentChildren;
  beside?: ComponentChildren;
  actions?: ComponentChildren;
}

/** The bar at the top of a page. Every page begins with one. */
export function PageTop({ title, beside, actions }: Top) {
  useEffect(() => {
    document.title = typeof title === 'string' ? `${title} · Acequia` : 'Acequia';
  });
  return (
    <header class="top">
      <button class="button icon menu-button" aria-label={t('nav.label')} aria-expanded={menuOpen.value} aria-controls="nav"
        onClick={() => (menuOpen.value = !menuOpen.value)}><MenuIcon /></button>
      <div class="top-title"><h1>{title}</h1>{beside}</div>
      <div class="top-actions">
        <button class="search-button" onClick={() => (commandOpen.value = true)}>
          <span>{t('search.short')}</span><kbd aria-hidden="true">{/Mac|iPhone/.test(navigator.platform) ? '⌘ K' : 'Ctrl K'}</kbd><SearchIcon />
        </button>
        {actions ?? <a class="button primary wide-only" href="/new">{t('nav.new')}</a>}
        <Account />
      </div>
    </header>
  );
}

function Lost() {
  const [, again] = useState(0);
  const since = lostAt.value;
  useEffect(() => {
    if (!since) return undefined;
    const timer = setInterval(() => again(n => n + 1), 1000);
    return () => clearInterval(timer);
  }, [since]);
  const ms = Date.now() - since;
  if (!since || ms < 3000) return null;
  return <div class="banner warning" role="status">{t('live.stale', { span: f.span(ms) })}</div>;
}

const modules = new Map<Page, ComponentType<PageProps>>();

function PageBody({ page, params }: { page: Page; params: Record<string, string> }) {
  const [, drawn] = useState(0);
  const [error, setError] = useState('');
  const Module = modules.get(page);
  const load = () => {
    setError('');
    page.load().then(m => { modules.set(page, m.default); drawn(n => n + 1); }, e => setError(String(e)));
  };
  useEffect(() => {
    if (!Module) load();
  }, [page]);
  if (Module) return <Module key={JSON.stringify(params)} params={params} />;
  return (
    <>
      <PageTop title={t(page.title)} />
      {error ? <Failed text={t('state.notLoaded')} retry={load} /> : <div class="card"><Loading lines={6} /></div>}
    </>
  );
}

function NotFound() {
  return (
    <>
      <PageTop title={t('state.noPage')} />
      <Empty title={t('state.noPageText')}><a href="/">{t('nav.overview')}</a></Empty>
    </>
  );
}

export function Shell({ login: Login }: { login: ComponentType }) {
  if (loginNeeded.value) return <Login />;
  const here = found(location.value.path);
  return (
    <div class="shell" data-menu={menuOpen.value ? 'open' : undefined} key={language.value}>
      <a class="skip" href="#main" onClick={e => { e.preventDefault(); document.getElementById('main')?.focus(); }}>{t('nav.skip')}</a>
      <Nav current={here?.page.under ?? here?.page.path ?? ''} />
      {menuOpen.value && <button class="nav-shade" aria-label={t('action.close')} onClick={() => (menuOpen.value = false)} />}
      <main class="main" id="main" tabIndex={-1}>
        <Lost />
        {here?.page.needs && me.value && !may(here.page.needs) ? <><PageTop title={t(here.page.title)} /><Empty title={t('state.notAllowed')}><a href="/">{t('nav.overview')}</a></Empty></>
          : here ? <PageBody key={here.page.path} page={here.page} params={here.params} /> : <NotFound />}
      </main>
      <CommandBox />
      <Questions />
      <FolderTerminals />
      <Toasts />
    </div>
  );
}
