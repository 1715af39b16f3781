// Uploads: in pieces, one file after the other. What was interrupted goes on where it stopped: the node says how much of it
// there is, also after the page was closed, because an upload is known by the file's name, size and content.
import { signal } from '@preact/signals';
import { ApiError, errorText } from '../api/client';
import { join, typed, write, type Place } from './data';

const PIECE = 2 << 20;
const PROBE = 64 << 10;
const WAIT_MS = [500, 1000, 2000, 5000, 10_000];
const RETRIES = 60;

export interface Upload {
  id: number;
  name: string;
  size: number;
  done: number;
  state: 'waiting' | 'running' | 'interrupted' | 'done' | 'failed';
  error: string;
  cancel: () => void;
}

export const uploads = signal<Upload[]>([]);
let next = 1;
let chain: Promise<void> = Promise.resolve();

function change(id: number, values: Partial<Upload>): void {
  uploads.value = uploads.value.map(u => (u.id === id ? { ...u, ...values } : u));
}

export function forgetUploads(): void {
  uploads.value = uploads.value.filter(u => u.state !== 'done' && u.state !== 'failed');
}

// FNV-1a over the beginning, the end and the time of its last change.
async function nameOf(file: File): Promise<string> {
  let low = 0x811c9dc5, high = 0xcbf29ce4;
  const add = (byte: number) => {
    low = Math.imul(low ^ byte, 0x01000193) >>> 0;
    high = Math.imul(high ^ ((byte + low) & 255), 0x01000193) >>> 0;
  };
  const parts = [await file.slice(0, PROBE).arrayBuffer(), await file.slice(Math.max(0, file.size - PROBE)).arrayBuffer(),
    new TextEncoder().encode(String(file.lastModified)).buffer];
  for (const part of parts) for (const byte of new Uint8Array(part as ArrayBuffer)) add(byte);
  return low.toString(16).padStart(8, '0') + high.toString(16).padStart(8, '0');
}

const pause = (ms: number, signal: AbortSignal) => new Promise<void>(go => {
  const timer = setTimeout(go, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); go(); }, { once: true });
});

// A controller that restarts, a node that is connected again, too much at once: worth another try.
const passes = (e: unknown): boolean => e instanceof ApiError && (e.status === 0 || e.status === 429 || e.status === 502 || e.status === 503 || e.status === 504 || e.code === 'EBUSY' || e.code === 'ESPIPE');

async function send(id: number, at: Place, file: File, signal: AbortSignal): Promise<void> {
  const upload = await nameOf(file);
  let offset = -1, tries = 0;
  for (;;) {
    try {
      // An empty piece asks where the upload stands.
      const piece = offset < 0 ? new Blob([]) : file.slice(offset, offset + PIECE);
      const answer = await write(at, piece, { upload, offset: Math.max(0, offset), size: file.size, signal });
      offset = answer.offset;
      tries = 0;
      change(id, { done: offset, state: 'running', error: '' });
      if (answer.complete) return;
    } catch (e) {
      if (signal.aborted || !passes(e) || tries >= RETRIES) throw e;
      change(id, { state: 'interrupted', error: errorText(e) });
      await pause(WAIT_MS[Math.min(tries++, WAIT_MS.length - 1)]!, signal);
      if (signal.aborted) throw e;
      offset = -1;
    }
  }
}

/** Sends a file into a folder; `after` is called when it is there. */
export function upload(folder: Place, file: File, after: () => void): void {
  const id = next++, abort = new AbortController();
  const at = { ...folder, path: join(folder.path, typed(file.name)) };
  uploads.value = [...uploads.value, { id, name: file.name, size: file.size, done: 0, state: 'waiting', error: '', cancel: () => abort.abort() }];
  chain = chain.then(async () => {
    if (abort.signal.aborted) return;
    change(id, { state: 'running' });
    await send(id, at, file, abort.signal);
    change(id, { state: 'done', done: file.size });
    after();
  }).catch((e: unknown) => {
    if (abort.signal.aborted) uploads.value = uploads.value.filter(u => u.id !== id);
    else change(id, { state: 'failed', error: errorText(e) });
  });
}
