// Where a file is and what it is. A path is a text as the API has it: '%' is %25, bytes that are not UTF-8 are %XX.
import { ApiError, address, call } from '../api/client';
import type * as api from '../api/schema';

export type Entry = Omit<api.FileEntry, 'name'> & { name: string };
export type Listing = Omit<api.Files, 'entry' | 'entries' | 'path' | 'node' | 'home'> & { entry: Entry; entries: Entry[]; path: string; node: string; home: string };

export interface Place {
  path: string;
  node?: string | undefined;
  job?: string | undefined;
}

const LOADED_MOST = 20_000;

/** A folder with its entries, up to a number; or a file, without. */
export async function list(at: Place & { optional?: boolean }, signal?: AbortSignal): Promise<Listing> {
  let all: Listing | null = null;
  let after: string | undefined;
  do {
    const page: Listing = (await call('GET /v1/files', { query: { ...at, ...(after ? { after } : {}) }, ...(signal ? { signal } : {}) })) as Listing;
    if (all) all.entries.push(...page.entries);
    else all = page;
    all.truncated = page.truncated || page.next !== null;
    after = page.next ?? undefined;
  } while (after && all.entries.length < LOADED_MOST);
  return all;
}

export const join = (folder: string, name: string): string => `${folder === '/' ? '' : folder}/${name}`;
export const parent = (path: string): string => path.slice(0, path.lastIndexOf('/')) || '/';
export const lastPart = (path: string): string => path.slice(path.lastIndexOf('/') + 1) || '/';

/** A name that somebody types, as the API has it. */
export const typed = (name: string): string => name.replaceAll('%', '%25');
/** A name for reading. */
export const shown = (name: string): string => name.replaceAll('%25', '%');

export const contentUrl = (at: Place, view = false): string => address('/v1/files/content', {}, { ...at, view: view || undefined });
export const zipUrl = (at: Place): string => address('/v1/files/zip', {}, at);
export const pageOf = (at: Place): string => address('/files', {}, at);

export type Kind = 'image' | 'video' | 'audio' | 'notebook' | 'table' | 'text';
const KINDS: Record<string, Kind> = {
  png: 'image', jpg: 'image', jpeg: 'image', gif: 'image', webp: 'image', avif: 'image', bmp: 'image', svg: 'image',
  mp4: 'video', webm: 'video', ogv: 'video', mov: 'video', mp3: 'audio', ogg: 'audio', wav: 'audio', flac: 'audio',
  ipynb: 'notebook', csv: 'table', tsv: 'table',
};

export const extension = (name: string): string => /\.([a-z0-9]+)$/i.exec(name)?.[1]?.toLowerCase() ?? '';
export const kindOf = (name: string): Kind => KINDS[extension(name)] ?? 'text';

export interface Part {
  bytes: Uint8Array;
  first: number;
  size: number;
  version: string;
}

/** A part of a file; `last`: that many bytes at its end. */
export async function readPart(at: Place, first: number, length: number, signal?: AbortSignal): Promise<Part> {
  const answer = await fetch(contentUrl(at), { headers: { Range: `bytes=${first}-${first + length - 1}` }, signal: signal ?? null });
  if (!answer.ok) {
    const body = (await answer.json().catch(() => null)) as { error?: { code?: string; message?: string } } | null;
    throw new ApiError(answer.status, body?.error?.code ?? '', body?.error?.message ?? String(answer.status));
  }
  const bytes = new Uint8Array(await answer.arrayBuffer());
  const range = /^bytes (\d+)-\d+\/(\d+)$/.exec(answer.headers.get('Content-Range') ?? '');
  return { bytes, first: range ? Number(range[1]) : 0, size: range ? Number(range[2]) : bytes.length, version: (answer.headers.get('ETag') ?? '').replaceAll('"', '') };
}

/** Writes a piece of a file; `match`: only over this version, `create`: only where there is none. */
export async function write(at: Place, piece: BodyInit, options: { match?: string; create?: boolean; upload?: string; offset?: number; size?: number; signal?: AbortSignal } = {}): Promise<api.FileWritten> {
  const { match, create, signal, ...query } = options;
  const headers: Record<string, string> = { 'Content-Type': 'application/octet-stream' };
  if (match) headers['If-Match'] = `"${match}"`;
  if (create) headers['If-None-Match'] = '*';
  let answer: Response;
  try {
    answer = await fetch(address('/v1/files/content', {}, { ...at, ...query }), { method: 'PUT', body: piece, headers, signal: signal ?? null });
  } catch (e) {
    if (e instanceof DOMException && e.name === 'AbortError') throw e;
    throw new ApiError(0, 'ENETUNREACH', 'The controller cannot be reached.');
  }
  const body = (await answer.json().catch(() => null)) as (api.FileWritten & { error?: { code: string; message: string } }) | null;
  if (!answer.ok || !body) throw new ApiError(answer.status, body?.error?.code ?? '', body?.error?.message ?? String(answer.status));
  return body;
}
