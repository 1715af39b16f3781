// The table of pages: address, title, place in the navigation, module (loaded when the page is first shown).
import type { ComponentType } from 'preact';
import type { TextKey } from '../lib/i18n';

export interface PageProps {
  /** Values of the names in the page's address. */
  params: Record<string, string>;
}

export interface Page {
  path: string;
  title: TextKey;
  /** Section of the navigation; not given: not in it. */
  section?: 'work' | 'cluster';
  /** The page of the navigation that is shown as current for it. */
  under?: string;
  /** Only for those with this capability. */
  needs?: string;
  load: () => Promise<{ default: ComponentType<PageProps> }>;
}

export const PAGES: Page[] = [
  { path: '/', title: 'nav.overview', section: 'work', load: () => import('../pages/overview') },
  { path: '/jobs', title: 'nav.jobs', section: 'work', load: () => import('../pages/jobs') },
  { path: '/jobs/:job', title: 'nav.job', under: '/jobs', load: () => import('../pages/job') },
  { path: '/new', title: 'nav.new', section: 'work', load: () => import('../pages/new') },
  { path: '/apps', title: 'nav.apps', section: 'work', load: () => import('../pages/apps') },
  { path: '/services', title: 'nav.services', section: 'work', load: () => import('../pages/services') },
  { path: '/services/:name', title: 'nav.service', under: '/services', load: () => import('../pages/service') },
  { path: '/clusters', title: 'nav.clusters', section: 'work', load: () => import('../pages/clusters') },
  { path: '/pools/:job', title: 'nav.pool', under: '/clusters', load: () => import('../pages/pool') },
  { path: '/files', title: 'nav.files', section: 'work', load: () => import('../pages/files') },
  { path: '/volumes', title: 'nav.volumes', section: 'work', load: () => import('../pages/volumes') },
  { path: '/volumes/:name', title: 'nav.volume', under: '/volumes', load: () => import('../pages/volumes') },
  { path: '/nodes', title: 'nav.nodes', section: 'cluster', load: () => import('../pages/nodes') },
  { path: '/nodes/:name', title: 'nav.node', under: '/nodes', load: () => import('../pages/node') },
  { path: '/alerts', title: 'nav.alerts', section: 'cluster', load: () => import('../pages/alerts') },
  { path: '/analytics', title: 'nav.analytics', section: 'cluster', load: () => import('../pages/analytics') },
  { path: '/past', title: 'nav.past', section: 'cluster', load: () => import('../pages/past') },
  { path: '/admin', title: 'nav.admin', section: 'cluster', needs: 'projects', load: () => import('../pages/admin') },
  { path: '/admin/:tab', title: 'nav.admin', under: '/admin', needs: 'projects', load: () => import('../pages/admin') },
  { path: '/device', title: 'nav.device', load: () => import('../pages/device') },
  { path: '/open', title: 'nav.open', load: () => import('../pages/open') },
  { path: '/account', title: 'nav.account', load: () => import('../pages/account') },
];
