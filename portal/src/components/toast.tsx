// Short notices at the corner: what an action did. Errors stay until they are closed.
import { signal } from '@preact/signals';
import { errorText } from '../api/client';
import { t } from '../lib/i18n';
import { CloseIcon } from './icons';

interface Notice {
  id: number;
  text: string;
  error: boolean;
}

const SHOWN_MS = 6000;
const SHOWN_MOST = 4;
const notices = signal<Notice[]>([]);
let next = 1;

function close(id: number): void {
  notices.value = notices.value.filter(n => n.id !== id);
}

function add(text: string, error: boolean): void {
  const id = next++;
  notices.value = [...notices.value.slice(1 - SHOWN_MOST), { id, text, error }];
  if (!error) setTimeout(() => close(id), SHOWN_MS);
}

export const notify = (text: string): void => add(text, false);
export const notifyError = (e: unknown): void => add(errorText(e), true);

export function Toasts() {
  return (
    <div class="toasts" aria-live="polite">
      {notices.value.map(n => (
        <div key={n.id} class={n.error ? 'toast error' : 'toast'} role={n.error ? 'alert' : 'status'}>
          <div class="grow">{n.text}</div>
          <button class="button quiet icon" aria-label={t('action.close')} onClick={() => close(n.id)}><CloseIcon /></button>
        </div>
      ))}
    </div>
  );
}
