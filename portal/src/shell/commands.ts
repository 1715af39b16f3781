// What the command box offers everywhere: pages, jobs, nodes, projects, settings.
import { address, send } from '../api/client';
import type { JobRow, TablePage } from '../api/types';
import { liveNodes, liveShares } from '../api/live';
import { addCommands, type Command } from '../components/command';
import { may } from '../api/session';
import { chooseLanguage, LANGUAGES, t, tWord, type Language } from '../lib/i18n';
import { jobPath, nodePath } from '../lib/router';
import { theme } from '../lib/theme';
import { PAGES } from './pages';

const JOBS_SHOWN = 8;
const has = (text: string, typed: string) => text.toLowerCase().includes(typed.toLowerCase());

function pages(typed: string): Command[] {
  return PAGES.filter(p => p.section && (!p.needs || may(p.needs)) && has(t(p.title), typed))
    .map(p => ({ group: t('search.pages'), text: t(p.title), href: p.path }));
}

function jobCommand(j: JobRow): Command {
  return { group: t('search.jobs'), text: `${j.label} ${j.name}`, note: `${j.user} · ${j.project} · ${tWord('job.state', j.state)}`, href: jobPath(j.label) };
}

async function jobs(typed: string, signal: AbortSignal): Promise<Command[]> {
  if (!typed) return [];
  const answer = await send('GET', address('/v1/table', {}, { search: typed, limit: JOBS_SHOWN }), undefined, signal);
  return ((await answer.json()) as TablePage).rows.map(jobCommand);
}

function nodes(typed: string): Command[] {
  if (!typed) return [];
  return (liveNodes.value ?? []).filter(n => has(n.name, typed)).slice(0, JOBS_SHOWN)
    .map(n => ({ group: t('search.nodes'), text: n.name, note: tWord('job.state', n.state), href: nodePath(n.name) }));
}

function projects(typed: string): Command[] {
  if (!typed) return [];
  return (liveShares.value?.projects ?? []).filter(p => has(p.project, typed)).slice(0, JOBS_SHOWN)
    .map(p => ({ group: t('search.projects'), text: p.project, href: `/jobs?project=${encodeURIComponent(p.project)}` }));
}

function settings(typed: string): Command[] {
  const themes = (['system', 'light', 'dark'] as const).map(k => ({ group: t('search.settings'), text: t(`theme.${k}`), act: () => { theme.value = k; } }));
  const languages = Object.entries(LANGUAGES).map(([k, name]) => ({ group: t('search.settings'), text: name, act: () => void chooseLanguage(k as Language) }));
  return [...themes, ...languages].filter(c => has(c.text, typed));
}

export function startCommands(): void {
  for (const s of [pages, jobs, nodes, projects, settings]) addCommands(s);
}
