// What a person keeps with the controller: drafts of jobs, templates, views of the job table.
import { address, send } from './client';
import type { Spec } from './types';

export interface Draft {
  name: string;
  title: string | null;
  project: string | null;
  spec: Partial<Spec>;
  script: string | null;
  set_ms: number;
}

export interface Template {
  of: 'own' | 'project' | 'built_in';
  name: string;
  title: string | null;
  project: string | null;
  by: string | null;
  spec: Partial<Spec>;
  script: string | null;
  set_ms: number;
}

export interface View {
  name: string;
  title: string | null;
  query: string;
}

async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await send('GET', path, undefined, signal)).json()) as T;
}

const draftPath = (name: string) => address('/v1/drafts/{name}', { name });
const viewPath = (name: string) => address('/v1/views/{name}', { name });
const templatePath = (name: string, project?: string | null) => address('/v1/templates/{name}', { name }, { project });

/** A name for something that people know by its title. */
export function newName(): string {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
}

export const drafts = async (s?: AbortSignal): Promise<Draft[]> => (await get<{ drafts: Draft[] }>('/v1/drafts', s)).drafts;
export const draft = (name: string): Promise<Draft> => get<Draft>(draftPath(name));
export const dropDraft = (name: string): Promise<Response> => send('DELETE', draftPath(name));
/** Keeps it, over this version only unless that is null; answers the version that it has then. */
export async function keepDraft(name: string, d: { title: string; spec: Partial<Spec>; script: string }, version: string | null): Promise<string | null> {
  const answer = await send('PUT', draftPath(name), d, undefined, version ? { 'If-Match': `"${version}"` } : {});
  return answer.headers.get('ETag')?.replaceAll('"', '') ?? null;
}

export const templates = async (s?: AbortSignal): Promise<Template[]> => (await get<{ templates: Template[] }>('/v1/templates', s)).templates;
export const template = (x: Template): Promise<Template> => get<Template>(templatePath(x.name, x.project));
export const dropTemplate = (x: Template): Promise<Response> => send('DELETE', templatePath(x.name, x.project));
export const keepTemplate = (name: string, x: { title: string; project: string | null; spec: Partial<Spec>; script: string }): Promise<Response> =>
  send('PUT', templatePath(name), x);

export const views = async (s?: AbortSignal): Promise<View[]> => (await get<{ views: View[] }>('/v1/views', s)).views;
export const keepView = (name: string, v: { title: string; query: string }): Promise<Response> => send('PUT', viewPath(name), v);
export const dropView = (name: string): Promise<Response> => send('DELETE', viewPath(name));
