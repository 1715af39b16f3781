// Where the user's files are; guessed until a node has told.
import { signal } from '@preact/signals';
import { call } from '../api/client';
import { me } from '../api/session';

const told = signal('');
let asking: Promise<void> | null = null;

function askHome(): Promise<void> {
  if (!me.value?.may_submit) return Promise.resolve();  // without a user of the system there is none
  asking ??= call('GET /v1/files', { query: { path: '~', limit: 1 } }).then(l => void (told.value = l.home ?? ''), () => void (asking = null));
  return asking;
}

/** For what is sent: waits for the answer of a node. */
export async function foundHome(): Promise<string> {
  await askHome();
  return home();
}

/** For what is shown: reading it in a component draws that again when it is known. */
export function home(): string {
  void askHome();
  if (told.value) return told.value;
  const user = me.value?.user ?? '';
  return user === 'root' ? '/root' : `/home/${user}`;
}
