// The job table: live and finished jobs in one, arrays as one row, filters in the address, actions on many at once.
import { useEffect, useMemo, useState } from 'preact/hooks';
import { act, allowed, applies, type Verb } from '../actions/jobs';
import { liveShares, useTopics } from '../api/live';
import { useResource } from '../api/resource';
import { dropDraft, dropView, keepView, newName, views as loadViews } from '../api/saved';
import { me } from '../api/session';
import type { JobRow } from '../api/types';
import { Progress, StateText } from '../components/basics';
import { Elapsed } from '../components/elapsed';
import { Grid, type Column, type Sort } from '../components/grid';
import { DownIcon } from '../components/icons';
import { Menu } from '../components/menu';
import { SameFold, quote } from '../components/same';
import { startText } from '../components/start';
import { Empty, Failed, Loading } from '../components/states';
import { ask } from '../components/dialog';
import { TextField } from '../components/form';
import * as f from '../lib/format';
import { language, t, tWord, type TextKey } from '../lib/i18n';
import { reasonText } from '../lib/phrases';
import { go, jobPath, location, setQuery } from '../lib/router';
import { PAGES } from '../shell/pages';
import { PageTop } from '../shell/shell';
import { OpenLink } from './job-programs';
import { DraftRows } from './jobs-drafts';
import { DRAFTS, JobRows, type Filter } from './jobs-data';

const LIVE = 'PENDING,STARTING,RUNNING,SUSPENDED,COMPLETING';
const FAILED = 'FAILED,TIMEOUT,OUT_OF_MEMORY,NODE_FAIL,PREEMPTED,DEADLINE';
const BUILT_IN: Array<{ name: TextKey; query: string }> = [
  { name: 'jobs.all', query: '' },
  { name: 'jobs.mine', query: 'mine=1' },
  { name: 'jobs.live', query: `state=${LIVE}` },
  { name: 'jobs.waiting', query: 'state=PENDING' },
  { name: 'jobs.failed', query: `state=${FAILED}` },
  { name: 'jobs.drafts', query: `state=${DRAFTS}` },
];
const VERBS: Verb[] = ['cancel', 'hold', 'release', 'requeue', 'resubmit'];
const SEARCH_WAIT_MS = 250;

function filterOf(q: URLSearchParams): Filter {
  const sort = q.get('sort') ?? '-id';
  return {
    search: q.get('search') ?? '', state: q.get('state') ?? '', user: q.get('user') ?? '', project: q.get('project') ?? '', mine: q.get('mine') === '1',
    where: q.get('where') ?? '', elements: q.get('elements') === '1', sort: { column: sort.replace(/^-/, ''), down: sort.startsWith('-') },
  };
}

function columns(): Column<JobRow>[] {
  return [
    { key: 'id', title: t('job.id'), width: 64, sort: 'id', cell: r => (r.draft ? <span class="muted">–</span> : <a class="muted" href={jobPath(r.label)}>{r.label}</a>) },
    { key: 'name', title: t('job.name'), sort: 'name', hint: r => r.name, cell: r => <Name r={r} /> },
    { key: 'user', title: t('job.user'), width: 84, sort: 'user', wide: true, hint: r => r.user, cell: r => r.user },
    { key: 'project', title: t('job.project'), width: 92, sort: 'project', wide: true, hint: r => r.project, cell: r => r.project },
    { key: 'state', title: t('job.stateTitle'), width: 126, sort: 'state', hint: r => reasonText(r.ending ?? r.reason), cell: r => (r.draft ? <span class="muted">{t('jobs.notSubmitted')}</span> : <StateText state={r.state} held={r.hold} />) },
    { key: 'gpus', title: t('job.gpus'), width: 56, num: true, wide: true, sort: 'gpus_milli', cell: r => (r.gpus_milli ? f.gpus(r.gpus_milli) : <span class="muted">–</span>) },
    { key: 'cpus', title: t('job.cpus'), width: 52, num: true, wide: true, sort: 'cpus', cell: r => (r.cpus ? f.number(r.cpus) : <span class="muted">–</span>) },
    { key: 'submitted', title: t('job.submitted'), width: 92, num: true, wide: true, sort: 'submit_ms', hint: r => f.fullMoment(r.submit_ms), cell: r => f.moment(r.submit_ms) },
    { key: 'time', title: t('job.time'), width: 84, num: true, wide: true, sort: 'elapsed_ms', cell: r => <Elapsed row={r} /> },
    { key: 'progress', title: t('job.progress'), width: 104, wide: true, cell: r => (r.state === 'RUNNING' ? <Progress milli={r.progress_milli} /> : '') },
    { key: 'where', title: t('job.whereOrWhy'), wide: true, hint: whereText, cell: r => <span class={r.state === 'PENDING' ? 'muted' : undefined}>{whereText(r)}</span> },
  ];
}

/** Where a row leads: a job's page, or the composer with the draft in it. */
const pathOf = (r: JobRow) => (r.draft ? `/new?draft=${encodeURIComponent(r.draft)}` : jobPath(r.label));

function whereText(r: JobRow): string {
  if (r.draft) return t('jobs.draftHint');
  if (r.state === 'PENDING') return [...new Set([startText(r), reasonText(r.reason)])].filter(Boolean).join(' · ');
  if (r.state === 'FAILED' && r.exit_code) return t('job.exit', { code: String(r.exit_code) });
  return r.nodes ?? reasonText(r.reason);
}

function Name({ r }: { r: JobRow }) {
  return (
    <>
      <a class="plain strong" href={pathOf(r)}>{r.name}</a>
      {r.array && <span class="muted"> {arrayText(r)}</span>}
      {r.state === 'RUNNING' && r.urls?.map(url => <> <OpenLink key={url} url={url} name={r.name} /></>)}
      <span class="narrow-only muted"> {r.user} · {r.project}</span>
    </>
  );
}

function arrayText(r: JobRow): string {
  const s = r.array!.states;
  const parts = Object.entries(s).filter(([, n]) => n > 0).map(([state, n]) => `${f.number(n)} ${tWord('job.state', state).toLowerCase()}`);
  return `[${f.number(r.array!.elements)}] ${parts.join(', ')}`;
}

export default function JobsPage() {
  useTopics('jobs', 'shares');
  const query = location.value.query;
  const text = query.toString();
  const filter = useMemo(() => filterOf(query), [text]);
  const rows = useMemo(() => new JobRows(filter), [text]);
  const drafts = useMemo(() => new DraftRows(filter), [text]);
  const [selected, setSelected] = useState<Set<string>>(new Set());
  useEffect(() => () => drafts.stop(), [drafts]);
  useEffect(() => () => rows.stop(), [rows]);
  useEffect(() => setSelected(new Set()), [text]);
  const chosen = rows.changed.value >= 0 ? rows.rowsOf(selected) : [];
  const before = drafts.rows.value;  // they stand above the jobs
  const chosenDrafts = before.filter(r => selected.has(idOf(r)));
  const shown = useMemo(columns, [language.value]);
  const clear = () => setSelected(new Set());
  const setSort = (s: Sort) => setQuery({ sort: (s.down ? '-' : '') + s.column });
  return (
    <>
      <PageTop title={t('nav.jobs')} beside={rows.loaded.value && <span class="pill">{t('jobs.count', { n: rows.jobs.value })}</span>} />
      <Views text={text} />
      <Filters filter={filter} states={rows.states.value} />
      {chosen.length > 0 && <Bulk chosen={chosen} clear={clear} refresh={() => rows.refresh()} />}
      {chosenDrafts.length > 0 && <BulkDrafts chosen={chosenDrafts} clear={clear} refresh={() => drafts.refresh()} />}
      {!rows.loaded.value
        ? <div class="card">{rows.error.value ? <Failed text={rows.error.value} retry={() => rows.refresh()} /> : <Loading lines={8} />}</div>
        : (
          <Grid label={t('nav.jobs')} columns={shown} total={before.length + rows.total.value} row={i => (i < before.length ? before[i] : rows.row(i - before.length))} id={idOf}
            need={(a, b) => rows.need(Math.max(0, a - before.length), Math.max(0, b - before.length))} open={r => go(pathOf(r))} selected={selected} select={setSelected}
            rowLabel={r => (r.draft ? t('jobs.selectDraft', { name: r.name }) : t('jobs.select', { job: r.label, name: r.name }))} sort={filter.sort} setSort={setSort}
            empty={<Empty title={text ? t('jobs.noneMatch') : t('jobs.none')}>{text ? <a href="/jobs">{t('jobs.showAll')}</a> : <code>acequia submit train.sh</code>}</Empty>} />
        )}
      {!rows.complete.value && <p class="muted small">{t('jobs.incomplete')}</p>}
    </>
  );
}

const idOf = (r: JobRow) => (r.draft ? `draft:${r.draft}` : String(r.id));

function Views({ text }: { text: string }) {
  const kept = useResource('views', loadViews);
  const views = kept.state.value.data ?? [];
  const same = (q: string) => new URLSearchParams(q).toString() === text;
  const here = views.find(v => same(v.query));
  const save = () => {
    let typed = '';
    ask({
      title: t('views.save'), yes: t('action.save'),
      body: <SaveView set={v => (typed = v)} query={text} />,
      act: async () => {
        const title = typed.trim();
        if (!title) throw new Error(t('views.needName'));
        await keepView(views.find(v => v.title === title)?.name ?? newName(), { title, query: text });
        kept.refresh();
      },
    });
  };
  const remove = () => here && ask({
    title: t('views.remove'), yes: t('action.delete'), danger: true,
    body: <><div>{here.title ?? here.name}</div><SameFold actions={[{ cli: `acequia view delete ${quote(here.title ?? here.name)}`, method: 'DELETE', path: `/v1/views/${here.name}` }]} /></>,
    act: async () => {
      await dropView(here.name);
      kept.refresh();
    },
  });
  return (
    <div class="tools">
      <div class="views" role="group" aria-label={t('views.title')}>
        {BUILT_IN.map(v => <a key={v.name} class="button quiet" href={v.query ? `/jobs?${v.query}` : '/jobs'} aria-current={same(v.query) ? 'true' : undefined}>{t(v.name)}</a>)}
        {views.map(v => <a key={v.name} class="button quiet" href={`/jobs?${v.query}`} aria-current={same(v.query) ? 'true' : undefined}>{v.title ?? v.name}</a>)}
      </div>
      {text && me.value?.may_submit && !BUILT_IN.some(v => same(v.query)) && !here && <button class="link-button" onClick={save}>{t('views.save')}</button>}
      {here && <button class="link-button" onClick={remove}>{t('views.remove')}</button>}
    </div>
  );
}

// Filters of the page as options of the command line; order and columns are chosen when it lists.
function viewOptions(query: string): string {
  const q = new URLSearchParams(query);
  const where = [q.get('where'), q.get('search') && `name=*${q.get('search')!.replace(/[ \\'"|*?]/g, '\\$&')}*`].filter(Boolean).join(' ');
  const options: Array<[string, string | null]> = [['state', q.get('state')], ['user', q.get('user')], ['project', q.get('project')], ['where', where || null]];
  return options.filter(([, v]) => v).map(([k, v]) => ` --${k} ${quote(v!)}`).join('') + (q.get('mine') ? ' --me' : '') + (q.get('elements') ? ' --elements' : '');
}

function SaveView({ set, query }: { set: (v: string) => void; query: string }) {
  const [value, setValue] = useState('');
  return (
    <>
      <TextField focus label={t('views.name')} value={value} set={v => { setValue(v); set(v); }} />
      <SameFold actions={[{ cli: `acequia view save my-view --title ${quote(value || 'TITLE')}${viewOptions(query)}`, method: 'PUT', path: '/v1/views/my-view', body: { title: value, query } },
        { cli: `acequia list --view ${quote(value || 'my-view')}`, path: '/v1/table', query: Object.fromEntries(new URLSearchParams(query)) }]} />
    </>
  );
}

function Filters({ filter, states }: { filter: Filter; states: Record<string, number> }) {
  const [typed, setTyped] = useState(filter.search);
  useEffect(() => setTyped(filter.search), [filter.search]);
  useEffect(() => {
    if (typed === filter.search) return undefined;
    const timer = setTimeout(() => setQuery({ search: typed }), SEARCH_WAIT_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  const projects = (liveShares.value?.projects ?? []).map(p => p.project);
  if (filter.project && !projects.includes(filter.project)) projects.push(filter.project);
  const all = ['PENDING', 'STARTING', 'RUNNING', 'SUSPENDED', 'COMPLETING', 'COMPLETED', 'FAILED', 'CANCELLED', 'TIMEOUT', 'OUT_OF_MEMORY', 'NODE_FAIL', 'PREEMPTED', 'DEADLINE'];
  const several = filter.state.includes(',');
  return (
    <div class="tools">
      <input class="input search" type="search" placeholder={t('jobs.search')} aria-label={t('jobs.search')} value={typed} onInput={e => setTyped(e.currentTarget.value)} />
      <select class="select" aria-label={t('job.stateTitle')} value={filter.state} onChange={e => setQuery({ state: e.currentTarget.value })}>
        <option value="">{t('jobs.anyState')}</option>
        <option value={DRAFTS}>{t('jobs.notSubmitted')}</option>
        {several && <option value={filter.state}>{filter.state === LIVE ? t('jobs.live') : filter.state === FAILED ? t('jobs.failed') : filter.state}</option>}
        {all.map(s => <option key={s} value={s}>{tWord('job.state', s)}{states[s] ? ` (${f.number(states[s]!)})` : ''}</option>)}
      </select>
      <select class="select" aria-label={t('job.project')} value={filter.project} onChange={e => setQuery({ project: e.currentTarget.value })}>
        <option value="">{t('jobs.anyProject')}</option>
        {projects.map(p => <option key={p} value={p}>{p}</option>)}
      </select>
      <WhereField value={filter.where} />
      <label class="check wide-only"><input type="checkbox" checked={filter.elements} onChange={e => setQuery({ elements: e.currentTarget.checked ? '1' : null })} />{t('jobs.elements')}</label>
    </div>
  );
}

// The filter language of the command line (acequia list --where), applied on Enter.
function WhereField({ value }: { value: string }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return (
    <input class="input wide-only" type="text" aria-label={t('jobs.where')} placeholder="gpus>=2 age>1d tag=exp1" title={t('jobs.where')} value={typed}
      onInput={e => setTyped(e.currentTarget.value)} onKeyDown={e => e.key === 'Enter' && setQuery({ where: typed })} onBlur={() => typed !== value && setQuery({ where: typed })} />
  );
}

function BulkDrafts({ chosen, clear, refresh }: { chosen: JobRow[]; clear: () => void; refresh: () => void }) {
  const drop = () =>
    ask({
      title: t('jobs.deleteDrafts', { n: chosen.length }), yes: t('action.delete'), danger: true,
      body: <SameFold actions={[{ cli: `acequia draft delete ${chosen.map(r => r.draft).join(' ')}`, method: 'DELETE', path: `/v1/drafts/${chosen[0]!.draft}` }]} />,
      act: async () => {
        for (const r of chosen) await dropDraft(r.draft!);
        clear();
        refresh();
      },
    });
  return (
    <div class="bulk" role="toolbar" aria-label={t('jobs.drafts')}>
      <span class="strong">{t('jobs.draftsSelected', { n: chosen.length })}</span>
      <button class="button danger" onClick={drop}>{t('action.delete')}</button>
      <button class="button quiet" onClick={clear}>{t('jobs.clear')}</button>
    </div>
  );
}

function Bulk({ chosen, clear, refresh }: { chosen: JobRow[]; clear: () => void; refresh: () => void }) {
  const mine = chosen.filter(allowed);
  const done = () => {
    clear();
    refresh();
  };
  const clone = PAGES.some(p => p.path === '/new');
  return (
    <div class="bulk" role="toolbar" aria-label={t('jobs.actions')}>
      <span class="strong">{t('jobs.selected', { n: chosen.length })}</span>
      {VERBS.map(v => (
        <button key={v} class={v === 'cancel' ? 'button danger' : 'button'} disabled={!mine.some(j => applies(v, j))} onClick={() => act(v, mine, done)}>
          {t(`verb.${v}` as TextKey)}
        </button>
      ))}
      {clone && chosen.length === 1 && <a class="button" href={`/new?from=${chosen[0]!.label}`}>{t('verb.clone')}</a>}
      <Menu button={<>{t('jobs.more')} <DownIcon /></>} left items={[
        { text: t('verb.suspend'), disabled: !mine.some(j => applies('suspend', j)), act: () => act('suspend', mine, done) },
        { text: t('verb.resume'), disabled: !mine.some(j => applies('resume', j)), act: () => act('resume', mine, done) },
        { text: t('jobs.copyIds'), act: () => void navigator.clipboard.writeText(chosen.map(j => j.label).join(' ')) },
      ]} />
      {mine.length < chosen.length && <span class="muted">{t('jobs.notYours', { n: chosen.length - mine.length })}</span>}
      <button class="button quiet" onClick={clear}>{t('jobs.clear')}</button>
    </div>
  );
}
