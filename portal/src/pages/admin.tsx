// For administrators: projects and quotas, people, tokens and the line that lets a node join, the rules of sharing, who did what.
import { useState } from 'preact/hooks';
import { address, call, send } from '../api/client';
import { useResource } from '../api/resource';
import { may } from '../api/session';
import type { AuditRecord, Project } from '../api/schema';
import { Card, Tabs } from '../components/basics';
import { DaemonLog } from '../components/daemon-log';
import { ask } from '../components/dialog';
import { edit } from '../components/edit';
import { CheckField, TextField } from '../components/form';
import { Grid, type Column } from '../components/grid';
import { Copyable, quote, SameFold, type Same } from '../components/same';
import { Empty, Failed, Loaded } from '../components/states';
import { notify } from '../components/toast';
import * as f from '../lib/format';
import { t } from '../lib/i18n';
import { go } from '../lib/router';
import type { PageProps } from '../shell/pages';
import { Backups } from './admin-backups';
import { Policy } from './admin-policy';
import { PageTop } from '../shell/shell';
import { People } from './people';
import { Entities, KINDS } from './admin-entities';

type Tab = 'projects' | 'partitions' | 'qos' | 'reservations' | 'people' | 'join' | 'policy' | 'backups' | 'audit';
const TABS: Tab[] = ['projects', 'partitions', 'qos', 'reservations', 'people', 'join', 'policy', 'backups', 'audit'];
const shown = () => TABS.filter(k => k !== 'people' || may('users'));

export default function AdminPage({ params }: PageProps) {
  const tab = (shown() as string[]).includes(params['tab'] ?? '') ? (params['tab'] as Tab) : 'projects';
  return (
    <>
      <PageTop title={t('nav.admin')} />
      <Tabs label={t('nav.admin')} chosen={tab} choose={k => go(`/admin/${k}`, true)} tabs={shown().map(k => ({ key: k, text: t(`admin.${k}`) }))} />
      <div class="stack"><span />
        {tab === 'projects' && <Projects />}
        {(tab === 'partitions' || tab === 'qos' || tab === 'reservations') && <Entities key={tab} kind={KINDS[tab]} />}
        {tab === 'people' && <People />}
        {tab === 'join' && <Join />}
        {tab === 'policy' && <Policy />}
        {tab === 'backups' && <Backups />}
        {tab === 'audit' && <><Audit /><DaemonLog title={t('node.controllerLog')} path="/v1/log" /></>}
      </div>
    </>
  );
}

// --- projects ---

interface ProjectForm {
  name: string;
  parent: string;
  quota: string;
  limit: string;
  weight: string;
  members: string;
  shared: boolean;
}

const list = (text: string) => text.split(/[\s,]+/).filter(Boolean);
const milli = (text: string) => Math.round(Number(text) * 1000);

function projectBody(v: ProjectForm): Record<string, unknown> {
  return {
    parent: v.parent.trim() || null, quota_milligpu: milli(v.quota || '0'), limit_milligpu: v.limit.trim() ? milli(v.limit) : null, has_limit: v.limit.trim() !== '',
    weight_milli: v.weight.trim() ? milli(v.weight) : null, has_weight: v.weight.trim() !== '', members: list(v.members), shared_logs: v.shared,
  };
}

function projectSame(v: ProjectForm, exists: boolean): Same {
  const members = list(v.members);
  const cli = `acequia project ${exists ? 'edit' : 'create'} ${quote(v.name || 'NAME')} --quota ${v.quota || '0'}${v.parent.trim() ? ` --parent ${quote(v.parent.trim())}` : ''}${v.limit ? ` --limit ${v.limit}` : ''}${v.weight ? ` --weight ${v.weight}` : ''}${members.length ? ` --members ${members.join(',')}` : ''}`;
  return { cli, method: 'PUT', path: `/v1/projects/${v.name || 'NAME'}`, body: projectBody(v) };
}

function editProject(p: Project | null, done: () => void): void {
  const gpus = (n: number | null | undefined) => (n === null || n === undefined ? '' : String(n / 1000));
  edit<ProjectForm>({
    title: p ? t('admin.changeProject', { name: p.name ?? '' }) : t('admin.newProject'), yes: t('action.save'),
    first: { name: p?.name ?? '', parent: p?.parent ?? '', quota: gpus(p?.quota_milligpu ?? 0), limit: p?.has_limit ? gpus(p.limit_milligpu) : '', weight: p?.has_weight ? gpus(p.weight_milli) : '',
      members: (p?.members ?? []).join(', '), shared: p?.shared_logs ?? false },
    form: (v, set) => (
      <>
        {!p && <TextField label={t('job.name')} value={v.name} set={name => set({ ...v, name })} required />}
        <TextField label={t('admin.parent')} value={v.parent} set={parent => set({ ...v, parent })} hint={t('admin.parentHint')} />
        <TextField label={t('admin.quota')} value={v.quota} set={quota => set({ ...v, quota })} />
        <TextField label={t('admin.limit')} value={v.limit} set={limit => set({ ...v, limit })} hint={t('admin.noneHint')} />
        <TextField label={t('admin.weight')} value={v.weight} set={weight => set({ ...v, weight })} hint={t('admin.weightHint')} />
        <TextField label={t('admin.members')} value={v.members} set={members => set({ ...v, members })} hint={t('admin.membersHint')} />
        <CheckField label={t('admin.shared')} value={v.shared} set={shared => set({ ...v, shared })} />
      </>
    ),
    same: v => projectSame(v, p !== null),
    act: async v => {
      const before = p ? { ...p, deleted_by: undefined } : {};
      const answer = (await (await send('PUT', address('/v1/projects/{name}', { name: v.name }), { ...before, ...projectBody(v), name: v.name })).json()) as { warnings: string[] };
      notify([t('admin.saved', { name: v.name }), ...(answer.warnings ?? [])].join(' '));
      done();
    },
  });
}

function removeProject(name: string, done: () => void): void {
  ask({
    title: t('admin.removeProject', { name }), yes: t('admin.remove'), danger: true,
    body: <SameFold actions={[{ cli: `acequia project delete ${quote(name)}`, method: 'DELETE', path: `/v1/projects/${name}` }]} />,
    act: async () => {
      await send('DELETE', address('/v1/projects/{name}', { name }));
      done();
    },
  });
}

const UNLIMITED = 1_000_000_000;  // of the project that is there before others are made
const DEPTH_MOST = 8;
/** How many departments a project is under. */
function depth(rows: Project[], p: Project): number {
  let n = 0;
  for (let up = p; up.parent && n < DEPTH_MOST; n++) {
    const next = rows.find(x => x.name === up.parent);
    if (!next) break;
    up = next;
  }
  return n;
}

// Departments with what is in them right below.
function tree(rows: Project[], under: string | null = null, level = 0): Project[] {
  const known = new Set(rows.map(p => p.name));
  const here = rows.filter(p => (under === null ? !p.parent || !known.has(p.parent) : p.parent === under));
  return level > DEPTH_MOST ? [] : here.flatMap(p => [p, ...tree(rows, p.name ?? '', level + 1)]);
}

function Projects() {
  const r = useResource('projects', async s => ((await call('GET /v1/projects', { signal: s })) as { projects: Project[] }).projects);
  return (
    <Card title={t('admin.projects')} note={<button class="link-button" onClick={() => editProject(null, r.refresh)}>{t('admin.newProject')}</button>} flush>
      <Loaded of={r.state.value} retry={r.refresh}>
        {rows => (
          <table>
            <thead><tr><th scope="col">{t('job.project')}</th><th scope="col" class="num">{t('admin.quota')}</th><th scope="col" class="num">{t('admin.limit')}</th>
              <th scope="col" class="wide-only">{t('admin.members')}</th><th scope="col"><span class="visually-hidden">{t('jobs.actions')}</span></th></tr></thead>
            <tbody>
              {tree(rows).map(p => (
                <tr key={p.name}>
                  <td class="strong">{'\u2003'.repeat(depth(rows, p))}{p.name}{p.deleted_by && <span class="pill warning">{t('admin.removing')}</span>}</td>
                  <td class="num">{(p.quota_milligpu ?? 0) >= UNLIMITED ? t('admin.unlimited') : f.gpus(p.quota_milligpu ?? 0)}</td>
                  <td class="num">{p.has_limit ? f.gpus(p.limit_milligpu ?? 0) : '–'}</td>
                  <td class="wide-only">{(p.members ?? []).join(', ') || <span class="muted">{t('admin.everybody')}</span>}</td>
                  <td><div class="row-actions"><button class="button" onClick={() => editProject(p, r.refresh)}>{t('admin.change')}</button>
                    <button class="button danger" onClick={() => removeProject(p.name ?? '', r.refresh)}>{t('admin.remove')}</button></div></td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </Loaded>
    </Card>
  );
}

// --- nodes that join ---

function Join() {
  const [made, setMade] = useState('');
  const [problem, setProblem] = useState('');
  const status = useResource('status', s => call('GET /v1/status', { signal: s }) as Promise<{ listen: string | null }>);
  const make = async () => {
    setProblem('');
    try {
      setMade(((await (await send('POST', '/v1/tokens', { kind: 'agent', ttl_s: 3600 })).json()) as { token: string }).token);
    } catch (e) {
      setProblem(String((e as Error).message));
    }
  };
  const listen = status.state.value.data?.listen;
  return (
    <Card title={t('admin.join')}>
      <div class="stack">
        <p>{t('admin.joinText')}</p>
        {status.state.value.data && !listen && <div class="banner warning">{t('admin.noListen')}</div>}
        <div><button class="button primary" disabled={!listen} onClick={() => void make()}>{t('admin.makeJoin')}</button></div>
        <SameFold actions={[{ cli: 'acequia token create', method: 'POST', path: '/v1/tokens', body: { kind: 'agent', ttl_s: 3600 } }]} />
        {problem && <Failed text={problem} />}
        {made && <><p class="muted">{t('admin.joinOnce')}</p><Copyable text={`umask 077; printf %s ${made} > join.token\nacequia agent --join ${listen} --token-file join.token`} /></>}
      </div>
    </Card>
  );
}

// --- who did what ---

const AUDITED = 2000;
function columns(): Column<AuditRecord>[] {
  return [
    { key: 'at', title: t('job.time'), width: 150, cell: r => f.moment(r.at_ms ?? 0), hint: r => f.fullMoment(r.at_ms ?? 0) },
    { key: 'who', title: t('job.user'), width: 100, cell: r => r.who ?? '–' },
    { key: 'from', title: t('account.where'), width: 130, wide: true, cell: r => r.from },
    { key: 'what', title: t('admin.what'), cell: r => <code>{r.what}</code>, hint: r => r.what ?? '' },
    { key: 'on', title: t('admin.on'), wide: true, cell: r => r.on ?? '', hint: r => r.on ?? '' },
    { key: 'status', title: t('admin.result'), width: 80, num: true, cell: r => <span class={(r.status ?? 0) >= 400 ? 'bad' : undefined}>{r.status}</span> },
  ];
}

function Audit() {
  const [typed, setTyped] = useState('');
  const r = useResource('audit', async s => ((await call('GET /v1/audit', { query: { limit: AUDITED }, signal: s })) as { records: AuditRecord[] }).records, { everyMs: 10_000 });
  return (
    <Loaded of={r.state.value} retry={r.refresh}>
      {all => {
        const rows = all.filter(x => `${x.who} ${x.from} ${x.what} ${x.on}`.toLowerCase().includes(typed.toLowerCase()));
        return (
          <>
            <div class="tools"><input class="input search" type="search" aria-label={t('admin.searchAudit')} placeholder={t('admin.searchAudit')} value={typed} onInput={e => setTyped(e.currentTarget.value)} /></div>
            <Grid label={t('admin.audit')} columns={columns()} total={rows.length} row={i => rows[i]} id={x => `${x.at_ms}/${x.what}/${x.on}/${all.indexOf(x)}`} height="calc(100vh - 210px)" empty={<Empty title={t('admin.noAudit')} />} />
          </>
        );
      }}
    </Loaded>
  );
}
