// Calls of the API, typed by its own document (schema.ts is written by the build). Errors are ApiError with the
// controller's sentence; 401 tells the session module, which shows the login page.
import type { Routes } from './schema';

export class ApiError extends Error {
  constructor(readonly status: number, readonly code: string, message: string, readonly field: string | null = null) {
    super(message);
  }
}

/** Status 0: the controller could not be reached. */
export const isOffline = (e: unknown): boolean => e instanceof ApiError && (e.status === 0 || e.status === 502);

type Route = keyof Routes;
type Names<P extends string> = P extends `${string}{${infer N}}${infer R}` ? N | Names<R> : never;
type QueryOf<K extends Route> = Routes[K]['query'] extends undefined ? unknown : Routes[K]['query'];

export interface CallOptions<K extends Route> {
  path?: Record<Names<K>, string | number>;
  query?: QueryOf<K>;
  body?: Routes[K]['body'];
  signal?: AbortSignal;
}

let onUnauthorized: () => void = () => undefined;
export function whenUnauthorized(f: () => void): void {
  onUnauthorized = f;
}

/** The address of a route, also for links and for what is shown as a command of curl. */
export function address(path: string, values: Record<string, string | number> = {}, query: object = {}): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(values[name] ?? '')));
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === '') continue;
    q.set(name, value === true ? '1' : value === false ? '0' : String(value));
  }
  const text = q.toString();
  return text ? `${filled}?${text}` : filled;
}

async function failure(answer: Response): Promise<ApiError> {
  let code = '', message = `${answer.status} ${answer.statusText}`, field: string | null = null;
  try {
    const body = (await answer.json()) as { error?: { code?: string; message?: string }; field?: string };
    code = body.error?.code ?? '';
    message = body.error?.message ?? message;
    field = body.field ?? null;
  } catch {
    // Not JSON: something between us and the controller answered.
  }
  return new ApiError(answer.status, code, message, field);
}

export async function send(method: string, url: string, body?: unknown, signal?: AbortSignal, headers: Record<string, string> = {}): Promise<Response> {
  const init: RequestInit = { method, credentials: 'same-origin', signal: signal ?? null, headers };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...headers, 'Content-Type': 'application/json' };
  }
  let answer: Response;
  try {
    answer = await fetch(url, init);
  } catch (e) {
    if (e instanceof DOMException && e.name === 'AbortError') throw e;
    throw new ApiError(0, 'ENETUNREACH', 'The controller cannot be reached.');
  }
  if (answer.ok) return answer;
  const error = await failure(answer);
  if (answer.status === 401 && !url.startsWith('/v1/login')) onUnauthorized();
  throw error;
}

/** call('GET /v1/jobs/{job}', { path: { job: 12 } }) */
export async function call<K extends Route>(route: K, options: CallOptions<K> = {}): Promise<Routes[K]['answer']> {
  const [method, path] = route.split(' ') as [string, string];
  const url = address(path, options.path, (options.query as object | undefined) ?? {});
  const answer = await send(method, url, options.body, options.signal);
  return (await answer.json()) as Routes[K]['answer'];
}

export async function text(url: string, signal?: AbortSignal): Promise<string> {
  return (await send('GET', url, undefined, signal)).text();
}

/** The WebSocket of a route on this origin. */
export function socket(path: string): WebSocket {
  const w = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}${path}`);
  w.binaryType = 'arraybuffer';
  return w;
}

export function errorText(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}
