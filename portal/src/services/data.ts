// Services as the pages need them.
import { address, send } from '../api/client';
import type * as api from '../api/schema';
import { me } from '../api/session';

export type Revision = Omit<api.ServingRevision, 'command'> & { command: string };
export type Replica = api.ServiceReplica;
export type Service = Omit<api.Service, 'name' | 'user' | 'project' | 'revisions' | 'replica_list'> & {
  name: string;
  user: string;
  project: string;
  revisions: Revision[];
  replica_list: Replica[];
};

export const TONES: Record<string, string> = {
  ready: 'good', idle: 'wait', starting: 'wait', updating: 'run', failing: 'bad', serving: 'good', retiring: 'warn', waiting: 'wait', draining: 'warn', leaving: 'warn',
};

const whose = (s: { user: string }) => (s.user === me.value?.user ? {} : { user: s.user });
/** The address of a service in the API, or of what is below it. */
export const servicePath = (s: { name: string; user: string }, below = '', query: object = {}): string => address(`/v1/services/{name}${below}`, { name: s.name }, { ...whose(s), ...query });
export const servicePage = (s: { name: string; user: string }): string => address('/services/{name}', { name: s.name }, whose(s));
/** Whose service it is, for the command line. */
export const userOption = (s: { user: string }): string => (s.user === me.value?.user ? '' : ` --user ${s.user}`);

export async function loadServices(all: boolean, signal: AbortSignal): Promise<Service[]> {
  return ((await (await send('GET', address('/v1/services', {}, { all: all || undefined }), undefined, signal)).json()) as { services: Service[] }).services;
}

export async function loadService(name: string, user: string | null, signal: AbortSignal): Promise<Service> {
  return (await (await send('GET', address('/v1/services/{name}', { name }, { user }), undefined, signal)).json()) as Service;
}

export const msText = (v: number | null | undefined, number: (n: number, digits: number) => string): string => (v ? `${number(v, v < 10 ? 1 : 0)} ms` : '–');
