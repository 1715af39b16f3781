// Modal dialogs on the browser's own <dialog>: focus stays inside, Escape closes. `ask` shows one from anywhere.
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { errorText } from '../api/client';
import { t } from '../lib/i18n';
import { CloseIcon } from './icons';

const FIRST_FIELD = '.dialog-body :is(input:not([type=range], [type=checkbox], [type=radio], [type=file]), select, textarea):not(:disabled)';

export function Dialog({ title, wide, close, children, foot }: {
  title: string;
  wide?: boolean;
  close: () => void;
  children: ComponentChildren;
  foot?: ComponentChildren;
}) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const d = ref.current!;
    const before = document.activeElement as HTMLElement | null;
    d.showModal();
    // A form begins in its first field; on a touch screen that would bring up the keyboard.
    if (matchMedia('(pointer: fine)').matches && !d.querySelector('[autofocus]')) d.querySelector<HTMLElement>(FIRST_FIELD)?.focus();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog ref={ref} class={wide ? 'wide' : undefined} aria-labelledby={id} onClose={close}
      onClick={e => e.target === ref.current && close()}>
      <div class="dialog-head">
        <h2 id={id}>{title}</h2>
        <button class="button quiet icon" type="button" aria-label={t('action.close')} onClick={close}><CloseIcon /></button>
      </div>
      <div class="dialog-body">{children}</div>
      {foot && <div class="dialog-foot">{foot}</div>}
    </dialog>
  );
}

interface Question {
  title: string;
  body: ComponentChildren;
  yes: string;
  danger?: boolean;
  wide?: boolean;
  /** What the answer yes does; the dialog stays open with the error when it fails. */
  act: () => Promise<void>;
}

const question = signal<Question | null>(null);

/** Asks before something is done. */
export function ask(q: Question): void {
  question.value = q;
}

export function Questions() {
  const q = question.value;
  return q ? <Ask key={q.title} q={q} /> : null;
}

function Ask({ q }: { q: Question }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState('');
  // The browser tells a little later that a dialog was closed: by then another question may be asked.
  const close = () => {
    if (question.value === q) question.value = null;
  };
  const act = async () => {
    setBusy(true);
    setError('');
    try {
      await q.act();
      close();
    } catch (e) {
      setError(errorText(e));
      setBusy(false);
    }
  };
  return (
    <Dialog title={q.title} wide={q.wide ?? false} close={close} foot={
      <>
        <button class="button" onClick={close}>{t('action.back')}</button>
        <button class={q.danger ? 'button danger' : 'button primary'} disabled={busy} onClick={() => void act()}>{q.yes}</button>
      </>
    }>
      {q.body}
      {error && <div class="bad" role="alert">{error}</div>}
    </Dialog>
  );
}
